// SPDX-License-Identifier: Apache-2.0
//! Verification of the checksums in received frames over every octet that they cover.

// Frames from outside: no cast loses a sign.
#![cfg_attr(not(test), deny(clippy::cast_sign_loss))]

// Sums of 16-bit words in memory order: the ones' complement sum is independent of the byte order (RFC 1071, section 2). In the loop over
// received frames, `quietwire_packet::native_sum` is slower for frames of 64 octets.
use quietwire_memory::{Span, sum_of_words as sum};
use quietwire_packet::{IpProtocol, fold_sum};

use crate::narrow::low_u16;
use crate::traffic::Cover;
use crate::trial::IpVersion;

/// Octets of the Ethernet header of the tester's plain frames.
const ETHERNET: usize = 14;
/// Offset of the UDP length within the UDP header (RFC 768).
const UDP_LENGTH: usize = 4;
/// Offset of the UDP checksum.
const UDP_CHECKSUM: usize = 6;

/// Verifier of the checksums of one kind of frame.
#[derive(Clone, Debug)]
pub(crate) struct Checksums {
    covers: Vec<Cover>,
    /// The IP version of plain frames.
    plain: Option<IpVersion>,
}

impl Checksums {
    /// Creates the verifier for frames of a traffic description.
    pub(crate) fn new(covers: Vec<Cover>) -> Self {
        Self {
            covers,
            plain: None,
        }
    }

    /// Creates the verifier for the tester's plain frames: IPv4 header and UDP, or UDP alone over IPv6.
    pub(crate) fn of_plain(ip: IpVersion) -> Self {
        let (addresses, udp) = match ip {
            IpVersion::V4 => (26..34, 34),
            IpVersion::V6 => (22..54, 54),
        };
        let of_udp = Cover::Rest {
            from: udp,
            addresses,
            protocol: IpProtocol::UDP.0,
        };
        let mut covers = vec![of_udp];
        if ip == IpVersion::V4 {
            covers.push(Cover::Header(ETHERNET..udp));
        }
        Self {
            covers,
            plain: Some(ip),
        }
    }

    /// Returns the IP version of the tester's plain frames; `None` for frames of a traffic description.
    pub(crate) fn plain(&self) -> Option<IpVersion> {
        self.plain
    }

    /// Returns true if all checksums of a frame are correct and all octets that they cover are present.
    #[inline(always)]
    pub(crate) fn are_right(&self, frame: &[u8]) -> bool {
        (self.plain == Some(IpVersion::V4) && is_right_plain_v4(frame))
            || self.covers.iter().all(|cover| is_right(cover, frame))
    }

    /// Returns true only if all checksums of a frame without padding are correct. `head` has its first octets, with all headers, and `rest`
    /// the others, each of which is read once. Otherwise, a copy of the frame decides.
    #[inline(always)]
    pub(crate) fn are_right_in_place(&self, head: &[u8], rest: Span<'_>) -> bool {
        let rest = (rest.sum_of_words(), rest.len());
        let mut covers = self.covers.iter();
        covers.all(|cover| is_right_in_place(cover, head, rest))
    }
}

/// Verifies a checksum of a frame whose octets after `head` have this sum and number.
#[inline(always)]
fn is_right_in_place(cover: &Cover, head: &[u8], (rest, rest_length): (u64, usize)) -> bool {
    let Cover::Rest {
        from,
        addresses,
        protocol,
    } = cover
    else {
        return is_right(cover, head);
    };
    let (Some(start), Some(addresses)) = (head.get(*from..), head.get(addresses.clone())) else {
        return false;
    };
    let length = start.len().wrapping_add(rest_length) as u64;
    let length = low_u16(length).to_be_bytes();
    // The sum of the rest begins with a word.
    if !start.len().is_multiple_of(2)
        || (*protocol == IpProtocol::UDP.0 && !is_datagram(start, length))
    {
        return false;
    }
    let total = sum(start)
        .wrapping_add(rest)
        .wrapping_add(sum(addresses))
        .wrapping_add(length_and_protocol(length, *protocol));
    fold_sum(total) == u16::MAX
}

/// Returns the sum of the words of a pseudo header after the addresses.
#[inline(always)]
fn length_and_protocol(length: [u8; 2], protocol: u8) -> u64 {
    let protocol = u16::from(protocol).to_be();
    u64::from(u16::from_ne_bytes(length)).wrapping_add(u64::from(protocol))
}

/// Returns true if octets begin with the header of a UDP datagram of this length that has a checksum.
#[inline(always)]
fn is_datagram(octets: &[u8], length: [u8; 2]) -> bool {
    let checksum = octets.get(UDP_CHECKSUM..UDP_CHECKSUM + 2);
    octets.get(UDP_LENGTH..UDP_LENGTH + 2) == Some(&length[..])
        && checksum.is_some_and(|checksum| checksum != [0, 0])
}

/// Octets of a plain IPv4 frame that are summed without a loop.
const PLAIN_HEAD: usize = 60;

/// Returns true only if both checksums of a plain IPv4 frame without padding are correct. One sum verifies both, so a frame in which two
/// wrong words cancel out passes here.
#[inline(always)]
fn is_right_plain_v4(frame: &[u8]) -> bool {
    const UDP: usize = 34;
    let Some((head, rest)) = frame.split_first_chunk::<PLAIN_HEAD>() else {
        return false;
    };
    let length = low_u16(frame.len().wrapping_sub(UDP) as u64).to_be_bytes();
    if head[UDP + UDP_LENGTH..UDP + UDP_LENGTH + 2] != length
        || head[UDP + UDP_CHECKSUM..UDP + UDP_CHECKSUM + 2] == [0, 0]
    {
        return false;
    }
    let total = sum(&head[ETHERNET..UDP])
        .wrapping_add(sum(&head[26..UDP]))
        .wrapping_add(sum(&head[UDP..]))
        .wrapping_add(sum(rest))
        .wrapping_add(length_and_protocol(length, IpProtocol::UDP.0));
    fold_sum(total) == u16::MAX
}

#[inline(always)]
fn is_right(cover: &Cover, frame: &[u8]) -> bool {
    match cover {
        Cover::Header(range) => frame
            .get(range.clone())
            .is_some_and(|header| fold_sum(sum(header)) == u16::MAX),
        Cover::Rest {
            from,
            addresses,
            protocol,
        } => {
            let Some(rest) = frame.get(*from..) else {
                return false;
            };
            let covered = if *protocol == IpProtocol::UDP.0 {
                covered_by_udp(rest)
            } else {
                Some(rest)
            };
            let (Some(covered), Some(addresses)) = (covered, frame.get(addresses.clone())) else {
                return false;
            };
            let length = low_u16(covered.len() as u64).to_be_bytes();
            let total = sum(covered)
                .wrapping_add(sum(addresses))
                .wrapping_add(length_and_protocol(length, *protocol));
            fold_sum(total) == u16::MAX
        }
    }
}

/// Returns the octets of a UDP datagram, by its length field. Returns `None` if some are missing, or if the datagram has no checksum.
#[inline(always)]
fn covered_by_udp(datagram: &[u8]) -> Option<&[u8]> {
    let [.., high, low] = *datagram.first_chunk::<{ UDP_LENGTH + 2 }>()?;
    let checksum = datagram.get(UDP_CHECKSUM..UDP_CHECKSUM + 2)?;
    if checksum == [0, 0] {
        return None;
    }
    datagram.get(..usize::from(u16::from_be_bytes([high, low])))
}

#[cfg(test)]
mod tests {
    mod verified;

    use std::net::Ipv4Addr;

    use proptest::prelude::*;
    use quietwire_packet::{MacAddress, UdpChecksum, UdpFrame};

    use super::*;

    fn frame(size: u16) -> Vec<u8> {
        let mut buffer = vec![0; 2000];
        let frame = UdpFrame {
            destination_mac: MacAddress([2, 0, 0, 0, 0, 1]),
            source_mac: MacAddress([2, 0, 0, 0, 0, 2]),
            tag: None,
            destination_ip: Ipv4Addr::new(198, 18, 0, 1),
            source_ip: Ipv4Addr::new(198, 18, 1, 1),
            ttl: 64,
            destination_port: 7,
            source_port: 1024,
            udp_checksum: UdpChecksum::Computed,
            payload: b"QW payload of some octets",
            size_with_fcs: size,
        };
        let length = frame.write(&mut buffer).unwrap();
        buffer.truncate(length);
        buffer
    }

    proptest! {
        #[test]
        fn every_changed_bit_behind_the_ethernet_header_is_found(
            size in 71u16..1600, at in any::<prop::sample::Index>(), bit in 0..8,
        ) {
            let checksums = Checksums::of_plain(IpVersion::V4);
            let mut frame = frame(size);
            prop_assert!(checksums.are_right(&frame));
            let at = ETHERNET + at.index(frame.len() - ETHERNET);
            frame[at] ^= 1u8 << bit;
            prop_assert!(!checksums.are_right(&frame), "octet {}", at);
        }

        #[test]
        fn a_frame_cut_short_is_found_and_padding_is_not_damage(
            size in 71u16..1600, at in any::<prop::sample::Index>(), padding in 0usize..20,
        ) {
            let checksums = Checksums::of_plain(IpVersion::V4);
            let mut frame = frame(size);
            let cut = at.index(frame.len());
            prop_assert!(!checksums.are_right(&frame[..cut]));
            frame.resize(frame.len() + padding, 0xa5);
            prop_assert!(checksums.are_right(&frame));
        }
    }

    #[test]
    fn a_right_frame_of_another_ip_version_is_damaged() {
        let frame = frame(200);
        assert!(Checksums::of_plain(IpVersion::V4).are_right(&frame));
        assert!(!Checksums::of_plain(IpVersion::V6).are_right(&frame));
    }

    #[test]
    fn a_datagram_without_a_checksum_is_damaged() {
        let mut frame = frame(200);
        frame[40..42].fill(0);
        assert!(!Checksums::of_plain(IpVersion::V4).are_right(&frame));
    }
}
