// SPDX-License-Identifier: Apache-2.0
//! Tests with arbitrary bytes: no panic, no offset outside the frame, and the right name for each kind of damage.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::assert_within;
use super::frames::specs;
use crate::{Damage, EtherType, FRAME_MAX, Fragment, Network, Parsed, parse};

/// Octets of the frame that its own headers cover.
fn accounted(parsed: &Parsed) -> usize {
    match parsed.network {
        Network::Ipv4(ip) | Network::Ipv6(ip) => usize::from(ip.end),
        Network::Arp => usize::from(parsed.network_offset) + 28,
        Network::Other => usize::from(parsed.network_offset),
    }
}

fn check(frame: &[u8]) {
    if let Ok(parsed) = parse(frame) {
        assert_within(&parsed, frame);
        assert!(accounted(&parsed) <= frame.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_bytes(frame in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&frame);
    }

    /// Checks random bytes after a type that is parsed: they reach deeper than random types.
    #[test]
    fn any_bytes_behind_a_known_type(
        mut frame in prop::collection::vec(any::<u8>(), 14..200),
        ethertype in prop::sample::select(vec![0x0800u16, 0x0806, 0x86dd, 0x8100, 0x88a8]),
        first in prop::sample::select(vec![0x45u8, 0x46, 0x4f, 0x60]),
    ) {
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        if let Some(octet) = frame.get_mut(14) {
            *octet = first;
        }
        check(&frame);
    }

    #[test]
    fn cut_at_every_length(spec in specs()) {
        let frame = spec.bytes();
        let whole = parse(&frame).unwrap();
        for length in 0..frame.len() {
            let cut = parse(&frame[..length]);
            if length < accounted(&whole) {
                // A frame truncated within the part that its headers cover never passes.
                prop_assert!(cut.is_err(), "cut at {}: {:?}", length, cut);
            } else {
                prop_assert_eq!(cut, Ok(whole), "only padding was removed at {}", length);
            }
        }
    }

    /// Checks all values of one octet, and two random octets: wrong lengths and types are among them.
    #[test]
    fn octets_changed(
        spec in specs(),
        place in any::<prop::sample::Index>(),
        second in any::<(prop::sample::Index, u8)>(),
    ) {
        let mut frame = spec.bytes();
        let headers = frame.len().min(120);
        let (place, second_place) = (place.index(headers), second.0.index(headers));
        for value in 0..=255 {
            frame[place] = value;
            check(&frame);
        }
        frame[second_place] = second.1;
        for value in 0..=255 {
            frame[place] = value;
            check(&frame);
        }
    }
}

/// Returns an Ethernet header of this type and `payload` after it.
fn frame(ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![2; 12];
    bytes.extend(ethertype.0.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Returns an IPv4 header with the right total length, and `payload` after it.
fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![
        0x45,
        0,
        0,
        20 + payload.len() as u8,
        0,
        0,
        0,
        0,
        64,
        protocol,
    ];
    packet.resize(20, 0);
    packet.extend(payload);
    packet
}

/// Returns an IPv6 header with the right payload length, and `payload` after it.
fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, payload.len() as u8, next, 64];
    packet.resize(40, 0);
    packet.extend(payload);
    packet
}

fn changed(mut packet: Vec<u8>, place: usize, value: u8) -> Vec<u8> {
    packet[place] = value;
    packet
}

/// Returns `count` minimal destination options headers, the last with no next header.
fn options(count: usize) -> Vec<u8> {
    (1..=count)
        .flat_map(|n| [if n == count { 59 } else { 60 }, 0, 1, 4, 0, 0, 0, 0])
        .collect()
}

#[test]
fn every_kind_of_damage_is_distinguished() {
    let v4 = |packet: &[u8]| frame(EtherType::IPV4, packet);
    let v6 = |packet: &[u8]| frame(EtherType::IPV6, packet);
    let udp = [0, 1, 0, 2, 0, 8, 0, 0];
    let mut tcp = [0; 20];
    tcp[12] = 0x60;
    let cases = [
        (vec![0; 13], Damage::Short),
        (vec![0; FRAME_MAX + 1], Damage::TooLong),
        (frame(EtherType::VLAN, &[0; 3]), Damage::TruncatedVlan),
        (
            frame(EtherType::SERVICE_VLAN, &[0, 1, 0x81, 0, 0, 1, 8]),
            Damage::TruncatedVlan,
        ),
        (
            frame(EtherType::ARP, &[0, 1, 8, 0, 6]),
            Damage::TruncatedArp,
        ),
        (
            frame(EtherType::ARP, &[0, 1, 8, 0, 6, 4, 0, 1]),
            Damage::TruncatedArp,
        ),
        (v4(&[]), Damage::TruncatedIpv4),
        (v4(&[0x45; 19]), Damage::TruncatedIpv4),
        (v4(&changed(ipv4(47, &[]), 0, 0x46)), Damage::TruncatedIpv4),
        (
            v4(&changed(ipv4(47, &[]), 0, 0x65)),
            Damage::Ipv4VersionLies,
        ),
        (
            v4(&changed(ipv4(47, &[]), 0, 0x44)),
            Damage::Ipv4HeaderLengthLies,
        ),
        (v4(&changed(ipv4(47, &[]), 3, 19)), Damage::Ipv4LengthLies),
        (v4(&changed(ipv4(47, &[]), 3, 21)), Damage::Ipv4LengthLies),
        (v6(&[0x60; 39]), Damage::TruncatedIpv6),
        (
            v6(&changed(ipv6(59, &[]), 0, 0x45)),
            Damage::Ipv6VersionLies,
        ),
        (v6(&changed(ipv6(59, &[]), 5, 1)), Damage::Ipv6LengthLies),
        (
            v6(&ipv6(60, &options(1)[..7])),
            Damage::TruncatedIpv6Extension,
        ),
        (
            v6(&ipv6(60, &changed(options(1), 1, 1))),
            Damage::TruncatedIpv6Extension,
        ),
        (v6(&ipv6(0, &[])), Damage::TruncatedIpv6Extension),
        (v6(&ipv6(60, &options(9))), Damage::TooManyIpv6Extensions),
        (v4(&ipv4(17, &udp[..7])), Damage::TruncatedUdp),
        (v6(&ipv6(17, &udp[..7])), Damage::TruncatedUdp),
        (
            v4(&ipv4(17, &changed(udp.to_vec(), 5, 7))),
            Damage::UdpLengthLies,
        ),
        (
            v4(&ipv4(17, &changed(udp.to_vec(), 5, 9))),
            Damage::UdpLengthLies,
        ),
        (v4(&ipv4(6, &tcp[..19])), Damage::TruncatedTcp),
        (v4(&ipv4(6, &tcp)), Damage::TruncatedTcp),
        (
            v4(&ipv4(6, &changed(tcp.to_vec(), 12, 0x40))),
            Damage::TcpOffsetLies,
        ),
        (v4(&ipv4(1, &[8, 0, 0])), Damage::TruncatedIcmp),
        (v6(&ipv6(58, &[128, 0, 0])), Damage::TruncatedIcmp),
    ];
    let mut observed = BTreeSet::new();
    for (bytes, damage) in cases {
        let head = &bytes[..bytes.len().min(80)];
        assert_eq!(parse(&bytes), Err(damage), "{head:02x?}");
        observed.insert(damage.index());
    }
    assert_eq!(observed.len(), Damage::COUNT, "a kind without a case");
}

#[test]
fn bounds_are_exact() {
    // The maximum number of extension headers, then one more.
    let most = frame(EtherType::IPV6, &ipv6(60, &options(8)));
    let parsed = parse(&most).unwrap();
    assert_eq!(parsed.ip().unwrap().protocol.0, 59);
    assert_eq!(parsed.ip().unwrap().transport_offset, 14 + 40 + 64);

    // A third tag is payload, not damage.
    let tags = [0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3, 8, 0];
    let parsed = parse(&frame(EtherType::SERVICE_VLAN, &tags)).unwrap();
    let numbers: Vec<u16> = parsed.tags.iter().flatten().map(|t| t.tci).collect();
    assert_eq!(numbers, [1, 2]);
    assert_eq!(parsed.ethertype, EtherType::VLAN);
    assert_eq!(parsed.network, Network::Other);
    assert_eq!(parsed.network_offset, 22);

    // The longest frame.
    let longest = parse(&vec![0; FRAME_MAX]).unwrap();
    assert_eq!(longest.network, Network::Other);
    assert!(longest.ethertype.is_length());

    // The UDP length of a first fragment includes the other fragments.
    let mut first = ipv4(17, &[0, 1, 0, 2, 0x20, 0, 0, 0]);
    first[6] = 0x20;
    assert!(parse(&frame(EtherType::IPV4, &first)).is_ok());

    // ARP for other than IPv4 over Ethernet is a bridge's payload.
    let parsed = parse(&frame(EtherType::ARP, &[0, 6, 8, 0, 8, 4])).unwrap();
    assert_eq!(parsed.network, Network::Other);

    // The protocol number of ICMP has no meaning in IPv6, and vice versa.
    let parsed = parse(&frame(EtherType::IPV6, &ipv6(1, &[8]))).unwrap();
    assert_eq!(parsed.ip().unwrap().transport, crate::Transport::Other);
}

#[test]
fn fragments_are_reported_by_their_offset_and_nothing_else() {
    let fragment_of = |bytes: &[u8]| parse(bytes).unwrap().ip().unwrap().fragment;
    // RFC 791: reserved bit, don't fragment, more fragments, then 13 bits of offset.
    for (flags, expected) in [
        (0x0000u16, Fragment::Whole),
        (0xc000, Fragment::Whole),
        (0x2000, Fragment::First),
        (0x0001, Fragment::Later),
        (0x1000, Fragment::Later),
        (0x3000, Fragment::Later),
    ] {
        let mut packet = ipv4(47, &[0; 8]);
        packet[6..8].copy_from_slice(&flags.to_be_bytes());
        let observed = fragment_of(&frame(EtherType::IPV4, &packet));
        assert_eq!(observed, expected, "IPv4 {flags:#06x}");
    }
    // RFC 8200: 13 bits of offset, two reserved bits, more fragments.
    for (fields, expected) in [
        (0x0000u16, Fragment::Whole),
        (0x0006, Fragment::Whole),
        (0x0007, Fragment::First),
        (0x0008, Fragment::Later),
        (0x8000, Fragment::Later),
    ] {
        let [high, low] = fields.to_be_bytes();
        let header = [47, 0xff, high, low, 0, 0, 0, 9];
        let observed = fragment_of(&frame(EtherType::IPV6, &ipv6(44, &header)));
        assert_eq!(observed, expected, "IPv6 {fields:#06x}");
    }
}

#[test]
fn nothing_is_read_behind_the_header_of_a_later_fragment() {
    // The next header says destination options, but what follows is the middle of a datagram, not such a header.
    let later = [60, 0, 0, 8, 0, 0, 0, 9, 0xff, 0xff];
    let parsed = parse(&frame(EtherType::IPV6, &ipv6(44, &later))).unwrap();
    let ip = parsed.ip().unwrap();
    assert_eq!(ip.fragment, Fragment::Later);
    assert_eq!(ip.protocol.0, 60);
    assert_eq!(ip.transport_offset, 14 + 40 + 8);
    assert_eq!(ip.transport, crate::Transport::Other);

    // Too short for UDP, and not the beginning of UDP either.
    let mut packet = ipv4(17, &[0; 2]);
    packet[7] = 1;
    let parsed = parse(&frame(EtherType::IPV4, &packet)).unwrap();
    assert_eq!(parsed.ip().unwrap().transport, crate::Transport::Other);
}
