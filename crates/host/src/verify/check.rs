// SPDX-License-Identifier: Apache-2.0
//! One check: its verdict, what was expected and seen, and what to do.

use serde::Serialize;

/// What a check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is as it should be.
    Pass,
    /// It is not.
    Fail,
    /// The machine does not say, or not to this user.
    CannotTell,
}

impl Verdict {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its name, the same in every run.
    pub name: &'static str,
    /// What it came to.
    pub verdict: Verdict,
    /// The file or files looked at.
    pub file: String,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub seen: String,
    /// What to do; none when there is nothing to be done.
    pub remedy: Option<String>,
    /// Commands that do it, one by one, as far as there are such.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
}

impl Check {
    pub(super) fn new(
        name: &'static str,
        file: impl Into<String>,
        expected: impl Into<String>,
        seen: impl Into<String>,
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
            seen: seen.into(),
            remedy: (!is_fine).then(|| remedy.into()),
            commands: Vec::new(),
        }
    }

    /// With commands, if it failed.
    pub(super) fn mended_by(mut self, commands: Vec<String>) -> Self {
        if self.verdict == Verdict::Fail {
            self.commands = commands;
        }
        self
    }

    pub(super) fn cannot_tell(
        name: &'static str,
        file: impl Into<String>,
        expected: impl Into<String>,
        why: impl Into<String>,
    ) -> Self {
        Self {
            name,
            verdict: Verdict::CannotTell,
            file: file.into(),
            expected: expected.into(),
            seen: why.into(),
            remedy: None,
            commands: Vec::new(),
        }
    }
}

/// What stands in `seen` of a file that is not there or cannot be read.
pub(super) const UNREADABLE: &str = "it is not there or cannot be read";

/// What to do about most that applying does.
pub(super) const APPLY: &str = "quietwire partition apply --config FILE";

/// Things of a kind that are named; of more only the number is told.
pub(super) const NAMED_MAX: usize = 5;

/// The first few of many, and how many more there are.
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
