// SPDX-License-Identifier: Apache-2.0
//! Frames with up to 64 KiB of TCP data in several buffers, whose sender requested segmentation.

use quietwire_packet::{TCP_HEADER_MIN, UDP_HEADER_LENGTH};

use crate::burst::{Mbuf, first_segment};
use crate::mempool::Mempool;
use crate::sys::{self, field};

/// Kind of a frame whose data must be segmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeKind {
    /// True for IPv4, false for IPv6.
    pub is_ipv4: bool,
    /// True for TCP, false for UDP datagrams of one size.
    pub is_tcp: bool,
    /// True if TCP's sender signals that it has reduced its congestion window (CWR; RFC 3168, section 6.1.2), which is for the first segment
    /// only.
    pub has_cwr: bool,
}

/// Most segments of a [`MergedFrame`]: every port that accepts large frames can send this many buffers at once.
pub const MERGED_MAX: u16 = 44;

/// A frame in one buffer, which no other frame shares.
#[derive(Debug)]
pub struct ExclusiveFrame<'eal>(Mbuf<'eal>);

/// A frame of several TCP segments or UDP datagrams, each in its own buffer.
#[derive(Debug)]
pub struct MergedFrame<'eal> {
    frame: Mbuf<'eal>,
    /// Last buffer of the frame.
    last: *mut sys::rte_mbuf,
}

/// Header lengths of a frame that is passed on without segmentation, octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderLengths {
    /// Ethernet header with tags.
    pub ethernet: usize,
    /// IP header with options or extension headers.
    pub network: usize,
    /// TCP header with options, or UDP header.
    pub transport: usize,
}

impl HeaderLengths {
    /// Returns true if they fit into the bits of l2_len, l3_len and l4_len in struct rte_mbuf.
    pub(crate) const fn fit(self) -> bool {
        self.ethernet < 1 << 7 && self.network < 1 << 9 && self.transport < 1 << 8
    }
}

impl<'eal> ExclusiveFrame<'eal> {
    /// Returns the octets of the frame without FCS.
    #[must_use]
    pub fn octets(&self) -> &[u8] {
        self.0.octets()
    }

    /// Returns true if a network card has verified the checksum of TCP or UDP ([`Mbuf::has_verified_checksum`]).
    #[must_use]
    pub fn has_verified_checksum(&self) -> bool {
        self.0.has_verified_checksum()
    }

    /// Returns the frame as one that may be shared.
    #[must_use]
    pub fn into_frame(self) -> Mbuf<'eal> {
        self.0
    }
}

impl<'eal> MergedFrame<'eal> {
    /// Begins with a segment.
    #[must_use]
    pub fn new(first: ExclusiveFrame<'eal>) -> Self {
        let frame = first.into_frame();
        Self {
            last: frame.mbuf,
            frame,
        }
    }

    /// Appends the octets of a segment behind its first `headers` octets, at most all of them. There are at most [`MERGED_MAX`] segments.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "lengths and offsets in a buffer have 16 bits, and a merged frame has at most MERGED_MAX of them"
    )]
    pub fn append(&mut self, next: ExclusiveFrame<'eal>, headers: usize) {
        let mbuf = next.into_frame().into_buffer();
        // SAFETY: both buffers are owned by this value and not shared (ExclusiveFrame). `last` is the last buffer of the frame. The
        // octets that are left out are within the buffer.
        unsafe {
            let headers = headers.min(usize::from(*field::data_len(mbuf))) as u16;
            *field::data_off(mbuf) += headers;
            *field::data_len(mbuf) -= headers;
            *field::next(self.last) = mbuf;
            *field::pkt_len(self.frame.mbuf) += u32::from(*field::data_len(mbuf));
            *field::nb_segs(self.frame.mbuf) += 1;
        }
        self.last = mbuf;
    }

    /// Returns the octets of the first segment for changes.
    #[must_use]
    pub fn front_mut(&mut self) -> Option<&mut [u8]> {
        self.frame.front_mut()
    }

    /// Returns the frame, which must be cut into segments of `size` octets of data.
    #[must_use]
    pub fn finish(mut self, size: u16) -> Mbuf<'eal> {
        self.frame.set_segment_size(size);
        self.frame
    }

    /// Returns the first segment as it was if there is no other.
    #[must_use]
    pub fn into_frame(self) -> Mbuf<'eal> {
        self.frame
    }
}

impl<'eal> Mbuf<'eal> {
    /// Returns the frame as one that is not shared.
    ///
    /// # Errors
    /// The frame itself if it is shared, in several buffers, or to be segmented.
    pub fn into_exclusive(self) -> Result<ExclusiveFrame<'eal>, Self> {
        if self.is_exclusive() && self.segment_size().is_none() {
            Ok(ExclusiveFrame(self))
        } else {
            Err(self)
        }
    }
}

impl Mbuf<'_> {
    /// Returns the requested segment size, octets of TCP or UDP data; none without a request of the sender.
    #[inline]
    #[must_use]
    pub fn segment_size(&self) -> Option<u16> {
        // SAFETY: owned by this value; plain integers.
        unsafe {
            if *field::ol_flags(self.mbuf) & sys::TSO == 0 {
                return None;
            }
            Some(sys::qw_segment_size(self.mbuf)).filter(|size| *size > 0)
        }
    }

    /// Copies octets from an offset of the frame on, across segments. Returns false if the frame is too short.
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

    /// Passes the sender's request for segmentation on to the receiver of the frame, which must accept it (see
    /// [`crate::TxQueue::accepts_whole`]). `sum` is the sum of the pseudo header with the length of all data. It is written to
    /// the checksum field of TCP or UDP (virtio 1.2, section 5.1.6.2).
    ///
    /// # Errors
    /// The unchanged frame, if its sender made no request, it is shared, or its headers are not complete in the first buffer.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "lengths that fit into the bits of struct rte_mbuf"
    )]
    pub fn request_segments(
        mut self,
        lengths: HeaderLengths,
        kind: LargeKind,
        sum: u16,
    ) -> Result<Self, Self> {
        let shortest = if kind.is_tcp {
            TCP_HEADER_MIN
        } else {
            UDP_HEADER_LENGTH
        };
        let HeaderLengths {
            ethernet,
            network,
            transport,
        } = lengths;
        let fits = lengths.fit() && transport >= shortest;
        let Some(size) = self.segment_size().filter(|_| fits) else {
            return Err(self);
        };
        let (count, at) = (
            ethernet + network + transport,
            ethernet + network + kind.checksum_offset(),
        );
        let Some(field) = self
            .front_mut()
            .filter(|front| front.len() >= count)
            .and_then(|front| front.get_mut(at..at + 2))
        else {
            return Err(self);
        };
        field.copy_from_slice(&sum.to_be_bytes());
        // SAFETY: owned by this value, and not shared (checked: front_mut).
        unsafe {
            sys::qw_request_segments(
                self.mbuf,
                ethernet as u16,
                network as u16,
                transport as u16,
                size,
                i32::from(kind.is_ipv4),
                i32::from(kind.is_tcp),
            );
        }
        Ok(self)
    }

    /// Returns true if the frame has a request of [`Self::request_segments`].
    pub(crate) fn has_segment_request(&self) -> bool {
        // SAFETY: owned by this value; plain integers.
        unsafe { *field::ol_flags(self.mbuf) & sys::TO_CUT != 0 }
    }

    /// Records the sender's request to cut TCP or UDP data into segments of `size` octets.
    pub(crate) fn set_segment_size(&mut self, size: u16) {
        // SAFETY: owned by this value.
        unsafe { sys::qw_set_segment_size(self.mbuf, size) };
    }

    /// Returns true if a buffer of the frame has space for more than `data_room` octets.
    pub(crate) fn has_larger_buffer(&self, data_room: u16) -> bool {
        let usual = u32::from(data_room) + sys::RTE_PKTMBUF_HEADROOM;
        let mut segment = self.mbuf;
        while !segment.is_null() {
            // SAFETY: the segments of an owned buffer are a list that ends with null; they are only read.
            unsafe {
                if u32::from(*field::buf_len(segment)) > usual {
                    return true;
                }
                segment = *field::next(segment);
            }
        }
        false
    }

    /// Copies the frame with its request to as many buffers of the pool as needed.
    pub(crate) fn copy_tso_frame(&self, pool: &Mempool) -> Option<Self> {
        // SAFETY: the frame is owned and only read; the pool is alive.
        let copy = unsafe { sys::rte_pktmbuf_copy(self.mbuf, pool.as_ptr(), 0, u32::MAX) };
        (!copy.is_null()).then(|| Self::of_buffer(copy))
    }
}
