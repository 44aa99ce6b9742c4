// SPDX-License-Identifier: Apache-2.0
//! A commit and what its values say.

use serde::Serialize;

/// A commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BisectCommit {
    /// Its hash.
    pub hash: String,
    /// First line of its message.
    pub subject: String,
}

/// Result of the comparison of the values of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CommitFinding {
    /// It is not worse than the margin.
    Good,
    /// It is worse than the margin.
    Bad,
    /// The values do not decide.
    Unknown,
    /// The command failed in it.
    Broken,
}
