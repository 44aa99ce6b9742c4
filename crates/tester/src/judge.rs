// SPDX-License-Identifier: Apache-2.0
//! Whether a trial says anything about the device: the tester's own failures make it invalid.

use crate::trial::{TrialResult, Validity};

/// Limits beyond which a trial is invalid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Frames of the schedule that the tester may fail to offer, as a ratio.
    pub pacing_miss_ratio: f64,
}

impl Default for Limits {
    /// One frame in a hundred: more, and the rate on the result's label was not the rate on the wire.
    fn default() -> Self {
        Self {
            pacing_miss_ratio: 0.01,
        }
    }
}

/// Judges a result. `links_down` names the ports that had no link when the trial ended.
#[must_use]
pub(crate) fn judge(result: &TrialResult, limits: Limits, links_down: &[String]) -> Validity {
    let mut reasons = Vec::new();
    let health = &result.health;
    if result.offered_frames == 0 {
        reasons.push("no frame was offered".to_owned());
    }
    if health.pacing_miss_ratio > limits.pacing_miss_ratio {
        reasons.push(format!(
            "the tester offered {} of {} frames of its schedule: the rate was missed by {:.3} %, and {:.3} % is the limit",
            result.offered_frames,
            result.scheduled_frames,
            health.pacing_miss_ratio * 100.0,
            limits.pacing_miss_ratio * 100.0
        ));
    }
    if health.receive_drops > 0 {
        reasons.push(format!(
            "the tester's own ports dropped {} received frames",
            health.receive_drops
        ));
    }
    if result.received_frames > result.offered_frames {
        reasons.push(format!(
            "{} frames came back and only {} were offered",
            result.received_frames, result.offered_frames
        ));
    }
    for port in links_down {
        reasons.push(format!("port {port} lost its link during the trial"));
    }
    if reasons.is_empty() {
        Validity::Valid
    } else {
        Validity::Invalid(reasons)
    }
}
