// SPDX-License-Identifier: Apache-2.0
//! Goals as stored with runs: the bound, the measured value, and the verdict.

use serde::{Deserialize, Serialize};

use super::spread::Estimate;

/// Direction of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    AtLeast,
    AtMost,
}

impl Bound {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AtLeast => "at least",
            Self::AtMost => "at most",
        }
    }
}

/// Verdict on a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// The whole interval is within the bound.
    Met,
    /// No part of the interval is within the bound.
    Missed,
    /// The interval contains the bound, or there are too few rounds for an interval.
    NotProven,
    /// The peer is not installed, or was not measured in this run.
    Unavailable,
}

impl Verdict {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::NotProven => "not proven",
            Self::Unavailable => "unavailable",
        }
    }
}

/// A goal and its result in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Judged {
    pub(crate) goal: String,
    pub(crate) peer: String,
    pub(crate) bound: Bound,
    pub(crate) wanted: f64,
    pub(crate) estimate: Option<Estimate>,
    pub(crate) verdict: Verdict,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) reason: Option<String>,
}
