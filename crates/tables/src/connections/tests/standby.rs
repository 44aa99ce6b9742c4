// SPDX-License-Identifier: Apache-2.0
//! Connections of an active switch on its standby: the same ones after every change, and segments of open ones continue there.

use proptest::prelude::*;

use super::sequences::{Hosts, bursts, operation, settings};
use super::*;
use crate::changes::{Applied, ApplyError, CHANGES_MAX, Replicate};

fn active(settings: &Settings) -> Tracker {
    let mut tracker = Tracker::new(settings).unwrap();
    tracker.allow_changes();
    let mut first = Vec::new();
    assert!(!tracker.take_changes((1, 1), &mut first));
    assert_eq!((first.len(), tracker.take_lost_changes()), (0, 1));
    tracker
}

/// Gives the standby all changes, in small parts. Returns their number.
fn follow(active: &mut Tracker, standby: &mut Tracker, now: Seconds) -> usize {
    let mut count = 0;
    loop {
        let mut list = Vec::new();
        let has_more = active.take_changes((2, 3), &mut list);
        assert!(list.len() <= 2);
        for change in &list {
            standby.apply(change, now).unwrap();
        }
        count += list.len();
        if !has_more {
            return count;
        }
    }
}

/// Gives the standby all connections, in small parts.
fn share(active: &mut Tracker, standby: &mut Tracker, now: Seconds) {
    let mut from = Some(0);
    while let Some(start) = from {
        let mut list = Vec::new();
        from = active.share_into(start, (2, 3), &mut list);
        assert!(list.len() <= 2);
        for change in &list {
            standby.apply(change, now).unwrap();
        }
    }
}

/// A connection as a standby knows it.
type Known = (u16, u8, Endpoint, Endpoint, State);

/// Returns the connections that a standby must have.
fn known(tracker: &Tracker) -> Vec<Known> {
    let list = all(tracker).into_iter();
    let list = list.filter(|one| one.state.eviction() != Eviction::Embryonic);
    list.map(|one| {
        (
            one.zone,
            one.protocol,
            one.source,
            one.destination,
            one.state,
        )
    })
    .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_standby_has_the_connections_of_the_active_switch_after_every_change(
        operations in prop::collection::vec(operation(), 1..60),
    ) {
        let settings = settings();
        let mut first = active(&settings);
        let mut second = Tracker::new(&settings).unwrap();
        let mut hosts = Hosts::new();
        // The clocks differ.
        let (mut now, mut clock) = (0, 7);
        for (seconds, drafts) in operations.into_iter().flat_map(bursts) {
            now += seconds;
            clock += seconds;
            first.expire(now, usize::MAX);
            for draft in drafts {
                let sent = hosts.packet(&draft);
                let tracked = classify(&mut first, &sent, now);
                let is_first = tracked.state == CtState::New && tracked.connection.is_none();
                if is_first && draft.is_accepted {
                    // A full table refuses some.
                    let _ = first.commit(&read(&sent), now);
                }
            }
            follow(&mut first, &mut second, clock);
            second.expire(clock, usize::MAX);
            // Packets that change no state extend timeouts.
            share(&mut first, &mut second, clock);
            prop_assert_eq!(known(&first), known(&second));
            prop_assert_eq!(second.len(), known(&second).len());
        }
    }
}

/// A standby that has a connection as it was at the end of its handshake.
fn opened() -> (Tracker, Tracker, Talk) {
    let settings = Settings::of_size(16);
    let mut first = active(&settings);
    let mut second = Tracker::new(&settings).unwrap();
    let mut talk = Talk::new(1000);
    talk.open(&mut first, 0);
    assert_eq!(follow(&mut first, &mut second, 0), 1);
    (first, second, talk)
}

#[test]
fn an_open_connection_continues_on_the_standby_whatever_was_sent_meanwhile() {
    let (mut first, mut second, mut talk) = opened();
    for _ in 0..500 {
        for (side, data) in [(0, 700), (1, 0), (1, 900), (0, 0)] {
            let segment = talk.segment(side, ACK, data);
            assert_eq!(pass(&mut first, &segment, 1).reason, None);
        }
    }
    // A forged segment first, a forged FIN, and a forged reset, change nothing for the hosts.
    let forged = talk.shifted(0, ACK, 1 << 30, 5);
    assert_eq!(pass(&mut second, &forged, 2).reason, None);
    let forged = talk.shifted(0, FIN | ACK, 1 << 29, 0);
    assert_eq!(pass(&mut second, &forged, 2).reason, None);
    let reset = talk.shifted(1, RST, 77, 0);
    assert_eq!(pass(&mut second, &reset, 2).reason, None);
    for side in [1, 0, 1, 0] {
        let segment = talk.segment(side, ACK, 600);
        let tracked = pass(&mut second, &segment, 2);
        assert_eq!(
            (tracked.reason, tracked.state),
            (None, CtState::Established)
        );
    }
    assert_eq!(state(&second), State::TcpEstablished);
    // From now on, segments have to fit.
    let forged = talk.shifted(0, ACK, 1 << 30, 5);
    let reason = pass(&mut second, &forged, 2).reason;
    assert_eq!(reason, Some(InvalidReason::Sequence));
    for (side, flags) in [(0, FIN | ACK), (1, FIN | ACK), (0, ACK)] {
        let segment = talk.segment(side, flags, 0);
        assert_eq!(pass(&mut second, &segment, 3).reason, None);
    }
    assert_eq!(state(&second), State::TcpTimeWait);
}

#[test]
fn no_reset_is_obeyed_at_numbers_that_one_side_has_set() {
    let (_, mut second, mut talk) = opened();
    let forged = talk.shifted(0, ACK, 1 << 30, 5);
    // The second one fits the first, and confirms one side only.
    for _ in 0..2 {
        assert_eq!(pass(&mut second, &forged, 1).reason, None);
        // The number of the forged segment, and the one that it acknowledges.
        for (side, number) in [(0, 1 << 30), (1, 5)] {
            let reset = talk.shifted(side, RST, number, 0);
            assert_eq!(pass(&mut second, &reset, 1).reason, None);
            assert_eq!(state(&second), State::TcpEstablished, "{side}");
        }
    }
    for side in [1, 0, 1, 0] {
        let segment = talk.segment(side, ACK, 600);
        let tracked = pass(&mut second, &segment, 2);
        assert_eq!(
            (tracked.reason, tracked.state),
            (None, CtState::Established)
        );
    }
    // Both sides have confirmed their numbers.
    pass(&mut second, &talk.peek(0, RST, 0), 2);
    assert_eq!(state(&second), State::TcpClose);
}

#[test]
fn two_forged_segments_that_fit_each_other_do_not_block_the_other_side() {
    for flags in [ACK, FIN | ACK] {
        let (_, mut second, mut talk) = opened();
        // Far behind what the host sends, so the other side acknowledges more.
        let forged = talk.shifted(0, flags, -(1 << 30), 5);
        for _ in 0..2 {
            assert_eq!(pass(&mut second, &forged, 1).reason, None);
        }
        for side in [1, 0, 1, 0] {
            let segment = talk.segment(side, ACK, 600);
            let reason = pass(&mut second, &segment, 2).reason;
            assert_eq!(reason, None, "{flags} {side}");
        }
        assert_eq!(state(&second), State::TcpEstablished);
        // Both sides have confirmed their numbers.
        let reason = pass(&mut second, &forged, 2).reason;
        assert_eq!(reason, Some(InvalidReason::Sequence));
        pass(&mut second, &talk.peek(0, RST, 0), 2);
        assert_eq!(state(&second), State::TcpClose);
    }
}

#[test]
fn a_reset_with_the_number_of_the_active_switch_is_obeyed() {
    for side in [0, 1] {
        let (_, mut second, talk) = opened();
        pass(&mut second, &talk.shifted(side, RST, 1, 0), 1);
        assert_eq!(state(&second), State::TcpEstablished);
        pass(&mut second, &talk.peek(side, RST, 0), 1);
        assert_eq!(state(&second), State::TcpClose);
    }
}

#[test]
fn a_segment_that_fits_confirms_the_numbers_at_once() {
    let (_, mut second, mut talk) = opened();
    for side in [0, 1] {
        let segment = talk.segment(side, ACK, 10);
        assert_eq!(pass(&mut second, &segment, 1).reason, None);
    }
    let late = talk.shifted(1, ACK, 1 << 20, 0);
    let reason = pass(&mut second, &late, 1).reason;
    assert_eq!(reason, Some(InvalidReason::Sequence));
    let syn = talk.peek(0, SYN, 0);
    assert_eq!(pass(&mut second, &syn, 1).reason, Some(InvalidReason::Syn));
}

#[test]
fn a_flood_of_first_packets_leads_to_no_changes() {
    let mut tracker = active(&Settings::of_size(8));
    for port in 1..100 {
        pass(&mut tracker, &Talk::new(port).segment(0, SYN, 0), 0);
        let datagram = udp(end("10.0.0.1", port), end("10.0.0.2", 53));
        pass(&mut tracker, &datagram, 0);
    }
    let mut list = Vec::new();
    assert!(!tracker.take_changes((100, 100), &mut list));
    assert_eq!((list.len(), tracker.take_lost_changes()), (0, 0));
    assert_eq!(tracker.share_into(0, (100, 100), &mut list), None);
    assert!(list.is_empty());
}

#[test]
fn a_full_ring_is_reported_and_all_connections_make_up_for_it() {
    let count = u16::try_from(CHANGES_MAX + 10).unwrap();
    let settings = Settings::of_size(u32::from(count));
    let mut first = active(&settings);
    let mut second = Tracker::new(&settings).unwrap();
    for port in 1..=count {
        let ends = [end("10.0.0.1", port), end("10.0.0.2", 53)];
        pass(&mut first, &udp(ends[0], ends[1]), 0);
        pass(&mut first, &udp(ends[1], ends[0]), 0);
    }
    assert_eq!(follow(&mut first, &mut second, 0), CHANGES_MAX);
    assert_eq!(first.take_lost_changes(), 10);
    assert_eq!(second.len(), CHANGES_MAX);
    share(&mut first, &mut second, 0);
    assert_eq!(second.len(), usize::from(count));
    // Without a standby, nothing waits.
    first.end_changes();
    first.flush(&ConnectionFilter::default(), 0, usize::MAX);
    assert_eq!((first.len(), follow(&mut first, &mut second, 0)), (0, 0));
}

#[test]
fn removed_connections_end_on_the_standby_and_closed_ones_give_way() {
    let (mut first, _, mut talk) = opened();
    let settings = Settings::of_size(1);
    let mut second = Tracker::new(&settings).unwrap();
    // The standby has begun a connection of its own, which is not complete.
    pass(&mut second, &Talk::new(2).segment(0, SYN, 0), 0);
    share(&mut first, &mut second, 0);
    assert_eq!(state(&second), State::TcpEstablished);
    let mut other = active(&settings);
    let mut another = Talk::new(3);
    another.open(&mut other, 0);
    let mut list = Vec::new();
    other.take_changes((1, 1), &mut list);
    assert_eq!(second.apply(&list[0], 0), Err(ApplyError::Full));
    let closing = talk.segment(1, RST, 0);
    pass(&mut first, &closing, 0);
    follow(&mut first, &mut second, 0);
    assert_eq!(state(&second), State::TcpClose);
    assert_eq!(second.apply(&list[0], 0), Ok(Applied::Added));
    first.flush(&ConnectionFilter::default(), 0, usize::MAX);
    let mut ended = Vec::new();
    first.take_changes((1, 1), &mut ended);
    assert_eq!(second.apply(&ended[0], 0), Ok(Applied::Absent));
    other.flush(&ConnectionFilter::default(), 0, usize::MAX);
    follow(&mut other, &mut second, 0);
    assert!(second.is_empty());
}

#[test]
fn records_that_no_connection_has_are_refused() {
    let mut tracker = Tracker::new(&Settings::of_size(2)).unwrap();
    let record = SavedConnection::from_octets([0xff; SAVED_OCTETS]);
    for change in [
        ConnectionChange::Present(record),
        ConnectionChange::Ended(record),
    ] {
        assert_eq!(tracker.apply(&change, 0), Err(ApplyError::Invalid));
    }
    // A connection of a zone that this tracker does not have.
    let settings = Settings {
        zone_limits: vec![2, 2],
        ..Settings::of_size(2)
    };
    let mut other = active(&settings);
    let mut talk = Talk {
        zone: 1,
        ..Talk::new(1)
    };
    talk.open(&mut other, 0);
    let mut list = Vec::new();
    other.take_changes((1, 1), &mut list);
    assert_eq!(tracker.apply(&list[0], 0), Err(ApplyError::Invalid));
    assert!(tracker.is_empty());
}
