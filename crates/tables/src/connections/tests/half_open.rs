// SPDX-License-Identifier: Apache-2.0
//! Limits of half-open connections, of all and of each source.

use proptest::prelude::*;

use super::super::reference::Reference;
use super::sequences::{Hosts, bursts, operation, settings};
use super::*;

fn limited(size: u32, all: u32, of_source: u32) -> Tracker {
    let mut tracker = Tracker::new(&Settings::of_size(size)).unwrap();
    limit(&mut tracker, all, of_source);
    tracker
}

fn limit(tracker: &mut Tracker, all: u32, of_source: u32) {
    tracker.limit_half_open(all);
    let of_source = SourceLimits {
        half_open: of_source,
        ..SourceLimits::default()
    };
    tracker.limit_sources(of_source).unwrap();
}

#[test]
fn timeouts_change_with_the_next_packet() {
    let settings = Settings::of_size(8);
    let mut tracker = Tracker::new(&settings).unwrap();
    let [one, other] = [1, 2].map(|port| udp(end("10.0.0.1", port), end("192.0.2.1", 53)));
    pass(&mut tracker, &one, 0);
    pass(&mut tracker, &other, 0);
    tracker.set_timeouts(settings.timeouts.with(State::UdpUnreplied, 100));
    pass(&mut tracker, &one, 1);
    // The default is 30 s.
    tracker.expire(40, usize::MAX);
    let ports: Vec<u16> = all(&tracker).iter().map(|it| it.source.port).collect();
    assert_eq!(ports, [1]);
    tracker.expire(110, usize::MAX);
    assert!(tracker.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn limited_trackers_agree_with_the_reference(
        (of_all, of_source) in (1..5u32, 1..4u32),
        operations in prop::collection::vec(operation(), 1..60),
    ) {
        let settings = settings();
        let mut tracker = Tracker::new(&settings).unwrap();
        limit(&mut tracker, of_all, of_source);
        let mut reference = Reference::new(&settings);
        reference.limit_half_open(of_all as usize, of_source as usize);
        let mut hosts = Hosts::new();
        let mut now = 0;
        for (seconds, drafts) in operations.into_iter().flat_map(bursts) {
            now += seconds;
            tracker.expire(now, usize::MAX);
            reference.expire(now);
            for draft in drafts {
                let sent = hosts.packet(&draft);
                let tracked = classify(&mut tracker, &sent, now);
                let expected = reference.track(&sent);
                prop_assert_eq!((tracked.state, tracked.reason, tracked.direction), expected, "{:?}", sent);
                let is_first = tracked.state == CtState::New && tracked.connection.is_none();
                if is_first && draft.is_accepted {
                    let made = tracker.commit(&read(&sent), now).map(|_| ());
                    prop_assert_eq!(made, reference.commit(&sent), "{:?}", sent);
                }
            }
            let list = reference.list();
            let half_open = list.iter().filter(|one| one.state.is_half_open()).count();
            prop_assert_eq!(all(&tracker), list);
            prop_assert_eq!(tracker.half_open() as usize, half_open);
            prop_assert!(tracker.half_open() <= of_all, "{}", half_open);
        }
    }
}

#[test]
fn a_syn_flood_leaves_the_table_to_others() {
    let mut tracker = limited(1000, 8, u32::MAX);
    let mut talks: Vec<Talk> = (1..=16).map(Talk::new).collect();
    for talk in &mut talks {
        talk.open(&mut tracker, 0);
    }
    assert_eq!(tracker.half_open(), 0);
    for port in 1000..2000 {
        pass(&mut tracker, &Talk::new(port).segment(0, SYN, 0), 1);
    }
    assert_eq!((tracker.len(), tracker.half_open()), (16 + 8, 8));
    let counters = *tracker.counters();
    assert_eq!(counters.dropped_half_open, 1000 - 8);
    assert_eq!(counters.dropped_early, 0);
    assert_eq!(counters.refused.iter().sum::<u64>(), 0);
    for talk in &mut talks {
        let data = classify(&mut tracker, &talk.segment(0, ACK, 10), 2);
        assert_eq!(data.state, CtState::Established);
    }
    // A handshake completes, and leaves its place to others.
    let mut late = Talk::new(17);
    late.open(&mut tracker, 3);
    assert_eq!((tracker.len(), tracker.half_open()), (17 + 7, 7));
}

#[test]
fn a_source_has_a_limit_of_half_open_connections_only() {
    let mut tracker = limited(100, u32::MAX, 2);
    let mut talks: Vec<Talk> = (1..=4).map(Talk::new).collect();
    let syns: Vec<Sent> = talks
        .iter_mut()
        .map(|talk| talk.segment(0, SYN, 0))
        .collect();
    for syn in &syns[..2] {
        pass(&mut tracker, syn, 0);
    }
    let refused = Err(Refusal::SourceHalfOpen);
    assert_eq!(tracker.commit(&read(&syns[2]), 0), refused);
    // Other sources have a limit of their own.
    let other = udp(end("10.0.0.2", 1), end("192.0.2.1", 53));
    pass(&mut tracker, &other, 0);
    // A complete handshake leaves its place to others.
    for (side, flags) in [(1, SYN | ACK), (0, ACK)] {
        let segment = talks[0].segment(side, flags, 0);
        pass(&mut tracker, &segment, 0);
    }
    pass(&mut tracker, &syns[2], 0);
    assert_eq!(tracker.commit(&read(&syns[3]), 0), refused);
    // So does the end of a connection.
    let filter = ConnectionFilter {
        port: Some(2),
        ..ConnectionFilter::default()
    };
    assert_eq!(tracker.flush(&filter, 0, 100).0, 1);
    pass(&mut tracker, &syns[3], 0);
    assert_eq!((tracker.len(), tracker.half_open()), (4, 3));
    let counted = tracker.counters().refused[Refusal::SourceHalfOpen as usize];
    assert_eq!(counted, 2);
}

#[test]
fn restored_half_open_connections_give_way_to_new_ones() {
    let datagram = |port: u16| udp(end("10.0.0.1", port), end("10.0.0.9", 53));
    let mut first = Tracker::new(&Settings::of_size(40)).unwrap();
    for port in 1..=6 {
        pass(&mut first, &datagram(port), 0);
    }
    let mut list = Vec::new();
    assert_eq!(first.save_into(0, (40, 40), &mut list), None);
    let mut second = limited(40, 3, u32::MAX);
    for one in &list {
        second.restore(one, 0).unwrap();
    }
    assert_eq!(second.half_open(), 6);
    let counts = [10, 11, 12, 13].map(|port| {
        pass(&mut second, &datagram(port), 0);
        second.half_open()
    });
    assert_eq!(counts, [5, 4, 3, 3]);
}
