// SPDX-License-Identifier: Apache-2.0
//! Contents of a slot: conversion to a complete frame.

// Memory that the kernel writes: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use nix::libc;
use quietwire_packet::be16_at;
use quietwire_vhost::ring::header::{HEADER_LEN_LEGACY, RawHeader};

/// Octets of two MAC addresses, of a VLAN tag, of the whole Ethernet header, and of the frame check sequence.
const ADDRESSES: usize = 12;
const TAG_LENGTH: u16 = 4;
pub(super) const TAG: usize = TAG_LENGTH as usize;
pub(super) const ETHERNET_HEADER: usize = 14;
pub(super) const FCS: usize = 4;
/// Tags that a frame may have in addition to the largest size (IEEE 802.3, section 3.2.7).
const TAGS_MAX: usize = 2;

/// IEEE 802.1Q, table 9-1: C-TAG and S-TAG.
const TPID_C: u16 = 0x8100;
const TPID_S: u16 = 0x88a8;

/// struct tpacket2_hdr, as offsets in a slot.
const LENGTH: usize = 4;
const LENGTH_COPIED: usize = 8;
const FRAME_OFFSET: usize = 12;
const TAG_CONTROL: usize = 24;
const TAG_PROTOCOL: usize = 26;
/// `sll_pkttype` of the struct sockaddr_ll behind it.
const KIND: usize = 42;
/// Upper bound of the offset of a received frame: header, socket address, padding, virtio header.
const RECEIVE_OFFSET_MAX: usize = 96;

/// A frame with its header.
pub(super) struct Unpacked {
    /// Octets of the frame, with its tag.
    pub(super) length: usize,
    /// Offsets count from the start of the frame with its tag.
    pub(super) header: RawHeader,
}

/// Contents of a received slot.
pub(super) enum Content {
    Frame(Unpacked),
    /// A frame that is longer than the slot. It waits in the socket's queue.
    Queued(Queued),
    /// The start of a frame that is longer than the slot. The socket's queue had no space for it.
    Lost,
    /// The start of a frame that is too long, or no frame.
    Invalid,
}

/// A frame in the socket's queue.
pub(super) struct Queued {
    /// Octets without the tag.
    pub(super) length: usize,
    pub(super) tag: Option<Tag>,
}

/// The tag that the kernel removed from a frame: TPID and TCI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(pub(super) u16, pub(super) u16);

/// Returns the size of a slot for frames of `frame_size_max` octets with FCS, octets.
pub(super) fn space(frame_size_max: u16) -> usize {
    length_max(frame_size_max).saturating_add(RECEIVE_OFFSET_MAX + TAGS_MAX * TAG)
}

/// Returns the longest frame without FCS and tags, octets.
pub(super) fn length_max(frame_size_max: u16) -> usize {
    usize::from(frame_size_max).saturating_sub(FCS)
}

/// Returns the octets of the VLAN tags that do not count towards the frame length: at most the first two.
pub(super) fn tags(frame: &[u8]) -> usize {
    let is_tag = |number: &usize| {
        let before = number.wrapping_mul(TAG);
        let protocol = be16_at(frame, before.wrapping_add(ADDRESSES));
        protocol == Some(TPID_C) || protocol == Some(TPID_S)
    };
    let count = (0..TAGS_MAX).take_while(is_tag).count();
    count.wrapping_mul(TAG)
}

/// Returns true for a frame that this machine sends. A kernel without
/// PACKET_FANOUT_FLAG_IGNORE_OUTGOING passes such frames to sockets of a fanout group.
#[inline(always)]
pub(super) fn is_outgoing(slot: &[u8]) -> bool {
    slot.get(KIND) == Some(&libc::PACKET_OUTGOING)
}

/// Returns the contents of a received slot. A frame is written to the start of `to`, with the tag that the kernel keeps separately. It
/// is at most as long as `to`.
#[inline]
pub(super) fn unpack(status: u32, slot: &[u8], to: &mut [u8]) -> Content {
    if status & libc::TP_STATUS_COPY != 0 {
        // Each such slot has one frame in the queue.
        let length = array(slot, LENGTH).map_or(0, u32::from_ne_bytes);
        return Content::Queued(Queued {
            length: length as usize,
            tag: tag(status, slot),
        });
    }
    match header(slot) {
        Some((at, header)) => read(status, slot, at, header, to).unwrap_or(Content::Invalid),
        None => Content::Invalid,
    }
}

/// Returns a frame, or that it was lost. None if it is invalid.
#[inline(always)]
fn read(status: u32, slot: &[u8], at: usize, header: RawHeader, to: &mut [u8]) -> Option<Content> {
    let length = u32::from_ne_bytes(array(slot, LENGTH)?);
    let copied = u32::from_ne_bytes(array(slot, LENGTH_COPIED)?);
    if copied != length {
        return header.is_segmented().then_some(Content::Lost);
    }
    let data = slot.get(at..at.checked_add(length as usize)?)?;
    let (addresses, rest) = data.split_at_checked(ADDRESSES)?;
    if data.len() < ETHERNET_HEADER {
        return None;
    }
    let tag = tag(status, slot);
    let tag_length = if tag.is_some() { TAG } else { 0 };
    let frame = to.get_mut(..data.len().wrapping_add(tag_length))?;
    let (start, end) = frame.split_at_mut_checked(ADDRESSES)?;
    start.copy_from_slice(addresses);
    end.get_mut(tag_length..)?.copy_from_slice(rest);
    if let Some(Tag(protocol, control)) = tag {
        let [a, b] = protocol.to_be_bytes();
        let [c, d] = control.to_be_bytes();
        *end.first_chunk_mut::<4>()? = [a, b, c, d];
    }
    Some(Content::Frame(Unpacked {
        length: frame.len(),
        header: behind_tag(header, tag)?,
    }))
}

/// Returns the offset of the frame in a slot, and the header before it.
#[inline(always)]
fn header(slot: &[u8]) -> Option<(usize, RawHeader)> {
    let at = usize::from(u16::from_ne_bytes(array(slot, FRAME_OFFSET)?));
    let octets = array::<HEADER_LEN_LEGACY>(slot, at.checked_sub(HEADER_LEN_LEGACY)?)?;
    Some((at, raw_header(octets)))
}

/// Returns a header of the kernel. It has no `num_buffers`, and the machine's byte order: little-endian, like the header of a guest, on
/// all machines for which DPDK has packages.
#[inline(always)]
pub(super) fn raw_header(octets: [u8; HEADER_LEN_LEGACY]) -> RawHeader {
    let [a, b, c, d, e, f, g, h, i, j] = octets;
    RawHeader::new(&[a, b, c, d, e, f, g, h, i, j, 0, 0])
}

/// Returns the header of a frame after its tag was inserted. None if an offset is out of range.
#[inline(always)]
pub(super) fn behind_tag(header: RawHeader, tag: Option<Tag>) -> Option<RawHeader> {
    if tag.is_none() || header.is_plain() {
        return Some(header);
    }
    let mut fields = header.parse();
    fields.csum_start = fields.csum_start.checked_add(TAG_LENGTH)?;
    Some(RawHeader::from(fields))
}

/// Returns the outermost tag if the kernel has removed it.
#[inline(always)]
fn tag(status: u32, slot: &[u8]) -> Option<Tag> {
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let protocol = if status & libc::TP_STATUS_VLAN_TPID_VALID == 0 {
        TPID_C
    } else {
        u16::from_ne_bytes(array(slot, TAG_PROTOCOL)?)
    };
    Some(Tag(protocol, u16::from_ne_bytes(array(slot, TAG_CONTROL)?)))
}

fn array<const N: usize>(octets: &[u8], at: usize) -> Option<[u8; N]> {
    octets.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use quietwire_vhost::ring::header::{FLAG_NEEDS_CSUM, GSO_TCPV4, GSO_UDP_L4};

    const LONGEST: usize = 1522;
    const PLAIN: [u8; HEADER_LEN_LEGACY] = [0; HEADER_LEN_LEGACY];

    /// Returns a slot like one written by the kernel.
    fn slot(frame: &[u8], header: [u8; HEADER_LEN_LEGACY]) -> Vec<u8> {
        let at = 76;
        let mut slot = vec![0; 2048];
        let length = (frame.len() as u32).to_ne_bytes();
        slot[LENGTH..LENGTH + 4].copy_from_slice(&length);
        slot[LENGTH_COPIED..LENGTH_COPIED + 4].copy_from_slice(&length);
        slot[FRAME_OFFSET..FRAME_OFFSET + 2].copy_from_slice(&(at as u16).to_ne_bytes());
        slot[at - HEADER_LEN_LEGACY..at].copy_from_slice(&header);
        slot[at..at + frame.len()].copy_from_slice(frame);
        slot
    }

    fn frame(length: usize) -> Vec<u8> {
        (0..length)
            .map(|at| if at == 12 { 8 } else { at as u8 })
            .collect()
    }

    fn read(status: u32, slot: &[u8]) -> Option<(Vec<u8>, RawHeader)> {
        let mut to = vec![0xee; LONGEST];
        let Content::Frame(Unpacked { length, header }) = unpack(status, slot, &mut to) else {
            return None;
        };
        assert!(to[length..].iter().all(|octet| *octet == 0xee));
        to.truncate(length);
        Some((to, header))
    }

    #[test]
    fn a_plain_frame_is_unchanged() {
        for length in [14, 60, LONGEST] {
            let plain = frame(length);
            let read = read(1, &slot(&plain, PLAIN)).unwrap();
            assert_eq!(read, (plain, RawHeader::PLAIN));
        }
        assert!(read(1, &slot(&frame(13), PLAIN)).is_none());
        assert!(read(1, &slot(&frame(LONGEST + 1), PLAIN)).is_none());
    }

    #[test]
    fn a_frame_that_was_cut_short_is_queued_or_lost_or_too_long() {
        let mut to = [0; LONGEST];
        let mut with = |status: u32, kind: u8| {
            let mut header = PLAIN;
            header[1] = kind;
            let mut short = slot(&frame(100), header);
            short[LENGTH..LENGTH + 4].copy_from_slice(&65_226u32.to_ne_bytes());
            short[TAG_CONTROL] = 7;
            unpack(status, &short, &mut to)
        };
        assert!(matches!(with(1, 0), Content::Invalid));
        assert!(matches!(with(1, GSO_TCPV4), Content::Lost));
        let copy = 1 | libc::TP_STATUS_COPY;
        for (status, tag) in [
            (copy, None),
            (copy | libc::TP_STATUS_VLAN_VALID, Some(Tag(TPID_C, 7))),
        ] {
            let Content::Queued(queued) = with(status, GSO_TCPV4) else {
                panic!("not queued");
            };
            assert_eq!((queued.length, queued.tag), (65_226, tag));
        }
    }

    #[test]
    fn a_tag_comes_back() {
        let valid = libc::TP_STATUS_VLAN_VALID;
        let mut tagged = slot(&frame(1514), PLAIN);
        tagged[TAG_CONTROL..TAG_CONTROL + 2].copy_from_slice(&0x6123u16.to_ne_bytes());
        let got = read(1 | valid, &tagged).unwrap().0;
        assert_eq!(got.len(), 1518);
        assert_eq!(got[..12], frame(1514)[..12]);
        assert_eq!(got[12..16], [0x81, 0, 0x61, 0x23]);
        assert_eq!(got[16..], frame(1514)[12..]);
        tagged[TAG_PROTOCOL..TAG_PROTOCOL + 2].copy_from_slice(&TPID_S.to_ne_bytes());
        let got = read(1 | valid | libc::TP_STATUS_VLAN_TPID_VALID, &tagged);
        assert_eq!(got.unwrap().0[12..16], [0x88, 0xa8, 0x61, 0x23]);
    }

    #[test]
    fn tags_are_counted_up_to_two() {
        let mut tagged = frame(100);
        assert_eq!(tags(&tagged), 0);
        tagged[12..14].copy_from_slice(&[0x88, 0xa8]);
        assert_eq!(tags(&tagged), 4);
        tagged[16..18].copy_from_slice(&[0x81, 0]);
        tagged[20..22].copy_from_slice(&[0x81, 0]);
        assert_eq!(tags(&tagged), 8);
        assert_eq!(tags(&tagged[..17]), 4);
    }

    #[test]
    fn a_header_counts_from_the_start_of_the_frame_with_its_tag() {
        let header = |start: u16| {
            let [a, b] = start.to_ne_bytes();
            [FLAG_NEEDS_CSUM, GSO_UDP_L4, 0, 0, 0, 4, a, b, 16, 0]
        };
        let fields = |status: u32, start: u16| {
            let read = read(status, &slot(&frame(80), header(start)));
            read.map(|(_, header)| header.parse())
        };
        let plain = fields(1, 34).unwrap();
        assert_eq!(
            (plain.flags, plain.gso_type, plain.gso_size),
            (FLAG_NEEDS_CSUM, GSO_UDP_L4, 1024)
        );
        assert_eq!((plain.csum_start, plain.csum_offset), (34, 16));
        let tagged = 1 | libc::TP_STATUS_VLAN_VALID;
        assert_eq!(fields(tagged, 34).unwrap().csum_start, 38);
        assert_eq!(fields(1, u16::MAX).unwrap().csum_start, u16::MAX);
        assert!(fields(tagged, u16::MAX - 3).is_none());
    }

    #[test]
    fn frames_of_this_machine_are_distinguished() {
        assert_eq!(
            KIND,
            32 + std::mem::offset_of!(libc::sockaddr_ll, sll_pkttype)
        );
        let mut own = slot(&frame(60), PLAIN);
        assert!(!is_outgoing(&own));
        own[KIND] = libc::PACKET_OUTGOING;
        assert!(is_outgoing(&own));
    }

    proptest! {
        /// Tests that arbitrary slot contents do not end the program, although the kernel is trusted.
        #[test]
        fn any_octets_are_read_within_bounds(
            status in any::<u32>(),
            slot in prop::collection::vec(any::<u8>(), 0..256),
            at in 0u16..300,
            length in 0u32..300,
        ) {
            let mut slot = slot;
            if slot.len() > 28 {
                slot[LENGTH..LENGTH + 4].copy_from_slice(&length.to_ne_bytes());
                slot[LENGTH_COPIED..LENGTH_COPIED + 4].copy_from_slice(&length.to_ne_bytes());
                slot[FRAME_OFFSET..FRAME_OFFSET + 2].copy_from_slice(&at.to_ne_bytes());
            }
            let mut to = [0; 128];
            if let Content::Frame(Unpacked { length, .. }) = unpack(status, &slot, &mut to) {
                prop_assert!((ETHERNET_HEADER..=128).contains(&length));
            }
        }
    }
}
