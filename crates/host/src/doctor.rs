// SPDX-License-Identifier: Apache-2.0
//! What this machine has of what quietwire needs, and how to mend what is missing.
//!
//! Looks only, changes nothing. Files are read below a root directory and commands looked for on a
//! search path, both given by the caller, so that a recorded machine can be examined too.

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
