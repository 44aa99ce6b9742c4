// SPDX-License-Identifier: Apache-2.0
//! The process that undoes what another leaves behind when it is killed: it waits on a pipe for the other's end.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::clean::{CleanReport, clean};
use crate::error::{LabError, io_error};
use crate::lab::LabOptions;

/// A guard of this process. Dropped, it ends without a look: whatever was made is undone by then.
#[derive(Debug)]
pub(crate) struct Guard(Child);

impl Guard {
    /// Starts `PROGRAM lab guard` in a process group of its own, so that what ends this process leaves it alone.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn start(options: &LabOptions) -> Result<Self, LabError> {
        Command::new(&options.program)
            .args(["lab", "guard", "--state-directory"])
            .arg(&options.state_directory)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map(Self)
            .map_err(io_error(&options.program, "starting the guard"))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // It has ended already, or waits for its input.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until the process at the other end of the standard input has ended, and undoes what it left below the directory.
///
/// # Errors
/// As [`clean`].
pub fn clean_when_orphaned(state_directory: &Path) -> Result<CleanReport, LabError> {
    let mut nothing = Vec::new();
    std::io::stdin()
        .read_to_end(&mut nothing)
        .map_err(io_error(
            Path::new("/dev/stdin"),
            "waiting for the end of the guarded process",
        ))?;
    clean(state_directory)
}
