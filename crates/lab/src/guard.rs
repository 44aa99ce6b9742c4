// SPDX-License-Identifier: Apache-2.0
//! The guard: a process that undoes the changes of another process that was killed, or that has given up the rights to undo them. It waits
//! on a pipe for the other's end or request.

use std::io::{Read, Write};
use std::os::unix::process::parent_id;
use std::path::Path;
use std::time::Duration;

use quietwire_base::supervised::{Command, Streams, Supervised};
use quietwire_base::{Deadline, ENDING_MAX, ENDING_PAUSE};

use crate::clean::{CleanReport, clean};
use crate::error::{LabError, io_error};
use crate::lab::LabOptions;

/// A guard of this process. If dropped, the guard ends without checking: all changes are undone by then, unless [`Guard::undo`] has failed.
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

/// Written to the guard: undo now.
const UNDO: &[u8] = b"undo";
/// Time for the guard to undo the changes. Writing all settings takes seconds.
const UNDOING_MAX: Duration = Duration::from_secs(120);

impl Guard {
    /// Has the guard undo the changes of this process, which holds no lock of them any more and may have no right to undo them itself.
    ///
    /// # Errors
    /// [`LabError::Undo`] if the guard could not undo all. It has logged the reasons.
    pub(crate) fn undo(mut self) -> Result<(), LabError> {
        let failed = |what: String| {
            LabError::Undo(format!(
                "the guard process {what} (run `quietwire lab clean` as root)"
            ))
        };
        let written = self.0.take_stdin().map(|mut pipe| pipe.write_all(UNDO));
        match written {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(failed(format!("has ended: {error}"))),
            None => return Err(failed("has no input".to_owned())),
        }
        match self.0.wait(Deadline::after(UNDOING_MAX)) {
            Ok(Some(status)) if status.success() => Ok(()),
            Ok(Some(status)) => Err(failed(format!("could not undo all changes: {status}"))),
            Ok(None) => Err(failed(format!(
                "has not undone all changes within {} s",
                UNDOING_MAX.as_secs()
            ))),
            Err(error) => Err(failed(format!("cannot be waited for: {error}"))),
        }
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

/// Waits until the parent, `process`, has ended or asks for it, and undoes its leftovers below the directory. The parent holds the other end
/// of the standard input.
///
/// # Errors
/// A parent that still runs after its end of the pipe was closed, or as [`clean`].
pub fn clean_when_orphaned(process: u32, state_directory: &Path) -> Result<CleanReport, LabError> {
    let error = |cause| {
        let pipe = Path::new("/dev/stdin");
        io_error(pipe, "waiting for the end of the guarded process")(cause)
    };
    let mut request = Vec::new();
    std::io::stdin().read_to_end(&mut request).map_err(error)?;
    if request == UNDO {
        return clean(state_directory);
    }
    // The kernel closes the files of a killed process one after the other. Its locks may still be held when the pipe ends; they
    // are not when the guard has another parent (do_exit() in kernel/exit.c: exit_files(), then exit_notify()).
    Deadline::after(ENDING_MAX)
        .poll(ENDING_PAUSE, || (parent_id() != process).then_some(()))
        .ok_or_else(|| error(std::io::ErrorKind::TimedOut.into()))?;
    clean(state_directory)
}
