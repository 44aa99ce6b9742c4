// SPDX-License-Identifier: Apache-2.0
//! DPDK's runtime directory of this program: its name, and the removal of those that killed processes have left.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use quietwire_base::ProcessId;

/// Directory in which processes of root with DPDK have a directory each, by their file prefix.
const DIRECTORY: &str = "/var/run/dpdk";
/// First part of this program's file prefixes.
const PREFIX: &str = "quietwire-";

/// Returns the file prefix of this process, `quietwire-ROLE-PID` ([`crate::EalOptions::file_prefix`]). A role has lower-case letters
/// and hyphens.
#[must_use]
pub fn file_prefix(role: &str) -> String {
    format!("{PREFIX}{role}-{}", std::process::id())
}

/// Returns the ID of the process with this file prefix. Prefixes of programs in labs, `quietwire-PID-…`, have no role and no ID.
fn process_of(file_prefix: &str) -> Option<i32> {
    let (role, process) = file_prefix.strip_prefix(PREFIX)?.rsplit_once('-')?;
    let is_role = |octet: u8| octet.is_ascii_lowercase() || octet == b'-';
    let process = process.parse().ok()?;
    role.bytes().all(is_role).then_some(process)
}

/// Removes the runtime directories of processes that were killed while they started DPDK, and returns their paths, sorted. Those of
/// running processes and those with files are left alone.
#[must_use]
pub fn remove_left_runtime_directories() -> Vec<PathBuf> {
    remove_left(Path::new(DIRECTORY))
}

fn remove_left(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut removed = Vec::new();
    for entry in entries {
        let process = entry.file_name().to_str().and_then(process_of);
        if process.is_none_or(|process| ProcessId::of(process).is_some()) {
            continue;
        }
        let path = entry.path();
        match fs::remove_dir(&path) {
            Ok(()) => removed.push(path),
            // Another process has removed it.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!("cannot remove DPDK's directory {}: {error}", path.display());
            }
        }
    }
    removed.sort();
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_prefixes_name_their_process() {
        let own = i32::try_from(std::process::id()).unwrap();
        for role in ["tester", "self-test"] {
            assert_eq!(process_of(&file_prefix(role)), Some(own));
        }
        assert_eq!(process_of("quietwire-switch-7"), Some(7));
        for other in [
            // Programs of labs.
            "quietwire-7",
            "quietwire-7-2",
            "quietwire-7-2-device-1",
            "quietwire-tester",
            "quietwire-tester-",
            "quietwire-tester-7a",
            "tester-7",
            "rte",
        ] {
            assert_eq!(process_of(other), None, "{other}");
        }
    }

    #[test]
    fn only_empty_directories_of_killed_processes_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        // More than the largest ID of a process.
        let killed = i32::MAX;
        let left = ["self-test", "tester"].map(|role| path(&format!("quietwire-{role}-{killed}")));
        let full = path(&format!("quietwire-full-{killed}"));
        let own = path(&file_prefix("tester"));
        let others = [path("rte"), path(&format!("quietwire-{killed}-1-device"))];
        for made in left.iter().chain([&full, &own]).chain(&others) {
            fs::create_dir(made).unwrap();
        }
        fs::write(full.join("config"), "").unwrap();
        let file = path(&format!("quietwire-file-{killed}"));
        fs::write(&file, "").unwrap();
        assert_eq!(remove_left(directory.path()), left);
        assert_eq!(remove_left(directory.path()), Vec::<PathBuf>::new());
        assert!(left.iter().all(|path| !path.exists()));
        for path in others.iter().chain([&full, &own, &file]) {
            assert!(path.exists(), "{path:?}");
        }
        assert_eq!(remove_left(&path("absent")), Vec::<PathBuf>::new());
    }
}
