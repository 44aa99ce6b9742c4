// SPDX-License-Identifier: Apache-2.0
//! Tests that addresses missing in the IOTLB are found before the chains are needed.

use super::frame;
use super::guest::{ACCESS_PLATFORM, Guest, PACKED, VERSION_1};
use super::receive::{Given, offer};
use crate::address_space::Miss;
use crate::ring::virtqueue::{AHEAD_MAX, Ring};
use crate::ring::{OffloadHeader, PutResult, Receive, Received, Receiver, Sender, Transmit};

/// More chains than one call checks.
const CHAINS: u64 = AHEAD_MAX as u64 + 8;
/// Octets of a frame. Buffers of neighbours share a page.
const LEN: usize = 1500;

/// Calls `look_ahead` and answers until nothing is missing; returns the number of misses of each call.
fn answer_all(guest: &Guest, mut look_ahead: impl FnMut(&mut dyn FnMut(Miss))) -> Vec<usize> {
    let mut counts = Vec::new();
    for _ in 0..6 {
        let mut misses = Vec::new();
        look_ahead(&mut |miss| misses.push(miss));
        counts.push(misses.len());
        for miss in misses {
            guest.answer_miss(miss.iova);
        }
    }
    counts
}

#[test]
fn buffers_for_frames_are_looked_at_ahead() {
    for kind in [0, PACKED] {
        let mut guest = Guest::new(VERSION_1 | ACCESS_PLATFORM | kind, 64);
        let mut sender = Sender::new(&guest.config(guest.first_base())).unwrap();
        for token in 0..CHAINS {
            let address = guest.data(LEN as u64 + 12);
            assert!(guest.offer(&[(address, LEN as u32 + 12, true)], false, token));
        }
        let mut are_writes = true;
        let counts = answer_all(&guest, |report| {
            sender.look_ahead(|miss| {
                are_writes &= miss.write;
                report(miss);
            });
        });
        assert!(are_writes);
        assert_eq!((counts[0], counts[5]), (AHEAD_MAX, 0), "{counts:?}");
        for seed in 0..CHAINS {
            let octets = frame(seed, LEN);
            let put = sender.put(
                OffloadHeader::default().into(),
                std::iter::once(&octets[..]),
                LEN as u32,
            );
            assert_eq!(put, PutResult::Sent, "{seed}");
        }
        sender.publish();
        // The look-ahead also covers chains that the guest offers later.
        for _ in 0..CHAINS {
            guest.collect().unwrap();
        }
        let address = guest.data(LEN as u64);
        assert!(guest.offer(&[(address, LEN as u32, true)], false, CHAINS));
        assert!(answer_all(&guest, |report| sender.look_ahead(report))[0] > 0);
    }
}

#[test]
fn frames_of_the_guest_are_looked_at_ahead() {
    for kind in [0, PACKED] {
        let mut guest = Guest::new(VERSION_1 | ACCESS_PLATFORM | kind, 64);
        let mut receiver = Receiver::new(&guest.config(guest.first_base())).unwrap();
        let given = Given {
            len: LEN,
            cuts: Vec::new(),
            is_indirect: false,
        };
        for seed in 0..CHAINS {
            offer(&mut guest, &given, seed).unwrap();
        }
        let counts = answer_all(&guest, |report| receiver.look_ahead(report));
        assert_eq!((counts[0], counts[5]), (AHEAD_MAX, 0), "{counts:?}");
        assert_eq!(receiver.ready(64), CHAINS as usize);
        for seed in 0..CHAINS {
            let received = receiver.next();
            assert!(
                matches!(received, Some(Received::Frame { length, .. }) if length == LEN as u32),
                "{seed}: {received:?}"
            );
        }
        assert!(receiver.release());
        assert_eq!(
            answer_all(&guest, |report| receiver.look_ahead(report)),
            [0; 6]
        );
    }
}

#[test]
fn without_an_iotlb_nothing_is_missing() {
    let mut guest = Guest::new(VERSION_1, 8);
    let mut sender = Sender::new(&guest.config(guest.first_base())).unwrap();
    let address = guest.data(LEN as u64);
    assert!(guest.offer(&[(address, LEN as u32, true)], false, 0));
    sender.look_ahead(|miss| panic!("{miss:?}"));
}
