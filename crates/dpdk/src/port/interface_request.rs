// SPDX-License-Identifier: Apache-2.0
//! Requests to kernel interfaces: struct ifreq (netdevice(7)).

use std::mem;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::libc;

/// A request, and its answer.
pub(super) struct InterfaceRequest(libc::ifreq);

impl InterfaceRequest {
    /// Returns a request without a name, for calls on the file of an interface.
    pub(super) fn unnamed() -> Self {
        // SAFETY: integers, for which zero is a value.
        Self(unsafe { mem::zeroed() })
    }

    /// Returns a request for an interface by its name. `None` if the name is too long.
    pub(super) fn named(interface: &str) -> Option<Self> {
        let Self(mut request) = Self::unnamed();
        // The last octet stays 0.
        if interface.len() >= request.ifr_name.len() {
            return None;
        }
        for (to, octet) in request.ifr_name.iter_mut().zip(interface.bytes()) {
            *to = octet.cast_signed();
        }
        Some(Self(request))
    }

    /// Returns a request for the interface with an index in the network namespace of `socket`, by its current name.
    ///
    /// # Errors
    /// The kernel's error, such as ENODEV.
    pub(super) fn indexed(socket: impl AsFd, index: libc::c_int) -> Result<Self, Errno> {
        let mut request = Self::unnamed();
        request.0.ifr_ifru.ifru_ifindex = index;
        request.call(socket, libc::SIOCGIFNAME)?;
        Ok(request)
    }

    /// Calls ioctl(2), which reads and writes the request. It must not be one that reads a pointer ([`Self::call_with`]).
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn call(&mut self, file: impl AsFd, question: libc::Ioctl) -> Result<(), Errno> {
        // SAFETY: an open file; the call reads and writes a struct ifreq.
        let code = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), question, &raw mut self.0) };
        Errno::result(code).map(drop)
    }

    /// Calls ioctl(2) with a structure that the kernel reads and writes.
    ///
    /// # Safety
    /// The structure has space for the answer to the question.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) unsafe fn call_with<T>(
        &mut self,
        file: impl AsFd,
        question: libc::Ioctl,
        value: &mut T,
    ) -> Result<(), Errno> {
        self.0.ifr_ifru.ifru_data = std::ptr::from_mut(value).cast();
        self.call(file, question)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the kernel has the lower 16 bits here (netdevice(7))"
    )]
    pub(super) const fn set_flags(&mut self, flags: libc::c_int) {
        self.0.ifr_ifru.ifru_flags = flags as libc::c_short;
    }

    /// Returns the flags (IFF_*).
    pub(super) fn flags(&self) -> libc::c_int {
        // SAFETY: all members of the union are plain integers or pointers, so a part of it can be read as integers.
        unsafe { self.0.ifr_ifru.ifru_flags }.into()
    }

    /// Returns true if the flags are those of an interface that is up and has a carrier.
    pub(super) fn has_link(&self) -> bool {
        const UP: libc::c_int = libc::IFF_UP | libc::IFF_RUNNING;
        self.flags() & UP == UP
    }

    pub(super) const fn set_mtu(&mut self, mtu: libc::c_int) {
        self.0.ifr_ifru.ifru_mtu = mtu;
    }

    /// Returns the MTU: longest packet after the Ethernet header, octets.
    pub(super) const fn mtu(&self) -> libc::c_int {
        // SAFETY: as in `flags`.
        unsafe { self.0.ifr_ifru.ifru_mtu }
    }

    /// Sets the queue length (ifr_qlen), which struct ifreq has as an int, like the metric.
    pub(super) const fn set_queue_length(&mut self, frames: libc::c_int) {
        self.0.ifr_ifru.ifru_metric = frames;
    }

    /// Returns the index.
    pub(super) const fn index(&self) -> libc::c_int {
        // SAFETY: as in `flags`.
        unsafe { self.0.ifr_ifru.ifru_ifindex }
    }

    /// Sets an Ethernet address.
    pub(super) fn set_address(&mut self, address: [u8; 6]) {
        // SAFETY: as in `flags`; a part of the union can be written too.
        let hardware = unsafe { &mut self.0.ifr_ifru.ifru_hwaddr };
        hardware.sa_family = libc::ARPHRD_ETHER;
        for (to, octet) in hardware.sa_data.iter_mut().zip(address) {
            *to = octet.cast_signed();
        }
    }

    /// Returns the type of the interface (linux/if_arp.h, ARPHRD_*) and its address.
    pub(super) fn hardware(&self) -> (u16, [u8; 6]) {
        // SAFETY: as in `flags`.
        let hardware = unsafe { self.0.ifr_ifru.ifru_hwaddr };
        let octets = hardware.sa_data.map(libc::c_char::cast_unsigned);
        let address = octets.first_chunk().copied().unwrap_or_default();
        (hardware.sa_family, address)
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

    use super::*;

    #[test]
    fn an_interface_is_found_by_its_name_and_by_its_index() {
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Inet, SockType::Datagram, flags, None).unwrap();
        let mut named = InterfaceRequest::named("lo").unwrap();
        named.call(&socket, libc::SIOCGIFINDEX).unwrap();
        let mut indexed = InterfaceRequest::indexed(&socket, named.index()).unwrap();
        for request in [&mut named, &mut indexed] {
            request.call(&socket, libc::SIOCGIFFLAGS).unwrap();
            assert_ne!(request.flags() & libc::IFF_LOOPBACK, 0);
            request.call(&socket, libc::SIOCGIFHWADDR).unwrap();
            assert_eq!(request.hardware(), (libc::ARPHRD_LOOPBACK, [0; 6]));
        }
        assert!(InterfaceRequest::indexed(&socket, -1).is_err());
        assert!(InterfaceRequest::named("a-name-of-fifteen").is_none());
    }
}
