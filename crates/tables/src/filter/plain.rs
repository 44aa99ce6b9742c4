// SPDX-License-Identifier: Apache-2.0
//! Keys of the most frequent frames, read in one pass: untagged, whole IPv4 packets of TCP or UDP without options. Other frames are read
//! header by header ([`Headers`](super::pattern::Headers)).

use quietwire_packet::ETHERNET_HEADER_LENGTH;

use super::malformed::{TCP, UDP, transport_header};
use super::pattern::{IPV4, IPV4_HEADER};
use crate::classifier::Key;

/// Octets of a frame up to the ports.
const READ: usize = ETHERNET_HEADER_LENGTH + IPV4_HEADER + 4;
/// EtherType of IPv4, version 4, and a header of five words.
const IPV4_WITHOUT_OPTIONS: u32 = (IPV4 as u32) << 8 | 0x45;
/// Flag of more fragments, and fragment offset (RFC 791, section 3.1).
const FRAGMENT: u16 = 0x3fff;

/// Writes the key of a frame, with ingress port and group of another key. `frame` is its first buffer, and `length` the length of all
/// buffers, octets. Returns false for less frequent and malformed frames, and if the transport header is not in the first buffer. The key
/// then does not change.
#[inline(always)]
pub(super) fn read_plain_key(frame: &[u8], length: usize, ingress: &Key, key: &mut Key) -> bool {
    let Some(octets) = frame.first_chunk::<READ>() else {
        return false;
    };
    let half = |at: usize| u16::from_be_bytes(word(octets, at));
    let whole = |at: usize| u32::from_be_bytes(word(octets, at));
    if whole(12) >> 8 != IPV4_WITHOUT_OPTIONS || half(20) & FRAGMENT != 0 {
        return false;
    }
    let [protocol] = word(octets, 23);
    if !matches!(protocol, TCP | UDP) {
        return false;
    }
    let headers =
        transport_header(IPV4, protocol).saturating_add(ETHERNET_HEADER_LENGTH + IPV4_HEADER);
    let end = usize::from(half(16)).saturating_add(ETHERNET_HEADER_LENGTH);
    if frame.len() < headers || end < headers || end > length {
        return false;
    }
    let addresses = (whole(26), whole(30));
    key.set_to_ipv4(addresses, protocol, whole(34), ingress);
    true
}

/// Returns the `N` octets of the headers from `at` on.
#[inline(always)]
fn word<const N: usize>(octets: &[u8; READ], at: usize) -> [u8; N] {
    let rest = octets.get(at..).unwrap_or_default();
    rest.first_chunk().copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::malformed::malformation;
    use super::super::pattern::{Headers, after_tags};
    use super::*;
    use crate::classifier::Field;

    const LENGTH: usize = 64;

    /// Returns a key with all fields, as an earlier packet leaves it.
    fn used() -> Key {
        let mut key = Key::EMPTY;
        key.set_ipv6(u128::MAX, u128::MAX);
        key.set_macs(u64::MAX, u64::MAX);
        key.set_ports(u16::MAX, u16::MAX);
        key.set_protocol(u8::MAX);
        key.set_ethertype(u16::MAX);
        key.set_vlan(0xfff);
        key.set(Field::METADATA, u32::MAX);
        key
    }

    /// Returns the key that is read in one pass, in place of that of an earlier packet. A frame without one leaves it.
    fn plain_key(frame: &[u8], length: usize, ingress: &Key) -> Option<Key> {
        let mut key = used();
        let is_read = read_plain_key(frame, length, ingress, &mut key);
        assert!(is_read || key == used());
        is_read.then_some(key)
    }

    /// Returns the key that the headers give one by one; `None` if the frame is malformed.
    fn key_by_headers(frame: &[u8], length: usize, ingress: &Key) -> Option<Key> {
        let (vlan, rest) = after_tags(frame)?;
        if malformation(frame, length, vlan, rest).is_some() {
            return None;
        }
        let headers = Headers::from_ethertype_on(rest)?;
        Some(headers.key(vlan).with_ingress_of(ingress))
    }

    fn ingress() -> Key {
        let mut key = Key::EMPTY;
        key.set(Field::INGRESS_PORT, 3);
        key.set(Field::INGRESS_GROUP, 9);
        key
    }

    /// Returns a frame with an IPv4 packet of this total length.
    fn ipv4(protocol: u8, total: u16) -> [u8; LENGTH] {
        let mut frame = [0x11; LENGTH];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14..16].copy_from_slice(&[0x45, 0]);
        frame[16..18].copy_from_slice(&total.to_be_bytes());
        frame[20..22].copy_from_slice(&[0x40, 0]);
        frame[23] = protocol;
        frame[26..34].copy_from_slice(&[10, 0, 0, 1, 192, 0, 2, 7]);
        frame[34..38].copy_from_slice(&[0, 99, 0, 53]);
        frame
    }

    #[test]
    fn whole_packets_of_tcp_and_udp_have_keys() {
        for (protocol, shortest) in [(TCP, 40), (UDP, 28)] {
            let frame = ipv4(protocol, shortest);
            let key = plain_key(&frame, LENGTH, &ingress());
            assert!(key.is_some());
            assert_eq!(key, key_by_headers(&frame, LENGTH, &ingress()));
            let ports = key.map(|key| key.ports());
            assert_eq!(ports, Some((99, 53)));
            // The transport header is not complete, or not in the first buffer.
            assert_eq!(
                plain_key(&ipv4(protocol, shortest - 1), LENGTH, &ingress()),
                None
            );
            let headers = ETHERNET_HEADER_LENGTH + usize::from(shortest);
            assert!(plain_key(&frame[..headers], LENGTH, &ingress()).is_some());
            assert_eq!(plain_key(&frame[..headers - 1], LENGTH, &ingress()), None);
        }
        // The packet ends with the frame, or behind it.
        assert!(plain_key(&ipv4(UDP, 50), LENGTH, &ingress()).is_some());
        assert_eq!(plain_key(&ipv4(UDP, 51), LENGTH, &ingress()), None);
        assert_eq!(plain_key(&ipv4(1, 50), LENGTH, &ingress()), None);
    }

    proptest! {
        #[test]
        fn a_key_is_the_one_that_the_headers_give(
            tcp in any::<bool>(),
            total in 0u16..80,
            changes in prop::collection::vec((0..LENGTH, any::<u8>()), 0..4),
            held in 0..=LENGTH,
        ) {
            let mut frame = ipv4(if tcp { TCP } else { UDP }, total);
            for (at, value) in changes {
                frame[at] = value;
            }
            for first in [held, LENGTH] {
                let first = &frame[..first];
                if let Some(key) = plain_key(first, LENGTH, &ingress()) {
                    prop_assert_eq!(Some(key), key_by_headers(first, LENGTH, &ingress()));
                }
            }
        }
    }
}
