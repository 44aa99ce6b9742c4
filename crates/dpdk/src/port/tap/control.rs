// SPDX-License-Identifier: Apache-2.0
//! Requests to the interface of a tap (netdevice(7), rtnetlink(7)), also after it was renamed or moved to another network namespace.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::file::TapFile;
use super::statistics;
use crate::port::interface_request::InterfaceRequest;
use quietwire_base::netns::{Failure, within};
use quietwire_base::rtnetlink;

/// Sockets in the network namespace of the interface.
#[derive(Debug)]
struct Sockets {
    requests: OwnedFd,
    statistics: OwnedFd,
}

/// Access to the interface.
#[derive(Debug)]
pub(super) struct Control {
    file: Arc<TapFile>,
    sockets: Mutex<Sockets>,
    /// Frames that the kernel had dropped when the port was opened.
    dropped_before: u64,
}

impl Sockets {
    /// Creates the sockets in the network namespace of the thread.
    fn new() -> Result<Self, Failure> {
        let flags = SockFlag::SOCK_CLOEXEC;
        Ok(Self {
            requests: socket(AddressFamily::Inet, SockType::Datagram, flags, None)
                .map_err(|error| ("socket", error))?,
            statistics: rtnetlink::open().map_err(|error| ("socket", error))?,
        })
    }
}

impl Control {
    /// Returns the control of an interface in the network namespace of the thread.
    pub(super) fn new(file: &Arc<TapFile>) -> Result<Self, Failure> {
        let mut own = Self {
            file: Arc::clone(file),
            sockets: Mutex::new(Sockets::new()?),
            dropped_before: 0,
        };
        own.dropped_before = own.dropped();
        Ok(own)
    }

    /// Sets the MTU, octets.
    pub(super) fn set_mtu(&self, mtu: u16) -> Result<(), Failure> {
        self.ask(libc::SIOCSIFMTU, |request| request.set_mtu(mtu.into()))
            .map(drop)
            .map_err(|error| ("SIOCSIFMTU", error))
    }

    /// Sets the number of frames that the kernel holds for each queue.
    pub(super) fn set_queue_length(&self, frames: u16) -> Result<(), Failure> {
        let set = |request: &mut InterfaceRequest| request.set_queue_length(frames.into());
        self.ask(libc::SIOCSIFTXQLEN, set)
            .map(drop)
            .map_err(|error| ("SIOCSIFTXQLEN", error))
    }

    /// Sets the interface up.
    pub(super) fn set_up(&self) -> Result<(), Failure> {
        let present = self.ask(libc::SIOCGIFFLAGS, |_| {});
        let flags = present.map_err(|error| ("SIOCGIFFLAGS", error))?.flags();
        let set = |request: &mut InterfaceRequest| request.set_flags(flags | libc::IFF_UP);
        self.ask(libc::SIOCSIFFLAGS, set)
            .map(drop)
            .map_err(|error| ("SIOCSIFFLAGS", error))
    }

    /// Returns true while the interface exists, is up and has a carrier.
    pub(super) fn link_is_up(&self) -> bool {
        self.ask(libc::SIOCGIFFLAGS, |_| {})
            .is_ok_and(|answer| answer.has_link())
    }

    /// Returns the MTU, octets.
    #[cfg(test)]
    pub(super) fn mtu(&self) -> Result<i32, Errno> {
        Ok(self.ask(libc::SIOCGIFMTU, |_| {})?.mtu())
    }

    /// Returns the MAC address; zeroes if the interface is gone.
    pub(super) fn address(&self) -> [u8; 6] {
        self.file.address().unwrap_or_default()
    }

    /// Returns the number of frames that the kernel dropped since the port was opened, most of them because a queue was full.
    pub(super) fn missed(&self) -> u64 {
        self.dropped().saturating_sub(self.dropped_before)
    }

    /// Queries or changes the interface by its current name, in its current namespace.
    fn ask(
        &self,
        question: libc::Ioctl,
        fill: impl Fn(&mut InterfaceRequest),
    ) -> Result<InterfaceRequest, Errno> {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut request = self.file.request()?;
        fill(&mut request);
        match request.call(&sockets.requests, question) {
            Err(Errno::ENODEV) => {}
            other => return other.map(|()| request),
        }
        let namespace = self.file.namespace()?;
        *sockets = within(Some(namespace), Sockets::new).map_err(|(_, error)| error)?;
        let mut request = self.file.request()?;
        fill(&mut request);
        request.call(&sockets.requests, question)?;
        Ok(request)
    }

    fn dropped(&self) -> u64 {
        let Ok(answer) = self.ask(libc::SIOCGIFINDEX, |_| {}) else {
            return 0;
        };
        let sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        statistics::dropped(&sockets.statistics, answer.index()).unwrap_or(0)
    }
}
