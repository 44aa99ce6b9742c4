// SPDX-License-Identifier: Apache-2.0
//! Bridging options of a port.

use clap::{Args, ValueEnum};
use quietwire_packet::VlanId;
use quietwire_switch::config::bridging::{
    BridgingSetting, FloodingSetting, OverLimitSetting, StormSetting, TagSetting,
};
use quietwire_switch::config::rules::Element;

use crate::units::parse_frame_rate;

/// Bridging options of a port.
#[derive(Debug, Args)]
pub(super) struct BridgingArgs {
    /// VLAN of an access port, 1 to 4094; its frames are untagged.
    #[arg(long, value_name = "VLAN", value_parser = parse_vlan)]
    access: Option<VlanId>,
    /// VLANs of a trunk port, like 1,5,10-12 or all; its frames are tagged.
    #[arg(long, value_name = "VLANS", conflicts_with = "access")]
    trunk: Option<String>,
    /// Native VLAN of a trunk: that of untagged frames.
    #[arg(long, value_name = "VLAN", value_parser = parse_vlan, conflicts_with = "access")]
    native: Option<VlanId>,
    /// Further VLANs of a trunk whose frames leave untagged.
    #[arg(long, value_name = "VLANS", conflicts_with = "access")]
    untagged: Option<String>,
    /// VLAN of a tunnel port (QinQ): all frames are in it, and their tags are payload.
    #[arg(long, value_name = "VLAN", value_parser = parse_vlan, conflicts_with_all = ["access", "trunk", "native", "untagged"])]
    tunnel: Option<VlanId>,
    /// Tag type of a trunk, or of the tag that a tunnel adds. [default: customer]
    #[arg(long, value_enum)]
    tag: Option<TagArg>,
    /// Learn source addresses. [default: true]
    #[arg(long, value_name = "BOOL")]
    learning: Option<bool>,
    /// Maximum number of addresses learned on the port. [default: no limit]
    #[arg(long, value_name = "N")]
    learning_limit: Option<u32>,
    /// Action for frames from stations above the learning limit. [default: forward]
    #[arg(long, value_enum)]
    over_limit: Option<OverLimitArg>,
    /// Split-horizon group; ports of the same group do not forward to each other.
    #[arg(long, value_name = "GROUP")]
    split_horizon: Option<u16>,
    /// Flood unknown unicast frames to the port. [default: true]
    #[arg(long, value_name = "BOOL")]
    flood_unknown_unicast: Option<bool>,
    /// Flood broadcast frames to the port. [default: true]
    #[arg(long, value_name = "BOOL")]
    flood_broadcast: Option<bool>,
    /// Flood multicast frames to the port. [default: true]
    #[arg(long, value_name = "BOOL")]
    flood_multicast: Option<bool>,
    /// Storm limit of unknown unicast frames received, frames per second, like 1000 or 10k. [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = parse_frame_rate)]
    storm_unknown_unicast: Option<u32>,
    /// Storm limit of broadcast frames received, frames per second, like 1000 or 10k. [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = parse_frame_rate)]
    storm_broadcast: Option<u32>,
    /// Storm limit of multicast frames received, frames per second, like 1000 or 10k. [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = parse_frame_rate)]
    storm_multicast: Option<u32>,
    /// Allowed source addresses, like 02:00:00:00:00:01,192.0.2.7,2001:db8::/64, or all. [default: all]
    #[arg(long, value_name = "ADDRESSES", value_parser = parse_guard)]
    source_guard: Option<Guard>,
}

/// Elements of a source guard.
#[derive(Clone, Debug)]
struct Guard(Vec<Element>);

fn parse_guard(text: &str) -> Result<Guard, String> {
    if text == "all" {
        return Ok(Guard(Vec::new()));
    }
    let elements: Result<Vec<Element>, String> = text.split(',').map(str::parse).collect();
    elements.map(Guard)
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
    /// Forward them without learning their source address.
    Forward,
    /// Drop them.
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
            source_guard: self.source_guard.map(|Guard(elements)| elements),
        }
    }
}

pub(super) fn parse_vlan(text: &str) -> Result<VlanId, String> {
    text.parse::<u16>()
        .ok()
        .and_then(|number| VlanId::new(number).ok())
        .ok_or_else(|| format!("'{text}' is not a VLAN, 1 to 4094"))
}
