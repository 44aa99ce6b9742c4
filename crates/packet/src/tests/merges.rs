// SPDX-License-Identifier: Apache-2.0
//! Tests that merged segments, cut again, are the segments that were merged.

use proptest::prelude::*;

use super::segments::{Spec, cut};
use crate::{DataSegment, Merge, complete_partial_checksum};

/// Segments merged as far as possible in their order. Each frame has the segment size of its segments; none for a frame that is not merged.
pub(super) fn merge(segments: &[Vec<u8>]) -> Vec<(Vec<u8>, Option<u16>)> {
    let mut merged = Vec::new();
    let mut open: Option<(Merge, Vec<u8>)> = None;
    for frame in segments {
        let segment = DataSegment::read(frame);
        if let (Some((merge, whole)), Some(segment)) = (&mut open, &segment)
            && merge.add(segment)
        {
            whole.extend(&frame[merge.headers_length()..]);
            continue;
        }
        merged.extend(open.take().map(finish));
        match segment.as_ref().and_then(Merge::begin) {
            Some(merge) => open = Some((merge, frame.clone())),
            None => merged.push((frame.clone(), None)),
        }
    }
    merged.extend(open.map(finish));
    merged
}

fn finish((merge, mut frame): (Merge, Vec<u8>)) -> (Vec<u8>, Option<u16>) {
    if merge.count() == 1 {
        return (frame, None);
    }
    assert!(merge.write(&mut frame));
    assert_eq!(frame.len(), merge.frame_length());
    (frame, Some(merge.segment_size()))
}

/// Returns the segments of all frames.
pub(super) fn cut_all(merged: &[(Vec<u8>, Option<u16>)]) -> Vec<Vec<u8>> {
    let segments = |(frame, size): &(Vec<u8>, Option<u16>)| match size {
        Some(size) => cut(frame, usize::from(*size)).unwrap(),
        None => vec![frame.clone()],
    };
    merged.iter().flat_map(segments).collect()
}

fn specs() -> impl Strategy<Value = Spec> {
    let tags = prop_oneof![Just(vec![]), Just(vec![[0x81, 0, 0x20, 1]])];
    let ip = (
        any::<bool>(),
        any::<u16>(),
        prop_oneof![9 => Just(0), 1 => Just(1usize)],
    );
    // ACK always; FIN, PSH, URG and the congestion flags sometimes.
    let bit = |bit: u8| prop_oneof![4 => Just(0u8), 1 => Just(bit)];
    let flags = (bit(1), bit(8), bit(32), bit(64), bit(128));
    let flags = flags.prop_map(|(a, b, c, d, e)| 16 | a | b | c | d | e);
    let tcp = (
        0..=10usize,
        prop_oneof![any::<u32>(), Just(u32::MAX - 100)],
        flags,
    );
    let data = prop::collection::vec(any::<u8>(), 1..6000);
    (tags, ip, tcp, data).prop_map(|(tags, ip, tcp, data)| Spec {
        tags,
        is_ipv4: ip.0,
        identification: ip.1,
        ip_options: ip.2,
        tcp_options: tcp.0,
        sequence: tcp.1,
        flags: tcp.2,
        urgent: 0,
        data,
    })
}

/// Corrects the checksums of a frame whose header was changed, so that they do not give the change away.
fn correct(frame: &mut [u8], is_ipv4: bool, network: usize) {
    let header = if is_ipv4 { 20 } else { 40 };
    if is_ipv4 {
        frame[network + 10..network + 12].fill(0);
        let sum = crate::checksum(&frame[network..network + 20]);
        frame[network + 10..network + 12].copy_from_slice(&sum.to_be_bytes());
    }
    let transport = network + header;
    let addresses = if is_ipv4 { 12..20 } else { 8..40 };
    let length = (frame.len() - transport) as u32;
    let mut sum = crate::Checksum::new();
    sum.add(&frame[network + addresses.start..network + addresses.end]);
    sum.add(&6u32.to_be_bytes());
    sum.add(&length.to_be_bytes());
    let partial = !sum.finish();
    frame[transport + 16..transport + 18].copy_from_slice(&partial.to_be_bytes());
    complete_partial_checksum(frame);
}

proptest! {
    #[test]
    fn merged_frames_are_segmented_into_the_same_segments(spec in specs(), size in 20..3000usize) {
        let size = size.max(spec.data.len() / 200);
        let segments = cut(&spec.whole(), size).unwrap();
        let merged = merge(&segments);
        prop_assert_eq!(cut_all(&merged), segments.clone());
        let is_plain = spec.flags & 0xa0 == 0 && spec.ip_options == 0;
        if is_plain && segments.len() > 1 {
            // All of them are one frame: that of the sender, but for the checksum of TCP.
            prop_assert_eq!(merged.len(), 1);
            let at = spec.checksum_offset();
            let (mut sent, mut got) = (spec.whole(), merged[0].0.clone());
            sent[at..at + 2].fill(0);
            got[at..at + 2].fill(0);
            prop_assert_eq!(got, sent);
        }
    }

    #[test]
    fn a_change_of_any_octet_of_a_header_is_never_lost(
        spec in specs(),
        size in 100..1500usize,
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        change in 1..=255u8,
        corrects in any::<bool>(),
    ) {
        let mut segments = cut(&spec.whole(), size.max(spec.data.len() / 200)).unwrap();
        let segment = which.index(segments.len());
        let frame = &mut segments[segment];
        let headers = spec.checksum_offset() + 4 + spec.tcp_options * 4;
        let octet = at.index(headers);
        frame[octet] ^= change;
        if corrects && spec.ip_options == 0 {
            let header = if spec.is_ipv4 { 20 } else { 40 };
            let network = spec.checksum_offset() - 16 - header;
            correct(frame, spec.is_ipv4, network);
        }
        prop_assert_eq!(cut_all(&merge(&segments)), segments);
    }

    #[test]
    fn damaged_data_and_padding_are_never_merged(
        spec in specs(),
        which in any::<prop::sample::Index>(),
        change in 1..=255u8,
        is_padded in any::<bool>(),
    ) {
        let mut segments = cut(&spec.whole(), 500).unwrap();
        let segment = which.index(segments.len());
        if is_padded {
            segments[segment].push(change);
        } else {
            *segments[segment].last_mut().unwrap() ^= change;
        }
        let merged = merge(&segments);
        prop_assert!(merged.contains(&(segments[segment].clone(), None)));
        prop_assert_eq!(cut_all(&merged), segments);
    }

    #[test]
    fn any_octets_are_survived(
        frame in prop::collection::vec(any::<u8>(), 0..200),
        is_ipv4 in any::<bool>(),
    ) {
        let mut frame = frame;
        if frame.len() > 40 {
            let start: &[u8] = if is_ipv4 { &[8, 0, 0x45] } else { &[0x86, 0xdd, 0x60] };
            frame[12..15].copy_from_slice(start);
            frame[if is_ipv4 { 23 } else { 20 }] = 6;
        }
        if let Some(segment) = DataSegment::read(&frame)
            && let Some(mut merge) = Merge::begin(&segment)
        {
            prop_assert!(!merge.add(&segment));
            prop_assert!(segment.has_flow_of(&merge));
        }
    }
}

fn plain(data: usize) -> Spec {
    Spec {
        tags: vec![],
        is_ipv4: true,
        identification: 0xffff,
        ip_options: 0,
        tcp_options: 3,
        sequence: 7,
        flags: 0x18,
        urgent: 0,
        data: vec![5; data],
    }
}

#[test]
fn frames_end_with_a_push_a_short_segment_or_the_longest_packet() {
    let sizes = |segments: &[Vec<u8>]| -> Vec<usize> {
        merge(segments)
            .iter()
            .map(|(frame, _)| frame.len() - 66)
            .collect()
    };
    // Two pushes, the second after a short segment: two frames.
    let first = cut(&plain(3000).whole(), 1000).unwrap();
    let mut second = plain(1500);
    (second.sequence, second.identification) = (3007, 2);
    let second = cut(&second.whole(), 1000).unwrap();
    assert_eq!(sizes(&[first, second].concat()), [3000, 1500]);
    // More data than a packet can have.
    let mut long = plain(60_000);
    long.flags = 0x10;
    let mut more = plain(60_000);
    (more.sequence, more.identification) = (60_007, 59);
    let long = cut(&long.whole(), 1000).unwrap();
    let more = cut(&more.whole(), 1000).unwrap();
    assert_eq!(sizes(&[long, more].concat()), [65_000, 55_000]);
}

#[test]
fn marks_acknowledgments_and_options_are_never_joined_with_others() {
    let segments = cut(&plain(2000).whole(), 1000).unwrap();
    assert_eq!(merge(&segments).len(), 1);
    // Congestion experienced, time to live, acknowledgment, window, an option, the sequence number, a gap in the identifications.
    for (at, to) in [
        (15, 3),
        (22, 63),
        (45, 1),
        (49, 1),
        (54, 0),
        (41, 9),
        (19, 9),
    ] {
        let mut other = segments.clone();
        assert_ne!(other[1][at], to, "{at}");
        other[1][at] = to;
        correct(&mut other[1], true, 14);
        let merged = merge(&other);
        assert_eq!(merged.len(), 2, "{at}");
        assert_eq!(cut_all(&merged), other);
    }
}

#[test]
fn flows_differ_by_addresses_or_ports() {
    let segments = cut(&plain(2000).whole(), 1000).unwrap();
    let merge = Merge::begin(&DataSegment::read(&segments[0]).unwrap()).unwrap();
    // The last octets of both addresses and of both ports.
    for at in [29, 33, 35, 37] {
        let mut other = segments[1].clone();
        other[at] ^= 1;
        let other = DataSegment::read(&other).map(|segment| segment.has_flow_of(&merge));
        assert_eq!(other, Some(false));
    }
    assert!(DataSegment::read(&segments[1]).unwrap().has_flow_of(&merge));
}

#[test]
fn the_sum_over_segments_that_a_card_has_verified_is_not_computed() {
    fn read(frame: &[u8], is_verified: bool) -> DataSegment<'_> {
        let segment = DataSegment::read(frame).unwrap();
        segment.with_verified_checksum(is_verified)
    }
    let mut segments = cut(&plain(2000).whole(), 1000).unwrap();
    // A change that only the sum shows.
    *segments[1].last_mut().unwrap() ^= 1;
    let mut merge = Merge::begin(&read(&segments[0], true)).unwrap();
    assert!(!merge.add(&read(&segments[1], false)));
    assert!(merge.add(&read(&segments[1], true)));
    // The card has not verified the checksum of the IPv4 header.
    segments[0][24] ^= 1;
    assert!(Merge::begin(&read(&segments[0], true)).is_none());
}
