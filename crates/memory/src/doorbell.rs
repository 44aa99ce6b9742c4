// SPDX-License-Identifier: Apache-2.0
//! Signalling of eventfds from a peer, without blocking.
//!
//! write(2) to an eventfd blocks while its counter is full. The flag that prevents this (`O_NONBLOCK`) belongs to the open
//! file, which the peer shares: the peer can clear the flag and fill the counter, and so block a writing thread for ever.
//! The kernel itself signals eventfds without blocking when an asynchronous request completes (io_submit(2),
//! `IOCB_FLAG_RESFD`; eventfd_signal() of fs/eventfd.c saturates the counter). A request that completes at once, a read of 0
//! octets, therefore signals the eventfd.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};

/// Completions that a context holds until they are collected.
const EVENTS: usize = 32;

/// struct iocb of linux/aio_abi.h.
#[repr(C)]
struct Request {
    data: u64,
    #[cfg(target_endian = "big")]
    flags_read_write: u32,
    key: u32,
    #[cfg(target_endian = "little")]
    flags_read_write: u32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event: u32,
}

/// struct io_event of linux/aio_abi.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct Completion {
    data: u64,
    request: u64,
    result: i64,
    result_more: i64,
}

/// IOCB_CMD_PREAD and IOCB_FLAG_RESFD of linux/aio_abi.h.
const READ: u16 = 0;
const SIGNAL_EVENT: u32 = 1;

/// A peer's eventfd that a thread can signal without blocking. Closed when dropped.
#[derive(Debug)]
pub struct Doorbell {
    event: OwnedFd,
    context: libc::c_ulong,
    /// An empty file to read nothing from.
    source: BorrowedFd<'static>,
}

impl Doorbell {
    /// Takes ownership of an eventfd.
    ///
    /// # Errors
    /// `InvalidInput` if the descriptor is not an eventfd; otherwise the kernel's error: the kernel may lack asynchronous
    /// requests (`CONFIG_AIO`) or have too many contexts (`/proc/sys/fs/aio-max-nr`).
    pub fn new(event: OwnedFd) -> io::Result<Self> {
        if !is_eventfd(event.as_fd())? {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the descriptor is not an eventfd",
            ));
        }
        let source = empty_file()?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes one integer.
        let code = unsafe { libc::syscall(libc::SYS_io_setup, EVENTS, &raw mut context) };
        if code != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            event,
            context,
            source,
        })
    }

    /// Signals the eventfd: adds 1 to its counter unless it is full. Never blocks. Returns false if the kernel refused.
    pub fn ring(&self) -> bool {
        if self.submit() {
            return true;
        }
        // Completions are not needed. Collecting them makes space for new ones.
        self.collect();
        self.submit()
    }

    /// Returns the eventfd.
    #[must_use]
    pub fn into_event(self) -> OwnedFd {
        let doorbell = std::mem::ManuallyDrop::new(self);
        // SAFETY: the context belongs to the doorbell, which is not used or dropped afterwards; its requests are complete.
        unsafe { libc::syscall(libc::SYS_io_destroy, doorbell.context) };
        // SAFETY: read once, from a value that is not dropped.
        unsafe { std::ptr::read(&raw const doorbell.event) }
    }

    fn submit(&self) -> bool {
        let mut request = Request {
            data: 0,
            key: 0,
            flags_read_write: 0,
            opcode: READ,
            priority: 0,
            file: self.source.as_raw_fd().cast_unsigned(),
            buffer: 0,
            length: 0,
            offset: 0,
            reserved: 0,
            flags: SIGNAL_EVENT,
            event: self.event.as_raw_fd().cast_unsigned(),
        };
        let mut requests = [&raw mut request];
        // SAFETY: one request, which the kernel copies during the call; it reads no octets, so it writes to no buffer.
        let taken =
            unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, requests.as_mut_ptr()) };
        taken == 1
    }

    fn collect(&self) {
        let mut completions = [Completion {
            data: 0,
            request: 0,
            result: 0,
            result_more: 0,
        }; EVENTS];
        let at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the array has space for the requested number of completions; the call does not wait.
        unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                0,
                EVENTS,
                completions.as_mut_ptr(),
                &raw const at_once,
            )
        };
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        // SAFETY: the context belongs to this value, and its requests are complete.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

/// Returns true if a descriptor, which may be a peer's, is an eventfd.
///
/// # Errors
/// Error of the operating system. Requires `/proc`.
pub fn is_eventfd(file: BorrowedFd<'_>) -> io::Result<bool> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    Ok(link.as_os_str() == "anon_inode:[eventfd]")
}

fn empty_file() -> io::Result<BorrowedFd<'static>> {
    static FILE: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(file) = FILE.get() {
        return Ok(file.as_fd());
    }
    let file = memfd_create(c"quietwire-doorbell", MFdFlags::MFD_CLOEXEC)?;
    Ok(FILE.get_or_init(|| file).as_fd())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    use nix::sys::eventfd::{EfdFlags, EventFd};

    fn eventfd() -> (OwnedFd, EventFd) {
        let event = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap();
        let copy = nix::unistd::dup(&event).unwrap();
        (copy, event)
    }

    #[test]
    fn each_ring_adds_one() {
        let (copy, event) = eventfd();
        let doorbell = Doorbell::new(copy).unwrap();
        // More often than there is space for completions.
        for _ in 0..1000 {
            assert!(doorbell.ring());
        }
        assert_eq!(event.read().unwrap(), 1000);
    }

    #[test]
    fn a_full_counter_that_blocks_does_not_hold_the_thread() {
        let (copy, event) = eventfd();
        let doorbell = Doorbell::new(copy).unwrap();
        event.write(u64::MAX - 1).unwrap();
        fcntl(&event, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
        for _ in 0..100 {
            doorbell.ring();
        }
        assert!(event.read().unwrap() >= u64::MAX - 1);
    }

    #[test]
    fn a_doorbell_gives_its_eventfd_back() {
        let (copy, event) = eventfd();
        let copy = Doorbell::new(copy).unwrap().into_event();
        let doorbell = Doorbell::new(copy).unwrap();
        assert!(doorbell.ring());
        assert_eq!(event.read().unwrap(), 1);
    }

    #[test]
    fn other_files_are_refused() {
        let file = memfd_create(c"no-eventfd", MFdFlags::MFD_CLOEXEC).unwrap();
        let error = Doorbell::new(file).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
