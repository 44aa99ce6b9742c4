// SPDX-License-Identifier: Apache-2.0
//! Results assembled by hand: two or four ports, each with one flow and a low-rate stream.

use super::*;
use crate::checksums::Checksums;
use crate::damage_check::DamageCheck;
use crate::frame::{Epoch, Signature};
use crate::latency::Sample;
use crate::pacer::Pace;
use crate::received::FrameIdentity;
use crate::trial::{FrameSizes, LatencyStart};

/// Ticks per second. The timestamps of received frames use one tick per nanosecond.
const HZ: u64 = 2_000_000_000;
const START: u64 = 1000;
/// One second after the start.
const END: u64 = START + HZ;
/// Ports whose frames a lane recognises.
const PORTS_MAX: usize = 4;

fn trial() -> Trial {
    Trial {
        low_rate_pps: 5.0,
        ..Trial::new(1000.0, 1.0, FrameSizes::Fixed(64))
    }
}

fn times() -> Timetable {
    Timetable {
        epoch: Epoch::default(),
        pace: Pace::Rate(500.0),
        low_rate_pps: 5.0,
        burst: 1,
        times: None,
        latency_start: LatencyStart::Sent,
        ticks_per_second: HZ,
        learning_end: 0,
        warm_up_start: 0,
        start: START,
        end: END,
        limit: END,
        drain: 0,
        drain_end: END + 1000,
        ends_with_frames: false,
        ends_when_complete: false,
        leave: crate::engine::Leave::Never,
    }
}

/// Returns a lane of a port that offered these numbers of frames (flow, low-rate stream) and counts the frames of `source`.
fn lane(port: usize, source: usize, offered: [u64; 2]) -> LaneResult {
    let marks = FrameIdentity {
        place: 0,
        flows: 2,
        source,
        window: 512,
        checksums: Checksums::new(Vec::new()),
        pattern: None,
        replayed: None,
    };
    LaneResult {
        port,
        received: Received::new(Epoch::default(), 10, marks, PORTS_MAX, 1_000_000_000),
        sent: Sent::default(),
        slices: None,
        low_rate_ticks: Vec::new(),
        series: LaneSeries::default(),
        scheduled: offered.iter().sum(),
        unsent: 0,
        stalled: 0,
        offered: offered.iter().sum(),
        late: 0,
        missed_at_most: 0,
        low_rate_missed: 0,
        link_losses: 0,
        offered_of_flow: offered.to_vec(),
    }
}

/// Records the arrival of frames of a flow, each after its delay in nanoseconds.
fn arrive(lane: &mut LaneResult, (port, flow): (u8, u16), frames: &[(u32, u64)]) {
    const NOW: u64 = 1_000_000;
    for (sequence, delay) in frames {
        let signature = Signature {
            epoch: Epoch::default(),
            port,
            flow,
            sequence: *sequence,
            tick: NOW - delay,
        };
        lane.received
            .record([&signature.octets()[..]].into_iter(), NOW);
    }
}

fn assembled(lanes: &[LaneResult]) -> TrialResult {
    let names = ["left".to_owned(), "right".to_owned()];
    assemble(&trial(), &times(), &names, 2, lanes, &[]).unwrap()
}

fn evenly(count: u32, delay: u64) -> Vec<(u32, u64)> {
    (0..count).map(|sequence| (sequence, delay)).collect()
}

/// Returns two lanes. Of ten frames of the left port's flow, frame 4 is lost, 6 arrives after 7, and 2 arrives twice. Of 20 frames of the
/// right port's flow, the last two are lost. Two of the left port's frames come back to it. Of the low-rate streams, 2 of 2 and 1 of 3
/// frames arrive.
fn lanes() -> [LaneResult; 2] {
    let mut left = lane(0, 1, [10, 2]);
    let mut right = lane(1, 0, [20, 3]);
    let sequences = [0u32, 1, 2, 3, 2, 5, 7, 6, 8, 9];
    let frames = sequences.map(|sequence| (sequence, 1000 + 10 * u64::from(sequence)));
    arrive(&mut right, (0, 0), &frames);
    arrive(&mut right, (0, 1), &[(0, 2000), (1, 2100)]);
    arrive(&mut left, (1, 0), &evenly(18, 500));
    arrive(&mut left, (1, 1), &[(0, 700)]);
    arrive(&mut left, (0, 0), &evenly(2, 40));
    [left, right]
}

#[test]
fn frames_are_lost_that_were_offered_and_did_not_count_at_the_other_port() {
    let mut lanes = lanes();
    (lanes[0].scheduled, lanes[0].unsent) = (20, 4);
    (lanes[1].scheduled, lanes[1].unsent) = (30, 1);
    (lanes[0].stalled, lanes[1].stalled) = (2, 1);
    lanes[1].sent.last_tick = END + HZ / 2;
    let result = assembled(&lanes);
    assert_eq!((result.scheduled_frames, result.offered_frames), (50, 35));
    assert_eq!((result.received_frames, result.lost_frames), (30, 5));
    assert_eq!(result.loss_ratio, 5.0 / 35.0);
    assert_eq!((result.duplicate_frames, result.reordered_frames), (1, 1));
    assert_eq!((result.damaged_frames, result.stale_frames), (0, 0));
    assert_eq!(result.damage_check, Some(DamageCheck::AfterEthernetHeader));
    // The last burst left after one and a half seconds.
    assert_eq!(result.elapsed_s, 1.5);
    assert_eq!(result.achieved_rate_pps, 35.0 / 1.5);
    assert_eq!(result.forwarding_rate_pps, 20.0);
    let health = &result.health;
    assert_eq!((health.unsent_frames, health.pacing_miss_ratio), (5, 0.1));
    assert_eq!(health.stalled_unsent_frames, 3);
    assert_eq!((health.excess_frames, health.phantom_frames), (0, 0));
}

#[test]
fn a_trial_lasts_at_least_as_long_as_its_schedule() {
    let mut lanes = lanes();
    lanes[0].sent.last_tick = START + HZ / 2;
    let result = assembled(&lanes);
    assert_eq!(result.elapsed_s, 1.0);
    assert_eq!(result.achieved_rate_pps, 35.0);
}

#[test]
fn a_trial_without_length_has_no_rates() {
    let times = Timetable {
        end: START,
        ..times()
    };
    let names = ["left".to_owned(), "right".to_owned()];
    let result = assemble(&trial(), &times, &names, 2, &lanes(), &[]).unwrap();
    assert_eq!(result.elapsed_s, 0.0);
    assert_eq!(
        (result.achieved_rate_pps, result.forwarding_rate_pps),
        (0.0, 0.0)
    );
}

#[test]
fn nothing_offered_is_no_loss() {
    let result = assembled(&[lane(0, 1, [0, 0]), lane(1, 0, [0, 0])]);
    assert_eq!((result.lost_frames, result.loss_ratio), (0, 0.0));
    assert!(result.flows.is_empty());
}

#[test]
fn each_port_reports_what_it_offered_and_received() {
    let mut lanes = lanes();
    let (left, right) = lanes.split_at_mut(1);
    (left[0].sent.refused, right[0].sent.refused) = (3, 4);
    (left[0].link_losses, right[0].link_losses) = (5, 6);
    (left[0].received.damaged, right[0].received.damaged) = (7, 8);
    (left[0].received.foreign, right[0].received.foreign) = (9, 10);
    let result = assembled(&lanes);
    assert_eq!(result.damaged_frames, 15);
    let expected = [
        ("left", 12, 3, 19, 7, 9, 2, 5),
        ("right", 23, 4, 11, 8, 10, 0, 6),
    ];
    let reported: Vec<_> = result
        .ports
        .iter()
        .map(|port| {
            (
                port.name.as_str(),
                port.offered_frames,
                port.refused_frames,
                port.received_frames,
                port.damaged_frames,
                port.foreign_frames,
                port.misdirected_frames,
                port.link_losses,
            )
        })
        .collect();
    assert_eq!(reported, expected);
}

#[test]
fn flows_are_listed_in_which_something_happened() {
    let flow = |port, flow, [offered, received, duplicates, reordered]: [u64; 4]| FlowResult {
        port,
        flow,
        offered_frames: offered,
        received_frames: received,
        duplicate_frames: duplicates,
        reordered_frames: reordered,
        misdirected: Vec::new(),
    };
    assert_eq!(
        assembled(&lanes()).flows,
        [
            FlowResult {
                misdirected: vec![Misdirected { port: 0, frames: 2 }],
                ..flow(0, 0, [10, 9, 1, 1])
            },
            flow(1, 0, [20, 18, 0, 0]),
            flow(1, 1, [3, 1, 0, 0]),
        ]
    );
    // One event per flow: a duplicate, and reordered frames.
    let (mut left, mut right) = (lane(0, 1, [2, 0]), lane(1, 0, [2, 0]));
    arrive(&mut right, (0, 0), &[(0, 10), (1, 10), (1, 10)]);
    arrive(&mut left, (1, 0), &[(1, 10), (0, 10)]);
    assert_eq!(
        assembled(&[left, right]).flows,
        [flow(0, 0, [2, 2, 1, 0]), flow(1, 0, [2, 2, 0, 1])]
    );
}

#[test]
fn flows_tell_where_their_frames_went_instead() {
    let names = ["p0", "p1", "p2", "p3"].map(str::to_owned);
    let assembled = |lanes: &[LaneResult]| {
        let result = assemble(&trial(), &times(), &names, 4, lanes, &[]).unwrap();
        let reported = |flow: FlowResult| {
            let places = flow.misdirected.iter().map(|it| (it.port, it.frames));
            (flow.port, flow.received_frames, places.collect::<Vec<_>>())
        };
        let misdirected = result.ports.iter().map(|port| port.misdirected_frames);
        (
            result.lost_frames,
            misdirected.collect::<Vec<_>>(),
            result.flows.into_iter().map(reported).collect::<Vec<_>>(),
        )
    };
    let lanes =
        || [(0, 1), (1, 0), (2, 3), (3, 2)].map(|(port, source)| lane(port, source, [4, 0]));
    // The first two ports' frames come back. Of port 2, three frames arrive at port 1, and one of them at port 3 as well.
    let mut partly = lanes();
    arrive(&mut partly[1], (0, 0), &evenly(4, 10));
    arrive(&mut partly[0], (1, 0), &evenly(4, 10));
    arrive(&mut partly[1], (2, 0), &evenly(3, 10));
    arrive(&mut partly[3], (2, 0), &evenly(1, 10));
    arrive(&mut partly[2], (3, 0), &evenly(4, 10));
    let reported = vec![(2, 1, vec![(1, 3)])];
    assert_eq!(assembled(&partly), (3, vec![0, 3, 0, 0], reported));
    // A misdirected copy of a flow without loss.
    let mut copied = lanes();
    for (port, source) in [(0, 1), (1, 0), (2, 3), (3, 2)] {
        arrive(&mut copied[port], (source, 0), &evenly(4, 10));
    }
    arrive(&mut copied[3], (0, 0), &evenly(2, 10));
    let reported = vec![(0, 4, vec![(3, 2)])];
    assert_eq!(assembled(&copied), (0, vec![0, 0, 0, 2], reported));
}

#[test]
fn latency_is_that_of_all_frames_that_counted() {
    let latency = assembled(&lanes()).latency;
    assert_eq!(
        (latency.samples, latency.min_ns, latency.max_ns),
        (30, 500, 2100)
    );
    // 1000 ns plus ten per number, for nine numbers with the sum 41.
    let sum = 9410 + 2000 + 2100 + 18 * 500 + 700;
    assert_eq!(latency.mean_ns, f64::from(sum) / 30.0);
}

#[test]
fn variation_is_within_flows_and_above_the_minimum_of_each_port() {
    let variation = assembled(&lanes()).variation;
    // Of 9 and 19 pairs of the load, 7 and 17 are complete.
    let ipdv = &variation.ipdv;
    assert_eq!((ipdv.samples, ipdv.undefined), (24, 4));
    assert_eq!((ipdv.min_ns, ipdv.max_ns), (0, 10));
    // The smallest delays at the ports are 1000 and 500 ns.
    let pdv = &variation.pdv;
    assert_eq!((pdv.samples, pdv.min_ns, pdv.max_ns), (30, 0, 1100));
    assert_eq!(pdv.mean_ns, f64::from(410 + 1000 + 1100 + 200) / 30.0);
}

#[test]
fn the_queues_of_a_port_have_one_smallest_delay() {
    let (mut one, mut two) = (lane(1, 0, [0, 0]), lane(1, 0, [0, 0]));
    let sender = lane(0, 1, [4, 0]);
    arrive(&mut one, (0, 0), &[(0, 100), (1, 120)]);
    arrive(&mut two, (0, 0), &[(2, 300), (3, 310)]);
    let result = assembled(&[one, two, sender]);
    let pdv = &result.variation.pdv;
    assert_eq!((pdv.samples, pdv.min_ns, pdv.max_ns), (4, 0, 210));
    assert_eq!(result.lost_frames, 0);
    assert_eq!(result.ports[1].received_frames, 4);
}

#[test]
fn low_rate_streams_are_reported_together() {
    let low_rate = assembled(&lanes()).low_rate;
    assert_eq!(low_rate.rate_pps, 5.0);
    assert_eq!((low_rate.offered_frames, low_rate.received_frames), (5, 3));
    let latency = &low_rate.latency;
    assert_eq!(
        (latency.samples, latency.min_ns, latency.max_ns),
        (3, 700, 2100)
    );
    // One pair of three is complete.
    let (ipdv, pdv) = (&low_rate.variation.ipdv, &low_rate.variation.pdv);
    assert_eq!((ipdv.samples, ipdv.undefined, ipdv.min_ns), (1, 2, 100));
    assert_eq!((pdv.samples, pdv.min_ns, pdv.max_ns), (3, 0, 100));
}

#[test]
fn percentiles_among_the_frames_that_were_not_sent_in_time_are_withheld() {
    let kept = |unsent, late| {
        let mut lanes = lanes();
        lanes[0].received.latency.record(1000, 200_000);
        lanes[0].received.delays.ipdv.record(5, 200_000);
        (lanes[0].scheduled, lanes[0].unsent) = (100, unsent);
        (lanes[1].scheduled, lanes[1].late) = (100, late);
        let result = assembled(&lanes);
        let some = |percentiles: [Option<u64>; 5]| percentiles.map(|it| it.is_some());
        let ipdv = result.variation.ipdv.percentiles();
        assert_eq!(
            ipdv.map(|it| it.is_some()),
            some(result.latency.percentiles())
        );
        assert_eq!(
            some(result.variation.pdv.percentiles()),
            some(result.latency.percentiles())
        );
        some(result.latency.percentiles())
    };
    assert_eq!(kept(0, 0), [true; 5]);
    // One part in a hundred of the whole schedule.
    for (unsent, late) in [(2, 0), (0, 2), (1, 1)] {
        assert_eq!(kept(unsent, late), [true, true, false, false, false]);
    }
}

#[test]
fn percentiles_since_frames_were_due_include_late_frames_but_not_unsent_ones() {
    let kept = |unsent, late| {
        let mut lanes = lanes();
        lanes[0].received.latency.record(1000, 200_000);
        (lanes[0].scheduled, lanes[0].unsent) = (100, unsent);
        (lanes[1].scheduled, lanes[1].late) = (100, late);
        let times = Timetable {
            latency_start: LatencyStart::Due,
            ..times()
        };
        let names = ["left".to_owned(), "right".to_owned()];
        let threads = [LoopHealth::default()];
        let result = assemble(&trial(), &times, &names, 2, &lanes, &threads).unwrap();
        result.latency.percentiles().map(|it| it.is_some())
    };
    assert_eq!(kept(0, 50), [true; 5]);
    assert_eq!(kept(2, 50), [true, true, false, false, false]);
}

#[test]
fn percentiles_among_the_low_rate_frames_that_were_not_sent_in_time_are_withheld() {
    let kept = |missed| {
        let mut lanes = lanes();
        for sequence in 0..20 {
            lanes[0].received.samples.add(Sample {
                port: 1,
                sequence,
                delay_ns: 1000,
            });
        }
        lanes[0].offered_of_flow[1] = 5;
        lanes[1].offered_of_flow[1] = 15;
        lanes[1].low_rate_missed = missed;
        let latency = assembled(&lanes).low_rate.latency;
        latency.percentiles().map(|it| it.is_some())
    };
    // Twenty samples are enough for the 50th percentile. As many missed frames are half of the stream.
    assert_eq!(kept(0), [true, false, false, false, false]);
    assert_eq!(kept(19), [true, false, false, false, false]);
    assert_eq!(kept(20), [false; 5]);
}

#[test]
fn more_than_was_offered_is_excess_and_unused_numbers_are_phantoms() {
    let (mut left, mut right) = (lane(0, 1, [5, 0]), lane(1, 0, [4, 0]));
    arrive(&mut right, (0, 0), &evenly(7, 10));
    arrive(&mut left, (1, 0), &evenly(7, 10));
    (left.received.unknown, right.received.unknown) = (10, 20);
    let result = assembled(&[left, right]);
    assert_eq!(result.health.excess_frames, 2 + 3);
    assert_eq!(result.health.phantom_frames, 2 + 3 + 30);
    // Excess of one flow does not hide loss of another. Here no frame is lost.
    assert_eq!(result.lost_frames, 0);
}

#[test]
fn frames_of_a_port_that_sent_nothing_are_phantoms() {
    let (left, mut right) = (lane(0, 1, [5, 0]), lane(1, 0, [0, 0]));
    right.offered_of_flow.clear();
    let mut lanes = [left, right];
    arrive(&mut lanes[0], (1, 0), &evenly(3, 10));
    let result = assembled(&lanes);
    assert_eq!(result.health.phantom_frames, 3);
    assert_eq!(result.health.excess_frames, 3);
}

#[test]
fn frames_behind_the_window_are_reported_and_do_not_count() {
    let (left, mut right) = (lane(0, 1, [2000, 0]), lane(1, 0, [0, 0]));
    let frames: Vec<(u32, u64)> = [0, 1999, 1, 2].map(|sequence| (sequence, 10)).to_vec();
    arrive(&mut right, (0, 0), &frames);
    let result = assembled(&[left, right]);
    assert_eq!((result.stale_frames, result.received_frames), (2, 2));
    assert_eq!(result.lost_frames, 1998);
}

#[test]
fn frames_that_the_device_sends_back_count_where_they_came_from() {
    let reflected = Trial {
        reflected: true,
        ..trial()
    };
    let (mut left, right) = (lane(0, 0, [3, 0]), lane(1, 1, [0, 0]));
    arrive(&mut left, (0, 0), &evenly(3, 10));
    let names = ["left".to_owned(), "right".to_owned()];
    let result = assemble(&reflected, &times(), &names, 2, &[left, right], &[]).unwrap();
    assert_eq!((result.received_frames, result.lost_frames), (3, 0));
    assert_eq!(result.ports[0].misdirected_frames, 0);
    // The frames of an unpaired port come back to it.
    let mut alone = lane(0, 0, [3, 0]);
    arrive(&mut alone, (0, 0), &evenly(3, 10));
    let result = assemble(&trial(), &times(), &names[..1], 1, &[alone], &[]).unwrap();
    assert_eq!(result.lost_frames, 0);
}

#[test]
fn the_result_contains_the_health_of_the_tester() {
    let mut lanes = lanes();
    for (lane, by) in lanes.iter_mut().zip([1, 10]) {
        lane.sent = Sent {
            bursts: 7 * by,
            late_bursts: 2 * by,
            generate_ticks: 350 * by,
            check_ticks: 900 * by,
            checked: 30 * by,
            last_tick: END + 100_000_000 * by,
            ..Sent::default()
        };
        (lane.missed_at_most, lane.late) = (5 * by, 3 * by);
        lane.sent.gaps.record(1000 * by, 2);
        lane.sent.stalled_gaps.record(200_000 * by, 1);
    }
    let threads = [
        LoopHealth {
            longest_gap: 4000,
            longest_host_gap: 300,
            host_stalls: 2,
            host_stall_ticks: 500,
            gaps_over_100us: 1,
            gap_ticks: 6000,
            idle_ticks: 300,
            offer_ticks: 1000,
            aborted: false,
            ended: END + 1000,
        },
        LoopHealth {
            longest_gap: 2000,
            longest_host_gap: 500,
            host_stalls: 1,
            host_stall_ticks: 500,
            gaps_over_100us: 2,
            gap_ticks: 8000,
            idle_ticks: 50,
            offer_ticks: 500,
            aborted: false,
            ended: END + 1000 + 600,
        },
    ];
    let names = ["left".to_owned(), "right".to_owned()];
    let health = assemble(&trial(), &times(), &names, 2, &lanes, &threads)
        .unwrap()
        .health;
    assert_eq!((health.bursts, health.late_bursts), (77, 22));
    assert_eq!((health.missed_at_most_frames, health.late_frames), (55, 33));
    // Cycles per frame for 35 frames offered and 330 received.
    assert_eq!((health.generate_cycles, health.check_cycles), (110.0, 30.0));
    // Two ticks per nanosecond.
    let gaps = (health.longest_gap_ns, health.longest_host_gap_ns);
    assert_eq!(gaps, (2000, 250));
    assert_eq!((health.gaps_over_100us, health.gap_time_ns), (3, 7000));
    assert_eq!((health.host_stalls, health.host_stall_time_ns), (3, 500));
    assert_eq!(health.overrun_ns, 300);
    // Of the busier thread.
    assert_eq!(health.idle_ratio, Some(0.1));
    let burst_gaps = &health.burst_gaps;
    assert_eq!(
        (burst_gaps.samples, burst_gaps.min_ns, burst_gaps.max_ns),
        (4, 1000, 10_000)
    );
    let stalled = &health.stalled_gaps;
    assert_eq!((stalled.samples, stalled.max_ns), (2, 2_000_000));
    // 32 frames at 500 frames per second.
    assert_eq!(health.burst_time_ns, 64e6);
    // The traffic lasted 0.5 s longer than 1 s.
    assert_eq!(health.stretch_ratio, 0.5);
}

#[test]
fn the_error_of_the_rate_is_that_of_a_constant_rate() {
    let lanes = lanes();
    // 35 frames in one second.
    let paced = assembled(&lanes);
    let expected = 35.0 / paced.trial.offered_rate_pps - 1.0;
    assert_eq!(paced.health.rate_error_ratio, Some(expected));
    let times = Timetable {
        pace: Pace::Unpaced,
        ..times()
    };
    let names = ["left".to_owned(), "right".to_owned()];
    let unpaced = assemble(&trial(), &times, &names, 2, &lanes, &[]).unwrap();
    assert_eq!(unpaced.health.rate_error_ratio, None);
}

#[test]
fn frames_that_the_tester_could_not_send_are_not_offered() {
    let offer = Offer {
        schedule: Some(Schedule {
            frames: 100,
            unsent: 20,
        }),
        written: 77,
        low_rate: 4,
        no_buffers: 3,
        abandoned: 7,
    };
    assert_eq!((offer.frames(), offer.unsent()), (70, 30));
    // Two flows of the load, and the low-rate stream.
    assert_eq!(offer.of_flows(3, |flow| 40 + u64::from(flow)), [40, 41, 4]);
    let silent = Offer {
        schedule: None,
        ..offer
    };
    assert_eq!((silent.frames(), silent.unsent()), (0, 10));
    assert!(silent.of_flows(3, |_| 1).is_empty());
}

#[test]
fn a_thread_that_offered_nothing_has_no_idle_share() {
    let idle = |offer_ticks, idle_ticks| LoopHealth {
        offer_ticks,
        idle_ticks,
        ..LoopHealth::default()
    };
    let ratio = |threads: &[LoopHealth]| health(&[], threads, &times()).unwrap().idle_ratio;
    assert_eq!(ratio(&[idle(0, 0), idle(100, 40)]), Some(0.4));
    assert_eq!(ratio(&[idle(0, 0)]), None);
}
