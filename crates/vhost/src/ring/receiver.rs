// SPDX-License-Identifier: Apache-2.0
//! Reception of frames that the guest transmits.

use quietwire_memory::{Span, is_short};

use crate::address_space::{Access, CachedRegion, Miss, Piece, Translator};
use crate::narrow;

use super::DirtyLog;
use super::chain::{Chain, Fault, OCTETS_MAX};
use super::config::{Features, RingConfig};
use super::header::{HEADER_LEN, RawHeader};
use super::queue::{Entry, Queue, WINDOW};
use super::virtqueue::{AHEAD_MAX, BURST_MAX, Counters, Ring};

/// Result of [`Receive::next`].
#[derive(Debug)]
pub enum Received<'a> {
    /// A frame.
    Frame {
        /// Offloads that the guest leaves to the device. `num_buffers` has no meaning here.
        header: RawHeader,
        /// The first octets of the frame; usually all of them.
        first: Span<'a>,
        /// The others.
        rest: Pieces<'a>,
        /// Length of the frame, in `first` and `rest` together, octets: at least 1.
        length: u32,
    },
    /// A chain that violates the rules. It is returned to the guest.
    Bad,
    /// The frame waits: an address is missing in the IOTLB. There are no more frames until [`Receive::ready`].
    Miss(Miss),
}

/// The pieces of a frame after the first. An iterator over their octets.
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    memory: &'a Translator,
    pieces: &'a [Piece],
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Span<'a>;

    #[inline]
    fn next(&mut self) -> Option<Span<'a>> {
        let (piece, rest) = self.pieces.split_first()?;
        self.pieces = rest;
        self.memory.span(*piece)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.pieces.len(), Some(self.pieces.len()))
    }
}

impl ExactSizeIterator for Pieces<'_> {}

/// A ring from which the device takes frames.
pub trait Receive: Ring {
    /// Reads up to `most` chains (at most [`BURST_MAX`]) from the ring; returns the number that [`Self::next`] will return.
    fn ready(&mut self, most: usize) -> usize;

    /// Calls `take` with the octets of each next frame of the burst, at most `most`, as long as their chains are single
    /// descriptors, as most are; returns how many there were. Frames of more than `longest` octets, and those with offloads,
    /// are passed with their header. See [`Self::next`] for the frame after them.
    fn take_contiguous(
        &mut self,
        most: usize,
        longest: usize,
        take: impl FnMut(Span<'_>, Option<RawHeader>),
    ) -> usize;

    /// Returns the next frame of the burst. Its octets may be read until the next call.
    fn next(&mut self) -> Option<Received<'_>>;

    /// Returns the chains of the burst to the guest; returns true if the guest wants a notification.
    fn release(&mut self) -> bool {
        self.commit();
        self.wants_notification()
    }
}

/// Receiver of frames from a ring.
#[derive(Debug)]
pub struct RingReceiver<Q> {
    queue: Q,
    memory: Translator,
    /// Chains that `next` may still take.
    left: usize,
    /// Number of chains of the window, from its first on, whose addresses were found in the IOTLB.
    known: usize,
    header_len: usize,
    /// True if the guest may leave offloads to the device. Otherwise headers are not read (section 5.1.6.2.1).
    has_offloads: bool,
    /// True if chains of a single descriptor take the fast path: not with an IOTLB, an inflight region or the short header.
    is_plain: bool,
    chain: Chain,
}

impl<Q: Queue> RingReceiver<Q> {
    pub(crate) fn new(queue: Q, config: &RingConfig<'_>, features: Features) -> Self {
        let memory = config.space.translator();
        Self {
            left: 0,
            known: 0,
            header_len: features.header_len(),
            has_offloads: features.has_offloads,
            is_plain: !memory.has_iotlb()
                && !queue.has_inflight()
                && features.header_len() == HEADER_LEN,
            memory,
            queue,
            chain: Chain::new(),
        }
    }

    /// Reads chains from the ring; returns how many are read.
    #[inline(never)]
    fn gather(&mut self, most: usize) -> usize {
        // In the region of the previous frames, as most are.
        let near = self.memory.near();
        let (has_offloads, header_len) = (self.has_offloads, self.header_len as u64);
        self.queue.gather(
            most,
            #[inline(always)]
            |address| prefetch(near, address, header_len, has_offloads),
        )
    }

    /// Reads the chains that [`Receive::ready`] announced: all that remain are in the window then.
    #[inline(always)]
    fn read_announced(&mut self) {
        if self.queue.gathered() < self.left {
            self.left = self.gather(self.left).min(self.left);
        }
    }

    #[inline(never)]
    fn next_of_any_kind(&mut self) -> Option<Received<'_>> {
        self.chain.clear();
        let result = self
            .queue
            .walk(0, &mut self.memory, &mut self.chain, Access::Read);
        if let Err(Fault::Miss(miss)) = result {
            self.left = 0;
            self.known = 0;
            return Some(Received::Miss(miss));
        }
        self.left = self.left.saturating_sub(1);
        self.known = self.known.saturating_sub(1);
        self.queue.complete(0);
        let octets = self.chain.octets();
        if result.is_err() || octets <= self.header_len as u64 || octets > u64::from(OCTETS_MAX) {
            let counters = self.queue.counters_mut();
            counters.bad = counters.bad.wrapping_add(1);
            return Some(Received::Bad);
        }
        let length = narrow::low_u32(octets.saturating_sub(self.header_len as u64));
        let (header, pieces) = self.chain.split_header(&self.memory, self.header_len);
        let mut spans = Pieces {
            memory: &self.memory,
            pieces,
        };
        let first = spans.next()?;
        let header = if self.has_offloads {
            RawHeader::new(&header)
        } else {
            RawHeader::PLAIN
        };
        Some(Received::Frame {
            header,
            first,
            rest: spans,
            length,
        })
    }
}

impl<Q: Queue> Receive for RingReceiver<Q> {
    #[inline]
    fn ready(&mut self, most: usize) -> usize {
        let most = most.min(BURST_MAX);
        let announced = self.queue.announce(most);
        self.left = announced.unwrap_or_else(|| self.gather(most)).min(most);
        self.left
    }

    #[inline(always)]
    fn take_contiguous(
        &mut self,
        most: usize,
        longest: usize,
        mut take: impl FnMut(Span<'_>, Option<RawHeader>),
    ) -> usize {
        self.read_announced();
        if !self.is_plain {
            return 0;
        }
        let (memory, has_offloads) = (&self.memory, self.has_offloads);
        let entries = self.queue.entries();
        let most = most.min(self.left).min(entries.len());
        let mut left = entries.get(..most).unwrap_or_default();
        let mut near = memory.near();
        loop {
            // No call in this loop, so that all values remain in registers.
            while let [entry, rest @ ..] = left
                && let Some((octets, header)) = frame_of(entry, near, has_offloads)
                && is_short(octets.len())
                && octets.len() <= longest
                && header.is_plain()
            {
                take(octets, None);
                left = rest;
            }
            let [entry, rest @ ..] = left else {
                break;
            };
            if let Some((octets, header)) = frame_of(entry, near, has_offloads) {
                take_any(octets, header, longest, &mut take);
                left = rest;
                continue;
            }
            match memory.other_region(near, entry.address) {
                Some(region) => near = region,
                None => break,
            }
        }
        let (index, count) = (near.index(), most.saturating_sub(left.len()));
        self.memory.stay(index);
        if count > 0 {
            self.queue.complete_read(count);
            self.left = self.left.saturating_sub(count);
        }
        count
    }

    fn next(&mut self) -> Option<Received<'_>> {
        self.read_announced();
        if self.left == 0 {
            return None;
        }
        self.next_of_any_kind()
    }
}

/// Calls `take` like [`Receive::take_contiguous`]. Separate from its loop over short frames, which keeps its values in
/// registers.
#[inline(never)]
fn take_any(
    octets: Span<'_>,
    header: RawHeader,
    longest: usize,
    take: &mut impl FnMut(Span<'_>, Option<RawHeader>),
) {
    let is_whole = octets.len() <= longest && header.is_plain();
    take(octets, (!is_whole).then_some(header));
}

/// Asks the processor to load the beginning of a frame.
#[inline(always)]
fn prefetch(near: CachedRegion<'_>, address: u64, header_len: u64, has_offloads: bool) {
    near.prefetch(address.wrapping_add(header_len));
    if has_offloads {
        near.prefetch(address);
    }
}

/// Returns the octets and the header of a frame in a single descriptor; `None` if it is another kind of chain, or lies
/// outside the region.
#[inline(always)]
fn frame_of<'ring>(
    entry: &Entry,
    near: CachedRegion<'ring>,
    has_offloads: bool,
) -> Option<(Span<'ring>, RawHeader)> {
    const SHORTEST: u32 = narrow::octets(HEADER_LEN) + 1;
    let len = entry.len();
    if !entry.is_direct(Access::Read) || !(SHORTEST..=OCTETS_MAX).contains(&len) {
        return None;
    }
    let span = near.octets(entry.address, len as usize)?;
    let header = if has_offloads {
        RawHeader::new(&span.read_array()?)
    } else {
        RawHeader::PLAIN
    };
    let length = (len as usize).checked_sub(HEADER_LEN)?;
    let octets = span.sub(HEADER_LEN, length)?;
    Some((octets, header))
}

impl<Q: Queue> Ring for RingReceiver<Q> {
    #[inline]
    fn commit(&mut self) {
        self.queue.publish();
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
                .walk(at, &mut self.memory, &mut self.chain, Access::Read);
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
    }

    fn set_log(&mut self, log: Option<DirtyLog>) {
        self.queue.log_mut().replace(log);
    }

    fn has_faulted(&self) -> bool {
        self.memory.has_faulted() || self.queue.log().has_faulted()
    }

    fn counters(&self) -> Counters {
        *self.queue.counters()
    }
}
