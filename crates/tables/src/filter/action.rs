// SPDX-License-Identifier: Apache-2.0
//! Actions of filter rules.

use serde::{Deserialize, Serialize};

/// Action for a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Accept the frame.
    #[default]
    Accept,
    /// Drop the frame silently.
    Drop,
    /// Drop the frame and answer its sender: a TCP reset, or an ICMP error ([`super::Rejection`]).
    Reject,
    /// Apply the statements of the rule, and compare the next one. The default action is never this one.
    Continue,
}

impl Action {
    /// Returns its name in files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Drop => "drop",
            Self::Reject => "reject",
            Self::Continue => "continue",
        }
    }

    /// Returns its text in traces and logs.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Accept => "accepted",
            Self::Drop => "dropped",
            Self::Reject => "rejected",
            Self::Continue => "matched",
        }
    }
}

/// Action for a malformed frame: one whose headers the rules cannot read, or read otherwise than its receiver does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MalformedAction {
    /// Drop the frame before the rules.
    #[default]
    Drop,
    /// Compare the headers in front of the malformation with the rules.
    Match,
}
