// SPDX-License-Identifier: Apache-2.0
//! The router's interfaces as forwarding threads know them: made for each generation of the configuration.

use quietwire_packet::{MacAddress, VlanId};

/// Whether the source address of a packet has to have a way back (RFC 3704).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urpf {
    /// It need not.
    #[default]
    Off,
    /// Some way (section 2.4).
    Loose,
    /// One by the interface that the packet came in on (section 2.2).
    Strict,
}

/// Where an interface's frames come from and go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfacePlace {
    /// A port, by number.
    Port(u16),
    /// A bridge, by number.
    Bridge(u16),
}

/// One interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Where it is.
    pub place: InterfacePlace,
    /// The VLAN whose tag its frames have on a port. Frames of a bridge's interface have none here.
    pub vlan: Option<VlanId>,
    /// Its address on the link.
    pub mac: MacAddress,
    /// Largest IP packet, octets.
    pub mtu: u16,
    /// Number of its VRF.
    pub vrf: u16,
    /// The check of source addresses.
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
    /// Of interfaces with their numbers.
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

    /// The interface with this number.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, number: u16) -> Option<&Interface> {
        self.0.get(usize::from(number))?.as_ref()
    }

    /// All, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &Interface)> {
        let numbered = (0u16..).zip(&self.0);
        numbered.filter_map(|(number, interface)| Some((number, interface.as_ref()?)))
    }
}

/// Which interface a frame of a port belongs to.
#[derive(Clone, Debug, Default)]
pub struct PortInterfaces {
    untagged: Option<u16>,
    tagged: Vec<(u16, u16)>,
}

impl PortInterfaces {
    /// Of a port's interfaces: numbers of VLANs, and of interfaces.
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

    /// True when frames with a tag have an interface.
    #[inline(always)]
    #[must_use]
    pub fn has_tagged(&self) -> bool {
        !self.tagged.is_empty()
    }

    /// The interface of frames without a tag.
    #[inline(always)]
    #[must_use]
    pub fn untagged(&self) -> Option<u16> {
        self.untagged
    }

    /// The interface of frames with this tag; priority-tagged ones (IEEE 802.1Q, table 9-2) are as if without.
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
