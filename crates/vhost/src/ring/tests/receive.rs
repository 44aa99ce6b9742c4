// SPDX-License-Identifier: Apache-2.0
//! Frames that the guest transmits.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::guest::{CSUM, Guest, INDIRECT};
use super::{cut, frame, kinds};
use crate::ring::header::HEADER_LEN;
use crate::ring::virtqueue::Ring;
use crate::ring::{OffloadHeader, RawHeader, Receive, Received, Receiver};

/// A frame, how it is cut into buffers, and whether in an indirect table.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) len: usize,
    pub(super) cuts: Vec<usize>,
    pub(super) is_indirect: bool,
}

pub(super) fn given() -> impl Strategy<Value = Given> {
    let len = prop_oneof![8 => 1..1600_usize, 1 => 1600..20_000_usize];
    let cuts = proptest::collection::vec(1..40_usize, 0..4);
    (len, cuts, any::<bool>()).prop_map(|(len, cuts, is_indirect)| Given {
        len,
        cuts,
        is_indirect,
    })
}

/// Offers frame number `seed`; returns what the device must see, or `None` if there is no space.
pub(super) fn offer(
    guest: &mut Guest,
    given: &Given,
    seed: u64,
) -> Option<(OffloadHeader, Vec<u8>)> {
    let octets = frame(seed, given.len);
    let mut header = [0; HEADER_LEN];
    header.copy_from_slice(&frame(!seed, HEADER_LEN));
    let header_len = guest.header_len();
    header[header_len..].fill(0);
    let whole = [&header[..header_len], &octets].concat();
    let is_indirect = given.is_indirect && guest.features & INDIRECT != 0;
    let mut pieces = cut(whole.len(), &given.cuts);
    if !is_indirect && pieces.len() > usize::from(guest.size) {
        pieces = vec![whole.len()];
    }
    if pieces.len() > guest.free_slots() && !is_indirect || guest.free_slots() == 0 {
        return None;
    }
    let mut buffers = Vec::new();
    let mut at = 0;
    for piece in pieces {
        let address = guest.data(piece as u64);
        guest.write(address, &whole[at..at + piece]);
        buffers.push((address, piece as u32, false));
        at += piece;
    }
    assert!(guest.offer(&buffers, is_indirect, seed));
    // Offloads that were not negotiated are ignored.
    let header = match guest.features & CSUM {
        0 => OffloadHeader::default(),
        _ => OffloadHeader::parse(&header),
    };
    Some((header, octets))
}

/// Takes the next frame out of the ring and answers misses. Returns false if there is none.
pub(super) fn take(
    guest: &Guest,
    receiver: &mut Receiver,
    expected: &mut VecDeque<(OffloadHeader, Vec<u8>)>,
) -> bool {
    // Single-descriptor chains are received with either method.
    if let Some((_, octets)) = expected.front()
        && octets.len() % 2 == 0
    {
        let waiting = expected.len();
        let longest = 97 * (waiting % 4);
        let count = receiver.take_contiguous(waiting % 3, longest, |span, header| {
            let mut octets = vec![0; span.len()];
            span.copy_to(&mut octets);
            let (expected_header, expected_octets) = expected.pop_front().unwrap();
            match header {
                Some(header) => assert_eq!(header.parse(), expected_header),
                None => assert!(
                    octets.len() <= longest && RawHeader::from(expected_header).is_plain(),
                    "{expected_header:?} in {} octets",
                    octets.len()
                ),
            }
            assert!(octets == expected_octets, "other octets");
        });
        assert_eq!(waiting - expected.len(), count);
        if count > 0 {
            return true;
        }
    }
    let miss = match receiver.next() {
        None => return false,
        Some(Received::Bad) => panic!("a good chain"),
        Some(Received::Miss(miss)) => miss,
        Some(Received::Frame {
            header,
            first,
            rest,
            length,
        }) => {
            let mut octets = Vec::new();
            for span in std::iter::once(first).chain(rest) {
                assert!(!span.is_empty());
                let mut piece = vec![0; span.len()];
                span.copy_to(&mut piece);
                octets.extend(piece);
            }
            assert_eq!(octets.len(), length as usize);
            let (expected_header, expected_octets) = expected.pop_front().unwrap();
            assert_eq!(header.parse(), expected_header);
            assert!(octets == expected_octets, "other octets");
            return true;
        }
    };
    assert!(!miss.write);
    assert!(receiver.next().is_none());
    guest.answer_miss(miss.iova);
    true
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn frames_arrive_whole_and_in_order(
        (features, size) in kinds(),
        frames in proptest::collection::vec(given(), 1..80),
        bursts in proptest::collection::vec((1..10_usize, 1..70_usize, 0..70_usize), 1..8),
    ) {
        let mut guest = Guest::new(features, size);
        guest.go_to_border(700);
        let mut receiver = Receiver::new(&guest.config(guest.first_base())).unwrap();
        let mut frames = frames.iter().enumerate().peekable();
        let mut expected = VecDeque::new();
        let mut sent = 0;
        let mut collected = 0;
        let mut idle = 0;
        for (offers, most, takes) in bursts.iter().cycle() {
            let before = sent;
            for _ in 0..*offers {
                let Some((number, given)) = frames.peek() else { break };
                let Some(sight) = offer(&mut guest, given, *number as u64) else { break };
                expected.push_back(sight);
                frames.next();
                sent += 1;
            }
            let ready = receiver.ready(*most);
            prop_assert!(ready <= *most && ready <= 64);
            let waiting = expected.len();
            for _ in 0..(*takes).max(1) {
                if !take(&guest, &mut receiver, &mut expected) {
                    break;
                }
            }
            prop_assert!(waiting - expected.len() <= ready);
            // Nothing is returned before the release.
            prop_assert!(guest.collect().is_none());
            guest.want_notification(true);
            let wants = receiver.release();
            let mut returned = 0;
            while let Some((token, len)) = guest.collect() {
                prop_assert_eq!((token, len), (collected, 0));
                collected += 1;
                returned += 1;
            }
            prop_assert_eq!(wants, returned > 0);
            prop_assert_eq!(collected + expected.len() as u64, sent);
            if frames.peek().is_none() && expected.is_empty() {
                break;
            }
            idle = if returned == 0 && sent == before { idle + 1 } else { 0 };
            prop_assert!(idle < 2000, "stuck");
        }
        let counters = receiver.counters();
        prop_assert_eq!((counters.bad, counters.resyncs), (0, 0));
        prop_assert_eq!(receiver.ready(64), 0);
        prop_assert!(!receiver.release());
    }
}
