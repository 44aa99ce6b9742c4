// SPDX-License-Identifier: Apache-2.0
//! Source guard of a port: frames with other source addresses than the allowed ones are dropped, and so are ARP packets and neighbour
//! discovery that claim other addresses (RFC 826; RFC 4861; RFC 7039).

use std::net::{Ipv4Addr, Ipv6Addr};

use quietwire_packet::{
    ArpOperation, ArpPacket, EtherType, Fragment, IpProtocol, MacAddress, walk_ipv6_extensions,
};

use super::element::Element;
use super::malformed::malformation;
use super::pattern::{IPV4, IPV4_HEADER, IPV6, IPV6_HEADER, after_tags};
use crate::drops::PortDrop;

/// Maximum number of elements of a guard.
pub const GUARD_MAX: usize = 256;

const ARP: u16 = EtherType::ARP.0;
/// Reverse ARP (RFC 903), which claims addresses as ARP does.
const RARP: u16 = 0x8035;
const UDP: u8 = 17;
/// Ports of a DHCP client and its server (RFC 2131, section 4.1).
const DHCP: [u8; 4] = [0, 68, 0, 67];
/// Types of ICMPv6: multicast listener discovery (RFC 2710; RFC 3810) and neighbour discovery (RFC 4861, section 4).
const LISTENER_REPORT: u8 = 131;
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;
const LISTENER_REPORT_V2: u8 = 143;
/// Options of neighbour discovery: link-layer address of the source, and of the target (RFC 4861, section 4.6.1).
const SOURCE_LINK: u8 = 1;
const TARGET_LINK: u8 = 2;

/// Allowed source addresses of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceGuard {
    /// Allowed MAC addresses, sorted. Empty: all.
    macs: Vec<u64>,
    /// Allowed IPv4 and IPv6 addresses: ranges, sorted and apart.
    ipv4: Vec<(u32, u32)>,
    ipv6: Vec<(u128, u128)>,
    /// Some IP address is listed, so that others are not allowed.
    checks_ip: bool,
}

/// Merges ranges.
fn merged<T: Ord + Copy>(mut ranges: Vec<(T, T)>) -> Vec<(T, T)> {
    ranges.sort_unstable();
    let mut merged: Vec<(T, T)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(former) if first <= former.1 => former.1 = former.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

/// Returns whether a range contains the value.
fn contains<T: Ord + Copy>(ranges: &[(T, T)], value: T) -> bool {
    let behind = ranges.partition_point(|(first, _)| *first <= value);
    let range = behind.checked_sub(1).and_then(|at| ranges.get(at));
    range.is_some_and(|(_, last)| value <= *last)
}

impl SourceGuard {
    /// Creates a guard of MAC addresses, IPv4 and IPv6 addresses, of which at most [`GUARD_MAX`] elements count. Without MAC addresses, all
    /// are allowed; without IP addresses, all are. With an IP address of one version, those of the other version have to be listed too.
    #[must_use]
    pub fn new(elements: &[Element]) -> Self {
        let (mut macs, mut ipv4, mut ipv6) = (Vec::new(), Vec::new(), Vec::new());
        for element in elements.iter().take(GUARD_MAX) {
            match element {
                Element::Mac(mac) => macs.push(mac.to_u64()),
                Element::Ipv4(first, last) => ipv4.push((first.to_bits(), last.to_bits())),
                Element::Ipv6(first, last) => ipv6.push((first.to_bits(), last.to_bits())),
                Element::Ports(..) | Element::Name(_) => {}
            }
        }
        macs.sort_unstable();
        Self {
            macs,
            checks_ip: !ipv4.is_empty() || !ipv6.is_empty(),
            ipv4: merged(ipv4),
            ipv6: merged(ipv6),
        }
    }

    fn allows_mac(&self, mac: MacAddress) -> bool {
        self.macs.is_empty() || self.macs.binary_search(&mac.to_u64()).is_ok()
    }

    fn allows_v4(&self, address: Ipv4Addr) -> bool {
        !self.checks_ip || contains(&self.ipv4, address.to_bits())
    }

    fn allows_v6(&self, address: Ipv6Addr) -> bool {
        !self.checks_ip || contains(&self.ipv6, address.to_bits())
    }

    /// Returns why a frame must not come from the port; `None` if it may. `octets` are those of the first buffer, `length` is the length of
    /// the frame. A frame that is shorter than its Ethernet header is not the guard's. Frames whose headers are malformed
    /// ([`super::Malformation`]) could hide their source, and are dropped as [`PortDrop::Malformed`].
    pub fn violation(&self, octets: &[u8], length: usize) -> Option<PortDrop> {
        if length < quietwire_packet::ETHERNET_HEADER_LENGTH {
            return None;
        }
        let Some([_, _, _, _, _, _, source @ ..]) = octets.first_chunk::<12>() else {
            return Some(PortDrop::Malformed);
        };
        if !self.allows_mac(MacAddress(*source)) {
            return Some(PortDrop::GuardMac);
        }
        let (vlan, rest) = after_tags(octets).unwrap_or_default();
        if malformation(octets, length, vlan, rest).is_some() {
            return Some(PortDrop::Malformed);
        }
        let Some(([a, b], packet)) = rest.split_first_chunk::<2>() else {
            return Some(PortDrop::Malformed);
        };
        match u16::from_be_bytes([*a, *b]) {
            IPV4 if self.checks_ip => {
                let is_allowed = self.is_allowed_v4(packet).unwrap_or(false);
                (!is_allowed).then_some(PortDrop::GuardIp)
            }
            IPV6 => self.violation_v6(packet),
            ARP => {
                let is_allowed = self.is_allowed_arp(packet);
                (!is_allowed).then_some(PortDrop::GuardArp)
            }
            RARP => Some(PortDrop::GuardArp),
            _ => None,
        }
    }

    fn is_allowed_v4(&self, packet: &[u8]) -> Option<bool> {
        let header = packet.first_chunk::<IPV4_HEADER>()?;
        let [first, .., a, b, c, d, e, f, g, h] = *header;
        let source = Ipv4Addr::from([a, b, c, d]);
        if !source.is_unspecified() {
            return Some(self.allows_v4(source));
        }
        // A host without an address asks for one.
        let [_, _, _, _, _, _, high, low, _, protocol, ..] = *header;
        let is_whole = u16::from_be_bytes([high, low]) & 0x3fff == 0;
        let length = usize::from(first & 0xf).checked_mul(4)?;
        let ports = packet.get(length..)?.first_chunk::<4>()?;
        let is_broadcast = Ipv4Addr::from([e, f, g, h]).is_broadcast();
        Some(is_whole && protocol == UDP && is_broadcast && *ports == DHCP)
    }

    fn is_allowed_arp(&self, packet: &[u8]) -> bool {
        let Ok(Some(arp)) = ArpPacket::read(packet) else {
            return false;
        };
        // A probe asks whether an address is free, and claims none (RFC 5227, section 2.1.1).
        let is_probe = arp.sender_ip().is_unspecified() && arp.operation() == ArpOperation::Request;
        self.allows_mac(arp.sender_mac()) && (is_probe || self.allows_v4(arp.sender_ip()))
    }

    fn violation_v6(&self, packet: &[u8]) -> Option<PortDrop> {
        let Some((header, payload)) = packet.split_first_chunk::<IPV6_HEADER>() else {
            return Some(PortDrop::GuardIp);
        };
        let [_, _, _, _, high, low, next, _, addresses @ ..] = header;
        // Padding of the frame is behind the packet.
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let payload = payload.get(..length).unwrap_or(payload);
        let source = addresses.first_chunk::<16>().copied();
        let source = Ipv6Addr::from(source.unwrap_or_default());
        let Ok(walked) = walk_ipv6_extensions(IpProtocol(*next), payload) else {
            return Some(PortDrop::GuardIp);
        };
        let is_icmp = walked.protocol == IpProtocol::ICMPV6 && walked.fragment != Fragment::Later;
        let message = payload.get(walked.length..).filter(|_| is_icmp);
        let kind = message.and_then(|message| message.first()).copied();
        let may_be_unspecified = matches!(
            kind,
            Some(
                NEIGHBOUR_SOLICITATION | ROUTER_SOLICITATION | LISTENER_REPORT | LISTENER_REPORT_V2
            )
        );
        if !(self.allows_v6(source) || source.is_unspecified() && may_be_unspecified) {
            return Some(PortDrop::GuardIp);
        }
        let is_discovery =
            kind.is_some_and(|kind| (ROUTER_SOLICITATION..=REDIRECT).contains(&kind));
        let message = message.filter(|_| is_discovery)?;
        // Receivers ignore fragments of neighbour discovery (RFC 6980, section 5).
        let is_whole = walked.fragment == Fragment::Whole;
        let is_allowed = is_whole && self.is_allowed_discovery(message, source).unwrap_or(false);
        (!is_allowed).then_some(PortDrop::GuardNd)
    }

    /// Returns whether a message of neighbour discovery claims allowed addresses only. `None` if it is truncated.
    fn is_allowed_discovery(&self, message: &[u8], source: Ipv6Addr) -> Option<bool> {
        let kind = *message.first()?;
        let target = || Some(Ipv6Addr::from(*message.get(8..)?.first_chunk::<16>()?));
        let options = match kind {
            ROUTER_SOLICITATION => 8,
            // Only routers advertise routers and redirect (RFC 6105).
            ROUTER_ADVERTISEMENT | REDIRECT => return Some(!self.checks_ip),
            NEIGHBOUR_SOLICITATION => {
                // Duplicate address detection claims the target (RFC 4862, section 5.4.2).
                if source.is_unspecified() && !self.allows_v6(target()?) {
                    return Some(false);
                }
                24
            }
            NEIGHBOUR_ADVERTISEMENT => {
                if !self.allows_v6(target()?) {
                    return Some(false);
                }
                24
            }
            _ => return Some(true),
        };
        let mut rest = message.get(options..)?;
        // Every option is at least eight octets long.
        while let Some([kind, words]) = rest.first_chunk::<2>() {
            let length = usize::from(*words)
                .checked_mul(8)
                .filter(|length| *length > 0)?;
            let option = rest.get(..length)?;
            if matches!(*kind, SOURCE_LINK | TARGET_LINK) {
                let mac = option.get(2..)?.first_chunk::<6>()?;
                if !self.allows_mac(MacAddress(*mac)) {
                    return Some(false);
                }
            }
            rest = rest.get(length..)?;
        }
        Some(true)
    }
}

#[cfg(test)]
mod tests;
