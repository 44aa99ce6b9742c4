// SPDX-License-Identifier: Apache-2.0
//! Bridging settings of a port: VLANs, learning, flooding, limits.

mod change;
mod statics;

use quietwire_packet::{MacAddress, VlanId};
use serde::{Deserialize, Serialize};

use quietwire_tables::bridge::{
    BridgePort, Flooding, OverLimit, PortVlans, StormLimits, TagType, Trunk, Tunnel, VlanSet,
};

use quietwire_tables::filter::{Element, GUARD_MAX, SetType};

pub use change::{AddBridge, SetBridge};
pub(super) use statics::{StaticBridge, plan_statics};

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

/// Action for frames whose source address exceeds the learning limit of the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverLimitSetting {
    /// Forward the frame without learning its source address.
    #[default]
    Forward,
    /// Drop the frame.
    Drop,
}

/// Flooding by kind of frame. Default: every kind is flooded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FloodingSetting {
    /// Unicast frames to unknown destinations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_unicast: Option<bool>,
    /// Broadcast frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<bool>,
    /// Multicast frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multicast: Option<bool>,
}

impl FloodingSetting {
    /// Converts to the bridge's type.
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

/// Storm limits of a port, by kind of frame. Default: no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct StormSetting {
    /// Unicast frames to unknown destinations, frames per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_unicast_pps: Option<u32>,
    /// Broadcast frames, frames per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broadcast_pps: Option<u32>,
    /// Multicast frames, frames per second.
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

/// Bridging settings of a port. `access`, `trunk` (with `native`) and `tunnel` exclude each other. Without any of them the port is not
/// VLAN-aware.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct BridgingSetting {
    /// VLAN of an access port. Its frames are untagged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<VlanId>,
    /// Tagged VLANs of a trunk: `1,5,10-12` or `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trunk: Option<String>,
    /// VLAN of untagged frames on a trunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native: Option<VlanId>,
    /// Additional VLANs of a trunk whose frames leave untagged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub untagged: Option<String>,
    /// VLAN of all frames of a tunnel port. Existing tags are payload (QinQ).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<VlanId>,
    /// Tag type of a trunk, or of the outer tags of a tunnel. Default: customer tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<TagSetting>,
    /// Whether source addresses are learned. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learning: Option<bool>,
    /// Maximum number of learned addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learning_limit: Option<u32>,
    /// Action for frames beyond the learning limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_limit: Option<OverLimitSetting>,
    /// Split-horizon group: ports of one group do not forward to each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_horizon: Option<u16>,
    /// Kinds of frames flooded to this port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flooding: Option<FloodingSetting>,
    /// Storm limits for frames received on this port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storm: Option<StormSetting>,
    /// Source guard: MAC addresses, IPv4 and IPv6 addresses that may send from this port, also in groups other than bridges. Default and
    /// empty: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_guard: Option<Vec<Element>>,
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
    /// Converts to the bridge's type. `number` is the number of the port.
    ///
    /// # Errors
    /// A message that describes contradicting settings.
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
            return Err("access, trunk and tunnel exclude each other (set one of them)".to_owned());
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
            return Err(
                "tag applies only to trunks and tunnels (set trunk or tunnel, or remove tag)"
                    .to_owned(),
            );
        } else {
            PortVlans::Transparent
        })
    }

    /// Adds VLANs to the trunk. A port without VLAN settings becomes a trunk.
    ///
    /// # Errors
    /// A message that describes contradicting settings.
    pub fn add_vlans(&mut self, vlans: &str, untagged: bool, native: bool) -> Result<(), String> {
        if self.access.is_some() || self.tunnel.is_some() {
            return Err("it is not a trunk (use `set port` to make it one)".to_owned());
        }
        let more = parse_set(Some(vlans))?;
        if native {
            let mut all = more.iter();
            let (Some(one), None) = (all.next(), all.next()) else {
                return Err("the native VLAN must be a single VLAN".to_owned());
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

    /// Removes VLANs from the trunk.
    ///
    /// # Errors
    /// A message that names the VLAN that is not in the trunk.
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

    /// Sets the VLANs of a trunk. A trunk without VLANs stays a trunk and accepts no frames.
    fn set_trunk(&mut self, allowed: &VlanSet, untagged: &VlanSet) {
        self.trunk = Some(allowed.to_string());
        self.untagged = (!untagged.is_empty()).then(|| untagged.to_string());
    }

    /// Returns these settings, completed by `other`. The VLAN settings are replaced as a whole.
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
            source_guard: self.source_guard.or(other.source_guard),
        }
    }

    /// Checks the elements of the source guard.
    ///
    /// # Errors
    /// The problem and its cure.
    pub fn check_guard(&self) -> Result<(), String> {
        let elements = self.source_guard.as_deref().unwrap_or_default();
        if elements.len() > GUARD_MAX {
            return Err(format!(
                "source-guard has too many elements (maximum: {GUARD_MAX}; use prefixes)"
            ));
        }
        let is_other =
            |element: &&Element| matches!(element.kind(), SetType::InetService | SetType::Ifname);
        match elements.iter().find(is_other) {
            Some(element) => Err(format!(
                "source-guard: '{element}' is neither a MAC address nor an IP address or prefix"
            )),
            None => Ok(()),
        }
    }
}

/// Merges two optional settings with `over` if both are set; otherwise returns the one that is set.
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
            ("access = 7\ntunnel = 7", "access, trunk and tunnel exclude"),
            ("access = 7\nnative = 7", "access, trunk and tunnel exclude"),
            ("trunk = '9-5'", "'9-5'"),
            ("access = 7\ntag = 'service'", ""),
            ("tag = 'service'", "only to trunks and tunnels"),
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
                .contains("not a trunk")
        );
    }

    #[test]
    fn a_source_guard_is_replaced_as_a_whole() {
        let read = |text: &str| toml::from_str::<BridgingSetting>(text).unwrap();
        let former = read("source-guard = [\"02:00:00:00:00:01\", \"192.0.2.7\"]\naccess = 5");
        assert_eq!(former.check_guard(), Ok(()));
        let change = read("source-guard = [\"2001:db8::/64\"]");
        let expected = read("source-guard = [\"2001:db8::/64\"]\naccess = 5");
        assert_eq!(change.over(former.clone()), expected);
        assert_eq!(
            read("learning = true").over(former.clone()).source_guard,
            former.source_guard
        );
        // An empty list ends it.
        assert_eq!(
            read("source-guard = []").over(former).source_guard,
            Some(Vec::new())
        );
        let error = read("source-guard = [\"80\"]").check_guard().unwrap_err();
        assert!(error.contains("'80' is neither"), "{error}");
        let many = BridgingSetting {
            source_guard: Some(vec!["192.0.2.7".parse().unwrap(); GUARD_MAX + 1]),
            ..BridgingSetting::default()
        };
        assert!(many.check_guard().unwrap_err().contains("maximum: 256"));
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
