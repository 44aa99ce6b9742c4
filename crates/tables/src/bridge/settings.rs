// SPDX-License-Identifier: Apache-2.0
//! Bridge settings and their validation.

use std::collections::{BTreeMap, BTreeSet};

use quietwire_packet::{MacAddress, VlanId};

use super::vlans::{TagType, VlanSet};
use crate::fdb::PORTS_MAX;

/// Settings of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Its ports.
    pub ports: Vec<BridgePort>,
    /// Its own interfaces, through which the bridge is a station in its networks.
    pub interfaces: Vec<Interface>,
    /// Kinds of frames it floods. A kind disabled here is flooded to no port, regardless of port settings.
    pub flooding: Flooding,
}

/// A port of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgePort {
    /// Its number in the switch, below [`PORTS_MAX`].
    pub number: u16,
    /// Its VLANs. All ports of a bridge must be [`PortVlans::Transparent`], or none.
    pub vlans: PortVlans,
    /// Kinds of frames flooded to it.
    pub flooding: Flooding,
    /// Whether source addresses are learned (IEEE 802.1Q, section 8.4: the Learning state of a port).
    pub learning: bool,
    /// Maximum number of learned addresses. `None`: no limit.
    pub learning_limit: Option<u32>,
    /// Action for frames whose source address exceeds the limit.
    pub over_limit: OverLimit,
    /// Split-horizon group: ports of one group do not forward to each other (as in RFC 4762, section 4.4).
    pub split_horizon: Option<u16>,
    /// Storm limits for frames received on it.
    pub storm: StormLimits,
}

impl BridgePort {
    /// Returns a port without VLANs and limits that learns and floods everything.
    #[must_use]
    pub fn new(number: u16) -> Self {
        Self {
            number,
            vlans: PortVlans::Transparent,
            flooding: Flooding::default(),
            learning: true,
            learning_limit: None,
            over_limit: OverLimit::default(),
            split_horizon: None,
            storm: StormLimits::default(),
        }
    }
}

/// VLAN mode of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PortVlans {
    /// Tags are payload: the bridge is not VLAN-aware.
    #[default]
    Transparent,
    /// Access port: one VLAN, whose frames are untagged. Admits untagged and priority-tagged frames only (IEEE 802.1Q, section 6.9).
    Access(VlanId),
    /// Trunk port: several VLANs.
    Trunk(Box<Trunk>),
    /// Tunnel port (QinQ): all received frames are in one VLAN, and customer tags are payload (IEEE 802.1Q, section 15.3: port-based
    /// service interface).
    Tunnel(Tunnel),
}

/// A trunk: a port in several VLANs with tagged frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trunk {
    /// Its VLANs.
    pub allowed: VlanSet,
    /// VLAN of untagged and priority-tagged frames. The port is a member even if `allowed` does not contain it, and frames of this VLAN
    /// leave untagged. `None`: only tagged frames are admitted (IEEE 802.1Q, section 6.9).
    pub native: Option<VlanId>,
    /// Additional VLANs whose frames leave untagged (the untagged set of IEEE 802.1Q, section 8.8.2).
    pub untagged: VlanSet,
    /// EtherType of its tags; other tags are payload.
    pub tag: TagType,
}

impl Trunk {
    /// Returns a trunk with customer tags.
    #[must_use]
    pub fn new(allowed: VlanSet) -> Self {
        Self {
            allowed,
            native: None,
            untagged: VlanSet::NONE,
            tag: TagType::Customer,
        }
    }
}

/// A tunnel port: the port of a provider to a customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// The customer's VLAN.
    pub vlan: VlanId,
    /// EtherType of the outer tags: the same on all trunks of this VLAN.
    pub tag: TagType,
}

/// Flooding by kind of frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flooding {
    /// Unicast frames to unknown destinations.
    pub unknown_unicast: bool,
    /// Broadcast frames.
    pub broadcast: bool,
    /// Multicast frames.
    pub multicast: bool,
}

impl Default for Flooding {
    /// Returns settings that flood frames of every kind.
    fn default() -> Self {
        Self {
            unknown_unicast: true,
            broadcast: true,
            multicast: true,
        }
    }
}

/// Storm limits of a port, in frames per second of each kind. `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StormLimits {
    /// Unicast frames to unknown destinations.
    pub unknown_unicast_pps: Option<u32>,
    /// Broadcast frames.
    pub broadcast_pps: Option<u32>,
    /// Multicast frames.
    pub multicast_pps: Option<u32>,
}

/// Action for frames whose source address exceeds the learning limit of the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverLimit {
    /// Forward the frame without learning its source address.
    #[default]
    Forward,
    /// Drop the frame.
    Drop,
}

/// An interface of the bridge itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its number among the interfaces of the router.
    pub number: u16,
    /// Its VLAN. `None` in a bridge without VLANs.
    pub vlan: Option<VlanId>,
    /// Its MAC address.
    pub address: MacAddress,
}

/// Invalid bridge settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The bridge has no port.
    #[error("the bridge has no ports (add at least one)")]
    NoPorts,
    /// Port number out of range.
    #[error("port {0}: number out of range (must be below {PORTS_MAX})")]
    PortNumber(u16),
    /// Duplicate port.
    #[error("port {0} is in the bridge twice (remove one)")]
    PortTwice(u16),
    /// Mix of ports with and without VLANs.
    #[error(
        "port {aware} has VLANs and port {transparent} has none (set VLANs for all ports of the bridge, or for none)"
    )]
    Mixed {
        /// Number of a port with VLANs.
        aware: u16,
        /// Number of a port without VLANs.
        transparent: u16,
    },
    /// Trunk without VLANs.
    #[error("port {0} is a trunk without VLANs (set its VLANs or its native VLAN)")]
    EmptyTrunk(u16),
    /// Different tag types in one VLAN.
    #[error(
        "VLAN {vlan}: the tag type is {trunk_tag} on trunk port {trunk} and {tunnel_tag} on tunnel port {tunnel} (use the same tag type)"
    )]
    TagTypes {
        /// The VLAN of both ports.
        vlan: VlanId,
        /// Number of the trunk.
        trunk: u16,
        /// Type of its tags.
        trunk_tag: quietwire_packet::EtherType,
        /// Number of the tunnel.
        tunnel: u16,
        /// Type of its tags.
        tunnel_tag: quietwire_packet::EtherType,
    },
    /// A limit of 0.
    #[error("port {port}: {what} is 0, which drops every frame; {instead}")]
    Zero {
        /// Number of the port.
        port: u16,
        /// Name of the limit.
        what: &'static str,
        /// The cure.
        instead: &'static str,
    },
    /// Interface with a VLAN in a bridge without VLANs, or without one in a bridge with VLANs.
    #[error("interface {number}: {what}")]
    InterfaceVlan {
        /// Its number.
        number: u16,
        /// The problem.
        what: &'static str,
    },
    /// Two interfaces with the same number or VLAN.
    #[error("interfaces {0} and {1} have the same number or VLAN (remove one)")]
    InterfaceTwice(u16, u16),
    /// MAC address of an interface that is not a unicast address.
    #[error("interface {number}: {address} is not a unicast MAC address")]
    InterfaceAddress {
        /// Its number.
        number: u16,
        /// Its address.
        address: MacAddress,
    },
}

impl Settings {
    /// Returns true if the bridge is VLAN-aware.
    #[must_use]
    pub fn is_vlan_aware(&self) -> bool {
        self.ports
            .iter()
            .any(|port| port.vlans != PortVlans::Transparent)
    }

    /// Validates the settings.
    ///
    /// # Errors
    /// [`SettingsError`] for the first problem.
    pub fn validate(&self) -> Result<(), SettingsError> {
        if self.ports.is_empty() {
            return Err(SettingsError::NoPorts);
        }
        let mut numbers = BTreeSet::new();
        for port in &self.ports {
            if port.number >= PORTS_MAX {
                return Err(SettingsError::PortNumber(port.number));
            }
            if !numbers.insert(port.number) {
                return Err(SettingsError::PortTwice(port.number));
            }
            port.check_limits()?;
            if let PortVlans::Trunk(trunk) = &port.vlans
                && trunk.allowed.is_empty()
                && trunk.native.is_none()
            {
                return Err(SettingsError::EmptyTrunk(port.number));
            }
        }
        self.check_mixed()?;
        self.check_tag_types()?;
        self.check_interfaces()
    }

    fn check_mixed(&self) -> Result<(), SettingsError> {
        let is_transparent = |port: &&BridgePort| port.vlans == PortVlans::Transparent;
        let transparent = self.ports.iter().find(is_transparent);
        let aware = self.ports.iter().find(|port| !is_transparent(port));
        match (transparent, aware) {
            (Some(transparent), Some(aware)) => Err(SettingsError::Mixed {
                aware: aware.number,
                transparent: transparent.number,
            }),
            _ => Ok(()),
        }
    }

    fn check_tag_types(&self) -> Result<(), SettingsError> {
        for (tunnel, of) in self.ports.iter().filter_map(|port| match port.vlans {
            PortVlans::Tunnel(of) => Some((port.number, of)),
            _ => None,
        }) {
            for port in &self.ports {
                if let PortVlans::Trunk(trunk) = &port.vlans
                    && trunk.allowed.contains(of.vlan.get())
                    && trunk.tag != of.tag
                {
                    return Err(SettingsError::TagTypes {
                        vlan: of.vlan,
                        trunk: port.number,
                        trunk_tag: trunk.tag.ethertype(),
                        tunnel,
                        tunnel_tag: of.tag.ethertype(),
                    });
                }
            }
        }
        Ok(())
    }

    fn check_interfaces(&self) -> Result<(), SettingsError> {
        let aware = self.is_vlan_aware();
        let mut by_vlan = BTreeMap::new();
        let mut numbers = BTreeSet::new();
        for interface in &self.interfaces {
            let Interface {
                number,
                vlan,
                address,
            } = *interface;
            let what = match (aware, vlan) {
                (true, None) => Some("the bridge has VLANs (set the VLAN of the interface)"),
                (false, Some(_)) => {
                    Some("the bridge has no VLANs (remove the VLAN of the interface)")
                }
                _ => None,
            };
            if let Some(what) = what {
                return Err(SettingsError::InterfaceVlan { number, what });
            }
            if address.is_multicast() || address == MacAddress::default() {
                return Err(SettingsError::InterfaceAddress { number, address });
            }
            if let Some(other) = by_vlan.insert(vlan, number) {
                return Err(SettingsError::InterfaceTwice(other, number));
            }
            if !numbers.insert(number) {
                return Err(SettingsError::InterfaceTwice(number, number));
            }
        }
        Ok(())
    }
}

impl BridgePort {
    fn check_limits(&self) -> Result<(), SettingsError> {
        let limits = [
            (
                self.learning_limit,
                "the learning limit",
                "disable learning instead",
            ),
            (
                self.storm.unknown_unicast_pps,
                "the storm limit of unknown unicast frames",
                "use at least 1 per second",
            ),
            (
                self.storm.broadcast_pps,
                "the storm limit of broadcast frames",
                "use at least 1 per second",
            ),
            (
                self.storm.multicast_pps,
                "the storm limit of multicast frames",
                "use at least 1 per second",
            ),
        ];
        match limits.into_iter().find(|(limit, ..)| *limit == Some(0)) {
            Some((_, what, instead)) => Err(SettingsError::Zero {
                port: self.number,
                what,
                instead,
            }),
            None => Ok(()),
        }
    }
}
