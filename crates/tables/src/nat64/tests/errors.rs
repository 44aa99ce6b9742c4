// SPDX-License-Identifier: Apache-2.0
//! ICMP errors (RFC 7915, sections 4.2, 4.3, 5.2 and 5.3).

use super::plain::{error_v4, error_v6, fields_v4, payload_v4, v4_around, v4_with};
use super::*;

/// Returns the IPv4 packet that a client's packet has become, and its external endpoint.
fn opened(switch: &mut Switch, content: &Content) -> (Vec<u8>, (Ipv4Addr, u16)) {
    let packet = v6(Header::plain(client(), mapped(server())), content);
    let sent = switch.send(&packet, 0).unwrap();
    let source = ends_v4(&sent).0;
    (sent, source)
}

/// A router outside.
fn router() -> Ipv4Addr {
    a4("203.0.113.1")
}

#[test]
fn errors_from_outside_reach_the_client_with_its_packet() {
    for content in [
        udp((5000, 53), b"query"),
        tcp((5001, 80), 2),
        echo(9, false),
    ] {
        for (from, to) in [
            ((3, 0, 0), (1, 0, 0)),
            ((3, 1, 0), (1, 0, 0)),
            ((3, 2, 0), (4, 1, 6)),
            ((3, 3, 0), (1, 4, 0)),
            ((3, 4, 1400), (2, 0, 1420)),
            // Below the smallest MTU of IPv6; not reported, so the next plateau below the packet's length.
            ((3, 4, 600), (2, 0, 1280)),
            ((3, 4, 0), (2, 0, 1280)),
            ((3, 5, 0), (1, 0, 0)),
            ((3, 8, 0), (1, 0, 0)),
            ((3, 9, 0), (1, 1, 0)),
            ((3, 10, 0), (1, 1, 0)),
            ((3, 12, 0), (1, 0, 0)),
            ((3, 13, 0), (1, 1, 0)),
            ((3, 15, 0), (1, 1, 0)),
            ((11, 0, 0), (3, 0, 0)),
            ((11, 1, 0), (3, 1, 0)),
            ((12, 0, 1 << 24), (4, 0, 1)),
            ((12, 0, 3 << 24), (4, 0, 4)),
            ((12, 0, 8 << 24), (4, 0, 7)),
            ((12, 2, 9 << 24), (4, 0, 6)),
            ((12, 0, 14 << 24), (4, 0, 8)),
            ((12, 0, 17 << 24), (4, 0, 24)),
        ] {
            let mut switch = Switch::new();
            let (packet, (address, _)) = opened(&mut switch, &content);
            let error = error_v4(Header::plain(router(), address), (5, 0), from, &packet);
            let received = switch.receive(&error, 0).unwrap();
            let inner = v6(Header::plain(client(), mapped(server())), &content);
            let expected = error_v6(Header::plain(mapped(router()), client()), to, &inner);
            assert_eq!(received, expected, "{from:?} {content:?}");
        }
    }
}

#[test]
fn errors_of_clients_reach_the_server_with_its_packet() {
    for content in [
        udp((5000, 53), b"query"),
        tcp((5001, 80), 2),
        echo(9, false),
    ] {
        for (from, to) in [
            ((1, 0, 0), (3, 1, 0)),
            ((1, 1, 0), (3, 10, 0)),
            ((1, 2, 0), (3, 1, 0)),
            ((1, 3, 0), (3, 1, 0)),
            ((1, 4, 0), (3, 3, 0)),
            ((2, 0, 1400), (3, 4, 1380)),
            ((3, 0, 0), (11, 0, 0)),
            ((3, 1, 0), (11, 1, 0)),
            ((4, 0, 1), (12, 0, 1 << 24)),
            ((4, 0, 5), (12, 0, 2 << 24)),
            ((4, 0, 6), (12, 0, 9 << 24)),
            ((4, 0, 7), (12, 0, 8 << 24)),
            ((4, 0, 9), (12, 0, 12 << 24)),
            ((4, 0, 30), (12, 0, 16 << 24)),
            ((4, 1, 0), (3, 2, 0)),
        ] {
            let mut switch = Switch::new();
            let (_, (address, port)) = opened(&mut switch, &content);
            let answer = content.clone().answer();
            let external = answer.clone().with_port(false, port);
            let packet = v4(Header::plain(server(), address), &external);
            let received = switch.receive(&packet, 0).unwrap();
            assert_eq!(
                received,
                v6(Header::plain(mapped(server()), client()), &answer)
            );
            // Of a router between client and switch.
            let sender = a6("2001:db8:1::1");
            let error = error_v6(Header::plain(sender, mapped(server())), from, &received);
            let sent = switch.send(&error, 0).unwrap();
            let inner = v4_with(Header::plain(server(), address), (0, 0), &external);
            let fields = fields_v4(&sent);
            assert_eq!(fields.1, 0);
            let expected = error_v4(Header::plain(address, server()), fields, to, &inner);
            assert_eq!(sent, expected, "{from:?} {content:?}");
        }
    }
}

#[test]
fn an_mtu_leaves_space_for_the_fragment_header_of_the_packet() {
    let mut switch = Switch::new();
    let (_, (address, port)) = opened(&mut switch, &udp((5000, 53), b"query"));
    let header = Header::plain(server(), address);
    let payload = payload_v4(&header, &udp((53, port), &[7; 40]));
    // The first fragment, with more to come.
    let first = v4_around(header, (9, 0x2000), 17, &payload[..24]);
    let received = switch.receive(&first, 0).unwrap();
    assert_eq!(received[6], 44, "the fragment header");
    let error = error_v6(
        Header::plain(client(), mapped(server())),
        (2, 0, 1400),
        &received,
    );
    let sent = switch.send(&error, 0).unwrap();
    assert_eq!((sent[20], sent[21]), (3, 4));
    assert_eq!(sent[24..28], 1372u32.to_be_bytes());
}

#[test]
fn errors_without_translation_are_dropped() {
    let content = udp((5000, 53), b"query");
    let mut switch = Switch::new();
    let (packet, (address, port)) = opened(&mut switch, &content);
    for kind in [
        (3, 14, 0),
        (3, 16, 0),
        (12, 1, 0),
        (12, 0, 5 << 24),
        (12, 0, 20 << 24),
        (4, 0, 0),
        (5, 0, 0),
        (13, 0, 0),
    ] {
        let error = error_v4(Header::plain(router(), address), (5, 0), kind, &packet);
        assert_eq!(
            switch.receive(&error, 0),
            Err(NatDrop::IcmpType),
            "{kind:?}"
        );
    }
    let answer = v4(Header::plain(server(), address), &udp((53, port), b"b"));
    let answer = switch.receive(&answer, 0).unwrap();
    for kind in [(1, 5, 0), (4, 2, 0), (4, 0, 2), (4, 0, 40), (100, 0, 0)] {
        let error = error_v6(Header::plain(client(), mapped(server())), kind, &answer);
        assert_eq!(switch.send(&error, 0), Err(NatDrop::IcmpType), "{kind:?}");
    }
    // RFC 6146, section 3.5.3: errors change no state.
    assert_eq!((switch.nat.len(), switch.nat64.clients()), (1, 1));
}

#[test]
fn damaged_and_unrelated_errors_are_dropped() {
    let content = udp((5000, 53), b"query");
    let mut switch = Switch::new();
    let (_, (address, port)) = opened(&mut switch, &content);
    let answer = v4(Header::plain(server(), address), &udp((53, port), b"b"));
    let answer = switch.receive(&answer, 0).unwrap();
    let header = Header::plain(client(), mapped(server()));
    let mut damaged = error_v6(header, (1, 4, 0), &answer);
    damaged[60] ^= 1;
    assert_eq!(switch.send(&damaged, 0), Err(NatDrop::Checksum));
    let short = error_v6(header, (1, 4, 0), &answer[..44]);
    assert_eq!(switch.send(&short, 0), Err(NatDrop::Malformed));
    for (source, destination) in [
        // To a host without mappings; not from the prefix.
        (mapped(server()), a6("2001:db8:1::77")),
        (a6("2001:db8:9::1"), client()),
    ] {
        let inner = v6(Header::plain(source, destination), &udp((53, 5000), b"b"));
        let error = error_v6(header, (1, 4, 0), &inner);
        assert_eq!(switch.send(&error, 0), Err(NatDrop::NoMapping));
    }
    // To a port of the client without mapping.
    let inner = v6(
        Header::plain(mapped(server()), client()),
        &udp((53, 5001), b"b"),
    );
    let error = error_v6(header, (1, 4, 0), &inner);
    assert_eq!(switch.send(&error, 0), Err(NatDrop::NoMapping));
}

#[test]
fn errors_are_no_longer_than_they_may_be() {
    let mut switch = Switch::new();
    let content = udp((5000, 53), &[7; 1400]);
    let (packet, (address, port)) = opened(&mut switch, &content);
    let error = error_v4(
        Header::plain(router(), address),
        (5, 0),
        (11, 0, 0),
        &packet,
    );
    assert_eq!(error.len(), 1456);
    let received = switch.receive(&error, 0).unwrap();
    let inner = v6(Header::plain(client(), mapped(server())), &content);
    let header = Header::plain(mapped(router()), client());
    assert_eq!(received, error_v6(header, (3, 0, 0), &inner[..1232]));
    let external = udp((53, port), &[7; 1000]);
    let packet = v4(Header::plain(server(), address), &external);
    let received = switch.receive(&packet, 0).unwrap();
    let error = error_v6(
        Header::plain(client(), mapped(server())),
        (3, 0, 0),
        &received,
    );
    let sent = switch.send(&error, 0).unwrap();
    let inner = v4_with(Header::plain(server(), address), (0, 0), &external);
    let expected = error_v4(
        Header::plain(address, server()),
        fields_v4(&sent),
        (11, 0, 0),
        &inner[..548],
    );
    assert_eq!(sent, expected);
}

#[test]
fn extensions_of_errors_are_left_out() {
    // RFC 4884: the packet has 128 octets, and an extension is behind it.
    let mut switch = Switch::new();
    let content = udp((5000, 53), &[7; 300]);
    let (packet, (address, port)) = opened(&mut switch, &content);
    let extended = [&packet[..128], &[0x20, 0, 0, 0, 0, 8, 1, 1, 1, 2, 3, 4]].concat();
    let kind = (11, 0, 32 << 16);
    let error = error_v4(Header::plain(router(), address), (5, 0), kind, &extended);
    let received = switch.receive(&error, 0).unwrap();
    let inner = v6(Header::plain(client(), mapped(server())), &content);
    let header = Header::plain(mapped(router()), client());
    assert_eq!(received, error_v6(header, (3, 0, 0), &inner[..148]));
    let external = udp((53, port), &[7; 300]);
    let packet = v4(Header::plain(server(), address), &external);
    let received = switch.receive(&packet, 0).unwrap();
    let extended = [&received[..128], &[0x20, 0, 0, 0, 0, 8, 1, 1, 1, 2, 3, 4]].concat();
    let header = Header::plain(client(), mapped(server()));
    let sent = switch
        .send(&error_v6(header, (3, 0, 16 << 24), &extended), 0)
        .unwrap();
    let inner = v4_with(Header::plain(server(), address), (0, 0), &external);
    let header = Header::plain(address, server());
    let expected = error_v4(header, fields_v4(&sent), (11, 0, 0), &inner[..108]);
    assert_eq!(sent, expected);
}

#[test]
fn errors_of_routers_without_an_address_of_the_prefix_seem_to_come_from_the_server() {
    let well_known = Nat64Settings {
        prefix: net("64:ff9b::/96"),
        ..settings()
    };
    let mut switch = Switch::with(&nat_settings(), &well_known);
    let server = a6("64:ff9b::909:909");
    let packet = v6(Header::plain(client(), server), &udp((5000, 53), b"query"));
    let sent = switch.send(&packet, 0).unwrap();
    let (address, port) = ends_v4(&sent).0;
    let router = Header::plain(a4("10.0.0.1"), address);
    let error = error_v4(router, (5, 0), (3, 4, 1400), &sent);
    let received = switch.receive(&error, 0).unwrap();
    let expected = error_v6(Header::plain(server, client()), (2, 0, 1420), &packet);
    assert_eq!(received, expected);
    // Its other packets have no address that the client could answer to.
    let packet = v4(router, &udp((53, port), b"b"));
    assert_eq!(switch.receive(&packet, 0), Err(NatDrop::NoMapping));
}

#[test]
fn a_truncated_packet_in_an_error_keeps_what_it_has() {
    // Ports, but no checksum of TCP.
    let mut switch = Switch::new();
    let content = tcp((5001, 80), 2);
    let (packet, (address, _)) = opened(&mut switch, &content);
    let error = error_v4(
        Header::plain(router(), address),
        (5, 0),
        (11, 0, 0),
        &packet[..28],
    );
    let received = switch.receive(&error, 0).unwrap();
    let inner = v6(Header::plain(client(), mapped(server())), &content);
    let header = Header::plain(mapped(router()), client());
    assert_eq!(received, error_v6(header, (3, 0, 0), &inner[..48]));
}

#[test]
fn errors_between_clients_return() {
    let mut switch = Switch::new();
    let other = a6("2001:db8:1::6");
    let (address, port) = switch.open(other, server(), &udp((7000, 53), b"a"));
    let packet = v6(
        Header::plain(client(), mapped(address)),
        &udp((5000, port), b"b"),
    );
    let received = switch.send(&packet, 0).unwrap();
    let error = error_v6(Header::plain(other, mapped(address)), (1, 4, 0), &received);
    let sent = switch.send(&error, 0).unwrap();
    let expected = error_v6(Header::plain(mapped(address), client()), (1, 4, 0), &packet);
    assert_eq!(sent, expected);
}
