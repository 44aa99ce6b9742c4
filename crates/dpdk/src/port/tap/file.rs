// SPDX-License-Identifier: Apache-2.0
//! One queue of a tap: an open file of `/dev/net/tun` (Linux, Documentation/networking/tuntap.rst).

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::sys::stat::Mode;
use nix::sys::uio::{readv, writev};
use quietwire_vhost::ring::header::HEADER_LEN;

use crate::port::interface_request::InterfaceRequest;
use quietwire_base::netns::Failure;

/// Device that creates taps.
pub(crate) const TUN_DEVICE: &str = "/dev/net/tun";

/// A queue of a tap. The kernel deletes the interface, unless it is persistent, when its last queue is closed.
#[derive(Debug)]
pub(super) struct TapFile(OwnedFd);

impl AsFd for TapFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl TapFile {
    /// Creates an interface in the network namespace of the thread, or adds a queue to it. An existing interface must be a tap with
    /// space for one queue more.
    pub(super) fn attach(interface: &str, has_queues: bool) -> Result<Self, Failure> {
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = open(TUN_DEVICE, flags, Mode::empty()).map_err(|error| (TUN_DEVICE, error))?;
        let own = Self(file);
        let mut flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        if has_queues {
            flags |= libc::IFF_MULTI_QUEUE;
        }
        let request = InterfaceRequest::named(interface);
        let mut request = request.ok_or(("TUNSETIFF", Errno::EINVAL))?;
        request.set_flags(flags);
        request
            .call(&own, libc::TUNSETIFF)
            .map_err(|error| ("TUNSETIFF", error))?;
        Ok(own)
    }

    /// Gives each frame the header of virtio 1.2 in little endian, of [`HEADER_LEN`] octets. Applies to all queues.
    pub(super) fn set_header(&self) -> Result<(), Failure> {
        let is_little_endian: libc::c_int = 1;
        let length = libc::c_int::try_from(HEADER_LEN);
        let length = length.map_err(|_| ("TUNSETVNETHDRSZ", Errno::EINVAL))?;
        for (step, request, value) in [
            ("TUNSETVNETLE", libc::TUNSETVNETLE, is_little_endian),
            ("TUNSETVNETHDRSZ", libc::TUNSETVNETHDRSZ, length),
        ] {
            // SAFETY: an open file; the call reads an int.
            let code = unsafe { libc::ioctl(self.0.as_raw_fd(), request, &raw const value) };
            Errno::result(code).map_err(|error| (step, error))?;
        }
        Ok(())
    }

    /// Lets the kernel leave checksums and segmentation to this side. Applies to all queues. Returns true if the kernel knows segmentation
    /// of UDP data, in either direction (Linux 6.2).
    pub(super) fn accept_offloads(&self) -> Result<bool, Failure> {
        let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
        let accept =
            |flags: libc::c_uint| self.set("TUNSETOFFLOAD", libc::TUNSETOFFLOAD, flags.into());
        match accept(tcp | udp) {
            Err((_, Errno::EINVAL)) => accept(tcp).map(|()| false),
            other => other.map(|()| true),
        }
    }

    /// Keeps the interface after its last queue is closed.
    pub(super) fn keep(&self) -> Result<(), Failure> {
        self.set("TUNSETPERSIST", libc::TUNSETPERSIST, 1)
    }

    /// Sets the MAC address of the interface.
    pub(super) fn set_address(&self, address: [u8; 6]) -> Result<(), Failure> {
        let mut request = InterfaceRequest::unnamed();
        request.set_address(address);
        request
            .call(self, libc::SIOCSIFHWADDR)
            .map_err(|error| ("SIOCSIFHWADDR", error))
    }

    /// Returns the MAC address of the interface.
    pub(super) fn address(&self) -> Result<[u8; 6], Errno> {
        let mut request = InterfaceRequest::unnamed();
        request.call(self, libc::SIOCGIFHWADDR)?;
        Ok(request.hardware().1)
    }

    /// Returns a request with the current name of the interface.
    pub(super) fn request(&self) -> Result<InterfaceRequest, Errno> {
        let mut request = InterfaceRequest::unnamed();
        request.call(self, libc::TUNGETIFF)?;
        Ok(request)
    }

    /// Returns the current network namespace of the interface (Linux 5.8).
    pub(super) fn namespace(&self) -> Result<OwnedFd, Errno> {
        // SAFETY: an open file; the call has no argument and returns a new descriptor.
        unsafe {
            let file = libc::ioctl(self.0.as_raw_fd(), libc::TUNGETDEVNETNS);
            Errno::result(file).map(|file| OwnedFd::from_raw_fd(file))
        }
    }

    /// Reads one frame, preceded by its header. Returns the number of octets, which are as many as there is space for if the frame is too
    /// long. EAGAIN if there is no frame.
    #[inline(always)]
    pub(super) fn read(&self, parts: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        readv(&self.0, parts)
    }

    /// Writes one frame, preceded by its header.
    #[inline(always)]
    pub(super) fn write(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        writev(&self.0, parts)
    }

    fn set(
        &self,
        step: &'static str,
        request: libc::Ioctl,
        value: libc::c_ulong,
    ) -> Result<(), Failure> {
        // SAFETY: an open file; the argument is a number.
        let code = unsafe { libc::ioctl(self.0.as_raw_fd(), request, value) };
        Errno::result(code).map(drop).map_err(|error| (step, error))
    }
}

#[cfg(test)]
impl From<OwnedFd> for TapFile {
    /// Returns a queue whose kernel is the test: it reads and writes the other end of a pair of datagram sockets.
    fn from(file: OwnedFd) -> Self {
        Self(file)
    }
}
