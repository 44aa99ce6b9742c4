// SPDX-License-Identifier: Apache-2.0
//! Frames over IPv6 and TCP, and frames with accidentally correct sums.

use super::super::*;
use super::frame;

const PAYLOAD: &[u8] = b"QW payload of some octets";
const MACS: ([u8; 6], [u8; 6]) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);

/// Offset of the UDP checksum, and of a zero word in the payload of [`frame`].
const CHECKSUM: usize = 40;
const FREE: usize = 100;

fn built(step: etherparse::PacketBuilderStep<etherparse::UdpHeader>) -> Vec<u8> {
    let mut frame = Vec::new();
    step.write(&mut frame, PAYLOAD).unwrap();
    frame
}

/// Returns the octets in which a changed bit goes unnoticed.
fn unnoticed(checksums: &Checksums, frame: &[u8]) -> Vec<usize> {
    assert!(checksums.are_right(frame));
    let is_unnoticed = |at: &usize| {
        let mut damaged = frame.to_vec();
        damaged[*at] ^= 0x10;
        checksums.are_right(&damaged)
    };
    (0..frame.len()).filter(is_unnoticed).collect()
}

#[test]
fn over_ipv6_the_datagram_and_the_addresses_are_covered() {
    let frame = built(
        etherparse::PacketBuilder::ethernet2(MACS.0, MACS.1)
            .ipv6([0x20; 16], [0x31; 16], 64)
            .udp(1024, 7),
    );
    let checksums = Checksums::of_plain(IpVersion::V6);
    // No checksum covers the Ethernet header and the first eight octets of the IPv6 header.
    assert_eq!(
        unnoticed(&checksums, &frame),
        (0..22).collect::<Vec<usize>>()
    );
    assert!(!checksums.are_right(&frame[..frame.len() - 1]));
}

#[test]
fn over_ipv4_all_behind_the_ethernet_header_is_covered_with_padding_too() {
    let checksums = Checksums::of_plain(IpVersion::V4);
    let mut frame = frame(71);
    let head: Vec<usize> = (0..ETHERNET).collect();
    assert_eq!(unnoticed(&checksums, &frame), head);
    let end = frame.len();
    frame.extend([0xa5; 6]);
    let padding = end..frame.len();
    assert_eq!(
        unnoticed(&checksums, &frame),
        head.into_iter().chain(padding).collect::<Vec<usize>>()
    );
}

#[test]
fn tcp_covers_all_to_the_end_of_the_frame() {
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ethernet2(MACS.0, MACS.1)
        .ipv4([198, 18, 0, 1], [198, 18, 1, 1], 64)
        .tcp(1024, 80, 7, 1000)
        .write(&mut frame, PAYLOAD)
        .unwrap();
    let checksums = Checksums::new(vec![Cover::Rest {
        from: 34,
        addresses: 26..34,
        protocol: IpProtocol::TCP.0,
    }]);
    assert_eq!(
        unnoticed(&checksums, &frame),
        (0..26).collect::<Vec<usize>>()
    );
    frame.extend([1, 0]);
    assert!(!checksums.are_right(&frame));
}

#[test]
fn every_cover_has_to_be_right() {
    let cover = |range| Cover::Header(range);
    // Two octets of ones are a correct sum, two octets of zeros are not.
    let frame = [0xff, 0xff, 0, 0];
    assert!(Checksums::new(vec![cover(0..2)]).are_right(&frame));
    assert!(!Checksums::new(vec![cover(2..4)]).are_right(&frame));
    assert!(!Checksums::new(vec![cover(0..2), cover(2..4)]).are_right(&frame));
    assert!(!Checksums::new(vec![cover(0..8)]).are_right(&frame));
    assert!(Checksums::new(Vec::new()).are_right(&frame));
}

#[test]
fn a_plain_frame_is_right_by_one_sum() {
    for size in [71, 72, 73, 200, 1518] {
        assert!(is_right_plain_v4(&frame(size)), "{size}");
    }
    // A padded frame does not pass: its sums are verified separately.
    let mut padded = frame(71);
    padded.push(0);
    assert!(!is_right_plain_v4(&padded));
}

/// Replaces the checksum of a datagram by all ones, and compensates for it in the payload.
fn with_checksum_of_ones() -> Vec<u8> {
    let mut frame = frame(200);
    assert_eq!(frame[FREE..FREE + 2], [0, 0]);
    frame.copy_within(CHECKSUM..CHECKSUM + 2, FREE);
    frame[CHECKSUM..CHECKSUM + 2].fill(0xff);
    frame
}

#[test]
fn a_checksum_of_zeros_is_none_even_if_the_sum_would_be_right() {
    let checksums = Checksums::of_plain(IpVersion::V4);
    let mut frame = with_checksum_of_ones();
    assert!(checksums.are_right(&frame));
    // Zeros and ones are both zero in the sum.
    frame[CHECKSUM..CHECKSUM + 2].fill(0);
    assert!(!checksums.are_right(&frame));
    frame.extend([0xa5; 4]);
    assert!(!checksums.are_right(&frame));
}

#[test]
fn a_wrong_length_is_found_even_if_the_sum_of_the_whole_frame_is_right() {
    let checksums = Checksums::of_plain(IpVersion::V4);
    let mut frame = frame(200);
    let length = u16::from_be_bytes([frame[38], frame[39]]);
    frame[38..40].copy_from_slice(&(length - 2).to_be_bytes());
    frame[FREE + 1] = 2;
    assert!(!checksums.are_right(&frame));
}
