// SPDX-License-Identifier: Apache-2.0
//! Turns of tests that change settings of the whole machine, also among processes.

use std::path::Path;
use std::time::Duration;

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
