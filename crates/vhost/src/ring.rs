// SPDX-License-Identifier: Apache-2.0
//! Device side of virtqueues: split (virtio 1.2, section 2.7) and packed (section 2.8), for the frames of a network device
//! (section 5.1.6).
//!
//! Shared memory may change at any time, to any value. Each word is read once, then checked, then used; no walk is longer
//! than [`CHAIN_MAX`] descriptors; addresses become octets only through [`Translator`](crate::address_space::Translator).
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

mod config;
#[cfg(test)]
mod tests;
mod virtqueue;

use quietwire_memory::Span;

use crate::address_space::Miss;

pub use chain::{CHAIN_MAX, OCTETS_MAX, PIECES_MAX};
pub(crate) use config::Features;
pub use config::{RingConfig, RingError};
pub use dirty_log::{DirtyLog, LOG_PAGE};
pub use header::{OffloadHeader, RawHeader};
pub use inflight::{InflightRegion, inflight_region_len};
pub use packed::PackedQueue;
pub use receiver::{Pieces, Receive, Received, RingReceiver};
pub use sender::{PutResult, RingSender, Transmit};
pub use split::SplitQueue;
pub use virtqueue::{AHEAD_MAX, BURST_MAX, Counters, Ring};

/// A ring of either kind, from which the device takes frames.
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

/// A ring of either kind, into which the device puts frames.
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

/// Calls a method of a ring of either kind.
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
    ) -> PutResult {
        either!(self, ring => ring.put(header, segments, length))
    }
}
