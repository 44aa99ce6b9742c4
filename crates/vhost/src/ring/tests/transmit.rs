// SPDX-License-Identifier: Apache-2.0
//! Frames that the guest receives.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::guest::{Buffer, Guest, INDIRECT, LOG_ALL, MERGEABLE, PACKED, VERSION_1};
use super::{cut, frame, kinds};
use crate::ring::header::HEADER_LEN;
use crate::ring::virtqueue::Ring;
use crate::ring::{OffloadHeader, PIECES_MAX, PutResult, Sender, Transmit};

/// A chain for frames: octets, cuts, and whether in an indirect table.
type Shape = (usize, Vec<usize>, bool);

fn shapes() -> impl Strategy<Value = Vec<Shape>> {
    let len = prop_oneof![4 => Just(1526_usize), 2 => 12..300_usize, 1 => 1600..9000_usize];
    let cuts = proptest::collection::vec(1..40_usize, 0..4);
    proptest::collection::vec((len, cuts, any::<bool>()), 1..6)
}

/// Offers a chain; returns its buffers, or `None` if too few slots are free.
fn offer(guest: &mut Guest, shape: &Shape, token: u64) -> Option<Vec<Buffer>> {
    let (len, cuts, is_indirect) = shape;
    let is_indirect = *is_indirect && guest.features & INDIRECT != 0;
    let mut pieces = cut(*len, cuts);
    if !is_indirect && pieces.len() > usize::from(guest.size) {
        pieces = vec![*len];
    }
    if pieces.len() > guest.free_slots() && !is_indirect || guest.free_slots() == 0 {
        return None;
    }
    let buffers: Vec<Buffer> = pieces
        .into_iter()
        .map(|piece| (guest.data(piece as u64), piece as u32, true))
        .collect();
    assert!(guest.offer(&buffers, is_indirect, token));
    Some(buffers)
}

/// Sends a frame in segments and answers misses.
fn put(
    guest: &Guest,
    sender: &mut Sender,
    header: OffloadHeader,
    octets: &[u8],
    cuts: &[usize],
) -> PutResult {
    let mut segments = Vec::new();
    let mut at = 0;
    for piece in cut(octets.len(), cuts) {
        segments.push(&octets[at..at + piece]);
        at += piece;
    }
    // Single-piece frames are sent with either method.
    if header == OffloadHeader::default() && segments.len() == 1 && octets.len().is_multiple_of(2) {
        let put = sender.put_contiguous(|first| std::iter::once(octets).skip(first));
        if put.0 > 0 {
            assert_eq!(put, (1, octets.len() as u64));
            return PutResult::Sent;
        }
    }
    for _ in 0..1000 {
        match sender.put(header.into(), segments.iter().copied(), octets.len() as u32) {
            PutResult::Miss(miss) => {
                guest.answer_miss(miss.iova);
            }
            put => return put,
        }
    }
    panic!("too many misses");
}

/// Takes the next frame out of the guest's buffers, and checks the lengths that the device reports.
fn collect(
    guest: &mut Guest,
    chains: &mut VecDeque<Vec<Buffer>>,
    token: &mut u64,
) -> Option<(OffloadHeader, Vec<u8>)> {
    let mut whole = Vec::new();
    let mut left = 1;
    let mut header = None;
    while left > 0 {
        let Some((number, len)) = guest.collect() else {
            assert!(whole.is_empty(), "half a frame");
            return None;
        };
        assert_eq!(number, *token);
        *token += 1;
        let chain = chains.pop_front().unwrap();
        let space: u32 = chain.iter().map(|buffer| buffer.1).sum();
        assert!(len <= space);
        let octets: Vec<u8> = chain
            .iter()
            .flat_map(|buffer| guest.read(buffer.0, buffer.1 as usize))
            .take(len as usize)
            .collect();
        whole.extend(&octets);
        if header.is_none() {
            let mut parsed = [0; HEADER_LEN];
            let header_len = guest.header_len();
            parsed[..header_len].copy_from_slice(&whole[..header_len]);
            let parsed = OffloadHeader::parse(&parsed);
            left = if header_len == HEADER_LEN {
                parsed.num_buffers
            } else {
                1
            };
            assert!(left == 1 || guest.features & MERGEABLE != 0);
            header = Some(parsed);
        }
        left -= 1;
        // All but the last must be full.
        assert!(left == 0 || len == space);
    }
    whole.drain(..guest.header_len());
    Some((header?, whole))
}

/// Checks that pages that changed since the snapshot are in the log.
fn check_log(guest: &Guest, before: &[u8]) {
    let after = guest.snapshot();
    for (page, (old, new)) in before.chunks(4096).zip(after.chunks(4096)).enumerate() {
        if old != new {
            let address = Guest::guest_of_offset(4096 * page as u64);
            assert!(guest.is_logged(address), "page {address:#x} is not marked");
        }
    }
}

#[test]
fn a_frame_waits_for_buffers_that_are_used_and_not_published() {
    for kind in [0, PACKED] {
        let mut guest = Guest::new(VERSION_1 | MERGEABLE | kind, 2);
        let mut sender = Sender::new(&guest.config(guest.first_base())).unwrap();
        let shape = |len| (len, Vec::new(), false);
        let mut chains = VecDeque::new();
        chains.extend(offer(&mut guest, &shape(300), 0));
        chains.extend(offer(&mut guest, &shape(100), 1));
        assert_eq!((chains.len(), sender.ready(2)), (2, 2));
        let (short, long) = (frame(1, 200), frame(2, 200));
        let header = OffloadHeader::default();
        assert_eq!(
            put(&guest, &mut sender, header, &short, &[]),
            PutResult::Sent
        );
        // The first buffer is returned once the guest has received the frame.
        assert_eq!(
            put(&guest, &mut sender, header, &long, &[]),
            PutResult::Full
        );
        assert!(sender.publish());
        let mut token = 0;
        let (_, octets) = collect(&mut guest, &mut chains, &mut token).unwrap();
        assert_eq!(octets, short);
        chains.extend(offer(&mut guest, &shape(150), 2));
        assert_eq!(
            put(&guest, &mut sender, header, &long, &[]),
            PutResult::Sent
        );
        assert!(sender.publish());
        let (_, octets) = collect(&mut guest, &mut chains, &mut token).unwrap();
        assert_eq!(octets, long);
        // The device has both buffers, and they are too small.
        chains.extend(offer(&mut guest, &shape(100), 3));
        chains.extend(offer(&mut guest, &shape(100), 4));
        assert_eq!(
            put(&guest, &mut sender, header, &long, &[]),
            PutResult::TooLong
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn frames_reach_the_guest_whole_and_in_order(
        (features, size) in kinds(),
        shapes in shapes(),
        lens in proptest::collection::vec((1..3000_usize, proptest::collection::vec(1..200_usize, 0..3)), 1..60),
        bursts in proptest::collection::vec((1..20_usize, 1..70_usize, 1..20_usize), 1..6),
    ) {
        let mut guest = Guest::new(features, size);
        guest.go_to_border(900);
        let mut sender = Sender::new(&guest.config(guest.first_base())).unwrap();
        let mut shapes = shapes.iter().cycle();
        let mut chains = VecDeque::new();
        let mut expected = VecDeque::new();
        let (mut offered, mut token) = (0, 0);
        let mut frames = lens.iter().enumerate().peekable();
        let mut shape = shapes.next().unwrap();
        let mut refused = 0;
        let has_log = features & LOG_ALL != 0;
        for (offers, most, puts) in bursts.iter().cycle() {
            let before_offers = chains.len();
            for _ in 0..*offers {
                let Some(chain) = offer(&mut guest, shape, offered) else { break };
                chains.push_back(chain);
                offered += 1;
                shape = shapes.next().unwrap();
            }
            guest.want_notification(true);
            let before = if has_log {
                guest.clear_log();
                guest.snapshot()
            } else {
                Vec::new()
            };
            prop_assert!(sender.ready(*most) <= (*most).min(64));
            for _ in 0..*puts {
                let Some((number, (len, cuts))) = frames.peek() else { break };
                let data = frame(*number as u64, *len);
                let mut header = [0; HEADER_LEN];
                header.copy_from_slice(&frame(!(*number as u64), HEADER_LEN));
                let header = match number % 3 {
                    0 => OffloadHeader::parse(&header),
                    _ => OffloadHeader::default(),
                };
                match put(&guest, &mut sender, header, &data, cuts) {
                    PutResult::Sent => {
                        expected.push_back((header, data));
                        frames.next();
                    }
                    PutResult::Full => {
                        // All that the ring can hold may be too little for the frame.
                        if chains.len() == before_offers {
                            frames.next();
                        }
                        refused += 1;
                        break;
                    }
                    PutResult::TooLong => {
                        // The first chain, or all that the ring can hold, is too short, or in too many pieces.
                        let has_all = guest.free_slots() == 0 && expected.is_empty();
                        let buffers = chains.iter().flatten();
                        let pieces: u32 = buffers.map(|buffer| 2 + buffer.1 / 4096).sum();
                        let too_many = pieces as usize > PIECES_MAX;
                        prop_assert!(features & MERGEABLE == 0 || has_all || too_many);
                        frames.next();
                        refused += 1;
                        break;
                    }
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            prop_assert!(guest.collect().is_none());
            let wants = sender.publish();
            if has_log {
                check_log(&guest, &before);
            }
            prop_assert_eq!(wants, !expected.is_empty());
            while let Some((header, data)) = collect(&mut guest, &mut chains, &mut token) {
                let (mut expected_header, expected_data) = expected.pop_front().unwrap();
                let long = guest.header_len() == HEADER_LEN;
                expected_header.num_buffers = if long { header.num_buffers } else { 0 };
                prop_assert_eq!(header, expected_header);
                prop_assert!(data == expected_data, "other octets");
            }
            prop_assert!(expected.is_empty());
            if frames.peek().is_none() {
                break;
            }
            prop_assert!(refused < 5000, "stuck");
        }
        let counters = sender.counters();
        prop_assert_eq!((counters.bad, counters.resyncs), (0, 0));
    }
}
