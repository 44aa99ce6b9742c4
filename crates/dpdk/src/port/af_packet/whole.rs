// SPDX-License-Identifier: Apache-2.0
//! Frames that are longer than a slot: up to 64 KiB of TCP or UDP data, to be segmented (virtio 1.2, section 5.1.6). Each of them takes
//! one system call, which copies it between the kernel and packet buffers.

use std::array;
use std::io::{IoSlice, IoSliceMut};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use nix::errno::Errno;
use quietwire_base::proc::{kernel_release, release_numbers};
use quietwire_vhost::ring::header::{HEADER_LEN_LEGACY, RawHeader};

use super::slot::{self, Queued, Tag};
use super::socket::PacketSocket;
use crate::burst::{self, Mbuf, space};
use crate::eal::Eal;
use crate::mempool::Mempool;
use crate::port::features::Features;
use crate::port::offload::{
    LARGE_SPACE, Offload, SEGMENTED_BUFFERS_MAX as BUFFERS_MAX, SEGMENTED_MAX, header_of,
};
use crate::port::transfer::Outgoing;
use crate::segment::{LargeKind, MERGED_MAX};
use crate::sys::{self, field};

/// Number of large buffers, for all ports: those of bursts of some threads. A frame that gets none is in small buffers.
const LARGE_BUFFERS: u32 = 32;
/// Most pieces of a frame to send. Buffers of other ports may be filled in part only.
const PIECES_MAX: usize = 2 * BUFFERS_MAX;
const _: () = assert!(PIECES_MAX >= MERGED_MAX as usize);
/// Release of Linux from which on a packet socket passes UDP data to a device whole. Earlier ones cut or refuse them
/// (net/ipv4/udp_offload.c, __udp_gso_segment), and a device without a queueing discipline loses what was cut.
const DATAGRAMS_SINCE: (u32, u32) = (6, 5);
/// Octets from which on the kernel may refuse to pass a frame to a device whole (GSO_LEGACY_MAX_SIZE, linux/netdevice.h).
const WHOLE_MAX: u32 = 65_536;
/// Successive frames that a device refuses before frames are segmented here, and the first and the longest time of that, in calls.
const REFUSALS_MAX: u32 = 8;
const PAUSE_MIN: u32 = 1 << 10;
const PAUSE_MAX: u32 = 1 << 20;

/// Reason why a frame of the queue was not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is too long, or it is not as announced.
    Invalid,
    /// The pool has too few buffers.
    NoBuffers,
}

/// Pool of large buffers while a port is open.
static LARGE_POOL: Mutex<Weak<Mempool>> = Mutex::new(Weak::new());

/// Returns the pool of large buffers, which all ports on packet sockets share. The first port creates it, and the last port frees it.
/// Returns `None` if there is too little memory: long frames are then in small buffers.
pub(super) fn large_pool(eal: &Eal) -> Option<Arc<Mempool>> {
    let mut shared = LARGE_POOL.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pool) = shared.upgrade() {
        return Some(pool);
    }
    let name = format!("packet{}-large", eal.next_device());
    match Mempool::uncached(eal, &name, LARGE_BUFFERS, LARGE_SPACE) {
        Ok(pool) => {
            let pool = Arc::new(pool);
            *shared = Arc::downgrade(&pool);
            Some(pool)
        }
        Err(error) => {
            tracing::warn!("frames of up to 64 KiB are received into small buffers: {error}");
            None
        }
    }
}

/// Reads a frame of the queue into a buffer, and into a large one or further ones of the pool. Returns its header. If that fails, the frame
/// is consumed all the same, and the caller must reset the buffer.
///
/// # Safety
/// `mbuf` is owned, empty, not shared, and from the first pool.
#[cold]
#[inline(never)]
pub(super) unsafe fn receive(
    socket: &PacketSocket,
    queued: &Queued,
    mbuf: *mut sys::rte_mbuf,
    pools: (&Mempool, Option<&Mempool>),
) -> Result<RawHeader, Refusal> {
    let length = queued.length;
    // SAFETY: guaranteed by the caller. All buffers of the pool have the same space.
    let space_of_each = unsafe { space(mbuf).len() }.max(1);
    let mut mbufs = [mbuf; BUFFERS_MAX];
    let fits = (slot::ETHERNET_HEADER..=SEGMENTED_MAX as usize).contains(&length);
    let count = length.div_ceil(space_of_each);
    if !fits || count > BUFFERS_MAX {
        discard(socket);
        return Err(Refusal::Invalid);
    }
    let rest = length.saturating_sub(space_of_each);
    let Some(count) = add_buffers(&mut mbufs, count, rest, pools) else {
        discard(socket);
        return Err(Refusal::NoBuffers);
    };
    let mbufs = mbufs.get(..count).unwrap_or_default();
    // SAFETY: the buffers are owned, alone.
    unsafe { chain(mbufs, length) };
    let mut header = [0; HEADER_LEN_LEGACY];
    let mut pieces: [IoSliceMut<'_>; BUFFERS_MAX + 1] =
        array::from_fn(|_| IoSliceMut::new(&mut []));
    let mut all = pieces.iter_mut();
    if let Some(piece) = all.next() {
        *piece = IoSliceMut::new(&mut header);
    }
    for (mbuf, piece) in mbufs.iter().zip(all) {
        // SAFETY: as above; each buffer is in one piece only, and its length is within its space (`chain`).
        *piece = IoSliceMut::new(unsafe { burst::first_segment(*mbuf) });
    }
    let read = socket.read(pieces.get_mut(..=count).unwrap_or_default());
    if read != Ok(HEADER_LEN_LEGACY.saturating_add(length)) {
        return Err(Refusal::Invalid);
    }
    if let Some(Tag(protocol, control)) = queued.tag {
        let mut frame = std::mem::ManuallyDrop::new(Mbuf::of_buffer(mbuf));
        if !frame.push_tag(protocol, control) {
            return Err(Refusal::Invalid);
        }
    }
    slot::behind_tag(slot::raw_header(header), queued.tag).ok_or(Refusal::Invalid)
}

/// Puts further buffers behind the first one: a large one with space for `rest` octets, or else `count` less one of the first pool. Fewer
/// pieces are copied and freed faster. Returns the number of all buffers, or `None` if the pools have too few.
fn add_buffers(
    mbufs: &mut [*mut sys::rte_mbuf; BUFFERS_MAX],
    count: usize,
    rest: usize,
    (pool, large_pool): (&Mempool, Option<&Mempool>),
) -> Option<usize> {
    if count > 2
        && let Some(large_pool) = large_pool
        && rest <= usize::from(large_pool.data_room())
        && let Some(place) = mbufs.get_mut(1..2)
        && burst::allocate(large_pool, place)
    {
        return Some(2);
    }
    let further = mbufs.get_mut(1..count)?;
    burst::allocate(pool, further).then_some(count)
}

/// Consumes a frame of the queue.
#[cold]
pub(super) fn discard(socket: &PacketSocket) {
    let mut header = [0; HEADER_LEN_LEGACY];
    // The kernel drops octets for which there is no space.
    let _ = socket.read(&mut [IoSliceMut::new(&mut header)]);
}

/// Makes one frame of `length` octets, whose contents are arbitrary, of buffers that it fills.
///
/// # Safety
/// The buffers are owned, empty and not shared.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a buffer has at most 65,535 octets; a frame has at most SEGMENTED_MAX octets and BUFFERS_MAX buffers"
)]
unsafe fn chain(mbufs: &[*mut sys::rte_mbuf], length: usize) {
    let mut left = length;
    for (index, mbuf) in mbufs.iter().enumerate() {
        let next = mbufs.get(index.saturating_add(1)).copied();
        let next = next.unwrap_or(ptr::null_mut());
        // SAFETY: guaranteed by the caller.
        unsafe {
            let octets = left.min(space(*mbuf).len());
            *field::data_len(*mbuf) = octets as u16;
            *field::next(*mbuf) = next;
            left = left.saturating_sub(octets);
        }
    }
    if let Some(first) = mbufs.first() {
        // SAFETY: as above.
        unsafe {
            *field::pkt_len(*first) = length as u32;
            *field::nb_segs(*first) = mbufs.len() as u16;
        }
    }
}

/// Performs the offload of a received frame. Returns false if the frame or its header is invalid. `length_max` is the longest frame
/// without tags and segmentation, octets without FCS.
#[inline(always)]
pub(super) fn is_completed(frame: &mut Mbuf<'_>, header: RawHeader, length_max: u32) -> bool {
    if header.is_plain() && frame.length() <= length_max {
        return true;
    }
    complete(frame, Offload::of_kernel(header), length_max)
}

#[cold]
fn complete(frame: &mut Mbuf<'_>, offload: Offload, length_max: u32) -> bool {
    let tags = u32::try_from(slot::tags(frame.octets())).unwrap_or(u32::MAX);
    let limit = length_max.saturating_add(tags);
    frame.length() <= offload.length_max(limit)
        && (offload.is_none() || offload.complete(frame, limit))
}

/// Outcome of a frame to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// Sent, with this number of octets.
    Done(u32),
    /// The kernel has no space now.
    Busy,
    /// It can never be sent.
    Refused,
}

/// Kinds of data that a device accepts in one frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct WholeKinds {
    /// TCP over IPv4 and over IPv6.
    tcp: [bool; 2],
    udp: bool,
}

impl WholeKinds {
    /// Returns those of a device with these features, as far as this kernel passes them on.
    pub(super) fn of(features: &Features) -> Self {
        let release = release_numbers(&kernel_release());
        Self {
            tcp: ["tx-tcp-segmentation", "tx-tcp6-segmentation"].map(|name| features.has(name)),
            udp: features.has("tx-udp-segmentation")
                && release.is_some_and(|release| release >= DATAGRAMS_SINCE),
        }
    }
}

/// Sends frames that the device or the receiver segments.
#[derive(Debug)]
pub(super) struct WholeSender {
    socket: Arc<PacketSocket>,
    kinds: WholeKinds,
    /// Successive refusals.
    refusals: u32,
    /// Calls until such frames are accepted again, and the next such time.
    pause: u32,
    next_pause: u32,
}

impl WholeSender {
    /// Returns a sender to a device that accepts these kinds.
    pub(super) const fn new(socket: Arc<PacketSocket>, kinds: WholeKinds) -> Self {
        Self {
            socket,
            kinds,
            refusals: 0,
            pause: 0,
            next_pause: PAUSE_MIN,
        }
    }

    /// Returns true if the device accepts a frame of `length` octets with data of this kind.
    ///
    /// Frames do not pass the kernel's own segmentation, which comes before queueing disciplines. CWR is for the first segment only, which
    /// not every device knows.
    pub(super) const fn accepts(&self, kind: LargeKind, length: u32) -> bool {
        let WholeKinds {
            tcp: [over_ipv4, over_ipv6],
            udp,
        } = self.kinds;
        let is_accepted = match (kind.is_tcp, kind.is_ipv4) {
            (false, _) => udp,
            (true, true) => over_ipv4,
            (true, false) => over_ipv6,
        };
        is_accepted && !kind.has_cwr && self.pause == 0 && length < WHOLE_MAX
    }

    /// Counts down the time in which frames are segmented.
    #[inline(always)]
    pub(super) const fn count_call(&mut self) {
        self.pause = self.pause.saturating_sub(1);
    }

    /// Sends a frame with a request for segmentation.
    ///
    /// # Safety
    /// The caller owns `mbuf`.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn send(&mut self, mbuf: *mut sys::rte_mbuf) -> Sent {
        // SAFETY: guaranteed by the caller.
        let frame = unsafe { Outgoing::of_buffer(mbuf) };
        let header = header_of(&frame).octets();
        let header = header.get(..HEADER_LEN_LEGACY).unwrap_or_default();
        let mut pieces = [IoSlice::new(&[]); PIECES_MAX + 1];
        let written = match frame.gather(header, &mut pieces) {
            Some(pieces) => self.socket.write(pieces),
            None => Err(Errno::EMSGSIZE),
        };
        match written {
            Ok(_) => {
                (self.refusals, self.next_pause) = (0, PAUSE_MIN);
                Sent::Done(frame.length())
            }
            Err(error) => self.refused(error),
        }
    }

    /// Without a carrier, a driver refuses frames with the same error as when it is busy. A device that cannot segment a frame does so too.
    fn refused(&mut self, error: Errno) -> Sent {
        match error {
            Errno::EAGAIN | Errno::ENOMEM | Errno::EINTR => return Sent::Busy,
            Errno::ENOBUFS if !self.socket.link_is_up() => return Sent::Refused,
            Errno::ENOBUFS | Errno::EINVAL | Errno::EMSGSIZE => {}
            _ => return Sent::Refused,
        }
        self.refusals = self.refusals.saturating_add(1);
        if self.refusals >= REFUSALS_MAX {
            self.refusals = 0;
            self.pause = self.next_pause;
            self.next_pause = self.next_pause.saturating_mul(2).min(PAUSE_MAX);
        }
        if error == Errno::ENOBUFS {
            Sent::Busy
        } else {
            Sent::Refused
        }
    }
}
