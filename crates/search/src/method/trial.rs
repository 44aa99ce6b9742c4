// SPDX-License-Identifier: Apache-2.0
//! One trial: what a method asks for, and what came of it.

use serde::{Deserialize, Serialize};

/// One trial that a search wants run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRequest {
    /// Offered load, frames per second. What it sums over (one direction, both) is the caller's to define
    /// and to keep the same for the whole search.
    pub rate_pps: f64,
    /// How long frames are offered, seconds.
    pub duration_s: f64,
}

/// What a trial told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Outcome {
    /// The tester did what it was asked to do, so the loss is the device's.
    Valid {
        /// Lost over offered frames, 0 to 1.
        loss_ratio: f64,
        /// What the trial counts for where a method sums durations up, seconds; may include the time around the trial
        /// itself (RFC 9971, "Trial Effective Duration"). None: as long as was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effective_duration_s: Option<f64>,
    },
    /// The tester itself failed: the trial says nothing about the device, and is never counted against it.
    Invalid {
        /// What went wrong, one sentence.
        reason: String,
        /// Frames per second that the tester achieved, if it missed the rate. None: it failed in another way.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        achieved_rate_pps: Option<f64>,
    },
}

impl Outcome {
    /// A valid trial that lost this much of what was offered, 0 to 1, and counts for as long as was asked for.
    #[must_use]
    pub fn lost(loss_ratio: f64) -> Self {
        Self::Valid {
            loss_ratio,
            effective_duration_s: None,
        }
    }

    /// An invalid trial for another reason than a missed rate.
    #[must_use]
    pub fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid {
            reason: reason.into(),
            achieved_rate_pps: None,
        }
    }
}

/// One trial of a search: what was asked, what was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// What was asked.
    pub request: TrialRequest,
    /// What was seen.
    pub outcome: Outcome,
}
