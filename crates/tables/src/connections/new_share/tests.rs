// SPDX-License-Identifier: Apache-2.0
//! The limit of a thread with a simulated clock and known costs of frames.

use proptest::prelude::*;

use super::*;

const HZ: u64 = 2_000_000_000;

/// Ticks of a frame.
#[derive(Clone, Copy, Debug)]
struct Costs {
    /// Until its connection is looked up.
    lookup: u64,
    /// From then on: of a frame of a known connection, of one that begins a connection, and of one that is dropped.
    known: u64,
    first: u64,
    dropped: u64,
}

/// Frames and times of a burst.
#[derive(Clone, Copy, Debug)]
struct Done {
    began: u64,
    ended: u64,
    /// Time of frames that begin connections, if they were admitted.
    admitted: u64,
    /// Time of dropped frames.
    dropped: u64,
}

/// A thread with one receive queue.
struct Thread {
    share: NewShare,
    costs: Costs,
    now: u64,
}

impl Thread {
    fn new(percent: u32, costs: Costs) -> Self {
        Self {
            share: NewShare::new(percent, HZ),
            costs,
            now: 1_000,
        }
    }

    /// Returns a thread after as many full bursts of known connections as make it saturated.
    fn saturated(percent: u32, costs: Costs) -> Self {
        let mut thread = Self::new(percent, costs);
        for _ in 0..FULL_TURNS {
            assert!(!thread.share.is_saturated());
            thread.turn(BURST_MAX, 0);
        }
        assert!(thread.share.is_saturated());
        // The average of known connections.
        thread.turn(BURST_MAX, 0);
        thread
    }

    /// Processes a burst of frames of known connections and of frames that begin some.
    fn turn(&mut self, known: usize, first: usize) -> Done {
        let Costs {
            lookup,
            known: of_known,
            first: of_first,
            dropped: of_dropped,
        } = self.costs;
        let (known_frames, first_frames) = (known as u64, first as u64);
        let began = self.now;
        self.share.received(known + first);
        self.share.begin(began);
        self.now += lookup * (known_frames + first_frames);
        let is_admitted =
            !self.share.is_saturated() || self.share.looked_up(self.now, (known + first, first));
        let mut done = Done {
            began,
            ended: 0,
            admitted: 0,
            dropped: 0,
        };
        if is_admitted {
            self.now += of_first * first_frames;
            done.admitted = (lookup + of_first) * first_frames;
        } else {
            self.now += of_dropped * first_frames;
            self.share.dropped(self.now);
            done.dropped = (lookup + of_dropped) * first_frames;
        }
        self.now += of_known * known_frames;
        self.share.end(self.now);
        self.share.end_turn(self.now, false);
        done.ended = self.now;
        done
    }

    /// Passes time without frames.
    fn idle(&mut self, ticks: u64) {
        self.now += ticks;
        self.share.end_turn(self.now, true);
    }
}

/// Costs of a filter with many rules.
const COSTS: Costs = Costs {
    lookup: 200,
    known: 200,
    first: 800,
    dropped: 40,
};

fn costs() -> impl Strategy<Value = Costs> {
    let parts = (1..400u64, 50..400u64, 1..10u64, 0..100u64);
    parts.prop_map(|(lookup, known, ratio, dropped)| Costs {
        lookup,
        known,
        first: known * ratio,
        dropped,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// While a thread is saturated, frames that begin connections take at most their share and one burst, in any period.
    #[test]
    fn new_connections_take_at_most_their_share_and_a_burst(
        percent in 1..100u32,
        costs in costs(),
        bursts in prop::collection::vec((0..=32usize, 0..=32usize), 100..300),
    ) {
        let mut thread = Thread::saturated(percent, costs);
        let mut done = Vec::new();
        for (known, first) in bursts {
            // A full queue.
            let known = known.max(FULL - first.min(FULL));
            done.push(thread.turn(known, first));
            prop_assert!(thread.share.is_saturated());
        }
        let longest = done.iter().map(|one| one.admitted).max().unwrap();
        for (place, first) in done.iter().enumerate() {
            let mut spent = 0;
            for one in &done[place..] {
                spent += one.admitted;
                let share = (one.ended - first.began) * u64::from(percent) / 100;
                // The average of a frame is rounded.
                let bound = share + longest + longest / 100 + 64;
                prop_assert!(spent <= bound, "{spent} ticks of {share}, burst {longest}");
            }
        }
    }
}

#[test]
fn known_connections_keep_half_of_their_rate_beside_as_many_new_ones() {
    let mut thread = Thread::saturated(50, COSTS);
    let began = thread.now;
    let (mut known, mut admitted) = (0, 0);
    for _ in 0..10_000 {
        let done = thread.turn(BURST_MAX / 2, BURST_MAX / 2);
        known += BURST_MAX as u64 / 2;
        admitted += u64::from(done.admitted > 0);
    }
    let alone = (thread.now - began) / (COSTS.lookup + COSTS.known);
    assert!(known * 2 >= alone, "{known} of {alone} frames");
    // As many begin as the share has time for.
    assert!(known * 10 <= alone * 6, "{known} of {alone} frames");
    assert!((1000..3000).contains(&admitted), "{admitted} bursts");
}

#[test]
fn another_share_holds_while_a_thread_is_saturated() {
    let mut thread = Thread::saturated(10, COSTS);
    let mut part_of = |percent: u32| {
        thread.share.set_percent(percent);
        let began = thread.now;
        let mut admitted = 0;
        for _ in 0..10_000 {
            admitted += thread.turn(BURST_MAX / 2, BURST_MAX / 2).admitted;
            assert!(thread.share.is_saturated());
        }
        admitted * 100 / (thread.now - began)
    };
    // The time until frames are dropped is a part of the share.
    let [small, large, again] = [part_of(10), part_of(50), part_of(10)];
    assert!(small <= 10 && again <= 10, "{small} and {again} percent");
    assert!((20..=50).contains(&large), "{large} percent");
}

#[test]
fn dropped_frames_leave_time_for_some_new_connections() {
    let mut thread = Thread::saturated(50, COSTS);
    let began = thread.now;
    let (mut admitted, mut dropped) = (0, 0);
    for _ in 0..10_000 {
        let done = thread.turn(4, BURST_MAX - 4);
        admitted += done.admitted;
        dropped += done.dropped;
    }
    let passed = thread.now - began;
    assert!(dropped * 2 > passed, "the flood is larger than the share");
    assert!(admitted * 20 >= passed, "{admitted} of {passed} ticks");
    assert!(admitted * 2 <= passed, "{admitted} of {passed} ticks");
}

#[test]
fn a_thread_with_empty_queues_admits_all() {
    let mut thread = Thread::new(1, COSTS);
    for _ in 0..20 {
        for _ in 1..FULL_TURNS {
            assert_eq!(thread.turn(0, BURST_MAX).dropped, 0);
        }
        // A burst that empties the queue.
        assert_eq!(thread.turn(0, FULL - 1).dropped, 0);
    }
    for _ in 0..10 * FULL_TURNS {
        assert_eq!(thread.turn(0, BURST_MAX).dropped, 0);
        thread.idle(1);
    }
}

#[test]
fn idle_time_belongs_to_new_connections() {
    let mut thread = Thread::saturated(1, COSTS);
    assert!(thread.turn(0, BURST_MAX).admitted > 0);
    let refused = thread.turn(0, BURST_MAX);
    assert!(refused.dropped > 0);
    // As long as the admitted burst.
    thread.idle((COSTS.lookup + COSTS.first) * BURST_MAX as u64);
    assert!(thread.share.is_saturated());
    assert!(thread.turn(0, BURST_MAX).admitted > 0);
}

#[test]
fn saturation_ends_a_tenth_of_a_second_after_the_last_drop() {
    let mut thread = Thread::saturated(1, COSTS);
    let mut has_dropped = false;
    for _ in 0..2 {
        has_dropped |= thread.turn(0, BURST_MAX).dropped > 0;
    }
    assert!(has_dropped);
    thread.idle(HZ / 10 - 1);
    assert!(thread.share.is_saturated());
    thread.idle(1);
    assert!(!thread.share.is_saturated());
    for _ in 0..10 {
        assert_eq!(thread.turn(0, BURST_MAX).dropped, 0);
    }
}

#[test]
fn a_clock_that_goes_back_stands_still() {
    let mut thread = Thread::saturated(50, COSTS);
    thread.now -= 1_000;
    for _ in 0..4 {
        thread.turn(BURST_MAX / 2, BURST_MAX / 2);
    }
    assert!(thread.share.is_saturated());
}
