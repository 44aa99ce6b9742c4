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
