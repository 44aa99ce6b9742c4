// SPDX-License-Identifier: Apache-2.0
//! Sleep of a thread until a receive interrupt or until another thread rings its bell.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use quietwire_dpdk::{Bell, RxQueue};

use super::input::Input;

/// Maximum sleep, ms. Connecting peers do not wake a thread.
const SLEEP_MAX_MS: u8 = 5;
/// Maximum sleep if no peer can connect, ms. The stop flag does not wake a thread either.
const SLEEP_MAX_OF_KERNEL_MS: u8 = 50;
/// Events collected at once. The thread polls all queues afterwards, so their contents do not matter.
const EVENTS: usize = 16;

/// Wake-up sources of a thread: the interrupts of its queues, and its bell.
#[derive(Debug)]
pub(crate) struct Doze {
    epoll: Epoll,
    bell: Arc<Bell>,
    is_armed: bool,
}

impl Doze {
    /// Creates the state of an awake thread without queues.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn new() -> io::Result<Self> {
        let doze = Self {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            bell: Arc::new(Bell::new()?),
            is_armed: false,
        };
        doze.add(doze.bell.as_fd())?;
        Ok(doze)
    }

    /// Returns the wake-up event of the thread.
    pub(crate) const fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    fn add(&self, file: BorrowedFd<'_>) -> nix::Result<()> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0);
        self.epoll.add(file, event)
    }

    /// Adds a receive queue. A queue without a usable interrupt is polled after each sleep.
    pub(super) fn adopt(&self, rx: &RxQueue) {
        if let Some(Err(error)) = rx.interrupt().map(|file| self.add(file)) {
            tracing::warn!("cannot wait for interrupts of a receive queue: {error}");
        }
    }

    /// Removes a receive queue.
    pub(super) fn release(&self, rx: &RxQueue) {
        if let Some(Err(error)) = rx.interrupt().map(|file| self.epoll.delete(file)) {
            tracing::debug!("cannot remove the interrupt of a receive queue: {error}");
        }
    }

    pub(super) const fn is_armed(&self) -> bool {
        self.is_armed
    }

    /// Enables wake-up by frames and orders. The caller must poll once more, for frames that arrived before.
    pub(super) fn arm(&mut self, inputs: &mut [Box<Input>]) {
        self.is_armed = true;
        for input in inputs {
            input.rx.arm();
        }
        self.bell.fall_asleep();
    }

    /// Disables wake-up; the thread polls again.
    pub(super) fn disarm(&mut self, inputs: &mut [Box<Input>]) {
        self.is_armed = false;
        self.bell.wake_up();
        for input in inputs {
            input.rx.disarm();
        }
    }

    /// Sleeps until an event or the maximum sleep time.
    pub(super) fn sleep(&self, inputs: &[Box<Input>]) {
        let mut inputs = inputs.iter();
        let longest_ms = if inputs.all(|input| input.rx.is_signalled_by_kernel()) {
            SLEEP_MAX_OF_KERNEL_MS
        } else {
            SLEEP_MAX_MS
        };
        self.wait(longest_ms);
    }

    /// Sleeps until an event or for this time.
    pub(crate) fn wait(&self, longest_ms: u8) {
        let mut events = [EpollEvent::empty(); EVENTS];
        match self.epoll.wait(&mut events, EpollTimeout::from(longest_ms)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => tracing::debug!("a thread cannot sleep: {error}"),
        }
    }
}
