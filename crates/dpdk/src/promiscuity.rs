// SPDX-License-Identifier: Apache-2.0
//! Promiscuous mode of a kernel interface, held by a value.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::libc;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// A membership in the interface's promiscuous mode (packet(7), PACKET_MR_PROMISC). The kernel counts memberships, and removes
/// this one when its socket is closed, even if the process was killed. The interface flag that DPDK's drivers set
/// instead would stay.
#[derive(Debug)]
pub(crate) struct Promiscuity {
    _socket: OwnedFd,
}

impl Promiscuity {
    /// Enables promiscuous mode until the value is dropped.
    ///
    /// # Errors
    /// The kernel's error: the interface does not exist, or the process lacks the privilege.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "constants of the kernel: a number of 16 bits, and the size of a structure"
    )]
    pub(crate) fn of(interface: &str) -> io::Result<Self> {
        let index = if_nametoindex(interface)?;
        // Protocol 0: the socket itself receives nothing.
        let socket = socket(
            AddressFamily::Packet,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC,
            None,
        )?;
        // SAFETY: plain integers for which zero is a value.
        let mut request: libc::packet_mreq = unsafe { mem::zeroed() };
        request.mr_ifindex = index.cast_signed();
        request.mr_type = libc::PACKET_MR_PROMISC as libc::c_ushort;
        let size = mem::size_of::<libc::packet_mreq>() as libc::socklen_t;
        // SAFETY: an open socket, and a value of the size that is given.
        let code = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_ADD_MEMBERSHIP,
                (&raw const request).cast(),
                size,
            )
        };
        if code != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { _socket: socket })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_interface_is_an_error() {
        assert!(Promiscuity::of("quietwire-none").is_err());
    }

    #[test]
    fn the_interface_itself_is_left_as_it_was() {
        let is_root = nix::unistd::geteuid().is_root();
        assert!(is_root, "packet sockets require root");
        let flags = || {
            let text = std::fs::read_to_string("/sys/class/net/lo/flags").unwrap();
            u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).unwrap()
        };
        let before = flags();
        let held = Promiscuity::of("lo").unwrap();
        assert_eq!(flags(), before | libc::IFF_PROMISC as u32);
        drop(held);
        assert_eq!(flags(), before);
    }
}
