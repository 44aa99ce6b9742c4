// SPDX-License-Identifier: Apache-2.0
//! Trial of a search: its request and its outcome.

use serde::{Deserialize, Serialize};

/// Request for one trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRequest {
    /// Offered load, frames per second. The caller defines over what it is summed (one direction, both), and must keep that unchanged for
    /// the whole search.
    pub rate_pps: f64,
    /// Duration of the transmission, seconds.
    pub duration_s: f64,
}

/// Outcome of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Outcome {
    /// The tester worked correctly, so the loss is the device's.
    Valid {
        /// Lost over offered frames, 0 to 1.
        loss_ratio: f64,
        /// Duration for methods that sum durations, seconds. It may include the time around the trial (RFC 9971, "Trial Effective
        /// Duration"). `None`: the requested duration.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effective_duration_s: Option<f64>,
    },
    /// The tester itself failed. The trial shows nothing about the device and does not count.
    Invalid {
        /// The failure, as one sentence.
        reason: String,
        /// Frames per second that the tester achieved, if it missed the rate. None: it failed in another way.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        achieved_rate_pps: Option<f64>,
    },
}

impl Outcome {
    /// Returns the outcome of a valid trial with this loss ratio, 0 to 1, and the requested duration.
    #[must_use]
    pub fn lost(loss_ratio: f64) -> Self {
        Self::Valid {
            loss_ratio,
            effective_duration_s: None,
        }
    }

    /// Returns an invalid trial for another reason than a missed rate.
    #[must_use]
    pub fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid {
            reason: reason.into(),
            achieved_rate_pps: None,
        }
    }
}

/// One trial of a search: request and outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// The request.
    pub request: TrialRequest,
    /// The outcome.
    pub outcome: Outcome,
}
