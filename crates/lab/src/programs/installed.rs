// SPDX-License-Identifier: Apache-2.0
//! Installed programs and their versions.

use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_base::supervised::Command;
use quietwire_base::{Deadline, find_program};

use crate::unavailable::Unavailable;

/// Timeout for a program's report of its version.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the first line that `command` prints with these arguments, on standard output or standard error.
pub(super) fn first_line(command: &Path, words: &[&str]) -> Option<String> {
    let command = Command::new(command).args(words);
    let finished = command.run(Deadline::after(TIMEOUT)).ok()?;
    finished
        .printed()
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .map(str::to_owned)
}

/// Returns the reason why a program that is not in PATH is unavailable.
pub(super) fn not_installed(program: &str, how: &str) -> Unavailable {
    Unavailable(format!("{program} is not installed ({how})"))
}

/// Returns the path of one of DPDK's examples: in PATH, or in the directory of the builds of `scripts/build-l3fwd`.
pub(super) fn example(name: &str, quietwire: &Path) -> Option<PathBuf> {
    let built = quietwire.parent()?.parent()?.join("peers").join(name);
    find_program(name).or_else(|| built.is_file().then_some(built))
}

/// Returns the version of one of DPDK's examples.
pub(super) fn probe_example(binary: Option<&Path>, name: &str) -> Result<String, Unavailable> {
    match binary {
        Some(_) => Ok(dpdk_version()),
        None => Err(not_installed(name, "run scripts/build-l3fwd")),
    }
}

/// Returns the version of Debian's DPDK, which all DPDK programs here share.
pub(super) fn dpdk_version() -> String {
    let finished = Command::new("dpkg-query")
        .args(["--show", "--showformat", "${Version}", "dpdk"])
        .run(Deadline::after(TIMEOUT));
    let version =
        finished.map(|finished| String::from_utf8_lossy(&finished.stdout).trim().to_owned());
    match version {
        Ok(version) if !version.is_empty() => format!("DPDK {version}"),
        _ => "DPDK of unknown version".to_owned(),
    }
}
