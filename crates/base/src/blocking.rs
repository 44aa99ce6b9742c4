// SPDX-License-Identifier: Apache-2.0
//! Operations that the kernel may block for any time, such as reading a file of a device whose driver hangs.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Most operations of [`run_within`] at a time. Each has a thread, and a driver that hangs may block every one that is tried.
const RUNNING_MAX: usize = 64;

/// Number of operations that run or are blocked.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// An operation that is counted until it ends.
struct Running<'a>(&'a AtomicUsize);

impl<'a> Running<'a> {
    fn begin(count: &'a AtomicUsize) -> io::Result<Self> {
        let others = count.fetch_add(1, Ordering::Relaxed);
        let running = Self(count);
        if others < RUNNING_MAX {
            return Ok(running);
        }
        Err(io::Error::new(
            ErrorKind::TimedOut,
            format!("the kernel has not finished {others} earlier operations"),
        ))
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs an operation in a thread of its own, and returns after a time even if it has not finished. A blocked operation goes on, and may
/// have its effect later.
///
/// # Errors
/// Those of the operation; [`ErrorKind::TimedOut`] after the time, or at once if 64 operations have not finished.
pub fn run_within<T: Send + 'static>(
    time: Duration,
    operation: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let running = Running::begin(&RUNNING)?;
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new()
        .name("kernel-file".to_owned())
        .spawn(move || {
            let result = operation();
            drop(running);
            // After the time, no receiver is left.
            let _ = sender.send(result);
        })?;
    receiver.recv_timeout(time).unwrap_or_else(|_| {
        let waited_s = time.as_secs_f64();
        let text = format!("the kernel did not finish within {waited_s} s");
        Err(io::Error::new(ErrorKind::TimedOut, text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_operation_ends_at_its_time() {
        let (release, blocked) = mpsc::channel::<()>();
        let wait = move || {
            // Fails when the test ends, which releases the thread.
            let _ = blocked.recv();
            Ok(())
        };
        let error = run_within(Duration::from_millis(20), wait).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let minute = Duration::from_secs(60);
        assert_eq!(run_within(minute, || Ok(7)).unwrap(), 7);
        let refused = || Err::<(), _>(ErrorKind::PermissionDenied.into());
        let error = run_within(minute, refused).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        drop(release);
    }

    #[test]
    fn the_number_of_blocked_operations_is_bounded() {
        let count = AtomicUsize::new(0);
        let mut running: Vec<Running<'_>> = Vec::new();
        for _ in 0..RUNNING_MAX {
            running.push(Running::begin(&count).unwrap());
        }
        let error = Running::begin(&count).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        running.pop();
        assert!(Running::begin(&count).is_ok());
    }
}
