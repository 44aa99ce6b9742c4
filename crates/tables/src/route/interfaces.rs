// SPDX-License-Identifier: Apache-2.0
//! Router interfaces in the form of forwarding threads, built for each generation of the configuration.

use quietwire_packet::{MacAddress, VlanId};

/// Unicast reverse path forwarding check of source addresses (RFC 3704).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urpf {
    /// No check.
    #[default]
    Off,
    /// Loose mode: some route to the source must exist (section 2.4).
    Loose,
    /// Strict mode: a route to the source through the ingress interface must exist (section 2.2).
    Strict,
}

/// Location of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceBinding {
    /// A port, by number.
    Port(u16),
    /// A bridge, by number.
    Bridge(u16),
}

/// One interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its location.
    pub place: InterfaceBinding,
    /// VLAN tag of its frames on a port. Frames of a bridge interface are untagged here.
    pub vlan: Option<VlanId>,
    /// Its MAC address.
    pub mac: MacAddress,
    /// Largest IP packet, octets.
    pub mtu: u16,
    /// Number of its VRF.
    pub vrf: u16,
    /// Reverse path check.
    pub urpf: Urpf,
    /// Whether it has an IPv4 address.
    pub ipv4: bool,
    /// Whether it has an IPv6 address.
    pub ipv6: bool,
}

/// All interfaces, by number.
#[derive(Clone, Debug, Default)]
pub struct Interfaces(Vec<Option<Interface>>);

impl Interfaces {
    /// Creates the set from interfaces and their numbers.
    #[expect(
        clippy::indexing_slicing,
        reason = "the list has space for the number, of 16 bits"
    )]
    #[must_use]
    pub fn new(interfaces: impl IntoIterator<Item = (u16, Interface)>) -> Self {
        let mut all = Vec::new();
        for (number, interface) in interfaces {
            let number = usize::from(number);
            if all.len() <= number {
                all.resize(number + 1, None);
            }
            all[number] = Some(interface);
        }
        Self(all)
    }

    /// Returns the interface with this number.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, number: u16) -> Option<&Interface> {
        self.0.get(usize::from(number))?.as_ref()
    }

    /// Returns all interfaces with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &Interface)> {
        let numbered = (0u16..).zip(&self.0);
        numbered.filter_map(|(number, interface)| Some((number, interface.as_ref()?)))
    }
}

/// Interfaces of a port by VLAN.
#[derive(Clone, Debug, Default)]
pub struct PortInterfaces {
    untagged: Option<u16>,
    tagged: Vec<(u16, u16)>,
}

impl PortInterfaces {
    /// Creates the map from VLANs and numbers of a port's interfaces.
    #[must_use]
    pub fn new(interfaces: impl IntoIterator<Item = (Option<VlanId>, u16)>) -> Self {
        let mut all = Self::default();
        for (vlan, interface) in interfaces {
            match vlan {
                None => all.untagged = Some(interface),
                Some(vlan) => all.tagged.push((vlan.get(), interface)),
            }
        }
        all.tagged.sort_unstable();
        all
    }

    /// Returns true if an interface receives tagged frames.
    #[inline(always)]
    #[must_use]
    pub fn has_tagged(&self) -> bool {
        !self.tagged.is_empty()
    }

    /// Returns the interface of untagged frames.
    #[inline(always)]
    #[must_use]
    pub fn untagged(&self) -> Option<u16> {
        self.untagged
    }

    /// Returns the interface of frames with this tag. Priority-tagged frames (IEEE 802.1Q, table 9-2) count as untagged.
    #[inline]
    #[must_use]
    pub fn tagged(&self, tci: u16) -> Option<u16> {
        let vlan = tci & 0xfff;
        if vlan == 0 {
            return self.untagged;
        }
        let at = self
            .tagged
            .binary_search_by_key(&vlan, |(vlan, _)| *vlan)
            .ok()?;
        self.tagged.get(at).map(|(_, interface)| *interface)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_belong_to_the_interface_of_their_vlan() {
        let vlan = |number| VlanId::new(number).ok();
        let port = PortInterfaces::new([(vlan(20), 2), (None, 0), (vlan(10), 1)]);
        assert_eq!((port.untagged(), port.has_tagged()), (Some(0), true));
        assert_eq!(port.tagged(0x600a), Some(1));
        assert_eq!(port.tagged(20), Some(2));
        assert_eq!(port.tagged(0xe000), Some(0));
        assert_eq!(port.tagged(30), None);
    }
}
