// SPDX-License-Identifier: Apache-2.0
//! Ports on kernel interfaces, through packet sockets with mapped receive rings (packet(7), TPACKET_V2).
//!
//! Each queue has a socket to receive and a socket to send, so that the threads of both share nothing. The port receives frames
//! as they were on the interface: fragments stay fragments, VLAN tags that the kernel strips are reinserted, and checksums that a
//! sender on this machine left to the network card are completed. The forwarding thread makes one system call per burst, to
//! send, which never blocks ([`messages`]).
//!
//! Frames with up to 64 KiB of TCP or UDP data to be segmented come from senders on this machine and from interfaces that merge received
//! segments. They are passed on whole, with one system call each ([`whole`]).
//!
//! The creation of a ring takes some 10 ms. Ports that are opened one after the other can take sockets with rings of a stock ([`stock`]).
//!
//! The rings have fixed slots (version 2), not blocks (version 3). A received frame is visible at once, and each side only
//! tracks an index.

mod counters;
mod geometry;
mod messages;
mod ring;
mod slot;
mod socket;
pub(super) mod stock;
#[cfg(test)]
mod tests;
mod whole;

use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::libc;
use nix::net::if_::if_nametoindex;
use nix::unistd::{SysconfVar, sysconf};
use quietwire_base::Counter;

use self::counters::{RxCounters, TxCounters};
use self::geometry::Geometry;
use self::messages::{Added, Messages, free};
use self::ring::Ring;
use self::slot::Content;
use self::socket::{Failure, PacketSocket};
use self::whole::{Refusal, Sent, WholeKinds, WholeSender};
use crate::BURST_MAX;
use crate::burst::{self, Burst, Mbuf, space};
use crate::error::Error;
use crate::mempool::Mempool;
use crate::port::interrupts::{Interrupts, Watched};
use crate::port::offload::RECEIVED_OCTETS_MAX;
use crate::port::options::PortOptions;
use crate::port::stats::PortStats;
use crate::port::transfer::reset;
use crate::promiscuity::Promiscuity;
use crate::segment::LargeKind;
use crate::sys::{self, TO_CUT, field};

type Mbufs = [*mut sys::rte_mbuf; BURST_MAX];

/// Kernel memory of a frame in transmission in addition to its data, octets.
const SEND_OVERHEAD: usize = 1024;

/// Data that a queue and the port's handle share.
#[derive(Debug)]
struct Queue {
    receiver: Arc<PacketSocket>,
    sender: Arc<PacketSocket>,
    /// Socket of [`WholeSender`].
    whole: Arc<PacketSocket>,
    rx: RxCounters,
    tx: TxCounters,
    /// Frames lost because the receive ring was full. The kernel resets its counter at each read, so each reader adds to this.
    missed: AtomicU64,
}

/// State of the port for any thread: counters, link, MTU, address.
#[derive(Debug)]
pub(crate) struct Interface {
    queues: Vec<Arc<Queue>>,
    rx_slots: u32,
    tx_ring_size: u16,
    is_pair: bool,
    _promiscuity: Option<Promiscuity>,
}

impl Interface {
    /// Moves the sockets out of a port whose queues are closed. The port has no counters any more.
    pub(crate) fn take_sockets(&mut self) -> impl Send + 'static + use<> {
        std::mem::take(&mut self.queues)
    }

    /// Returns the counters of all queues.
    pub(crate) fn stats(&self) -> PortStats {
        let count = |sum: &mut u64, counter: &Counter| {
            *sum = sum.saturating_add(counter.get());
        };
        let mut stats = PortStats::default();
        for queue in &self.queues {
            count(&mut stats.rx_frames, &queue.rx.frames);
            count(&mut stats.rx_octets, &queue.rx.octets);
            count(&mut stats.rx_errors, &queue.rx.errors);
            count(&mut stats.rx_no_buffers, &queue.rx.no_buffers);
            stats.rx_missed = stats.rx_missed.saturating_add(queue.missed());
            count(&mut stats.tx_frames, &queue.tx.frames);
            count(&mut stats.tx_octets, &queue.tx.octets);
            count(&mut stats.tx_errors, &queue.tx.errors);
        }
        stats
    }

    /// Returns the counters of each queue that are not 0, by name.
    pub(crate) fn extended_stats(&self) -> Vec<(String, u64)> {
        let mut all = Vec::new();
        for (number, queue) in self.queues.iter().enumerate() {
            let counters = [
                ("rx", "packets", queue.rx.frames.get()),
                ("rx", "bytes", queue.rx.octets.get()),
                ("rx", "missed", queue.missed()),
                ("rx", "errors", queue.rx.errors.get()),
                ("rx", "no_buffers", queue.rx.no_buffers.get()),
                ("tx", "packets", queue.tx.frames.get()),
                ("tx", "bytes", queue.tx.octets.get()),
                ("tx", "errors", queue.tx.errors.get()),
            ];
            let counters = counters.iter().filter(|(.., value)| *value > 0);
            all.extend(
                counters.map(|(way, what, value)| (format!("{way}_q{number}_{what}"), *value)),
            );
        }
        all
    }

    /// Returns true while the interface exists, is up and has a carrier. A removed interface never comes back, even if
    /// another gets its name.
    pub(crate) fn link_is_up(&self) -> bool {
        self.queues
            .first()
            .is_some_and(|queue| queue.receiver.link_is_up())
    }

    /// Sets a program that decides which frames the port receives, or lets it receive all.
    ///
    /// # Errors
    /// The step and the kernel's error. Some queues may have the former program.
    pub(crate) fn set_filter(
        &self,
        program: Option<BorrowedFd<'_>>,
    ) -> Result<(), (&'static str, Errno)> {
        let mut queues = self.queues.iter();
        queues.try_for_each(|queue| queue.receiver.set_filter(program))
    }

    /// Returns the MTU: longest packet after the Ethernet header, octets. None if the interface is gone.
    pub(crate) fn mtu(&self) -> Option<usize> {
        self.queues.first()?.receiver.mtu().ok()
    }

    /// Returns the interface's MAC address; zeroes if it is gone.
    pub(crate) fn mac_address(&self) -> [u8; 6] {
        let queue = self.queues.first();
        let hardware = queue.and_then(|queue| queue.receiver.hardware().ok());
        hardware.unwrap_or_default().1
    }

    /// Returns true if the interface is one end of a `veth` pair (veth(4)). If it refuses a frame, the queue of the other end is full.
    pub(crate) const fn is_pair(&self) -> bool {
        self.is_pair
    }

    /// Returns the number of slots of each receive ring, and the maximum number of longest frames that each queue has in transmission.
    pub(crate) fn ring_sizes(&self) -> (Option<u16>, Option<u16>) {
        (u16::try_from(self.rx_slots).ok(), Some(self.tx_ring_size))
    }
}

impl Queue {
    fn missed(&self) -> u64 {
        let more = u64::from(self.receiver.take_drops());
        let lost = self.rx.lost.get();
        let before = self.missed.fetch_add(more, Ordering::Relaxed);
        before.saturating_add(more).saturating_add(lost)
    }
}

/// Receives frames from one ring.
#[derive(Debug)]
pub(crate) struct AfPacketRx {
    ring: Ring,
    /// Octets of the longest frame without FCS, tags and segmentation.
    length_max: u32,
    pool: Mempool,
    /// Pool of buffers for long frames, if there is one.
    large_pool: Option<Arc<Mempool>>,
    queue: Arc<Queue>,
    /// The socket, while threads may wait for it. The kernel signals each frame.
    _interrupt: Option<Watched>,
}

impl AfPacketRx {
    /// Receives at most `most` frames into an empty burst. Returns the number of frames in the burst.
    ///
    /// If the pool has too few buffers, frames wait in the ring. If it has none, they are dropped and counted.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "a frame is within its buffer, whose length has 16 bits, and there are at most BURST_MAX frames"
    )]
    #[inline]
    pub(crate) fn receive(&mut self, burst: &mut Burst, most: usize) -> usize {
        if !burst.is_empty() {
            return burst.len();
        }
        let ready = self.ring.received(most.min(BURST_MAX));
        if ready == 0 {
            return 0;
        }
        let mut mbufs: Mbufs = [ptr::null_mut(); BURST_MAX];
        let count = allocate(&self.pool, &mut mbufs, ready);
        if count == 0 {
            let dropped = (0..ready)
                .map_while(|_| self.ring.next_received().map(drop))
                .count();
            self.queue.rx.no_buffers.add(dropped as u64);
            return 0;
        }
        let (mut filled, mut octets, mut whole_octets) = (0, 0, 0);
        for _ in 0..count {
            let (Some(received), Some(&mbuf)) = (self.ring.next_received(), mbufs.get(filled))
            else {
                break;
            };
            let is_outgoing = slot::is_outgoing(received.octets());
            // SAFETY: the buffer was just allocated, and is in no burst yet.
            let space = unsafe { space(mbuf) };
            let content = slot::unpack(received.status(), received.octets(), space);
            drop(received);
            let header = match content {
                Content::Queued(_) if is_outgoing => {
                    whole::discard(&self.queue.receiver);
                    continue;
                }
                _ if is_outgoing => continue,
                Content::Frame(frame) => {
                    // SAFETY: as above; the octets are within the space (unpack).
                    unsafe {
                        *field::data_len(mbuf) = frame.length as u16;
                        *field::pkt_len(mbuf) = frame.length as u32;
                    }
                    Ok(frame.header)
                }
                Content::Queued(queued) => {
                    whole_octets += queued.length as u64;
                    let pools = (&self.pool, self.large_pool.as_deref());
                    // SAFETY: as above; it is empty.
                    unsafe { whole::receive(&self.queue.receiver, &queued, mbuf, pools) }
                }
                Content::Lost => {
                    self.queue.rx.lost.add(1);
                    continue;
                }
                Content::Invalid => Err(Refusal::Invalid),
            };
            let mut frame = ManuallyDrop::new(Mbuf::of_buffer(mbuf));
            match header {
                Ok(header) if whole::is_completed(&mut frame, header, self.length_max) => {
                    filled += 1;
                    octets += u64::from(frame.length());
                }
                Ok(_) => self.refuse(mbuf, Refusal::Invalid),
                Err(refusal) => self.refuse(mbuf, refusal),
            }
            if whole_octets >= RECEIVED_OCTETS_MAX {
                break;
            }
        }
        if let Some(unused) = mbufs.get_mut(filled..count) {
            free(unused);
        }
        let counters = &self.queue.rx;
        counters.frames.add(filled as u64);
        counters.octets.add(octets);
        burst.append_raw(mbufs.iter().copied().take(filled))
    }

    /// Counts a frame that is not received, and empties its buffer.
    #[cold]
    fn refuse(&self, mbuf: *mut sys::rte_mbuf, refusal: Refusal) {
        let counters = &self.queue.rx;
        match refusal {
            Refusal::Invalid => counters.errors.add(1),
            Refusal::NoBuffers => counters.no_buffers.add(1),
        }
        reset(mbuf);
    }
}

/// Takes `wanted` buffers from the pool, or a half, a quarter and so on. Returns their number.
#[inline]
fn allocate(pool: &Mempool, mbufs: &mut Mbufs, wanted: usize) -> usize {
    let mut count = wanted.min(BURST_MAX);
    while count > 0 {
        if burst::allocate(pool, mbufs.get_mut(..count).unwrap_or_default()) {
            break;
        }
        count /= 2;
    }
    count
}

/// Sends frames.
#[derive(Debug)]
pub(crate) struct AfPacketTx {
    whole: WholeSender,
    queue: Arc<Queue>,
}

impl AfPacketTx {
    /// Returns true if a frame of `length` octets with data of this kind may be sent whole.
    pub(crate) const fn accepts_whole(&self, kind: LargeKind, length: u32) -> bool {
        self.whole.accepts(kind, length)
    }

    /// Sends the frames of a burst. Returns the number of frames that the interface accepted.
    ///
    /// Frames stay in the burst, in order, if the kernel or the device has no space for them. Frames that cannot be sent (the interface is
    /// down or gone, or the frame is longer than its MTU allows) are dropped and counted as `tx_errors`.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "at most BURST_MAX frames, and only this thread counts those that are sent"
    )]
    #[inline]
    pub(crate) fn send(&mut self, burst: &mut Burst) -> usize {
        if burst.is_empty() {
            return 0;
        }
        let Self { whole, queue } = self;
        whole.count_call();
        let octets: u64 = burst.lengths().map(u64::from).sum();
        let octets_before = queue.tx.octets.get();
        let mut messages = Messages::new();
        let mut mbufs: Mbufs = [ptr::null_mut(); BURST_MAX];
        let mut count = 0;
        for (place, mbuf) in mbufs.iter_mut().zip(burst.drain_front(BURST_MAX)) {
            *place = mbuf;
            count += 1;
        }
        let (mut sent, mut refused, mut taken) = (0, 0, 0);
        for &mbuf in mbufs.iter().take(count) {
            // SAFETY: the buffer is owned.
            let is_whole = unsafe { *field::ol_flags(mbuf) } & TO_CUT != 0;
            let mut added = if is_whole {
                Added::Full
            } else {
                // SAFETY: as above.
                unsafe { messages.add(mbuf) }
            };
            if added == Added::Full {
                // Frames keep their order.
                let (earlier, dropped) = messages.send((&queue.sender, &queue.tx), burst);
                sent += earlier;
                refused += dropped;
                if !burst.is_empty() {
                    break;
                }
                added = if is_whole {
                    let (added, length) = send_whole(whole, mbuf);
                    sent += usize::from(length > 0);
                    queue.tx.frames.add(u64::from(length > 0));
                    queue.tx.octets.add(u64::from(length));
                    added
                } else {
                    // SAFETY: as above.
                    unsafe { messages.add(mbuf) }
                };
            }
            match added {
                Added::Done => {}
                Added::Unfit => {
                    free(&mut [mbuf]);
                    refused += 1;
                }
                Added::Full => break,
            }
            taken += 1;
        }
        let (later, dropped) = messages.send((&queue.sender, &queue.tx), burst);
        sent += later;
        refused += dropped;
        burst.append_raw(mbufs.iter().copied().take(count).skip(taken));
        if refused > 0 {
            queue.tx.errors.add(refused as u64);
            let kept: u64 = burst.lengths().map(u64::from).sum();
            let sent_octets = queue.tx.octets.get() - octets_before;
            burst.note_refused(octets.saturating_sub(kept + sent_octets));
        }
        sent
    }
}

/// Sends a frame with a request for segmentation. Returns the octets of a frame that was sent, else 0.
#[cold]
fn send_whole(whole: &mut WholeSender, mbuf: *mut sys::rte_mbuf) -> (Added, u32) {
    // SAFETY: the buffer is owned by the caller.
    match unsafe { whole.send(mbuf) } {
        Sent::Done(length) => {
            free(&mut [mbuf]);
            (Added::Done, length)
        }
        Sent::Busy => (Added::Full, 0),
        Sent::Refused => (Added::Unfit, 0),
    }
}

/// Opens a port on an interface with the given queues per direction, which receive frames from then on. `is_promiscuous`: the caller holds
/// the interface in promiscuous mode.
///
/// # Errors
/// The kernel's error: the interface does not exist or is not an Ethernet interface, the process lacks the privilege, or there
/// is too little memory for the rings.
pub(crate) fn open(
    (interface, is_promiscuous): (&str, bool),
    queues: u16,
    options: &PortOptions,
    pool: &Mempool,
    interrupts: &[Interrupts],
) -> Result<(Vec<AfPacketRx>, Vec<AfPacketTx>, Interface), Error> {
    let fail = |step: &'static str, cause: String| Error::PortOpen {
        port: options.name.clone(),
        uri: format!("af-packet:{interface}"),
        step,
        cause,
    };
    let failed = |(step, error): Failure| fail(step, error.desc().to_owned());
    let index = if_nametoindex(interface).map_err(|error| failed(("if_nametoindex", error)))?;
    let promiscuity = (!is_promiscuous).then(|| Promiscuity::of(interface));
    let promiscuity = promiscuity
        .transpose()
        .map_err(|error| fail("promiscuous mode", error.to_string()))?;
    let page_size = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    let page_size = page_size.and_then(|size| usize::try_from(size).ok());
    let slot_space = slot::space(options.frame_size_max);
    let geometry = Geometry::new(options.rx_ring_size, slot_space, page_size.unwrap_or(4096));
    // Space for as many of the longest frames. If it is too small, frames return unsent.
    let in_transmission = slot_space
        .saturating_add(SEND_OVERHEAD)
        .saturating_mul(options.tx_ring_size.into());
    let (mut rx, mut tx, mut shared) = (Vec::new(), Vec::new(), Vec::new());
    let mut kinds = None;
    let stock = options.ring_stock.as_ref();
    let receivers = stock::receivers(stock, queues, geometry).map_err(failed)?;
    let large_pool = whole::large_pool(pool.eal());
    for (number, receiver) in receivers.into_iter().enumerate() {
        let receiver = receiver.with_interface(index);
        let sender = PacketSocket::sender(index, in_transmission).map_err(failed)?;
        let whole = PacketSocket::whole_sender(index).map_err(failed)?;
        let queue = Arc::new(Queue {
            receiver: Arc::new(receiver),
            sender: Arc::new(sender),
            whole: Arc::new(whole),
            rx: RxCounters::default(),
            tx: TxCounters::default(),
            missed: AtomicU64::new(0),
        });
        let ring = Ring::map(&queue.receiver, geometry).map_err(|error| failed(("mmap", error)))?;
        let interrupt = interrupts.get(number).map(|interrupts| {
            let socket = queue.receiver.try_clone()?;
            interrupts.watch(socket)
        });
        rx.push(AfPacketRx {
            _interrupt: interrupt
                .transpose()
                .map_err(|error| fail("receive interrupts", error.to_string()))?,
            ring,
            length_max: u32::try_from(slot::length_max(options.frame_size_max)).unwrap_or(u32::MAX),
            pool: pool.clone(),
            large_pool: large_pool.clone(),
            queue: Arc::clone(&queue),
        });
        let kinds = *kinds.get_or_insert_with(|| {
            // A kernel that does not show its features gets segments.
            WholeKinds::of(&queue.whole.features(interface).unwrap_or_default())
        });
        tx.push(AfPacketTx {
            whole: WholeSender::new(Arc::clone(&queue.whole), kinds),
            queue: Arc::clone(&queue),
        });
        shared.push(queue);
    }
    if let Some(queue) = shared.first() {
        let hardware = queue.receiver.hardware();
        let (kind, _) = hardware.map_err(|error| failed(("SIOCGIFHWADDR", error)))?;
        if kind != libc::ARPHRD_ETHER && kind != libc::ARPHRD_LOOPBACK {
            let cause = "the interface does not carry Ethernet frames (use another interface)";
            return Err(fail("SIOCGIFHWADDR", cause.to_owned()));
        }
    }
    let is_pair = shared
        .first()
        .is_some_and(|queue| queue.whole.is_pair(interface));
    PacketSocket::start(shared.iter().map(|queue| &*queue.receiver)).map_err(|failure| {
        match failure {
            // Older kernels join only sockets of interfaces that are up.
            ("PACKET_FANOUT", Errno::EINVAL) => fail(
                "PACKET_FANOUT",
                format!("the interface is down (`ip link set {interface} up`)"),
            ),
            other => failed(other),
        }
    })?;
    let interface = Interface {
        queues: shared,
        rx_slots: geometry.slots,
        tx_ring_size: options.tx_ring_size,
        is_pair,
        _promiscuity: promiscuity,
    };
    if let Some(stock) = stock {
        stock.fill(geometry);
    }
    Ok((rx, tx, interface))
}
