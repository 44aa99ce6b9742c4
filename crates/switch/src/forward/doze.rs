// SPDX-License-Identifier: Apache-2.0
//! How a forwarding thread sleeps until a receive interrupt.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use quietwire_dpdk::{Bell, RxQueue};

use super::input::Input;

/// Longest sleep, ms. Peers that connect, and the end of the switch, do not wake a thread.
const SLEEP_MAX_MS: u8 = 5;
/// Events that are collected at once. It does not matter which they are: all queues are polled afterwards.
const EVENTS: usize = 16;

/// What a thread waits for: its queues' interrupts, and its bell.
#[derive(Debug)]
pub(crate) struct Doze {
    epoll: Epoll,
    bell: Arc<Bell>,
    is_armed: bool,
}

impl Doze {
    /// A thread without queues that is awake.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn new() -> io::Result<Self> {
        let doze = Self {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            bell: Arc::new(Bell::new()?),
            is_armed: false,
        };
        doze.add(doze.bell.as_fd())?;
        Ok(doze)
    }

    /// What wakes the thread.
    pub(crate) const fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    fn add(&self, file: BorrowedFd<'_>) -> nix::Result<()> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0);
        self.epoll.add(file, event)
    }

    /// A queue is the thread's from now on. One that it cannot wait for is polled after each sleep.
    pub(super) fn adopt(&self, rx: &RxQueue) {
        if let Some(Err(error)) = rx.interrupt().map(|file| self.add(file)) {
            tracing::warn!("a forwarding thread cannot wait for a receive queue: {error}");
        }
    }

    /// A queue is the thread's no longer.
    pub(super) fn release(&self, rx: &RxQueue) {
        if let Some(Err(error)) = rx.interrupt().map(|file| self.epoll.delete(file)) {
            tracing::debug!("a forwarding thread did not wait for a receive queue: {error}");
        }
    }

    pub(super) const fn is_armed(&self) -> bool {
        self.is_armed
    }

    /// Has frames and orders wake the thread from now on. What came before is found by the turn that has to follow.
    pub(super) fn arm(&mut self, inputs: &mut [Box<Input>]) {
        self.is_armed = true;
        for input in inputs {
            input.rx.arm();
        }
        self.bell.fall_asleep();
    }

    /// The thread polls again.
    pub(super) fn disarm(&mut self, inputs: &mut [Box<Input>]) {
        self.is_armed = false;
        self.bell.wake_up();
        for input in inputs {
            input.rx.disarm();
        }
    }

    /// Sleeps until something wakes the thread, or not for long.
    pub(super) fn sleep(&self) {
        let mut events = [EpollEvent::empty(); EVENTS];
        match self
            .epoll
            .wait(&mut events, EpollTimeout::from(SLEEP_MAX_MS))
        {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => tracing::debug!("a forwarding thread did not sleep: {error}"),
        }
    }
}
