// SPDX-License-Identifier: Apache-2.0
//! Virtqueues, as the device sees them: split (virtio 1.2, section 2.7) and packed (section 2.8), for the frames of a network
//! device (section 5.1.6).
//!
//! All that lies in shared memory may change at any time and is whatever the guest wants it to be. Each word is read once,
//! then checked, then used; no walk is longer than [`CHAIN_MAX`] descriptors; addresses become octets only through
//! [`Translator`](crate::address_space::Translator).
//!
//! A ring is used in bursts: [`Receive::ready`], [`Receive::take_contiguous`] and [`Receive::next`] for frames of one and of
//! several pieces, [`Receive::release`]; or [`Transmit::ready`], [`Transmit::put_contiguous`] and [`Transmit::put`],
//! [`Transmit::publish`]. Code that is generic over [`Receive`] and [`Transmit`] is
//! compiled for each kind of ring; [`Receiver`] and [`Sender`] hold either kind.

mod chain;
mod dirty_log;
pub mod header;
mod inflight;
pub mod layout;
mod packed;
mod position;
mod queue;
mod receiver;
mod sender;
mod split;

use quietwire_memory::Span;

use crate::address_space::{Access, AddressSpace, Miss, PartError, RingPart};
use crate::features::{
    F_EVENT_IDX, F_INDIRECT_DESC, F_LOG_ALL, F_RING_PACKED, F_VERSION_1, NET_F_CSUM,
    NET_F_HOST_TSO4, NET_F_HOST_TSO6, NET_F_MRG_RXBUF,
};

pub use chain::{CHAIN_MAX, OCTETS_MAX, PIECES_MAX};
pub use dirty_log::{DirtyLog, LOG_PAGE};
pub use header::{OffloadHeader, RawHeader};
pub use inflight::{InflightRegion, inflight_region_len};
pub use packed::PackedQueue;
pub use receiver::{Pieces, Receive, Received, RingReceiver};
pub use sender::{Put, RingSender, Transmit};
pub use split::SplitQueue;

/// Chains of a burst, at most.
pub const BURST_MAX: usize = 64;
/// Chains looked at by a call of [`Ring::look_ahead`].
pub const AHEAD_MAX: usize = 32;

/// Counters of one ring since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Chains against the rules.
    pub bad: u64,
    /// Indices of the driver's that cannot be.
    pub resyncs: u64,
}

/// The negotiated features that a ring depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Features {
    pub(crate) is_packed: bool,
    pub(crate) is_mergeable: bool,
    pub(crate) is_modern: bool,
    pub(crate) has_indirect: bool,
    pub(crate) has_event_index: bool,
    pub(crate) has_log: bool,
    /// The driver may leave checksums or segmentation to the device.
    pub(crate) has_offloads: bool,
}

impl Features {
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self {
            is_packed: bits & F_RING_PACKED != 0,
            is_mergeable: bits & NET_F_MRG_RXBUF != 0,
            is_modern: bits & F_VERSION_1 != 0,
            has_indirect: bits & F_INDIRECT_DESC != 0,
            has_event_index: bits & F_EVENT_IDX != 0,
            has_log: bits & F_LOG_ALL != 0,
            has_offloads: bits & (NET_F_CSUM | NET_F_HOST_TSO4 | NET_F_HOST_TSO6) != 0,
        }
    }

    /// Octets of the header in front of each frame (section 5.1.6.1).
    pub(crate) const fn header_len(self) -> usize {
        if self.is_modern || self.is_mergeable {
            header::HEADER_LEN
        } else {
            header::HEADER_LEN_LEGACY
        }
    }
}

/// What a ring is made of.
#[derive(Clone, Debug)]
pub struct RingConfig<'a> {
    /// Entries.
    pub size: u16,
    /// User address of the descriptor table (split) or ring (packed); an I/O virtual address with an IOTLB.
    pub descriptors: u64,
    /// Address of the available ring (split) or the driver's event suppression structure (packed), of the same kind.
    pub driver: u64,
    /// Address of the used ring (split) or the device's event suppression structure (packed), of the same kind.
    pub device: u64,
    /// The guest's memory.
    pub space: &'a AddressSpace,
    /// The base that the front end names (`VHOST_USER_SET_VRING_BASE`). A split ring goes on at the index of its used ring
    /// instead, so that a chain that a device before did not return is taken again.
    pub base: u32,
    /// Negotiated features, as their bits.
    pub features: u64,
    /// The log of written pages. It is on if `features` has VHOST_F_LOG_ALL.
    pub log: Option<DirtyLog>,
    /// Guest address at which writes to the used ring (split) or the device's event suppression structure (packed) are
    /// logged. Default: the guest address of its region.
    pub ring_log_address: Option<u64>,
    /// Where chains are tracked that are taken and not returned.
    pub inflight: Option<InflightRegion>,
}

impl RingConfig<'_> {
    /// Returns true if a part of the ring lies in a range of addresses. A ring stops when the front end invalidates its part
    /// of the IOTLB, and is started again.
    #[must_use]
    pub fn overlaps(&self, first: u64, last: u64) -> bool {
        let size = self.size;
        let is_packed = Features::from_bits(self.features).is_packed;
        let lens = if is_packed {
            let event = layout::packed::EVENT_LEN;
            [layout::packed::ring_len(size), event, event]
        } else {
            [
                layout::split::descriptors_len(size),
                layout::split::avail_len(size),
                layout::split::used_len(size),
            ]
        };
        let starts = [self.descriptors, self.driver, self.device];
        starts.into_iter().zip(lens).any(|(start, len)| {
            let end = start.saturating_add(len as u64);
            start <= last && first < end
        })
    }

    /// Returns a part of the ring.
    pub(crate) fn part(
        &self,
        name: &'static str,
        address: u64,
        len: usize,
        access: Access,
    ) -> Result<RingPart<'_>, RingError> {
        self.space
            .ring_part(address, len, access)
            .map_err(|error| match error {
                PartError::Outside => RingError::Outside(name, address),
                PartError::Miss(miss) => RingError::Miss(miss),
            })
    }
}

/// Why a ring cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The number of entries.
    #[error(
        "virtqueue: size {0} is invalid (split: a power of two up to 32768; packed: 1 to 32768)"
    )]
    Size(u16),
    /// The base names a slot that a packed ring does not have.
    #[error("virtqueue: base {0:#x} is outside the ring")]
    Base(u32),
    /// A part of the ring is not within one region.
    #[error("virtqueue: {0} at {1:#x} is not within one memory region")]
    Outside(&'static str, u64),
    /// A part of the ring is not aligned.
    #[error("virtqueue: {0} is misaligned, or exceeds its memory region")]
    Misaligned(&'static str),
    /// The IOTLB lacks an address of the ring. The front end may add it; the ring can then be started.
    #[error("virtqueue: the IOTLB lacks address {:#x} of the ring", .0.iova)]
    Miss(Miss),
    /// The inflight region is too short, or was made for another queue.
    #[error("virtqueue: the inflight region does not fit the ring")]
    Inflight,
}

/// A ring that the device takes frames from, of either kind.
#[derive(Debug)]
pub enum Receiver {
    /// A split ring.
    Split(Box<RingReceiver<SplitQueue>>),
    /// A packed ring.
    Packed(Box<RingReceiver<PackedQueue>>),
}

impl Receiver {
    /// Starts a ring.
    ///
    /// # Errors
    /// [`RingError`].
    pub fn new(config: &RingConfig<'_>) -> Result<Self, RingError> {
        let features = Features::from_bits(config.features);
        if features.is_packed {
            let queue = PackedQueue::new(config.clone(), features)?;
            let ring = RingReceiver::new(queue, config, features);
            return Ok(Self::Packed(Box::new(ring)));
        }
        let queue = SplitQueue::new(config.clone(), features)?;
        let ring = RingReceiver::new(queue, config, features);
        Ok(Self::Split(Box::new(ring)))
    }
}

/// A ring that the device puts frames into, of either kind.
#[derive(Debug)]
pub enum Sender {
    /// A split ring.
    Split(Box<RingSender<SplitQueue>>),
    /// A packed ring.
    Packed(Box<RingSender<PackedQueue>>),
}

impl Sender {
    /// Starts a ring.
    ///
    /// # Errors
    /// [`RingError`].
    pub fn new(config: &RingConfig<'_>) -> Result<Self, RingError> {
        let features = Features::from_bits(config.features);
        if features.is_packed {
            let queue = PackedQueue::new(config.clone(), features)?;
            let ring = RingSender::new(queue, config, features);
            return Ok(Self::Packed(Box::new(ring)));
        }
        let queue = SplitQueue::new(config.clone(), features)?;
        let ring = RingSender::new(queue, config, features);
        Ok(Self::Split(Box::new(ring)))
    }
}

/// What the device does with a ring, whichever way its frames go.
pub trait Ring {
    /// Shows the guest the chains that were used: [`Receive::release`] and [`Transmit::publish`] without looking whether it
    /// wants a notification.
    fn commit(&mut self);

    /// Returns true if the guest wants a notification of what was committed since the last call. Costs less some time after
    /// [`Self::commit`], when what was written has reached the cache.
    fn wants_notification(&mut self) -> bool;

    /// Looks for addresses that the IOTLB lacks, in chains of later frames: at most [`AHEAD_MAX`] chains a call. Without an
    /// IOTLB, there are none. Call [`Self::commit`] first.
    fn look_ahead(&mut self, report: impl FnMut(Miss));

    /// Asks the guest for notifications of new chains, or for none.
    ///
    /// Some may have come before the guest sees the request: call `ready` before waiting.
    fn request_notifications(&mut self, wanted: bool);

    /// Returns the base (`VHOST_USER_GET_VRING_BASE`): the first chain that was not used. The low 16 bits of a packed ring's
    /// are the position to read from, the high ones that to write to, each with its wrap counter.
    ///
    /// Call [`Self::commit`] first.
    fn base(&self) -> u32;

    /// Switches logging of written pages on or off.
    fn set_logging(&mut self, is_on: bool);

    /// Replaces the log of written pages.
    fn set_log(&mut self, log: Option<DirtyLog>);

    /// Returns true if memory of the guest, or the log, was found truncated.
    fn has_faulted(&self) -> bool;

    /// Returns the counters.
    fn counters(&self) -> Counters;
}

/// Calls a method of whichever kind of ring it is.
macro_rules! either {
    ($ring:expr, $name:ident => $call:expr) => {
        match $ring {
            Self::Split($name) => $call,
            Self::Packed($name) => $call,
        }
    };
}

macro_rules! ring_of_either_kind {
    ($ends:ty) => {
        impl Ring for $ends {
            #[inline]
            fn commit(&mut self) {
                either!(self, ring => ring.commit());
            }

            fn wants_notification(&mut self) -> bool {
                either!(self, ring => ring.wants_notification())
            }

            fn look_ahead(&mut self, report: impl FnMut(Miss)) {
                either!(self, ring => ring.look_ahead(report));
            }

            fn request_notifications(&mut self, wanted: bool) {
                either!(self, ring => ring.request_notifications(wanted));
            }

            fn base(&self) -> u32 {
                either!(self, ring => ring.base())
            }

            fn set_logging(&mut self, is_on: bool) {
                either!(self, ring => ring.set_logging(is_on));
            }

            fn set_log(&mut self, log: Option<DirtyLog>) {
                either!(self, ring => ring.set_log(log));
            }

            fn has_faulted(&self) -> bool {
                either!(self, ring => ring.has_faulted())
            }

            fn counters(&self) -> Counters {
                either!(self, ring => ring.counters())
            }
        }
    };
}
ring_of_either_kind!(Receiver);
ring_of_either_kind!(Sender);

impl Receive for Receiver {
    #[inline]
    fn ready(&mut self, most: usize) -> usize {
        either!(self, ring => ring.ready(most))
    }

    #[inline(always)]
    fn take_contiguous(
        &mut self,
        most: usize,
        longest: usize,
        take: impl FnMut(Span<'_>, Option<RawHeader>),
    ) -> usize {
        either!(self, ring => ring.take_contiguous(most, longest, take))
    }

    #[inline(always)]
    fn next(&mut self) -> Option<Received<'_>> {
        either!(self, ring => ring.next())
    }
}

impl Transmit for Sender {
    #[inline]
    fn ready(&mut self, most: usize) -> usize {
        either!(self, ring => ring.ready(most))
    }

    #[inline(always)]
    fn put_contiguous<'s, F: Iterator<Item = &'s [u8]>>(
        &mut self,
        frames: impl Fn(usize) -> F,
    ) -> (usize, u64) {
        either!(self, ring => ring.put_contiguous(frames))
    }

    #[inline]
    fn put<'s>(
        &mut self,
        header: RawHeader,
        segments: impl Iterator<Item = &'s [u8]>,
        length: u32,
    ) -> Put {
        either!(self, ring => ring.put(header, segments, length))
    }
}

#[cfg(test)]
mod tests;
