// SPDX-License-Identifier: Apache-2.0
//! Frames that the guest receives.

use crate::address_space::{Access, Miss, Translator};

use super::chain::{Chain, Fault, OCTETS_MAX};
use super::header::{HEADER_LEN, RawHeader};
use super::queue::{Kind, Queue, WINDOW};
use super::{AHEAD_MAX, BURST_MAX, Counters, DirtyLog, Features, RingConfig};

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// The guest has it once [`Transmit::publish`] is called.
    Sent,
    /// The guest has too few buffers. Nothing changed. A frame may be longer than all buffers that the ring can hold, which
    /// the device cannot always know: it should not wait for ever.
    Full,
    /// A chain of the guest's breaks the rules and goes back to it. The frame was not sent.
    Bad,
    /// No buffer of the guest's can hold the frame. Nothing changed.
    TooLong,
    /// The frame waits: the IOTLB lacks an address. Nothing changed.
    Miss(Miss),
}

/// A ring that the device puts frames into.
pub trait Transmit {
    /// Reads up to `most` chains (at most [`BURST_MAX`]) from the ring, for as many frames that fit one chain each; returns
    /// how many there are. [`Self::put`] reads more when it needs them.
    fn ready(&mut self, most: usize) -> usize;

    /// Copies a frame of `length` octets into the guest's buffers. `header.num_buffers` is computed here.
    fn put<'s>(
        &mut self,
        header: RawHeader,
        segments: impl Iterator<Item = &'s [u8]>,
        length: u32,
    ) -> Put;

    /// Shows the guest the frames that were put; returns true if it wants a notification.
    fn publish(&mut self) -> bool {
        self.commit();
        self.wants_notification()
    }

    /// As [`Self::publish`], without looking whether the guest wants a notification.
    fn commit(&mut self);

    /// Returns true if the guest wants a notification of what was committed since the last call. Costs less some time after
    /// [`Self::commit`], when what was written has reached the cache.
    fn wants_notification(&mut self) -> bool;

    /// Looks for addresses that the IOTLB lacks, in chains for further frames: at most [`AHEAD_MAX`] chains a call. Without an
    /// IOTLB, there are none. Call [`Self::publish`] first.
    fn look_ahead(&mut self, report: impl FnMut(Miss));

    /// Asks the guest for notifications of new buffers, or for none. See [`super::Receive::request_notifications`].
    fn request_notifications(&mut self, wanted: bool);

    /// Returns the base: the first chain not used. Call [`Self::publish`] first. See [`super::Receive::base`].
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

/// Puts frames into a ring.
#[derive(Debug)]
pub struct RingSender<Q> {
    queue: Q,
    memory: Translator,
    header_len: usize,
    is_mergeable: bool,
    /// What is filled in the short way: nothing with an IOTLB, an inflight region, a log or the short header.
    plain: Kind,
    chain: Chain,
    /// Chains of the window, from its first on, whose addresses the IOTLB had.
    known: usize,
    /// Octets of each chain of a frame.
    capacities: [u32; WINDOW],
}

/// The chains that a frame needs.
enum Fit {
    Chains(usize),
    Other(Put),
}

impl<Q: Queue> RingSender<Q> {
    pub(crate) fn new(queue: Q, config: &RingConfig<'_>, features: Features) -> Self {
        let mut sender = Self {
            queue,
            memory: config.space.translator(),
            header_len: features.header_len(),
            is_mergeable: features.is_mergeable,
            plain: Kind::NONE,
            chain: Chain::new(),
            known: 0,
            capacities: [0; WINDOW],
        };
        sender.update_plain();
        sender
    }

    fn update_plain(&mut self) {
        let is_rare = self.memory.has_iotlb()
            || self.queue.has_inflight()
            || self.queue.log().is_on()
            || self.header_len != HEADER_LEN;
        self.plain = if is_rare {
            Kind::NONE
        } else {
            Kind::direct(Access::Write)
        };
    }

    /// Reads chains from the ring; returns how many are read.
    #[inline]
    fn gather(&mut self, most: usize) -> usize {
        let (memory, header) = (&mut self.memory, self.header_len);
        let prefetch = |address| memory.prefetch_write(address, header);
        self.queue.gather(most, prefetch)
    }

    /// Finds chains for `total` octets, and their pieces.
    fn fit(&mut self, total: u32) -> Fit {
        self.chain.clear();
        let mut chains = 0;
        loop {
            if self.queue.gathered() <= chains && self.gather(chains + 1) <= chains {
                // With all buffers in hand, waiting for more does not help.
                let put = if self.queue.has_all() {
                    Put::TooLong
                } else {
                    Put::Full
                };
                return Fit::Other(put);
            }
            let before = self.chain.octets();
            let result = self
                .queue
                .walk(chains, &mut self.memory, &mut self.chain, Access::Write);
            let capacity = self.chain.octets() - before;
            match result {
                Err(Fault::Miss(miss)) => {
                    self.known = 0;
                    return Fit::Other(Put::Miss(miss));
                }
                Err(Fault::TooMany) if chains > 0 => return Fit::Other(Put::TooLong),
                Ok(()) if capacity >= self.header_len as u64 => {}
                _ => return Fit::Other(self.give_back(chains)),
            }
            if let Some(place) = self.capacities.get_mut(chains) {
                *place = u32::try_from(capacity).unwrap_or(u32::MAX);
            }
            chains += 1;
            if self.chain.octets() >= u64::from(total) {
                return Fit::Chains(chains);
            }
            if !self.is_mergeable || chains >= WINDOW {
                return Fit::Other(Put::TooLong);
            }
        }
    }

    /// Returns a bad chain, and those before it since they are returned in order.
    #[cold]
    fn give_back(&mut self, before: usize) -> Put {
        self.known = self.known.saturating_sub(before + 1);
        for _ in 0..=before {
            self.queue.complete(0);
        }
        self.queue.counters_mut().bad += 1;
        Put::Bad
    }

    #[inline(never)]
    fn put_of_any_kind<'s>(
        &mut self,
        header: RawHeader,
        segments: impl Iterator<Item = &'s [u8]>,
        length: u32,
    ) -> Put {
        let Some(total) = length
            .checked_add(self.header_len as u32)
            .filter(|total| *total <= OCTETS_MAX)
        else {
            return Put::TooLong;
        };
        let chains = match self.fit(total) {
            Fit::Chains(chains) => chains,
            Fit::Other(put) => return put,
        };
        let octets = header.with_num_buffers(chains as u16).octets();
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
            rest -= written;
        }
        Put::Sent
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
            rest -= written;
            if rest == 0 {
                return;
            }
        }
    }
}

/// Returns the same octets, borrowed for less long.
fn shorten<'short, 'long: 'short>(octets: &'long [u8]) -> &'short [u8] {
    octets
}

impl<Q: Queue> Transmit for RingSender<Q> {
    #[inline]
    fn ready(&mut self, most: usize) -> usize {
        let most = most.min(BURST_MAX);
        self.gather(most).min(most)
    }

    #[inline(always)]
    fn put<'s>(
        &mut self,
        header: RawHeader,
        segments: impl Iterator<Item = &'s [u8]>,
        length: u32,
    ) -> Put {
        const LONGEST: u32 = OCTETS_MAX - HEADER_LEN as u32;
        if self.queue.gathered() == 0 && self.gather(1) == 0 {
            return Put::Full;
        }
        let entry = self.queue.first();
        if !entry.is(self.plain) || length > LONGEST {
            return self.put_of_any_kind(header, segments, length);
        }
        let total = length + HEADER_LEN as u32;
        if total > entry.len() {
            return self.put_of_any_kind(header, segments, length);
        }
        let region = entry.region();
        let Some(span) = self.memory.octets_in(region, entry.address, total) else {
            return self.put_of_any_kind(header, segments, length);
        };
        // A header that is there already is left alone: its cache line then stays with the guest, too.
        let header = header.with_num_buffers(1);
        if let Some(place) = span.sub(0, HEADER_LEN)
            && place.read_array().map(|octets| RawHeader::new(&octets)) != Some(header)
        {
            place.copy_from(&header.octets());
        }
        let (_, mut place) = span.split_at(HEADER_LEN);
        for segment in segments {
            let copied = place.copy_from(segment);
            (_, place) = place.split_at(copied);
        }
        self.queue.complete_direct(entry, total);
        Put::Sent
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
