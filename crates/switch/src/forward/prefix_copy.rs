// SPDX-License-Identifier: Apache-2.0
//! Prefix translation of copies of received frames (RFC 6296), for the tracker: both directions of a connection have the inside address there.

use quietwire_packet::IpProtocol;
use quietwire_tables::nptv6::PrefixTranslation;

use super::nat::NatCopy;
use super::nat66::{NEXT_HEADER_AT, ipv6_offset};

/// Copies a received frame with its inside destination. Returns false for frames that are not to an external address, and for those without
/// translation. `length` is that of the frame.
#[inline]
pub(super) fn copy_inside(
    prefixes: &PrefixTranslation,
    frame: &[u8],
    length: usize,
    copy: &mut NatCopy,
) -> bool {
    let Some(at) = ipv6_offset(frame) else {
        return false;
    };
    let packet = frame.get(at..).unwrap_or_default();
    let Some(pair) = prefixes.of_external(packet) else {
        return false;
    };
    let is_icmp = packet.get(NEXT_HEADER_AT) == Some(&IpProtocol::ICMPV6.0);
    let Some(space) = copy.of_protocol(frame, is_icmp) else {
        return false;
    };
    let packet = space.get_mut(at..).unwrap_or_default();
    matches!(pair.receive(packet, length.saturating_sub(at)), Ok(true))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use quietwire_tables::nptv6::PrefixPair;

    use super::*;

    const INSIDE: &str = "fd01:203:405:1::1234";
    const OUTSIDE: &str = "2001:db8:1:d550::1234";
    const REMOTE: &str = "2001:db8:f::9";
    const ICMPV6: u8 = 58;
    const UDP: u8 = 17;

    fn packet(source: &str, destination: &str, next: u8, payload: &[u8]) -> Vec<u8> {
        let octets = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
        let [high, low] = u16::try_from(payload.len()).unwrap().to_be_bytes();
        let start = [0x60, 0, 0, 0, high, low, next, 64];
        [&start[..], &octets(source), &octets(destination), payload].concat()
    }

    /// Returns an ICMPv6 error to a host about its packet to the remote host.
    fn error(to: &str) -> Vec<u8> {
        let about = packet(to, REMOTE, UDP, &[7; 20]);
        let message = [&[1, 0, 0, 0, 0, 0, 0, 0][..], &about].concat();
        packet(REMOTE, to, ICMPV6, &message)
    }

    /// Returns the copy of a packet behind `tags` tags.
    fn copied(packet: &[u8], tags: usize) -> Option<Vec<u8>> {
        let inside = "fd01:203:405::/48".parse().unwrap();
        let pair = PrefixPair::new(inside, "2001:db8:1::/48".parse().unwrap()).unwrap();
        let prefixes = PrefixTranslation::new([(1, 0, pair)]);
        let tags = [0x81u8, 0, 0, 7].repeat(tags);
        let frame = [&[2; 12][..], &tags, &[0x86, 0xdd], packet].concat();
        let mut copy = NatCopy::new();
        let is_copied = copy_inside(&prefixes, &frame, frame.len(), &mut copy);
        is_copied.then(|| copy.get(&frame).unwrap()[14 + tags.len()..].to_vec())
    }

    #[test]
    fn packets_and_errors_to_an_external_address_have_the_inside_one() {
        for tags in 0..3 {
            let received = packet(REMOTE, OUTSIDE, UDP, &[7; 20]);
            let expected = packet(REMOTE, INSIDE, UDP, &[7; 20]);
            assert_eq!(copied(&received, tags), Some(expected));
            assert_eq!(copied(&error(OUTSIDE), tags), Some(error(INSIDE)));
        }
    }

    #[test]
    fn other_packets_have_no_copy() {
        for destination in [INSIDE, REMOTE, "2001:db8:1:ffff::1"] {
            assert_eq!(
                copied(&packet(OUTSIDE, destination, UDP, &[7; 20]), 0),
                None
            );
        }
        let whole = packet(REMOTE, OUTSIDE, UDP, &[7; 20]);
        assert_eq!(copied(&whole[..30], 0), None);
        let mut ipv4 = whole;
        ipv4[0] = 0x45;
        assert_eq!(copied(&ipv4, 0), None);
    }
}
