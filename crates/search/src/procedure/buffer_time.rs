// SPDX-License-Identifier: Apache-2.0
//! Back-to-back frames with the device of RFC 9004, section 4 (figure 1), simulated frame by frame: a buffer of known size in front of a
//! function with a known forwarding rate. The corrected buffer time must equal that buffer.

use super::*;

/// Returns the number of frames lost of a burst with the smallest gaps.
fn lost(burst_frames: u64, max_rate_pps: f64, forwarding_pps: f64, buffer_frames: u64) -> u64 {
    let (mut waiting, mut lost, mut credit) = (0u64, 0, 0.0);
    for _ in 0..burst_frames {
        // Part of a frame forwarded until the next frame arrives.
        credit += forwarding_pps / max_rate_pps;
        while credit >= 1.0 && waiting > 0 {
            waiting -= 1;
            credit -= 1.0;
        }
        // An idle function accumulates no credit.
        credit = credit.min(1.0);
        if waiting < buffer_frames {
            waiting += 1;
        } else {
            lost += 1;
        }
    }
    lost
}

/// Returns the findings for such a device.
fn found(max_rate_pps: f64, forwarding_pps: f64, buffer_frames: u64) -> BackToBackFindings {
    let mut method = BackToBack::new(BackToBackConfig {
        max_rate_pps,
        throughput_pps: forwarding_pps,
        max_burst_frames: 200_000,
        resolution_frames: 1,
        repeats: 2,
        pause_s: 2.0,
        confidence: 0.95,
        max_invalid_repeats: 0,
    })
    .unwrap();
    loop {
        match method.step() {
            ProcedureStep::Do(Action::Burst { frames, .. }) => {
                let lost_frames = lost(frames, max_rate_pps, forwarding_pps, buffer_frames);
                method
                    .record(Observation::Passed {
                        lost_frames,
                        rate_pps: None,
                    })
                    .unwrap();
            }
            ProcedureStep::Do(other) => panic!("unexpected action {other:?}"),
            ProcedureStep::Done(result) => match result.findings {
                ProcedureFindings::BackToBack(found) => return found,
                other => panic!("findings of another method: {other:?}"),
            },
        }
    }
}

/// 64-octet frames on 10-Gbit/s Ethernet, frames per second ("Max Theoretical Frame Rate").
const TEN_GIGABIT_PPS: f64 = 14_880_952.0;

#[test]
fn the_corrected_buffer_time_reports_the_buffer_that_is_there() {
    for (throughput_pps, buffer_frames) in [
        (10_000_000.0, 1_000),
        (13_600_000.0, 512),
        (1_000_000.0, 30_000),
        (7_440_476.0, 4_096),
        (5_000_000.0, 1),
    ] {
        let found = found(TEN_GIGABIT_PPS, throughput_pps, buffer_frames);
        let reported = found.corrected_buffer_s.unwrap() * TEN_GIGABIT_PPS;
        // Tolerance: the frame being forwarded and half of another one.
        assert!(
            (reported - buffer_frames as f64).abs() < 2.0,
            "{reported} of {buffer_frames} at {throughput_pps}"
        );
        assert_eq!(found.at_limit, 0);
    }
}

#[test]
fn both_buffer_times_are_those_of_the_formulas() {
    let found = found(TEN_GIGABIT_PPS, 11_000_000.0, 700);
    let bursts = &found.longest_frames;
    // RFC 9004, section 6.4, as printed there.
    let average = bursts.iter().sum::<u64>() as f64 / bursts.len() as f64;
    let implied = average / TEN_GIGABIT_PPS;
    let corrected = implied - (implied * (11_000_000.0 / TEN_GIGABIT_PPS));
    let near = |ours: Option<f64>, printed: f64| (ours.unwrap() / printed - 1.0).abs() < 1e-12;
    assert!(near(found.implied_buffer_s, implied));
    assert!(near(found.corrected_buffer_s, corrected));
    // The implied buffer time includes the frames forwarded meanwhile.
    assert!(implied > 3.0 * corrected);
}
