// SPDX-License-Identifier: Apache-2.0
//! Offloads in the header before a frame: checksums and TCP segmentation (virtio 1.2, section 5.1.6). Guests of vhost-user ports and the
//! kernel (`struct virtio_net_hdr`, linux/virtio_net.h) use the same header.

use quietwire_packet::checksum;
use quietwire_vhost::ring::header::{
    FLAG_NEEDS_CSUM, GSO_TCPV4, GSO_TCPV6, OffloadHeader, RawHeader,
};

use crate::burst::Mbuf;
use crate::port::transfer::Outgoing;
use crate::sys;
use crate::sys::TO_CUT;

/// Longest frame with segmentation, octets: 64 KiB of IP after an Ethernet header and tags.
const SEGMENTED_MAX: u32 = 65_536 + 128;
/// Octets of an Ethernet header.
const ETHERNET: usize = 14;
/// Offset of the checksum in headers of TCP and UDP (RFC 9293, section 3.1; RFC 768).
const TCP_CHECKSUM: u16 = 16;
const UDP_CHECKSUM: u16 = 6;

/// Offload of one received frame. Like the virtio header, it is two words, which stay in registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offload {
    /// The field of `num_buffers`, which is unused here, stores whether segmentation was negotiated.
    header: RawHeader,
}

impl Offload {
    #[inline(always)]
    pub(super) fn new(header: RawHeader, has_tso: bool) -> Self {
        let header = header.with_num_buffers(u16::from(has_tso));
        Self { header }
    }

    fn has_tso(self) -> bool {
        self.header.num_buffers() != 0
    }

    /// Returns true if the frame is complete.
    #[inline(always)]
    pub(super) fn is_none(self) -> bool {
        self.header.is_plain()
    }

    /// Returns the longest frame allowed with this offload. `limit` is that of frames without segmentation, octets without FCS.
    pub(super) fn length_max(self, limit: u32) -> u32 {
        if self.has_tso() && self.header.is_segmented() {
            SEGMENTED_MAX
        } else {
            limit
        }
    }

    /// Performs the offload. Returns false if it is invalid or was not negotiated.
    #[cold]
    pub(super) fn complete(self, frame: &mut Mbuf<'_>, limit: u32) -> bool {
        let header = self.header.parse();
        if self.header.is_segmented() {
            let is_tcp = matches!(header.gso_type, GSO_TCPV4 | GSO_TCPV6);
            if !self.has_tso() || !is_tcp || header.gso_size == 0 {
                return false;
            }
            if frame.length() > limit {
                frame.set_segment_size(header.gso_size);
                return true;
            }
        }
        header.flags & FLAG_NEEDS_CSUM == 0 || complete_checksum(&header, frame)
    }
}

/// Computes a checksum whose field has the sum of the pseudo header.
fn complete_checksum(header: &OffloadHeader, frame: &mut Mbuf<'_>) -> bool {
    let start = usize::from(header.csum_start);
    let Some(covered) = frame
        .octets_mut()
        .filter(|_| start >= ETHERNET)
        .and_then(|octets| octets.get_mut(start..))
    else {
        return false;
    };
    let sum = match checksum(covered) {
        // 0 means no checksum (RFC 768).
        0 if header.csum_offset == UDP_CHECKSUM => 0xffff,
        sum => sum,
    };
    let at = usize::from(header.csum_offset);
    match covered.get_mut(at..at + 2) {
        Some(field) => {
            field.copy_from_slice(&sum.to_be_bytes());
            true
        }
        None => false,
    }
}

/// Returns the virtio header of a transmitted frame.
#[inline(always)]
pub(super) fn header_of(frame: &Outgoing<'_>) -> RawHeader {
    if frame.flags() & TO_CUT == 0 {
        return RawHeader::PLAIN;
    }
    segmentation_of(frame)
}

#[cold]
fn segmentation_of(frame: &Outgoing<'_>) -> RawHeader {
    let (mut l2, mut l3, mut l4, mut size, mut is_ipv4) = (0, 0, 0, 0, 0);
    // SAFETY: the frame is owned by a burst that is borrowed; the output variables outlive the call.
    let is_to_segment = unsafe {
        sys::qw_is_to_segment(
            frame.buffer(),
            &raw mut l2,
            &raw mut l3,
            &raw mut l4,
            &raw mut size,
            &raw mut is_ipv4,
        )
    };
    if is_to_segment == 0 {
        return RawHeader::PLAIN;
    }
    RawHeader::from(OffloadHeader {
        flags: FLAG_NEEDS_CSUM,
        gso_type: if is_ipv4 == 0 { GSO_TCPV6 } else { GSO_TCPV4 },
        hdr_len: l2 + l3 + l4,
        gso_size: size,
        csum_start: l2 + l3,
        csum_offset: TCP_CHECKSUM,
        num_buffers: 0,
    })
}
