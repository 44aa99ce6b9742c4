// SPDX-License-Identifier: Apache-2.0
//! One check of the machine.

use serde::{Deserialize, Serialize};

/// How one check came out, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// There, and as it should be.
    Ok,
    /// This hardware or kernel doesn't have it. What would use it is left out or does without, and says so.
    Unavailable,
    /// Works, at a price that `seen` names.
    Warning,
    /// Needed and not there: studies don't run before it's mended.
    Missing,
}

/// One thing looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was looked at, in kebab case (`huge-pages`); stable, for programs.
    pub name: String,
    /// How it came out.
    pub state: State,
    /// What was seen, and what follows from it, for people.
    pub seen: String,
    /// The command that mends it, or what to do where no command does. `None` when nothing can or need be done.
    pub mend: Option<String>,
}

impl Check {
    pub(super) fn new(name: &str, state: State, seen: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            state,
            seen: seen.into(),
            mend: None,
        }
    }

    pub(super) fn ok(name: &str, seen: impl Into<String>) -> Self {
        Self::new(name, State::Ok, seen)
    }

    pub(super) fn unavailable(name: &str, seen: impl Into<String>) -> Self {
        Self::new(name, State::Unavailable, seen)
    }

    pub(super) fn warning(name: &str, seen: impl Into<String>) -> Self {
        Self::new(name, State::Warning, seen)
    }

    pub(super) fn missing(name: &str, seen: impl Into<String>) -> Self {
        Self::new(name, State::Missing, seen)
    }

    pub(super) fn mend(self, command: impl Into<String>) -> Self {
        Self {
            mend: Some(command.into()),
            ..self
        }
    }
}
