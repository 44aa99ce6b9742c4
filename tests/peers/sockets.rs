// SPDX-License-Identifier: Apache-2.0
//! Common parts of handmade peers of all kinds.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

/// Connects without waiting; returns `None` if the other side accepts no connection now. Calls on the socket block.
pub(crate) fn try_connect(path: &Path, kind: SockType) -> Option<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, kind, flags, None).unwrap();
    let address = UnixAddr::new(path).unwrap();
    connect(socket.as_raw_fd(), &address).ok()?;
    fcntl(&socket, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    Some(socket)
}

/// Returns meaningless octets, the same every time.
pub(crate) fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..count).map(|_| next()).collect()
}

/// Sends octets with open files on a Unix socket, for any reaction of the other side.
pub(crate) fn send(socket: &impl AsRawFd, octets: &[u8], files: &[i32]) -> bool {
    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
    let rights = [ControlMessage::ScmRights(files)];
    let control: &[ControlMessage] = if files.is_empty() { &[] } else { &rights };
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    let slices = [std::io::IoSlice::new(octets)];
    sendmsg::<()>(socket.as_raw_fd(), &slices, control, flags, None).is_ok()
}

/// Creates a file in memory.
pub(crate) fn memory(octets: u64) -> std::fs::File {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    let file = std::fs::File::from(memfd_create("peer", MFdFlags::MFD_ALLOW_SEALING).unwrap());
    file.set_len(octets).unwrap();
    file
}
