// SPDX-License-Identifier: Apache-2.0
//! Packet sockets (packet(7)), one to receive and one to send per queue, and queries of their interface
//! (netdevice(7)).

use std::io::{IoSlice, IoSliceMut};
use std::mem::{self, MaybeUninit};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::sys::uio::{readv, writev};

use super::geometry::Geometry;
use crate::port::features::{self, Features};
use crate::port::interface_request::InterfaceRequest;

/// linux/if_packet.h, TPACKET_V2.
const VERSION_2: libc::c_int = 1;
/// Most octets that frames longer than a slot occupy in the kernel, in each direction: a few round trips of TCP on this machine.
const WHOLE_FRAMES_MAX: usize = 16 << 20;
/// linux/if_packet.h, PACKET_COPY_THRESH.
const PACKET_COPY_THRESH: libc::c_int = 7;

/// Index of the interface of a socket that has none.
const NO_INTERFACE: u32 = 0;

/// Failed step of a socket's creation, with the error.
pub(super) type Failure = (&'static str, Errno);

/// A packet socket and its interface.
#[derive(Debug)]
pub(super) struct PacketSocket {
    socket: OwnedFd,
    /// Index of the interface. A later interface of the same name has a different index.
    interface: libc::c_int,
}

impl Deref for PacketSocket {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        &self.socket
    }
}

impl PacketSocket {
    /// Creates a socket that receives into a ring, without an interface. It receives nothing before [`Self::start`].
    ///
    /// Each frame has a `virtio_net_hdr`, which describes an incomplete checksum and segmentation (PACKET_VNET_HDR). A frame that is
    /// longer than a slot also waits in the socket's queue, as a reference and without a copy (PACKET_COPY_THRESH).
    pub(super) fn receiver(ring: Geometry) -> Result<Self, Failure> {
        let own = Self::new(NO_INTERFACE)?;
        own.set("PACKET_VNET_HDR", libc::PACKET_VNET_HDR, &1i32)?;
        own.set("PACKET_IGNORE_OUTGOING", libc::PACKET_IGNORE_OUTGOING, &1)?;
        own.set("PACKET_COPY_THRESH", PACKET_COPY_THRESH, &1i32)?;
        own.set_size([libc::SO_RCVBUFFORCE, libc::SO_RCVBUF], WHOLE_FRAMES_MAX);
        own.set("PACKET_RX_RING", libc::PACKET_RX_RING, &ring.request())?;
        Ok(own)
    }

    /// Creates a socket that sends and never receives. The kernel holds up to about `octets` octets of frames in transmission.
    ///
    /// Frames go to the driver without a queueing discipline (PACKET_QDISC_BYPASS): a queueing discipline delays frames, and drops them
    /// after this side has counted them as sent (all of them, while the interface has no carrier).
    pub(super) fn sender(interface: u32, octets: usize) -> Result<Self, Failure> {
        let own = Self::new(interface)?;
        own.set("PACKET_QDISC_BYPASS", libc::PACKET_QDISC_BYPASS, &1)?;
        own.set_size([libc::SO_SNDBUFFORCE, libc::SO_SNDBUF], octets);
        own.bind(0)?;
        Ok(own)
    }

    /// Sets the interface.
    pub(super) fn with_interface(mut self, interface: u32) -> Self {
        self.interface = interface.cast_signed();
        self
    }

    /// Creates a socket that sends frames with a `virtio_net_hdr`, one by one, and never receives.
    pub(super) fn whole_sender(interface: u32) -> Result<Self, Failure> {
        let own = Self::new(interface)?;
        own.set("PACKET_VNET_HDR", libc::PACKET_VNET_HDR, &1i32)?;
        own.set("PACKET_QDISC_BYPASS", libc::PACKET_QDISC_BYPASS, &1)?;
        own.set_size([libc::SO_SNDBUFFORCE, libc::SO_SNDBUF], WHOLE_FRAMES_MAX);
        own.bind(0)?;
        Ok(own)
    }

    /// Sets a size of the socket's buffers, above the system's limit if the process has the privilege. `options` are with and without it.
    fn set_size(&self, options: [libc::c_int; 2], octets: usize) {
        let octets = libc::c_int::try_from(octets).unwrap_or(libc::c_int::MAX / 2);
        let [forced, limited] = options;
        if self.set_of(libc::SOL_SOCKET, forced, &octets).is_err() {
            // Smaller buffers work too.
            let _ = self.set_of(libc::SOL_SOCKET, limited, &octets);
        }
    }

    /// Reads the next frame of the socket's queue, a `virtio_net_hdr` first. Returns the number of octets read.
    #[inline]
    pub(super) fn read(&self, pieces: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        match readv(self.as_fd(), pieces) {
            Err(Errno::EAGAIN) => Err(Errno::EAGAIN),
            // An error of the interface, such as its going down, is reported once and consumes no frame.
            Err(_) => readv(self.as_fd(), pieces),
            Ok(octets) => Ok(octets),
        }
    }

    /// Sends one frame, a `virtio_net_hdr` first, without blocking.
    #[inline]
    pub(super) fn write(&self, pieces: &[IoSlice<'_>]) -> Result<usize, Errno> {
        writev(self.as_fd(), pieces)
    }

    /// Returns the offload features of the interface with this name.
    pub(super) fn features(&self, interface: &str) -> Result<Features, Errno> {
        Features::of(self.as_fd(), interface)
    }

    /// Returns true if the interface with this name is an end of a pair of the kernel (veth(4)).
    pub(super) fn is_pair(&self, interface: &str) -> bool {
        features::driver(self.as_fd(), interface).is_ok_and(|driver| driver == "veth")
    }

    /// Returns a socket without a ring, which receives and sends frame by frame.
    #[cfg(test)]
    pub(super) fn plain(interface: u32) -> Result<Self, Failure> {
        let own = Self::new(interface)?;
        own.set(
            "PACKET_IGNORE_OUTGOING",
            libc::PACKET_IGNORE_OUTGOING,
            &1i32,
        )?;
        own.bind(libc::ETH_P_ALL)?;
        Ok(own)
    }

    fn new(interface: u32) -> Result<Self, Failure> {
        // Protocol 0: the socket receives nothing.
        let socket = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            None,
        )
        .map_err(|error| ("socket", error))?;
        let own = Self {
            socket,
            interface: interface.cast_signed(),
        };
        own.set("PACKET_VERSION", libc::PACKET_VERSION, &VERSION_2)?;
        Ok(own)
    }

    /// Starts to receive. Sockets of one port share the frames: the kernel passes each flow, and all fragments between two
    /// addresses, to the same socket.
    ///
    /// Between a socket's bind and its join, several sockets would receive every frame. Until all have joined, a filter drops
    /// all frames.
    pub(super) fn start<'all>(
        all: impl ExactSizeIterator<Item = &'all Self> + Clone,
    ) -> Result<(), Failure> {
        if all.len() == 1 {
            return all.clone().try_for_each(|one| one.bind(libc::ETH_P_ALL));
        }
        let mut id = 0;
        for (number, one) in all.clone().enumerate() {
            one.block_receive()?;
            one.bind(libc::ETH_P_ALL)?;
            id = one.join((number > 0).then_some(id))?;
        }
        all.clone().try_for_each(Self::unblock_receive)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "constants of the kernel: an address family, a protocol of 16 bits, and the size of a structure"
    )]
    fn bind(&self, protocol: libc::c_int) -> Result<(), Failure> {
        // SAFETY: plain integers for which zero is a value.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as libc::c_ushort;
        address.sll_protocol = (protocol as u16).to_be();
        address.sll_ifindex = self.interface;
        let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: an open socket, and an address of the size that is given.
        let code = unsafe { libc::bind(self.as_raw_fd(), (&raw const address).cast(), size) };
        Errno::result(code)
            .map(drop)
            .map_err(|error| ("bind", error))
    }

    /// Joins the fanout group with a number, or creates a group and returns its number. Without
    /// PACKET_FANOUT_FLAG_DEFRAG the kernel does not reassemble fragments.
    fn join(&self, group: Option<u16>) -> Result<u16, Failure> {
        // PACKET_IGNORE_OUTGOING of a socket does not apply to its group, which has a flag for it.
        let mut kind = libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
        if group.is_none() {
            kind |= libc::PACKET_FANOUT_FLAG_UNIQUEID;
        }
        let argument = u32::from(group.unwrap_or(0)) | kind << 16;
        self.set("PACKET_FANOUT", libc::PACKET_FANOUT, &argument)?;
        let joined: u32 = self
            .get(libc::PACKET_FANOUT)
            .map_err(|error| ("PACKET_FANOUT", error))?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the lower 16 bits are the number of the group (packet(7))"
        )]
        let number = joined as u16;
        Ok(number)
    }

    /// Drops all frames.
    fn block_receive(&self) -> Result<(), Failure> {
        // One instruction: return 0 octets (linux/bpf_common.h, BPF_RET | BPF_K).
        let mut nothing = libc::sock_filter {
            code: u16::try_from(libc::BPF_RET | libc::BPF_K).unwrap_or_default(),
            jt: 0,
            jf: 0,
            k: 0,
        };
        let program = libc::sock_fprog {
            len: 1,
            filter: &raw mut nothing,
        };
        self.set_of(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
            .map_err(|error| ("SO_ATTACH_FILTER", error))
    }

    /// Sets a program that decides which frames the socket receives, or lets it receive all.
    pub(super) fn set_filter(&self, program: Option<BorrowedFd<'_>>) -> Result<(), Failure> {
        let Some(program) = program else {
            return self.unblock_receive();
        };
        self.set_of(libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &program.as_raw_fd())
            .map_err(|error| ("SO_ATTACH_BPF", error))
    }

    fn unblock_receive(&self) -> Result<(), Failure> {
        self.set_of(libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0i32)
            .map_err(|error| ("SO_DETACH_FILTER", error))
    }

    /// Sends frames with one call, without blocking. Returns the number of frames sent, from the first one on. An error is that of the
    /// first frame (sendmmsg(2)).
    ///
    /// # Safety
    /// The headers are initialized, and what they point to is memory of this process.
    #[inline]
    pub(super) unsafe fn send_messages(
        &self,
        headers: &mut [MaybeUninit<libc::mmsghdr>],
    ) -> Result<usize, Errno> {
        let count = libc::c_uint::try_from(headers.len()).unwrap_or(libc::c_uint::MAX);
        let first = headers.as_mut_ptr().cast();
        // SAFETY: an open socket, and `count` initialized headers.
        let sent = unsafe { libc::sendmmsg(self.as_raw_fd(), first, count, libc::MSG_DONTWAIT) };
        Errno::result(sent).map(|sent| usize::try_from(sent).unwrap_or_default())
    }

    /// Returns the number of frames lost because of a full ring since the last call.
    pub(super) fn take_drops(&self) -> u32 {
        let stats: Result<libc::tpacket_stats, Errno> = self.get(libc::PACKET_STATISTICS);
        stats.map_or(0, |stats| stats.tp_drops)
    }

    fn set<T>(&self, step: &'static str, option: libc::c_int, value: &T) -> Result<(), Failure> {
        self.set_of(libc::SOL_PACKET, option, value)
            .map_err(|error| (step, error))
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the size of a structure of the kernel"
    )]
    fn set_of<T>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> Result<(), Errno> {
        // SAFETY: an open socket, and a value of the size that is given.
        let code = unsafe {
            libc::setsockopt(
                self.as_raw_fd(),
                level,
                option,
                ptr::from_ref(value).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        };
        Errno::result(code).map(drop)
    }

    /// Reads an option of the socket (getsockopt(2)). `T` is a structure of integers.
    fn get<T>(&self, option: libc::c_int) -> Result<T, Errno> {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the size of a structure of the kernel"
        )]
        let mut size = size_of::<T>() as libc::socklen_t;
        // SAFETY: integers, for which zero is a value; an open socket, and a place of the size that is given.
        let (code, value) = unsafe {
            let mut value: T = mem::zeroed();
            let place = (&raw mut value).cast();
            let code = libc::getsockopt(
                self.as_raw_fd(),
                libc::SOL_PACKET,
                option,
                place,
                &raw mut size,
            );
            (code, value)
        };
        Errno::result(code).map(|_| value)
    }

    /// Returns true while the interface exists, is up and has a carrier.
    pub(super) fn link_is_up(&self) -> bool {
        self.ask(libc::SIOCGIFFLAGS)
            .is_ok_and(|answer| answer.has_link())
    }

    /// Returns the MTU: longest packet after the Ethernet header, octets.
    pub(super) fn mtu(&self) -> Result<usize, Errno> {
        Ok(usize::try_from(self.ask(libc::SIOCGIFMTU)?.mtu()).unwrap_or(0))
    }

    /// Returns the interface's type (linux/if_arp.h, ARPHRD_*) and address.
    pub(super) fn hardware(&self) -> Result<(u16, [u8; 6]), Errno> {
        Ok(self.ask(libc::SIOCGIFHWADDR)?.hardware())
    }

    /// Queries the interface. The socket has its index; the query uses its current name.
    fn ask(&self, question: libc::Ioctl) -> Result<InterfaceRequest, Errno> {
        let mut request = InterfaceRequest::indexed(&self.socket, self.interface)?;
        request.call(&self.socket, question)?;
        Ok(request)
    }
}
