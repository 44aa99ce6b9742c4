// SPDX-License-Identifier: Apache-2.0
//! Frames between rings in shared memory and packet buffers: the only place where they are copied.

use quietwire_memory::Span;

use super::counters::QueueCounters;
use crate::burst::{BURST_MAX, Burst, Mbuf, first_segment, room};
use crate::mempool::Mempool;
use crate::sys::{self, field};

/// A frame in a ring.
pub(crate) struct Arrival<'ring, R, O> {
    /// Its octets, or the first of them.
    pub(crate) first: Span<'ring>,
    /// The others, in order.
    pub(crate) rest: R,
    /// Octets of all together.
    pub(crate) length: u32,
    /// What the sender left to us.
    pub(crate) offload: O,
}

/// What a ring yields next.
pub(crate) enum Next<'ring, R, O> {
    Frame(Arrival<'ring, R, O>),
    /// Descriptors that make no sense; they are consumed.
    Unsound,
}

/// The receiving end of a ring.
pub(crate) trait Source {
    /// What a sender may leave to the receiver.
    type Offload: Copy;
    /// Pieces of a frame behind the first.
    type Rest<'ring>: ExactSizeIterator<Item = Span<'ring>>
    where
        Self: 'ring;

    /// Frames that can be taken now, at most `most`.
    fn ready(&mut self, most: usize) -> usize;

    /// The next of them.
    fn next(&mut self) -> Option<Next<'_, Self::Rest<'_>, Self::Offload>>;

    /// Returns consumed slots to the peer.
    fn release(&mut self);

    /// Indices since the last call that made no sense.
    fn take_unsound(&mut self) -> u64;

    /// Longest frame that may come with such an offload, octets without FCS.
    fn length_max(offload: Self::Offload, limit: u32) -> u32;

    /// Does what the sender left to us. False when it makes no sense.
    fn complete(offload: Self::Offload, frame: &mut Mbuf<'_>) -> bool;
}

/// What became of a frame that was to be put into a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Taken,
    /// There is no room now.
    Full,
    /// There never is, or the peer's descriptors make no sense.
    Refused,
}

/// The sending end of a ring.
pub(crate) trait Sink {
    /// Gets ready to take `count` frames.
    fn ready(&mut self, count: usize);

    /// Puts a frame in.
    fn put(&mut self, frame: &Outgoing<'_>) -> Outcome;

    /// Shows the peer what was put in, and wakes it if it wants that. Returns the number of notifications.
    fn publish(&mut self) -> u64;

    /// Indices and descriptors since the last call that made no sense.
    fn take_unsound(&mut self) -> u64;
}

/// A frame on its way into a ring.
pub(crate) struct Outgoing<'burst> {
    mbuf: *mut sys::rte_mbuf,
    _burst: std::marker::PhantomData<&'burst Burst>,
}

impl<'burst> Outgoing<'burst> {
    /// Octets of the whole frame.
    #[inline(always)]
    pub(crate) fn length(&self) -> u32 {
        // SAFETY: owned by the burst that is borrowed.
        unsafe { *field::pkt_len(self.mbuf) }
    }

    /// Its octets, segment by segment.
    #[inline(always)]
    pub(crate) fn segments(&self) -> Segments<'burst> {
        Segments {
            mbuf: self.mbuf,
            _burst: std::marker::PhantomData,
        }
    }

    /// Flags of struct rte_mbuf.
    #[inline(always)]
    pub(crate) fn flags(&self) -> u64 {
        // SAFETY: as above.
        unsafe { *field::ol_flags(self.mbuf) }
    }

    pub(crate) fn buffer(&self) -> *mut sys::rte_mbuf {
        self.mbuf
    }
}

/// The segments of a frame.
#[derive(Clone)]
pub(crate) struct Segments<'burst> {
    mbuf: *mut sys::rte_mbuf,
    _burst: std::marker::PhantomData<&'burst Burst>,
}

impl<'burst> Iterator for Segments<'burst> {
    type Item = &'burst [u8];

    #[inline(always)]
    fn next(&mut self) -> Option<&'burst [u8]> {
        if self.mbuf.is_null() {
            return None;
        }
        // SAFETY: the segments of an owned buffer are a list that ends with null; they are only read.
        unsafe {
            let octets = first_segment(self.mbuf);
            self.mbuf = *field::next(self.mbuf);
            Some(octets)
        }
    }
}

/// Receives at most `most` frames into an empty burst; returns how many. Frames longer than `limit` octets (without FCS) are
/// dropped and counted.
#[inline(always)]
pub(crate) fn receive<S: Source>(
    source: &mut S,
    burst: &mut Burst,
    most: usize,
    pool: &Mempool,
    limit: u32,
    counters: &QueueCounters,
) -> usize {
    if !burst.is_empty() {
        return burst.len();
    }
    let ready = source.ready(most.min(BURST_MAX));
    if ready == 0 {
        count_unsound(source.take_unsound(), counters);
        return 0;
    }
    if !burst.allocate(pool, ready) {
        // The frames stay where they are.
        counters.no_buffers.add(1);
        return 0;
    }
    let (mut kept, mut octets) = (0, 0);
    let (mut unsound, mut too_long) = (0, 0);
    for _ in 0..ready {
        let arrival = match source.next() {
            Some(Next::Frame(arrival)) => arrival,
            Some(Next::Unsound) => {
                unsound += 1;
                continue;
            }
            None => break,
        };
        let Some(mbuf) = burst.buffer(kept) else {
            break;
        };
        let (length, offload) = (arrival.length, arrival.offload);
        if length > limit && length > S::length_max(offload, limit) {
            too_long += 1;
            continue;
        }
        // SAFETY: owned by the burst, alone and empty.
        let is_copied = unsafe {
            if arrival.rest.len() == 0 && length <= limit {
                copy_whole(mbuf, arrival.first, length)
            } else {
                copy_pieces(mbuf, arrival.first, arrival.rest, pool)
            }
        };
        if !is_copied {
            counters.no_buffers.add(1);
            reset(mbuf);
            continue;
        }
        let mut frame = Mbuf::of_buffer(mbuf);
        let is_sound = S::complete(offload, &mut frame);
        // The burst has it.
        std::mem::forget(frame);
        if !is_sound {
            unsound += 1;
            reset(mbuf);
            continue;
        }
        octets += u64::from(length);
        kept += 1;
    }
    burst.shorten(kept);
    source.release();
    counters.frames.add(kept as u64);
    counters.octets.add(octets);
    if unsound + too_long > 0 {
        counters.unsound.add(unsound);
        counters.too_long.add(too_long);
    }
    count_unsound(source.take_unsound(), counters);
    kept
}

#[inline(always)]
fn count_unsound(count: u64, counters: &QueueCounters) {
    if count > 0 {
        counters.unsound.add(count);
    }
}

/// Copies a frame in one piece into an empty buffer.
///
/// # Safety
/// `mbuf` is owned, and nobody shares it.
#[inline(always)]
unsafe fn copy_whole(mbuf: *mut sys::rte_mbuf, from: Span<'_>, length: u32) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        let room = room(mbuf);
        if room.len() < length as usize {
            return false;
        }
        let copied = from.copy_to(room);
        *field::data_len(mbuf) = copied as u16;
        *field::pkt_len(mbuf) = copied as u32;
        copied == length as usize
    }
}

/// Copies a frame in several pieces into a buffer, and into further ones of the pool when it does not fit.
///
/// # Safety
/// As [`copy_whole`].
#[cold]
unsafe fn copy_pieces<'ring>(
    mbuf: *mut sys::rte_mbuf,
    first: Span<'ring>,
    rest: impl Iterator<Item = Span<'ring>>,
    pool: &Mempool,
) -> bool {
    let mut tail = mbuf;
    for piece in std::iter::once(first).chain(rest) {
        let mut from = piece;
        while !from.is_empty() {
            // SAFETY: `tail` is the last of the frame's buffers, which are ours alone.
            unsafe {
                let used = *field::data_len(tail) as usize;
                let copied = room(tail)
                    .get_mut(used..)
                    .map_or(0, |free| from.copy_to(free));
                *field::data_len(tail) += copied as u16;
                *field::pkt_len(mbuf) += copied as u32;
                from = from.split_at(copied).1;
                if !from.is_empty() {
                    let Some(next) = Mbuf::empty(pool, 0) else {
                        return false;
                    };
                    let next = next.into_buffer();
                    *field::next(tail) = next;
                    *field::nb_segs(mbuf) += 1;
                    tail = next;
                }
            }
        }
    }
    true
}

/// Makes a buffer empty again, and frees those chained to it.
#[cold]
fn reset(mbuf: *mut sys::rte_mbuf) {
    // SAFETY: owned by the burst, alone; what is chained to it is freed once.
    unsafe {
        let mut next = std::mem::replace(&mut *field::next(mbuf), std::ptr::null_mut());
        if !next.is_null() {
            *field::nb_segs(next) = *field::nb_segs(mbuf) - 1;
            sys::rte_pktmbuf_free_bulk(&raw mut next, 1);
        }
        *field::nb_segs(mbuf) = 1;
        *field::data_len(mbuf) = 0;
        *field::pkt_len(mbuf) = 0;
        *field::ol_flags(mbuf) = 0;
    }
}

/// Sends frames of a burst, in order, until the ring is full. Frames that were sent, and those that can never be, leave the burst;
/// the others stay. Returns how many were sent.
#[inline(always)]
pub(crate) fn send<S: Sink>(sink: &mut S, burst: &mut Burst, counters: &QueueCounters) -> usize {
    let count = burst.len();
    if count == 0 {
        return 0;
    }
    sink.ready(count);
    let (mut taken, mut sent, mut octets, mut refused) = (0, 0, 0, 0);
    while let Some(mbuf) = burst.buffer(taken) {
        let frame = Outgoing {
            mbuf,
            _burst: std::marker::PhantomData,
        };
        match sink.put(&frame) {
            Outcome::Taken => {
                sent += 1;
                octets += u64::from(frame.length());
            }
            Outcome::Full => break,
            Outcome::Refused => {
                counters.refused.add(1);
                refused += u64::from(frame.length());
            }
        }
        taken += 1;
    }
    if taken > 0 {
        let notifications = sink.publish();
        if notifications > 0 {
            counters.notifications.add(notifications);
        }
        burst.free_front(taken);
        burst.note_refused(refused);
        counters.frames.add(sent as u64);
        counters.octets.add(octets);
    }
    let unsound = sink.take_unsound();
    if unsound > 0 {
        counters.unsound.add(unsound);
    }
    sent
}

/// A count that a ring has kept since it began, of which a part has been passed on.
#[derive(Debug, Default)]
pub(crate) struct Passed(u64);

impl Passed {
    /// Returns what was added since the last call.
    #[inline(always)]
    pub(crate) fn take(&mut self, count: u64) -> u64 {
        let added = count.wrapping_sub(self.0);
        self.0 = count;
        added
    }
}
