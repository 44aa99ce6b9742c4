// SPDX-License-Identifier: Apache-2.0
//! Wakes a sleeping thread of this process: a flag that costs nothing while the thread is awake, and an eventfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// The bell of a thread. Another thread rings it after handing over work, which wakes the thread if it sleeps.
#[derive(Debug)]
pub struct Bell {
    event: EventFd,
    is_asleep: AtomicBool,
}

impl Bell {
    /// Creates the bell of a thread that is awake.
    ///
    /// # Errors
    /// The kernel has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(Self {
            event,
            is_asleep: AtomicBool::new(false),
        })
    }

    /// Announces the sleep of the thread, which must poll for work once more afterwards: it finds earlier work itself, and later
    /// work wakes it.
    pub fn fall_asleep(&self) {
        self.is_asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Announces that the thread is awake.
    pub fn wake_up(&self) {
        self.is_asleep.store(false, Ordering::Relaxed);
    }

    /// Returns true while the thread sleeps or is about to.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.is_asleep.load(Ordering::Relaxed)
    }

    /// Wakes the thread if it sleeps. Call it after the work is where the thread polls.
    #[inline]
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Relaxed) {
            self.signal();
        }
    }

    #[cold]
    fn signal(&self) {
        // One signal is enough if several threads ring.
        if self.is_asleep.swap(false, Ordering::Relaxed)
            && let Err(error) = self.event.write(1)
        {
            tracing::debug!("a thread was not woken: {error}");
        }
    }

    /// Returns the eventfd. It is never read, so wait for its edges.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sleeper_is_signalled_and_only_once() {
        let bell = Bell::new().unwrap();
        bell.ring();
        assert!(bell.event.read().is_err(), "nobody sleeps");
        bell.fall_asleep();
        assert!(bell.is_asleep());
        bell.ring();
        bell.ring();
        assert_eq!(bell.event.read().unwrap(), 1);
        bell.fall_asleep();
        bell.wake_up();
        bell.ring();
        assert!(bell.event.read().is_err(), "it is awake");
    }
}
