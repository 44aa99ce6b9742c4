// SPDX-License-Identifier: Apache-2.0
//! AF_XDP sockets that DPDK's driver leaves open.
//!
//! The driver counts the users of the memory of a queue (`refcnt` of `struct xsk_umem_info`), and releases the memory one user too late
//! (22.11, `eth_dev_close`). The memory keeps the socket open, and with it the queue of the interface: this process could not open it again.

use std::fs;
use std::io;
use std::mem;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::libc;

/// linux/xdp.h, XDP_OPTIONS and its flag.
const SOL_XDP: libc::c_int = 283;
const XDP_OPTIONS: libc::c_int = 8;
const XDP_OPTIONS_ZEROCOPY: u32 = 1;

/// Path of frames between an interface and an AF_XDP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// The driver uses the port's buffers.
    ZeroCopy,
    /// The kernel copies frames.
    Copy,
}

impl std::fmt::Display for XdpMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ZeroCopy => "zero-copy",
            Self::Copy => "copy",
        })
    }
}

/// A socket and its number in the kernel, which no other socket has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Socket {
    file: RawFd,
    inode: u64,
}

/// The AF_XDP sockets of a port, each with its receive queue. If they are still open when this is dropped, they are closed.
#[derive(Debug, Default)]
pub(super) struct XdpSockets(Vec<(u16, Socket)>);

impl XdpSockets {
    /// Runs a function, which sets up a receive queue, and adds the AF_XDP sockets that it has opened and left open. Returns its result. No
    /// other thread opens such sockets meanwhile.
    pub(super) fn add_opened_by<T>(&mut self, queue: u16, open: impl FnOnce() -> T) -> T {
        let before = open_sockets();
        let result = open();
        let opened = open_sockets().into_iter();
        let opened = opened.filter(|socket| !before.contains(socket));
        self.0.extend(opened.map(|socket| (queue, socket)));
        result
    }

    /// Returns a duplicate of the socket of a receive queue, to wait for frames (poll(2)).
    ///
    /// # Errors
    /// The queue has no socket, or the kernel has no descriptor left.
    pub(super) fn duplicate(&self, queue: u16) -> io::Result<OwnedFd> {
        let found = self.0.iter().find(|(of_queue, _)| *of_queue == queue);
        let (_, socket) = found.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                "the driver's socket is not in /proc/self/fd",
            )
        })?;
        // SAFETY: the driver keeps its socket open while the port is open.
        unsafe { BorrowedFd::borrow_raw(socket.file) }.try_clone_to_owned()
    }

    /// Returns the sockets with their receive queues, in order.
    pub(super) fn files(&self) -> impl Iterator<Item = (u16, BorrowedFd<'_>)> {
        self.0.iter().map(|(queue, socket)| {
            // SAFETY: the driver keeps its sockets open while the port is open.
            let file = unsafe { BorrowedFd::borrow_raw(socket.file) };
            (*queue, file)
        })
    }

    /// Returns the mode of the first socket; none without sockets.
    pub(super) fn mode(&self) -> Option<XdpMode> {
        let (_, socket) = self.0.first()?;
        let options: u32 = option(socket.file, SOL_XDP, XDP_OPTIONS)?;
        Some(if options & XDP_OPTIONS_ZEROCOPY == 0 {
            XdpMode::Copy
        } else {
            XdpMode::ZeroCopy
        })
    }
}

impl Drop for XdpSockets {
    fn drop(&mut self) {
        if self.0.is_empty() {
            return;
        }
        let open = open_sockets();
        let sockets = self.0.iter().map(|(_, socket)| socket);
        for socket in sockets.filter(|socket| open.contains(socket)) {
            // SAFETY: it is the driver's, which does not know it any more. The number has not been given to another socket.
            drop(unsafe { OwnedFd::from_raw_fd(socket.file) });
        }
    }
}

/// Returns the AF_XDP sockets of this process.
fn open_sockets() -> Vec<Socket> {
    match read() {
        Ok(sockets) => sockets,
        Err(error) => {
            tracing::warn!("cannot list the sockets of this process: {error}");
            Vec::new()
        }
    }
}

fn read() -> io::Result<Vec<Socket>> {
    let mut sockets = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        // A descriptor may have been closed meanwhile.
        let Ok(target) = fs::read_link(entry.path()) else {
            continue;
        };
        let name = entry.file_name();
        let file = name.to_str().and_then(|name| name.parse().ok());
        let inode = target
            .to_str()
            .and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']'))
            .and_then(|inode| inode.parse().ok());
        if let (Some(file), Some(inode)) = (file, inode)
            && domain_of(file) == Some(libc::AF_XDP)
        {
            sockets.push(Socket { file, inode });
        }
    }
    Ok(sockets)
}

/// Returns the domain of a socket (socket(7), SO_DOMAIN).
fn domain_of(file: RawFd) -> Option<libc::c_int> {
    option(file, libc::SOL_SOCKET, libc::SO_DOMAIN).map(u32::cast_signed)
}

/// Returns an option of a socket that is one word.
fn option(file: RawFd, level: libc::c_int, name: libc::c_int) -> Option<u32> {
    let mut value: u32 = 0;
    let mut length = libc::socklen_t::try_from(mem::size_of_val(&value)).ok()?;
    // SAFETY: the kernel writes at most `length` octets, those of the integer.
    let code =
        unsafe { libc::getsockopt(file, level, name, (&raw mut value).cast(), &raw mut length) };
    (code == 0).then_some(value)
}
