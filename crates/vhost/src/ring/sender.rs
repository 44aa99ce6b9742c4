// SPDX-License-Identifier: Apache-2.0
//! Transmission of frames that the guest receives.

use quietwire_memory::is_short;

use crate::address_space::{Access, CachedRegion, Miss, Translator};
use crate::narrow;

use super::DirtyLog;
use super::chain::{Chain, Fault, OCTETS_MAX};
use super::config::{Features, RingConfig};
use super::header::{HEADER_LEN, RawHeader};
use super::queue::{Entry, Queue, WINDOW};
use super::virtqueue::{AHEAD_MAX, BURST_MAX, Counters, Ring};

/// Result of sending a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutResult {
    /// The guest sees the frame once [`Transmit::publish`] is called.
    Sent,
    /// The guest has too few buffers. Nothing changed. A frame may be longer than all buffers that the ring can hold, which
    /// the device cannot always know: it should not wait for ever.
    Full,
    /// A chain of the guest violates the rules and is returned. The frame was not sent.
    Bad,
    /// No buffer of the guest can hold the frame. Nothing changed.
    TooLong,
    /// The frame waits: an address is missing in the IOTLB. Nothing changed.
    Miss(Miss),
}

/// A ring into which the device puts frames.
pub trait Transmit: Ring {
    /// Reads up to `most` chains (at most [`BURST_MAX`]) from the ring, for as many frames that fit one chain each; returns
    /// the number of chains. [`Self::put`] reads more if it requires them.
    fn ready(&mut self, most: usize) -> usize;

    /// Copies frames of one piece each, without offloads, as long as each fits the next chain that [`Self::ready`] read, and
    /// the chain is a single descriptor; returns the number of frames, and their octets. `frames` returns the frames from a
    /// number on. See [`Self::put`] for the frame after them.
    fn put_contiguous<'s, F: Iterator<Item = &'s [u8]>>(
        &mut self,
        frames: impl Fn(usize) -> F,
    ) -> (usize, u64);

    /// Copies a frame of `length` octets into the guest's buffers. `header.num_buffers` is computed here.
    fn put<'s>(
        &mut self,
        header: RawHeader,
        segments: impl Iterator<Item = &'s [u8]>,
        length: u32,
    ) -> PutResult;

    /// Makes the sent frames visible to the guest; returns true if it wants a notification.
    fn publish(&mut self) -> bool {
        self.commit();
        self.wants_notification()
    }
}

/// Sender of frames into a ring.
#[derive(Debug)]
pub struct RingSender<Q> {
    queue: Q,
    memory: Translator,
    header_len: usize,
    is_mergeable: bool,
    /// True if chains of a single descriptor take the fast path: not with an IOTLB, an inflight region, a log or the short
    /// header.
    is_plain: bool,
    chain: Chain,
    /// Number of chains of the window, from its first on, whose addresses were found in the IOTLB.
    known: usize,
    /// Octets of each chain of a frame.
    capacities: [u32; WINDOW],
    /// Number of chains that [`Transmit::ready`] found and that may not have been read.
    announced: usize,
}

/// The chains that a frame requires.
enum Fit {
    Chains(usize),
    Other(PutResult),
}

impl<Q: Queue> RingSender<Q> {
    pub(crate) fn new(queue: Q, config: &RingConfig<'_>, features: Features) -> Self {
        let mut sender = Self {
            queue,
            memory: config.space.translator(),
            header_len: features.header_len(),
            is_mergeable: features.is_mergeable,
            is_plain: false,
            chain: Chain::new(),
            known: 0,
            capacities: [0; WINDOW],
            announced: 0,
        };
        sender.update_plain();
        sender
    }

    fn update_plain(&mut self) {
        self.is_plain = !self.memory.has_iotlb()
            && !self.queue.has_inflight()
            && !self.queue.log().is_on()
            && self.header_len == HEADER_LEN;
    }

    /// Reads chains from the ring; returns how many are read.
    #[inline(never)]
    fn gather(&mut self, most: usize) -> usize {
        // In the region of the previous frames, as most are.
        let near = self.memory.near();
        let header_len = self.header_len as u64;
        self.queue.gather(
            most,
            #[inline(always)]
            |address| prefetch(near, address, header_len),
        )
    }

    /// Finds chains for `total` octets, and their pieces.
    fn fit(&mut self, total: u32) -> Fit {
        self.chain.clear();
        let mut chains = 0usize;
        loop {
            let next = chains.saturating_add(1);
            if self.queue.gathered() <= chains && self.gather(next) <= chains {
                // If the device has all buffers already, waiting for more does not help.
                let put = if self.queue.has_all() {
                    PutResult::TooLong
                } else {
                    PutResult::Full
                };
                return Fit::Other(put);
            }
            let before = self.chain.octets();
            let result = self
                .queue
                .walk(chains, &mut self.memory, &mut self.chain, Access::Write);
            let capacity = self.chain.octets().saturating_sub(before);
            match result {
                Err(Fault::Miss(miss)) => {
                    self.known = 0;
                    return Fit::Other(PutResult::Miss(miss));
                }
                Err(Fault::TooMany) if chains > 0 => return Fit::Other(PutResult::TooLong),
                Ok(()) if capacity >= self.header_len as u64 => {}
                _ => return Fit::Other(self.give_back(chains)),
            }
            if let Some(place) = self.capacities.get_mut(chains) {
                *place = u32::try_from(capacity).unwrap_or(u32::MAX);
            }
            chains = next;
            if self.chain.octets() >= u64::from(total) {
                return Fit::Chains(chains);
            }
            if !self.is_mergeable || chains >= WINDOW {
                return Fit::Other(PutResult::TooLong);
            }
        }
    }

    /// Returns a bad chain, and those before it, because chains are returned in order.
    #[cold]
    fn give_back(&mut self, before: usize) -> PutResult {
        self.known = self.known.saturating_sub(before.saturating_add(1));
        for _ in 0..=before {
            self.queue.complete(0);
        }
        let counters = self.queue.counters_mut();
        counters.bad = counters.bad.wrapping_add(1);
        PutResult::Bad
    }

    /// Marks the first `total` octets of the chain as written.
    #[cold]
    fn log(&self, total: u32) {
        let mut rest = total;
        for piece in self.chain.pieces() {
            let written = rest.min(piece.len());
            if let Some(guest) = self.memory.guest_address(*piece) {
                self.queue.log().mark(guest, u64::from(written));
            }
            rest = rest.saturating_sub(written);
            if rest == 0 {
                return;
            }
        }
    }
}

/// Prefetches the memory of a frame for writing. The header may have its own cache line, and most headers are there already:
/// that line is prefetched for reading.
#[inline(always)]
fn prefetch(near: CachedRegion<'_>, address: u64, header_len: u64) {
    near.prefetch(address);
    near.prefetch_write(address.wrapping_add(header_len));
}

/// Copies a frame, with the header of a complete one, into a chain of a single descriptor; returns the octets written.
/// `None` if it does not fit, or the chain is of another kind or lies outside the region.
#[inline(always)]
fn fill(entry: &Entry, near: CachedRegion<'_>, from: &[u8]) -> Option<u32> {
    const HEADER: RawHeader = RawHeader::PLAIN.with_num_buffers(1);
    let total = from.len().saturating_add(HEADER_LEN);
    if !entry.is_direct(Access::Write)
        || total > entry.len() as usize
        || total > OCTETS_MAX as usize
    {
        return None;
    }
    let span = near.octets(entry.address, total)?;
    let (place, to) = (span.sub(0, HEADER_LEN)?, span.sub(HEADER_LEN, from.len())?);
    // A header that is there already is not written: its cache line then remains with the guest, too.
    if place.read_array().map(|octets| RawHeader::new(&octets)) != Some(HEADER) {
        place.write_array(HEADER.octets());
    }
    to.copy_from(from);
    Some(narrow::octets(total))
}

/// As [`fill`], for the queue's next chain and a frame of any length. Separate from the loop over short frames, which keeps
/// its values in registers.
#[inline(never)]
fn fill_next(queue: &mut impl Queue, near: CachedRegion<'_>, from: &[u8]) -> bool {
    let written = queue
        .entries()
        .first()
        .and_then(|entry| fill(entry, near, from));
    if let Some(written) = written {
        queue.complete(written);
    }
    written.is_some()
}

/// Returns the same octets with a shorter lifetime.
fn shorten<'short, 'long: 'short>(octets: &'long [u8]) -> &'short [u8] {
    octets
}

impl<Q: Queue> Transmit for RingSender<Q> {
    #[inline]
    fn ready(&mut self, most: usize) -> usize {
        let most = most.min(BURST_MAX);
        let announced = self.queue.announce(most);
        self.announced = announced.unwrap_or_else(|| self.gather(most)).min(most);
        self.announced
    }

    #[inline(always)]
    fn put_contiguous<'s, F: Iterator<Item = &'s [u8]>>(
        &mut self,
        frames: impl Fn(usize) -> F,
    ) -> (usize, u64) {
        let announced = std::mem::take(&mut self.announced);
        if self.queue.gathered() < announced {
            self.gather(announced);
        }
        if !self.is_plain {
            return (0, 0);
        }
        let (memory, queue) = (&self.memory, &mut self.queue);
        let mut near = memory.near();
        let (mut count, mut octets) = (0usize, 0u64);
        loop {
            let mut left = frames(count);
            // No call in this loop, so that all values remain in registers.
            let written = queue.complete_written(
                #[inline(always)]
                |entry| {
                    let from = left.next().filter(|from| is_short(from.len()))?;
                    let written = fill(entry, near, from)?;
                    octets = octets.wrapping_add(from.len() as u64);
                    Some(written)
                },
            );
            count = count.wrapping_add(written);
            let (Some(entry), Some(from)) = (queue.entries().first(), frames(count).next()) else {
                break;
            };
            let address = entry.address;
            if fill_next(queue, near, from) {
                octets = octets.wrapping_add(from.len() as u64);
                count = count.wrapping_add(1);
            } else if let Some(region) = memory.other_region(near, address) {
                near = region;
            } else {
                break;
            }
        }
        let index = near.index();
        self.memory.stay(index);
        (count, octets)
    }

    #[inline(never)]
    fn put<'s>(
        &mut self,
        header: RawHeader,
        segments: impl Iterator<Item = &'s [u8]>,
        length: u32,
    ) -> PutResult {
        let Some(total) = length
            .checked_add(narrow::octets(self.header_len))
            .filter(|total| *total <= OCTETS_MAX)
        else {
            return PutResult::TooLong;
        };
        let chains = match self.fit(total) {
            Fit::Chains(chains) => chains,
            Fit::Other(put) => return put,
        };
        let octets = header.with_num_buffers(narrow::slots(chains)).octets();
        let header = octets.get(..self.header_len).unwrap_or_default();
        let segments = segments.map(shorten);
        self.chain
            .write(&self.memory, Some(header).into_iter().chain(segments));
        if self.queue.log().is_on() {
            self.log(total);
        }
        self.known = self.known.saturating_sub(chains);
        let mut rest = total;
        for at in 0..chains {
            let capacity = self.capacities.get(at).copied().unwrap_or(0);
            let written = rest.min(capacity);
            self.queue.complete(written);
            rest = rest.saturating_sub(written);
        }
        PutResult::Sent
    }
}

impl<Q: Queue> Ring for RingSender<Q> {
    #[inline]
    fn commit(&mut self) {
        self.queue.publish();
        self.queue.prefetch_waiting();
    }

    #[inline]
    fn wants_notification(&mut self) -> bool {
        self.queue.wants_notification()
    }

    fn look_ahead(&mut self, mut report: impl FnMut(Miss)) {
        if !self.memory.has_iotlb() {
            return;
        }
        let gathered = self.gather(WINDOW);
        let mut is_known = true;
        for at in (self.known..gathered).take(AHEAD_MAX) {
            self.chain.clear();
            let result = self
                .queue
                .walk(at, &mut self.memory, &mut self.chain, Access::Write);
            if let Err(Fault::Miss(miss)) = result {
                is_known = false;
                report(miss);
            }
            self.known = self.known.saturating_add(usize::from(is_known));
        }
    }

    fn request_notifications(&mut self, wanted: bool) {
        self.queue.request_notifications(wanted);
    }

    fn base(&self) -> u32 {
        self.queue.base()
    }

    fn set_logging(&mut self, is_on: bool) {
        self.queue.log_mut().switch(is_on);
        self.update_plain();
    }

    fn set_log(&mut self, log: Option<DirtyLog>) {
        self.queue.log_mut().replace(log);
        self.update_plain();
    }

    fn has_faulted(&self) -> bool {
        self.memory.has_faulted() || self.queue.log().has_faulted()
    }

    fn counters(&self) -> Counters {
        *self.queue.counters()
    }
}
