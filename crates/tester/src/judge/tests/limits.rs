// SPDX-License-Identifier: Apache-2.0
//! Values exactly at a limit are within it, and reasons name the limits.

use super::{clean, reasons};
use crate::judge::{Limits, judge};
use crate::trial::{PortResult, TrialResult};
use crate::validity::InvalidCause;

/// Limits that differ from the default ones and from each other.
const LIMITS: Limits = Limits {
    pacing_miss_ratio: 0.03,
    stretch_ratio: 0.05,
    clock_error_ratio: 0.007,
    overrun_s: 2.0,
};

fn texts(change: impl Fn(&mut TrialResult)) -> Vec<String> {
    let mut result = clean();
    change(&mut result);
    let validity = judge(&result, LIMITS, &[]);
    validity
        .reasons()
        .iter()
        .map(|reason| reason.text.clone())
        .collect()
}

#[test]
fn values_at_their_limits_are_valid() {
    let at_limit = texts(|result| {
        result.health.pacing_miss_ratio = 0.03;
        result.health.stretch_ratio = 0.05;
        result.health.clock_error_ratio = -0.007;
        result.health.overrun_ns = 2_000_000_000;
        // A hundredth of the loss.
        result.lost_frames = 700;
        result.health.missed_at_most_frames = 7;
    });
    assert_eq!(at_limit, Vec::<String>::new());
}

#[test]
fn a_missed_rate_is_reported_with_its_limit() {
    let missed = texts(|result| {
        result.health.pacing_miss_ratio = 0.04;
        result.offered_frames = 960;
    });
    assert_eq!(
        missed,
        [
            "the tester offered 960 of 1000 frames of its schedule: the rate was missed by 4.000 % (limit: 3.000 %)"
        ]
    );
}

#[test]
fn a_stretched_trial_is_reported_with_its_limit() {
    assert_eq!(
        texts(|result| result.health.stretch_ratio = 0.06),
        ["the traffic lasted 6.000 % longer than the requested 1 s (limit: 5.000 %)"]
    );
}

#[test]
fn clocks_that_disagree_are_reported_with_their_limit() {
    for error in [0.008, -0.008] {
        let reported = texts(|result| result.health.clock_error_ratio = error);
        assert_eq!(reported.len(), 1);
        assert!(
            reported[0]
                .contains("disagree by 0.800 % about the length of the trial (limit: 0.700 %)"),
            "{reported:?}"
        );
    }
}

#[test]
fn an_overrun_counts_from_a_nanosecond_over_its_limit() {
    assert_eq!(
        texts(|result| result.health.overrun_ns = 2_000_000_001),
        ["the trial ended 2.000 s after its deadline: the tester stalled"]
    );
}

#[test]
fn frames_that_the_tester_missed_count_only_against_a_loss_of_their_size() {
    let missed = |missed_frames, lost_frames| {
        texts(|result| {
            result.health.missed_at_most_frames = missed_frames;
            result.lost_frames = lost_frames;
        })
        .len()
    };
    // One in a hundred of the lost frames changes nothing, one in 99 might.
    assert_eq!((missed(1, 100), missed(1, 99)), (0, 1));
    // Nothing was lost.
    assert_eq!(missed(7, 0), 0);
    assert_eq!(missed(0, 7), 0);
}

#[test]
fn the_rate_may_be_off_by_what_the_search_permits_and_a_frame_of_each_port() {
    // Three ports over 2 s: a frame of each is 1.5 frames per second.
    let off = |achieved_rate_pps| {
        texts(|result| {
            result.trial.rate_tolerance_pps = Some(5.0);
            result.elapsed_s = 2.0;
            result.ports = vec![PortResult::default(); 3];
            result.achieved_rate_pps = achieved_rate_pps;
        })
        .len()
    };
    assert_eq!((off(993.5), off(1006.5)), (0, 0));
    assert_eq!((off(993.4), off(1006.6)), (1, 1));
}

#[test]
fn a_port_without_link_at_the_end_is_named_and_others_are_not() {
    let down = ["b".to_owned()];
    assert!(reasons(|_| (), &down).is_empty());
    let with_b: fn(&mut TrialResult) = |result| {
        result.ports.push(PortResult {
            name: "b".to_owned(),
            ..PortResult::default()
        });
    };
    let reasons = reasons(with_b, &down);
    assert_eq!(reasons.len(), 1);
    assert_eq!(reasons[0].cause, InvalidCause::LinkLost);
    assert_eq!(reasons[0].text, "port b lost its link during the trial");
}
