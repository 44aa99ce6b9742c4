// SPDX-License-Identifier: Apache-2.0
//! Contents of a flow's window, sequence number by sequence number.

use super::super::*;

#[test]
fn flows_do_not_see_the_numbers_of_each_other() {
    let mut trackers = Trackers::new(3, WINDOW_MIN);
    // Each flow receives every third number. No two flows receive the same ones.
    for sequence in 0..1500 {
        trackers.record((sequence % 3) as usize, sequence);
    }
    for flow in 0..3 {
        let tracked = trackers.get(flow as usize).unwrap();
        for sequence in 1000..1497 {
            assert_eq!(
                tracked.holds(sequence),
                sequence % 3 == flow,
                "{sequence} of {flow}"
            );
        }
    }
    assert!(trackers.get(3).is_none());
    assert_eq!(trackers.record(3, 0), None);
}

#[test]
fn every_flow_is_listed_in_its_place() {
    let mut trackers = Trackers::new(3, WINDOW_MIN);
    for sequence in 0..5 {
        trackers.record(1, sequence);
    }
    let received: Vec<u64> = trackers.iter().map(|flow| flow.received()).collect();
    assert_eq!(received, [0, 5, 0]);
}

#[test]
fn a_number_that_is_not_received_yet_is_not_held() {
    let mut trackers = Trackers::new(1, WINDOW_MIN);
    for sequence in 0..512 {
        trackers.record(0, sequence);
    }
    // Number 512 has the place of 0, which was received.
    let held = |trackers: &Trackers| {
        let flow = trackers.get(0).unwrap();
        [0, 1, 511, 512, 513].map(|sequence| flow.holds(sequence))
    };
    assert_eq!(held(&trackers), [true, true, true, false, false]);
    trackers.record(0, 512);
    assert_eq!(held(&trackers), [false, true, true, true, false]);
}

#[test]
fn a_lost_number_is_not_held() {
    let mut trackers = Trackers::new(1, WINDOW_MIN);
    for sequence in [0, 2] {
        trackers.record(0, sequence);
    }
    let flow = trackers.get(0).unwrap();
    assert_eq!(
        [0, 1, 2].map(|sequence| flow.holds(sequence)),
        [true, false, true]
    );
}

#[test]
fn numbers_that_were_skipped_are_not_held() {
    for start in [1024u32, 1025, 1087, 1088, 1700] {
        for skipped in [0u32, 1, 2, 63, 64, 65, 127, 128, 200, 511, 512, 513, 5000] {
            let mut trackers = Trackers::new(1, WINDOW_MIN);
            for sequence in 0..start {
                trackers.record(0, sequence);
            }
            let newest = start + skipped;
            assert_eq!(trackers.record(0, newest), Some(Arrival::InOrder));
            let flow = trackers.get(0).unwrap();
            assert_eq!(flow.newest(), u64::from(newest));
            for sequence in newest - 511..=newest {
                assert_eq!(
                    flow.holds(u64::from(sequence)),
                    sequence < start || sequence == newest,
                    "{sequence} after {skipped} from {start} on"
                );
            }
            assert!(!flow.holds(u64::from(newest) - 512));
        }
    }
}

#[test]
fn a_number_before_the_first_one_is_stale() {
    let mut trackers = Trackers::new(1, WINDOW_MIN);
    let arrivals = [0, 1, u32::MAX, u32::MAX - 100, 0].map(|sequence| trackers.record(0, sequence));
    let expected = [
        Arrival::InOrder,
        Arrival::InOrder,
        Arrival::Stale,
        Arrival::Stale,
        Arrival::Duplicate,
    ];
    assert_eq!(arrivals, expected.map(Some));
    assert_eq!(trackers.get(0).unwrap().stale(), 2);
}

#[test]
fn the_oldest_number_of_the_window_is_distinguished_from_the_one_behind_it() {
    let mut trackers = Trackers::new(1, WINDOW_MIN);
    for sequence in [0, 1000] {
        trackers.record(0, sequence);
    }
    assert_eq!(trackers.record(0, 489), Some(Arrival::Reordered));
    assert_eq!(trackers.record(0, 489), Some(Arrival::Duplicate));
    assert_eq!(trackers.record(0, 488), Some(Arrival::Stale));
    let flow = trackers.get(0).unwrap();
    assert_eq!(
        (flow.received(), flow.reordered(), flow.duplicates()),
        (3, 1, 1)
    );
}

#[test]
fn the_whole_of_a_number_is_the_one_nearest_to_the_newest() {
    let mut trackers = Trackers::new(1, WINDOW_MIN);
    trackers.flows[0].next = (1 << 32) + 5;
    let flow = trackers.get(0).unwrap();
    assert_eq!(flow.newest(), (1 << 32) + 4);
    for (carried, whole) in [
        (4, (1 << 32) + 4),
        (7, (1 << 32) + 7),
        (u32::MAX, (1 << 32) - 1),
    ] {
        assert_eq!(flow.full(carried), whole);
    }
}

#[test]
fn windows_hold_what_was_asked_for() {
    // The frame exactly one window behind is the last one in the window.
    for window in [512, 1024, 4096] {
        let mut trackers = Trackers::new(2, window);
        for sequence in 0..10_000 {
            trackers.record(1, sequence);
        }
        let flow = trackers.get(1).unwrap();
        assert!(flow.holds(10_000 - window));
        assert!(!flow.holds(9_999 - window));
        assert_eq!(flow.beyond(0), window);
    }
}
