// SPDX-License-Identifier: Apache-2.0
//! Bursts of frames, which move from receive queues to transmit queues.

// A burst has at most BURST_MAX frames, and DPDK keeps the octets of a frame within its buffer, so the operations that could wrap do not.

mod removal;

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU16, Ordering};
use std::{ptr, slice};

use crate::BURST_MAX;
use crate::eal::Eal;
use crate::mempool::Mempool;
use crate::sys;
use crate::sys::field;

pub use removal::Drain;

/// Octets of two MAC addresses, and of the VLAN tag after them.
const ADDRESSES_LENGTH: u16 = 12;
const TAG_LENGTH: u16 = 4;
const ADDRESSES: usize = ADDRESSES_LENGTH as usize;
const TAG: usize = TAG_LENGTH as usize;

/// Writes a tag after the addresses. Returns false if there is no space.
#[inline(always)]
fn write_tag(octets: &mut [u8], tpid: u16, tci: u16) -> bool {
    match octets.get_mut(ADDRESSES..ADDRESSES + TAG) {
        Some(place) => {
            let [a, b] = tpid.to_be_bytes();
            let [c, d] = tci.to_be_bytes();
            place.copy_from_slice(&[a, b, c, d]);
            true
        }
        None => false,
    }
}

/// Up to [`BURST_MAX`] frames, owned. Frames left in it when it is dropped go back to their pool.
#[derive(Debug)]
pub struct Burst {
    /// In memory of its own, so that two bursts are exchanged by their pointers.
    mbufs: Box<[*mut sys::rte_mbuf; BURST_MAX]>,
    len: usize,
    /// Octets of frames that a port dropped because it cannot send them at all.
    refused: u64,
    // Buffers live in the EAL's memory.
    _eal: Eal,
}

// SAFETY: the buffers are owned, and buffers may be freed by another thread than took them.
unsafe impl Send for Burst {}

/// One frame outside a burst. Drop returns it to its pool.
#[derive(Debug)]
pub struct Mbuf<'eal> {
    pub(crate) mbuf: *mut sys::rte_mbuf,
    _eal: PhantomData<&'eal Eal>,
}

/// Returns the octets of a buffer's first segment.
///
/// # Safety
/// The caller owns `mbuf` for `'a`, and writes only if it is not shared.
#[inline(always)]
pub(crate) unsafe fn first_segment<'a>(mbuf: *mut sys::rte_mbuf) -> &'a mut [u8] {
    // SAFETY: the caller owns `mbuf` for 'a. DPDK keeps data_off + data_len within the buffer.
    unsafe {
        let data = (*field::buf_addr(mbuf)).add(*field::data_off(mbuf) as usize);
        slice::from_raw_parts_mut(data, *field::data_len(mbuf) as usize)
    }
}

/// Returns the space of a buffer without shared segments, from the start of its data.
///
/// # Safety
/// The caller owns `mbuf` for `'a`, and it is not shared.
#[inline(always)]
pub(crate) unsafe fn space<'a>(mbuf: *mut sys::rte_mbuf) -> &'a mut [u8] {
    // SAFETY: the caller owns `mbuf` for 'a. DPDK keeps data_off within the buffer of buf_len octets.
    unsafe {
        let offset = *field::data_off(mbuf);
        let data = (*field::buf_addr(mbuf)).add(offset as usize);
        slice::from_raw_parts_mut(
            data,
            (*field::buf_len(mbuf)).saturating_sub(offset) as usize,
        )
    }
}

/// Initial field values of the buffers of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// `data_off`, `refcnt`, `nb_segs` and `port`.
    first_fields: [u16; 4],
    /// Space of a buffer, octets.
    pub(crate) space: usize,
}

impl Start {
    /// Turns a buffer from the pool into a frame of `length` octets, whose contents are arbitrary.
    ///
    /// This is the relevant part of `rte_pktmbuf_reset`: the second cache line, which has the offloads of a transmitted frame, is
    /// read only if a flag is set, and written before that.
    ///
    /// # Safety
    /// The caller owns `mbuf`, which is from the same pool, is not shared and has space for `length` octets.
    #[inline(always)]
    pub(crate) unsafe fn begin(self, mbuf: *mut sys::rte_mbuf, length: u16) {
        // SAFETY: the caller owns `mbuf`.
        unsafe {
            *field::first_fields(mbuf) = self.first_fields;
            *field::ol_flags(mbuf) = 0;
            *field::type_and_length(mbuf) = [0, u32::from(length)];
            *field::length_and_tag(mbuf) = [length, 0];
        }
    }
}

/// Fills the slice with buffers of a pool. `None` if the pool has too few. The caller must call [`Start::begin`] for each buffer
/// that it does not free at once.
#[inline(always)]
fn take(pool: &Mempool, mbufs: &mut [*mut sys::rte_mbuf]) -> Option<Start> {
    let count = u32::try_from(mbufs.len()).ok()?;
    // SAFETY: the slice has `count` places; the pool is alive.
    let code = unsafe { sys::qw_take_bulk(pool.as_ptr(), mbufs.as_mut_ptr(), count) };
    if code != 0 {
        return None;
    }
    // SAFETY: just taken. All buffers of a pool have the same length.
    let length = mbufs
        .first()
        .map_or(0, |mbuf| unsafe { *field::buf_len(*mbuf) });
    let headroom = u16::try_from(sys::RTE_PKTMBUF_HEADROOM).unwrap_or(u16::MAX);
    let offset = length.min(headroom);
    Some(Start {
        // RTE_MBUF_PORT_INVALID is the largest number.
        first_fields: [offset, 1, 1, u16::MAX],
        space: usize::from(length.wrapping_sub(offset)),
    })
}

/// Fills a slice with empty buffers of a pool, all or none. Returns false if the pool has too few.
#[inline(always)]
#[must_use]
pub(crate) fn allocate(pool: &Mempool, mbufs: &mut [*mut sys::rte_mbuf]) -> bool {
    let Some(start) = take(pool, mbufs) else {
        return false;
    };
    for mbuf in mbufs {
        // SAFETY: just taken, alone.
        unsafe { start.begin(*mbuf, 0) };
    }
    true
}

impl Burst {
    /// Creates an empty burst.
    #[must_use]
    pub fn new(eal: &Eal) -> Self {
        Self {
            mbufs: Box::new([ptr::null_mut(); BURST_MAX]),
            len: 0,
            refused: 0,
            _eal: eal.clone(),
        }
    }

    /// Returns the number of frames.
    #[inline(always)]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no frames.
    #[inline(always)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of frames for which there is space.
    #[inline(always)]
    #[must_use]
    pub fn space(&self) -> usize {
        BURST_MAX.wrapping_sub(self.len)
    }

    /// Returns the octets of frames that [`crate::TxQueue::send`] dropped because the port cannot send them at all, since the
    /// last call.
    #[inline(always)]
    pub fn take_refused(&mut self) -> u64 {
        std::mem::take(&mut self.refused)
    }

    /// Counts such a frame.
    #[inline(always)]
    pub(crate) fn note_refused(&mut self, octets: u64) {
        self.refused = self.refused.wrapping_add(octets);
    }

    #[inline(always)]
    pub(crate) fn held(&self) -> &[*mut sys::rte_mbuf] {
        // `len` never passes BURST_MAX, so the fallback is never taken and nothing can panic.
        self.mbufs.get(..self.len).unwrap_or(&[])
    }

    /// Returns the octets of each frame without FCS; for a frame in several segments, those of the first segment.
    #[inline(always)]
    pub fn frames(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        // SAFETY: the buffers are owned by this burst, which is borrowed; shared segments are only read.
        self.held()
            .iter()
            .map(|mbuf| unsafe { &*first_segment(*mbuf) })
    }

    /// Returns the length of each frame without FCS, summed over all segments, octets.
    #[inline(always)]
    pub fn lengths(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        // SAFETY: the buffers are owned by this burst.
        self.held()
            .iter()
            .map(|mbuf| unsafe { *field::pkt_len(*mbuf) })
    }

    /// Returns the number of each frame's buffer (see [`Mbuf::buffer`]).
    #[inline]
    pub fn buffers(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.held().iter().map(|mbuf| mbuf.addr())
    }

    /// Returns the mark of each frame (see [`Mbuf::mark`]).
    #[inline(always)]
    pub fn marks(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        // SAFETY: the buffers are owned by this burst; any bits are a number.
        self.held()
            .iter()
            .map(|mbuf| unsafe { *field::hash_usr(*mbuf) })
    }

    /// Returns the class of each frame: the number that [`Self::set_classes`] wrote to it, or to the frame that it is a copy or a part of. A
    /// frame of [`Mbuf::new`] has class 0, and a received one an arbitrary class until it is set.
    #[inline(always)]
    pub fn classes(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        // SAFETY: the buffers are owned by this burst; any bits are a number.
        self.held()
            .iter()
            .map(|mbuf| unsafe { *field::hash_fdir_hi(*mbuf) })
    }

    /// Writes a class to each frame, beside its octets and its mark.
    #[inline]
    pub fn set_classes(&mut self, classes: impl IntoIterator<Item = u32>) {
        for (mbuf, class) in self.held().iter().zip(classes) {
            // SAFETY: the buffers are owned by this burst. Only drivers write the field, on receive (`fdir.hi` of struct rte_mbuf).
            unsafe { *field::hash_fdir_hi(*mbuf) = class };
        }
    }

    /// Returns true if the sender of at least one frame requested segmentation of its TCP data; see [`Mbuf::segment_size`].
    #[must_use]
    pub fn has_tso_frames(&self) -> bool {
        // SAFETY: the buffers are owned by this burst.
        self.held()
            .iter()
            .any(|mbuf| unsafe { *field::ol_flags(*mbuf) } & sys::TSO != 0)
    }

    /// Prefetches the first cache line of each frame.
    #[inline(always)]
    pub fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        for mbuf in self.held() {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: the buffer is owned; a prefetch touches nothing.
            unsafe {
                let data = (*field::buf_addr(*mbuf))
                    .cast::<i8>()
                    .add(*field::data_off(*mbuf) as usize);
                _mm_prefetch(data, _MM_HINT_T0);
            }
        }
    }

    /// Fills an empty burst with `count` empty buffers (at most [`BURST_MAX`]), all or none.
    /// Returns false if the pool has too few, or the burst is not empty.
    #[inline]
    #[must_use]
    pub fn allocate(&mut self, pool: &Mempool, count: usize) -> bool {
        let count = count.min(BURST_MAX);
        let places = self.mbufs.get_mut(..count).unwrap_or_default();
        if self.len != 0 || !allocate(pool, places) {
            return false;
        }
        self.len = count;
        true
    }

    /// Fills the burst like [`Self::allocate`], but the caller must call [`Start::begin`] with each buffer before its use. `None`
    /// instead of false.
    #[inline(always)]
    #[must_use]
    pub(crate) fn take(&mut self, pool: &Mempool, count: usize) -> Option<Start> {
        if self.len != 0 {
            return None;
        }
        let count = count.min(BURST_MAX);
        let start = take(pool, self.mbufs.get_mut(..count)?)?;
        self.len = count;
        Some(start)
    }

    /// Calls `write` with each frame in turn, which sets its length and octets.
    #[inline(always)]
    pub fn write_each(&mut self, mut write: impl FnMut(&mut Blank<'_>)) {
        for mbuf in self.held() {
            write(&mut Blank {
                mbuf: *mbuf,
                _burst: PhantomData,
            });
        }
    }

    /// Calls `change` with the octets of each frame in turn, until a frame is shared or in several segments, or `change` returns false.
    /// Returns the number of changed frames.
    #[inline(always)]
    pub fn change_while(&mut self, mut change: impl FnMut(&mut [u8]) -> bool) -> usize {
        let mut each = self.held().iter();
        let unchanged = each.position(|mbuf| {
            let mut frame = ManuallyDrop::new(Mbuf::of_buffer(*mbuf));
            !frame.octets_mut().is_some_and(&mut change)
        });
        unchanged.unwrap_or(self.len)
    }

    /// Calls `change` with the octets of the first segment of each frame that is not shared.
    #[inline(always)]
    pub(crate) fn change_each(&mut self, mut change: impl FnMut(&mut [u8])) {
        for mbuf in self.held() {
            let mut frame = ManuallyDrop::new(Mbuf::of_buffer(*mbuf));
            if let Some(octets) = frame.octets_mut() {
                change(octets);
            }
        }
    }

    /// Adds a frame. Returns it as an error if there is no space.
    ///
    /// # Errors
    /// The frame itself.
    #[inline(always)]
    pub fn push<'eal>(&mut self, frame: Mbuf<'eal>) -> Result<(), Mbuf<'eal>> {
        match self.mbufs.get_mut(self.len) {
            Some(place) => {
                *place = frame.mbuf;
                std::mem::forget(frame);
                self.len = self.len.wrapping_add(1);
                Ok(())
            }
            None => Err(frame),
        }
    }

    /// Returns a buffer, or none after the last.
    #[inline(always)]
    pub(crate) fn buffer(&self, index: usize) -> Option<*mut sys::rte_mbuf> {
        self.held().get(index).copied()
    }

    /// Adds owned frames as long as there is space. Returns the number of frames in the burst.
    pub(crate) fn append_raw(&mut self, frames: impl Iterator<Item = *mut sys::rte_mbuf>) -> usize {
        for (place, frame) in self.mbufs.iter_mut().skip(self.len).zip(frames) {
            *place = frame;
            self.len = self.len.wrapping_add(1);
        }
        self.len
    }

    /// Receives into an empty burst. Returns the number of frames. Does nothing if the burst is not empty.
    #[inline(always)]
    pub(crate) fn fill_from(&mut self, port: u16, queue: u16, most: usize) -> usize {
        if self.len == 0 {
            let most = u16::try_from(most.min(BURST_MAX)).unwrap_or(u16::MAX);
            // SAFETY: the array has space for `most`; the caller owns the started queue.
            self.len =
                unsafe { sys::qw_rx_burst(port, queue, self.mbufs.as_mut_ptr(), most) } as usize;
        }
        self.len
    }

    /// Passes frames to a queue. Frames that it does not accept stay, in order.
    #[expect(clippy::cast_possible_truncation, reason = "at most BURST_MAX frames")]
    #[inline(always)]
    pub(crate) fn hand_to(&mut self, port: u16, queue: u16) -> usize {
        if self.len == 0 {
            return 0;
        }
        // SAFETY: `len` buffers are owned; the first `sent` of them belong to the queue afterwards.
        let sent =
            unsafe { sys::qw_tx_burst(port, queue, self.mbufs.as_mut_ptr(), self.len as u16) }
                as usize;
        let sent = sent.min(self.len);
        if sent < self.len {
            self.mbufs.copy_within(sent..self.len, 0);
        }
        self.len = self.len.wrapping_sub(sent);
        sent
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        self.free();
    }
}

/// A frame of a [`Burst`] during [`Burst::write_each`].
#[derive(Debug)]
pub struct Blank<'burst> {
    mbuf: *mut sys::rte_mbuf,
    _burst: PhantomData<&'burst mut Burst>,
}

impl Blank<'_> {
    /// Sets the frame's length (octets without FCS) and returns its octets, whose contents are arbitrary.
    /// Returns `None` and changes nothing if the frame is shared, in several segments, or too small.
    #[inline(always)]
    pub fn octets(&mut self, length: u16) -> Option<&mut [u8]> {
        // SAFETY: owned by the burst that is borrowed; not shared (checked); the length stays within
        // the buffer (checked).
        unsafe {
            let mbuf = self.mbuf;
            let space = (*field::buf_len(mbuf)).saturating_sub(*field::data_off(mbuf));
            if *field::refcnt(mbuf) != 1 || *field::nb_segs(mbuf) != 1 || length > space {
                return None;
            }
            *field::data_len(mbuf) = length;
            *field::pkt_len(mbuf) = u32::from(length);
            Some(first_segment(mbuf))
        }
    }
}

impl<'eal> Mbuf<'eal> {
    /// Returns the octets of the first segment, without FCS.
    #[inline(always)]
    #[must_use]
    pub fn octets(&self) -> &[u8] {
        // SAFETY: owned by this value, which is borrowed.
        unsafe { first_segment(self.mbuf) }
    }

    /// Returns the length of the frame without FCS, summed over all segments, octets.
    #[inline(always)]
    #[must_use]
    pub fn length(&self) -> u32 {
        // SAFETY: owned by this value.
        unsafe { *field::pkt_len(self.mbuf) }
    }

    /// Returns a number of the buffer. Handles on the same octets have the same number; no other existing frame has it.
    #[inline]
    #[must_use]
    pub fn buffer(&self) -> usize {
        self.mbuf.addr()
    }

    /// Writes a number to the buffer, beside its octets, for the next owner of the frame in this process.
    #[inline(always)]
    pub fn set_mark(&mut self, mark: u32) {
        // SAFETY: owned by this value; the field is for users of DPDK (`usr` of struct rte_mbuf).
        unsafe { *field::hash_usr(self.mbuf) = mark };
    }

    /// Returns the last number written by [`Self::set_mark`] or a driver.
    #[inline(always)]
    #[must_use]
    pub fn mark(&self) -> u32 {
        // SAFETY: owned by this value; any bits are a number.
        unsafe { *field::hash_usr(self.mbuf) }
    }

    /// Returns true if only this handle holds the octets and all are in one segment, so that they can be changed.
    #[inline(always)]
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        // SAFETY: owned by this value.
        unsafe { *field::refcnt(self.mbuf) == 1 && *field::nb_segs(self.mbuf) == 1 }
    }

    /// Returns true if all octets are in one segment.
    #[inline(always)]
    pub(crate) fn is_whole(&self) -> bool {
        // SAFETY: owned by this value.
        unsafe { *field::nb_segs(self.mbuf) == 1 }
    }

    /// Returns the octets for changes, or none if the frame is shared or in several segments.
    #[inline(always)]
    #[must_use]
    pub fn octets_mut(&mut self) -> Option<&mut [u8]> {
        // SAFETY: owned by this value, which is borrowed, and by no other (checked).
        self.is_exclusive()
            .then(|| unsafe { first_segment(self.mbuf) })
    }

    /// Returns the octets of the first segment for changes, or none if the frame is shared. Further segments are allowed.
    #[inline(always)]
    #[must_use]
    pub fn front_mut(&mut self) -> Option<&mut [u8]> {
        // SAFETY: owned by this value, which is borrowed; all handles of a shared frame share its first segment (checked).
        unsafe { (*field::refcnt(self.mbuf) == 1).then(|| first_segment(self.mbuf)) }
    }

    /// Inserts a VLAN tag after the addresses (IEEE 802.1Q, section 9.3), both numbers with their values on the wire. Returns false
    /// and changes nothing if the frame is shared, shorter than two addresses, or has no headroom.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "the four octets in front are within the buffer (checked)"
    )]
    #[inline]
    #[must_use]
    pub fn push_tag(&mut self, tpid: u16, tci: u16) -> bool {
        // SAFETY: not shared (checked); the four octets in front are within the buffer (checked).
        let octets = unsafe {
            let mbuf = self.mbuf;
            let space =
                *field::data_off(mbuf) >= TAG_LENGTH && *field::data_len(mbuf) >= ADDRESSES_LENGTH;
            if *field::refcnt(mbuf) != 1 || !space {
                return false;
            }
            *field::data_off(mbuf) -= TAG_LENGTH;
            *field::data_len(mbuf) += TAG_LENGTH;
            *field::pkt_len(mbuf) += u32::from(TAG_LENGTH);
            first_segment(mbuf)
        };
        octets.copy_within(TAG..TAG + ADDRESSES, 0);
        write_tag(octets, tpid, tci)
    }

    /// Removes the four octets of a VLAN tag after the addresses. Returns false and changes nothing if the frame is shared or too
    /// short.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "the frame has the four octets (checked)"
    )]
    #[inline]
    #[must_use]
    pub fn pop_tag(&mut self) -> bool {
        let Some(octets) = self.front_mut() else {
            return false;
        };
        if octets.len() < ADDRESSES + TAG {
            return false;
        }
        octets.copy_within(..ADDRESSES, TAG);
        // SAFETY: the frame has four octets more than it keeps (checked).
        unsafe {
            *field::data_off(self.mbuf) += TAG_LENGTH;
            *field::data_len(self.mbuf) -= TAG_LENGTH;
            *field::pkt_len(self.mbuf) -= u32::from(TAG_LENGTH);
        }
        true
    }

    /// Overwrites the four octets after the addresses with a VLAN tag. Returns false and changes nothing if the frame is shared or
    /// too short.
    #[inline]
    #[must_use]
    pub fn replace_tag(&mut self, tpid: u16, tci: u16) -> bool {
        match self.front_mut() {
            Some(octets) => write_tag(octets, tpid, tci),
            None => false,
        }
    }

    /// Adds octets in front of the frame, whose contents are arbitrary. Returns false and changes nothing if the frame is shared, in
    /// several segments, or has too little headroom.
    #[inline]
    #[must_use]
    pub fn grow_front(&mut self, octets: u16) -> bool {
        if !self.is_exclusive() {
            return false;
        }
        // SAFETY: owned by this value; the octets in front are within the buffer, and the length fits (checked).
        unsafe {
            let mbuf = self.mbuf;
            let start = (*field::data_off(mbuf)).checked_sub(octets);
            let length = (*field::data_len(mbuf)).checked_add(octets);
            let (Some(start), Some(length)) = (start, length) else {
                return false;
            };
            *field::data_off(mbuf) = start;
            *field::data_len(mbuf) = length;
            *field::pkt_len(mbuf) = u32::from(length);
        }
        true
    }

    /// Removes octets at the front of the frame. Returns false and changes nothing if the frame is shared, in several segments, or shorter.
    #[inline]
    #[must_use]
    pub fn shrink_front(&mut self, octets: u16) -> bool {
        if !self.is_exclusive() {
            return false;
        }
        // SAFETY: owned by this value; the frame has these octets (checked).
        unsafe {
            let mbuf = self.mbuf;
            let Some(length) = (*field::data_len(mbuf)).checked_sub(octets) else {
                return false;
            };
            *field::data_off(mbuf) = (*field::data_off(mbuf)).wrapping_add(octets);
            *field::data_len(mbuf) = length;
            *field::pkt_len(mbuf) = u32::from(length);
        }
        true
    }

    /// Removes octets at the end of the frame, which keeps the first `length`. Returns false and changes nothing if the frame is shared, in
    /// several segments, or shorter.
    #[inline]
    #[must_use]
    pub fn truncate(&mut self, length: u16) -> bool {
        if !self.is_exclusive() {
            return false;
        }
        // SAFETY: owned by this value; the frame has these octets (checked).
        unsafe {
            let mbuf = self.mbuf;
            if length > *field::data_len(mbuf) {
                return false;
            }
            *field::data_len(mbuf) = length;
            *field::pkt_len(mbuf) = u32::from(length);
        }
        true
    }

    /// Creates a frame of these octets. `None` if the pool is empty or its buffers are too small.
    #[inline]
    #[must_use]
    pub fn new(_eal: &'eal Eal, pool: &Mempool, octets: &[u8]) -> Option<Self> {
        let mut frame = Self::empty(pool, u16::try_from(octets.len()).ok()?)?;
        // SAFETY: owned by this value.
        unsafe { *field::hash_fdir_hi(frame.mbuf) = 0 };
        frame.octets_mut()?.copy_from_slice(octets);
        Some(frame)
    }

    /// Takes ownership of a buffer.
    pub(crate) const fn of_buffer(mbuf: *mut sys::rte_mbuf) -> Self {
        Self {
            mbuf,
            _eal: PhantomData,
        }
    }

    /// Releases ownership of the buffer.
    pub(crate) fn into_buffer(self) -> *mut sys::rte_mbuf {
        let mbuf = self.mbuf;
        std::mem::forget(self);
        mbuf
    }

    /// Creates a frame of `length` octets, whose contents are arbitrary.
    #[inline]
    pub(crate) fn empty(pool: &Mempool, length: u16) -> Option<Self> {
        let mut mbuf = ptr::null_mut();
        if !allocate(pool, slice::from_mut(&mut mbuf)) {
            return None;
        }
        // From here on, the drop returns the buffer to its pool.
        let frame = Self {
            mbuf,
            _eal: PhantomData,
        };
        let mut blank = Blank {
            mbuf,
            _burst: PhantomData,
        };
        blank.octets(length)?;
        Some(frame)
    }

    /// Creates a frame of `length` octets, whose contents are arbitrary, with the class of this frame. `None` if the pool is empty or its buffers
    /// are too small.
    #[inline]
    #[must_use]
    pub fn sibling(&self, pool: &Mempool, length: u16) -> Option<Self> {
        let sibling = Self::empty(pool, length)?;
        // SAFETY: both are owned by their values; any bits are a number.
        unsafe { *field::hash_fdir_hi(sibling.mbuf) = *field::hash_fdir_hi(self.mbuf) };
        Some(sibling)
    }

    /// Copies the frame to a new buffer, in one segment. `None` if the pool is empty or its buffers are too small. A frame with
    /// requested segmentation is copied to as many buffers as needed.
    #[inline]
    #[must_use]
    pub fn copy(&self, pool: &Mempool) -> Option<Self> {
        if self.segment_size().is_some() {
            return self.copy_tso_frame(pool);
        }
        let mut copy = self.sibling(pool, u16::try_from(self.length()).ok()?)?;
        let mut rest = copy.octets_mut()?;
        let mut segment = self.mbuf;
        while !segment.is_null() {
            // SAFETY: the segments of an owned buffer are a list that ends with null; they are only read.
            let octets: &[u8] = unsafe { first_segment(segment) };
            let (place, behind) = rest.split_at_mut_checked(octets.len())?;
            place.copy_from_slice(octets);
            rest = behind;
            // SAFETY: as above.
            segment = unsafe { *field::next(segment) };
        }
        Some(copy)
    }

    /// Creates a second handle on the same octets, to send one frame to several ports. From then on the octets cannot be
    /// changed through either handle.
    #[inline]
    #[must_use]
    pub fn share(&self) -> Self {
        let mut segment = self.mbuf;
        while !segment.is_null() {
            // SAFETY: the segments of an owned buffer are a list that ends with null; the count is
            // changed atomically, as rte_mbuf_refcnt_update does.
            unsafe {
                AtomicU16::from_ptr(field::refcnt(segment)).fetch_add(1, Ordering::Relaxed);
                segment = *field::next(segment);
            }
        }
        Self {
            mbuf: self.mbuf,
            _eal: PhantomData,
        }
    }
}

impl Drop for Mbuf<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: owned by this value.
        unsafe { sys::qw_free_bulk(&raw mut self.mbuf, 1) };
    }
}
