// SPDX-License-Identifier: Apache-2.0
//! Schedules computed by hand, with a clock of one tick per microsecond and mostly one frame per tick.

use super::super::*;

const HZ: u64 = 1_000_000;
const EVERY_TICK: Pace = Pace::Rate(1e6);

fn due(frames: u64, late: bool) -> Due {
    Due {
        frames,
        late,
        late_frames: if late { frames } else { 0 },
    }
}

/// Sends all frames due at an instant, 32 at a time.
fn drain(pacer: &mut Pacer, now: u64) {
    while pacer.due(now, 32).frames > 0 {}
}

#[test]
fn a_lane_has_its_share_of_rates_and_its_part_of_a_burst() {
    let spread = Pace::Spread {
        frames: 9,
        rate_pps: 4.0,
    };
    let step = |rate_pps, then_pps| Pace::Step {
        rate_pps,
        after_s: 5.0,
        then_pps,
    };
    assert_eq!(Pace::Rate(8.0).of_lane(0.25, 7), Pace::Rate(2.0));
    assert_eq!(Pace::Unpaced.of_lane(0.25, 7), Pace::Unpaced);
    assert_eq!(Pace::Burst(28).of_lane(0.25, 7), Pace::Burst(7));
    assert_eq!(spread.of_lane(0.25, 7), spread);
    assert_eq!(step(8.0, 4.0).of_lane(0.25, 7), step(2.0, 1.0));
    let rates = [Pace::Rate(8.0), spread, step(2.0, 1.0)].map(Pace::rate_pps);
    assert_eq!(rates, [Some(8.0), Some(4.0), Some(2.0)]);
    assert_eq!(
        [Pace::Unpaced, Pace::Burst(1)].map(Pace::rate_pps),
        [None; 2]
    );
}

#[test]
fn frames_are_dealt_to_the_nearest_whole_number() {
    assert_eq!(dealt(100, &[1.0, 1.0, 2.0]), [25, 25, 50]);
    // Cumulative parts: 3.33 and 6.67 of 10.
    assert_eq!(dealt(10, &[1.0, 1.0, 1.0]), [3, 4, 3]);
    assert_eq!(dealt(10, &[0.0, 0.5]), [0, 10]);
    assert_eq!(dealt(10, &[0.0, 0.0]), [0, 0]);
    assert!(dealt(10, &[]).is_empty());
}

#[test]
fn frame_k_is_due_k_ticks_after_the_start() {
    let mut pacer = Pacer::new(EVERY_TICK, 1000, 3, HZ, 512);
    assert_eq!((pacer.start(), pacer.scheduled()), (1000, 3));
    let frames = [999, 1000, 1000, 1001, 1002, 1003].map(|now| pacer.due(now, 32).frames);
    assert_eq!(frames, [0, 1, 0, 1, 1, 0]);
    assert!(pacer.is_done());
}

#[test]
fn two_bursts_behind_are_late() {
    let at = |now| Pacer::new(EVERY_TICK, 0, HZ, HZ, 512).due(now, 32);
    assert_eq!(at(62), due(32, false));
    assert_eq!(at(63), due(32, true));
    // If a group has more frames than one burst, two groups are the limit of lateness.
    let at = |now| {
        let mut pacer = Pacer::new(EVERY_TICK, 0, HZ, HZ, 512).in_bursts(100);
        pacer.due(now, 32)
    };
    assert_eq!(at(99), due(32, false));
    assert_eq!(at(100), due(32, true));
}

#[test]
fn frames_are_struck_from_one_more_than_the_limit_on() {
    let at = |now| {
        let mut pacer = Pacer::new(EVERY_TICK, 0, HZ, HZ, 100);
        pacer.due(now, 512);
        (pacer.offered(), pacer.unsent())
    };
    assert_eq!(at(99), (100, 0));
    assert_eq!(at(100), (100, 1));
    assert_eq!(at(109), (100, 10));
    // A group of frames due at once is not late.
    let mut pacer = Pacer::new(EVERY_TICK, 0, HZ, HZ, 100).in_bursts(50);
    pacer.due(149, 512);
    assert_eq!((pacer.offered(), pacer.unsent()), (150, 0));
    pacer.due(300, 512);
    assert_eq!((pacer.offered(), pacer.unsent()), (300, 50));
}

#[test]
fn groups_are_due_with_their_first_frame() {
    let mut pacer = Pacer::new(EVERY_TICK, 0, 30, HZ, 512).in_bursts(12);
    let frames = [0, 11, 12, 23, 24, 29].map(|now| pacer.due(now, 32).frames);
    assert_eq!(frames, [12, 0, 12, 0, 6, 0]);
    let mut single = Pacer::new(EVERY_TICK, 0, 30, HZ, 512).in_bursts(0);
    assert_eq!(single.due(4, 32).frames, 5);
}

#[test]
fn unsent_frames_are_sent_later_as_two_frames_in_a_thousand() {
    let mut pacer = Pacer::new(EVERY_TICK, 0, HZ, HZ, 100);
    drain(&mut pacer, 0);
    // 10,100 frames behind, 100 of them are sent.
    drain(&mut pacer, 10_100);
    assert_eq!((pacer.offered(), pacer.unsent()), (101, 10_000));
    (10_101..=10_599).for_each(|now| drain(&mut pacer, now));
    assert_eq!((pacer.offered(), pacer.unsent()), (600, 10_000));
    drain(&mut pacer, 10_600);
    assert_eq!((pacer.offered(), pacer.unsent()), (602, 9_999));
    (10_601..=15_100).for_each(|now| drain(&mut pacer, now));
    assert_eq!(pacer.unsent(), 9_990);
    // Exactly at the limit of lateness: catching up continues as if there had been no stall.
    drain(&mut pacer, 15_200);
    (15_201..=15_650).for_each(|now| drain(&mut pacer, now));
    assert_eq!(pacer.unsent(), 9_989);
    // Beyond the limit: catching up restarts.
    drain(&mut pacer, 15_850);
    assert_eq!(pacer.unsent(), 9_989 + 100);
    (15_851..=16_349).for_each(|now| drain(&mut pacer, now));
    assert_eq!(pacer.unsent(), 10_089);
    drain(&mut pacer, 16_350);
    assert_eq!(pacer.unsent(), 10_088);
}

#[test]
fn groups_make_nothing_good() {
    let mut pacer = Pacer::new(EVERY_TICK, 0, HZ, HZ, 100).in_bursts(50);
    drain(&mut pacer, 149);
    drain(&mut pacer, 300);
    assert_eq!((pacer.offered(), pacer.unsent()), (300, 50));
    (301..20_000).for_each(|now| drain(&mut pacer, now));
    assert_eq!((pacer.offered(), pacer.unsent()), (19_950, 50));
}

#[test]
fn no_more_is_made_good_than_fits_and_is_owed() {
    let mut pacer = Pacer::new(EVERY_TICK, 0, HZ, HZ, 100);
    drain(&mut pacer, 0);
    drain(&mut pacer, 110);
    assert_eq!((pacer.offered(), pacer.unsent()), (101, 10));
    // One tick at a time without space to catch up, because the burst is full.
    (111..=5_110).for_each(|now| assert_eq!(pacer.due(now, 1), due(1, false)));
    assert_eq!(pacer.unsent(), 10);
    // The surplus allows ten frames by now; four fit in addition to the one due.
    assert_eq!(pacer.due(5_111, 5).frames, 5);
    assert_eq!(pacer.unsent(), 6);
    (5_112..=20_000).for_each(|now| drain(&mut pacer, now));
    assert_eq!((pacer.offered(), pacer.unsent()), (20_001, 0));
}

#[test]
fn a_step_counts_ticks_at_either_rate() {
    let pace = Pace::Step {
        rate_pps: 1e6,
        after_s: 1e-4,
        then_pps: 5e5,
    };
    let mut pacer = Pacer::new(pace, 0, 200, HZ, 512);
    assert_eq!(pacer.scheduled(), 150);
    let mut offered = |now| {
        pacer.due(now, 512);
        pacer.offered()
    };
    assert_eq!(
        [99, 100, 101, 102, 150].map(&mut offered),
        [100, 101, 101, 102, 126]
    );
    // A step beyond the end has no effect.
    assert_eq!(Pacer::new(pace, 0, 50, HZ, 512).scheduled(), 50);
}

#[test]
fn times_are_rounds_of_ticks() {
    // Two ticks per nanosecond, and four times the speed.
    let times = Times::new(&[0, 1000], 3001, 4.0, 2_000_000_000);
    let due = [0, 499, 500, 1500, 1501, 2000, 2001, 3002].map(|elapsed| times.due(elapsed));
    // A round is 1500.5 ticks, rounded up.
    assert_eq!(due, [1, 1, 2, 2, 3, 3, 4, 5]);
    // A period of zero becomes one tick.
    assert_eq!(Times::new(&[0], 0, 1.0, HZ).due(9), 10);
    let pacer = |ticks| {
        let times = Times::new(&[0, 500], 1000, 1.0, 1_000_000_000);
        Pacer::new(Pace::Unpaced, 0, 0, HZ, 512).by_times(Some(Arc::new(times)), ticks)
    };
    // A frame due exactly at the end is not part of the schedule.
    assert_eq!(
        [500, 501, 1000, 1001].map(|ticks| pacer(ticks).scheduled()),
        [1, 2, 2, 3]
    );
}

#[test]
fn a_spread_schedule_moves_by_what_was_held_up() {
    let pace = Pace::Spread {
        frames: 1000,
        rate_pps: 5e5,
    };
    let mut pacer = Pacer::new(pace, 10, 0, HZ, 512);
    // 51 frames are due and 32 are sent. The schedule of the other 19 shifts by two ticks per frame.
    assert_eq!(pacer.due(110, 64), due(32, false));
    assert_eq!((pacer.start(), pacer.unsent()), (48, 0));
    assert_eq!(pacer.due(111, 64).frames, 0);
    assert_eq!(pacer.due(112, 64).frames, 1);
    // A backlog of exactly the limit shifts nothing.
    assert_eq!(pacer.due(176, 64).frames, 32);
    assert_eq!(pacer.start(), 48);
    // A smaller limit applies if it is given.
    let mut pacer = Pacer::new(pace, 10, 0, HZ, 8);
    assert_eq!(pacer.due(110, 64).frames, 8);
}

#[test]
fn a_cut_leaves_what_was_due_or_offered() {
    let cut_at = |now| {
        let mut pacer = Pacer::new(EVERY_TICK, 1000, 400, HZ, 512);
        pacer.due(1009, 32);
        pacer.cut(now);
        pacer.scheduled()
    };
    assert_eq!([900, 1005, 1300, 1900].map(cut_at), [10, 10, 300, 400]);
    let mut burst = Pacer::new(Pace::Burst(100), 0, 0, HZ, 512);
    burst.cut(0);
    assert_eq!(burst.scheduled(), 100);
    let times = Times::new(&[0], 1000, 1.0, 1_000_000_000);
    let mut timed = Pacer::new(EVERY_TICK, 0, 0, HZ, 512).by_times(Some(Arc::new(times)), 5000);
    timed.cut(0);
    assert_eq!(timed.scheduled(), 5);
}

#[test]
fn a_closed_schedule_has_what_is_left_unsent() {
    let mut pacer = Pacer::new(EVERY_TICK, 0, 400, HZ, 100);
    pacer.due(150, 32);
    assert!(!pacer.is_done());
    pacer.close();
    assert!(pacer.is_done());
    assert_eq!(
        (pacer.offered(), pacer.unsent(), pacer.scheduled()),
        (32, 368, 400)
    );
}

#[test]
fn a_frame_is_late_more_than_100_us_or_two_bursts_after_it_was_due() {
    // A frame every 50 us: the backlog never reaches 64 frames.
    let mut pacer = Pacer::new(Pace::Rate(20_000.0), 0, HZ, HZ, 512);
    let late = |pacer: &mut Pacer, now| {
        let due = pacer.due(now, 32);
        assert!(!due.late);
        (due.frames, due.late_frames)
    };
    assert_eq!(late(&mut pacer, 100), (3, 0));
    // The frames of 150 and 200 us are late; the one of 250 us is just in time.
    assert_eq!(late(&mut pacer, 350), (5, 2));
    assert_eq!((late(&mut pacer, 351), pacer.late()), ((0, 0), 2));
    // Ten in a row: those of 400 to 750 us are late.
    assert_eq!(late(&mut pacer, 851), (10, 8));
    assert_eq!(pacer.late(), 10);
    // A frame every tick: 64 frames behind are late as a whole, the remainder is not.
    let mut pacer = Pacer::new(EVERY_TICK, 0, HZ, HZ, 512);
    assert_eq!(pacer.due(63, 32).late_frames, 32);
    assert_eq!(pacer.due(63, 32).late_frames, 0);
    assert_eq!(pacer.late(), 32);
}

#[test]
fn frames_sent_later_are_late_and_frames_due_beside_them_are_not() {
    let mut pacer = Pacer::new(EVERY_TICK, 0, HZ, HZ, 8);
    // 100 frames are due: 92 are unsent, and none of the 8 sent is late.
    let due = pacer.due(99, 32);
    assert_eq!((due.frames, due.late_frames, pacer.unsent()), (8, 0, 92));
    // 500 ticks at 0.2 % allow one unsent frame.
    (100..599).for_each(|now| assert_eq!(pacer.due(now, 32).late_frames, 0));
    let due = pacer.due(599, 32);
    assert_eq!((due.frames, due.late_frames, pacer.unsent()), (2, 1, 91));
    assert_eq!(pacer.late(), 1);
}

#[test]
fn without_a_schedule_no_frame_is_late() {
    for pace in [Pace::Unpaced, Pace::Burst(1000)] {
        let mut pacer = Pacer::new(pace, 0, HZ, HZ, 512);
        assert_eq!(pacer.due(5000, 32), due(32, false));
        assert_eq!(pacer.late(), 0);
    }
    // A stall shifts this schedule, so no frame is late.
    let spread = Pace::Spread {
        frames: 100,
        rate_pps: 1e6,
    };
    let mut pacer = Pacer::new(spread, 0, HZ, HZ, 512);
    assert_eq!(pacer.due(5000, 64), due(32, false));
    // Frames with individual times: at 0 and 500 us.
    let times = Arc::new(Times::new(&[0, 500_000], 1_000_000, 1.0, HZ));
    let mut pacer = Pacer::new(EVERY_TICK, 0, HZ, HZ, 512).by_times(Some(times), 1000);
    assert_eq!(pacer.due(600, 32).late_frames, 1);
}

#[test]
fn the_highest_rate_is_that_of_the_higher_step() {
    let step = |rate_pps, then_pps| Pace::Step {
        rate_pps,
        after_s: 5.0,
        then_pps,
    };
    let rates = [step(8.0, 4.0), step(4.0, 8.0), Pace::Rate(8.0)].map(Pace::highest_rate_pps);
    assert_eq!(rates, [Some(8.0); 3]);
    assert_eq!(Pace::Unpaced.highest_rate_pps(), None);
}

#[test]
fn the_next_frame_of_a_rate_has_a_time_at_which_it_is_due() {
    let pacer = |pace| Pacer::new(pace, 1000, HZ, HZ, 8);
    let mut late = pacer(Pace::Rate(20_000.0)).stamped_when_due(true);
    assert_eq!(late.next_due(), Some(1000));
    // At 1000, 1050 and 1100.
    assert_eq!(late.due(1120, 32).frames, 3);
    assert_eq!(late.next_due(), Some(1150));
    // Twenty more are due, of which the pacer sends the latest eight. The others stay unsent.
    let due = late.due(2100, 32);
    assert_eq!((due.frames, late.unsent()), (8, 12));
    assert_eq!(late.next_due(), Some(2150));
    assert!((2101..20_000).all(|now| late.due(now, 32).frames <= 1));
    assert_eq!(late.unsent(), 12);
    // Every second frame of a shared schedule, from the second on.
    let mut second = pacer(Pace::Rate(20_000.0))
        .shared(1, 2)
        .stamped_when_due(true);
    assert_eq!(second.next_due(), Some(1050));
    assert_eq!(second.due(1050, 32).frames, 1);
    assert_eq!(second.next_due(), Some(1150));
    // Only if asked for, and only if each frame has its own time.
    assert_eq!(Pacer::new(EVERY_TICK, 0, HZ, HZ, 8).next_due(), None);
    let spread = Pace::Spread {
        frames: 100,
        rate_pps: 1e6,
    };
    for other in [
        pacer(Pace::Unpaced),
        pacer(spread),
        pacer(EVERY_TICK).in_bursts(4),
    ] {
        assert_eq!(other.stamped_when_due(true).next_due(), None);
    }
}
