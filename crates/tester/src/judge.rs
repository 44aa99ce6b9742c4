// SPDX-License-Identifier: Apache-2.0
//! Validity check of results: failures of the tester make a trial invalid.

use crate::trial::TrialResult;
use crate::validity::{InvalidCause, InvalidReason, Validity};

/// Limits beyond which a trial is invalid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Largest share of the schedule that the tester may fail to offer, as a ratio.
    pub pacing_miss_ratio: f64,
    /// Largest excess of the traffic's length over the duration, as a ratio of the duration.
    pub stretch_ratio: f64,
    /// Largest disagreement between the tester's clock and the kernel's about the length of the trial, as a ratio.
    pub clock_error_ratio: f64,
    /// Longest overrun of the trial's deadline, seconds.
    pub overrun_s: f64,
}

impl Default for Limits {
    /// Returns limits of 1 % for the rate and the duration: beyond them, the nominal rate was not the rate on the wire. Clocks that
    /// disagree by more than 0.1 % make rates wrong by as much. A tester that ends a trial more than a second late was stalled while it
    /// should have received.
    fn default() -> Self {
        Self {
            pacing_miss_ratio: 0.01,
            stretch_ratio: 0.01,
            clock_error_ratio: 0.001,
            overrun_s: 1.0,
        }
    }
}

/// Returns the validity of a result. `links_down` names the ports without link at the end of the trial.
#[must_use]
pub(crate) fn judge(result: &TrialResult, limits: Limits, links_down: &[String]) -> Validity {
    let mut reasons = of_sending(result, limits);
    reasons.extend(of_receiving(result));
    for port in &result.ports {
        if port.link_losses > 0 || links_down.contains(&port.name) {
            reasons.push(
                InvalidCause::LinkLost
                    .because(format!("port {} lost its link during the trial", port.name)),
            );
        }
    }
    Validity::of(reasons)
}

/// Returns the failures in the transmission and its timing.
fn of_sending(result: &TrialResult, limits: Limits) -> Vec<InvalidReason> {
    let mut reasons = Vec::new();
    let health = &result.health;
    if result.offered_frames == 0 {
        reasons.push(
            health
                .cause(InvalidCause::RateMissed)
                .because("no frame was offered"),
        );
    }
    if health.pacing_miss_ratio > limits.pacing_miss_ratio {
        reasons.push(health.cause(InvalidCause::RateMissed).because(format!(
            "the tester offered {} of {} frames of its schedule: the rate was missed by {:.3} % (limit: {:.3} %)",
            result.offered_frames,
            result.scheduled_frames,
            health.pacing_miss_ratio * 100.0,
            limits.pacing_miss_ratio * 100.0
        )));
    }
    if let Some(reason) = outside_width(result) {
        reasons.push(reason);
    }
    if health.stretch_ratio > limits.stretch_ratio {
        reasons.push(health.cause(InvalidCause::Stretched).because(format!(
            "the traffic lasted {:.3} % longer than the requested {} s (limit: {:.3} %)",
            health.stretch_ratio * 100.0,
            result.trial.duration_s,
            limits.stretch_ratio * 100.0
        )));
    }
    if health.clock_error_ratio.abs() > limits.clock_error_ratio {
        reasons.push(InvalidCause::Clock.because(format!(
            "the tester's clock and the kernel's disagree by {:.3} % about the length of the trial (limit: {:.3} %): \
             the time stamp counter jumped, or its frequency differs from the one measured at the start",
            health.clock_error_ratio.abs() * 100.0,
            limits.clock_error_ratio * 100.0
        )));
    }
    if health.overrun_ns as f64 > limits.overrun_s * 1e9 {
        reasons.push(health.cause(InvalidCause::Stretched).because(format!(
            "the trial ended {:.3} s after its deadline: the tester stalled",
            health.overrun_ns as f64 / 1e9
        )));
    }
    reasons
}

/// Returns a reason if the achieved rate differs from the offered one by more than the search permits. One frame per port is a rounding
/// error.
pub(crate) fn outside_width(result: &TrialResult) -> Option<InvalidReason> {
    let trial = &result.trial;
    let tolerance_pps = trial.rate_tolerance_pps?;
    let rounding_pps = result.ports.len() as f64 / result.elapsed_s.max(f64::MIN_POSITIVE);
    let off_pps = result.achieved_rate_pps - trial.offered_rate_pps;
    (off_pps.abs() > tolerance_pps + rounding_pps).then(|| {
        let cause = result.health.cause(InvalidCause::RateOutsideWidth);
        cause.because(format!(
            "the tester achieved {:.0} frames per second instead of {:.0} (the search permits a difference of {:.0})",
            result.achieved_rate_pps, trial.offered_rate_pps, tolerance_pps
        ))
    })
}

/// Returns the failures and contradictions in the reception.
fn of_receiving(result: &TrialResult) -> Vec<InvalidReason> {
    let mut reasons = Vec::new();
    let health = &result.health;
    if health.receive_drops > 0 {
        reasons.push(InvalidCause::ReceiveDrops.because(format!(
            "the tester's own ports dropped {} received frames",
            health.receive_drops
        )));
    }
    // Up to 1 % of the lost frames cannot change the verdict.
    if health.missed_at_most_frames.saturating_mul(100) > result.lost_frames
        && result.lost_frames > 0
    {
        reasons.push(health.cause(InvalidCause::ReceiveGap).because(format!(
            "the tester did not receive for up to {:.3} ms, and up to {} of the {} lost frames found its receive rings full (use larger rings, \
             or leave the tester's CPU to it)",
            health.longest_gap_ns as f64 / 1e6,
            health.missed_at_most_frames.min(result.lost_frames),
            result.lost_frames
        )));
    }
    if health.excess_frames > 0 {
        reasons.push(InvalidCause::Excess.because(format!(
            "negative loss: in some flows, {} more frames came back than were offered",
            health.excess_frames
        )));
    }
    if health.phantom_frames > 0 {
        reasons.push(InvalidCause::Excess.because(format!(
            "{} frames with this trial's mark came back but were never sent",
            health.phantom_frames
        )));
    }
    reasons
}

#[cfg(test)]
mod tests {
    mod limits;

    use super::*;
    use crate::trial::{Directions, FrameSizes, PortResult, TesterHealth, Trial};

    fn clean() -> TrialResult {
        TrialResult {
            trial: Trial {
                directions: Directions::OneWay,
                ..Trial::new(1000.0, 1.0, FrameSizes::Fixed(64))
            },
            started_unix_ns: 0,
            elapsed_s: 1.0,
            scheduled_frames: 1000,
            offered_frames: 1000,
            received_frames: 1000,
            lost_frames: 0,
            loss_ratio: 0.0,
            duplicate_frames: 0,
            reordered_frames: 0,
            damaged_frames: 0,
            damage_check: None,
            stale_frames: 0,
            achieved_rate_pps: 1000.0,
            forwarding_rate_pps: 1000.0,
            latency: Default::default(),
            variation: Default::default(),
            low_rate: Default::default(),
            ports: vec![PortResult {
                name: "a".to_owned(),
                ..PortResult::default()
            }],
            flows: Vec::new(),
            health: TesterHealth::default(),
            calibration: None,
            loss_account: None,
            series: Default::default(),
            validity: Validity::Valid,
        }
    }

    fn reasons(change: fn(&mut TrialResult), links_down: &[String]) -> Vec<InvalidReason> {
        let mut result = clean();
        change(&mut result);
        judge(&result, Limits::default(), links_down)
            .reasons()
            .to_vec()
    }

    #[test]
    fn a_clean_trial_is_valid_and_each_failure_has_its_reason() {
        assert!(reasons(|_| (), &[]).is_empty());
        type Change = fn(&mut TrialResult);
        let failures: [(Change, InvalidCause, &str); 12] = [
            (
                |result| {
                    result.lost_frames = 5;
                    result.health.missed_at_most_frames = 7;
                    result.health.longest_gap_ns = 2_500_000;
                },
                InvalidCause::ReceiveGap,
                "for up to 2.500 ms, and up to 5 of the 5 lost",
            ),
            (
                |result| result.offered_frames = 0,
                InvalidCause::RateMissed,
                "no frame was offered",
            ),
            (
                |result| result.health.pacing_miss_ratio = 0.011,
                InvalidCause::RateMissed,
                "missed by 1.100 %",
            ),
            (
                |result| {
                    result.trial.rate_tolerance_pps = Some(5.0);
                    result.achieved_rate_pps = 993.9;
                },
                InvalidCause::RateOutsideWidth,
                "achieved 994 frames per second instead of 1000 (the search permits a difference of 5)",
            ),
            (
                |result| result.health.stretch_ratio = 0.02,
                InvalidCause::Stretched,
                "lasted 2.000 % longer than the requested 1 s",
            ),
            (
                |result| result.health.clock_error_ratio = -0.5,
                InvalidCause::Clock,
                "disagree by 50.000 %",
            ),
            (
                |result| result.health.clock_error_ratio = 0.002,
                InvalidCause::Clock,
                "disagree by 0.200 %",
            ),
            (
                |result| result.health.overrun_ns = 1_500_000_000,
                InvalidCause::Stretched,
                "1.500 s after its deadline",
            ),
            (
                |result| result.health.receive_drops = 3,
                InvalidCause::ReceiveDrops,
                "dropped 3 received frames",
            ),
            (
                |result| result.health.excess_frames = 4,
                InvalidCause::Excess,
                "negative loss",
            ),
            (
                |result| result.health.phantom_frames = 5,
                InvalidCause::Excess,
                "5 frames",
            ),
            (
                |result| result.ports[0].link_losses = 1,
                InvalidCause::LinkLost,
                "port a lost its link",
            ),
        ];
        for (change, cause, words) in failures {
            let reasons = reasons(change, &[]);
            assert_eq!(reasons.len(), 1, "{reasons:?}");
            assert_eq!(reasons[0].cause, cause);
            assert!(reasons[0].text.contains(words), "{reasons:?}");
        }
        // One frame per port is a rounding error.
        let within: Change = |result| {
            result.trial.rate_tolerance_pps = Some(5.0);
            result.achieved_rate_pps = 994.1;
        };
        assert!(reasons(within, &[]).is_empty());
        assert_eq!(reasons(|_| (), &["a".to_owned()]).len(), 1);
    }
}
