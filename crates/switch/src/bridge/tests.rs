// SPDX-License-Identifier: Apache-2.0

use proptest::prelude::*;
use quietwire_packet::MacAddress;

use super::*;

const AGEING_S: u32 = 10;

fn frame(destination: [u8; 6], source: [u8; 6]) -> Vec<u8> {
    let mut frame = destination.to_vec();
    frame.extend(source);
    frame.extend([0x08, 0x00]);
    frame.resize(60, 0);
    frame
}

fn decide_all(fdb: &Fdb, input: u16, now_s: u32, frames: &[Vec<u8>]) -> (Vec<Decision>, Tally) {
    let mut decisions = Decisions::default();
    let tally = decide(
        fdb,
        input,
        now_s,
        frames.iter().map(Vec::as_slice),
        &mut decisions,
    );
    (decisions.as_slice().to_vec(), tally)
}

/// One of few addresses, so that they meet.
fn address() -> impl Strategy<Value = [u8; 6]> {
    prop_oneof![
        8 => (0..12u8).prop_map(|n| [2, 0, 0, 0, 0, n]),
        1 => Just([0xff; 6]),
        1 => (0..2u8).prop_map(|n| [0x01, 0x00, 0x5e, 0, 0, n]),
        1 => (0..0x12u8).prop_map(|n| [0x01, 0x80, 0xc2, 0, 0, n]),
        1 => Just([0; 6]),
    ]
}

fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    (
        address(),
        address(),
        prop_oneof![8 => Just(60), 1 => 0..16usize],
    )
        .prop_map(|(destination, source, length)| {
            let mut frame = frame(destination, source);
            frame.truncate(length);
            frame
        })
}

#[derive(Clone, Debug)]
enum Step {
    Burst(u16, Vec<Vec<u8>>),
    Pass(u32),
    Sweep,
    Remove([u8; 6]),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4u16, prop::collection::vec(any_frame(), 0..=BURST_MAX))
            .prop_map(|(port, frames)| Step::Burst(port, frames)),
        2 => (1..=AGEING_S + 2).prop_map(Step::Pass),
        1 => Just(Step::Sweep),
        1 => address().prop_map(Step::Remove),
    ]
}

proptest! {
    #[test]
    fn does_as_the_bridge_by_the_book(steps in prop::collection::vec(step(), 1..60)) {
        let fdb = Fdb::new(64, AGEING_S);
        let mut reference = ReferenceBridge::new(AGEING_S);
        let mut now_s = 1;
        for step in steps {
            match step {
                Step::Burst(input, frames) => {
                    let (decisions, _) = decide_all(&fdb, input, now_s, &frames);
                    let expected: Vec<Decision> =
                        frames.iter().map(|frame| reference.decide(input, now_s, frame)).collect();
                    prop_assert_eq!(decisions, expected);
                }
                Step::Pass(seconds) => {
                    // The table's clock goes round: what is over has to be taken out now and then.
                    fdb.sweep(0, fdb.buckets(), now_s);
                    now_s += seconds;
                }
                Step::Sweep => {
                    fdb.sweep(0, fdb.buckets(), now_s);
                    prop_assert_eq!(fdb.entries() as usize, reference.entries(now_s));
                }
                Step::Remove(address) => {
                    fdb.remove(Key::of(MacAddress(address)));
                    reference.remove(MacAddress(address));
                }
            }
            prop_assert_eq!(fdb.snapshot(now_s).count(), reference.entries(now_s));
        }
    }

    #[test]
    fn any_bytes_get_one_decision_each(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..80)
    ) {
        let fdb = Fdb::new(64, AGEING_S);
        let (decisions, tally) = decide_all(&fdb, 3, 7, &frames);
        prop_assert_eq!(decisions.len(), frames.len().min(BURST_MAX));
        let short = frames.iter().take(BURST_MAX).filter(|frame| frame.len() < 14).count();
        prop_assert_eq!(tally.short, short as u64);
        prop_assert!(decisions.iter().all(|d| !matches!(d, Decision::Forward(_))));
    }
}

const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

#[test]
fn what_happened_is_counted() {
    let fdb = Fdb::new(2, AGEING_S);
    let (decisions, tally) = decide_all(
        &fdb,
        0,
        1,
        &[
            frame(B, A),
            frame(B, A),
            frame(A, B),
            frame([0xff; 6], [2, 0, 0, 0, 0, 3]),
        ],
    );
    assert_eq!(
        decisions,
        [
            Decision::Flood,
            Decision::Flood,
            Decision::Drop(Reason::Filtered),
            Decision::Flood
        ]
    );
    assert_eq!(
        tally,
        Tally {
            flooded: 3,
            filtered: 1,
            learned: 2,
            not_learned: 1,
            ..Tally::default()
        }
    );
    let (decisions, tally) = decide_all(&fdb, 5, 1, &[frame(B, A)]);
    assert_eq!(decisions, [Decision::Forward(0)]);
    assert_eq!((tally.moved, tally.learned), (1, 0));
    assert_eq!(
        decide_all(&fdb, 0, 1, &[frame(A, B)]).0,
        [Decision::Forward(5)]
    );
}

#[test]
fn one_decision_for_all_is_seen() {
    let fdb = Fdb::new(64, AGEING_S);
    let mut decisions = Decisions::default();
    let mut sole = |frames: &[Vec<u8>]| {
        decide(&fdb, 0, 1, frames.iter().map(Vec::as_slice), &mut decisions);
        decisions.sole()
    };
    assert_eq!(sole(&[frame(B, A), frame(B, A)]), Some(Decision::Flood));
    assert_eq!(sole(&[frame(B, A), frame(A, B)]), None);
    assert_eq!(sole(&[frame(B, A), frame(B, A), vec![]]), None);
    assert_eq!(sole(&[vec![]]), Some(Decision::Drop(Reason::Short)));
}
