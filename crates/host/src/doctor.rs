// SPDX-License-Identifier: Apache-2.0
//! What this machine has of what quietwire needs, and how to mend what is missing.
//!
//! Looks only, changes nothing. Files are read below a root directory and commands looked for on a
//! search path, both given by the caller, so that a recorded machine can be examined too.

mod cpus;
mod kernel;
mod machine;
mod memory;
mod software;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::path::Path;

use serde::{Deserialize, Serialize};

use machine::Machine;

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
    fn new(name: &str, state: State, seen: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            state,
            seen: seen.into(),
            mend: None,
        }
    }

    fn ok(name: &str, seen: impl Into<String>) -> Self {
        Self::new(name, State::Ok, seen)
    }

    fn unavailable(name: &str, seen: impl Into<String>) -> Self {
        Self::new(name, State::Unavailable, seen)
    }

    fn warning(name: &str, seen: impl Into<String>) -> Self {
        Self::new(name, State::Warning, seen)
    }

    fn missing(name: &str, seen: impl Into<String>) -> Self {
        Self::new(name, State::Missing, seen)
    }

    fn mend(self, command: impl Into<String>) -> Self {
        Self {
            mend: Some(command.into()),
            ..self
        }
    }
}

/// Looks at everything, always in the same order.
///
/// `root` is `/` for the running machine. `search_path` has the form of the `PATH` variable; its
/// directories are looked for below `root`. A file that is there and can't be read or understood is no
/// error: it's named in a last check, `unread-files`, which is there only then.
#[must_use]
pub fn examine(root: &Path, search_path: &OsStr) -> Vec<Check> {
    let machine = Machine::new(root, search_path);
    let mut checks = software::examine(&machine);
    checks.extend(cpus::examine(&machine));
    checks.extend(memory::examine(&machine));
    checks.extend(kernel::examine(&machine));
    checks.extend(unread_files(&machine));
    checks
}

/// The worst state among `checks`; [`State::Ok`] for none. Only [`State::Missing`] keeps studies from running.
#[must_use]
pub fn worst(checks: &[Check]) -> State {
    checks
        .iter()
        .map(|check| check.state)
        .max()
        .unwrap_or(State::Ok)
}

fn unread_files(machine: &Machine) -> Option<Check> {
    let troubles = machine.troubles();
    (!troubles.is_empty()).then(|| Check::warning("unread-files", troubles.join("; ")))
}
