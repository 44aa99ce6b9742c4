// SPDX-License-Identifier: Apache-2.0
//! Requirements of RFC 6146 and RFC 7915, one by one.

use super::plain::{error_v4, fields_v4, v4_with, v6_around};
use super::*;

/// Sends a packet of a client, and returns source, destination and the packet.
fn sent(switch: &mut Switch, content: &Content) -> Vec<u8> {
    let packet = v6(Header::plain(client(), mapped(server())), content);
    switch.send(&packet, 0).unwrap()
}

#[test]
fn clients_reach_servers_and_answers_return() {
    for content in [
        udp((5000, 53), b"query"),
        tcp((5001, 80), 2),
        echo(9, false),
    ] {
        let mut switch = Switch::new();
        let header = Header {
            class: 0xb9,
            ttl: 33,
            ..Header::plain(client(), mapped(server()))
        };
        let packet = switch.send(&v6(header, &content), 0).unwrap();
        let ((external, port), (to, _)) = ends_v4(&packet);
        assert_eq!((external, to), (a4("198.51.100.1"), server()));
        let header = Header {
            class: 0xb9,
            ttl: 33,
            ..Header::plain(external, server())
        };
        let external_content = content.clone().with_port(true, port);
        // RFC 7915, section 5.1: a short packet may be fragmented, and has an identification.
        let fields = fields_v4(&packet);
        assert_eq!(fields.1, 0);
        assert_eq!(packet, v4_with(header, fields, &external_content));
        let answer = v4(
            Header::plain(server(), external),
            &external_content.answer(),
        );
        let received = switch.receive(&answer, 1).unwrap();
        let expected = v6(Header::plain(mapped(server()), client()), &content.answer());
        assert_eq!(received, expected);
    }
}

#[test]
fn one_client_endpoint_has_one_external_endpoint_for_all_servers() {
    // RFC 6146, sections 3.5.1 and 3.5.2: endpoint-independent mapping and filtering.
    let mut switch = Switch::new();
    let first = switch.open(client(), server(), &udp((5000, 53), b"a"));
    let second = switch.open(client(), a4("203.0.113.81"), &udp((5000, 54), b"a"));
    assert_eq!(first, second);
    let other = switch.open(a6("2001:db8:1::6"), server(), &udp((5000, 53), b"a"));
    assert!(first.0 == other.0 && first.1 != other.1);
    let stranger = a4("203.0.113.99");
    let packet = v4(Header::plain(stranger, first.0), &udp((1, first.1), b"b"));
    let received = switch.receive(&packet, 0).unwrap();
    assert_eq!(
        ends_v6(&received),
        ((mapped(stranger), 1), (client(), 5000))
    );
    let closed = v4(Header::plain(stranger, first.0), &tcp((1, first.1), 2));
    assert_eq!(switch.receive(&closed, 0), Err(NatDrop::NoMapping));
}

#[test]
fn packets_of_both_directions_refresh_a_mapping() {
    // RFC 6146, section 4: UDP_DEFAULT is 5 minutes.
    let mut switch = Switch::new();
    let (address, port) = switch.open(client(), server(), &udp((5000, 53), b"a"));
    let answer = v4(Header::plain(server(), address), &udp((53, port), b"b"));
    for now in [250, 500, 750] {
        assert!(switch.receive(&answer, now).is_ok(), "{now} s");
    }
    switch.expire(1040);
    assert_eq!(switch.nat.len(), 1);
    switch.expire(1051);
    assert_eq!((switch.nat.len(), switch.nat64.clients()), (0, 0));
    assert_eq!(switch.receive(&answer, 1051), Err(NatDrop::NoMapping));
}

#[test]
fn tcp_timeouts_follow_the_answers() {
    let mut switch = Switch::new();
    let (address, port) = switch.open(client(), server(), &tcp((5000, 80), 2));
    // TCP_TRANS, 4 minutes, until the server answers; then TCP_EST, 2 hours and 4 minutes.
    let expires = |switch: &Switch| switch.nat.list(0, usize::MAX).0[0].expires_in_s;
    assert_eq!(expires(&switch), Some(240));
    let answer = v4(Header::plain(server(), address), &tcp((80, port), 0x12));
    switch.receive(&answer, 0).unwrap();
    assert_eq!(expires(&switch), Some(7440));
    // A reset, which may be forged, shortens nothing by itself; the next packet of the client does.
    let reset = v4(Header::plain(server(), address), &tcp((80, port), 4));
    switch.receive(&reset, 0).unwrap();
    assert_eq!(expires(&switch), Some(7440));
    sent(&mut switch, &tcp((5000, 80), 0x10));
    assert_eq!(expires(&switch), Some(240));
}

#[test]
fn a_client_has_a_number_as_long_as_it_has_mappings() {
    let mut switch = Switch::new();
    for host in 1..=8 {
        let client = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, host);
        switch.open(client, server(), &udp((5000, 53), b"a"));
    }
    assert_eq!(switch.nat64.clients(), 8);
    let ninth = v6(
        Header::plain(a6("2001:db8:1::9"), mapped(server())),
        &udp((5000, 53), b"a"),
    );
    assert_eq!(switch.send(&ninth, 0), Err(NatDrop::TableFull));
    switch.expire(400);
    assert_eq!((switch.nat64.clients(), switch.nat.hosts()), (0, 0));
    assert!(switch.send(&ninth, 400).is_ok());
}

/// The last mapping of a client has expired, and its block returns with the packet that requires another one.
#[test]
fn a_client_whose_mapping_has_expired_begins_another_one() {
    let mut switch = Switch::new();
    switch.open(client(), server(), &udp((5000, 53), b"a"));
    let packet = v6(
        Header::plain(client(), mapped(server())),
        &udp((5000, 53), b"a"),
    );
    let ((address, port), _) = ends_v4(&switch.send(&packet, 1000).unwrap());
    let answer = v4(Header::plain(server(), address), &udp((53, port), b"b"));
    assert!(switch.receive(&answer, 1000).is_ok());
    assert_eq!(switch.nat64.clients(), 1);
}

#[test]
fn a_client_that_returns_after_its_timeout_has_a_number() {
    let mut switch = Switch::new();
    let content = udp((5000, 53), b"a");
    let other = a6("2001:db8:1::6");
    for now in [0, 400, 800] {
        // The former mapping has expired, and is removed by the packet itself.
        let packet = v6(Header::plain(client(), mapped(server())), &content);
        let sent = switch.send(&packet, now).unwrap();
        let (address, port) = ends_v4(&sent).0;
        assert_eq!((switch.nat.len(), switch.nat64.clients()), (1, 1));
        let answer = content.clone().answer().with_port(false, port);
        let answer = v4(Header::plain(server(), address), &answer);
        let received = switch.receive(&answer, now).unwrap();
        assert_eq!(ends_v6(&received).1, (client(), 5000));
    }
    // No other client has its number.
    let packet = v6(Header::plain(other, mapped(server())), &content);
    let external = ends_v4(&switch.send(&packet, 800).unwrap()).0;
    let answer = content.answer().with_port(false, external.1);
    let answer = v4(Header::plain(server(), external.0), &answer);
    let received = switch.receive(&answer, 800).unwrap();
    assert_eq!(ends_v6(&received).1, (other, 5000));
    assert_eq!(switch.nat64.clients(), 2);
    switch.expire(1200);
    assert_eq!(switch.nat64.clients(), 0);
}

#[test]
fn a_client_that_opens_nothing_has_no_number() {
    let mut switch = Switch::new();
    for host in 1..100 {
        let client = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, host);
        // An answer to a request that no one has sent.
        let packet = v6(Header::plain(client, mapped(server())), &echo(1, true));
        assert_eq!(switch.send(&packet, 0), Err(NatDrop::NoMapping));
        assert!(switch.nat64.clients() <= 1);
    }
    switch.open(client(), server(), &udp((5000, 53), b"a"));
    assert_eq!(switch.nat64.clients(), 1);
}

#[test]
fn a_client_has_a_limit_and_exhausted_ports_keep_what_is_there() {
    // RFC 6146, section 5.3. Two blocks of 16 ports.
    let mut switch = Switch::new();
    let first = switch.open(client(), server(), &udp((1, 53), b"a"));
    for port in 2..=32 {
        switch.open(client(), server(), &udp((port, 53), b"a"));
    }
    let packet = v6(
        Header::plain(client(), mapped(server())),
        &udp((33, 53), b"a"),
    );
    assert_eq!(switch.send(&packet, 0), Err(NatDrop::HostLimit));
    assert_eq!(switch.open(client(), server(), &udp((1, 53), b"a")), first);
}

#[test]
fn clients_reach_one_another_by_external_endpoints() {
    // RFC 6146, section 3.8.
    let mut switch = Switch::new();
    let other = a6("2001:db8:1::6");
    let (address, port) = switch.open(other, server(), &udp((7000, 53), b"a"));
    let packet = v6(
        Header::plain(client(), mapped(address)),
        &udp((5000, port), b"b"),
    );
    let received = switch.send(&packet, 0).unwrap();
    let (from, to) = ends_v6(&received);
    assert_eq!(to, (other, 7000));
    assert_eq!(from.0, mapped(address));
    let answer = v6(Header::plain(other, from.0), &udp((7000, from.1), b"c"));
    let received = switch.send(&answer, 0).unwrap();
    let expected = Header::plain(mapped(address), client());
    assert_eq!(received, v6(expected, &udp((port, 5000), b"c")));
    // No loop: an external address without mapping.
    let packet = v6(
        Header::plain(client(), mapped(address)),
        &udp((5000, 9), b"b"),
    );
    assert_eq!(switch.send(&packet, 0), Err(NatDrop::NoMapping));
}

#[test]
fn answers_of_inside_hosts_have_their_own_addresses() {
    let inside = a4("10.0.0.9");
    let outbound = |switch: &mut Switch, packet: &[u8]| {
        let mut packet = packet.to_vec();
        let length = packet.len();
        let outcome = switch.nat.outbound(&mut packet, length, 0);
        assert_eq!(outcome, NatOutcome::Translated);
        // Those of a host that is no client.
        while switch.nat.take_event().is_some() {}
    };
    for content in [
        udp((5000, 53), b"query"),
        tcp((5001, 80), 2),
        echo(9, false),
    ] {
        let mut switch = Switch::new();
        let (address, port) = switch.open(client(), inside, &content);
        let header = Header::plain(inside, address);
        let to_inside = content.clone().with_port(true, port);
        let answer = v4(header, &to_inside.clone().answer());
        let keeps = |switch: &Switch, packet: &[u8]| {
            let Switch { nat, nat64 } = switch;
            nat64.keeps_source(nat, packet, packet.len())
        };
        assert!(keeps(&switch, &answer));
        let received = switch.receive(&answer, 0).unwrap();
        let expected = v6(
            Header::plain(mapped(inside), client()),
            &content.clone().answer(),
        );
        assert_eq!(received, expected);
        let about = v4(Header::plain(address, inside), &to_inside);
        let error = error_v4(header, (5, 0), (3, 3, 0), &about);
        assert!(keeps(&switch, &error));
        switch.receive(&error, 0).unwrap();
        // The host has an external endpoint, by which clients reach it too.
        if !matches!(content, Content::Echo { .. }) {
            let opened = content.clone().answer();
            outbound(&mut switch, &v4(Header::plain(inside, server()), &opened));
            assert!(!keeps(&switch, &answer) && !keeps(&switch, &error));
        }
    }
    let well_known = Nat64Settings {
        prefix: net("64:ff9b::/96"),
        ..settings()
    };
    let nat64 = Nat64::new(&well_known).unwrap();
    let nat = Nat::new(&nat_settings()).unwrap();
    // No client can have addressed a private host.
    for (source, keeps) in [(inside, false), (a4("9.9.9.9"), true)] {
        let header = Header::plain(source, a4("198.51.100.1"));
        let packet = v4(header, &udp((53, 1024), b"b"));
        assert_eq!(nat64.keeps_source(&nat, &packet, packet.len()), keeps);
    }
    assert!(!nat64.keeps_source(&nat, &[0x45; 9], 9));
}

#[test]
fn clients_reach_no_private_hosts_by_a_prefix_without_them() {
    let packet = |address: &str| {
        let header = Header::plain(client(), mapped(a4(address)));
        v6(header, &udp((5000, 53), b"a"))
    };
    let mut switch = Switch::new();
    assert!(switch.send(&packet("192.168.0.1"), 0).is_ok());
    let mut switch = Switch::with(
        &nat_settings(),
        &Nat64Settings {
            prefix: net(PREFIX).without_private(),
            ..settings()
        },
    );
    let sent = switch.send(&packet("192.168.0.1"), 0);
    assert_eq!(sent, Err(NatDrop::NoMapping));
    assert_eq!((switch.nat.len(), switch.nat64.clients()), (0, 0));
    assert!(switch.send(&packet("203.0.113.80"), 0).is_ok());
}

#[test]
fn packets_that_must_not_be_translated_are_dropped() {
    let mut switch = Switch::with(
        &nat_settings(),
        &Nat64Settings {
            clients: vec!["2001:db8:1::/48".parse().unwrap()],
            ..settings()
        },
    );
    for (source, destination, reason) in [
        // RFC 6146, section 3.5: a source of the prefix.
        (
            "2001:db8:64::c000:201",
            "2001:db8:64::cb00:7150",
            NatDrop::Malformed,
        ),
        ("ff02::1", "2001:db8:64::cb00:7150", NatDrop::Malformed),
        ("::", "2001:db8:64::cb00:7150", NatDrop::Malformed),
        ("::1", "2001:db8:64::cb00:7150", NatDrop::Malformed),
        ("fe80::1", "2001:db8:64::cb00:7150", NatDrop::Malformed),
        (
            "2001:db8:2::1",
            "2001:db8:64::cb00:7150",
            NatDrop::NoMapping,
        ),
        ("2001:db8:1::1", "2001:db8:64::e000:1", NatDrop::NoMapping),
        ("2001:db8:1::1", "2001:db8:64::7f00:1", NatDrop::NoMapping),
    ] {
        let header = Header::plain(a6(source), a6(destination));
        let packet = v6(header, &udp((5000, 53), b"a"));
        assert_eq!(switch.send(&packet, 0), Err(reason), "{source}");
    }
    let header = Header::plain(client(), mapped(server()));
    for (next, payload, reason) in [
        // SCTP, a neighbour solicitation, an echo with a code, a truncated header of TCP.
        (132, vec![0; 20], NatDrop::Protocol),
        (58, vec![135, 0, 0, 0, 0, 0, 0, 0], NatDrop::IcmpType),
        (58, vec![128, 1, 0, 0, 0, 0, 0, 0], NatDrop::IcmpType),
        (6, vec![0; 18], NatDrop::Malformed),
        // A routing header with a segment left (RFC 7915, section 5.1), an extension header without end.
        (43, vec![17, 0, 0, 1, 0, 0, 0, 0], NatDrop::Malformed),
        (60, vec![17, 9, 0, 0, 0, 0, 0, 0], NatDrop::Malformed),
        (51, vec![17, 4, 0, 0, 0, 0, 0, 0], NatDrop::Protocol),
        // Destination options behind a fragment header (RFC 7915, section 5.1.1).
        (
            44,
            vec![60, 0, 0, 0, 0, 0, 0, 9, 17, 0, 1, 4, 0, 0, 0, 0],
            NatDrop::Malformed,
        ),
    ] {
        let packet = v6_around(header, next, &payload);
        assert_eq!(switch.send(&packet, 0), Err(reason), "{next}");
    }
    let mut long = v6(header, &udp((5000, 53), b"a"));
    long[4] = 1;
    assert_eq!(switch.send(&long, 0), Err(NatDrop::Malformed));
    assert_eq!(switch.nat.len(), 0);
    let dropped: u64 = switch.nat.counters().dropped.iter().sum();
    assert_eq!(dropped, 17);
}

#[test]
fn packets_from_outside_that_no_router_forwards_are_dropped() {
    let mut switch = Switch::new();
    let (address, port) = switch.open(client(), server(), &udp((5000, 53), b"a"));
    let good = v4(Header::plain(server(), address), &udp((53, port), b"b"));
    assert!(switch.receive(&good, 0).is_ok());
    let mut damaged = good.clone();
    damaged[8] ^= 1;
    assert_eq!(switch.receive(&damaged, 0), Err(NatDrop::Checksum));
    for source in ["127.0.0.1", "224.0.0.1", "0.0.0.1", "255.255.255.255"] {
        let packet = v4(Header::plain(a4(source), address), &udp((53, port), b"b"));
        assert_eq!(switch.receive(&packet, 0), Err(NatDrop::NoMapping));
    }
}

#[test]
fn options_of_ipv4_are_left_out_and_source_routes_are_dropped() {
    let mut switch = Switch::new();
    let (address, port) = switch.open(client(), server(), &udp((5000, 53), b"a"));
    let header = Header::plain(server(), address);
    let content = udp((53, port), b"b");
    let with = |options: [u8; 4]| {
        let payload = plain::payload_v4(&header, &content);
        let mut octets =
            plain::v4_around(header, (0, 0x4000), 17, &[&options[..], &payload].concat());
        octets[0] = 0x46;
        plain::put(&mut octets, 10, 0);
        let sum = plain::obvious_sum(&octets[..24]);
        plain::put(&mut octets, 10, sum);
        octets
    };
    let expected = v6(
        Header::plain(mapped(server()), client()),
        &udp((53, 5000), b"b"),
    );
    // No operation and the end; router alert (RFC 2113).
    for options in [[1, 1, 1, 0], [148, 4, 0, 0]] {
        assert_eq!(switch.receive(&with(options), 0), Ok(expected.clone()));
    }
    for options in [[131, 3, 4, 0], [1, 137, 3, 4]] {
        assert_eq!(switch.receive(&with(options), 0), Err(NatDrop::Malformed));
    }
}

#[test]
fn extension_headers_are_left_out() {
    let mut switch = Switch::new();
    let header = Header::plain(client(), mapped(server()));
    let payload = plain::payload_v6(&header, &udp((5000, 53), b"a"));
    // Hop-by-hop options, a routing header without segments left, destination options.
    let extensions = [
        [43, 0, 1, 4, 0, 0, 0, 0],
        [60, 0, 0, 0, 0, 0, 0, 0],
        [17, 0, 1, 4, 0, 0, 0, 0],
    ];
    let packet = v6_around(header, 0, &[&extensions.concat()[..], &payload].concat());
    let octets = switch.send(&packet, 0).unwrap();
    let ((address, port), _) = ends_v4(&octets);
    let expected = v4_with(
        Header::plain(address, server()),
        fields_v4(&octets),
        &udp((port, 53), b"a"),
    );
    assert_eq!(octets, expected);
}

#[test]
fn udp_without_checksum_gets_one() {
    // RFC 7915, section 4.5.
    let mut switch = Switch::new();
    let (address, port) = switch.open(client(), server(), &udp((5000, 53), b"a"));
    let without = Content::Udp {
        ports: (53, port),
        data: b"odd".to_vec(),
        has_checksum: false,
    };
    let packet = v4(Header::plain(server(), address), &without);
    let received = switch.receive(&packet, 0).unwrap();
    let expected = v6(
        Header::plain(mapped(server()), client()),
        &udp((53, 5000), b"odd"),
    );
    assert_eq!(received, expected);
    // Tunnels may have none in IPv6 either (RFC 6935).
    let without = without.answer().with_port(true, 5000);
    let octets = sent(&mut switch, &without);
    assert_eq!(octets[26..28], [0, 0]);
    // A datagram longer than its packet has no checksum to compute.
    let mut longer = packet;
    longer[20 + 5] += 1;
    assert_eq!(switch.receive(&longer, 0), Err(NatDrop::Malformed));
}

#[test]
fn packets_up_to_1260_octets_may_be_fragmented() {
    // RFC 7915, section 5.1.
    let mut switch = Switch::new();
    let mut fields = |octets: usize| {
        let data = vec![0; octets - 28];
        fields_v4(&sent(&mut switch, &udp((5000, 53), &data)))
    };
    let (first, second) = (fields(1260), fields(1000));
    assert_eq!((first.1, second.1), (0, 0));
    assert_ne!(first.0, second.0);
    assert_eq!(fields(1261), (0, 0x4000));
}

#[test]
fn memory_is_reported() {
    let switch = Switch::new();
    assert!(switch.nat64.octets() >= 8 * 24);
    assert!(switch.nat64.concerns(mapped(server()).to_bits()));
    assert!(!switch.nat64.concerns(client().to_bits()));
    assert_eq!(switch.nat64.client(a4("240.0.0.0")), None);
    assert_eq!(switch.nat64.client(a4("10.0.0.0")), None);
}
