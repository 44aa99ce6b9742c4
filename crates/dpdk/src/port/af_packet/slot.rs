// SPDX-License-Identifier: Apache-2.0
//! Contents of a slot: conversion of a received slot to a complete frame, and of a frame to a slot to send.

use std::ops::Range;

use nix::libc;

use super::checksum;

/// Octets of two MAC addresses, of a VLAN tag, of the whole Ethernet header, and of the frame check sequence.
const ADDRESSES: usize = 12;
pub(super) const TAG: usize = 4;
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
/// Offset of the frame in a slot to send: after the header (TPACKET2_HDRLEN without struct sockaddr_ll).
const SEND_OFFSET: usize = 32;
/// Upper bound of the offset of a received frame: header, socket address, padding, virtio header.
const RECEIVE_OFFSET_MAX: usize = 96;

/// virtio 1.2, section 5.1.6: the header that precedes a frame, as offsets, without `num_buffers`.
const VIRTIO_HEADER: usize = 10;
const SEGMENTATION: usize = 1;
const CHECKSUM_START: usize = 6;
const CHECKSUM_OFFSET: usize = 8;
const NEEDS_CHECKSUM: u8 = 1;
const SEGMENTATION_NONE: u8 = 0;
const SEGMENTATION_TCP4: u8 = 1;
const SEGMENTATION_TCP6: u8 = 4;
const SEGMENTATION_ECN: u8 = 0x80;

/// Returns the size of a slot for frames of `frame_size_max` octets with FCS, in either direction, octets.
pub(super) fn room(frame_size_max: u16) -> usize {
    RECEIVE_OFFSET_MAX + length_max(frame_size_max) + TAGS_MAX * TAG
}

/// Returns the longest frame without FCS and tags, octets.
pub(super) fn length_max(frame_size_max: u16) -> usize {
    usize::from(frame_size_max).saturating_sub(FCS)
}

/// Returns the octets of the VLAN tags that do not count towards the frame length: at most the first two.
pub(super) fn tags(frame: &[u8]) -> usize {
    let is_tag = |number: &usize| {
        let protocol = be16(frame, ADDRESSES + number * TAG);
        protocol == Some(TPID_C) || protocol == Some(TPID_S)
    };
    (0..TAGS_MAX).take_while(is_tag).count() * TAG
}

/// Returns true for a frame that this machine sends. A kernel without
/// PACKET_FANOUT_FLAG_IGNORE_OUTGOING passes such frames to sockets of a fanout group.
#[inline(always)]
pub(super) fn is_outgoing(slot: &[u8]) -> bool {
    slot.get(KIND) == Some(&libc::PACKET_OUTGOING)
}

/// Writes the frame of a received slot to the start of `to`, with the tag and the checksum that the kernel keeps separately.
/// Returns its length. None if it is truncated, longer than `length_max` without its tags, longer than `to`, or not a frame.
#[inline]
pub(super) fn unpack(status: u32, slot: &[u8], length_max: usize, to: &mut [u8]) -> Option<usize> {
    let length = u32::from_ne_bytes(array(slot, LENGTH)?);
    let copied = u32::from_ne_bytes(array(slot, LENGTH_COPIED)?);
    if status & libc::TP_STATUS_COPY != 0 || copied != length {
        return None;
    }
    let at = usize::from(u16::from_ne_bytes(array(slot, FRAME_OFFSET)?));
    let data = slot.get(at..at.checked_add(length as usize)?)?;
    let header: [u8; VIRTIO_HEADER] = array(slot, at.checked_sub(VIRTIO_HEADER)?)?;
    let (addresses, rest) = data.split_at_checked(ADDRESSES)?;
    if data.len() < ETHERNET_HEADER || !is_one_frame(&header) {
        return None;
    }
    // The kernel removes the outermost tag.
    let tag = if status & libc::TP_STATUS_VLAN_VALID == 0 {
        0
    } else {
        TAG
    };
    let frame = to.get_mut(..data.len() + tag)?;
    frame.get_mut(..ADDRESSES)?.copy_from_slice(addresses);
    frame.get_mut(ADDRESSES + tag..)?.copy_from_slice(rest);
    if tag > 0 {
        let protocol = if status & libc::TP_STATUS_VLAN_TPID_VALID == 0 {
            TPID_C
        } else {
            u16::from_ne_bytes(array(slot, TAG_PROTOCOL)?)
        };
        let control = u16::from_ne_bytes(array(slot, TAG_CONTROL)?);
        let [a, b] = protocol.to_be_bytes();
        let [c, d] = control.to_be_bytes();
        let place = frame.get_mut(ADDRESSES..ADDRESSES + TAG)?;
        place.copy_from_slice(&[a, b, c, d]);
    }
    if frame.len() > length_max && frame.len() - tags(frame) > length_max {
        return None;
    }
    if header.first()? & NEEDS_CHECKSUM != 0 {
        // The offset counts from the frame without the tag.
        let start = usize::from(u16::from_ne_bytes(array(&header, CHECKSUM_START)?));
        let offset = usize::from(u16::from_ne_bytes(array(&header, CHECKSUM_OFFSET)?));
        if !checksum::complete(frame, start + tag, offset) {
            return None;
        }
    }
    Some(frame.len())
}

/// Returns false for several datagrams in one (UDP segmentation). Unsegmented TCP data are a frame if it is not too long.
fn is_one_frame(header: &[u8; VIRTIO_HEADER]) -> bool {
    let kind = header.get(SEGMENTATION).copied().unwrap_or(u8::MAX) & !SEGMENTATION_ECN;
    matches!(
        kind,
        SEGMENTATION_NONE | SEGMENTATION_TCP4 | SEGMENTATION_TCP6
    )
}

/// Writes the length of a frame to a slot to send. Returns the place of the frame's octets.
#[inline]
pub(super) fn pack(slot: &mut [u8], length: usize) -> Option<&mut [u8]> {
    let octets = u32::try_from(length).ok()?.to_ne_bytes();
    let place: Range<usize> = SEND_OFFSET..SEND_OFFSET.checked_add(length)?;
    if slot.len() < place.end {
        return None;
    }
    slot.get_mut(LENGTH..LENGTH + octets.len())?
        .copy_from_slice(&octets);
    slot.get_mut(place)
}

fn array<const N: usize>(octets: &[u8], at: usize) -> Option<[u8; N]> {
    octets.get(at..)?.first_chunk().copied()
}

fn be16(octets: &[u8], at: usize) -> Option<u16> {
    array(octets, at).map(u16::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX: usize = 1514;

    /// Returns a slot like one written by the kernel.
    fn slot(frame: &[u8], header: [u8; VIRTIO_HEADER]) -> Vec<u8> {
        let at = 76;
        let mut slot = vec![0; 2048];
        let length = (frame.len() as u32).to_ne_bytes();
        slot[LENGTH..LENGTH + 4].copy_from_slice(&length);
        slot[LENGTH_COPIED..LENGTH_COPIED + 4].copy_from_slice(&length);
        slot[FRAME_OFFSET..FRAME_OFFSET + 2].copy_from_slice(&(at as u16).to_ne_bytes());
        slot[at - VIRTIO_HEADER..at].copy_from_slice(&header);
        slot[at..at + frame.len()].copy_from_slice(frame);
        slot
    }

    fn frame(length: usize) -> Vec<u8> {
        (0..length)
            .map(|at| if at == 12 { 8 } else { at as u8 })
            .collect()
    }

    fn read(status: u32, slot: &[u8]) -> Option<Vec<u8>> {
        let mut to = vec![0xee; 2048];
        let length = unpack(status, slot, MAX, &mut to)?;
        assert!(to[length..].iter().all(|octet| *octet == 0xee));
        to.truncate(length);
        Some(to)
    }

    #[test]
    fn a_plain_frame_is_unchanged() {
        for length in [14, 60, MAX] {
            let plain = frame(length);
            assert_eq!(read(1, &slot(&plain, [0; 10])).unwrap(), plain);
        }
        assert_eq!(read(1, &slot(&frame(13), [0; 10])), None);
        assert_eq!(read(1, &slot(&frame(MAX + 1), [0; 10])), None);
    }

    #[test]
    fn a_frame_that_was_cut_short_is_none() {
        let mut short = slot(&frame(100), [0; 10]);
        short[LENGTH] = 101;
        assert_eq!(read(1, &short), None);
        assert_eq!(
            read(1 | libc::TP_STATUS_COPY, &slot(&frame(100), [0; 10])),
            None
        );
    }

    #[test]
    fn a_tag_comes_back_and_does_not_count() {
        let valid = libc::TP_STATUS_VLAN_VALID;
        let mut tagged = slot(&frame(MAX), [0; 10]);
        tagged[TAG_CONTROL..TAG_CONTROL + 2].copy_from_slice(&0x6123u16.to_ne_bytes());
        let got = read(1 | valid, &tagged).unwrap();
        assert_eq!(got.len(), MAX + 4);
        assert_eq!(got[..12], frame(MAX)[..12]);
        assert_eq!(got[12..16], [0x81, 0, 0x61, 0x23]);
        assert_eq!(got[16..], frame(MAX)[12..]);
        tagged[TAG_PROTOCOL..TAG_PROTOCOL + 2].copy_from_slice(&TPID_S.to_ne_bytes());
        let got = read(1 | valid | libc::TP_STATUS_VLAN_TPID_VALID, &tagged).unwrap();
        assert_eq!(got[12..16], [0x88, 0xa8, 0x61, 0x23]);
        // A second tag within the frame does not count either; a third tag does.
        let mut inner = frame(MAX + 4);
        inner[12..14].copy_from_slice(&[0x81, 0]);
        assert!(read(1 | valid, &slot(&inner, [0; 10])).is_some());
        inner = frame(MAX + 8);
        inner[12..18].copy_from_slice(&[0x81, 0, 0, 1, 0x81, 0]);
        assert!(read(1, &slot(&inner, [0; 10])).is_some());
        assert!(read(1 | valid, &slot(&inner, [0; 10])).is_none());
    }

    #[test]
    fn an_incomplete_checksum_is_completed_behind_a_tag() {
        let header = |start: u16, offset: u16| {
            let [a, b] = start.to_ne_bytes();
            let [c, d] = offset.to_ne_bytes();
            [NEEDS_CHECKSUM, 0, 0, 0, 0, 0, a, b, c, d]
        };
        let plain = frame(80);
        let mut expected = plain.clone();
        assert!(checksum::complete(&mut expected, 34, 16));
        assert_ne!(expected, plain);
        assert_eq!(read(1, &slot(&plain, header(34, 16))).unwrap(), expected);
        let tagged = read(
            1 | libc::TP_STATUS_VLAN_VALID,
            &slot(&plain, header(34, 16)),
        );
        assert_eq!(tagged.unwrap()[16..], expected[12..]);
        assert_eq!(read(1, &slot(&plain, header(70, 16))), None);
    }

    #[test]
    fn datagrams_in_one_are_none_and_tcp_is_a_frame() {
        let with = |kind: u8| read(1, &slot(&frame(1000), [0, kind, 0, 0, 0, 0, 0, 0, 0, 0]));
        // UDP, UDP_L4 and an undefined type.
        assert!([2, 3, 5, 0x7f].iter().all(|kind| with(*kind).is_none()));
        assert!(
            [0, 1, 4, 0x81, 0x84]
                .iter()
                .all(|kind| with(*kind).is_some())
        );
    }

    #[test]
    fn frames_of_this_machine_are_distinguished() {
        assert_eq!(
            KIND,
            32 + std::mem::offset_of!(libc::sockaddr_ll, sll_pkttype)
        );
        let mut own = slot(&frame(60), [0; 10]);
        assert!(!is_outgoing(&own));
        own[KIND] = libc::PACKET_OUTGOING;
        assert!(is_outgoing(&own));
    }

    #[test]
    fn a_frame_is_written_where_the_kernel_reads_it() {
        let mut slot = vec![0; 200];
        pack(&mut slot, 100).unwrap().fill(7);
        assert_eq!(
            slot[LENGTH..LENGTH + 4],
            100u32.to_ne_bytes(),
            "struct tpacket2_hdr, tp_len"
        );
        assert_eq!(
            SEND_OFFSET,
            libc::TPACKET2_HDRLEN - size_of::<libc::sockaddr_ll>()
        );
        assert!(slot[SEND_OFFSET..SEND_OFFSET + 100].iter().all(|o| *o == 7));
        assert!(slot[SEND_OFFSET + 100..].iter().all(|o| *o == 0));
        assert!(pack(&mut slot, 168).is_some() && pack(&mut slot, 169).is_none());
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
            if let Some(length) = unpack(status, &slot, 120, &mut to) {
                prop_assert!((ETHERNET_HEADER..=128).contains(&length));
            }
        }
    }
}
