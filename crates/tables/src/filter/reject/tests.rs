// SPDX-License-Identifier: Apache-2.0
//! Answers compared with those of the router's ICMP, and with the rules of the RFCs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use quietwire_packet::checksum;

use super::*;

/// Returns a frame to `02:00:00:00:00:01` from `02:00:00:00:00:02` with this packet.
fn frame(tags: &[u16], packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for vlan in tags {
        frame.extend([0x81, 0]);
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend(match packet[0] >> 4 {
        4 => [8, 0],
        _ => [0x86, 0xdd],
    });
    frame.extend(packet);
    frame
}

fn ipv4(source: [u8; 4], protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(20 + payload.len()).unwrap();
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 7]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend(source);
    packet.extend([198, 51, 100, 1]);
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

fn ipv6(source: Ipv6Addr, next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    packet.extend([next, 64]);
    packet.extend(source.octets());
    packet.extend(DESTINATION_V6.octets());
    packet.extend(payload);
    packet
}

const SOURCE_V4: [u8; 4] = [192, 0, 2, 9];
const SOURCE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);
const DESTINATION_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 1);

/// Returns a segment whose checksum field is zero.
fn tcp(flags: u8, sequence: u32, acknowledgement: u32, data: &[u8]) -> Vec<u8> {
    let mut segment = vec![0x13, 0x88, 0, 80];
    segment.extend(sequence.to_be_bytes());
    segment.extend(acknowledgement.to_be_bytes());
    segment.extend([0x60, flags, 255, 255, 0, 0, 0, 0]);
    segment.extend([2, 4, 5, 180]);
    segment.extend(data);
    segment
}

/// Completes the checksum of the TCP segment in a packet whose header has this length.
fn complete(mut packet: Vec<u8>, header: usize) -> Vec<u8> {
    let addresses = match header {
        20 => 12..20,
        _ => 8..40,
    };
    let length = u32::try_from(packet.len() - header).unwrap();
    let mut sum = Checksum::new();
    sum.add(&packet[addresses]);
    sum.add(&length.to_be_bytes());
    sum.add(&[0, 0, 0, TCP]);
    sum.add(&packet[header..]);
    let sum = sum.finish().to_be_bytes();
    packet[header + 16..header + 18].copy_from_slice(&sum);
    packet
}

/// Returns the default answer as a frame.
fn answer(frame: &[u8]) -> Option<Vec<u8>> {
    answer_with(frame, None)
}

/// Returns the answer as a frame, with this error or the default one.
fn answer_with(frame: &[u8], with: Option<RejectWith>) -> Option<Vec<u8>> {
    let rejection = Rejection::of(frame, None, with)?;
    let mut out = vec![0xee; rejection.frame_length()];
    assert!(rejection.write(frame, &mut out));
    // There is no space less.
    let mut short = vec![0; out.len() - 1];
    assert!(!rejection.write(frame, &mut short));
    Some(out)
}

/// Returns sequence and acknowledgement number and flags of a reset whose ports and checksums are right.
fn reset_of(frame: &[u8], header: usize) -> (u32, u32, u8) {
    let out = answer(frame).unwrap();
    assert_eq!(out[..6], frame[6..12]);
    assert_eq!(out[6..12], frame[..6]);
    let packet = &out[14..];
    let addresses = match header {
        20 => 12..20,
        _ => 8..40,
    };
    if header == 20 {
        assert_eq!(checksum(&packet[..20]), 0);
    }
    let segment = &packet[header..];
    let mut sum = Checksum::new();
    sum.add(&packet[addresses]);
    sum.add(&[0, 0, 0, 20, 0, 0, 0, TCP]);
    sum.add(segment);
    assert_eq!(sum.finish(), 0);
    assert_eq!(segment[..4], [0, 80, 0x13, 0x88]);
    let number = |at: usize| u32::from_be_bytes(segment[at..at + 4].try_into().unwrap());
    (number(4), number(8), segment[13])
}

#[test]
fn resets_have_the_numbers_of_rfc_9293() {
    let whole = |segment: &[u8]| {
        [
            (ipv4(SOURCE_V4, TCP, 0, segment), 20),
            (ipv6(SOURCE_V6, TCP, segment), 40),
        ]
        .map(|(packet, header)| (frame(&[], &complete(packet, header)), header))
    };
    for (segment, expected) in [
        (tcp(SYN, 1000, 0, &[]), (0, 1001, RST | ACK)),
        (tcp(SYN, u32::MAX, 0, &[]), (0, 0, RST | ACK)),
        (tcp(SYN | FIN, 5, 0, &[1; 10]), (0, 17, RST | ACK)),
        (tcp(0, 5, 9, &[1; 10]), (0, 15, RST | ACK)),
        (
            tcp(ACK, 5, 4_000_000_000, &[1; 10]),
            (4_000_000_000, 0, RST),
        ),
        (tcp(SYN | ACK, 5, 6, &[]), (6, 0, RST)),
    ] {
        for (frame, header) in whole(&segment) {
            assert_eq!(reset_of(&frame, header), expected, "{segment:?}");
        }
    }
    for (frame, _) in whole(&tcp(RST, 1, 1, &[])) {
        assert_eq!(answer(&frame), None);
    }
    for (frame, _) in whole(&tcp(RST | ACK, 1, 1, &[])) {
        assert_eq!(answer(&frame), None);
    }
    // A first fragment has the checksum of the whole segment.
    for flags in [SYN, ACK] {
        let first = ipv4(SOURCE_V4, TCP, 0x2000, &tcp(flags, 1, 2, &[0; 16]));
        assert_eq!(answer(&frame(&[], &complete(first, 20))), None);
    }
}

#[test]
fn segments_with_a_wrong_checksum_are_not_answered_unless_it_is_not_complete_yet() {
    for (packet, header) in [
        (ipv4(SOURCE_V4, TCP, 0, &tcp(ACK, 5, 6, &[1; 11])), 20),
        (ipv6(SOURCE_V6, TCP, &tcp(ACK, 5, 6, &[1; 11])), 40),
    ] {
        let good = frame(&[], &complete(packet, header));
        assert_eq!(reset_of(&good, header), (6, 0, RST));
        for at in 14 + header..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_eq!(answer(&bad), None, "octet {at}");
        }
        // A wrong address changes the pseudo header. That of IPv4 is also in the checksum of its header.
        let mut bad = good.clone();
        bad[14 + header - 1] ^= 1;
        assert_eq!(answer(&bad), None);
        // The sum of the pseudo header alone, as the kernel leaves it.
        let mut partial = good.clone();
        partial[14 + header + 16] ^= 0x5a;
        assert_eq!(Rejection::of(&partial, None, None), None);
        let rejection = Rejection::of(&partial, Some(partial.len()), None);
        assert_eq!(rejection, Rejection::of(&good, None, None));
        assert!(rejection.is_some_and(|rejection| rejection.is_reset()));
        // Padding is not covered.
        let padded = [&good[..], &[7; 5]].concat();
        assert_eq!(reset_of(&padded, header), (6, 0, RST));
    }
}

#[test]
fn data_to_cut_are_answered_though_they_are_in_several_buffers() {
    let data = vec![7; 20_000];
    for (packet, header) in [
        (ipv4(SOURCE_V4, TCP, 0, &tcp(ACK, 5, 6, &data)), 20),
        (ipv6(SOURCE_V6, TCP, &tcp(ACK, 5, 6, &data)), 40),
    ] {
        let whole = frame(&[], &packet);
        let good = frame(&[], &complete(packet, header));
        for length in [14 + header + 24, 200, 2048, whole.len()] {
            let front = &whole[..length];
            let rejection = Rejection::of(front, Some(whole.len()), None).unwrap();
            assert_eq!(Some(rejection), Rejection::of(&good, None, None));
            let mut out = vec![0; rejection.frame_length()];
            assert!(rejection.write(front, &mut out));
            assert_eq!(Some(out), answer(&good));
            assert_eq!(Rejection::of(front, None, None), None);
            // An error has as much of the data as the first buffer.
            let with = Some(RejectWith::PortUnreachable);
            let rejection = Rejection::of(front, Some(whole.len()), with).unwrap();
            let mut out = vec![0; rejection.frame_length()];
            assert!(rejection.write(front, &mut out));
            let quoted = &out[14 + header + 8..];
            assert_eq!(quoted, &front[14..14 + quoted.len()]);
            let most = if header == 20 { 548 } else { 1232 };
            assert_eq!(quoted.len(), most.min(length - 14));
        }
        // Without headers, without an acknowledgement, with a reset, from a group.
        assert_eq!(
            Rejection::of(&whole[..14 + header], Some(whole.len()), None),
            None
        );
        for (at, value) in [(13, 0), (13, RST | ACK)] {
            let mut other = whole.clone();
            other[14 + header + at] = value;
            assert_eq!(Rejection::of(&other, Some(whole.len()), None), None);
        }
        let mut other = whole.clone();
        other[6] = 1;
        assert_eq!(Rejection::of(&other, Some(whole.len()), None), None);
    }
    let from_group = frame(&[], &ipv4([224, 0, 0, 1], TCP, 0, &tcp(ACK, 5, 6, &data)));
    assert_eq!(
        Rejection::of(&from_group, Some(from_group.len()), None),
        None
    );
    let mut damaged = frame(&[], &ipv4(SOURCE_V4, TCP, 0, &tcp(ACK, 5, 6, &data)));
    damaged[14 + 8] ^= 1;
    assert_eq!(Rejection::of(&damaged, Some(damaged.len()), None), None);
}

/// Types and codes are those of nftables (`icmpx`, `icmp`).
#[test]
fn an_error_of_a_rule_is_about_all_packets() {
    for (with, v4, v6) in [
        (RejectWith::NoRoute, [3, 0], [1, 0]),
        (RejectWith::HostUnreachable, [3, 1], [1, 3]),
        (RejectWith::PortUnreachable, [3, 3], [1, 4]),
        (RejectWith::NetProhibited, [3, 9], [1, 1]),
        (RejectWith::HostProhibited, [3, 10], [1, 1]),
        (RejectWith::AdminProhibited, [3, 13], [1, 1]),
    ] {
        assert!(RejectWith::ALL.contains(&with));
        // A reset, and a segment with a wrong checksum, in IPv4 as a first fragment: a reset answers none of them.
        for segment in [tcp(RST, 1, 0, &[]), tcp(ACK, 1, 2, &[7; 100])] {
            let v4_packet = ipv4(SOURCE_V4, TCP, 0x2000, &segment);
            let v6_packet = ipv6(SOURCE_V6, TCP, &segment);
            for (packet, header, message) in [(v4_packet, 20, v4), (v6_packet, 40, v6)] {
                let rejected = frame(&[7], &packet);
                assert_eq!(answer(&rejected), None);
                let out = answer_with(&rejected, Some(with)).unwrap();
                let error = &out[18..];
                let (protocol, at) = if header == 20 { (ICMP, 9) } else { (ICMPV6, 6) };
                assert_eq!(error[at], protocol);
                assert_eq!(error[header..header + 2], message, "{with:?}");
                assert_eq!(error[header + 8..], packet[..]);
            }
        }
        // Later fragments and errors have none.
        let later = frame(&[], &ipv4(SOURCE_V4, TCP, 1, &[0; 20]));
        let unreachable = frame(&[], &ipv4(SOURCE_V4, ICMP, 0, &[3, 1, 0, 0, 0, 0, 0, 0]));
        for refused in [later, unreachable] {
            assert_eq!(answer_with(&refused, Some(with)), None);
        }
    }
}

#[test]
fn tags_are_those_of_the_frame() {
    let out = answer(&frame(&[7, 9], &ipv4(SOURCE_V4, 17, 0, &[0; 20]))).unwrap();
    assert_eq!(out[12..22], [0x81, 0, 0, 7, 0x81, 0, 0, 9, 8, 0]);
    assert_eq!(out[22 + 20..22 + 22], PROHIBITED_V4);
}

#[test]
fn frames_that_must_not_be_answered_are_not() {
    let udp = ipv4(SOURCE_V4, 17, 0, &[0; 20]);
    assert!(answer(&frame(&[], &udp)).is_some());
    let mut group = frame(&[], &udp);
    group[0] = 0xff;
    let mut from_group = frame(&[], &udp);
    from_group[6] = 1;
    let mut wrong_sum = frame(&[], &udp);
    wrong_sum[14 + 8] ^= 1;
    let mut to_group = udp.clone();
    to_group[16] = 224;
    to_group[10..12].copy_from_slice(&[0, 0]);
    let sum = checksum(&to_group[..20]);
    to_group[10..12].copy_from_slice(&sum.to_be_bytes());
    let with = |source| frame(&[], &ipv4(source, 17, 0, &[0; 20]));
    let mut arp = vec![2; 60];
    arp[12..14].copy_from_slice(&[8, 6]);
    let fragment = [17, 0, 0, 8, 0, 0, 0, 1, 1, 2, 3, 4];
    for refused in [
        group,
        from_group,
        wrong_sum,
        frame(&[], &to_group),
        with([0, 0, 0, 0]),
        with([127, 0, 0, 1]),
        with([255, 255, 255, 255]),
        with([224, 0, 0, 1]),
        frame(&[], &ipv4(SOURCE_V4, 17, 1, &[0; 20])),
        frame(&[], &ipv4(SOURCE_V4, ICMP, 0, &[3, 1, 0, 0, 0, 0, 0, 0])),
        frame(&[], &ipv4(SOURCE_V4, ICMP, 0, &[])),
        frame(&[], &ipv4(SOURCE_V4, TCP, 0, &[0; 10])),
        frame(&[], &ipv6(SOURCE_V6, ICMPV6, &[1, 0, 0, 0, 0, 0, 0, 0])),
        frame(&[], &ipv6(SOURCE_V6, ICMPV6, &[137, 0, 0, 0])),
        frame(&[], &ipv6(Ipv6Addr::UNSPECIFIED, 17, &[0; 20])),
        frame(&[], &ipv6("ff02::1".parse().unwrap(), 17, &[0; 20])),
        frame(&[], &ipv6(SOURCE_V6, 44, &fragment)),
        frame(&[], &ipv6(SOURCE_V6, 60, &[6, 9, 0, 0])),
        arp,
        Vec::new(),
        vec![2; 13],
    ] {
        assert_eq!(answer(&refused), None, "{refused:02x?}");
    }
    // Echo requests are no errors.
    assert!(
        answer(&frame(
            &[],
            &ipv4(SOURCE_V4, ICMP, 0, &[8, 0, 0, 0, 0, 1, 0, 1])
        ))
        .is_some()
    );
    assert!(
        answer(&frame(
            &[],
            &ipv6(SOURCE_V6, ICMPV6, &[128, 0, 0, 0, 0, 1, 0, 1])
        ))
        .is_some()
    );
}

proptest! {
    /// Errors are those of the router about the same packet, from its destination.
    #[test]
    fn errors_are_those_of_the_router(
        is_ipv4 in any::<bool>(),
        protocol in prop::sample::select(vec![17u8, 1, 58, 47, 132, 50]),
        (with, error) in prop::sample::select(vec![
            (None, icmp::Error::Prohibited),
            (Some(RejectWith::AdminProhibited), icmp::Error::Prohibited),
            (Some(RejectWith::PortUnreachable), icmp::Error::PortUnreachable),
            (Some(RejectWith::HostUnreachable), icmp::Error::HostUnreachable),
            (Some(RejectWith::NoRoute), icmp::Error::NetUnreachable),
        ]),
        payload in prop::collection::vec(any::<u8>(), 0..1300),
        padding in 0..30usize,
    ) {
        let (mut packet, destination) = match is_ipv4 {
            true => (
                ipv4(SOURCE_V4, protocol, 0, &payload),
                IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)),
            ),
            false => (ipv6(SOURCE_V6, protocol, &payload), IpAddr::V6(DESTINATION_V6)),
        };
        packet.extend(vec![0; padding]);
        let expected = icmp::error(&packet, error, destination);
        let found = answer_with(&frame(&[], &packet), with);
        prop_assert_eq!(found.map(|frame| frame[14..].to_vec()), expected);
    }

    /// Any octets: no panic, and answers go back to where the frame came from.
    #[test]
    fn any_octets_are_safe(
        start in prop::sample::select(vec![[8u8, 0, 0x45], [8, 0, 0x4f], [0x86, 0xdd, 0x60], [8, 6, 0]]),
        mut rest in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut frame = vec![2; 12];
        frame.extend(start);
        frame.append(&mut rest);
        if let Some(out) = answer(&frame) {
            prop_assert_eq!(&out[..6], &frame[6..12]);
            prop_assert!(out.len() <= 14 + 1280);
        }
    }
}
