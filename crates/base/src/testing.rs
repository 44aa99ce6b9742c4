// SPDX-License-Identifier: Apache-2.0
//! Helpers of tests: turns of tests that change settings of the whole machine, also among processes, and processes that end with their test.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::deadline::Deadline;
use crate::lock_file::{LockError, LockFile};

/// Held by the test whose turn it is.
const LOCK: &str = "/run/lock/quietwire-tests.lock";
/// Timeout for other tests, which can each take minutes.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Waits for exclusive use of the machine's settings. The turn ends when the lock is dropped.
///
/// # Errors
/// [`LockError::Busy`] if another test does not end, [`LockError::Io`] without write permission.
pub fn take_turn() -> Result<LockFile, LockError> {
    LockFile::acquire(Path::new(LOCK), Deadline::after(TIMEOUT))
}

/// A process that is killed and reaped when the value is dropped, also if the test fails.
#[derive(Debug)]
pub struct KillOnDrop(pub Child);

impl KillOnDrop {
    /// Sends a signal to the process, which must not have been reaped.
    ///
    /// # Errors
    /// The error of kill(2).
    pub fn signal(&self, signal: Signal) -> nix::Result<()> {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal)
    }
}

impl Deref for KillOnDrop {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for KillOnDrop {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // Both fail only if the process has been reaped before.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
