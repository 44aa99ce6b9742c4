// SPDX-License-Identifier: Apache-2.0
//! How a port behaves in its bridge, as options.

use clap::{Args, ValueEnum};
use quietwire_packet::VlanId;
use quietwire_switch::config::bridging::{
    BridgingSetting, FloodingSetting, OverLimitSetting, StormSetting, TagSetting,
};

/// How a port behaves in its bridge.
#[derive(Debug, Args)]
pub(super) struct BridgingArgs {
    /// The one VLAN of the port, whose frames have no tag.
    #[arg(long, value_name = "VLAN", value_parser = parse_vlan)]
    access: Option<VlanId>,
    /// VLANs of the port, whose frames have tags, like 1,5,10-12 or all.
    #[arg(long, value_name = "VLANS", conflicts_with = "access")]
    trunk: Option<String>,
    /// Of a trunk: the VLAN of frames without a tag.
    #[arg(long, value_name = "VLAN", value_parser = parse_vlan, conflicts_with = "access")]
    native: Option<VlanId>,
    /// Of a trunk: further VLANs whose frames leave without a tag.
    #[arg(long, value_name = "VLANS", conflicts_with = "access")]
    untagged: Option<String>,
    /// The VLAN of all frames of the port, whose own tags are payload (QinQ).
    #[arg(long, value_name = "VLAN", value_parser = parse_vlan, conflicts_with_all = ["access", "trunk", "native", "untagged"])]
    tunnel: Option<VlanId>,
    /// Type of a trunk's tags, or of those that a tunnel's frames get. [default: customer]
    #[arg(long, value_enum)]
    tag: Option<TagArg>,
    /// Whether source addresses are learned. [default: true]
    #[arg(long, value_name = "BOOL")]
    learning: Option<bool>,
    /// Most addresses learned at a time. [default: no limit]
    #[arg(long, value_name = "N")]
    learning_limit: Option<u32>,
    /// What becomes of frames from stations over that. [default: forward]
    #[arg(long, value_enum)]
    over_limit: Option<OverLimitArg>,
    /// Ports of one such group do not forward to each other.
    #[arg(long, value_name = "GROUP")]
    split_horizon: Option<u16>,
    /// Whether frames to stations that are not known are flooded out of the port. [default: true]
    #[arg(long, value_name = "BOOL")]
    flood_unknown_unicast: Option<bool>,
    /// Whether frames to all stations go out of the port. [default: true]
    #[arg(long, value_name = "BOOL")]
    flood_broadcast: Option<bool>,
    /// Whether frames to groups of stations go out of the port. [default: true]
    #[arg(long, value_name = "BOOL")]
    flood_multicast: Option<bool>,
    /// Most frames a second that the port may bring for stations that are not known. [default: no limit]
    #[arg(long, value_name = "PPS")]
    storm_unknown_unicast: Option<u32>,
    /// Most frames a second that the port may bring for all stations. [default: no limit]
    #[arg(long, value_name = "PPS")]
    storm_broadcast: Option<u32>,
    /// Most frames a second that the port may bring for groups of stations. [default: no limit]
    #[arg(long, value_name = "PPS")]
    storm_multicast: Option<u32>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TagArg {
    /// 0x8100.
    Customer,
    /// 0x88a8.
    Service,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OverLimitArg {
    /// They are forwarded, and their source is not learned.
    Forward,
    /// They are dropped.
    Drop,
}

impl BridgingArgs {
    pub(super) fn setting(self) -> BridgingSetting {
        let flooding = FloodingSetting {
            unknown_unicast: self.flood_unknown_unicast,
            broadcast: self.flood_broadcast,
            multicast: self.flood_multicast,
        };
        let storm = StormSetting {
            unknown_unicast_pps: self.storm_unknown_unicast,
            broadcast_pps: self.storm_broadcast,
            multicast_pps: self.storm_multicast,
        };
        BridgingSetting {
            access: self.access,
            trunk: self.trunk,
            native: self.native,
            untagged: self.untagged,
            tunnel: self.tunnel,
            tag: self.tag.map(|tag| match tag {
                TagArg::Customer => TagSetting::Customer,
                TagArg::Service => TagSetting::Service,
            }),
            learning: self.learning,
            learning_limit: self.learning_limit,
            over_limit: self.over_limit.map(|limit| match limit {
                OverLimitArg::Forward => OverLimitSetting::Forward,
                OverLimitArg::Drop => OverLimitSetting::Drop,
            }),
            split_horizon: self.split_horizon,
            flooding: (flooding != FloodingSetting::default()).then_some(flooding),
            storm: (storm != StormSetting::default()).then_some(storm),
        }
    }
}

pub(super) fn parse_vlan(text: &str) -> Result<VlanId, String> {
    text.parse::<u16>()
        .ok()
        .and_then(|number| VlanId::new(number).ok())
        .ok_or_else(|| format!("'{text}' is not a VLAN, 1 to 4094"))
}
