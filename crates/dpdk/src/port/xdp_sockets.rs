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

/// The AF_XDP sockets of a port. If they are still open when this is dropped, they are closed.
#[derive(Debug, Default)]
pub(super) struct XdpSockets {
    /// Each socket with its receive queue.
    sockets: Vec<(u16, Socket)>,
    /// True if the port may have further sockets, because those of this process could not be listed.
    is_incomplete: bool,
}

impl XdpSockets {
    /// Runs a function, which sets up a receive queue, and adds the AF_XDP sockets that it has opened and left open. Returns its result. No
    /// other thread opens such sockets meanwhile.
    pub(super) fn add_opened_by<T>(&mut self, queue: u16, open: impl FnOnce() -> T) -> T {
        let before = open_sockets();
        let result = open();
        if let (Some(before), Some(after)) = (before, open_sockets()) {
            let opened = after.into_iter().filter(|one| !before.contains(one));
            self.sockets.extend(opened.map(|socket| (queue, socket)));
        } else {
            self.is_incomplete = true;
        }
        result
    }

    /// Returns a duplicate of the socket of a receive queue, to wait for frames (poll(2)).
    ///
    /// # Errors
    /// The queue has no socket, or the kernel has no descriptor left.
    pub(super) fn duplicate(&self, queue: u16) -> io::Result<OwnedFd> {
        let found = self.sockets.iter().find(|(of_queue, _)| *of_queue == queue);
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
        self.sockets.iter().map(|(queue, socket)| {
            // SAFETY: the driver keeps its sockets open while the port is open.
            let file = unsafe { BorrowedFd::borrow_raw(socket.file) };
            (*queue, file)
        })
    }

    /// Returns the mode of the first socket; none without sockets.
    pub(super) fn mode(&self) -> Option<XdpMode> {
        let (_, socket) = self.sockets.first()?;
        mode(*socket)
    }

    /// Returns true if the kernel copies the frames of all sockets, so that it writes to no buffer once they are closed. With zero-copy, the
    /// kernel withdraws buffers from the driver only some time later (net/xdp/xsk_buff_pool.c, xp_put_pool).
    pub(super) fn copy_frames(&self) -> bool {
        let mut sockets = self.sockets.iter();
        sockets.all(|(_, socket)| mode(*socket) == Some(XdpMode::Copy))
    }

    /// Closes the sockets that are still open. Returns false if one of the port's may be open all the same.
    pub(super) fn close(&mut self) -> bool {
        let sockets = mem::take(&mut self.sockets);
        if sockets.is_empty() {
            return !self.is_incomplete;
        }
        let Some(open) = open_sockets() else {
            self.is_incomplete = true;
            return false;
        };
        let sockets: Vec<Socket> = sockets.into_iter().map(|(_, socket)| socket).collect();
        for socket in sockets.iter().filter(|socket| open.contains(socket)) {
            // SAFETY: it is the driver's, which does not know it any more. The number has not been given to another socket.
            drop(unsafe { OwnedFd::from_raw_fd(socket.file) });
        }
        // A copy of a descriptor would keep its socket open.
        let is_own = |one: &Socket| sockets.iter().any(|own| own.inode == one.inode);
        let are_closed = open_sockets().is_some_and(|open| !open.iter().any(is_own));
        are_closed && !self.is_incomplete
    }
}

fn mode(socket: Socket) -> Option<XdpMode> {
    let options: u32 = option(socket.file, SOL_XDP, XDP_OPTIONS)?;
    Some(if options & XDP_OPTIONS_ZEROCOPY == 0 {
        XdpMode::Copy
    } else {
        XdpMode::ZeroCopy
    })
}

impl Drop for XdpSockets {
    fn drop(&mut self) {
        self.close();
    }
}

/// Returns the AF_XDP sockets of this process, unless they cannot be listed.
fn open_sockets() -> Option<Vec<Socket>> {
    read()
        .inspect_err(|error| tracing::warn!("cannot list the sockets of this process: {error}"))
        .ok()
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
