// SPDX-License-Identifier: Apache-2.0
//! Records of what ports have changed outside this process: small files that the next process reads if this one is killed.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use quietwire_base::{ProcessId, durable};

/// Number and start time of a process ([`ProcessId`]) since the boot.
pub(super) type Process = (i32, u64);

/// Writes a record, and the directory if there is none. Other users can neither write nor read them.
pub(super) fn write(directory: &Path, file: &Path, text: &str) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    durable::replace(file, text.as_bytes(), 0o600)
}

/// Removes a record.
pub(super) fn remove(file: &Path) {
    if let Err(error) = durable::remove_if_exists(file) {
        tracing::warn!("cannot remove {}: {error}", file.display());
    }
}

/// Returns names and texts of all records. A directory or file that does not exist has none.
pub(super) fn all(directory: &Path) -> impl Iterator<Item = (OsString, String)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name(), fs::read_to_string(entry.path()).ok()?)))
}

/// Returns true if the process of a record runs.
pub(super) fn is_alive((pid, start_time): Process) -> bool {
    let boot = None;
    ProcessId {
        pid,
        start_time,
        boot,
    }
    .is_alive()
}
