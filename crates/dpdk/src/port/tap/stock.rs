// SPDX-License-Identifier: Apache-2.0
//! Packet buffers that wait for frames of the kernel.
//!
//! A read has to have space for the longest frame, which is known only afterwards: a buffer of the port's pool, which holds every frame
//! without segmentation, and a large buffer for the rest of 64 KiB of TCP data. The large one stays for the next read until a frame needs it.

use std::io::IoSliceMut;
use std::ptr;

use nix::errno::Errno;
use quietwire_packet::ETHERNET_HEADER_LENGTH;
use quietwire_vhost::ring::header::{HEADER_LEN, RawHeader};

use super::file::TapFile;
use crate::BURST_MAX;
use crate::burst::{self, Mbuf, space};
use crate::eal::Eal;
use crate::error::Error;
use crate::mempool::Mempool;
use crate::port::offload::LARGE_SPACE;
use crate::sys::{self, field};

/// Large buffers for each queue, and at most: a burst of them, and more in rings between threads.
const LARGE_A_QUEUE: u32 = 96;
const LARGE_MAX: u32 = 384;

/// Creates the pool of large buffers of a port.
pub(super) fn large_pool(eal: &Eal, queues: u16) -> Result<Mempool, Error> {
    let count = u32::from(queues).saturating_mul(LARGE_A_QUEUE);
    let name = format!("tap{}-large", eal.next_device());
    Mempool::uncached(eal, &name, count.min(LARGE_MAX), LARGE_SPACE)
}

/// Buffers of one queue.
#[derive(Debug)]
pub(super) struct Stock {
    pool: Mempool,
    large_pool: Mempool,
    /// Empty buffers: the first `count`.
    small: [*mut sys::rte_mbuf; BURST_MAX],
    count: usize,
    /// An empty buffer, or null.
    large: *mut sys::rte_mbuf,
    header: [u8; HEADER_LEN],
}

// SAFETY: the buffers are owned, and buffers may be freed by another thread than took them.
unsafe impl Send for Stock {}

/// A frame of the kernel.
#[derive(Debug)]
pub(super) struct Arrival<'pool> {
    pub(super) header: RawHeader,
    pub(super) frame: Mbuf<'pool>,
}

/// Reason why a read gave no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoFrame {
    /// There is none, or the interface is gone.
    Nothing(Errno),
    /// The kernel wrote less than an Ethernet header.
    Malformed,
    /// The frame is longer than all buffers.
    TooLong,
}

impl Stock {
    pub(super) fn new(pool: &Mempool, large_pool: &Mempool) -> Self {
        Self {
            pool: pool.clone(),
            large_pool: large_pool.clone(),
            small: [ptr::null_mut(); BURST_MAX],
            count: 0,
            large: ptr::null_mut(),
            header: [0; HEADER_LEN],
        }
    }

    #[cfg(test)]
    pub(super) fn large_pool(&self) -> &Mempool {
        &self.large_pool
    }

    /// Takes buffers from the pools if there are none for the next read. Returns false if a pool has none.
    #[inline(always)]
    #[must_use]
    pub(super) fn refill(&mut self) -> bool {
        (self.count > 0 && !self.large.is_null()) || self.take()
    }

    fn take(&mut self) -> bool {
        let mut wanted = BURST_MAX / 2;
        while self.count == 0 && wanted > 0 {
            let places = self.small.get_mut(..wanted).unwrap_or_default();
            if burst::allocate(&self.pool, places) {
                self.count = wanted;
            }
            wanted /= 2;
        }
        if self.large.is_null()
            && let Some(buffer) = Mbuf::empty(&self.large_pool, 0)
        {
            self.large = buffer.into_buffer();
        }
        self.count > 0 && !self.large.is_null()
    }

    /// Reads a frame, after [`Self::refill`].
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the length of a frame is checked, and a buffer has at most 65,535 octets"
    )]
    #[inline]
    pub(super) fn read(&mut self, file: &TapFile) -> Result<Arrival<'_>, NoFrame> {
        let last = self.count.wrapping_sub(1);
        let (Some(&small), large) = (self.small.get(last), self.large) else {
            return Err(NoFrame::Nothing(Errno::ENOBUFS));
        };
        if large.is_null() {
            return Err(NoFrame::Nothing(Errno::ENOBUFS));
        }
        // SAFETY: both buffers are owned and not shared.
        let (front, back) = unsafe { (space(small), space(large)) };
        let (front_space, back_space) = (front.len(), back.len());
        let mut parts = [
            IoSliceMut::new(&mut self.header),
            IoSliceMut::new(front),
            IoSliceMut::new(back),
        ];
        let octets = file.read(&mut parts).map_err(NoFrame::Nothing)?;
        let length = octets.saturating_sub(HEADER_LEN);
        if length < ETHERNET_HEADER_LENGTH {
            return Err(NoFrame::Malformed);
        }
        if length >= front_space.saturating_add(back_space) {
            return Err(NoFrame::TooLong);
        }
        self.count = last;
        let front_length = length.min(front_space);
        // SAFETY: the buffers are owned and not shared, and have space for these lengths (checked). They are empty: their other fields are
        // those of a frame in one segment.
        unsafe {
            *field::data_len(small) = front_length as u16;
            *field::pkt_len(small) = length as u32;
            if length > front_length {
                *field::data_len(large) = length.saturating_sub(front_length) as u16;
                *field::next(small) = large;
                *field::nb_segs(small) = 2;
                self.large = ptr::null_mut();
            }
        }
        Ok(Arrival {
            header: RawHeader::new(&self.header),
            frame: Mbuf::of_buffer(small),
        })
    }
}

impl Drop for Stock {
    #[expect(clippy::cast_possible_truncation, reason = "at most BURST_MAX buffers")]
    fn drop(&mut self) {
        let large = u32::from(!self.large.is_null());
        // SAFETY: the buffers are owned, and forgotten afterwards.
        unsafe {
            sys::qw_free_bulk(self.small.as_mut_ptr(), self.count as u32);
            sys::qw_free_bulk(&raw mut self.large, large);
        }
    }
}
