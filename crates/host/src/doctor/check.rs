// SPDX-License-Identifier: Apache-2.0
//! One check of the machine.

use serde::{Deserialize, Serialize};

/// State of a check, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Available and configured correctly.
    Ok,
    /// Not supported by this hardware or kernel. Features that use it report this and work without it or are unavailable.
    Unavailable,
    /// Works with a disadvantage that `found` names.
    Warning,
    /// Required but missing: studies do not run without it.
    Missing,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Name in kebab case (`huge-pages`). Stable, for use by programs.
    pub name: String,
    /// State.
    pub state: State,
    /// Observed value and its consequences, as text.
    pub found: String,
    /// Remedy: a command, or a text if no command is enough. `None` if no remedy exists or is required.
    pub remedy: Option<String>,
}

impl Check {
    pub(super) fn new(name: &str, state: State, found: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            state,
            found: found.into(),
            remedy: None,
        }
    }

    pub(super) fn ok(name: &str, found: impl Into<String>) -> Self {
        Self::new(name, State::Ok, found)
    }

    pub(super) fn unavailable(name: &str, found: impl Into<String>) -> Self {
        Self::new(name, State::Unavailable, found)
    }

    pub(super) fn warning(name: &str, found: impl Into<String>) -> Self {
        Self::new(name, State::Warning, found)
    }

    pub(super) fn missing(name: &str, found: impl Into<String>) -> Self {
        Self::new(name, State::Missing, found)
    }

    pub(super) fn remedy(self, command: impl Into<String>) -> Self {
        Self {
            remedy: Some(command.into()),
            ..self
        }
    }
}
