// SPDX-License-Identifier: Apache-2.0
//! Installed programs and their versions.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use quietwire_base::supervised::Command;
use quietwire_base::{Deadline, find_program};

use crate::unavailable::Unavailable;

/// Timeout for a program's report of its version.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Database of Debian's packages (dpkg(1)).
const PACKAGES: &str = "/var/lib/dpkg/status";

/// Versions that programs have reported to this process. Each case of a study asks several programs.
static KNOWN: Versions = Versions::new();

/// Path, inode, size and time of the last change of a file (stat(2)). Another version of a program has other values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FileState {
    path: PathBuf,
    inode: [u64; 2],
    size: u64,
    changed: [i64; 2],
}

impl FileState {
    /// Returns the state of a file; none if it cannot be read.
    fn of(path: &Path) -> Option<Self> {
        let file = std::fs::metadata(path).ok()?;
        Some(Self {
            path: path.to_owned(),
            inode: [file.dev(), file.ino()],
            size: file.size(),
            changed: [file.ctime(), file.ctime_nsec()],
        })
    }
}

/// Reported versions, by the file that they depend on.
#[derive(Debug)]
struct Versions(Mutex<BTreeMap<FileState, String>>);

impl Versions {
    const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Returns the version that `ask` returns. Does not ask again until the file changes.
    fn of(&self, file: &Path, ask: impl FnOnce() -> Option<String>) -> Option<String> {
        let Some(state) = FileState::of(file) else {
            return ask();
        };
        let all = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all().get(&state).cloned();
        if known.is_some() {
            return known;
        }
        let version = ask()?;
        all().insert(state, version.clone());
        Some(version)
    }
}

/// Returns the version that `ask` returns, which depends on a file. Does not ask again until the file changes.
fn version(file: &Path, ask: impl FnOnce() -> Option<String>) -> Option<String> {
    // Unit tests let the start of any process fail. Which one that is must not depend on earlier tests.
    if cfg!(test) {
        ask()
    } else {
        KNOWN.of(file, ask)
    }
}

/// Returns the first line that `command --version` prints, on standard output or standard error.
pub(super) fn version_line(command: &Path) -> Option<String> {
    version(command, || {
        let command = Command::new(command).arg("--version");
        let finished = command.run(Deadline::after(TIMEOUT)).ok()?;
        finished
            .printed()
            .lines()
            .map(str::trim)
            .find(|line| !line.is_empty())
            .map(str::to_owned)
    })
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
    let of_package = version(Path::new(PACKAGES), || {
        let words = ["--show", "--showformat", "${Version}", "dpdk"];
        let command = Command::new("dpkg-query").args(words);
        let finished = command.run(Deadline::after(TIMEOUT)).ok()?;
        let version = String::from_utf8_lossy(&finished.stdout).trim().to_owned();
        (!version.is_empty()).then_some(version)
    });
    match of_package {
        Some(version) => format!("DPDK {version}"),
        None => "DPDK of unknown version".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_program_is_asked_again_only_after_a_change() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        let versions = Versions::new();
        let asked = Cell::new(0);
        let ask = || {
            let number = asked.get() + 1;
            asked.set(number);
            (number > 1).then(|| format!("version {number}"))
        };
        let get = || versions.of(&program, ask);
        std::fs::write(&program, "old").unwrap();
        // A program that does not answer is asked again.
        assert_eq!(get(), None);
        assert_eq!(get().unwrap(), "version 2");
        assert_eq!(get().unwrap(), "version 2");
        std::fs::write(&program, "newer").unwrap();
        assert_eq!(get().unwrap(), "version 3");
        std::fs::remove_file(&program).unwrap();
        assert_eq!(get().unwrap(), "version 4");
        assert_eq!(get().unwrap(), "version 5");
    }
}
