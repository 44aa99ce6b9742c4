// SPDX-License-Identifier: Apache-2.0
//! Limits of connections for each source.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const LIMIT: usize = 3;

fn tracker(zones: usize) -> Tracker {
    let settings = Settings {
        zone_limits: vec![40; zones],
        ..Settings::of_size(40)
    };
    let mut tracker = Tracker::new(&settings).unwrap();
    let limits = SourceLimits {
        connections: LIMIT as u32,
        ..SourceLimits::default()
    };
    tracker.limit_sources(limits).unwrap();
    tracker
}

fn host(number: u8) -> String {
    format!("10.0.0.{number}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn each_source_has_at_most_as_many_connections_as_it_may(
        steps in prop::collection::vec((1..4u8, 1..4u8, 1..9u16, 0..2u16, 0..20u8), 1..120),
    ) {
        let mut tracker = tracker(2);
        let mut now = 0;
        for (from, to, port, zone, event) in steps {
            match event {
                0 => now += 31,
                1 => {
                    let filter = ConnectionFilter { port: Some(port), ..ConnectionFilter::default() };
                    tracker.flush(&filter, 0, 100);
                }
                _ => {}
            }
            tracker.expire(now, usize::MAX);
            // Sources by zone, as listed.
            let mut counts: BTreeMap<(u16, String), usize> = BTreeMap::new();
            for one in all(&tracker) {
                *counts.entry((one.zone, one.source.address.to_string())).or_default() += 1;
            }
            prop_assert!(counts.values().all(|count| *count <= LIMIT), "{:?}", counts);
            if from == to {
                continue;
            }
            let sent = Sent { zone, ..udp(end(&host(from), port), end(&host(to), 53)) };
            let tracked = classify(&mut tracker, &sent, now);
            if tracked.connection.is_none() {
                let made = tracker.commit(&read(&sent), now);
                let count = counts.get(&(zone, host(from))).copied().unwrap_or(0);
                let expected = if count < LIMIT { Ok(()) } else { Err(Refusal::SourceFull) };
                prop_assert_eq!(made.map(|_| ()), expected);
            }
        }
    }
}

#[test]
fn a_source_at_its_limit_ends_no_connection_of_others() {
    let mut tracker = tracker(1);
    for port in 1..20 {
        let sent = udp(end("10.0.0.1", port), end("10.0.0.9", 53));
        let made = tracker.commit(&read(&sent), 0);
        assert_eq!(made.is_ok(), usize::from(port) <= LIMIT, "{port}");
    }
    assert_eq!(tracker.len(), LIMIT);
    let refused = tracker.counters().refused[Refusal::SourceFull as usize];
    assert_eq!(refused, 19 - LIMIT as u64);
    // An answer is no connection of its own.
    let answer = udp(end("10.0.0.9", 53), end("10.0.0.1", 1));
    assert_eq!(
        classify(&mut tracker, &answer, 0).state,
        CtState::Established
    );
    // IPv6 is counted apart.
    let sent = udp(end("2001:db8::1", 1), end("2001:db8::9", 53));
    assert!(tracker.commit(&read(&sent), 0).is_ok());
}

#[test]
fn restored_connections_count_for_the_limit_of_their_source() {
    let datagram = |port: u16| udp(end("10.0.0.1", port), end("10.0.0.9", 53));
    let most = LIMIT as u16;
    let mut first = Tracker::new(&Settings::of_size(40)).unwrap();
    for port in 1..=most + 1 {
        pass(&mut first, &datagram(port), 0);
    }
    let mut list = Vec::new();
    assert_eq!(first.save_into(0, (40, 40), &mut list), None);
    let mut second = tracker(1);
    // The first tracker had no limit. What it has accepted goes on.
    for one in &list {
        second.restore(one, 0).unwrap();
    }
    assert_eq!(second.len(), LIMIT + 1);
    let further = [100, 101].map(|port| read(&datagram(port)));
    for port in [1, 2] {
        assert_eq!(second.commit(&further[0], 0), Err(Refusal::SourceFull));
        let filter = ConnectionFilter {
            port: Some(port),
            ..ConnectionFilter::default()
        };
        assert_eq!(second.flush(&filter, 0, 100).0, 1);
    }
    assert!(second.commit(&further[0], 0).is_ok());
    assert_eq!(second.commit(&further[1], 0), Err(Refusal::SourceFull));
}
