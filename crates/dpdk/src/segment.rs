// SPDX-License-Identifier: Apache-2.0
//! Frames with TCP data of up to 64 KiB, in many buffers, that their sender wants cut into segments.

use crate::burst::{Mbuf, first_segment};
use crate::mempool::Mempool;
use crate::sys::{self, field};

/// Lengths of the headers of a frame that is handed on uncut, octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderLengths {
    /// Ethernet with its tags.
    pub ethernet: usize,
    /// IP with what belongs to it.
    pub network: usize,
    /// TCP with its options.
    pub transport: usize,
}

impl Mbuf<'_> {
    /// Octets of TCP data in each segment that the frame is to be cut into; none when its sender did not ask for that.
    #[inline]
    #[must_use]
    pub fn segment_size(&self) -> Option<u16> {
        // SAFETY: owned by this value; plain integers.
        unsafe {
            if *field::ol_flags(self.mbuf) & sys::UNCUT == 0 {
                return None;
            }
            Some(sys::qw_segment_size(self.mbuf)).filter(|size| *size > 0)
        }
    }

    /// Copies octets from a place of the whole frame on, whatever segments they are in; false when it has not so many.
    #[must_use]
    pub fn read_at(&self, mut at: usize, mut to: &mut [u8]) -> bool {
        let mut segment = self.mbuf;
        while !segment.is_null() && !to.is_empty() {
            // SAFETY: the segments of an owned buffer are a list that ends with null; they are only read.
            let octets: &[u8] = unsafe { first_segment(segment) };
            if let Some(from) = octets.get(at..) {
                let count = from.len().min(to.len());
                let (place, rest) = to.split_at_mut(count);
                place.copy_from_slice(from.get(..count).unwrap_or(&[]));
                to = rest;
            }
            at = at.saturating_sub(octets.len());
            // SAFETY: as above.
            segment = unsafe { *field::next(segment) };
        }
        to.is_empty()
    }

    /// Asks the receiver of the frame to cut it, as its own sender asked: a port whose peer accepts that, see
    /// [`crate::TxQueue::takes_uncut`]. `sum` is that of the pseudo header, with the length of all TCP data; it goes into TCP's
    /// checksum field, as virtio 1.2, section 5.1.6.2 asks. An error is the frame unchanged: its sender did not ask, it is
    /// shared, or its headers are not whole in the first buffer.
    ///
    /// # Errors
    /// The frame itself.
    pub fn request_segments(
        mut self,
        lengths: HeaderLengths,
        is_ipv4: bool,
        sum: u16,
    ) -> Result<Self, Self> {
        let HeaderLengths {
            ethernet,
            network,
            transport,
        } = lengths;
        // Bits of l2_len, l3_len and l4_len in struct rte_mbuf.
        let fits = ethernet < 1 << 7 && network < 1 << 9 && (20..1 << 8).contains(&transport);
        let Some(size) = self.segment_size().filter(|_| fits) else {
            return Err(self);
        };
        let (count, at) = (ethernet + network + transport, ethernet + network + 16);
        let Some(field) = self
            .front_mut()
            .filter(|front| front.len() >= count)
            .and_then(|front| front.get_mut(at..at + 2))
        else {
            return Err(self);
        };
        field.copy_from_slice(&sum.to_be_bytes());
        // SAFETY: owned by this value, and shared with nobody (checked: front_mut).
        unsafe {
            sys::qw_request_segments(
                self.mbuf,
                ethernet as u16,
                network as u16,
                transport as u16,
                size,
                i32::from(is_ipv4),
            );
        }
        Ok(self)
    }

    /// Notes that the sender of the frame wants its TCP data cut into segments of so many octets.
    pub(crate) fn set_segment_size(&mut self, size: u16) {
        // SAFETY: owned by this value.
        unsafe { sys::qw_set_segment_size(self.mbuf, size) };
    }

    /// The same octets, with the same request, in as many buffers of the pool as they need.
    pub(crate) fn copy_uncut(&self, pool: &Mempool) -> Option<Self> {
        // SAFETY: the frame is owned and only read; the pool is alive.
        let copy = unsafe { sys::rte_pktmbuf_copy(self.mbuf, pool.as_ptr(), 0, u32::MAX) };
        (!copy.is_null()).then(|| Self::of_buffer(copy))
    }
}
