// SPDX-License-Identifier: Apache-2.0
//! What a bridge is told to do, and what of that makes no sense.

use std::collections::{BTreeMap, BTreeSet};

use quietwire_packet::{MacAddress, VlanId};

use super::vlans::{TagType, VlanSet};
use crate::fdb::PORTS_MAX;

/// What a bridge is to be like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Its ports.
    pub ports: Vec<BridgePort>,
    /// Its own interfaces, by which it is a station of its networks itself.
    pub interfaces: Vec<Interface>,
    /// What it floods: what is off here goes out of no port, whatever is said of ports.
    pub flooding: Flooding,
}

/// A port of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgePort {
    /// Its number in the switch, below [`PORTS_MAX`].
    pub number: u16,
    /// Its VLANs. Either all ports of a bridge are [`PortVlans::Transparent`] or none.
    pub vlans: PortVlans,
    /// What is flooded out of it.
    pub flooding: Flooding,
    /// Whether source addresses are learned (IEEE 802.1Q, section 8.4: the Learning state of a port).
    pub learning: bool,
    /// Most addresses learned at a time; no limit when none is given.
    pub learning_limit: Option<u32>,
    /// What becomes of frames whose source address is over the limit.
    pub over_limit: OverLimit,
    /// Split-horizon group: ports of one group do not forward to each other (as in RFC 4762, section 4.4).
    pub split_horizon: Option<u16>,
    /// Most frames that it may bring to be flooded.
    pub storm: StormLimits,
}

impl BridgePort {
    /// A port that knows no VLANs, learns and floods everything, without limits.
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

/// A port's VLANs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PortVlans {
    /// Tags are payload: the bridge knows no VLANs.
    #[default]
    Transparent,
    /// In one VLAN, whose frames come and go without a tag. Admits untagged and priority-tagged frames only (IEEE 802.1Q,
    /// section 6.9).
    Access(VlanId),
    /// In several VLANs.
    Trunk(Box<Trunk>),
    /// A customer's port of a provider: all that comes in is in one VLAN, and the customer's tags are payload (IEEE
    /// 802.1Q, section 15.3: port-based service interface).
    Tunnel(Tunnel),
}

/// A port in several VLANs, whose frames have tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trunk {
    /// Its VLANs.
    pub allowed: VlanSet,
    /// The VLAN of untagged and priority-tagged frames; one of the port's VLANs, whether `allowed` says so or
    /// not, and its frames leave untagged. Without one, only tagged frames are admitted (IEEE 802.1Q, section 6.9).
    pub native: Option<VlanId>,
    /// Further VLANs whose frames leave untagged (the untagged set of IEEE 802.1Q, section 8.8.2).
    pub untagged: VlanSet,
    /// Type of its tags; other tags are payload.
    pub tag: TagType,
}

impl Trunk {
    /// A trunk of customers' tags only.
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

/// A customer's port of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// The customer's VLAN.
    pub vlan: VlanId,
    /// Type of the tags that its frames have outside: that of all trunks of this VLAN.
    pub tag: TagType,
}

/// What is flooded, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flooding {
    /// Frames to a station that is not known.
    pub unknown_unicast: bool,
    /// Frames to all stations.
    pub broadcast: bool,
    /// Frames to a group of stations.
    pub multicast: bool,
}

impl Default for Flooding {
    /// Everything.
    fn default() -> Self {
        Self {
            unknown_unicast: true,
            broadcast: true,
            multicast: true,
        }
    }
}

/// Frames to be flooded that a port may bring in, in frames per second of each kind; no limit when none is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StormLimits {
    /// Frames to a station that is not known.
    pub unknown_unicast_pps: Option<u32>,
    /// Frames to all stations.
    pub broadcast_pps: Option<u32>,
    /// Frames to a group of stations.
    pub multicast_pps: Option<u32>,
}

/// What becomes of frames whose source address is over the port's limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverLimit {
    /// They are forwarded, and their source is not learned.
    #[default]
    Forward,
    /// They are dropped.
    Drop,
}

/// An interface of the bridge itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its number among the interfaces of the router.
    pub number: u16,
    /// The VLAN that it is in; none in a bridge that knows none.
    pub vlan: Option<VlanId>,
    /// Its address.
    pub address: MacAddress,
}

/// What makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// No port.
    #[error("the bridge has no ports; give it some")]
    NoPorts,
    /// A number that no port can have.
    #[error("port {0}: ports have numbers below {PORTS_MAX}")]
    PortNumber(u16),
    /// Twice the same.
    #[error("port {0} is in the bridge twice; leave one out")]
    PortTwice(u16),
    /// VLANs here and none there.
    #[error(
        "port {aware} has VLANs and port {transparent} has none; in one bridge, give VLANs to all ports or to no port"
    )]
    Mixed {
        /// One that has VLANs.
        aware: u16,
        /// One that has none.
        transparent: u16,
    },
    /// A trunk without VLANs.
    #[error("port {0} is a trunk of no VLAN; say which VLANs are allowed, or which is native")]
    EmptyTrunk(u16),
    /// Frames would be tagged in two ways.
    #[error(
        "VLAN {vlan}: the tags of trunk port {trunk} are of type {trunk_tag}, and those of tunnel port {tunnel} of {tunnel_tag}; give both the same"
    )]
    TagTypes {
        /// Where they meet.
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
    /// A limit that lets nothing pass.
    #[error("port {port}: {what} is 0, which lets nothing pass; {instead}")]
    Zero {
        /// Number of the port.
        port: u16,
        /// Which limit.
        what: &'static str,
        /// What to say instead.
        instead: &'static str,
    },
    /// An interface in a VLAN of a bridge without, or the other way round.
    #[error("interface {number}: {what}")]
    InterfaceVlan {
        /// Its number.
        number: u16,
        /// What is wrong.
        what: &'static str,
    },
    /// Two interfaces of one number, or in one VLAN.
    #[error("interfaces {0} and {1} are both in the same VLAN, or the same; leave one out")]
    InterfaceTwice(u16, u16),
    /// No station's address.
    #[error("interface {number}: {address} is not the address of one station; give another")]
    InterfaceAddress {
        /// Its number.
        number: u16,
        /// Its address.
        address: MacAddress,
    },
}

impl Settings {
    /// True when the bridge knows VLANs.
    #[must_use]
    pub fn is_vlan_aware(&self) -> bool {
        self.ports
            .iter()
            .any(|port| port.vlans != PortVlans::Transparent)
    }

    /// Checks that all of it makes sense.
    ///
    /// # Errors
    /// [`SettingsError`] for the first thing that does not.
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
                (true, None) => Some("the bridge has VLANs, so say which one the interface is in"),
                (false, Some(_)) => {
                    Some("the bridge has no VLANs, so the interface can be in none")
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
                "the limit of learned addresses",
                "switch learning off instead",
            ),
            (
                self.storm.unknown_unicast_pps,
                "the limit of unknown unicast frames",
                "give at least 1 per second",
            ),
            (
                self.storm.broadcast_pps,
                "the limit of broadcast frames",
                "give at least 1 per second",
            ),
            (
                self.storm.multicast_pps,
                "the limit of multicast frames",
                "give at least 1 per second",
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
