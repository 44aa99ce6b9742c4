// SPDX-License-Identifier: Apache-2.0
//! The guard compared with a search by description, and with packets that try to pass it.

use proptest::prelude::*;

use super::*;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn guard(elements: &[&str]) -> SourceGuard {
    let elements: Vec<Element> = elements.iter().map(|one| one.parse().unwrap()).collect();
    SourceGuard::new(&elements)
}

/// Returns a guard as a guest has it.
fn usual() -> SourceGuard {
    guard(&[
        "02:00:00:00:00:01",
        "192.0.2.7",
        "198.51.100.0/28",
        "2001:db8::7",
        "fe80::1",
    ])
}

fn frame(mac: [u8; 6], tags: usize, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 9];
    frame.extend(mac);
    for _ in 0..tags {
        frame.extend([0x81, 0, 0, 7]);
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

fn ipv4(source: &str, destination: &str, ports: [u8; 4]) -> Vec<u8> {
    let address = |text: &str| text.parse::<Ipv4Addr>().unwrap().octets();
    let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, UDP, 0, 0];
    packet.extend(address(source));
    packet.extend(address(destination));
    packet.extend(ports);
    packet.extend([0, 8, 0, 0]);
    packet
}

fn arp(operation: u8, mac: [u8; 6], source: &str) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, operation];
    packet.extend(mac);
    packet.extend(source.parse::<Ipv4Addr>().unwrap().octets());
    packet.extend([0; 6]);
    packet.extend([192, 0, 2, 1]);
    packet
}

fn ipv6(source: &str, next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    packet.extend([next, 255]);
    packet.extend(source.parse::<Ipv6Addr>().unwrap().octets());
    packet.extend("ff02::1".parse::<Ipv6Addr>().unwrap().octets());
    packet.extend(payload);
    packet
}

/// Returns a message of neighbour discovery with a target and an option.
fn discovery(kind: u8, target: Option<&str>, option: Option<(u8, [u8; 6])>) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    if let Some(target) = target {
        message.extend(target.parse::<Ipv6Addr>().unwrap().octets());
    }
    if let Some((kind, mac)) = option {
        message.extend([kind, 1]);
        message.extend(mac);
    }
    message
}

fn judged(guard: &SourceGuard, frame: &[u8]) -> Option<PortDrop> {
    guard.violation(frame, frame.len())
}

#[test]
fn only_listed_addresses_pass() {
    let usual = usual();
    for tags in 0..3 {
        let v4 = |mac, source| {
            let packet = ipv4(source, "192.0.2.1", [0, 9, 0, 53]);
            judged(&usual, &frame(mac, tags, IPV4, &packet))
        };
        assert_eq!(v4(MAC, "192.0.2.7"), None);
        assert_eq!(v4(MAC, "198.51.100.15"), None);
        assert_eq!(v4(OTHER_MAC, "192.0.2.7"), Some(PortDrop::GuardMac));
        for other in [
            "192.0.2.6",
            "192.0.2.8",
            "198.51.100.16",
            "0.0.0.0",
            "255.255.255.255",
        ] {
            assert_eq!(v4(MAC, other), Some(PortDrop::GuardIp), "{other}");
        }
        let v6 = |source| judged(&usual, &frame(MAC, tags, IPV6, &ipv6(source, UDP, &[0; 8])));
        assert_eq!(v6("2001:db8::7"), None);
        for other in ["2001:db8::6", "fe80::2", "::", "::ffff:192.0.2.7"] {
            assert_eq!(v6(other), Some(PortDrop::GuardIp), "{other}");
        }
    }
    // Other protocols have no addresses that the guard knows.
    assert_eq!(judged(&usual, &frame(MAC, 0, 0x88b5, &[0; 50])), None);
    // A third tag hides the packet.
    let hidden = frame(MAC, 3, IPV4, &ipv4("192.0.2.8", "192.0.2.1", [0; 4]));
    assert_eq!(judged(&usual, &hidden), Some(PortDrop::Malformed));
    assert_eq!(judged(&usual, &[2; 10]), None);
    // The first buffer ends within the addresses.
    assert_eq!(usual.violation(&[2; 10], 60), Some(PortDrop::Malformed));
}

#[test]
fn a_host_may_ask_for_an_address() {
    let usual = usual();
    let v4 = |source, destination, ports| {
        let packet = ipv4(source, destination, ports);
        judged(&usual, &frame(MAC, 0, IPV4, &packet))
    };
    assert_eq!(v4("0.0.0.0", "255.255.255.255", DHCP), None);
    for (destination, ports) in [
        ("192.0.2.1", DHCP),
        ("255.255.255.255", [0, 67, 0, 68]),
        ("255.255.255.255", [0, 68, 0, 69]),
    ] {
        assert_eq!(v4("0.0.0.0", destination, ports), Some(PortDrop::GuardIp));
    }
    let probe = |operation| {
        let packet = arp(operation, MAC, "0.0.0.0");
        judged(&usual, &frame(MAC, 0, ARP, &packet))
    };
    assert_eq!(probe(1), None);
    assert_eq!(probe(2), Some(PortDrop::GuardArp));
    let detection = |target| {
        let message = discovery(NEIGHBOUR_SOLICITATION, Some(target), None);
        judged(&usual, &frame(MAC, 0, IPV6, &ipv6("::", 58, &message)))
    };
    assert_eq!(detection("fe80::1"), None);
    assert_eq!(detection("fe80::2"), Some(PortDrop::GuardNd));
    for kind in [LISTENER_REPORT, LISTENER_REPORT_V2, ROUTER_SOLICITATION] {
        let message = discovery(kind, None, None);
        // Behind a router alert option (RFC 2711).
        let behind = [&[58, 0, 5, 2, 0, 0, 1, 0][..], &message].concat();
        for packet in [ipv6("::", 58, &message), ipv6("::", 0, &behind)] {
            assert_eq!(
                judged(&usual, &frame(MAC, 0, IPV6, &packet)),
                None,
                "{kind}"
            );
        }
    }
}

#[test]
fn arp_and_neighbour_discovery_claim_listed_addresses_only() {
    let usual = usual();
    for operation in [1, 2] {
        let with = |mac, source| judged(&usual, &frame(MAC, 0, ARP, &arp(operation, mac, source)));
        assert_eq!(with(MAC, "192.0.2.7"), None);
        assert_eq!(with(OTHER_MAC, "192.0.2.7"), Some(PortDrop::GuardArp));
        assert_eq!(with(MAC, "192.0.2.8"), Some(PortDrop::GuardArp));
    }
    let mut other_hardware = arp(1, MAC, "192.0.2.7");
    other_hardware[1] = 6;
    assert_eq!(
        judged(&usual, &frame(MAC, 0, ARP, &other_hardware)),
        Some(PortDrop::GuardArp)
    );
    assert_eq!(
        judged(&usual, &frame(MAC, 0, RARP, &arp(3, MAC, "192.0.2.7"))),
        Some(PortDrop::GuardArp)
    );
    let own = "2001:db8::7";
    let nd = |message: &[u8]| judged(&usual, &frame(MAC, 0, IPV6, &ipv6(own, 58, message)));
    let other = "2001:db8::8";
    for (kind, target, option, is_allowed) in [
        (
            NEIGHBOUR_SOLICITATION,
            Some(other),
            Some((SOURCE_LINK, MAC)),
            true,
        ),
        (
            NEIGHBOUR_SOLICITATION,
            Some(other),
            Some((SOURCE_LINK, OTHER_MAC)),
            false,
        ),
        (
            NEIGHBOUR_ADVERTISEMENT,
            Some(own),
            Some((TARGET_LINK, MAC)),
            true,
        ),
        (
            NEIGHBOUR_ADVERTISEMENT,
            Some(own),
            Some((TARGET_LINK, OTHER_MAC)),
            false,
        ),
        (NEIGHBOUR_ADVERTISEMENT, Some(other), None, false),
        (NEIGHBOUR_ADVERTISEMENT, None, None, false),
        (ROUTER_SOLICITATION, None, Some((SOURCE_LINK, MAC)), true),
        (
            ROUTER_SOLICITATION,
            None,
            Some((SOURCE_LINK, OTHER_MAC)),
            false,
        ),
        (ROUTER_ADVERTISEMENT, None, None, false),
        (REDIRECT, Some(own), None, false),
    ] {
        let expected = (!is_allowed).then_some(PortDrop::GuardNd);
        let message = discovery(kind, target, option);
        assert_eq!(nd(&message), expected, "{kind} {target:?} {option:?}");
        // Behind a destination options header.
        let behind = [&[58, 0, 1, 4, 0, 0, 0, 0][..], &message].concat();
        let frame_behind = frame(MAC, 0, IPV6, &ipv6(own, 60, &behind));
        assert_eq!(judged(&usual, &frame_behind), expected, "{kind}");
    }
    // Options without length, and longer than the packet.
    for length in [0, 9] {
        let mut message = discovery(NEIGHBOUR_ADVERTISEMENT, Some(own), Some((TARGET_LINK, MAC)));
        message[25] = length;
        assert_eq!(nd(&message), Some(PortDrop::GuardNd));
    }
    // A first fragment.
    let message = discovery(NEIGHBOUR_ADVERTISEMENT, Some(own), None);
    let fragment = [&[58, 0, 0, 1, 0, 0, 0, 1][..], &message].concat();
    assert_eq!(
        judged(&usual, &frame(MAC, 0, IPV6, &ipv6(own, 44, &fragment))),
        Some(PortDrop::GuardNd)
    );
    // Echo requests are no neighbour discovery.
    assert_eq!(nd(&[128, 0, 0, 0, 0, 0, 0, 0]), None);
}

#[test]
fn kinds_of_addresses_that_a_guard_does_not_list_are_not_compared() {
    let macs = guard(&["02:00:00:00:00:01"]);
    let packet = ipv4("203.0.113.1", "192.0.2.1", [0; 4]);
    assert_eq!(judged(&macs, &frame(MAC, 0, IPV4, &packet)), None);
    assert_eq!(
        judged(&macs, &frame(OTHER_MAC, 0, IPV4, &packet)),
        Some(PortDrop::GuardMac)
    );
    let addresses = guard(&["192.0.2.7"]);
    let own = ipv4("192.0.2.7", "192.0.2.1", [0; 4]);
    assert_eq!(judged(&addresses, &frame(OTHER_MAC, 0, IPV4, &own)), None);
    // With addresses of one version only, those of the other are not allowed.
    let v6 = ipv6("fe80::1", UDP, &[0; 8]);
    assert_eq!(
        judged(&addresses, &frame(MAC, 0, IPV6, &v6)),
        Some(PortDrop::GuardIp)
    );
    assert_eq!(
        judged(&SourceGuard::default(), &frame(MAC, 0, IPV6, &v6)),
        None
    );
}

proptest! {
    /// Ranges as a slow search has them.
    #[test]
    fn ranges_contain_what_they_did_before_they_were_merged(
        ranges in prop::collection::vec((0..40u32, 0..6u32), 0..12),
    ) {
        let ranges: Vec<(u32, u32)> =
            ranges.into_iter().map(|(first, more)| (first, first + more)).collect();
        let merged = merged(ranges.clone());
        for value in 0..50 {
            let expected = ranges.iter().any(|(first, last)| (*first..=*last).contains(&value));
            prop_assert_eq!(contains(&merged, value), expected);
        }
    }

    /// Any octets: no panic, and never an IP packet from another address.
    #[test]
    fn no_other_address_passes(
        start in prop::sample::select(vec![vec![8u8, 0, 0x45], vec![0x86, 0xdd, 0x60], vec![0x81, 0, 0, 7, 8, 0, 0x45], vec![8, 6, 0]]),
        rest in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut octets = [[2, 0, 0, 0, 0, 9], MAC].concat();
        octets.extend(start);
        octets.extend(rest);
        let judged = judged(&usual(), &octets);
        if judged.is_none()
            && let Ok(parsed) = quietwire_packet::parse(&octets)
        {
            if let Some(header) = parsed.ipv4(&octets) {
                let source = header.source();
                prop_assert!(source.is_unspecified() || usual().allows_v4(source));
            }
            if let Some(header) = parsed.ipv6(&octets) {
                let source = header.source();
                prop_assert!(source.is_unspecified() || usual().allows_v6(source));
            }
        }
    }
}
