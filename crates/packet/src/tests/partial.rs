// SPDX-License-Identifier: Apache-2.0
//! Tests of incomplete checksums: completed ones equal those of a plain sum, and all other frames stay unchanged.

use etherparse::PacketBuilder;
use proptest::prelude::*;

use crate::complete_partial_checksum;

/// Frame with a complete checksum by etherparse, and the offset of TCP or UDP.
fn frame(
    is_ipv4: bool,
    is_tcp: bool,
    tags: usize,
    addresses: [u8; 2],
    data: &[u8],
) -> (Vec<u8>, usize) {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let [from, to] = addresses;
    let mut frame = Vec::new();
    macro_rules! write {
        ($builder:expr) => {
            if is_tcp {
                $builder
                    .tcp(4711, 80, 7, 512)
                    .write(&mut frame, data)
                    .unwrap();
            } else {
                $builder.udp(4711, 80).write(&mut frame, data).unwrap();
            }
        };
    }
    macro_rules! over {
        ($builder:expr) => {
            if is_ipv4 {
                write!($builder.ipv4([192, 0, 2, from], [198, 51, 100, to], 64));
            } else {
                write!($builder.ipv6([from; 16], [to; 16], 64));
            }
        };
    }
    match tags {
        0 => over!(builder),
        1 => over!(builder.single_vlan(5.try_into().unwrap())),
        _ => over!(builder.double_vlan(5.try_into().unwrap(), 6.try_into().unwrap())),
    }
    (frame, 14 + 4 * tags + if is_ipv4 { 20 } else { 40 })
}

/// Returns the sum of 16-bit words, folded: the plain definition of RFC 1071.
fn plain_sum(octets: &[u8]) -> u16 {
    let words = octets
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Returns the pseudo header.
fn pseudo_header(frame: &[u8], transport: usize, is_ipv4: bool, is_tcp: bool) -> Vec<u8> {
    let addresses = if is_ipv4 { 8 } else { 32 };
    let length = (frame.len() - transport) as u32;
    let mut all = frame[transport - addresses..transport].to_vec();
    all.extend(length.to_be_bytes());
    all.extend([0, 0, 0, if is_tcp { 6 } else { 17 }]);
    all
}

proptest! {
    #[test]
    fn an_incomplete_checksum_becomes_that_of_etherparse(
        is_ipv4 in any::<bool>(),
        is_tcp in any::<bool>(),
        tags in 0..=2usize,
        addresses in any::<[u8; 2]>(),
        data in prop::collection::vec(any::<u8>(), 0..1500),
        padding in 0..8usize,
    ) {
        let (right, transport) = frame(is_ipv4, is_tcp, tags, addresses, &data);
        let at = transport + if is_tcp { 16 } else { 6 };
        let mut partial = right.clone();
        let sum = plain_sum(&pseudo_header(&right, transport, is_ipv4, is_tcp));
        partial[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        let padded = |frame: &[u8]| [frame, &vec![0xee; padding][..]].concat();
        let (mut partial, right) = (padded(&partial), padded(&right));
        // A checksum that is the sum of the pseudo header is complete already.
        prop_assert_eq!(complete_partial_checksum(&mut partial), right[at..at + 2] != sum.to_be_bytes());
        prop_assert_eq!(&partial, &right);
        prop_assert!(!complete_partial_checksum(&mut partial));
        prop_assert_eq!(partial, right);
    }

    #[test]
    fn an_incomplete_checksum_within_a_tunnel_becomes_that_of_etherparse(
        is_ipv4 in any::<bool>(),
        is_tcp in any::<bool>(),
        tunnel in prop_oneof![Just(None), (0..=63usize).prop_map(Some)],
        data in prop::collection::vec(any::<u8>(), 0..1000),
        padding in 0..8usize,
    ) {
        let (right, transport) = frame(is_ipv4, is_tcp, 0, [1, 2], &data);
        let at = transport + if is_tcp { 16 } else { 6 };
        let mut partial = right.clone();
        let sum = plain_sum(&pseudo_header(&right, transport, is_ipv4, is_tcp));
        partial[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        let port = if tunnel.is_some() { 6081 } else { 4789 };
        // VXLAN, or Geneve with this many words of options.
        let header = match tunnel {
            None => vec![0x08, 0, 0, 0, 0, 0, 7, 0],
            Some(words) => {
                let start = [words as u8, 0, 0x65, 0x58, 0, 0, 7, 0];
                [&start[..], &vec![0xa5; words * 4][..]].concat()
            }
        };
        let outer = |inner: &[u8], header: &[u8]| {
            let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
                .ipv4([192, 0, 2, 9], [192, 0, 2, 10], 64)
                .udp(50_000, port);
            let mut frame = Vec::new();
            builder.write(&mut frame, &[header, inner].concat()).unwrap();
            frame.extend(vec![0xee; padding]);
            frame
        };
        // The outer checksum is that of the completed frame.
        let expected = outer(&right, &header);
        let mut sent = outer(&right, &header);
        let place = 42 + header.len() + at;
        sent[place..place + 2].copy_from_slice(&sum.to_be_bytes());
        let is_incomplete = right[at..at + 2] != sum.to_be_bytes();
        prop_assert_eq!(complete_partial_checksum(&mut sent), is_incomplete);
        prop_assert_eq!(&sent, &expected);
        prop_assert!(!complete_partial_checksum(&mut sent));
        // Something else on these ports stays as it is.
        let mut other_header = header.clone();
        if tunnel.is_some() {
            other_header[2] = 0;
        } else {
            other_header[0] = 0;
        }
        let mut other = outer(&partial, &other_header);
        let before = other.clone();
        prop_assert!(!complete_partial_checksum(&mut other));
        prop_assert_eq!(other, before);
    }

    #[test]
    fn any_other_checksum_stays(
        is_ipv4 in any::<bool>(),
        is_tcp in any::<bool>(),
        field in any::<u16>(),
        data in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let (mut other, transport) = frame(is_ipv4, is_tcp, 0, [1, 2], &data);
        let at = transport + if is_tcp { 16 } else { 6 };
        let sum = plain_sum(&pseudo_header(&other, transport, is_ipv4, is_tcp));
        prop_assume!(field != sum);
        other[at..at + 2].copy_from_slice(&field.to_be_bytes());
        let before = other.clone();
        prop_assert!(!complete_partial_checksum(&mut other));
        prop_assert_eq!(other, before);
    }

    #[test]
    fn any_octets_are_survived(
        mut frame in prop::collection::vec(any::<u8>(), 0..200),
        kind in 0..4,
    ) {
        if frame.len() > 40 && kind > 0 {
            let start: &[u8] = if kind == 1 { &[8, 0, 0x45] } else { &[0x86, 0xdd, 0x60] };
            frame[12..15].copy_from_slice(start);
            let at = if kind == 1 { 23 } else { 20 };
            frame[at] = 17;
        }
        let before = frame.clone();
        if !complete_partial_checksum(&mut frame) {
            prop_assert_eq!(&frame, &before);
        }
        prop_assert_eq!(frame.len(), before.len());
    }
}

#[test]
fn a_complete_checksum_that_equals_the_sum_of_the_pseudo_header_stays() {
    let (mut frame, transport) = frame(true, false, 0, [1, 2], &[0, 0]);
    let sum = plain_sum(&pseudo_header(&frame, transport, true, false));
    // These data make the checksum equal to the sum of the pseudo header.
    frame[transport + 6..transport + 8].copy_from_slice(&sum.to_be_bytes());
    let rest = !plain_sum(
        &[
            &pseudo_header(&frame, transport, true, false),
            &frame[transport..],
        ]
        .concat(),
    );
    frame[transport + 8..].copy_from_slice(&rest.to_be_bytes());
    let before = frame.clone();
    assert!(!complete_partial_checksum(&mut frame));
    assert_eq!(frame, before);
    // Other data: the checksum is incomplete.
    frame[transport + 9] ^= 1;
    assert!(complete_partial_checksum(&mut frame));
}

#[test]
fn fragments_and_other_protocols_stay() {
    for (at, value) in [(20, 0x20), (21, 1), (23, 132), (12, 9)] {
        let (mut frame, transport) = frame(true, false, 0, [1, 2], &[7; 100]);
        let sum = plain_sum(&pseudo_header(&frame, transport, true, false));
        frame[transport + 6..transport + 8].copy_from_slice(&sum.to_be_bytes());
        frame[at] = value;
        let before = frame.clone();
        assert!(!complete_partial_checksum(&mut frame));
        assert_eq!(frame, before);
    }
}
