// SPDX-License-Identifier: Apache-2.0
//! Labels of connections: compared with a map, over early drops, a restart and a standby. Bits of marks.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::changes::Replicate;

const ENTRIES: u32 = 8;

fn labelled() -> Tracker {
    let mut tracker = Tracker::new(&Settings::of_size(ENTRIES)).unwrap();
    tracker.allow_labels().unwrap();
    tracker
}

fn datagram(port: u16) -> Packet {
    read(&udp(end("10.0.0.1", port), end("10.0.0.2", 53)))
}

/// Returns the label of each connection, by its source port.
fn labels(tracker: &Tracker) -> HashMap<u16, u128> {
    let list = all(tracker).into_iter();
    list.map(|one| (one.source.port, one.label)).collect()
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A connection begins, or has another packet.
    Packet(u16),
    /// Bits of the label of a connection are set.
    Set(u16, LabelBits),
    /// Seconds pass.
    Wait(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let bits = (any::<u128>(), any::<u128>()).prop_filter_map("no mask", |(value, mask)| {
        LabelBits::new(value & mask, mask)
    });
    prop_oneof![
        4 => (1..20u16).prop_map(Step::Packet),
        4 => (1..20u16, bits).prop_map(|(port, bits)| Step::Set(port, bits)),
        1 => (1..20u32).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn labels_are_those_of_a_map_also_after_a_restart(steps in prop::collection::vec(step(), 1..100)) {
        let mut tracker = labelled();
        let mut known: HashMap<u16, (Connection, u128)> = HashMap::new();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Packet(port) => {
                    let connection = tracker.commit(&datagram(port), now).unwrap();
                    // A connection that takes the place of another one has no label.
                    let label = known.get(&port).filter(|one| one.0 == connection);
                    let label = label.map_or(0, |one| one.1);
                    known.insert(port, (connection, label));
                }
                Step::Set(port, bits) => {
                    if let Some((connection, label)) = known.get_mut(&port) {
                        let is_there = tracker.get(*connection).is_some();
                        prop_assert_eq!(tracker.set_label(*connection, bits), is_there);
                        *label = bits.set_in(*label);
                    }
                }
                Step::Wait(seconds) => now += seconds,
            }
            tracker.expire(now, usize::MAX);
            known.retain(|_, (connection, _)| tracker.get(*connection).is_some());
            for (connection, label) in known.values() {
                prop_assert_eq!(tracker.label(*connection), *label);
            }
            let expected: HashMap<u16, u128> = known.iter().map(|(port, one)| (*port, one.1)).collect();
            prop_assert_eq!(labels(&tracker), expected);
        }
        let mut list = Vec::new();
        prop_assert_eq!(tracker.save_into(0, (usize::MAX, usize::MAX), &mut list), None);
        let (mut second, mut without) = (labelled(), Tracker::new(&Settings::of_size(ENTRIES)).unwrap());
        for one in &list {
            second.restore(one, 0).unwrap();
            without.restore(one, 0).unwrap();
        }
        prop_assert_eq!(labels(&second), labels(&tracker));
        prop_assert!(labels(&without).values().all(|label| *label == 0));
    }
}

#[test]
fn without_labels_no_connection_has_one_and_entries_are_as_large() {
    let mut tracker = Tracker::new(&Settings::of_size(ENTRIES)).unwrap();
    let connection = tracker.commit(&datagram(1), 0).unwrap();
    let bits = LabelBits::new(1, 1).unwrap();
    assert!(!tracker.set_label(connection, bits));
    assert_eq!(tracker.label(connection), 0);
    let before = tracker.octets();
    assert_eq!(labelled().octets(), before + 16 * ENTRIES as usize);
}

/// Returns a tracker that notes changes from now on.
fn noting(mut tracker: Tracker) -> Tracker {
    tracker.allow_changes();
    let mut none = Vec::new();
    tracker.take_changes((1, 1), &mut none);
    assert_eq!((none.len(), tracker.take_lost_changes()), (0, 1));
    tracker
}

/// Applies the changes of a tracker to its standby. Returns their number.
fn follow(first: &mut Tracker, second: &mut Tracker) -> usize {
    let mut list = Vec::new();
    while first.take_changes((usize::MAX, 10), &mut list) {}
    for change in &list {
        second.apply(change, 0).unwrap();
    }
    list.len()
}

#[test]
fn bits_of_marks_are_set_and_each_change_is_for_the_standby() {
    let tracker = || Tracker::new(&Settings::of_size(ENTRIES)).unwrap();
    let (mut first, mut second) = (noting(tracker()), tracker());
    let (inside, outside) = (end("10.0.0.1", 7), end("10.0.0.2", 53));
    let connection = first.commit(&datagram(7), 0).unwrap();
    pass(&mut first, &udp(outside, inside), 0);
    assert_eq!(follow(&mut first, &mut second), 1);
    for (bits, mark, changes) in [
        ("0x5/0xf", 5, 1),
        // The same bits again are no change.
        ("0x5/0xf", 5, 0),
        ("0x30/0x30", 0x35, 1),
        ("0/1", 0x34, 1),
        ("0x80000000", 0x8000_0000, 1),
    ] {
        let bits: MarkBits = bits.parse().unwrap();
        assert!(first.set_mark_bits(connection, bits));
        assert_eq!(first.get(connection).unwrap().mark, mark);
        assert_eq!(follow(&mut first, &mut second), changes);
        assert_eq!(all(&second)[0].mark, mark);
    }
    first.flush(&ConnectionFilter::default(), 0, usize::MAX);
    assert!(!first.set_mark_bits(connection, MarkBits::new(1, 1).unwrap()));
}

#[test]
fn a_standby_has_the_labels_of_the_active_switch() {
    let (mut first, mut second) = (noting(labelled()), labelled());
    // Packets of both sides: the connection is for the standby.
    let (inside, outside) = (end("10.0.0.1", 7), end("10.0.0.2", 53));
    let connection = first.commit(&datagram(7), 0).unwrap();
    pass(&mut first, &udp(outside, inside), 0);
    let mut follow = |first: &mut Tracker| {
        let changes = follow(first, &mut second);
        (changes, labels(&second))
    };
    assert_eq!(follow(&mut first), (1, HashMap::from([(7, 0)])));
    let bits: LabelBits = "0x5/0xf".parse().unwrap();
    assert!(first.set_label(connection, bits));
    assert_eq!(follow(&mut first), (1, HashMap::from([(7, 5)])));
    // The same bits again are no change.
    assert!(first.set_label(connection, bits));
    assert_eq!(follow(&mut first), (0, HashMap::from([(7, 5)])));
    let other: LabelBits = "0/0x1".parse().unwrap();
    assert!(first.set_label(connection, other));
    assert_eq!(follow(&mut first), (1, HashMap::from([(7, 4)])));
}
