// SPDX-License-Identifier: Apache-2.0
//! IPv6 neighbour discovery messages (RFC 4861, sections 4.3, 4.4 and 7.1).

use std::net::Ipv6Addr;

use quietwire_packet::{Checksum, EthernetHeader, IPV6_HEADER_LENGTH, MacAddress};

pub(super) const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
pub(super) const ICMPV6: u8 = 58;
/// Hop limit that proves that a message is from the same link (RFC 4861, section 7.1).
const HOP_LIMIT: u8 = 255;
pub(super) const OPTION_SOURCE: u8 = 1;
pub(super) const OPTION_TARGET: u8 = 2;
pub(super) const ROUTER: u8 = 0x80;
pub(super) const SOLICITED: u8 = 0x40;
pub(super) const OVERRIDE: u8 = 0x20;
const MESSAGE: usize = 24;

/// Returns the solicited-node multicast address (RFC 4291, section 2.7.1).
pub(super) fn solicited_node(target: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = target.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// Returns the MAC address of a multicast group (RFC 2464, section 7).
pub(super) fn group_mac(group: Ipv6Addr) -> MacAddress {
    let [.., a, b, c, d] = group.octets();
    MacAddress::from_u64(0x3333_0000_0000 | u64::from(u32::from_be_bytes([a, b, c, d])))
}

/// Builds a neighbour solicitation: multicast, or unicast to a known neighbour.
pub(super) fn solicitation(
    mac: MacAddress,
    source: Ipv6Addr,
    target: Ipv6Addr,
    to: Option<MacAddress>,
) -> Vec<u8> {
    let destination = to.map_or_else(|| solicited_node(target), |_| target);
    let to = to.unwrap_or_else(|| group_mac(destination));
    frame(
        (to, destination),
        (mac, source),
        SOLICITATION,
        0,
        target,
        OPTION_SOURCE,
    )
}

/// Builds a neighbour advertisement for one of our addresses, to the solicitor or to a group.
pub(super) fn advertisement(
    to: (MacAddress, Ipv6Addr),
    from: (MacAddress, Ipv6Addr),
    flags: u8,
) -> Vec<u8> {
    frame(to, from, ADVERTISEMENT, flags, from.1, OPTION_TARGET)
}

fn frame(
    to: (MacAddress, Ipv6Addr),
    from: (MacAddress, Ipv6Addr),
    kind: u8,
    flags: u8,
    target: Ipv6Addr,
    option: u8,
) -> Vec<u8> {
    let octets = |mac: MacAddress| {
        let [_, _, octets @ ..] = mac.to_u64().to_be_bytes();
        octets
    };
    let mut message = vec![kind, 0, 0, 0, flags, 0, 0, 0];
    message.extend(target.octets());
    message.extend([option, 1]);
    message.extend(octets(from.0));
    let [high, low] = checksum(from.1, to.1, &message).to_be_bytes();
    if let [_, _, a, b, ..] = message.as_mut_slice() {
        (*a, *b) = (high, low);
    }
    let mut frame = Vec::new();
    frame.extend(octets(to.0));
    frame.extend(octets(from.0));
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    // A message of an address and an option has 32 octets.
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    frame.extend(length.to_be_bytes());
    frame.extend([ICMPV6, HOP_LIMIT]);
    frame.extend(from.1.octets());
    frame.extend(to.1.octets());
    frame.extend(message);
    frame
}

/// Returns the checksum, including the pseudo-header (RFC 4443, section 2.3; RFC 8200, section 8.1).
pub(crate) fn checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> u16 {
    let mut sum = Checksum::new();
    sum.add(&source.octets());
    sum.add(&destination.octets());
    // The zeros in front of the 32 bits do not change the sum.
    sum.add(&(message.len() as u64).to_be_bytes());
    sum.add(&[0, 0, 0, ICMPV6]);
    sum.add(message);
    sum.finish()
}

/// A valid message.
pub(super) struct Message<'frame> {
    /// Source MAC address of the frame.
    pub(super) from: MacAddress,
    pub(super) source: Ipv6Addr,
    pub(super) destination: Ipv6Addr,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) target: Ipv6Addr,
    pub(super) options: &'frame [u8],
}

impl<'frame> Message<'frame> {
    /// Parses a message (RFC 4861, sections 7.1.1 and 7.1.2); `None` for invalid and for other messages.
    pub(super) fn read(frame: &'frame [u8]) -> Option<Self> {
        let (ethernet, packet) = EthernetHeader::split(frame).ok()?;
        let (header, payload) = packet.split_first_chunk::<IPV6_HEADER_LENGTH>()?;
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let message = payload.get(..length)?;
        let (fixed, options) = message.split_first_chunk::<MESSAGE>()?;
        let source = Ipv6Addr::from(*header.get(8..)?.first_chunk::<16>()?);
        let destination = Ipv6Addr::from(*header.get(24..)?.first_chunk::<16>()?);
        let target = Ipv6Addr::from(*fixed.get(8..)?.first_chunk::<16>()?);
        let is_sound = header[6] == ICMPV6
            && header[7] == HOP_LIMIT
            && matches!(fixed[0], SOLICITATION | ADVERTISEMENT)
            && fixed[1] == 0
            && !target.is_multicast()
            && checksum(source, destination, message) == 0;
        is_sound.then_some(Self {
            from: ethernet.source(),
            source,
            destination,
            kind: fixed[0],
            flags: fixed[4],
            target,
            options,
        })
    }

    /// Returns the MAC address in an option; `Err` if the options are invalid.
    pub(super) fn link_address(&self, wanted: u8) -> Result<Option<MacAddress>, ()> {
        let mut rest = self.options;
        let mut found = None;
        while let [kind, units, ..] = rest {
            let length = usize::from(*units).wrapping_mul(8);
            let Some((option, after)) = rest.split_at_checked(length).filter(|_| length > 0) else {
                return Err(());
            };
            if *kind == wanted
                && let Some(octets) = option.get(2..).and_then(|octets| octets.first_chunk::<6>())
            {
                let [a, b, c, d, e, f] = *octets;
                found = Some(MacAddress::from_u64(u64::from_be_bytes([
                    0, 0, a, b, c, d, e, f,
                ])));
            }
            rest = after;
        }
        if !rest.is_empty() || found.is_some_and(|mac| mac.is_multicast() || mac.to_u64() == 0) {
            return Err(());
        }
        Ok(found)
    }
}
