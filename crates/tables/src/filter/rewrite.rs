// SPDX-License-Identifier: Apache-2.0
//! Changes of frames by statements of filter rules, and the headers that they require. Frames are octets from the MAC addresses on, with up
//! to two tags. Checksums are updated, not computed again (RFC 1624), so a wrong one stays wrong.

use std::ops::Range;

use quietwire_packet::{
    Fragment, IPV6_HEADER_LENGTH, IpProtocol, Ipv6Header, update_checksum_u16, walk_ipv6_extensions,
};

use super::pattern::{IPV4, IPV4_HEADER, IPV6, after_tags};

const TCP: u8 = 6;
const TCP_HEADER: usize = 20;
const SYN: u8 = 2;
/// Kinds of TCP options (RFC 9293, section 3.1).
const END: u8 = 0;
const NOTHING: u8 = 1;
const MSS: u8 = 2;
/// Length of the option with the maximum segment size (RFC 9293, section 3.7.1).
const MSS_LENGTH: usize = 4;

/// Headers of IP and TCP without options, which a maximum segment size does not include (RFC 9293, section 3.7.1; RFC 6691).
const MSS_HEADERS_IPV4: u16 = 40;
const MSS_HEADERS_IPV6: u16 = 60;

/// Returns the EtherType behind the tags, and the offset of the payload.
pub(super) fn network_at(frame: &[u8]) -> Option<(u16, usize)> {
    let (_, rest) = after_tags(frame)?;
    let [a, b] = rest.first_chunk::<2>()?;
    let at = frame.len().checked_sub(rest.len())?.checked_add(2)?;
    Some((u16::from_be_bytes([*a, *b]), at))
}

/// Sets the DSCP of an IPv4 or IPv6 packet (RFC 2474), and leaves the ECN field (RFC 3168). Returns true if the frame has changed. `dscp` is
/// at most 63.
pub fn set_dscp(frame: &mut [u8], dscp: u8) -> bool {
    change_dscp(frame, dscp & 0x3f).unwrap_or(false)
}

fn change_dscp(frame: &mut [u8], dscp: u8) -> Option<bool> {
    let (ethertype, at) = network_at(frame)?;
    let packet = frame.get_mut(at..)?;
    let [first, second, ..] = packet.first_chunk_mut::<IPV4_HEADER>()?;
    let before = [*first, *second];
    match (ethertype, *first >> 4) {
        (IPV4, 4) if *first & 0xf >= 5 => {
            *second = dscp << 2 | *second & 3;
            let after = [*first, *second];
            let [.., high, low, _, _, _, _, _, _, _, _] =
                packet.first_chunk_mut::<IPV4_HEADER>()?;
            let [before, after] = [before, after].map(u16::from_be_bytes);
            let sum = u16::from_be_bytes([*high, *low]);
            if before != after {
                [*high, *low] = update_checksum_u16(sum, before, after).to_be_bytes();
            }
            Some(before != after)
        }
        (IPV6, 6) => {
            // The traffic class is behind the version (RFC 8200, section 3).
            *first = *first & 0xf0 | dscp >> 2;
            *second = dscp << 6 | *second & 0x3f;
            Some(before != [*first, *second])
        }
        _ => None,
    }
}

/// Returns the place of the TCP segment of a whole packet or first fragment, to the end of the frame.
fn tcp_at(frame: &[u8]) -> Option<Range<usize>> {
    let (ethertype, at) = network_at(frame)?;
    let packet = frame.get(at..)?;
    let header = match ethertype {
        IPV4 => {
            let fixed = packet.first_chunk::<IPV4_HEADER>()?;
            let [first, .., f, g, _, protocol, _, _, _, _, _, _, _, _, _, _] = *fixed;
            let length = usize::from(first & 0xf).checked_mul(4)?;
            let is_first = u16::from_be_bytes([f, g]) & 0x1fff == 0;
            (first >> 4 == 4 && length >= IPV4_HEADER && is_first && protocol == TCP)
                .then_some(length)?
        }
        IPV6 => {
            let (header, payload) = Ipv6Header::split(packet).ok()?;
            let walked = walk_ipv6_extensions(header.next_header(), payload).ok()?;
            let is_tcp = walked.protocol == IpProtocol(TCP) && walked.fragment != Fragment::Later;
            is_tcp.then_some(IPV6_HEADER_LENGTH.checked_add(walked.length)?)?
        }
        _ => return None,
    };
    Some(at.checked_add(header)?..frame.len())
}

/// Lowers the maximum segment size of a TCP SYN segment to `mss`. A smaller one, and a segment without the option, stay as they are. Returns
/// true if the frame has changed.
pub fn clamp_mss(frame: &mut [u8], mss: u16) -> bool {
    lower_mss(frame, mss).unwrap_or(false)
}

/// Lowers the maximum segment size of a TCP SYN segment to the MTU of its path less 40 octets of headers in IPv4, or 60 in IPv6 (RFC 9293,
/// section 3.7.1). `mtu_of` returns the MTU, given the VLAN of the outermost tag; `None` changes nothing. Returns true if the frame has
/// changed.
pub fn clamp_mss_to_mtu(frame: &mut [u8], mtu_of: impl FnOnce(Option<u16>) -> Option<u16>) -> bool {
    let Some((vlan, rest)) = after_tags(frame) else {
        return false;
    };
    let ethertype = rest.first_chunk().copied().map(u16::from_be_bytes);
    let headers = match ethertype {
        Some(IPV4) => MSS_HEADERS_IPV4,
        Some(IPV6) => MSS_HEADERS_IPV6,
        _ => return false,
    };
    mtu_of(vlan).is_some_and(|mtu| clamp_mss(frame, mtu.saturating_sub(headers)))
}

fn lower_mss(frame: &mut [u8], mss: u16) -> Option<bool> {
    let place = tcp_at(frame)?;
    let segment = frame.get_mut(place)?;
    let fixed = segment.first_chunk::<TCP_HEADER>()?;
    let [.., words, flags, _, _, _, _, _, _] = *fixed;
    if flags & SYN == 0 {
        return None;
    }
    let end = usize::from(words >> 4).checked_mul(4)?;
    let mut at = TCP_HEADER;
    // Every option is at least one octet long.
    while at < end {
        let kind = *segment.get(at)?;
        let length = match kind {
            END => return None,
            NOTHING => 1,
            _ => usize::from(*segment.get(at.checked_add(1)?)?),
        };
        let next = at.checked_add(length)?;
        if (kind != NOTHING && length < 2) || next > end {
            return None;
        }
        if kind == MSS && length == MSS_LENGTH {
            return set_mss(segment, at.checked_add(2)?, mss);
        }
        at = next;
    }
    None
}

/// Lowers the maximum segment size at this offset of a segment.
fn set_mss(segment: &mut [u8], at: usize, mss: u16) -> Option<bool> {
    let value = segment.get_mut(at..)?.first_chunk_mut::<2>()?;
    let before = u16::from_be_bytes(*value);
    if before <= mss {
        return Some(false);
    }
    *value = mss.to_be_bytes();
    // At an odd offset, each octet of the value is in the other half of a word (RFC 1071, section 2 (B)).
    let (before, after) = match at & 1 {
        0 => (before, mss),
        _ => (before.swap_bytes(), mss.swap_bytes()),
    };
    let [.., high, low, _, _] = segment.first_chunk_mut::<TCP_HEADER>()?;
    let sum = u16::from_be_bytes([*high, *low]);
    [*high, *low] = update_checksum_u16(sum, before, after).to_be_bytes();
    Some(true)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quietwire_packet::{Checksum, checksum};

    use super::*;

    /// Returns a frame with a tag if `is_tagged`, and a TCP segment with these options, padded.
    fn segment(is_ipv4: bool, is_tagged: bool, flags: u8, options: &[u8]) -> Vec<u8> {
        let mut options = options.to_vec();
        options.resize(options.len().next_multiple_of(4), 0);
        let words = u8::try_from(5 + options.len() / 4).unwrap();
        let mut tcp = vec![
            4,
            0,
            0,
            80,
            1,
            2,
            3,
            4,
            0,
            0,
            0,
            0,
            words << 4,
            flags,
            255,
            255,
            0,
            0,
            0,
            0,
        ];
        tcp.extend(&options);
        let addresses: Vec<u8> = if is_ipv4 {
            vec![10, 0, 0, 1, 10, 0, 0, 2]
        } else {
            (1..33).collect()
        };
        let length = u16::try_from(tcp.len()).unwrap();
        let sum = tcp_sum(&addresses, &tcp);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        let mut frame = vec![2; 12];
        if is_tagged {
            frame.extend([0x81, 0, 0, 7]);
        }
        if is_ipv4 {
            frame.extend([8, 0]);
            let mut header = vec![0x45, 0x03];
            header.extend((20 + length).to_be_bytes());
            header.extend([0, 1, 0, 0, 64, 6, 0, 0]);
            header.extend(addresses);
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend(header);
        } else {
            frame.extend([0x86, 0xdd, 0x60, 0x30, 0, 9]);
            frame.extend(length.to_be_bytes());
            frame.extend([6, 64]);
            frame.extend(addresses);
        }
        frame.extend(tcp);
        frame
    }

    fn tcp_sum(addresses: &[u8], tcp: &[u8]) -> u16 {
        let mut sum = Checksum::new();
        sum.add(addresses);
        sum.add(&(tcp.len() as u32).to_be_bytes());
        sum.add(&[0, 0, 0, 6]);
        sum.add(tcp);
        sum.finish()
    }

    /// Returns whether all checksums of such a frame are right.
    fn is_right(frame: &[u8]) -> bool {
        let (ethertype, at) = network_at(frame).unwrap();
        let (header, addresses) = match ethertype {
            IPV4 => (20, 12..20),
            _ => (40, 8..40),
        };
        let packet = &frame[at..];
        let is_header_right = ethertype != IPV4 || checksum(&packet[..20]) == 0;
        is_header_right && tcp_sum(&packet[addresses], &packet[header..]) == 0
    }

    fn mss_of(frame: &[u8], at: usize) -> u16 {
        let segment = &frame[tcp_at(frame).unwrap()];
        u16::from_be_bytes([segment[20 + at], segment[21 + at]])
    }

    #[test]
    fn the_mss_of_a_syn_is_lowered_and_never_raised() {
        // The option first, behind one octet of padding, and behind another option.
        for (options, at) in [
            (vec![2, 4, 5, 180], 2),
            (vec![1, 2, 4, 5, 180], 3),
            (vec![3, 3, 7, 2, 4, 5, 180], 5),
            (vec![4, 2, 2, 4, 255, 255], 4),
        ] {
            for (is_ipv4, is_tagged) in [(true, false), (false, false), (true, true), (false, true)]
            {
                for flags in [SYN, SYN | 0x10] {
                    let mut frame = segment(is_ipv4, is_tagged, flags, &options);
                    assert!(is_right(&frame));
                    assert!(clamp_mss(&mut frame, 1400), "{options:?}");
                    assert_eq!(mss_of(&frame, at), 1400);
                    assert!(is_right(&frame), "{options:?} {is_ipv4} {is_tagged}");
                    let before = frame.clone();
                    assert!(!clamp_mss(&mut frame, 1460));
                    assert_eq!(frame, before);
                }
            }
        }
    }

    #[test]
    fn the_mss_is_lowered_to_the_mtu_less_the_headers_of_the_packet() {
        let options = [2, 4, 5, 180];
        for (is_ipv4, mtu, expected) in [
            (true, 1420, 1380),
            (false, 1420, 1360),
            (true, 1500, 1460),
            (false, 1520, 1460),
            (true, 9000, 1460),
            (true, 68, 28),
            (false, 1280, 1220),
            // No packet has space for the headers.
            (true, 39, 0),
        ] {
            for is_tagged in [false, true] {
                let mut frame = segment(is_ipv4, is_tagged, SYN, &options);
                let is_changed = clamp_mss_to_mtu(&mut frame, |vlan| {
                    assert_eq!(vlan, is_tagged.then_some(7));
                    Some(mtu)
                });
                assert_eq!(is_changed, expected < 1460, "{mtu}");
                assert_eq!(mss_of(&frame, 2), expected, "{mtu}");
                assert!(is_right(&frame), "{mtu}");
            }
        }
        let mut frame = segment(true, false, SYN, &options);
        assert!(!clamp_mss_to_mtu(&mut frame, |_| None));
        // ARP has no segments, and a truncated frame no EtherType.
        frame[12..14].copy_from_slice(&[8, 6]);
        assert!(!clamp_mss_to_mtu(&mut frame, |_| panic!("ARP")));
        assert!(!clamp_mss_to_mtu(&mut frame[..13], |_| panic!("truncated")));
    }

    proptest! {
        /// The MTU has the same effect as its number of octets.
        #[test]
        fn the_mss_of_an_mtu_is_that_of_the_same_octets(
            is_ipv4 in any::<bool>(),
            is_tagged in any::<bool>(),
            flags in prop::sample::select(vec![SYN, SYN | 0x10, 0x10]),
            options in prop::collection::vec(0..6u8, 0..12),
            mtu in any::<u16>(),
        ) {
            let mut frame = segment(is_ipv4, is_tagged, flags, &options);
            let mut expected = frame.clone();
            let mss = mtu.saturating_sub(if is_ipv4 { 40 } else { 60 });
            let is_changed = clamp_mss(&mut expected, mss);
            prop_assert_eq!(clamp_mss_to_mtu(&mut frame, |_| Some(mtu)), is_changed);
            prop_assert_eq!(frame, expected);
        }
    }

    #[test]
    fn other_segments_keep_their_options() {
        for (flags, options) in [
            (0x10, vec![2, 4, 5, 180]),
            (SYN, vec![]),
            (SYN, vec![0, 2, 4, 5, 180]),
            (SYN, vec![3, 0, 2, 4, 5, 180, 0, 0]),
            (SYN, vec![3, 1, 2, 4, 5, 180, 0, 0]),
            (SYN, vec![3, 40, 2, 4, 5, 180, 0, 0]),
            (SYN, vec![2, 3, 5, 0]),
            (SYN, vec![2, 6, 5, 180, 0, 0, 0, 0]),
            (SYN, vec![1, 1, 1, 2]),
        ] {
            let mut frame = segment(true, false, flags, &options);
            let before = frame.clone();
            assert!(!clamp_mss(&mut frame, 100), "{options:?}");
            assert_eq!(frame, before);
        }
        // A later fragment has no options.
        let mut frame = segment(true, false, SYN, &[2, 4, 5, 180]);
        frame[14 + 7] = 1;
        assert!(!clamp_mss(&mut frame, 100));
    }

    #[test]
    fn the_dscp_changes_and_ecn_and_flow_label_stay() {
        for is_ipv4 in [true, false] {
            for dscp in 0..64u8 {
                let mut frame = segment(is_ipv4, dscp % 2 == 0, 0x10, &[]);
                let before = frame.clone();
                let at = network_at(&frame).unwrap().1;
                let class = |frame: &[u8]| match is_ipv4 {
                    true => frame[at + 1],
                    false => frame[at] << 4 | frame[at + 1] >> 4,
                };
                let is_other = class(&before) >> 2 != dscp;
                assert_eq!(set_dscp(&mut frame, dscp), is_other);
                assert_eq!(class(&frame), dscp << 2 | 3);
                assert!(is_right(&frame), "{dscp}");
                let others = |frame: &[u8]| match is_ipv4 {
                    true => [frame[at] >> 4, 0],
                    false => [frame[at] >> 4, frame[at + 1] & 0xf],
                };
                assert_eq!(others(&frame), others(&before));
                assert!(!set_dscp(&mut frame, dscp));
            }
        }
        let mut arp = vec![2; 60];
        arp[12..14].copy_from_slice(&[8, 6]);
        assert!(!set_dscp(&mut arp, 46));
    }

    proptest! {
        /// Any octets: no panic, and nothing changes in frames that are not IP.
        #[test]
        fn any_octets_are_safe(
            start in prop::sample::select(vec![[8u8, 0, 0x45], [8, 0, 0x46], [0x86, 0xdd, 0x60], [8, 6, 0]]),
            mut rest in prop::collection::vec(any::<u8>(), 0..120),
            value in any::<u16>(),
        ) {
            let mut frame = vec![2; 12];
            frame.extend(start);
            frame.append(&mut rest);
            let before = frame.clone();
            let changed = set_dscp(&mut frame, (value & 63) as u8) | clamp_mss(&mut frame, value);
            prop_assert_eq!(changed, frame != before);
            prop_assert_eq!(frame.len(), before.len());
        }

        /// Segments with any options keep right checksums.
        #[test]
        fn checksums_stay_right(
            options in prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 3, 4, 5, 180, 255]), 0..40),
            is_ipv4 in any::<bool>(),
            (mss, dscp) in (any::<u16>(), 0..64u8),
        ) {
            let mut frame = segment(is_ipv4, false, SYN, &options);
            set_dscp(&mut frame, dscp);
            clamp_mss(&mut frame, mss);
            prop_assert!(is_right(&frame));
        }
    }
}
