// SPDX-License-Identifier: Apache-2.0
//! Queues that stop and continue in another device.

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::prelude::*;
use quietwire_memory::Mapping;

use super::guest::{ACCESS_PLATFORM, Guest, LOG_ALL, MERGEABLE, PACKED, VERSION_1};
use super::receive::{Given, given, offer, take};
use super::{frame, kinds};
use crate::ring::virtqueue::Ring;
use crate::ring::{
    InflightRegion, PutResult, RawHeader, Receive, Receiver, Sender, Transmit, inflight_region_len,
};

/// Event after a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    GoesOn,
    /// The device returns what it took and stops; another one continues at its base.
    Stops,
    /// The device ends without returning what it took; another one continues with the inflight region.
    Crashes,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::GoesOn),
        Just(Event::Stops),
        Just(Event::Crashes)
    ]
}

fn inflight(size: u16, is_packed: bool) -> InflightRegion {
    let len = inflight_region_len(size, is_packed) as usize;
    let mapping = Mapping::create("quietwire-inflight", len).unwrap().0;
    InflightRegion::new(&Arc::new(mapping), 0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_frame_is_lost_or_doubled_by_a_restart(
        (features, size) in kinds(),
        frames in proptest::collection::vec(given(), 1..80),
        bursts in proptest::collection::vec((1..10_usize, 1..70_usize, 0..20_usize, event()), 1..10),
        has_inflight in any::<bool>(),
    ) {
        let features = features & !ACCESS_PLATFORM;
        let mut guest = Guest::new(features, size);
        if has_inflight {
            guest.inflight = Some(inflight(size, guest.is_packed()));
        }
        let mut base = guest.first_base();
        let mut receiver = Receiver::new(&guest.config(base)).unwrap();
        let mut frames = frames.iter().enumerate().peekable();
        let mut expected = VecDeque::new();
        let mut collected = 0;
        let mut idle = 0;
        for (round, (offers, most, takes, event)) in bursts.iter().cycle().enumerate() {
            prop_assert!(round < 5000, "stuck");
            for _ in 0..*offers {
                let Some((number, given)) = frames.peek() else { break };
                let Some(sight) = offer(&mut guest, given, *number as u64) else { break };
                expected.push_back(sight);
                frames.next();
            }
            // Frames taken before a crash are received again.
            let before = expected.clone();
            receiver.ready(*most);
            for _ in 0..*takes {
                if !take(&guest, &mut receiver, &mut expected) {
                    break;
                }
            }
            // A few rounds without an event: otherwise nothing would ever be returned.
            match event {
                // Without inflight tracking a split ring is an equally good record, for a device that returns in order. A
                // packed ring is not: used descriptors replace available ones.
                Event::Crashes if idle < 3 && (has_inflight || !guest.is_packed()) => {
                    receiver = Receiver::new(&guest.config(base)).unwrap();
                    expected = before;
                    idle += 1;
                }
                Event::Stops => {
                    receiver.release();
                    base = receiver.base();
                    receiver = Receiver::new(&guest.config(base)).unwrap();
                    idle = 0;
                }
                _ => {
                    receiver.release();
                    base = receiver.base();
                    idle = 0;
                }
            }
            while let Some((token, len)) = guest.collect() {
                prop_assert_eq!((token, len), (collected, 0));
                collected += 1;
            }
            if frames.peek().is_none() && expected.is_empty() {
                break;
            }
            // Bursts without a take change nothing.
            receiver.ready(64);
            if take(&guest, &mut receiver, &mut expected) {
                receiver.release();
                base = receiver.base();
            }
            while let Some((token, _)) = guest.collect() {
                prop_assert_eq!(token, collected);
                collected += 1;
            }
        }
    }
}

fn header() -> RawHeader {
    RawHeader::PLAIN
}

fn plain(len: usize) -> Given {
    Given {
        len,
        cuts: Vec::new(),
        is_indirect: false,
    }
}

#[test]
fn a_sender_goes_on_where_another_stopped() {
    for features in [VERSION_1, VERSION_1 | PACKED, MERGEABLE, MERGEABLE | PACKED] {
        let mut guest = Guest::new(features, 8);
        let mut base = guest.first_base();
        for turn in 0..20_u64 {
            for chain in 0..3 {
                let address = guest.data(64);
                assert!(guest.offer(&[(address, 64, true)], false, turn * 3 + chain));
            }
            let mut sender = Sender::new(&guest.config(base)).unwrap();
            assert_eq!(sender.ready(64), 3);
            for _ in 0..3 {
                let octets = frame(turn, 50);
                assert_eq!(
                    sender.put(header(), [&octets[..]].into_iter(), 50),
                    PutResult::Sent
                );
            }
            assert_eq!(sender.put(header(), [].into_iter(), 1), PutResult::Full);
            sender.publish();
            base = sender.base();
            for chain in 0..3 {
                assert_eq!(guest.collect(), Some((turn * 3 + chain, 62)));
            }
            assert!(guest.collect().is_none());
        }
    }
}

#[test]
fn bases_count_chains_and_slots() {
    for (features, expected) in [(VERSION_1, 5), (VERSION_1 | PACKED, 0x0001_0001)] {
        let mut guest = Guest::new(features, 4);
        let base = guest.first_base();
        let mut receiver = Receiver::new(&guest.config(base)).unwrap();
        for number in 0..5 {
            let sight = offer(&mut guest, &plain(20), number).unwrap();
            // Read ahead and not taken.
            if number == 4 {
                offer(&mut guest, &plain(20), 5).unwrap();
            }
            receiver.ready(64);
            assert!(take(&guest, &mut receiver, &mut VecDeque::from([sight])));
            receiver.release();
            assert!(guest.collect().is_some());
        }
        assert_eq!(receiver.base(), expected);
    }
}

#[test]
fn logging_can_be_switched_while_the_ring_runs() {
    for features in [VERSION_1, VERSION_1 | PACKED] {
        let mut guest = Guest::new(features | LOG_ALL, 8);
        guest.features = features;
        let base = guest.first_base();
        let mut sender = Sender::new(&guest.config(base)).unwrap();
        let octets = frame(1, 50);
        let put = |guest: &mut Guest, sender: &mut Sender| {
            let address = guest.data(4096);
            assert!(guest.offer(&[(address, 4096, true)], false, 0));
            let put = sender.put(header(), [&octets[..]].into_iter(), 50);
            assert_eq!(put, PutResult::Sent);
            sender.publish();
            address
        };
        let address = put(&mut guest, &mut sender);
        assert!(!guest.is_logged(address));
        sender.set_logging(true);
        let address = put(&mut guest, &mut sender);
        assert!(guest.is_logged(address));
        sender.set_log(None);
        let address = put(&mut guest, &mut sender);
        assert!(!guest.is_logged(address));
        sender.set_log(guest.log.as_ref().map(|(_, log)| log.clone()));
        sender.set_logging(true);
        let address = put(&mut guest, &mut sender);
        assert!(guest.is_logged(address));
    }
}
