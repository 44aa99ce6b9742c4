// SPDX-License-Identifier: Apache-2.0
//! Checks of the requirements of quietwire on a machine, with remedies.
//!
//! Read-only. The caller gives the root directory of all files and the search path for commands, so a recorded machine can
//! be examined too.

mod cards;
mod check;
mod cpus;
mod kernel;
mod machine;
mod memory;
mod software;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::path::Path;

use machine::Machine;

pub use check::{Check, State};
pub use software::MissingForGuests;

/// Runs all checks, always in the same order.
///
/// `root` is `/` for the running machine. `search_path` has the form of the `PATH` variable; its directories are below
/// `root`. A file that exists but cannot be read or parsed is not an error: an additional last check, `unread-files`, names
/// it.
#[must_use]
pub fn examine(root: &Path, search_path: &OsStr) -> Vec<Check> {
    let machine = Machine::new(root, search_path);
    let mut checks = software::examine(&machine);
    checks.extend(cpus::examine(&machine));
    checks.extend(memory::examine(&machine));
    checks.extend(kernel::examine(&machine));
    checks.push(cards::examine(root));
    checks.extend(unread_files(&machine));
    checks
}

/// Returns the commands that guests require and the machine lacks; `None` if it has all. The arguments are those of [`examine`].
#[must_use]
pub fn missing_for_guests(root: &Path, search_path: &OsStr) -> Option<MissingForGuests> {
    software::missing_for_guests(&Machine::new(root, search_path))
}

/// Returns the worst state of `checks`, or [`State::Ok`] if there are none. Only [`State::Missing`] prevents studies.
#[must_use]
pub fn worst(checks: &[Check]) -> State {
    checks
        .iter()
        .map(|check| check.state)
        .max()
        .unwrap_or(State::Ok)
}

fn unread_files(machine: &Machine) -> Option<Check> {
    let problems = machine.problems();
    (!problems.is_empty()).then(|| Check::warning("unread-files", problems.join("; ")))
}
