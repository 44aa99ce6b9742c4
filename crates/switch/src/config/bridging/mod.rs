// SPDX-License-Identifier: Apache-2.0
//! How a port behaves in its bridge, as it is asked for: VLANs, learning, flooding, limits.

mod change;

use quietwire_packet::{MacAddress, VlanId};
use serde::{Deserialize, Serialize};

use quietwire_tables::bridge::{
    BridgePort, Flooding, OverLimit, PortVlans, StormLimits, TagType, Trunk, Tunnel, VlanSet,
};

pub use change::{AddBridge, SetBridge};

/// Type of tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TagSetting {
    /// 0x8100 (IEEE 802.1Q, table 9-1).
    #[default]
    Customer,
    /// 0x88a8.
    Service,
}

/// What becomes of frames whose source address is over a port's limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverLimitSetting {
    /// They are forwarded, and their source is not learned.
    #[default]
    Forward,
    /// They are dropped.
    Drop,
}

/// What is flooded, by kind; what is not said is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FloodingSetting {
    /// Frames to a station that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_unicast: Option<bool>,
    /// Frames to all stations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<bool>,
    /// Frames to a group of stations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multicast: Option<bool>,
}

impl FloodingSetting {
    /// As the bridge takes it.
    #[must_use]
    pub fn flooding(&self) -> Flooding {
        Flooding {
            unknown_unicast: self.unknown_unicast.unwrap_or(true),
            broadcast: self.broadcast.unwrap_or(true),
            multicast: self.multicast.unwrap_or(true),
        }
    }

    fn over(self, other: Self) -> Self {
        Self {
            unknown_unicast: self.unknown_unicast.or(other.unknown_unicast),
            broadcast: self.broadcast.or(other.broadcast),
            multicast: self.multicast.or(other.multicast),
        }
    }
}

/// Frames to be flooded that a port may bring in, by kind; no limit where none is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct StormSetting {
    /// To stations that are not known, frames per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_unicast_pps: Option<u32>,
    /// To all stations, frames per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broadcast_pps: Option<u32>,
    /// To groups of stations, frames per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multicast_pps: Option<u32>,
}

impl StormSetting {
    fn over(self, other: Self) -> Self {
        Self {
            unknown_unicast_pps: self.unknown_unicast_pps.or(other.unknown_unicast_pps),
            broadcast_pps: self.broadcast_pps.or(other.broadcast_pps),
            multicast_pps: self.multicast_pps.or(other.multicast_pps),
        }
    }
}

/// How a port behaves in its bridge. Of `access`, `trunk` with `native`, and `tunnel`, one kind; none of them: the port
/// knows no VLANs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct BridgingSetting {
    /// The one VLAN of the port, whose frames have no tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<VlanId>,
    /// VLANs of the port, whose frames have tags: `1,5,10-12` or `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trunk: Option<String>,
    /// Of a trunk: the VLAN of frames without a tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native: Option<VlanId>,
    /// Of a trunk: further VLANs whose frames leave without a tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub untagged: Option<String>,
    /// The VLAN of all frames of the port, whose own tags are payload (QinQ).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<VlanId>,
    /// Type of the tags of a trunk, or of those that a tunnel's frames get; customers' when not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<TagSetting>,
    /// Whether source addresses are learned; they are when not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learning: Option<bool>,
    /// Most addresses learned at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learning_limit: Option<u32>,
    /// What becomes of frames over that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_limit: Option<OverLimitSetting>,
    /// Ports of one such group do not forward to each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_horizon: Option<u16>,
    /// What is flooded out of the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flooding: Option<FloodingSetting>,
    /// Most frames that the port may bring to be flooded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storm: Option<StormSetting>,
}

/// A static entry of a bridge.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct StaticSetting {
    /// Name of the bridge.
    pub bridge: String,
    /// The address.
    pub mac: MacAddress,
    /// Its VLAN, in a bridge that knows VLANs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanId>,
    /// Name of its port.
    pub port: String,
}

impl BridgingSetting {
    /// As the bridge takes it; `number` is the port's.
    ///
    /// # Errors
    /// What contradicts itself, in words.
    pub fn port(&self, number: u16) -> Result<BridgePort, String> {
        let storm = self.storm.clone().unwrap_or_default();
        Ok(BridgePort {
            vlans: self.vlans()?,
            flooding: self.flooding.clone().unwrap_or_default().flooding(),
            learning: self.learning.unwrap_or(true),
            learning_limit: self.learning_limit,
            over_limit: match self.over_limit.unwrap_or_default() {
                OverLimitSetting::Forward => OverLimit::Forward,
                OverLimitSetting::Drop => OverLimit::Drop,
            },
            split_horizon: self.split_horizon,
            storm: StormLimits {
                unknown_unicast_pps: storm.unknown_unicast_pps,
                broadcast_pps: storm.broadcast_pps,
                multicast_pps: storm.multicast_pps,
            },
            ..BridgePort::new(number)
        })
    }

    fn vlans(&self) -> Result<PortVlans, String> {
        let is_trunk = self.trunk.is_some() || self.native.is_some() || self.untagged.is_some();
        let kinds = [self.access.is_some(), is_trunk, self.tunnel.is_some()];
        if kinds.iter().filter(|kind| **kind).count() > 1 {
            return Err(
                "it is one of access, trunk and tunnel, and more than one is said".to_owned(),
            );
        }
        let tag = match self.tag.unwrap_or_default() {
            TagSetting::Customer => TagType::Customer,
            TagSetting::Service => TagType::Service,
        };
        Ok(if let Some(vlan) = self.access {
            PortVlans::Access(vlan)
        } else if let Some(vlan) = self.tunnel {
            PortVlans::Tunnel(Tunnel { vlan, tag })
        } else if is_trunk {
            PortVlans::Trunk(Box::new(Trunk {
                allowed: parse_set(self.trunk.as_deref())?,
                native: self.native,
                untagged: parse_set(self.untagged.as_deref())?,
                tag,
            }))
        } else if self.tag.is_some() {
            return Err("tag is about trunks and tunnels, and it is neither".to_owned());
        } else {
            PortVlans::Transparent
        })
    }

    /// Puts VLANs into the trunk that this is, or becomes when nothing is said of VLANs yet.
    ///
    /// # Errors
    /// What does not go together, in words.
    pub fn add_vlans(&mut self, vlans: &str, untagged: bool, native: bool) -> Result<(), String> {
        if self.access.is_some() || self.tunnel.is_some() {
            return Err("it is no trunk; `set port` makes it one".to_owned());
        }
        let more = parse_set(Some(vlans))?;
        if native {
            let mut all = more.iter();
            let (Some(one), None) = (all.next(), all.next()) else {
                return Err("frames without a tag are of one VLAN".to_owned());
            };
            self.native = Some(one);
        }
        let mut allowed = parse_set(self.trunk.as_deref())?;
        let mut without = parse_set(self.untagged.as_deref())?;
        for vlan in more.iter() {
            allowed.insert(vlan);
            if untagged {
                without.insert(vlan);
            }
        }
        self.set_trunk(&allowed, &without);
        Ok(())
    }

    /// Takes VLANs out of the trunk that this is.
    ///
    /// # Errors
    /// What is not there to be taken out, in words.
    pub fn del_vlans(&mut self, vlans: &str) -> Result<(), String> {
        let fewer = parse_set(Some(vlans))?;
        let allowed = parse_set(self.trunk.as_deref())?;
        let without = parse_set(self.untagged.as_deref())?;
        let is_in = |vlan: &VlanId| {
            allowed.contains(vlan.get())
                || without.contains(vlan.get())
                || self.native == Some(*vlan)
        };
        if vlans != "all"
            && let Some(stranger) = fewer.iter().find(|vlan| !is_in(vlan))
        {
            return Err(format!("VLAN {stranger} is not in its trunk"));
        }
        let rest = |set: &VlanSet| {
            set.iter()
                .filter(|vlan| !fewer.contains(vlan.get()))
                .collect()
        };
        let (allowed, without): (VlanSet, VlanSet) = (rest(&allowed), rest(&without));
        self.native = self.native.filter(|vlan| !fewer.contains(vlan.get()));
        self.set_trunk(&allowed, &without);
        Ok(())
    }

    /// A trunk without VLANs stays one: it takes no frames.
    fn set_trunk(&mut self, allowed: &VlanSet, untagged: &VlanSet) {
        self.trunk = Some(allowed.to_string());
        self.untagged = (!untagged.is_empty()).then(|| untagged.to_string());
    }

    /// These settings, and those of `other` that these do not say. What says which VLANs replaces all that says so.
    #[must_use]
    pub fn over(self, other: Self) -> Self {
        let says_vlans = self.access.is_some()
            || self.trunk.is_some()
            || self.native.is_some()
            || self.untagged.is_some()
            || self.tunnel.is_some();
        let vlans = if says_vlans {
            self.clone()
        } else {
            other.clone()
        };
        Self {
            access: vlans.access,
            trunk: vlans.trunk,
            native: vlans.native,
            untagged: vlans.untagged,
            tunnel: vlans.tunnel,
            tag: self.tag.or(vlans.tag),
            learning: self.learning.or(other.learning),
            learning_limit: self.learning_limit.or(other.learning_limit),
            over_limit: self.over_limit.or(other.over_limit),
            split_horizon: self.split_horizon.or(other.split_horizon),
            flooding: merged(self.flooding, other.flooding, FloodingSetting::over),
            storm: merged(self.storm, other.storm, StormSetting::over),
        }
    }
}

/// Returns what either says; what both say, by `over`.
fn merged<T>(one: Option<T>, other: Option<T>, over: impl Fn(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(over(one, other)),
        (one, other) => one.or(other),
    }
}

fn parse_set(text: Option<&str>) -> Result<VlanSet, String> {
    match text {
        None | Some("") => Ok(VlanSet::NONE),
        Some(text) => text
            .parse()
            .map_err(|error: quietwire_tables::bridge::VlanSetError| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vlans(text: &str) -> Result<PortVlans, String> {
        toml::from_str::<BridgingSetting>(text)
            .unwrap()
            .port(3)
            .map(|port| port.vlans)
    }

    #[test]
    fn kinds_of_ports() {
        assert_eq!(vlans(""), Ok(PortVlans::Transparent));
        let seven = VlanId::new(7).unwrap();
        assert_eq!(vlans("access = 7"), Ok(PortVlans::Access(seven)));
        let tunnel = Tunnel {
            vlan: seven,
            tag: TagType::Service,
        };
        assert_eq!(
            vlans("tunnel = 7\ntag = 'service'"),
            Ok(PortVlans::Tunnel(tunnel))
        );
        let Ok(PortVlans::Trunk(trunk)) = vlans("trunk = '5-9'\nnative = 7") else {
            panic!();
        };
        assert_eq!(
            (trunk.allowed.to_string().as_str(), trunk.native),
            ("5-9", Some(seven))
        );
    }

    #[test]
    fn contradictions_are_named() {
        for (text, part) in [
            ("access = 7\ntunnel = 7", "one of access, trunk and tunnel"),
            ("access = 7\nnative = 7", "one of access, trunk and tunnel"),
            ("trunk = '9-5'", "'9-5'"),
            ("access = 7\ntag = 'service'", ""),
            ("tag = 'service'", "it is neither"),
        ] {
            match vlans(text) {
                Err(error) => assert!(error.contains(part), "{error}"),
                Ok(_) => assert!(part.is_empty(), "{text}"),
            }
        }
    }

    #[test]
    fn vlans_come_and_go() {
        let mut setting = BridgingSetting::default();
        setting.add_vlans("5-7,9", false, false).unwrap();
        setting.add_vlans("3", true, false).unwrap();
        setting.add_vlans("4", false, true).unwrap();
        assert_eq!(setting.trunk.as_deref(), Some("3-7,9"));
        assert_eq!(setting.untagged.as_deref(), Some("3"));
        assert_eq!(setting.native.map(VlanId::get), Some(4));
        setting.del_vlans("3-4,6").unwrap();
        assert_eq!(setting.trunk.as_deref(), Some("5,7,9"));
        assert_eq!((&setting.untagged, setting.native), (&None, None));
        assert!(setting.del_vlans("6").unwrap_err().contains("VLAN 6"));
        setting.del_vlans("all").unwrap();
        let PortVlans::Trunk(trunk) = setting.port(1).unwrap().vlans else {
            panic!();
        };
        assert!(trunk.allowed.is_empty());
        assert!(setting.add_vlans("1-2", false, true).is_err());
        let mut access = BridgingSetting {
            access: VlanId::new(1).ok(),
            ..BridgingSetting::default()
        };
        assert!(
            access
                .add_vlans("5", false, false)
                .unwrap_err()
                .contains("no trunk")
        );
    }

    #[test]
    fn flooding_and_storm_limits_of_one_kind_leave_the_others() {
        let read = |text: &str| toml::from_str::<BridgingSetting>(text).unwrap();
        let former = read(
            "flooding = { broadcast = false }\nstorm = { broadcast-pps = 10, multicast-pps = 20 }",
        );
        let change = read("flooding = { multicast = false }\nstorm = { multicast-pps = 30 }");
        let expected = read(
            "flooding = { broadcast = false, multicast = false }\n\
             storm = { broadcast-pps = 10, multicast-pps = 30 }",
        );
        assert_eq!(change.over(former), expected);
    }
}
