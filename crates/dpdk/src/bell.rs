// SPDX-License-Identifier: Apache-2.0
//! What wakes a thread of this process that sleeps: a flag that costs nothing while it is awake, and an eventfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// The bell of a thread. Whoever gives it work rings; the thread hears it if it sleeps.
#[derive(Debug)]
pub struct Bell {
    event: EventFd,
    is_asleep: AtomicBool,
}

impl Bell {
    /// The bell of a thread that is awake.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn new() -> io::Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(Self {
            event,
            is_asleep: AtomicBool::new(false),
        })
    }

    /// The thread says that it is going to sleep. It has to look for work once more afterwards: it sees what was there before, and
    /// is woken by what comes later.
    pub fn fall_asleep(&self) {
        self.is_asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The thread says that it is awake.
    pub fn wake_up(&self) {
        self.is_asleep.store(false, Ordering::Relaxed);
    }

    /// Returns true while the thread sleeps or is about to.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.is_asleep.load(Ordering::Relaxed)
    }

    /// Wakes the thread if it sleeps. Called after the work is where the thread looks.
    #[inline]
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Relaxed) {
            self.strike();
        }
    }

    #[cold]
    fn strike(&self) {
        // One of those who ring is enough.
        if self.is_asleep.swap(false, Ordering::Relaxed)
            && let Err(error) = self.event.write(1)
        {
            tracing::debug!("a thread was not woken: {error}");
        }
    }

    /// The descriptor that is signalled, edge by edge: it is never read.
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
