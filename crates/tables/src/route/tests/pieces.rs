// SPDX-License-Identifier: Apache-2.0
//! Reassembly of fragments.

use etherparse::{IpNumber, Ipv4Header, Ipv4Slice};
use proptest::prelude::*;

use crate::route::fragments;

fn packet(payload: &[u8], options: &[u8], offset: u16, more: bool) -> Vec<u8> {
    let mut header = Ipv4Header::new(0, 64, IpNumber::UDP, [192, 0, 2, 1], [192, 0, 2, 2]).unwrap();
    header.options = options.try_into().unwrap();
    header.set_payload_len(payload.len()).unwrap();
    header.dont_fragment = false;
    header.identification = 4711;
    header.fragment_offset = offset.try_into().unwrap();
    header.more_fragments = more;
    header.header_checksum = header.calc_header_checksum();
    let mut packet = Vec::new();
    header.write(&mut packet).unwrap();
    packet.extend(payload);
    packet
}

proptest! {
    #[test]
    fn pieces_make_the_packet_again(
        payload in prop::collection::vec(any::<u8>(), 1..4000),
        options in prop_oneof![
            Just(&[][..]),
            // Copied: security (130); not copied: record route (7).
            Just(&[7, 7, 4, 0, 0, 0, 0, 130, 3, 9, 1, 0][..]),
        ],
        mtu in 68..1600u16,
        offset in prop::sample::select(&[0u16, 185]),
        more in any::<bool>(),
    ) {
        // A fragment with MF set has a multiple of eight octets.
        let payload = if more { payload[..payload.len() / 8 * 8].to_vec() } else { payload };
        prop_assume!(!payload.is_empty());
        let packet = packet(&payload, options, offset, more);
        // Padding behind the packet, as in short frames.
        let padded = [&packet[..], &[0xee; 10]].concat();
        let mut again = vec![None; payload.len()];
        let mut is_last = false;
        let mut expected_offset = u32::from(offset) * 8;
        for (number, piece) in fragments(&padded, mtu).enumerate() {
            let mut frame = vec![0; piece.frame_length()];
            prop_assert!(piece.write(&[0xaa; 14], &mut frame));
            prop_assert_eq!(&frame[..14], &[0xaa; 14]);
            let slice = Ipv4Slice::from_slice(&frame[14..]).unwrap();
            let header = slice.header().to_header();
            prop_assert!(header.total_len <= mtu);
            prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
            prop_assert_eq!(header.identification, 4711);
            let at = u32::from(header.fragment_offset.value()) * 8;
            prop_assert_eq!(at, expected_offset);
            let content = slice.payload().payload;
            for (place, octet) in again[(at - u32::from(offset) * 8) as usize..].iter_mut().zip(content) {
                prop_assert_eq!(place.replace(*octet), None);
            }
            expected_offset += content.len() as u32;
            let kinds: Vec<u8> = header.options.iter().copied().filter(|kind| [7, 130].contains(kind)).collect();
            if options.is_empty() {
                prop_assert!(kinds.is_empty());
            } else if number == 0 {
                prop_assert!(kinds.contains(&7) && kinds.contains(&130));
            } else {
                prop_assert!(kinds.contains(&130) && header.options.first() == Some(&130));
            }
            is_last = !header.more_fragments;
        }
        prop_assert_eq!(again.into_iter().collect::<Option<Vec<u8>>>(), Some(payload));
        prop_assert_eq!(is_last, !more);
    }
}

/// RFC 791, section 3.1: offsets have thirteen bits, in units of eight octets. Further fragmentation of a fragment near the end must not
/// wrap around to zero.
#[test]
fn offsets_do_not_wrap() {
    // The last offset, one that just fits, and one beyond.
    for (offset, length, ends_beyond) in [
        (8191u16, 7, true),
        (8188, 11, false),
        (8188, 12, true),
        (8100, 1400, true),
        (8000, 1400, false),
        (0, 1400, false),
    ] {
        let packet = packet(&vec![1; length], &[], offset, false);
        assert_eq!(crate::route::fragment::ends_beyond(&packet), ends_beyond);
        for piece in fragments(&packet, 576) {
            let mut frame = vec![0; piece.frame_length()];
            assert!(piece.write(&[0; 14], &mut frame));
            let header = Ipv4Slice::from_slice(&frame[14..])
                .unwrap()
                .header()
                .to_header();
            assert!(header.fragment_offset.value() >= offset);
        }
    }
}

#[test]
fn malformed_packets_make_no_fragments() {
    for bytes in [&[][..], &[0x45; 10], &[0x65; 40], &[0x41; 40]] {
        assert_eq!(fragments(bytes, 1500).count(), 0);
    }
    let whole = packet(&[1; 100], &[], 0, false);
    assert_eq!(fragments(&whole, 1500).count(), 1);
    assert_eq!(fragments(&whole, 67).count(), 0);
}
