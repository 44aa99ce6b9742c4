// SPDX-License-Identifier: Apache-2.0
//! Classification of received frames, kind by kind.

mod in_place;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::traffic::Cover;
use crate::watch::{Pulse, last_loss};

/// Octets before the signature: a header with a correct checksum if all its bits are set.
const HEAD: usize = 4;
const HZ: u64 = 1_000_000_000;
const EPOCH: u64 = 3;

fn epoch() -> Epoch {
    Epoch::of_trial(EPOCH)
}

/// Returns a frame of a port, flow and number, sent at a tick.
fn frame(port: u8, flow: u16, sequence: u32, tick: u64) -> Vec<u8> {
    with_epoch(epoch(), port, flow, sequence, tick)
}

fn with_epoch(epoch: Epoch, port: u8, flow: u16, sequence: u32, tick: u64) -> Vec<u8> {
    let signature = Signature {
        epoch,
        port,
        flow,
        sequence,
        tick,
    };
    let mut frame = vec![0xff; HEAD];
    frame.extend(signature.octets());
    frame
}

/// Returns the statistics of a port that receives the frames of port 1. There are three ports, each with two flows and a low-rate stream.
fn observed() -> Received {
    let marks = FrameIdentity {
        place: HEAD,
        flows: 3,
        source: 1,
        window: 512,
        checksums: Checksums::new(vec![Cover::Header(0..HEAD)]),
        pattern: None,
        replayed: None,
    };
    Received::new(epoch(), 10, marks, 3, HZ)
}

fn record(observed: &mut Received, frames: &[Vec<u8>], now: u64) {
    observed.record(frames.iter().map(Vec::as_slice), now);
}

/// Returns the number of frames received of each flow, by source port.
fn received(observed: &Received) -> Vec<u64> {
    observed
        .trackers
        .iter()
        .map(|flow| flow.received())
        .collect()
}

/// Returns number of samples, smallest, mean and largest latency.
fn latency(observed: &Received) -> (u64, u64, f64, u64) {
    let summary = observed.latency.summary().unwrap();
    (
        summary.samples,
        summary.min_ns,
        summary.mean_ns,
        summary.max_ns,
    )
}

#[test]
fn each_frame_has_the_latency_of_its_burst() {
    let mut observed = observed();
    let bursts = [
        frame(1, 0, 0, 1000),
        frame(1, 1, 0, 1000),
        frame(1, 0, 1, 1060),
        frame(1, 0, 2, 1080),
    ];
    record(&mut observed, &bursts, 1100);
    // 100, 100, 40, 20.
    assert_eq!(latency(&observed), (4, 20, 65.0, 100));
    assert_eq!(received(&observed), [0, 0, 0, 3, 1, 0, 0, 0, 0]);
    assert_eq!(
        (observed.foreign, observed.unknown, observed.damaged),
        (0, 0, 0)
    );
}

#[test]
fn a_burst_without_frames_of_the_trial_has_no_latency() {
    let mut observed = observed();
    record(&mut observed, &[vec![0; 60]], 500);
    record(&mut observed, &[frame(1, 0, 0, 1000)], 1100);
    record(&mut observed, &[], 1200);
    assert_eq!(latency(&observed), (1, 100, 100.0, 100));
}

#[test]
fn a_frame_that_arrives_at_the_tick_at_which_it_was_sent_counts() {
    let mut observed = observed();
    record(&mut observed, &[frame(1, 0, 0, 1000)], 1000);
    assert_eq!(latency(&observed), (1, 0, 0.0, 0));
}

#[test]
fn duplicates_and_stale_frames_have_no_latency() {
    let mut observed = observed();
    let frames = [
        frame(1, 0, 0, 1000),
        frame(1, 0, 0, 1010),
        frame(1, 0, 2000, 1020),
        frame(1, 0, 5, 1030),
    ];
    record(&mut observed, &frames, 1100);
    assert_eq!(latency(&observed), (2, 80, 90.0, 100));
    let flow = observed.trackers.get(3).unwrap();
    assert_eq!(
        (flow.received(), flow.duplicates(), flow.stale()),
        (2, 1, 1)
    );
}

#[test]
fn every_frame_of_the_trial_is_counted_once_whatever_its_kind() {
    let mut observed = observed();
    let sequences = [0, 1, 2, 3, 4, 2000];
    let mut frames: Vec<Vec<u8>> = sequences
        .map(|sequence| frame(1, 0, sequence, 1000))
        .to_vec();
    // Three duplicates, and two stale frames just behind the window of 512.
    frames.extend([2000, 2000, 1999, 1999].map(|sequence| frame(1, 0, sequence, 1000)));
    frames.extend([10, 11].map(|sequence| frame(1, 0, sequence, 1000)));
    // Four foreign, five unknown, eight damaged.
    frames.extend(vec![vec![0; 60]; 4]);
    frames.extend(vec![frame(1, 9, 0, 1000); 5]);
    let mut damaged = frame(1, 0, 5, 1000);
    damaged[0] = 0;
    frames.extend(vec![damaged; 8]);
    record(&mut observed, &frames, 1100);
    let flow = observed.trackers.get(3).unwrap();
    assert_eq!(
        (flow.received(), flow.duplicates(), flow.stale()),
        (7, 3, 2)
    );
    assert_eq!(
        (observed.foreign, observed.unknown, observed.damaged),
        (4, 5, 8)
    );
    assert_eq!(observed.counted(), 29);
}

#[test]
fn misdirected_frames_are_counted_and_have_no_latency() {
    let mut observed = observed();
    let frames = [frame(0, 1, 0, 1000), frame(2, 0, 0, 1000)];
    record(&mut observed, &frames, 1100);
    assert_eq!(received(&observed), [0, 1, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(latency(&observed).0, 0);
    assert_eq!(observed.samples.len(), 0);
}

#[test]
fn flows_and_ports_that_the_trial_has_not_are_unknown() {
    let mut observed = observed();
    let frames = [
        // The index would be the first flow of port 2.
        frame(1, 3, 0, 1000),
        frame(1, 100, 0, 1000),
        frame(3, 0, 0, 1000),
    ];
    record(&mut observed, &frames, 1100);
    assert_eq!((observed.unknown, observed.foreign), (3, 0));
    assert_eq!(received(&observed), [0; 9]);
    assert_eq!(latency(&observed).0, 0);
}

#[test]
fn frames_of_others_are_foreign_and_those_of_the_warm_up_are_nothing() {
    let mut observed = observed();
    let frames = [
        vec![0xff; 60],
        with_epoch(Epoch::of_trial(EPOCH + 1), 1, 0, 0, 1000),
        with_epoch(epoch().warm_up(), 1, 0, 0, 1000),
        frame(1, 0, 0, 1000)[..HEAD + 5].to_vec(),
    ];
    record(&mut observed, &frames, 1100);
    assert_eq!(
        (observed.foreign, observed.unknown, observed.damaged),
        (3, 0, 0)
    );
    assert_eq!(received(&observed), [0; 9]);
}

#[test]
fn damaged_frames_count_only_if_they_are_of_the_trial() {
    let damaged = |mut frame: Vec<u8>| {
        frame[0] = 0;
        frame
    };
    let mut observed = observed();
    let frames = [
        damaged(frame(1, 0, 0, 1000)),
        damaged(frame(1, 0, 1, 1000)),
        damaged(with_epoch(epoch().warm_up(), 1, 0, 0, 1000)),
        // A frame that lost the magic number as well.
        vec![0; 60],
        frame(1, 0, 2, 1000),
    ];
    record(&mut observed, &frames, 1100);
    assert_eq!((observed.damaged, observed.foreign), (2, 1));
    assert_eq!(received(&observed)[3], 1);
    assert_eq!(latency(&observed).0, 1);
}

#[test]
fn frames_of_the_low_rate_stream_are_listed_and_make_no_variation_of_the_load() {
    let mut observed = observed();
    let frames = [
        frame(1, 2, 0, 1000),
        frame(1, 2, 1, 1030),
        frame(1, 0, 0, 1040),
        frame(1, 0, 1, 1050),
        frame(1, 1, 0, 1050),
        frame(1, 1, 1, 1050),
        frame(1, 1, 2, 1050),
    ];
    record(&mut observed, &frames, 1100);
    let stream = observed.samples.of_port(1).ipdv().summary(0).unwrap();
    assert_eq!((observed.samples.len(), stream.min_ns), (2, -30));
    // 50 - 60 in the first flow, two differences of zero.
    let ipdv = observed.delays.ipdv.summary(0).unwrap();
    assert_eq!((ipdv.samples, ipdv.min_ns, ipdv.max_ns), (3, -10, 0));
    assert_eq!(latency(&observed).0, 7);
    // The next frames continue the sequence: 100 - 50, then a difference of zero.
    record(
        &mut observed,
        &[frame(1, 0, 2, 1100), frame(1, 1, 3, 1150)],
        1200,
    );
    let ipdv = observed.delays.ipdv.summary(0).unwrap();
    assert_eq!((ipdv.samples, ipdv.min_ns, ipdv.max_ns), (5, -10, 50));
    assert_eq!(ipdv.mean_ns, 8.0);
}

#[test]
fn frames_are_counted_by_transmit_and_receive_time() {
    let mut observed = observed();
    let slices = || Slices::new(0, HZ / 1000, HZ);
    let pulse = Arc::<Pulse>::default();
    observed.times.slices = Some(slices());
    observed.times.arrivals = Some(Arrivals::new(
        Arc::new(AtomicBool::new(true)),
        Arc::clone(&pulse),
    ));
    let frames = [
        frame(1, 0, 0, 50),
        frame(1, 1, 0, 50),
        frame(1, 0, 1, 150_000),
        frame(1, 0, 2, 250_000),
    ];
    record(&mut observed, &frames, 300_000);
    let mut sent = slices();
    for (tick, count) in [(50, 2), (150_000, 1), (250_000, 1)] {
        sent.add(tick, count);
    }
    let came = observed.times.slices.clone().unwrap();
    // All frames sent arrived, and no others.
    assert_eq!(last_loss(&sent, &came), Some(0));
    for tick in [50, 150_000] {
        let mut more = sent.clone();
        more.add(tick, 1);
        assert!(last_loss(&more, &came).is_some_and(|ticks| ticks > 0));
    }
    assert_eq!(pulse.last.load(Ordering::Relaxed), 300_000);
    // A frame without latency does not end a silence.
    record(
        &mut observed,
        &[vec![0; 60], frame(1, 0, 2, 250_000)],
        350_000,
    );
    assert_eq!(pulse.last.load(Ordering::Relaxed), 300_000);
    record(&mut observed, &[frame(1, 0, 3, 380_000)], 400_000);
    let arrivals = observed.times.arrivals.as_ref().unwrap();
    assert_eq!(arrivals.silence(), Some(100_000));
}

/// Returns a capture of two frames in the format of libpcap.
fn capture() -> Capture {
    let words =
        |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|it| it.to_le_bytes()).collect() };
    // Magic number, version 2.4, time zone, accuracy, longest frame, Ethernet.
    let mut file = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1]);
    for fill in [1, 2] {
        file.extend(words(&[0, 0, 60, 60]));
        file.extend([fill; 60]);
    }
    Capture::parse(&file).unwrap()
}

#[test]
fn replayed_frames_are_counted_by_their_trailer() {
    let marks = FrameIdentity {
        place: HEAD,
        flows: 2,
        source: 1,
        window: 512,
        checksums: Checksums::new(Vec::new()),
        pattern: None,
        replayed: Some((Arc::new(capture()), 1)),
    };
    let mut observed = Received::new(epoch(), 0, marks, 3, HZ);
    let frames = [
        vec![1; 60],
        vec![2; 60],
        vec![3; 60],
        vec![1; 60],
        vec![4; 60],
    ];
    record(&mut observed, &frames, 1000);
    assert_eq!(received(&observed), [0, 0, 3, 0, 0, 0]);
    assert_eq!((observed.foreign, latency(&observed).0), (2, 0));
}
