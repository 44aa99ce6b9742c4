// SPDX-License-Identifier: Apache-2.0
//! One check: verdict, expected and observed value, and remedy.

use serde::Serialize;

/// Verdict of a check, or about an objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The observed value is as expected.
    Pass,
    /// The observed value is not as expected.
    Fail,
    /// Unknown: the machine does not report the value, or not to this user, or results do not decide.
    Unknown,
}

impl Verdict {
    /// Returns the verdict's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Unknown => "unknown",
        }
    }
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Name, the same in every run.
    pub name: &'static str,
    /// Verdict.
    pub verdict: Verdict,
    /// File or files that the check reads.
    pub file: String,
    /// Expected value.
    pub expected: String,
    /// Observed value.
    pub actual: String,
    /// Remedy. `None` if no action is required.
    pub remedy: Option<String>,
    /// Commands that apply the remedy, one by one. Empty if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
}

impl Check {
    pub(super) fn new(
        name: &'static str,
        file: impl Into<String>,
        expected: impl Into<String>,
        actual: impl Into<String>,
        is_fine: bool,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            name,
            verdict: if is_fine {
                Verdict::Pass
            } else {
                Verdict::Fail
            },
            file: file.into(),
            expected: expected.into(),
            actual: actual.into(),
            remedy: (!is_fine).then(|| remedy.into()),
            commands: Vec::new(),
        }
    }

    /// Adds the commands of a remedy if the check failed.
    pub(super) fn with_commands(mut self, commands: Vec<String>) -> Self {
        if self.verdict == Verdict::Fail {
            self.commands = commands;
        }
        self
    }

    pub(super) fn unknown(
        name: &'static str,
        file: impl Into<String>,
        expected: impl Into<String>,
        why: impl Into<String>,
    ) -> Self {
        Self {
            name,
            verdict: Verdict::Unknown,
            file: file.into(),
            expected: expected.into(),
            actual: why.into(),
            remedy: None,
            commands: Vec::new(),
        }
    }
}

/// Text of `actual` for a file that does not exist or cannot be read.
pub(super) const UNREADABLE: &str = "missing or unreadable";

/// Remedy for settings that `partition apply` changes.
pub(super) const APPLY: &str = "quietwire partition apply --config FILE";

/// Maximum number of items in a message. For all further items, the message has only their number.
pub(super) const NAMED_MAX: usize = 5;

/// Formats the first few items and the number of the others.
pub(super) fn some_of(names: &[String]) -> String {
    let first = names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>();
    let more = names.len().saturating_sub(NAMED_MAX);
    let first = first.join(", ");
    if more == 0 {
        first
    } else {
        format!("{first} and {more} more")
    }
}
