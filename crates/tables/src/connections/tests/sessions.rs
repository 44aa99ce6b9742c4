// SPDX-License-Identifier: Apache-2.0
//! Sessions of NAT for a log.

use std::net::SocketAddr;

use super::*;

const HOST: &str = "10.0.0.1";
const REMOTE: &str = "192.0.2.1";

fn logged(entries: u32) -> Tracker {
    let mut tracker = Tracker::new(&Settings::of_size(entries)).unwrap();
    let before = tracker.octets();
    tracker.allow_sessions().unwrap();
    assert_eq!(tracker.octets() - before, entries as usize * 42);
    tracker
}

fn external(port: u16) -> [Option<SocketAddr>; 2] {
    let address = "198.51.100.1".parse().unwrap();
    [Some(SocketAddr::new(address, port)), None]
}

fn event(is_created: bool, port: u16, external_port: u16) -> SessionEvent {
    SessionEvent {
        is_created,
        protocol: 17,
        source: end(HOST, port),
        destination: end(REMOTE, 53),
        external: [Some(end("198.51.100.1", external_port)), None],
    }
}

fn query(port: u16) -> Sent {
    udp(end(HOST, port), end(REMOTE, 53))
}

fn answer(port: u16) -> Sent {
    udp(end(REMOTE, 53), end(HOST, port))
}

#[test]
fn a_session_begins_with_its_external_endpoints_and_ends_with_the_same() {
    let mut tracker = logged(8);
    pass(&mut tracker, &query(4000), 0);
    assert!(tracker.has_session_work());
    let waiting = tracker.take_waiting_session().unwrap();
    assert_eq!((waiting.protocol, waiting.source), (17, end(HOST, 4000)));
    assert_eq!(waiting.destination, end(REMOTE, 53));
    let begun = tracker.begin_session(waiting.connection, external(2000));
    assert_eq!(begun, Some(event(true, 4000, 2000)));
    // It has one event, whatever follows.
    let again = tracker.begin_session(waiting.connection, external(2001));
    assert_eq!(again, None);
    pass(&mut tracker, &answer(4000), 1);
    assert!(!tracker.has_session_work());
    tracker.flush(&ConnectionFilter::default(), 0, usize::MAX);
    assert_eq!(tracker.take_ended_session(), Some(event(false, 4000, 2000)));
    assert_eq!(tracker.take_ended_session(), None);
    let ended = tracker.begin_session(waiting.connection, external(2000));
    assert_eq!((ended, tracker.take_lost_sessions()), (None, 0));
    // The next connection has the same entry, and another session.
    pass(&mut tracker, &query(4001), 2);
    let next = tracker.take_waiting_session().unwrap();
    assert_eq!(next.connection.index, waiting.connection.index);
    let begun = tracker.begin_session(next.connection, external(2002));
    assert_eq!(begun, Some(event(true, 4001, 2002)));
}

#[test]
fn connections_without_external_endpoints_wait_for_their_next_state_and_have_no_end() {
    let mut tracker = logged(8);
    pass(&mut tracker, &query(4000), 0);
    let waiting = tracker.take_waiting_session().unwrap();
    // NAT has not translated its packet yet.
    assert_eq!(tracker.begin_session(waiting.connection, [None; 2]), None);
    assert!(!tracker.has_session_work());
    pass(&mut tracker, &answer(4000), 0);
    assert_eq!(tracker.take_waiting_session(), Some(waiting));
    // One ends before it has any, and one while it waits.
    pass(&mut tracker, &query(4001), 0);
    tracker.flush(&ConnectionFilter::default(), 0, usize::MAX);
    assert_eq!(tracker.take_ended_session(), None);
    assert_eq!(tracker.take_waiting_session(), None);
    // Without space for sessions, none is noted.
    let mut silent = Tracker::new(&Settings::of_size(8)).unwrap();
    pass(&mut silent, &query(4000), 0);
    assert!(!silent.has_session_work());
    assert_eq!(silent.take_waiting_session(), None);
}

#[test]
fn events_without_space_are_counted_once() {
    let mut tracker = logged(16_384);
    for port in 1..=5000 {
        pass(&mut tracker, &query(port), 0);
    }
    let waiting = std::iter::from_fn(|| tracker.take_waiting_session());
    assert_eq!(waiting.count(), 4096);
    assert_eq!(tracker.take_lost_sessions(), 904);
    assert_eq!(tracker.take_lost_sessions(), 0);
    assert!(!tracker.has_session_work());
}
