// SPDX-License-Identifier: Apache-2.0
//! Receive interrupts, which a thread waits for instead of polling.
//!
//! Each receive queue has an epoll instance, which stays while peers connect and disconnect. A thread waits for it in a second epoll
//! instance. Both are edge-triggered: the descriptor of a peer is never read, because a read could block forever. Its counter
//! grows, and each signal is an edge.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use quietwire_memory::is_eventfd;

/// The interrupts of one receive queue.
#[derive(Clone, Debug)]
pub(crate) struct Interrupts(Arc<Epoll>);

/// A descriptor that signals the interrupts of a queue until this is dropped.
#[derive(Debug)]
pub(crate) struct Watched {
    interrupts: Interrupts,
    file: OwnedFd,
}

impl Interrupts {
    /// Creates interrupts without a source.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?)))
    }

    /// Adds a descriptor of this process as a source.
    pub(crate) fn watch(&self, file: OwnedFd) -> io::Result<Watched> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0);
        self.0.add(&file, event)?;
        Ok(Watched {
            interrupts: self.clone(),
            file,
        })
    }

    /// Adds a descriptor of a peer as a source. Only an eventfd is accepted: another file of the peer could block the thread that
    /// polls it for events.
    pub(crate) fn watch_peer(&self, file: OwnedFd) -> io::Result<Watched> {
        if !is_eventfd(file.as_fd())? {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the descriptor is not an eventfd",
            ));
        }
        self.watch(file)
    }

    /// Returns the descriptor to wait for.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // The peer holds the open file too, so it would stay a source after this descriptor is closed.
        if let Err(error) = self.interrupts.0.delete(&self.file) {
            tracing::debug!("cannot remove a descriptor from epoll: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::epoll::EpollTimeout;
    use nix::sys::eventfd::{EfdFlags, EventFd};
    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    fn eventfd() -> (OwnedFd, EventFd) {
        let event = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap();
        (event.as_fd().try_clone_to_owned().unwrap(), event)
    }

    #[test]
    fn each_signal_of_an_unread_eventfd_is_an_edge() {
        let interrupts = Interrupts::new().unwrap();
        let thread = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        let edge = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 7);
        thread.add(interrupts.as_fd(), edge).unwrap();
        let is_woken = || {
            let mut events = [EpollEvent::empty()];
            thread.wait(&mut events, EpollTimeout::ZERO).unwrap() == 1
        };
        let (copy, event) = eventfd();
        let watched = interrupts.watch_peer(copy).unwrap();
        assert!(!is_woken());
        for _ in 0..3 {
            event.write(1).unwrap();
            assert!(is_woken());
            assert!(!is_woken());
        }
        drop(watched);
        event.write(1).unwrap();
        assert!(!is_woken());
    }

    #[test]
    fn descriptors_other_than_eventfds_are_refused() {
        let interrupts = Interrupts::new().unwrap();
        let file = memfd_create(c"no-eventfd", MFdFlags::MFD_CLOEXEC).unwrap();
        let error = interrupts.watch_peer(file).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
