// SPDX-License-Identifier: Apache-2.0
//! Chains and rings that violate the rules.

use std::collections::VecDeque;
use std::sync::Arc;

use quietwire_memory::Mapping;

use super::frame;
use super::guest::{
    Buffer, EVENT_INDEX, GUEST_DATA, Guest, INDIRECT, LOG_ALL, MERGEABLE, PACKED, VERSION_1,
};
use super::receive::{Given, offer, take};
use crate::ring::config::RingError;
use crate::ring::virtqueue::Ring;
use crate::ring::{
    InflightRegion, OCTETS_MAX, PutResult, RawHeader, Receive, Received, Receiver, Sender, Transmit,
};

const KINDS: [u64; 2] = [0, PACKED];

fn good(len: usize) -> Given {
    Given {
        len,
        cuts: Vec::new(),
        is_indirect: false,
    }
}

/// Offers a chain to the device, and a valid one after it: the first is returned, the second arrives.
fn expect_bad(features: u64, buffers: &[Buffer], is_indirect: bool) {
    for kind in KINDS {
        let mut guest = Guest::new(features | kind | VERSION_1, 256);
        let base = guest.first_base();
        let mut receiver = Receiver::new(&guest.config(base)).unwrap();
        assert!(guest.offer(buffers, is_indirect, 77));
        let sight = offer(&mut guest, &good(100), 1).unwrap();
        assert_eq!(receiver.ready(64), 2);
        assert!(matches!(receiver.next(), Some(Received::Bad)), "{kind:x}");
        assert!(take(&guest, &mut receiver, &mut VecDeque::from([sight])));
        assert!(receiver.next().is_none());
        assert!(receiver.release());
        assert_eq!(guest.collect(), Some((77, 0)));
        assert_eq!(guest.collect(), Some((1, 0)));
        assert_eq!(receiver.counters().bad, 1);
    }
}

#[test]
fn bad_chains_go_back_and_the_next_arrives() {
    let start = GUEST_DATA + 0x10_0000;
    // Entirely or partly writable for the device.
    expect_bad(0, &[(start, 100, true)], false);
    expect_bad(0, &[(start, 100, false), (start, 1, true)], false);
    // No frame after the header, or no header.
    expect_bad(0, &[(start, 12, false)], false);
    expect_bad(0, &[(start, 4, false), (start, 8, false)], false);
    expect_bad(0, &[(start, 0, false)], false);
    // Entirely or partly outside of all regions.
    expect_bad(0, &[(0x1000, 100, false)], false);
    expect_bad(0, &[(u64::MAX, 100, false)], false);
    expect_bad(0, &[(GUEST_DATA + 0x20_0000 - 50, 100, false)], false);
    // Too long.
    expect_bad(0, &[(GUEST_DATA, OCTETS_MAX + 1, false)], false);
    expect_bad(
        0,
        &[(GUEST_DATA, OCTETS_MAX, false), (start, 1, false)],
        false,
    );
    // Too many buffers, in the ring or in a table.
    expect_bad(INDIRECT, &[(start, 1, false); 257], true);
    // Tables without the feature, empty, too short, or outside all regions.
    expect_bad(0, &[(start, 100, false)], true);
    expect_bad(INDIRECT, &[(start, 100, true)], true);
}

#[test]
fn the_longest_chains_arrive() {
    for kind in KINDS {
        let mut guest = Guest::new(INDIRECT | VERSION_1 | kind, 256);
        let base = guest.first_base();
        let mut receiver = Receiver::new(&guest.config(base)).unwrap();
        for is_indirect in [true, false] {
            let given = Given {
                len: 500,
                cuts: vec![2; 255],
                is_indirect,
            };
            let sight = offer(&mut guest, &given, 0).unwrap();
            assert_eq!(receiver.ready(64), 1);
            assert!(take(&guest, &mut receiver, &mut VecDeque::from([sight])));
            receiver.release();
            assert_eq!(guest.collect(), Some((0, 0)));
        }
        let sight = offer(&mut guest, &good(OCTETS_MAX as usize - 12), 1).unwrap();
        receiver.ready(1);
        assert!(take(&guest, &mut receiver, &mut VecDeque::from([sight])));
    }
}

#[test]
fn a_chain_with_more_descriptors_than_pieces_is_bad() {
    for kind in KINDS {
        let mut guest = Guest::new(VERSION_1 | kind, 512);
        let base = guest.first_base();
        let mut receiver = Receiver::new(&guest.config(base)).unwrap();
        assert!(guest.offer(&[(GUEST_DATA, 1, false); 300], false, 0));
        let sight = offer(&mut guest, &good(60), 1).unwrap();
        assert_eq!(receiver.ready(64), 2);
        assert!(matches!(receiver.next(), Some(Received::Bad)));
        assert!(take(&guest, &mut receiver, &mut VecDeque::from([sight])));
        receiver.release();
        assert_eq!(guest.collect(), Some((0, 0)));
        assert_eq!(guest.collect(), Some((1, 0)));
    }
}

#[test]
fn loops_come_to_an_end() {
    // Split: a chain that refers to itself, directly and in a table.
    let mut guest = Guest::new(VERSION_1 | INDIRECT, 4);
    let mut receiver = Receiver::new(&guest.config(0)).unwrap();
    let [descriptors, ..] = guest.parts();
    assert!(guest.offer(&[(GUEST_DATA, 100, false)], false, 0));
    let flags = guest.mapping.span(descriptors + 12, 4).unwrap();
    flags.copy_from(&[1, 0, 0, 0]);
    assert_eq!(receiver.ready(64), 1);
    assert!(matches!(receiver.next(), Some(Received::Bad)));
    assert!(guest.offer(&[(GUEST_DATA, 100, false); 2], true, 1));
    // The table is at the start of the data; its second entry refers to its first.
    guest.write(GUEST_DATA + 16 + 12, &[1, 0, 0, 0]);
    assert_eq!(receiver.ready(64), 1);
    assert!(matches!(receiver.next(), Some(Received::Bad)));
    assert_eq!(receiver.counters().bad, 2);
    // Packed: every slot is available and continues in the next.
    let guest = Guest::new(VERSION_1 | PACKED, 7);
    let mut receiver = Receiver::new(&guest.config(0x8000_8000)).unwrap();
    let [ring, ..] = guest.parts();
    for slot in 0..7 {
        let word = guest.mapping.span(ring + 16 * slot + 14, 2).unwrap();
        word.copy_from(&[0x81, 0]);
    }
    assert_eq!(receiver.ready(64), 1);
    assert!(matches!(receiver.next(), Some(Received::Bad)));
    receiver.release();
    receiver.ready(64);
}

#[test]
fn an_index_that_cannot_be_is_counted_and_passed_over() {
    let mut guest = Guest::new(VERSION_1, 4);
    let mut receiver = Receiver::new(&guest.config(0)).unwrap();
    let [_, avail, _] = guest.parts();
    let index = guest.mapping.span(avail + 2, 2).unwrap();
    index.copy_from(&5_u16.to_le_bytes());
    assert_eq!(receiver.ready(64), 0);
    assert_eq!(receiver.counters().resyncs, 1);
    assert_eq!(receiver.ready(64), 0);
    assert_eq!(receiver.counters().resyncs, 1);
    // Back at the driver's own index: what it offers arrives.
    index.copy_from(&0_u16.to_le_bytes());
    assert_eq!(receiver.ready(64), 0);
    assert_eq!(receiver.counters().resyncs, 2);
    let sight = offer(&mut guest, &good(60), 3).unwrap();
    assert_eq!(receiver.ready(64), 1);
    assert!(take(&guest, &mut receiver, &mut VecDeque::from([sight])));
    receiver.release();
    assert_eq!(guest.collect(), Some((3, 0)));
}

#[test]
fn a_split_head_outside_the_table_is_bad() {
    let mut guest = Guest::new(VERSION_1, 4);
    let mut receiver = Receiver::new(&guest.config(0)).unwrap();
    let [_, avail, _] = guest.parts();
    assert!(guest.offer(&[(GUEST_DATA, 100, false)], false, 0));
    let head = guest.mapping.span(avail + 4, 2).unwrap();
    head.copy_from(&4_u16.to_le_bytes());
    assert_eq!(receiver.ready(64), 1);
    assert!(matches!(receiver.next(), Some(Received::Bad)));
}

/// Sends a frame of `len` octets.
fn put(sender: &mut Sender, len: usize) -> PutResult {
    let octets = frame(5, len);
    let segments = [&octets[..]].into_iter();
    sender.put(RawHeader::PLAIN, segments, len as u32)
}

#[test]
fn without_space_nothing_is_used() {
    for kind in KINDS {
        let mut guest = Guest::new(MERGEABLE | kind, 8);
        let base = guest.first_base();
        let mut sender = Sender::new(&guest.config(base)).unwrap();
        for token in 0..2 {
            let address = guest.data(100);
            assert!(guest.offer(&[(address, 100, true)], false, token));
        }
        assert_eq!(put(&mut sender, 189), PutResult::Full);
        assert!(!sender.publish());
        assert!(guest.collect().is_none());
        assert_eq!(put(&mut sender, 188), PutResult::Sent);
        sender.publish();
        assert_eq!(guest.collect(), Some((0, 100)));
        assert_eq!(guest.collect(), Some((1, 100)));
        assert_eq!(put(&mut sender, 1), PutResult::Full);
        assert_eq!(put(&mut sender, 70_000), PutResult::TooLong);
        let address = guest.data(100);
        assert!(guest.offer(&[(address, 100, true)], false, 3));
        assert_eq!(put(&mut sender, 70_000), PutResult::TooLong);
        assert_eq!(put(&mut sender, 1), PutResult::Sent);
    }
}

#[test]
fn without_merging_one_chain_holds_the_frame_or_none_does() {
    for kind in KINDS {
        let mut guest = Guest::new(VERSION_1 | kind, 8);
        let base = guest.first_base();
        let mut sender = Sender::new(&guest.config(base)).unwrap();
        for token in 0..2 {
            let address = guest.data(100);
            assert!(guest.offer(&[(address, 100, true)], false, token));
        }
        assert_eq!(put(&mut sender, 89), PutResult::TooLong);
        assert_eq!(put(&mut sender, 88), PutResult::Sent);
        sender.publish();
        assert_eq!(guest.collect(), Some((0, 100)));
        assert_eq!(guest.collect(), None);
    }
}

#[test]
fn bad_chains_of_the_guests_go_back_before_frames() {
    for kind in KINDS {
        let mut guest = Guest::new(MERGEABLE | kind, 8);
        let base = guest.first_base();
        let mut sender = Sender::new(&guest.config(base)).unwrap();
        let address = guest.data(1000);
        // Shorter than the header; not writable; outside; then a valid one, a bad one, and two valid ones.
        assert!(guest.offer(&[(address, 11, true)], false, 0));
        assert!(guest.offer(&[(address, 100, false)], false, 1));
        assert!(guest.offer(&[(0, 100, true)], false, 2));
        assert!(guest.offer(&[(address, 100, true)], false, 3));
        assert!(guest.offer(&[(1, 100, true)], false, 4));
        assert!(guest.offer(&[(address, 100, true)], false, 5));
        assert!(guest.offer(&[(address + 100, 100, true)], false, 6));
        for _ in 0..3 {
            assert_eq!(put(&mut sender, 150), PutResult::Bad);
        }
        // The valid chain before the bad one is returned empty, because chains are returned in order.
        assert_eq!(put(&mut sender, 150), PutResult::Bad);
        assert_eq!(put(&mut sender, 150), PutResult::Sent);
        sender.publish();
        let used: Vec<_> = std::iter::from_fn(|| guest.collect()).collect();
        let lens = [0, 0, 0, 0, 0, 100, 62];
        let expected: Vec<(u64, u32)> = (0..).zip(lens).collect();
        assert_eq!(used, expected);
        assert_eq!(sender.counters().bad, 4);
    }
}

#[test]
fn notifications_are_sent_when_the_guest_wants_them() {
    for features in [0, EVENT_INDEX, PACKED, PACKED | EVENT_INDEX] {
        let mut guest = Guest::new(VERSION_1 | features, 5_u16.next_power_of_two());
        let base = guest.first_base();
        let mut receiver = Receiver::new(&guest.config(base)).unwrap();
        for turn in 0..100_u64 {
            let wanted = turn % 3 == 0;
            guest.want_notification(wanted);
            let sight = offer(&mut guest, &good(60), turn).unwrap();
            receiver.ready(64);
            assert!(take(&guest, &mut receiver, &mut VecDeque::from([sight])));
            assert_eq!(receiver.release(), wanted, "{features:x} {turn}");
            guest.collect().unwrap();
            let wanted = turn % 2 == 0;
            receiver.request_notifications(wanted);
            let sight = offer(&mut guest, &good(60), turn).unwrap();
            assert_eq!(guest.device_wants_notification(), wanted);
            receiver.ready(64);
            assert!(take(&guest, &mut receiver, &mut VecDeque::from([sight])));
            receiver.release();
            guest.collect().unwrap();
        }
    }
}

#[test]
fn an_event_of_a_descriptor_is_due_once_it_is_passed() {
    // The guest wants a notification for the third descriptor from now on; bursts of one and of several.
    for (features, burst) in [(0, 1), (0, 4), (PACKED, 1), (PACKED, 4)] {
        let mut guest = Guest::new(VERSION_1 | EVENT_INDEX | features, 8);
        let base = guest.first_base();
        let mut receiver = Receiver::new(&guest.config(base)).unwrap();
        let mut done = 0_u64;
        for due in [2, 7, 9, 14, 22_u64] {
            let [_, driver, _] = guest.parts();
            let (place, octets) = if features == PACKED {
                let wrap = if due / 8 % 2 == 0 { 0x8000 } else { 0 };
                let off_wrap = (due % 8) as u16 | wrap;
                (
                    driver,
                    [off_wrap.to_le_bytes(), 2_u16.to_le_bytes()].concat(),
                )
            } else {
                (driver + 4 + 16, (due as u16).to_le_bytes().to_vec())
            };
            guest
                .mapping
                .span(place, octets.len())
                .unwrap()
                .copy_from(&octets);
            loop {
                let mut expected = VecDeque::new();
                for _ in 0..burst {
                    expected.push_back(offer(&mut guest, &good(60), done).unwrap());
                }
                receiver.ready(64);
                while take(&guest, &mut receiver, &mut expected) {}
                let before = done;
                done += burst;
                let wants = receiver.release();
                while guest.collect().is_some() {}
                assert_eq!(
                    wants,
                    (before..done).contains(&due),
                    "{due} {before} {done}"
                );
                if wants {
                    break;
                }
            }
        }
    }
}

#[test]
fn rings_that_cannot_be_are_refused() {
    let guest = Guest::new(VERSION_1 | LOG_ALL, 8);
    for size in [0, 3, 0x8001] {
        let mut config = guest.config(0);
        config.size = size;
        assert_eq!(Receiver::new(&config).unwrap_err(), RingError::Size(size));
    }
    let mut config = guest.config(0);
    config.descriptors += 4;
    let error = Receiver::new(&config).unwrap_err();
    assert_eq!(error, RingError::Misaligned("descriptor table"));
    let mut config = guest.config(0);
    config.device = 0;
    let error = Sender::new(&config).unwrap_err();
    assert_eq!(error, RingError::Outside("used ring", 0));
    let guest = Guest::new(VERSION_1 | PACKED, 7);
    let error = Sender::new(&guest.config(7)).unwrap_err();
    assert_eq!(error, RingError::Base(7));
    let mut config = guest.config(0);
    let (mapping, _file) = Mapping::create("quietwire-inflight", 4096).unwrap();
    let mapping = Arc::new(mapping);
    for offset in [4, 4096 - 64] {
        config.inflight = Some(InflightRegion::new(&mapping, offset));
        assert_eq!(Sender::new(&config).unwrap_err(), RingError::Inflight);
    }
}

#[test]
fn a_ring_knows_the_addresses_that_it_needs() {
    for kind in KINDS {
        let guest = Guest::new(VERSION_1 | kind, 8);
        let config = guest.config(0);
        for start in [config.descriptors, config.driver, config.device] {
            assert!(config.overlaps(start, start));
            assert!(config.overlaps(0, start));
            assert!(config.overlaps(start + 3, u64::MAX));
        }
        assert!(!config.overlaps(0, config.descriptors - 1));
        let end = if kind == PACKED { 4 } else { 6 + 8 * 8 };
        assert!(config.overlaps(config.device + end - 1, u64::MAX));
        assert!(!config.overlaps(config.device + end, u64::MAX));
    }
}
