// SPDX-License-Identifier: Apache-2.0
//! Attacks: blind resets and data, SYN floods, scans, exhausted tables and zones, forged ICMP errors.

use super::*;

#[test]
fn only_an_exact_reset_closes_a_connection() {
    let mut talk = Talk::new(1);
    let mut tracker = Tracker::new(&Settings::of_size(8)).unwrap();
    talk.open(&mut tracker, 0);
    for sequence in [2000, -2000, 1 << 20, i32::MIN, i32::MAX] {
        let reset = classify(&mut tracker, &talk.shifted(0, RST, sequence, 0), 0);
        assert_eq!(reset.reason, Some(InvalidReason::Sequence), "{sequence}");
    }
    // Within the window, the receiver answers with a challenge (RFC 5961, section 3.2).
    for sequence in [1, -1, 999, -999] {
        let reset = classify(&mut tracker, &talk.shifted(0, RST, sequence, 0), 0);
        assert_eq!(reset.state, CtState::Established, "{sequence}");
        assert_eq!(state(&tracker), State::TcpEstablished, "{sequence}");
    }
    classify(&mut tracker, &talk.peek(0, RST, 0), 0);
    assert_eq!(state(&tracker), State::TcpClose);
}

#[test]
fn a_blind_reset_or_syn_does_not_disturb_a_handshake() {
    let mut talk = Talk::new(1);
    let mut tracker = Tracker::new(&Settings::of_size(8)).unwrap();
    pass(&mut tracker, &talk.segment(0, SYN, 0), 0);
    for (acknowledgement, flags) in [
        (1, RST | ACK),
        (-1, RST | ACK),
        (77, SYN | ACK),
        (-2, SYN | ACK),
    ] {
        let forged = classify(&mut tracker, &talk.shifted(1, flags, 0, acknowledgement), 0);
        assert_eq!(forged.reason, Some(InvalidReason::Acknowledgement));
    }
    let forged = classify(&mut tracker, &talk.peek(1, RST, 0), 0);
    assert_eq!(forged.reason, Some(InvalidReason::State));
    assert_eq!(state(&tracker), State::TcpSynSent);
    pass(&mut tracker, &talk.segment(1, SYN | ACK, 0), 0);
    assert_eq!(state(&tracker), State::TcpSynRecv);
}

#[test]
fn a_new_syn_does_not_replace_an_open_connection() {
    let mut talk = Talk::new(1);
    let mut tracker = Tracker::new(&Settings::of_size(8)).unwrap();
    talk.open(&mut tracker, 0);
    for sequence in [0, 1, 500, 1 << 20, -(1 << 20)] {
        for side in [0, 1] {
            let syn = classify(&mut tracker, &talk.shifted(side, SYN, sequence, 0), 0);
            assert_eq!(syn.state, CtState::Invalid, "{sequence}");
        }
    }
    assert_eq!(state(&tracker), State::TcpEstablished);
    let data = classify(&mut tracker, &talk.peek(0, ACK, 10), 0);
    assert_eq!(data.state, CtState::Established);
}

#[test]
fn a_syn_flood_replaces_its_own_oldest_entries_and_no_established_ones() {
    const SIZE: u32 = 64;
    let mut tracker = Tracker::new(&Settings::of_size(SIZE)).unwrap();
    let mut talks: Vec<Talk> = (1..=16).map(Talk::new).collect();
    for talk in &mut talks {
        talk.open(&mut tracker, 0);
    }
    for port in 1000..11_000 {
        pass(&mut tracker, &Talk::new(port).segment(0, SYN, 0), 1);
    }
    assert_eq!(tracker.len(), SIZE as usize);
    assert_eq!(tracker.counters().dropped_early, 10_000 - 48);
    for talk in &mut talks {
        let data = classify(&mut tracker, &talk.segment(0, ACK, 10), 2);
        assert_eq!(data.state, CtState::Established);
    }
    // A handshake completes in the middle of the flood.
    let mut late = Talk::new(17);
    late.open(&mut tracker, 3);
    for port in 20_000..20_100 {
        pass(&mut tracker, &Talk::new(port).segment(0, SYN, 0), 3);
    }
    let data = classify(&mut tracker, &late.segment(1, ACK, 10), 3);
    assert_eq!(data.state, CtState::Established);
    // The last ones of the flood are there, the earlier ones are not.
    let is_known = |tracker: &mut Tracker, port| {
        let syn = Talk::new(port).segment(0, SYN, 0);
        classify(tracker, &syn, 3).connection.is_some()
    };
    assert!(is_known(&mut tracker, 20_099));
    assert!(!is_known(&mut tracker, 10_999));
}

#[test]
fn a_table_full_of_established_connections_refuses_new_ones() {
    let settings = Settings {
        zone_limits: vec![10],
        ..Settings::of_size(4)
    };
    let mut tracker = Tracker::new(&settings).unwrap();
    let mut talks: Vec<Talk> = (1..=4).map(Talk::new).collect();
    for talk in &mut talks {
        talk.open(&mut tracker, 0);
    }
    let mut other = Talk::new(5);
    let syn = other.segment(0, SYN, 0);
    assert_eq!(classify(&mut tracker, &syn, 0).state, CtState::New);
    assert_eq!(tracker.commit(&read(&syn), 0), Err(Refusal::TableFull));
    assert_eq!(tracker.counters().refused[Refusal::TableFull as usize], 1);
    for talk in &mut talks {
        let data = classify(&mut tracker, &talk.segment(1, ACK, 10), 0);
        assert_eq!(data.state, CtState::Established);
    }
    // A closed connection makes space, an expired one too.
    classify(&mut tracker, &talks[0].peek(0, RST, 0), 0);
    assert!(tracker.commit(&read(&syn), 0).is_ok());
    assert_eq!(tracker.expire(8000, 10_000), 4);
    assert!(tracker.is_empty());
}

#[test]
fn a_zone_at_its_limit_leaves_other_zones_alone() {
    let settings = Settings {
        zone_limits: vec![3, 8],
        ..Settings::of_size(8)
    };
    let mut tracker = Tracker::new(&settings).unwrap();
    for port in 1..=3 {
        Talk::new(port).open(&mut tracker, 0);
    }
    let refused = read(&Talk::new(4).segment(0, SYN, 0));
    assert_eq!(tracker.commit(&refused, 0), Err(Refusal::ZoneFull));
    let in_zone = |zone, port| Sent {
        zone,
        ..Talk::new(port).segment(0, SYN, 0)
    };
    for port in 1..=9 {
        pass(&mut tracker, &in_zone(1, port), 0);
    }
    assert_eq!(tracker.zone_usage(0), Some((3, 3)));
    assert_eq!(tracker.zone_usage(1), Some((5, 8)));
    assert_eq!(
        tracker.commit(&read(&in_zone(2, 1)), 0),
        Err(Refusal::NoZone)
    );
    assert_eq!(tracker.zone_usage(2), None);
}

#[test]
fn a_handle_of_a_dropped_connection_is_refused() {
    let mut tracker = Tracker::new(&Settings::of_size(1)).unwrap();
    let first = read(&Talk::new(1).segment(0, SYN, 0));
    let handle = tracker.commit(&first, 0).unwrap();
    assert!(tracker.set_mark(handle, 7));
    assert_eq!(tracker.get(handle).unwrap().mark, 7);
    let second = read(&Talk::new(2).segment(0, SYN, 0));
    let other = tracker.commit(&second, 0).unwrap();
    assert!(!tracker.set_mark(handle, 8));
    assert_eq!(tracker.get(handle), None);
    assert_eq!(tracker.get(other).unwrap().mark, 0);
}

#[test]
fn icmp_errors_are_related_only_to_what_was_sent() {
    let mut talk = Talk::new(1);
    let mut tracker = Tracker::new(&Settings::of_size(8)).unwrap();
    talk.open(&mut tracker, 0);
    let error = |inner: Sent, destination| Sent {
        zone: 0,
        source: end("198.51.100.1", 0),
        destination,
        content: Content::Error(Box::new(inner)),
    };
    let data = talk.segment(0, ACK, 100);
    classify(&mut tracker, &data, 0);
    let related = classify(&mut tracker, &error(data.clone(), talk.ends[0]), 5);
    assert_eq!(
        (related.state, related.direction),
        (CtState::Related, Direction::Original)
    );
    // To another host, about octets that were never sent, about no connection.
    let mut other = data.clone();
    other.source.port = 9;
    for (inner, destination) in [
        (data.clone(), end("10.0.0.9", 0)),
        (talk.shifted(0, ACK, 1, 0), talk.ends[0]),
        (talk.shifted(0, ACK, -70_000, 0), talk.ends[0]),
        (other, talk.ends[0]),
    ] {
        let forged = classify(&mut tracker, &error(inner, destination), 5);
        assert_eq!(forged.reason, Some(InvalidReason::Unrelated));
    }
    // About an answer before there was one.
    let request = udp(end("10.0.0.1", 5), end("192.0.2.1", 53));
    pass(&mut tracker, &request, 5);
    let answer = udp(request.destination, request.source);
    let forged = classify(&mut tracker, &error(answer.clone(), answer.source), 5);
    assert_eq!(forged.reason, Some(InvalidReason::Unrelated));
    let about = classify(&mut tracker, &error(request.clone(), request.source), 5);
    assert_eq!(about.state, CtState::Related);
    // No error extends a timeout.
    let list = all(&tracker);
    let talk = list.iter().find(|one| one.protocol == 6).unwrap();
    assert_eq!(talk.expires_in_s, 7440 - 5);
}

#[test]
fn the_timer_wheel_works_within_its_budget_and_catches_up() {
    let settings = Settings {
        timeouts: Timeouts::default().with(State::UdpUnreplied, 3),
        ..Settings::of_size(100)
    };
    let mut tracker = Tracker::new(&settings).unwrap();
    let datagram = |port| udp(end("10.0.0.1", port), end("10.0.0.2", 53));
    for port in 1..=100 {
        pass(&mut tracker, &datagram(port), 10);
    }
    // Never earlier than the timeout.
    assert_eq!(tracker.expire(13, 1_000_000), 0);
    assert_eq!(all(&tracker).len(), 100);
    // One of them remains in use.
    pass(&mut tracker, &datagram(77), 13);
    // An expired entry is not found, although it is still in the table.
    assert_eq!(tracker.expire(14, 11), 10);
    assert_eq!((tracker.len(), all(&tracker).len()), (90, 1));
    let again = classify(&mut tracker, &datagram(99), 14);
    assert_eq!((again.state, again.connection), (CtState::New, None));
    assert!(
        classify(&mut tracker, &datagram(77), 14)
            .connection
            .is_some()
    );
    assert_eq!(tracker.expire(14, 1_000_000), 89);
    // Far beyond the slots of the wheel.
    assert_eq!(tracker.expire(100_000, 1_000_000), 1);
    assert!(tracker.is_empty());
}
