// SPDX-License-Identifier: Apache-2.0
//! Requests to the interface of a tap (netdevice(7), rtnetlink(7)), also after it was renamed or moved to another network namespace.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

use super::file::TapFile;
use super::namespace::{Failure, within};
use super::statistics;

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
            statistics: socket(
                AddressFamily::Netlink,
                SockType::Raw,
                flags,
                SockProtocol::NetlinkRoute,
            )
            .map_err(|error| ("socket", error))?,
        })
    }

    fn ask(&self, question: libc::Ioctl, request: &mut libc::ifreq) -> Result<(), Errno> {
        let socket = self.requests.as_raw_fd();
        // SAFETY: an open socket; the call reads and writes a struct ifreq.
        let code = unsafe { libc::ioctl(socket, question, std::ptr::from_mut(request)) };
        Errno::result(code).map(drop)
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
        let set = |request: &mut libc::ifreq| request.ifr_ifru.ifru_mtu = mtu.into();
        self.ask(libc::SIOCSIFMTU, set)
            .map(drop)
            .map_err(|error| ("SIOCSIFMTU", error))
    }

    /// Sets the number of frames that the kernel holds for each queue.
    pub(super) fn set_queue_length(&self, frames: u16) -> Result<(), Failure> {
        // struct ifreq has the length (ifr_qlen) where it has a metric: as an int.
        let set = |request: &mut libc::ifreq| request.ifr_ifru.ifru_metric = frames.into();
        self.ask(libc::SIOCSIFTXQLEN, set)
            .map(drop)
            .map_err(|error| ("SIOCSIFTXQLEN", error))
    }

    /// Sets the interface up.
    pub(super) fn set_up(&self) -> Result<(), Failure> {
        let flags = self.flags().map_err(|error| ("SIOCGIFFLAGS", error))?;
        let flags = (flags | libc::IFF_UP) as libc::c_short;
        let set = |request: &mut libc::ifreq| request.ifr_ifru.ifru_flags = flags;
        self.ask(libc::SIOCSIFFLAGS, set)
            .map(drop)
            .map_err(|error| ("SIOCSIFFLAGS", error))
    }

    /// Returns true while the interface exists, is up and has a carrier.
    pub(super) fn link_is_up(&self) -> bool {
        const UP: libc::c_int = libc::IFF_UP | libc::IFF_RUNNING;
        self.flags().is_ok_and(|flags| flags & UP == UP)
    }

    /// Returns the MTU, octets.
    #[cfg(test)]
    pub(super) fn mtu(&self) -> Result<i32, Errno> {
        let answer = self.ask(libc::SIOCGIFMTU, |_| {})?;
        // SAFETY: the kernel wrote an MTU.
        Ok(unsafe { answer.ifr_ifru.ifru_mtu })
    }

    /// Returns the MAC address; zeroes if the interface is gone.
    pub(super) fn address(&self) -> [u8; 6] {
        self.file.address().unwrap_or_default()
    }

    /// Returns the number of frames that the kernel dropped since the port was opened, most of them because a queue was full.
    pub(super) fn missed(&self) -> u64 {
        self.dropped().saturating_sub(self.dropped_before)
    }

    fn flags(&self) -> Result<libc::c_int, Errno> {
        let answer = self.ask(libc::SIOCGIFFLAGS, |_| {})?;
        // SAFETY: the kernel wrote flags.
        Ok(unsafe { answer.ifr_ifru.ifru_flags }.into())
    }

    /// Queries or changes the interface by its current name, in its current namespace.
    fn ask(
        &self,
        question: libc::Ioctl,
        fill: impl Fn(&mut libc::ifreq),
    ) -> Result<libc::ifreq, Errno> {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut request = self.file.request()?;
        fill(&mut request);
        match sockets.ask(question, &mut request) {
            Err(Errno::ENODEV) => {}
            other => return other.map(|()| request),
        }
        let namespace = self.file.namespace()?;
        *sockets = within(Some(namespace), Sockets::new).map_err(|(_, error)| error)?;
        let mut request = self.file.request()?;
        fill(&mut request);
        sockets.ask(question, &mut request).map(|()| request)
    }

    fn dropped(&self) -> u64 {
        let Ok(answer) = self.ask(libc::SIOCGIFINDEX, |_| {}) else {
            return 0;
        };
        // SAFETY: the kernel wrote an index.
        let index = unsafe { answer.ifr_ifru.ifru_ifindex };
        let sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        statistics::dropped(&sockets.statistics, index).unwrap_or(0)
    }
}
