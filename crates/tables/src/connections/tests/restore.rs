// SPDX-License-Identifier: Apache-2.0
//! Connections over a restart: a second tracker that restores them decides as the first one goes on to.

use proptest::prelude::*;

use super::sequences::{Draft, Hosts, bursts, operation, settings};
use super::*;

/// Saves all connections, page by page.
fn saved(tracker: &Tracker) -> Vec<SavedConnection> {
    let (mut list, mut from) = (Vec::new(), Some(0));
    while let Some(start) = from {
        let mut page = Vec::new();
        from = tracker.save_into(start, (2, 3), &mut page);
        assert!(page.len() <= 2);
        list.extend(page);
    }
    list
}

/// Restores all connections in a new tracker.
fn restored(list: &[SavedConnection], settings: &Settings, now: Seconds) -> Tracker {
    let mut tracker = Tracker::new(settings).unwrap();
    for one in list {
        tracker.restore(one, now).unwrap();
    }
    tracker
}

/// Plays drafts to a tracker, one by one, and returns what it decides.
fn play(
    tracker: &mut Tracker,
    hosts: &mut Hosts,
    drafts: &[Draft],
    now: Seconds,
) -> Vec<(CtState, Option<InvalidReason>, Direction, bool)> {
    tracker.expire(now, usize::MAX);
    let judge = |draft: &Draft| {
        let sent = hosts.packet(draft);
        let tracked = classify(tracker, &sent, now);
        let is_first = tracked.state == CtState::New && tracked.connection.is_none();
        let is_made = is_first && draft.is_accepted && tracker.commit(&read(&sent), now).is_ok();
        (tracked.state, tracked.reason, tracked.direction, is_made)
    };
    drafts.iter().map(judge).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_restored_table_continues_as_the_saved_one(
        before in prop::collection::vec(operation(), 1..40),
        after in prop::collection::vec(operation(), 1..40),
        pause in 0..20u32,
    ) {
        // Large enough that no entry replaces another: the order of replacements is not saved.
        let settings = Settings { entries_max: 64, zone_limits: vec![64, 64], ..settings() };
        let mut first = Tracker::new(&settings).unwrap();
        let mut hosts = Hosts::new();
        let mut now = 0;
        for (seconds, drafts) in before.into_iter().flat_map(bursts) {
            now += seconds;
            play(&mut first, &mut hosts, &drafts, now);
        }
        // The second one has a clock of its own, and begins after a pause.
        let list: Vec<SavedConnection> = saved(&first)
            .iter()
            .filter_map(|one| one.later(pause))
            .collect();
        now += pause;
        first.expire(now, usize::MAX);
        let mut second = restored(&list, &settings, 7);
        prop_assert_eq!(all(&first), all(&second));
        let mut clock = 7;
        let mut others = hosts.clone();
        for (seconds, drafts) in after.into_iter().flat_map(bursts) {
            now += seconds;
            clock += seconds;
            let one = play(&mut first, &mut hosts, &drafts, now);
            let other = play(&mut second, &mut others, &drafts, clock);
            prop_assert_eq!(one, other);
            prop_assert_eq!(all(&first), all(&second));
        }
    }

    #[test]
    fn any_record_is_refused_or_restored_and_saved_again(
        mut octets in prop::collection::vec(any::<u8>(), SAVED_OCTETS),
        is_plausible: bool,
        number in 0..18u8,
        protocol in prop_oneof![Just(1u8), Just(6), Just(17), Just(58), any::<u8>()],
        is_ipv6: bool,
        has_labels: bool,
    ) {
        if is_plausible {
            // The zone, protocol, state, flags and scales are possible ones.
            octets[36..44].copy_from_slice(&[0, 0, protocol, number, u8::from(is_ipv6), 0, 0, 0]);
            octets[48..50].fill(0);
            for side in [76, 92] {
                octets[side + 14] %= 15;
                octets[side + 15] %= 16;
            }
            if !is_ipv6 {
                octets[..12].fill(0);
                octets[16..28].fill(0);
            }
        }
        let one = SavedConnection::from_octets(octets.try_into().unwrap());
        let mut tracker = Tracker::new(&Settings::of_size(2)).unwrap();
        if has_labels {
            tracker.allow_labels().unwrap();
        }
        let result = tracker.restore(&one, 0);
        prop_assert_eq!(result == Err(RestoreError::Invalid), !one.is_valid());
        prop_assert_eq!(tracker.len(), usize::from(result.is_ok()));
        if result.is_ok() {
            let info = all(&tracker)[0];
            let left = one.octets()[48..52].try_into().map(u32::from_be_bytes).unwrap();
            let timeout = Timeouts::default().of(info.state);
            prop_assert_eq!(info.expires_in_s, left.min(timeout));
            let again = saved(&tracker);
            prop_assert_eq!(again.len(), 1);
            let (before, after) = (one.octets(), again[0].octets());
            prop_assert_eq!(&before[..48], &after[..48]);
            prop_assert_eq!(&before[52..108], &after[52..108]);
            // Without labels, that of the record is left out.
            let label = if has_labels { &before[108..] } else { &[0; 16] };
            prop_assert_eq!(label, &after[108..]);
            prop_assert_eq!(info.label.to_be_bytes(), label);
            prop_assert_eq!(tracker.restore(&one, 0), Err(RestoreError::Known));
            tracker.expire(timeout + 2, usize::MAX);
            prop_assert!(tracker.is_empty());
        }
    }
}

#[test]
fn a_full_table_keeps_its_connections_and_refuses_saved_ones() {
    let mut first = Tracker::new(&Settings::of_size(4)).unwrap();
    for port in 1..=3 {
        let datagram = udp(end("10.0.0.1", port), end("10.0.0.2", 53));
        pass(&mut first, &datagram, 0);
    }
    let list = saved(&first);
    let mut second = Tracker::new(&Settings::of_size(2)).unwrap();
    let results: Vec<_> = list.iter().map(|one| second.restore(one, 0)).collect();
    assert_eq!(results, [Ok(()), Ok(()), Err(RestoreError::Full)]);
    let mut zone = *list[0].octets();
    zone[37] = 1;
    let elsewhere = SavedConnection::from_octets(zone);
    assert_eq!(second.restore(&elsewhere, 0), Err(RestoreError::NoZone));
    assert_eq!(second.len(), 2);
}

#[test]
fn a_connection_expires_as_it_would_have_before() {
    let mut first = Tracker::new(&Settings::of_size(1)).unwrap();
    let datagram = udp(end("10.0.0.1", 7), end("10.0.0.2", 53));
    pass(&mut first, &datagram, 0);
    first.expire(10, 100);
    let one = saved(&first)[0];
    // 30 seconds from the packet on, of which 10 have passed.
    assert!(one.later(20).is_some());
    assert_eq!(one.later(21), None);
    let mut second = restored(&[one.later(15).unwrap()], &Settings::of_size(1), 100);
    assert_eq!(all(&second)[0].expires_in_s, 5);
    assert_eq!(second.expire(105, 1000), 0);
    assert_eq!(second.expire(106, 1000), 1);
}

#[test]
fn states_have_the_numbers_of_this_version() {
    // A changed list requires another `SAVED_VERSION`.
    assert_eq!(SAVED_VERSION, 2);
    let names: Vec<&str> = State::ALL.map(State::name).to_vec();
    let tcp = [
        "tcp_syn_sent",
        "tcp_syn_sent2",
        "tcp_syn_recv",
        "tcp_established",
        "tcp_fin_wait",
        "tcp_close_wait",
        "tcp_last_ack",
        "tcp_time_wait",
        "tcp_close",
    ];
    let others = [
        "udp_unreplied",
        "udp_replied",
        "icmp_unreplied",
        "icmp_replied",
        "other_unreplied",
        "other_replied",
    ];
    assert_eq!(names, [&tcp[..], &others[..]].concat());
}
