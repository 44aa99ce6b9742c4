// SPDX-License-Identifier: Apache-2.0
//! Offloads in the header before a frame: checksums and TCP segmentation (virtio 1.2, section 5.1.6). Guests of vhost-user ports and the
//! kernel (`struct virtio_net_hdr`, linux/virtio_net.h) use the same header.

use quietwire_packet::{TCP_CHECKSUM_OFFSET, UDP_CHECKSUM_OFFSET};
use quietwire_vhost::ring::header::{
    FLAG_NEEDS_CSUM, GSO_ECN, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, OffloadHeader, RawHeader,
};

use super::checksum;
use crate::burst::Mbuf;
use crate::port::transfer::Outgoing;
use crate::sys;
use crate::sys::TO_CUT;

/// Longest frame with segmentation, octets: 64 KiB of IP after an Ethernet header and tags.
pub(super) const SEGMENTED_MAX: u32 = 65_536 + 128;
/// Octets after which a receive call of a port that copies long frames returns, so that they are sent while they are in the CPU's cache.
pub(super) const RECEIVED_OCTETS_MAX: u64 = 256 << 10;
/// Octets of an Ethernet header.
const ETHERNET: usize = 14;
/// Offset of the flags in the header of TCP (RFC 9293, section 3.1).
const TCP_FLAGS: usize = 13;
/// TCP's flag CWR (RFC 3168, section 6.1.2).
const CWR: u8 = 0x80;

/// Kinds of segmentation that the sender of a frame may request, as bits.
const TSO: u16 = 1;
const USO: u16 = 2;
const ECN: u16 = 4;

/// Offload of one received frame. Like the virtio header, it is two words, which stay in registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offload {
    /// The field of `num_buffers`, which is unused here, stores the kinds of segmentation that the sender may request.
    header: RawHeader,
}

impl Offload {
    /// Returns the offload of a frame from a guest, which may request TCP segmentation if `has_tso`.
    #[inline(always)]
    pub(super) fn new(header: RawHeader, has_tso: bool) -> Self {
        let kinds = if has_tso { TSO } else { 0 };
        let header = header.with_num_buffers(kinds);
        Self { header }
    }

    /// Returns the offload of a frame from the kernel, which may also request UDP segmentation (`UDP_SEGMENT`, udp(7)), and TCP
    /// segmentation with bits of explicit congestion notification.
    #[inline(always)]
    pub(super) fn of_kernel(header: RawHeader) -> Self {
        let header = header.with_num_buffers(TSO | USO | ECN);
        Self { header }
    }

    fn allows_kinds(self, kinds: u16) -> bool {
        self.header.num_buffers() & kinds == kinds
    }

    /// Returns true if the frame is complete.
    #[inline(always)]
    pub(super) fn is_none(self) -> bool {
        self.header.is_plain()
    }

    /// Returns the longest frame allowed with this offload. `limit` is that of frames without segmentation, octets without FCS.
    pub(super) fn length_max(self, limit: u32) -> u32 {
        if self.allows_kinds(TSO) && self.header.is_segmented() {
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
            let ecn = if header.gso_type & GSO_ECN == 0 {
                0
            } else {
                ECN
            };
            let (is_tcp, kinds) = match header.gso_type & !GSO_ECN {
                GSO_TCPV4 | GSO_TCPV6 => (true, TSO | ecn),
                GSO_UDP_L4 => (false, USO | ecn),
                _ => return false,
            };
            if !self.allows_kinds(kinds) || header.gso_size == 0 {
                return false;
            }
            // TCP data may be cut anywhere, so a short frame is a segment. Datagrams keep their boundaries.
            if frame.length() > limit || !is_tcp {
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
    let octets = frame.octets_mut().filter(|_| start >= ETHERNET);
    octets.is_some_and(|octets| checksum::complete(octets, start, usize::from(header.csum_offset)))
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
    let (mut l2, mut l3, mut l4, mut size, mut is_ipv4, mut is_tcp) = (0, 0, 0, 0, 0, 0);
    // SAFETY: the frame is owned by a burst that is borrowed; the output variables outlive the call.
    let is_to_segment = unsafe {
        sys::qw_is_to_segment(
            frame.buffer(),
            &raw mut l2,
            &raw mut l3,
            &raw mut l4,
            &raw mut size,
            &raw mut is_ipv4,
            &raw mut is_tcp,
        )
    };
    if is_to_segment == 0 {
        return RawHeader::PLAIN;
    }
    let gso_type = match (is_tcp, is_ipv4) {
        (0, _) => GSO_UDP_L4,
        (_, 0) => GSO_TCPV6 | ecn(frame, usize::from(l2 + l3)),
        _ => GSO_TCPV4 | ecn(frame, usize::from(l2 + l3)),
    };
    RawHeader::from(OffloadHeader {
        flags: FLAG_NEEDS_CSUM,
        gso_type,
        hdr_len: l2 + l3 + l4,
        gso_size: size,
        csum_start: l2 + l3,
        csum_offset: if is_tcp == 0 {
            UDP_CHECKSUM_OFFSET as u16
        } else {
            TCP_CHECKSUM_OFFSET as u16
        },
        num_buffers: 0,
    })
}

/// Returns the bit for a frame whose first segment only has CWR. TCP begins at an offset of the first buffer.
fn ecn(frame: &Outgoing<'_>, transport: usize) -> u8 {
    let mut segments = frame.segments();
    let flags = segments
        .next()
        .and_then(|octets| octets.get(transport + TCP_FLAGS));
    if flags.is_some_and(|flags| flags & CWR != 0) {
        GSO_ECN
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use proptest::prelude::*;
    use quietwire_vhost::ring::header::{GSO_NONE, GSO_UDP, HEADER_LEN};

    use super::*;
    use crate::eal::Eal;
    use crate::mempool::Mempool;
    use crate::testing;

    const LIMIT: u32 = 1514;

    fn pool(eal: &Eal) -> Mempool {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Mempool::new(eal, &format!("offload-{number}"), 511, 4096).unwrap()
    }

    /// Performs an offload on a frame of this length. Returns whether it succeeded, and the segment size that it recorded.
    fn outcome(offload: Offload, length: u16) -> (bool, Option<u16>) {
        let eal = testing::eal();
        let pool = pool(&eal);
        let octets = vec![7; usize::from(length)];
        let mut frame = Mbuf::new(&eal, &pool, &octets).unwrap();
        let is_done = offload.complete(&mut frame, LIMIT);
        (is_done, frame.segment_size())
    }

    fn segmented(gso_type: u8, gso_size: u16) -> RawHeader {
        RawHeader::from(OffloadHeader {
            flags: FLAG_NEEDS_CSUM,
            gso_type,
            gso_size,
            csum_start: 34,
            csum_offset: TCP_CHECKSUM_OFFSET as u16,
            ..OffloadHeader::default()
        })
    }

    #[test]
    fn each_side_may_request_the_segmentation_that_is_its_own() {
        let (guest, kernel) = (
            |header| Offload::new(header, true),
            |header| Offload::of_kernel(header),
        );
        for (gso_type, of_guest, of_kernel) in [
            (GSO_TCPV4, true, true),
            (GSO_TCPV6, true, true),
            (GSO_TCPV4 | GSO_ECN, false, true),
            (GSO_UDP_L4, false, true),
            (GSO_UDP, false, false),
            (0x7f, false, false),
        ] {
            let header = segmented(gso_type, 1000);
            let size = |is_done: bool| (is_done, is_done.then_some(1000));
            assert_eq!(outcome(guest(header), 3000), size(of_guest), "{gso_type}");
            assert_eq!(outcome(kernel(header), 3000), size(of_kernel), "{gso_type}");
            assert_eq!(outcome(Offload::new(header, false), 3000), (false, None));
            assert_eq!(outcome(kernel(segmented(gso_type, 0)), 3000), (false, None));
        }
    }

    #[test]
    fn short_frames_of_tcp_are_segments_and_datagrams_keep_their_size() {
        let of = |gso_type, length| outcome(Offload::of_kernel(segmented(gso_type, 500)), length);
        assert_eq!(of(GSO_TCPV4, 1514), (true, None));
        assert_eq!(of(GSO_TCPV4, 1515), (true, Some(500)));
        assert_eq!(of(GSO_UDP_L4, 600), (true, Some(500)));
        let offload = Offload::of_kernel(segmented(GSO_UDP_L4, 500));
        assert_eq!(offload.length_max(LIMIT), SEGMENTED_MAX);
        let plain = Offload::of_kernel(segmented(GSO_NONE, 0));
        assert_eq!(plain.length_max(LIMIT), LIMIT);
    }

    proptest! {
        #[test]
        fn any_header_changes_at_most_a_checksum_within_the_frame(
            header in any::<[u8; HEADER_LEN]>(),
            start in 0u16..100,
            offset in 0u16..40,
            is_near in any::<bool>(),
            octets in prop::collection::vec(any::<u8>(), 14..100),
        ) {
            let mut fields = RawHeader::new(&header).parse();
            if is_near {
                (fields.csum_start, fields.csum_offset) = (start, offset);
            }
            let eal = testing::eal();
            let pool = pool(&eal);
            let mut frame = Mbuf::new(&eal, &pool, &octets).unwrap();
            let is_done = Offload::of_kernel(RawHeader::from(fields)).complete(&mut frame, LIMIT);
            prop_assert_eq!(frame.octets().len(), octets.len());
            let changed = octets.iter().zip(frame.octets()).filter(|(a, b)| a != b).count();
            let changed_max = if is_done { 4 } else { 0 };
            prop_assert!(changed <= changed_max);
            prop_assert!(frame.segment_size().is_none() || fields.gso_type & !GSO_ECN == GSO_UDP_L4);
        }
    }
}
