// SPDX-License-Identifier: Apache-2.0
//! Tests that merged UDP datagrams, cut again, are the datagrams that were merged.

use proptest::prelude::*;

use super::merges::{cut_all, merge};
use super::segments::datagram;
use crate::{
    Checksum, DataSegment, LargeFrame, Merge, checksum, complete_partial_checksum, udp_checksum,
};

/// A program's datagrams to one receiver.
#[derive(Clone, Debug)]
struct Spec {
    is_ipv4: bool,
    is_tagged: bool,
    identification: u16,
    data: Vec<u8>,
}

impl Spec {
    /// Returns one frame with the data from an octet on.
    fn frame(&self, number: usize, data: &[u8]) -> Vec<u8> {
        let identification = self.identification.wrapping_add(number as u16);
        datagram(self.is_ipv4, self.is_tagged, identification, data)
    }

    /// Returns the datagrams of `size` octets of data.
    fn datagrams(&self, size: usize) -> Vec<Vec<u8>> {
        let chunks = self.data.chunks(size.max(self.data.len() / 200));
        chunks
            .enumerate()
            .map(|(number, data)| self.frame(number, data))
            .collect()
    }

    fn network(&self) -> usize {
        if self.is_tagged { 18 } else { 14 }
    }

    fn transport(&self) -> usize {
        self.network() + if self.is_ipv4 { 20 } else { 40 }
    }

    /// Corrects the checksums of a frame whose header was changed, so that they do not give the change away.
    fn correct(&self, frame: &mut [u8]) {
        let (network, transport) = (self.network(), self.transport());
        let addresses = if self.is_ipv4 { 12..20 } else { 8..40 };
        if self.is_ipv4 {
            frame[network + 10..network + 12].fill(0);
            let sum = checksum(&frame[network..transport]);
            frame[network + 10..network + 12].copy_from_slice(&sum.to_be_bytes());
        }
        frame[transport + 6..transport + 8].fill(0);
        let mut sum = Checksum::new();
        sum.add(&frame[network + addresses.start..network + addresses.end]);
        sum.add(&17u32.to_be_bytes());
        sum.add(&((frame.len() - transport) as u32).to_be_bytes());
        sum.add(&frame[transport..]);
        let sum = udp_checksum(sum.finish());
        frame[transport + 6..transport + 8].copy_from_slice(&sum.to_be_bytes());
    }
}

fn specs() -> impl Strategy<Value = Spec> {
    let identification = prop_oneof![any::<u16>(), Just(u16::MAX - 1)];
    let data = prop::collection::vec(any::<u8>(), 1..6000);
    (any::<bool>(), any::<bool>(), identification, data).prop_map(
        |(is_ipv4, is_tagged, identification, data)| Spec {
            is_ipv4,
            is_tagged,
            identification,
            data,
        },
    )
}

fn plain(data: usize) -> Spec {
    Spec {
        is_ipv4: true,
        is_tagged: false,
        identification: 0xffff,
        data: (0..data).map(|at| (at * 7) as u8).collect(),
    }
}

proptest! {
    #[test]
    fn datagrams_that_were_merged_are_cut_into_the_same(spec in specs(), size in 1..3000usize) {
        let datagrams = spec.datagrams(size);
        let merged = merge(&datagrams);
        prop_assert_eq!(cut_all(&merged), datagrams);
        // All of them are one frame: that of a sender with segmentation, but for the checksum of UDP.
        prop_assert_eq!(merged.len(), 1);
        let at = spec.transport() + 6;
        let (mut sent, mut got) = (spec.frame(0, &spec.data), merged[0].0.clone());
        sent[at..at + 2].fill(0);
        got[at..at + 2].fill(0);
        prop_assert_eq!(got, sent);
    }

    #[test]
    fn a_change_of_any_octet_of_a_header_of_a_datagram_is_never_lost(
        spec in specs(),
        size in 100..1500usize,
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        change in 1..=255u8,
        corrects in any::<bool>(),
    ) {
        let mut datagrams = spec.datagrams(size);
        let datagram = which.index(datagrams.len());
        let frame = &mut datagrams[datagram];
        frame[at.index(spec.transport() + 8)] ^= change;
        if corrects {
            spec.correct(frame);
        }
        prop_assert_eq!(cut_all(&merge(&datagrams)), datagrams);
    }

    #[test]
    fn damaged_padded_and_unprotected_datagrams_are_never_merged(
        spec in specs(),
        which in any::<prop::sample::Index>(),
        change in 1..=255u8,
        kind in 0..3,
    ) {
        let mut datagrams = spec.datagrams(500);
        let datagram = which.index(datagrams.len());
        let frame = &mut datagrams[datagram];
        match kind {
            0 => *frame.last_mut().unwrap() ^= change,
            1 => frame.push(change),
            _ => frame[spec.transport() + 6..spec.transport() + 8].fill(0),
        }
        let merged = merge(&datagrams);
        prop_assert!(merged.contains(&(datagrams[datagram].clone(), None)));
        prop_assert_eq!(cut_all(&merged), datagrams);
    }
}

#[test]
fn a_short_datagram_ends_a_frame_and_a_longer_one_begins_another() {
    let lengths = [700, 700, 300, 300, 300, 900, 900];
    let spec = plain(0);
    let datagrams: Vec<_> = lengths
        .iter()
        .enumerate()
        .map(|(number, length)| spec.frame(number, &vec![3; *length]))
        .collect();
    let merged = merge(&datagrams);
    let data: Vec<_> = merged
        .iter()
        .map(|(frame, size)| (frame.len() - 42, *size))
        .collect();
    assert_eq!(
        data,
        [(1700, Some(700)), (600, Some(300)), (1800, Some(900))]
    );
    assert_eq!(cut_all(&merged), datagrams);
}

#[test]
fn datagrams_without_data_are_never_merged() {
    let spec = plain(0);
    let datagrams: Vec<_> = (0..3).map(|number| spec.frame(number, &[])).collect();
    assert_eq!(merge(&datagrams).len(), 3);
}

#[test]
fn datagrams_with_marks_or_without_rising_identifications_stay_alone() {
    let spec = plain(2000);
    let datagrams = spec.datagrams(1000);
    assert_eq!(merge(&datagrams).len(), 1);
    // Congestion experienced, identification, time to live, both ports.
    for (at, to) in [(15, 3), (19, 9), (22, 63), (35, 1), (37, 1)] {
        let mut other = datagrams.clone();
        assert_ne!(other[1][at], to, "{at}");
        other[1][at] = to;
        spec.correct(&mut other[1]);
        let merged = merge(&other);
        assert_eq!(merged.len(), 2, "{at}");
        assert_eq!(cut_all(&merged), other);
    }
}

#[test]
fn a_datagram_and_a_segment_of_the_same_ports_are_of_two_flows() {
    let datagrams = plain(2000).datagrams(1000);
    let merge = Merge::begin(&DataSegment::read(&datagrams[0]).unwrap()).unwrap();
    assert!(
        DataSegment::read(&datagrams[1])
            .unwrap()
            .has_flow_of(&merge)
    );
    // The data make a TCP header of 20 octets at this place.
    let mut other = datagrams[1].clone();
    other[23] = 6;
    other[46] = 0x50;
    let segment = DataSegment::read(&other).unwrap();
    assert!(segment.is_tcp() && segment.is_ipv4() && !segment.has_flow_of(&merge));
}

#[test]
fn a_datagram_with_a_partial_checksum_is_right_once_it_is_completed() {
    let spec = plain(1000);
    let frame = spec.frame(0, &spec.data);
    let headers = LargeFrame::read(&frame, frame.len()).unwrap();
    let mut partial = frame.clone();
    assert!(headers.write_partial(&mut partial, 0, 0));
    assert_ne!(partial, frame);
    assert!(complete_partial_checksum(&mut partial));
    assert_eq!(partial, frame);
}
