// SPDX-License-Identifier: Apache-2.0
//! The guard: a process that undoes the changes of another process that was killed. It waits on a pipe for the other's end.

use std::io::Read;
use std::os::unix::process::parent_id;
use std::path::Path;

use quietwire_base::supervised::{Command, Streams, Supervised};
use quietwire_base::{Deadline, ENDING_MAX, ENDING_PAUSE};

use crate::clean::{CleanReport, clean};
use crate::error::{LabError, io_error};
use crate::lab::LabOptions;

/// A guard of this process. If dropped, the guard ends without checking: all changes are undone by then.
#[derive(Debug)]
pub(crate) struct Guard(Supervised);

impl Guard {
    /// Starts `PROGRAM lab guard` in its own process group, so that a signal to this process's group does not reach it.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn start(options: &LabOptions) -> Result<Self, LabError> {
        Command::new(&options.program)
            .args(["lab", "guard", "--state-directory"])
            .arg(&options.state_directory)
            .arg("--process")
            .arg(std::process::id().to_string())
            .start(Streams::Input)
            .map(Self)
            .map_err(io_error(&options.program, "starting the guard"))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The guard has ended already, or waits for its input. It must not see the end of its input: this process has not ended.
        if let Err(error) = self.0.kill() {
            tracing::warn!("the guard of this process could not be ended: {error}");
        }
    }
}

/// Waits until the parent, `process`, has ended, and undoes its leftovers below the directory. The parent holds the other end of the
/// standard input.
///
/// # Errors
/// A parent that still runs after its end of the pipe was closed, or as [`clean`].
pub fn clean_when_orphaned(process: u32, state_directory: &Path) -> Result<CleanReport, LabError> {
    let error = |cause| {
        let pipe = Path::new("/dev/stdin");
        io_error(pipe, "waiting for the end of the guarded process")(cause)
    };
    let mut nothing = Vec::new();
    std::io::stdin().read_to_end(&mut nothing).map_err(error)?;
    // The kernel closes the files of a killed process one after the other. Its locks may still be held when the pipe ends; they
    // are not when the guard has another parent (do_exit() in kernel/exit.c: exit_files(), then exit_notify()).
    Deadline::after(ENDING_MAX)
        .poll(ENDING_PAUSE, || (parent_id() != process).then_some(()))
        .ok_or_else(|| error(std::io::ErrorKind::TimedOut.into()))?;
    clean(state_directory)
}
