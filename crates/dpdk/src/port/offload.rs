// SPDX-License-Identifier: Apache-2.0
//! Offloads in the header before a frame: checksums and TCP segmentation (virtio 1.2, section 5.1.6). Guests of vhost-user ports and the
//! kernel (`struct virtio_net_hdr`, linux/virtio_net.h) use the same header.

use std::sync::atomic::{AtomicU32, Ordering};

use quietwire_packet::{LargeFrame, SEGMENT_HEADERS_MAX, TCP_CHECKSUM_OFFSET, UDP_CHECKSUM_OFFSET};
use quietwire_vhost::features::{
    NET_F_GUEST_CSUM, NET_F_GUEST_TSO4, NET_F_GUEST_TSO6, NET_F_GUEST_USO4, NET_F_GUEST_USO6,
};
use quietwire_vhost::ring::header::{
    FLAG_DATA_VALID, FLAG_NEEDS_CSUM, GSO_ECN, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, OffloadHeader,
    RawHeader,
};

use super::checksum;
use crate::burst::Mbuf;
use crate::port::transfer::Outgoing;
use crate::sys;
use crate::sys::TO_CUT;

/// Longest frame with segmentation, octets: 64 KiB of IP after an Ethernet header and tags.
pub(super) const SEGMENTED_MAX: u32 = 65_536 + 128;
/// Most buffers of a frame with segmentation: those of the longest one in buffers of 2 KiB, the smallest (see `buffer_size`).
pub(super) const SEGMENTED_BUFFERS_MAX: usize = SEGMENTED_MAX.div_ceil(2048) as usize;
/// Space of a large buffer, octets. Together with the smallest buffer (2048), it is more than [`SEGMENTED_MAX`], and with its headroom not
/// more than a buffer can have.
pub(super) const LARGE_SPACE: u16 = 64_000;
/// Octets after which a receive call of a port that copies long frames returns, so that they are sent while they are in the CPU's cache.
pub(super) const RECEIVED_OCTETS_MAX: u64 = 256 << 10;
/// Octets of an Ethernet header.
const ETHERNET: usize = 14;
/// Offset of the flags in the header of TCP (RFC 9293, section 3.1).
const TCP_FLAGS: usize = 13;
/// Offset of the length in the header of UDP (RFC 768).
const UDP_LENGTH: usize = 4;
/// TCP's flag CWR (RFC 3168, section 6.1.2).
const CWR: u8 = 0x80;

/// Shortest frame whose checksum may be left to a card, octets. An estimate: the sum over a shorter frame takes no longer than a request.
const LEFT_MIN: u32 = 1024;
/// Header of a complete frame with a verified checksum.
const VERIFIED: RawHeader = RawHeader::new(&[FLAG_DATA_VALID, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);

/// Number of open ports whose card computes checksums.
static CHECKSUM_CARDS: AtomicU32 = AtomicU32::new(0);

/// An open port whose card computes checksums of transmitted frames.
#[derive(Debug)]
pub(in crate::port) struct ChecksumCard(());

impl ChecksumCard {
    /// Counts a port until the value is dropped.
    pub(in crate::port) fn open() -> Self {
        CHECKSUM_CARDS.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for ChecksumCard {
    fn drop(&mut self) {
        CHECKSUM_CARDS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Kinds of segmentation that the sender of a frame may request, and checksums, as bits.
const TSO: u16 = 1;
const USO: u16 = 2;
const ECN: u16 = 4;
const CHECKSUM: u16 = 8;

/// Offloads that a device may request from its driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceOffloads(u16);

impl DeviceOffloads {
    /// Returns the offloads of negotiated features (virtio 1.2, section 5.1.3). A device may not request TCP segmentation with ECN.
    pub(super) const fn of(features: u64) -> Self {
        let mut kinds = 0;
        if features & NET_F_GUEST_CSUM != 0 {
            kinds |= CHECKSUM;
        }
        if features & (NET_F_GUEST_TSO4 | NET_F_GUEST_TSO6) != 0 {
            kinds |= TSO;
        }
        if features & (NET_F_GUEST_USO4 | NET_F_GUEST_USO6) != 0 {
            kinds |= USO;
        }
        Self(kinds)
    }
}

/// Offload of one received frame. Like the virtio header, it is two words, which stay in registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offload {
    /// The field of `num_buffers`, which is unused here, stores the kinds of offloads that the sender may request.
    header: RawHeader,
}

impl Offload {
    /// Returns the offload of a frame from a guest, which may request TCP segmentation if `has_tso`.
    #[inline(always)]
    pub(super) fn new(header: RawHeader, has_tso: bool) -> Self {
        let kinds = if has_tso { TSO | CHECKSUM } else { CHECKSUM };
        let header = header.with_num_buffers(kinds);
        Self { header }
    }

    /// Returns the offload of a frame from the kernel, which may also request UDP segmentation (`UDP_SEGMENT`, udp(7)), and TCP
    /// segmentation with bits of explicit congestion notification.
    #[inline(always)]
    pub(super) fn of_kernel(header: RawHeader) -> Self {
        let header = header.with_num_buffers(TSO | USO | ECN | CHECKSUM);
        Self { header }
    }

    /// Returns the offload of a frame from a device, which may request `offloads`.
    #[inline(always)]
    pub(super) fn of_device(header: RawHeader, offloads: DeviceOffloads) -> Self {
        let header = header.with_num_buffers(offloads.0);
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
        let may_be_segmented = self.allows_kinds(TSO) || self.allows_kinds(USO);
        if may_be_segmented && self.header.is_segmented() {
            SEGMENTED_MAX
        } else {
            limit
        }
    }

    /// Performs the offload. Returns false if it is invalid or was not negotiated.
    #[cold]
    pub(super) fn complete(self, frame: &mut Mbuf<'_>, limit: u32) -> bool {
        let has_cards = CHECKSUM_CARDS.load(Ordering::Relaxed) > 0;
        self.complete_for(frame, limit, has_cards)
    }

    /// Performs the offload. With `has_cards`, the checksum of a long frame may stay incomplete. The frame then requests segmentation into
    /// one segment, so that each port leaves the checksum to its card or computes it.
    fn complete_for(self, frame: &mut Mbuf<'_>, limit: u32, has_cards: bool) -> bool {
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
        if header.flags & FLAG_NEEDS_CSUM == 0 {
            return true;
        }
        if !self.allows_kinds(CHECKSUM) {
            return false;
        }
        // A port that receives no frames to cut may be in a switch whose ports cut none.
        let may_be_left = has_cards && self.allows_kinds(TSO);
        (may_be_left && is_left(&header, frame)) || complete_checksum(&header, frame)
    }
}

/// Marks a frame of one TCP segment or datagram whose checksum can be computed when it is sent. Returns false and changes nothing if the
/// frame is too short, or the checksum is not that of TCP or UDP in a frame that can be cut.
fn is_left(header: &OffloadHeader, frame: &mut Mbuf<'_>) -> bool {
    if frame.length() < LEFT_MIN || !frame.is_exclusive() {
        return false;
    }
    let Some(size) = data_to_sum(header, frame.octets()) else {
        return false;
    };
    frame.set_segment_size(size);
    true
}

/// Returns the length of the data of TCP or UDP, octets, if the checksum of a frame covers TCP or UDP to the end of the frame.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "headers and data are within the frame (LargeFrame::read)"
)]
fn data_to_sum(header: &OffloadHeader, octets: &[u8]) -> Option<u16> {
    let front = octets.get(..SEGMENT_HEADERS_MAX).unwrap_or(octets);
    let headers = LargeFrame::read(front, octets.len())?;
    let start = headers.ethernet_length() + headers.network_length();
    let (offset, has_length) = if headers.is_tcp() {
        (TCP_CHECKSUM_OFFSET, true)
    } else {
        // The length of UDP may be less than that of IP (RFC 9868).
        let length = u16::try_from(octets.len() - start).ok()?;
        let field = octets.get(start + UDP_LENGTH..start + UDP_LENGTH + 2)?;
        (UDP_CHECKSUM_OFFSET, field == length.to_be_bytes())
    };
    let is_usual = usize::from(header.csum_start) == start
        && usize::from(header.csum_offset) == offset
        && has_length
        && headers.headers_length() + headers.data_length() == octets.len()
        && headers.is_sound();
    let size = u16::try_from(headers.data_length()).ok()?;
    (is_usual && size > 0).then_some(size)
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

/// Returns the virtio header of a frame to a guest. With `reports`, it has the report of a card that the checksum is correct.
#[inline(always)]
pub(super) fn header_for_guest(frame: &Outgoing<'_>, reports: bool) -> RawHeader {
    let header = header_of(frame);
    if reports && header.is_plain() && frame.has_verified_checksum() {
        VERIFIED
    } else {
        header
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::arithmetic_side_effects,
    reason = "l2_len, l3_len and l4_len have 7, 9 and 8 bits (struct rte_mbuf), and the offsets are constants"
)]
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
        .and_then(|octets| octets.get(transport.saturating_add(TCP_FLAGS)));
    if flags.is_some_and(|flags| flags & CWR != 0) {
        GSO_ECN
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quietwire_packet::checksum;
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

    #[test]
    fn a_device_may_request_what_its_driver_has_negotiated() {
        const TSO4: u64 = NET_F_GUEST_CSUM | NET_F_GUEST_TSO4;
        const USO6: u64 = NET_F_GUEST_CSUM | NET_F_GUEST_USO6;
        let of = |features, header| Offload::of_device(header, DeviceOffloads::of(features));
        let udp = (GSO_UDP_L4, SEGMENTED_MAX);
        let tcp = (GSO_TCPV4, SEGMENTED_MAX);
        for (features, (gso_type, length_max), allows) in [
            (TSO4, tcp, true),
            (TSO4, (GSO_TCPV4 | GSO_ECN, SEGMENTED_MAX), false),
            (TSO4, udp, false),
            (USO6, udp, true),
            (USO6, tcp, false),
            (NET_F_GUEST_CSUM, (GSO_TCPV4, LIMIT), false),
            (0, (GSO_TCPV4, LIMIT), false),
        ] {
            let offload = of(features, segmented(gso_type, 1000));
            let expected = (allows, allows.then_some(1000));
            assert_eq!(outcome(offload, 3000), expected, "{features:#x} {gso_type}");
            assert_eq!(offload.length_max(LIMIT), length_max, "{features:#x}");
        }
        let sum = to_sum(34, TCP_CHECKSUM_OFFSET);
        assert_eq!(outcome(of(NET_F_GUEST_CSUM, sum), 1000), (true, None));
        assert_eq!(outcome(of(0, sum), 1000), (false, None));
        // A report about a checksum requests nothing.
        assert!(of(0, VERIFIED).is_none());
    }

    /// Octets of the headers of [`segment`].
    const HEADERS: usize = 54;

    /// Returns a TCP segment over IPv4 of this length, octets, whose checksum field is 0.
    fn segment(length: usize) -> Vec<u8> {
        let mut frame = vec![7; length];
        frame[..HEADERS].fill(0);
        frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
        frame[16..18].copy_from_slice(&((length - 14) as u16).to_be_bytes());
        (frame[23], frame[46], frame[47]) = (6, 0x50, 0x10);
        let sum = checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    }

    fn to_sum(csum_start: u16, csum_offset: usize) -> RawHeader {
        RawHeader::from(OffloadHeader {
            flags: FLAG_NEEDS_CSUM,
            csum_start,
            csum_offset: csum_offset as u16,
            ..OffloadHeader::default()
        })
    }

    #[test]
    fn checksums_of_long_frames_are_left_to_cards() {
        let eal = testing::eal();
        let pool = pool(&eal);
        let usual = to_sum(34, TCP_CHECKSUM_OFFSET);
        let whole = segment(1514);
        let mut bad_header = whole.clone();
        bad_header[24] ^= 1;
        let mut padded = whole.clone();
        padded.push(0);
        let mut synchronize = whole.clone();
        synchronize[47] = 0x12;
        // A datagram whose length is that of its packet, and one with octets behind it.
        let mut datagram = whole.clone();
        datagram[23] = 17;
        datagram[24..26].fill(0);
        let sum = checksum(&datagram[14..34]);
        datagram[24..26].copy_from_slice(&sum.to_be_bytes());
        datagram[38..40].copy_from_slice(&1480_u16.to_be_bytes());
        let mut shorter = datagram.clone();
        shorter[39] -= 1;
        let of_udp = to_sum(34, UDP_CHECKSUM_OFFSET);
        for (case, octets, header, has_cards, size) in [
            ("usual", &whole, usual, true, Some(1460)),
            ("no card", &whole, usual, false, None),
            ("short", &segment(1023), usual, true, None),
            ("long enough", &segment(1024), usual, true, Some(970)),
            ("bad IPv4 header", &bad_header, usual, true, None),
            ("padding", &padded, usual, true, None),
            ("SYN", &synchronize, usual, true, None),
            ("datagram", &datagram, of_udp, true, Some(1472)),
            ("shorter datagram", &shorter, of_udp, true, None),
            ("other field", &whole, of_udp, true, None),
            ("other start", &whole, to_sum(38, 12), true, None),
        ] {
            let mut frame = Mbuf::new(&eal, &pool, octets).unwrap();
            let offload = Offload::of_kernel(header);
            assert!(offload.complete_for(&mut frame, LIMIT, has_cards), "{case}");
            assert_eq!(frame.segment_size(), size, "{case}");
            // Either the checksum is left, or it is computed.
            assert_eq!(
                frame.octets() == octets.as_slice(),
                size.is_some(),
                "{case}"
            );
            // A guest without segmentation may be in a switch that cuts no frames.
            let mut frame = Mbuf::new(&eal, &pool, octets).unwrap();
            let offload = Offload::new(header, false);
            assert!(offload.complete_for(&mut frame, LIMIT, has_cards), "{case}");
            assert_eq!(frame.segment_size(), None, "{case}");
        }
    }

    #[test]
    fn guests_get_reports_about_complete_frames_if_they_allow_it() {
        let eal = testing::eal();
        let pool = pool(&eal);
        for (report, allows, expected) in [
            (sys::CHECKSUM_GOOD, true, VERIFIED),
            (sys::CHECKSUM_GOOD, false, RawHeader::PLAIN),
            (sys::CHECKSUM_BAD, true, RawHeader::PLAIN),
            (0, true, RawHeader::PLAIN),
        ] {
            let mut frame = Mbuf::new(&eal, &pool, &segment(1514)).unwrap();
            frame.set_report(report, sys::TYPE_TCP);
            // SAFETY: owned by the frame, which outlives the value.
            let outgoing = unsafe { Outgoing::of_buffer(frame.mbuf) };
            assert_eq!(header_for_guest(&outgoing, allows), expected);
            // The guest reads it as a complete frame.
            assert!(expected.is_plain());
        }
        assert_eq!(VERIFIED.parse().flags, FLAG_DATA_VALID);
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
            let raw = RawHeader::from(fields);
            let refusing = Offload::of_device(raw, DeviceOffloads::of(0));
            let is_plain = refusing.complete(&mut frame, LIMIT);
            prop_assert_eq!(is_plain, refusing.is_none());
            prop_assert_eq!(frame.octets(), octets.as_slice());
            let is_done = Offload::of_kernel(raw).complete(&mut frame, LIMIT);
            prop_assert_eq!(frame.octets().len(), octets.len());
            let changed = octets.iter().zip(frame.octets()).filter(|(a, b)| a != b).count();
            let changed_max = if is_done { 4 } else { 0 };
            prop_assert!(changed <= changed_max);
            prop_assert!(frame.segment_size().is_none() || fields.gso_type & !GSO_ECN == GSO_UDP_L4);
        }
    }
}
