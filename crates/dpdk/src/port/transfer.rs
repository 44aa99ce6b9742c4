// SPDX-License-Identifier: Apache-2.0
//! Copies of frames between rings in shared memory and packet buffers. Frames are copied nowhere else.

use std::io::IoSlice;

use quietwire_memory::Span;

use super::counters::QueueCounters;
use crate::BURST_MAX;
use crate::burst::{Burst, Mbuf, Start, first_segment, space};
use crate::checksums::is_verified;
use crate::mempool::Mempool;
use crate::sys::TO_CUT;
use crate::sys::{self, field};

/// Shortest frame with a report about its checksum to the peer, octets. An estimate: such a frame leaves the fast path, and the peer saves
/// the sum over its octets.
const REPORTED_MIN: u32 = 512;

/// A frame in a ring.
pub(crate) struct Arrival<'ring, R, O> {
    /// First piece of its octets.
    pub(crate) first: Span<'ring>,
    /// Further pieces, in order.
    pub(crate) rest: R,
    /// Offload that the sender requested.
    pub(crate) offload: O,
}

/// Next item of a ring.
pub(crate) enum Next<'ring, R, O> {
    Frame(Arrival<'ring, R, O>),
    /// Invalid descriptors, which are consumed.
    Malformed,
}

/// The receiving end of a ring.
pub(crate) trait Source {
    /// Offload that a sender may request.
    type Offload: Copy;
    /// Pieces of a frame after the first.
    type Rest<'ring>: Iterator<Item = Span<'ring>> + Clone
    where
        Self: 'ring;

    /// Returns the number of available frames, at most `most`.
    fn ready(&mut self, most: usize) -> usize;

    /// Calls `take` with each available frame, at most `most`, up to the first that is in several pieces (most frames are in one).
    /// Returns their number. A frame of more than `longest` octets, or with an offload, comes with its offload.
    ///
    /// It is separate from [`Self::next`] so that such frames stay in registers. A return value would pass through memory, by wide
    /// loads of words just stored one by one, and each load waits until the stores have reached the cache.
    fn take_contiguous(
        &mut self,
        most: usize,
        longest: usize,
        take: impl FnMut(Span<'_>, Option<Self::Offload>),
    ) -> usize;

    /// Calls `take` with each available frame, at most `most`, up to the first that is in several pieces, has more than `longest` octets or
    /// an offload, or for which `take` returns false. That frame stays. Returns their number.
    #[inline(always)]
    fn take_while(
        &mut self,
        most: usize,
        longest: usize,
        take: impl FnMut(Span<'_>) -> bool,
    ) -> usize {
        let _ = (most, longest, take);
        0
    }

    /// Returns the next available frame.
    fn next(&mut self) -> Option<Next<'_, Self::Rest<'_>, Self::Offload>>;

    /// Returns consumed slots to the peer.
    fn release(&mut self);

    /// Returns the number of invalid indices since the last call.
    fn take_malformed(&mut self) -> u64;

    /// Returns the longest frame allowed with this offload, octets without FCS.
    fn length_max(offload: Self::Offload, limit: u32) -> u32;

    /// Returns true if the sender requested no offload.
    fn is_complete(offload: Self::Offload) -> bool;

    /// Performs the offload. Returns false if it is invalid. `limit` is that of [`Self::length_max`].
    fn complete(offload: Self::Offload, frame: &mut Mbuf<'_>, limit: u32) -> bool;
}

/// Result of putting a frame into a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Accepted,
    /// The ring is full.
    Full,
    /// The frame is too large for the ring, or the peer's descriptors are invalid.
    Refused,
}

/// The sending end of a ring.
pub(crate) trait Sink {
    /// Prepares for `count` frames.
    fn ready(&mut self, count: usize);

    /// Puts frames into the ring as long as a frame fits one piece of memory and requests no offload. Returns their number and
    /// octets. `frames` returns the frames from an index on. The next frame must go to [`Self::put`].
    #[inline(always)]
    fn put_contiguous<'burst, F: Iterator<Item = &'burst [u8]>>(
        &mut self,
        frames: impl Fn(usize) -> F,
    ) -> (usize, u64) {
        let _ = frames;
        (0, 0)
    }

    /// Puts a frame into the ring.
    fn put(&mut self, frame: &Outgoing<'_>) -> Outcome;

    /// Returns true if the header of a frame in the ring can report that a card has verified its checksum. Such frames of
    /// [`REPORTED_MIN`] octets or more then go to [`Self::put`].
    #[inline(always)]
    fn reports_checksums(&self) -> bool {
        false
    }

    /// Publishes the frames to the peer.
    fn publish(&mut self);

    /// Notifies the peer if it requests that. Returns the number of notifications. Call it some time after [`Self::publish`],
    /// because the peer's request is certain only when the published writes have reached the cache.
    fn notify(&mut self) -> u64;

    /// Returns the number of invalid indices and descriptors since the last call.
    fn take_malformed(&mut self) -> u64;
}

/// A frame for a ring.
pub(crate) struct Outgoing<'burst> {
    mbuf: *mut sys::rte_mbuf,
    _burst: std::marker::PhantomData<&'burst Burst>,
}

impl<'burst> Outgoing<'burst> {
    /// Returns the frame in a buffer.
    ///
    /// # Safety
    /// The caller owns the buffer for `'burst`.
    #[inline(always)]
    pub(super) const unsafe fn of_buffer(mbuf: *mut sys::rte_mbuf) -> Self {
        Self {
            mbuf,
            _burst: std::marker::PhantomData,
        }
    }

    /// Writes the places of a header and of the frame's segments to `pieces`, for one system call. Returns them; `None` if there are too
    /// many.
    #[inline(always)]
    pub(super) fn gather<'pieces, 'octets>(
        &'octets self,
        header: &'octets [u8],
        pieces: &'pieces mut [IoSlice<'octets>],
    ) -> Option<&'pieces [IoSlice<'octets>]> {
        let mut all = std::iter::once(header).chain(self.segments());
        let mut count = 0_usize;
        for (piece, octets) in pieces.iter_mut().zip(all.by_ref()) {
            *piece = IoSlice::new(octets);
            // At most the length of `pieces`.
            count = count.wrapping_add(1);
        }
        if all.next().is_some() {
            return None;
        }
        pieces.get(..count)
    }

    /// Returns the length of the complete frame, octets.
    #[inline(always)]
    pub(crate) fn length(&self) -> u32 {
        // SAFETY: owned by the burst that is borrowed.
        unsafe { *field::pkt_len(self.mbuf) }
    }

    /// Returns its octets, segment by segment.
    #[inline(always)]
    pub(crate) fn segments(&self) -> Segments<'burst> {
        Segments {
            mbuf: self.mbuf,
            _burst: std::marker::PhantomData,
        }
    }

    /// Returns true if a card has verified the checksum of TCP or UDP.
    #[inline(always)]
    pub(crate) fn has_verified_checksum(&self) -> bool {
        // SAFETY: as above.
        unsafe { is_verified(self.mbuf) }
    }

    /// Returns the flags of struct rte_mbuf.
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

/// Receives at most `most` frames into an empty burst. Returns their number. Frames longer than `limit` octets (without FCS) are
/// dropped and counted.
// Not inlined, so that each kind of ring has a separate function with all registers.
#[inline(never)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "counts of a burst: at most BURST_MAX frames, which have at most 64 KiB each"
)]
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
        count_malformed(source.take_malformed(), counters);
        return 0;
    }
    let Some(start) = burst.take(pool, ready) else {
        // The frames stay in the ring.
        counters.no_buffers.add(1);
        return 0;
    };
    let short = start.space.min(limit as usize);
    let buffers = burst.held();
    let (mut kept, mut octets) = (0, 0);
    let mut dropped = Dropped::default();
    let mut consumed = 0;
    while consumed < ready {
        let left = ready - consumed;
        consumed += source.take_contiguous(
            left,
            short,
            #[inline(always)]
            |frame, offload| {
                let Some(&mbuf) = buffers.get(kept) else {
                    return;
                };
                let Some(offload) = offload else {
                    // SAFETY: owned by the burst, alone; there is space.
                    unsafe { copy_whole(start, mbuf, frame) };
                    octets += frame.len() as u64;
                    kept += 1;
                    return;
                };
                let pieces = [].into_iter();
                // SAFETY: owned by the burst, alone.
                let taken = unsafe {
                    start.begin(mbuf, 0);
                    take_pieces::<S>(mbuf, frame, pieces, offload, pool, limit)
                };
                let length = dropped.unless_kept(taken, mbuf);
                octets += u64::from(length);
                kept += usize::from(length > 0);
            },
        );
        if consumed < ready {
            let Some(&mbuf) = buffers.get(kept) else {
                break;
            };
            // SAFETY: as above.
            let taken = unsafe {
                start.begin(mbuf, 0);
                take_any(mbuf, source, pool, limit)
            };
            let Some(taken) = taken else {
                break;
            };
            let length = dropped.unless_kept(taken, mbuf);
            octets += u64::from(length);
            kept += usize::from(length > 0);
            consumed += 1;
        }
    }
    burst.shorten(kept);
    source.release();
    counters.frames.add(kept as u64);
    counters.octets.add(octets);
    dropped.count(counters);
    count_malformed(source.take_malformed(), counters);
    kept
}

/// Counts of received and dropped frames of a burst.
#[derive(Default)]
struct Dropped {
    malformed: u64,
    too_long: u64,
    no_buffers: u64,
}

impl Dropped {
    /// Returns the octets of a kept frame, at least 1. Otherwise counts the frame as dropped, empties its buffer and returns 0.
    #[cold]
    #[inline(never)]
    fn unless_kept(&mut self, taken: ReceiveOutcome, mbuf: *mut sys::rte_mbuf) -> u32 {
        match taken {
            ReceiveOutcome::Frame(length) if length > 0 => return length,
            ReceiveOutcome::Frame(_) | ReceiveOutcome::Malformed => {
                self.malformed = self.malformed.saturating_add(1);
            }
            ReceiveOutcome::TooLong => self.too_long = self.too_long.saturating_add(1),
            ReceiveOutcome::NoBuffers => self.no_buffers = self.no_buffers.saturating_add(1),
        }
        reset(mbuf);
        0
    }

    #[inline(always)]
    fn count(&self, counters: &QueueCounters) {
        if self.malformed | self.too_long | self.no_buffers != 0 {
            counters.malformed.add(self.malformed);
            counters.too_long.add(self.too_long);
            counters.no_buffers.add(self.no_buffers);
        }
    }
}

/// Notifies the peer if it requests that.
#[inline(always)]
fn notify(sink: &mut impl Sink, counters: &QueueCounters) {
    let notifications = sink.notify();
    if notifications > 0 {
        counters.notifications.add(notifications);
    }
}

#[inline(always)]
pub(super) fn count_malformed(count: u64, counters: &QueueCounters) {
    if count > 0 {
        counters.malformed.add(count);
    }
}

/// Outcome of a received frame.
enum ReceiveOutcome {
    /// The frame is in its buffer and has this number of octets.
    Frame(u32),
    Malformed,
    TooLong,
    NoBuffers,
}

/// Copies the next frame like [`take_pieces`]. `None` if there is no frame.
///
/// # Safety
/// That of [`take_pieces`].
#[cold]
#[inline(never)]
unsafe fn take_any<S: Source>(
    mbuf: *mut sys::rte_mbuf,
    source: &mut S,
    pool: &Mempool,
    limit: u32,
) -> Option<ReceiveOutcome> {
    Some(match source.next()? {
        // SAFETY: guaranteed by the caller.
        Next::Frame(frame) => unsafe {
            take_pieces::<S>(mbuf, frame.first, frame.rest, frame.offload, pool, limit)
        },
        Next::Malformed => ReceiveOutcome::Malformed,
    })
}

/// Copies a frame into an empty buffer and performs its offload. If that fails, the caller must reset the buffer.
///
/// # Safety
/// `mbuf` is owned and not shared.
#[cold]
#[inline(never)]
unsafe fn take_pieces<'ring, S: Source>(
    mbuf: *mut sys::rte_mbuf,
    first: Span<'ring>,
    rest: impl Iterator<Item = Span<'ring>> + Clone,
    offload: S::Offload,
    pool: &Mempool,
    limit: u32,
) -> ReceiveOutcome {
    let octets = rest
        .clone()
        .map(|piece| piece.len())
        .fold(first.len(), usize::saturating_add);
    let length = u32::try_from(octets).unwrap_or(u32::MAX);
    if length > limit && length > S::length_max(offload, limit) {
        return ReceiveOutcome::TooLong;
    }
    // SAFETY: guaranteed by the caller.
    if !unsafe { copy_pieces(mbuf, first, rest, pool) } {
        return ReceiveOutcome::NoBuffers;
    }
    let mut frame = std::mem::ManuallyDrop::new(Mbuf::of_buffer(mbuf));
    if S::is_complete(offload) || S::complete(offload, &mut frame, limit) {
        ReceiveOutcome::Frame(length)
    } else {
        ReceiveOutcome::Malformed
    }
}

/// Copies a frame in one piece into a buffer just taken from its pool.
///
/// # Safety
/// `mbuf` is owned, is not shared, and has space for the frame.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the buffer has space for the frame, and at most 65,535 octets"
)]
unsafe fn copy_whole(start: Start, mbuf: *mut sys::rte_mbuf, from: Span<'_>) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        start.begin(mbuf, from.len() as u16);
        let data = (*field::buf_addr(mbuf)).add(*field::data_off(mbuf) as usize);
        from.copy_to(std::slice::from_raw_parts_mut(data, from.len()));
    }
}

/// Copies a frame in several pieces into a buffer, and into further buffers of the pool if it does not fit.
///
/// # Safety
/// `mbuf` is owned and not shared.
#[cold]
#[expect(
    clippy::cast_possible_truncation,
    clippy::arithmetic_side_effects,
    reason = "a buffer has at most 65,535 octets, and the length of the frame is limited before"
)]
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
                let copied = space(tail)
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

/// Empties a buffer, and frees the buffers chained to it.
#[cold]
pub(super) fn reset(mbuf: *mut sys::rte_mbuf) {
    // SAFETY: owned by the burst, alone; the chained buffers are freed once.
    unsafe {
        let mut next = std::mem::replace(&mut *field::next(mbuf), std::ptr::null_mut());
        if !next.is_null() {
            *field::nb_segs(next) = (*field::nb_segs(mbuf)).saturating_sub(1);
            sys::rte_pktmbuf_free_bulk(&raw mut next, 1);
        }
        *field::nb_segs(mbuf) = 1;
        *field::data_len(mbuf) = 0;
        *field::pkt_len(mbuf) = 0;
        *field::ol_flags(mbuf) = 0;
    }
}

/// Sends frames of a burst, in order, until the ring is full. Sent frames, and frames that cannot be sent at all, leave the
/// burst; the others stay. Returns the number of frames sent.
// Not inlined, like `receive`.
#[inline(never)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "counts of a burst: at most BURST_MAX frames, which have at most 64 KiB each"
)]
pub(crate) fn send<S: Sink>(sink: &mut S, burst: &mut Burst, counters: &QueueCounters) -> usize {
    let count = burst.len();
    if count == 0 {
        return 0;
    }
    sink.ready(count);
    let reports = sink.reports_checksums();
    let (mut taken, mut sent, mut octets, mut refused) = (0, 0, 0, 0);
    while let Some(mbuf) = burst.buffer(taken) {
        let (count, length) = sink.put_contiguous(
            #[inline(always)]
            |first| plain_frames(burst, taken + first, reports),
        );
        if count > 0 {
            sent += count;
            octets += length;
            taken += count;
            continue;
        }
        let frame = Outgoing {
            mbuf,
            _burst: std::marker::PhantomData,
        };
        match sink.put(&frame) {
            Outcome::Accepted => {
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
        sink.publish();
        burst.free_front(taken);
        notify(sink, counters);
        burst.note_refused(refused);
        counters.frames.add(sent as u64);
        counters.octets.add(octets);
    }
    count_malformed(sink.take_malformed(), counters);
    sent
}

/// Returns the octets of frames from `first` on, up to a frame in several segments or with a request for segmentation. With `reports`, up to
/// a long frame with a verified checksum, too.
#[inline(always)]
fn plain_frames(burst: &Burst, first: usize, reports: bool) -> impl Iterator<Item = &[u8]> {
    let buffers = burst.held().get(first..).unwrap_or_default();
    buffers.iter().map_while(move |&mbuf| {
        // SAFETY: owned by the burst, which is borrowed; only read.
        unsafe {
            let is_plain = *field::nb_segs(mbuf) == 1 && *field::ol_flags(mbuf) & TO_CUT == 0;
            let is_reported = reports && *field::pkt_len(mbuf) >= REPORTED_MIN && is_verified(mbuf);
            (is_plain && !is_reported).then(|| &*first_segment(mbuf))
        }
    })
}

/// A running count of a ring, and the part of it that has been passed on.
#[derive(Debug, Default)]
pub(crate) struct Passed(u64);

impl Passed {
    /// Returns the increase since the last call.
    #[inline(always)]
    pub(crate) fn take(&mut self, count: u64) -> u64 {
        let added = count.wrapping_sub(self.0);
        self.0 = count;
        added
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    /// A ring that records the lengths of frames, and how it got them.
    #[derive(Default)]
    struct Recorded {
        reports: bool,
        contiguous: Vec<usize>,
        single: Vec<u32>,
    }

    impl Sink for Recorded {
        fn ready(&mut self, _: usize) {}

        fn put_contiguous<'burst, F: Iterator<Item = &'burst [u8]>>(
            &mut self,
            frames: impl Fn(usize) -> F,
        ) -> (usize, u64) {
            let lengths: Vec<usize> = frames(0).map(<[u8]>::len).collect();
            let octets = lengths.iter().sum::<usize>() as u64;
            self.contiguous.extend(&lengths);
            (lengths.len(), octets)
        }

        fn put(&mut self, frame: &Outgoing<'_>) -> Outcome {
            self.single.push(frame.length());
            Outcome::Accepted
        }

        fn reports_checksums(&self) -> bool {
            self.reports
        }

        fn publish(&mut self) {}

        fn notify(&mut self) -> u64 {
            0
        }

        fn take_malformed(&mut self) -> u64 {
            0
        }
    }

    #[test]
    fn long_frames_with_verified_checksums_get_their_own_header() {
        let eal = testing::eal();
        let pool = Mempool::new(&eal, "reported", 511, 2048).unwrap();
        for (reports, contiguous, single) in [
            (true, vec![600, 511, 700], vec![512]),
            (false, vec![600, 511, 512, 700], vec![]),
        ] {
            let mut burst = Burst::new(&eal);
            for (length, report) in [
                (600, sys::CHECKSUM_BAD),
                (511, sys::CHECKSUM_GOOD),
                (512, sys::CHECKSUM_GOOD),
                (700, 0),
            ] {
                let mut frame = Mbuf::new(&eal, &pool, &vec![0; length]).unwrap();
                frame.set_report(report, sys::TYPE_TCP);
                burst.push(frame).unwrap();
            }
            let mut sink = Recorded {
                reports,
                ..Recorded::default()
            };
            assert_eq!(send(&mut sink, &mut burst, &QueueCounters::default()), 4);
            assert_eq!((sink.contiguous, sink.single), (contiguous, single));
        }
    }
}
