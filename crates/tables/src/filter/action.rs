// SPDX-License-Identifier: Apache-2.0
//! What a rule does with a frame.

use serde::{Deserialize, Serialize};

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// It goes on.
    #[default]
    Accept,
    /// It goes nowhere, without a word to its sender.
    Drop,
}
