// SPDX-License-Identifier: Apache-2.0
//! Frames with TCP data of up to 64 KiB, in many buffers, that their sender wants cut into segments.

use crate::burst::{Mbuf, first_segment};
use crate::mempool::Mempool;
use crate::sys;

/// rte_mbuf_core.h, RTE_MBUF_F_RX_LRO: what a driver sets beside the size of segments; a macro that bindgen cannot read.
pub(crate) const UNCUT: u64 = 1 << 16;

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
            if (*self.mbuf).ol_flags & UNCUT == 0 {
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
            segment = unsafe { (*segment).next };
        }
        to.is_empty()
    }

    /// Asks whoever gets the frame to cut it, as its own sender asked: a port whose peer takes that, see
    /// [`crate::TxQueue::takes_uncut`]. `sum` is that of the pseudo header, with the length of all TCP data, which TCP's
    /// checksum field holds then. An error is the frame unchanged: nobody asked, it is shared, a length is none that headers
    /// have, or the pool is empty.
    ///
    /// # Errors
    /// The frame itself.
    pub fn request_segments(
        mut self,
        pool: &Mempool,
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
        // The headers but for their last octet get a buffer of their own. To what is in one buffer, the vhost library gives
        // the sum that network cards want (rte_net_intel_cksum_prepare), without the length: a guest that goes on with the
        // frame would send wrong checksums.
        let count = ethernet + network + transport - 1;
        let at = ethernet + network + 16;
        let Some(mut head) = Self::empty(pool, count as u16) else {
            return Err(self);
        };
        let (Some(front), Some(octets)) = (
            self.front_mut().and_then(|front| front.get(..count)),
            head.octets_mut(),
        ) else {
            return Err(self);
        };
        octets.copy_from_slice(front);
        if let Some(place) = octets.get_mut(at..at + 2) {
            place.copy_from_slice(&sum.to_be_bytes());
        }
        let (first, rest) = (head.mbuf, self.mbuf);
        std::mem::forget(self);
        // SAFETY: both are owned, and shared with nobody (checked: front_mut). `rest` has `count` octets in its first segment
        // (checked: front), which `head` has now, and belongs to `head` from here on.
        unsafe {
            (*rest).data_off += count as u16;
            (*rest).data_len -= count as u16;
            (*first).pkt_len = (*rest).pkt_len;
            (*first).nb_segs = (*rest).nb_segs + 1;
            (*first).next = rest;
            (*rest).nb_segs = 1;
            sys::qw_request_segments(
                first,
                ethernet as u16,
                network as u16,
                transport as u16,
                size,
                i32::from(is_ipv4),
            );
        }
        Ok(head)
    }

    /// The same octets, with the same request, in as many buffers of the pool as they need.
    pub(crate) fn copy_uncut(&self, pool: &Mempool) -> Option<Self> {
        // SAFETY: the frame is owned and only read; the pool is alive.
        let copy = unsafe { sys::rte_pktmbuf_copy(self.mbuf, pool.as_ptr(), 0, u32::MAX) };
        (!copy.is_null()).then(|| Self::of_buffer(copy))
    }
}
