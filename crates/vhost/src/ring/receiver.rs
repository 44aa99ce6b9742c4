// SPDX-License-Identifier: Apache-2.0
//! Frames that the guest transmits.

use quietwire_memory::Span;

use crate::address_space::{Access, Miss, Piece, Translator};

use super::chain::{Chain, Fault, OCTETS_MAX};
use super::header::{HEADER_LEN, RawHeader};
use super::queue::{Kind, Queue, WINDOW};
use super::{AHEAD_MAX, BURST_MAX, Counters, DirtyLog, Features, RingConfig};

/// What a ring holds for [`Receive::next`].
#[derive(Debug)]
pub enum Received<'a> {
    /// A frame.
    Frame {
        /// What the guest left to the device. `num_buffers` means nothing here.
        header: RawHeader,
        /// The first octets of the frame: all of them in the common case.
        first: Span<'a>,
        /// The others.
        rest: Pieces<'a>,
        /// Octets of the frame, in `first` and `rest` together: at least 1.
        length: u32,
    },
    /// A chain that breaks the rules. It goes back to the guest.
    Bad,
    /// The frame waits: the IOTLB lacks an address. There are no more frames until [`Receive::ready`].
    Miss(Miss),
}

/// The pieces of a frame behind the first. An iterator over their octets.
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

/// A ring that the device takes frames from.
pub trait Receive {
    /// Reads up to `most` chains (at most [`BURST_MAX`]) from the ring; returns the number that [`Self::next`] gives.
    fn ready(&mut self, most: usize) -> usize;

    /// Returns the octets and the header of the next frame of the burst, if its chain is a single descriptor, as most are. `None`
    /// otherwise, and nothing is taken: see [`Self::next`].
    fn next_contiguous(&mut self) -> Option<(Span<'_>, RawHeader)>;

    /// Returns the next frame of the burst. Its octets may be read until the next call.
    fn next(&mut self) -> Option<Received<'_>>;

    /// Returns the chains of the burst to the guest; returns true if the guest wants a notification.
    fn release(&mut self) -> bool {
        self.commit();
        self.wants_notification()
    }

    /// As [`Self::release`], without looking whether the guest wants a notification.
    fn commit(&mut self);

    /// Returns true if the guest wants a notification of what was committed since the last call. See
    /// [`super::Transmit::wants_notification`].
    fn wants_notification(&mut self) -> bool;

    /// Looks for addresses that the IOTLB lacks, in chains that [`Self::next`] has not come to: at most [`AHEAD_MAX`] chains
    /// a call. Without an IOTLB, there are none. Call [`Self::release`] first.
    fn look_ahead(&mut self, report: impl FnMut(Miss));

    /// Asks the guest for notifications of new frames, or for none.
    ///
    /// Frames may have come before the guest sees the request: call [`Self::ready`] before waiting.
    fn request_notifications(&mut self, wanted: bool);

    /// Returns the base (`VHOST_USER_GET_VRING_BASE`): the first chain not returned by [`Self::next`]. The low 16 bits of
    /// a packed ring's are the position to read from, the high ones that to write to, each with its wrap counter.
    ///
    /// Call [`Self::release`] first.
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

/// Takes frames from a ring.
#[derive(Debug)]
pub struct RingReceiver<Q> {
    queue: Q,
    memory: Translator,
    /// Chains that `next` may still take.
    left: usize,
    /// Chains of the window, from its first on, whose addresses the IOTLB had.
    known: usize,
    header_len: usize,
    /// What is taken in the short way: nothing with an IOTLB, an inflight region or the short header.
    plain: Kind,
    chain: Chain,
}

impl<Q: Queue> RingReceiver<Q> {
    pub(crate) fn new(queue: Q, config: &RingConfig<'_>, features: Features) -> Self {
        let memory = config.space.translator();
        Self {
            left: 0,
            known: 0,
            header_len: features.header_len(),
            plain: if memory.has_iotlb()
                || queue.has_inflight()
                || features.header_len() != HEADER_LEN
            {
                Kind::NONE
            } else {
                Kind::direct(Access::Read)
            },
            memory,
            queue,
            chain: Chain::new(),
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
        self.left -= 1;
        self.known = self.known.saturating_sub(1);
        self.queue.complete(0);
        let octets = self.chain.octets();
        if result.is_err() || octets <= self.header_len as u64 || octets > u64::from(OCTETS_MAX) {
            self.queue.counters_mut().bad += 1;
            return Some(Received::Bad);
        }
        let length = octets as u32 - self.header_len as u32;
        let (header, pieces) = self.chain.split_header(&self.memory, self.header_len);
        let mut spans = Pieces {
            memory: &self.memory,
            pieces,
        };
        let first = spans.next()?;
        Some(Received::Frame {
            header: RawHeader::new(&header),
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
        let memory = &mut self.memory;
        let gathered = self.queue.gather(most, |address| memory.prefetch(address));
        self.left = gathered.min(most);
        self.left
    }

    #[inline(always)]
    fn next_contiguous(&mut self) -> Option<(Span<'_>, RawHeader)> {
        const SHORTEST: u32 = HEADER_LEN as u32 + 1;
        if self.left == 0 {
            return None;
        }
        // Chains left are in the window.
        let entry = self.queue.first();
        if !entry.is(self.plain) || !(SHORTEST..=OCTETS_MAX).contains(&entry.len()) {
            return None;
        }
        let span = self
            .memory
            .octets_in(entry.region(), entry.address, entry.len())?;
        let header = span.sub(0, HEADER_LEN)?.read_array()?;
        let length = entry.len() - HEADER_LEN as u32;
        let octets = span.sub(HEADER_LEN, length as usize)?;
        self.left -= 1;
        self.queue.complete_direct(entry, 0);
        Some((octets, RawHeader::new(&header)))
    }

    fn next(&mut self) -> Option<Received<'_>> {
        if self.left == 0 {
            return None;
        }
        self.next_of_any_kind()
    }

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
        let memory = &mut self.memory;
        let gathered = self
            .queue
            .gather(WINDOW, |address| memory.prefetch(address));
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
            self.known += usize::from(is_known);
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
