// SPDX-License-Identifier: Apache-2.0
//! Requirements of NAT44 that hold for IPv6 hosts too, and those of IPv6.

use super::*;

/// A fragment of a payload, behind a fragment header.
fn fragment(
    header: Header<Ipv6Addr>,
    (next, identification): (u8, u32),
    (offset, has_more): (u16, bool),
    payload: &[u8],
) -> Vec<u8> {
    let field = offset | u16::from(has_more);
    let extension = [
        &[next, 0][..],
        &field.to_be_bytes(),
        &identification.to_be_bytes(),
        payload,
    ]
    .concat();
    v6_around(header, 44, &extension)
}

fn forward(port: u16, internal: &str) -> Forward<SocketAddrV6> {
    Forward {
        protocol: crate::nat::NatProtocol::Tcp,
        external: SocketAddrV6::new(external(), port, 0, 0),
        internal: internal.parse().unwrap(),
    }
}

#[test]
fn a_host_has_one_external_endpoint_and_any_remote_host_reaches_it() {
    let mut switch = Switch::new();
    let first = switch.open(host(), &udp((5000, 53)));
    let packet = v6(
        Header::plain(host(), a6("2001:db8:f::81")),
        &udp((5000, 80)),
    );
    assert_eq!(ends_v6(&switch.send(&packet, 0).unwrap()).0, first);
    let stranger = v6(
        Header::plain(a6("2001:db8:f::99"), external()),
        &udp((9, first.1)),
    );
    let received = switch.receive(&stranger, 0).unwrap();
    assert_eq!(ends_v6(&received).1, (host(), 5000));
    let other = v6(Header::plain(remote(), external()), &udp((53, first.1 ^ 1)));
    assert_eq!(switch.receive(&other, 0), Err(NatDrop::NoMapping));
    // Each protocol has its own ports.
    let other = v6(
        Header::plain(remote(), external()),
        &tcp((53, first.1), 0x10),
    );
    assert_eq!(switch.receive(&other, 0), Err(NatDrop::NoMapping));
}

#[test]
fn hosts_have_different_ports_and_a_limit_of_blocks() {
    let mut switch = Switch::new();
    let mut taken = std::collections::HashSet::new();
    for from in [host(), neighbour()] {
        // Two blocks of 16 ports.
        for port in 0..32 {
            assert!(taken.insert(switch.open(from, &udp((5000 + port, 53))).1));
        }
    }
    let packet = v6(Header::plain(host(), remote()), &udp((6000, 53)));
    assert_eq!(switch.send(&packet, 0), Err(NatDrop::HostLimit));
    assert_eq!((switch.nat66.hosts(), switch.nat.len()), (2, 64));
    let counters = switch.nat.counters();
    assert_eq!(counters.dropped[NatDrop::HostLimit as usize], 1);
    assert_eq!((counters.created, counters.outbound), (64, 64));
}

/// The last mapping of a host has expired, and its block returns with the packet that requires another one.
#[test]
fn a_host_whose_mapping_has_expired_begins_another_one() {
    let mut switch = Switch::new();
    switch.open(host(), &echo(7, false));
    let packet = v6(Header::plain(host(), remote()), &echo(7, false));
    let sent = switch.send(&packet, 1000).unwrap();
    let ((_, identifier), _) = ends_v6(&sent);
    let answer = v6(Header::plain(remote(), external()), &echo(identifier, true));
    let received = switch.receive(&answer, 1000).unwrap();
    assert_eq!(
        received,
        v6(Header::plain(remote(), host()), &echo(7, true))
    );
}

#[test]
fn inbound_packets_refresh_no_mapping() {
    let mut switch = Switch::new();
    let (_, port) = switch.open(host(), &udp((5000, 53)));
    let answer = v6(Header::plain(remote(), external()), &udp((53, port)));
    assert!(switch.receive(&answer, 299).is_ok());
    assert!(switch.receive(&answer, 300).is_ok());
    assert_eq!(switch.receive(&answer, 301), Err(NatDrop::NoMapping));
}

#[test]
fn inside_hosts_reach_one_another_by_external_endpoints() {
    let mut switch = Switch::new();
    let (_, port) = switch.open(neighbour(), &udp((4000, 53)));
    let packet = v6(Header::plain(host(), external()), &udp((5000, port)));
    let (outcome, made) = switch.run(&packet, 0, Nat66::hairpin);
    assert_eq!(outcome, NatOutcome::Hairpinned);
    let ((source, source_port), destination) = ends_v6(&made);
    assert_eq!((source, destination), (external(), (neighbour(), 4000)));
    let expected = v6(
        Header::plain(external(), neighbour()),
        &udp((source_port, 4000)),
    );
    assert_eq!(made, expected);
    // An error about it returns to the host.
    let error = error_v6(Header::plain(neighbour(), external()), (1, 4, 0), &made);
    let (outcome, error) = switch.run(&error, 0, Nat66::hairpin);
    assert_eq!(outcome, NatOutcome::Hairpinned);
    let expected = error_v6(Header::plain(external(), host()), (1, 4, 0), &packet);
    assert_eq!(error, expected);
    // Without the mapping, the sender gets none.
    let packet = v6(Header::plain(host(), external()), &tcp((5000, port), 2));
    let (outcome, _) = switch.run(&packet, 0, Nat66::hairpin);
    assert_eq!(outcome, NatOutcome::Dropped(NatDrop::NoMapping));
    assert_eq!(switch.nat.len(), 2);
}

#[test]
fn published_ports_lead_to_a_host_and_back_and_end() {
    let mut switch = Switch::new();
    assert_eq!(switch.set_forwards(&[forward(443, "[fd00:1::5]:8443")]), 0);
    let packet = v6(Header::plain(remote(), external()), &tcp((9, 443), 2));
    let received = switch.receive(&packet, 0).unwrap();
    assert_eq!(
        received,
        v6(Header::plain(remote(), host()), &tcp((9, 8443), 2))
    );
    let answer = v6(Header::plain(host(), remote()), &tcp((8443, 9), 0x12));
    let sent = switch.send(&answer, 9999).unwrap();
    assert_eq!(
        sent,
        v6(Header::plain(external(), remote()), &tcp((443, 9), 0x12))
    );
    // The host keeps its number beside another forward, whatever the order.
    let number = switch.nat.list(0, usize::MAX).0[0].internal;
    let both = [
        forward(80, "[fd00:1::6]:80"),
        forward(443, "[fd00:1::5]:8443"),
    ];
    assert_eq!(switch.set_forwards(&both), 0);
    let listed = switch.nat.list(0, usize::MAX).0;
    assert!(listed.iter().any(|one| one.internal == number));
    assert_eq!((listed.len(), switch.nat66.hosts()), (2, 2));
    assert_eq!(switch.set_forwards(&[]), 0);
    assert_eq!((switch.nat.len(), switch.nat66.hosts()), (0, 0));
    assert_eq!(switch.receive(&packet, 0), Err(NatDrop::NoMapping));
    // Of another external address.
    let mut wrong = forward(443, "[fd00:1::5]:8443");
    wrong.external.set_ip(remote());
    assert_eq!(switch.set_forwards(&[wrong]), 1);
    assert_eq!(switch.nat66.hosts(), 0);
}

#[test]
fn all_published_ports_can_lead_to_other_hosts_at_once() {
    let mut switch = Switch::new();
    for number in 0..8 {
        let from = Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, number);
        switch.open(from, &udp((5000, 53)));
    }
    let count = FORWARDS_MAX as u16;
    let forwards = |network: u16| -> Vec<Forward<SocketAddrV6>> {
        let port = |number: u16| {
            let internal = Ipv6Addr::new(0xfd00, network, 0, 0, 0, 0, 0, number);
            let internal = SocketAddrV6::new(internal, 80, 0, 0);
            forward(2000 + number, &internal.to_string())
        };
        (0..count).map(port).collect()
    };
    for network in [3, 4, 3] {
        assert_eq!(switch.set_forwards(&forwards(network)), 0);
        assert_eq!(switch.nat66.hosts(), FORWARDS_MAX + 8);
    }
    let packet = v6(Header::plain(remote(), external()), &tcp((9, 2005), 2));
    let received = switch.receive(&packet, 0).unwrap();
    assert_eq!(ends_v6(&received).1, (a6("fd00:3::5"), 80));
}

#[test]
fn fragments_behind_the_first_one_are_translated_in_both_directions() {
    let mut switch = Switch::new();
    let content = Content::Udp {
        ports: (5000, 53),
        data: (0..100).collect(),
        has_checksum: true,
    };
    let whole = |header, content: &Content| v6(header, content)[40..].to_vec();
    let out = Header::plain(host(), remote());
    let payload = whole(out, &content);
    let later = fragment(out, (17, 7), (64, false), &payload[64..]);
    assert_eq!(switch.send(&later, 0), Err(NatDrop::Fragment));
    let first = fragment(out, (17, 7), (0, true), &payload[..64]);
    let sent = [first, later].map(|one| switch.send(&one, 0).unwrap());
    let port = u16::from_be_bytes([sent[0][48], sent[0][49]]);
    let identification = u32::from_be_bytes([sent[0][44], sent[0][45], sent[0][46], sent[0][47]]);
    let out = Header::plain(external(), remote());
    let payload = whole(out, &content.clone().with_port(true, port));
    assert_eq!(
        sent[0],
        fragment(out, (17, identification), (0, true), &payload[..64])
    );
    assert_eq!(
        sent[1],
        fragment(out, (17, identification), (64, false), &payload[64..])
    );
    let back = Header::plain(remote(), external());
    let answer = content.clone().answer().with_port(false, port);
    let payload = whole(back, &answer);
    let parts = [
        fragment(back, (17, 9), (0, true), &payload[..64]),
        fragment(back, (17, 9), (64, false), &payload[64..]),
    ];
    let received = parts.map(|one| switch.receive(&one, 0).unwrap());
    let back = Header::plain(remote(), host());
    let payload = whole(back, &content.answer());
    assert_eq!(
        received[0],
        fragment(back, (17, 9), (0, true), &payload[..64])
    );
    assert_eq!(
        received[1],
        fragment(back, (17, 9), (64, false), &payload[64..])
    );
}

#[test]
fn fragments_that_overlap_the_header_are_dropped() {
    let mut switch = Switch::new();
    let header = Header::plain(host(), remote());
    let segment = &v6(header, &tcp((5000, 80), 0x10))[40..];
    let first = fragment(header, (6, 8), (0, true), segment);
    assert!(switch.send(&first, 0).is_ok());
    let overlap = fragment(header, (6, 8), (8, true), segment);
    assert_eq!(switch.send(&overlap, 0), Err(NatDrop::Fragment));
    let later = fragment(header, (6, 8), (24, false), segment);
    assert!(switch.send(&later, 0).is_ok());
    // A header length below that of every TCP header does not let a later fragment replace the control bits.
    let mut short = segment.to_vec();
    short[12] = 0;
    let first = fragment(header, (6, 9), (0, true), &short);
    assert!(switch.send(&first, 0).is_ok());
    for (offset, expected) in [
        (8, Err(NatDrop::Fragment)),
        (16, Err(NatDrop::Fragment)),
        (24, Ok(())),
    ] {
        let later = fragment(header, (6, 9), (offset, true), segment);
        assert_eq!(switch.send(&later, 0).map(drop), expected);
    }
}

#[test]
fn extension_headers_stay() {
    let mut switch = Switch::new();
    let header = Header::plain(host(), remote());
    let with_options = |header: Header<Ipv6Addr>, content: &Content| {
        let payload = [&[17, 0, 1, 4, 0, 0, 0, 0][..], &v6(header, content)[40..]].concat();
        v6_around(header, 60, &payload)
    };
    let content = udp((5000, 53));
    let sent = switch.send(&with_options(header, &content), 0).unwrap();
    let port = u16::from_be_bytes([sent[48], sent[49]]);
    let header = Header::plain(external(), remote());
    assert_eq!(sent, with_options(header, &content.with_port(true, port)));
}

#[test]
fn packets_that_cannot_be_translated_are_dropped() {
    let mut switch = Switch::new();
    let header = Header::plain(host(), remote());
    let packet = v6(header, &udp((5000, 53)));
    let (_, port) = switch.open(host(), &udp((5000, 53)));
    let mut version = packet.clone();
    version[0] = 0x40;
    let mut long = packet.clone();
    long[5] += 8;
    let mut damaged = error_v6(header, (1, 4, 0), &packet);
    *damaged.last_mut().unwrap() ^= 1;
    let route = |left| {
        let payload = [&[17, 2, 4, left][..], &[0; 20], &packet[40..]].concat();
        v6_around(header, 43, &payload)
    };
    let link_local = v6(Header::plain(a6("fe80::5"), remote()), &udp((5000, 53)));
    let unrelated = v6(Header::plain(remote(), neighbour()), &udp((53, port)));
    let solicitation = v6_around(header, 58, &[135, 0, 0, 0, 0, 0, 0, 0]);
    for (packet, reason) in [
        (packet[..39].to_vec(), NatDrop::Malformed),
        (packet[..44].to_vec(), NatDrop::Malformed),
        (version, NatDrop::Malformed),
        (long, NatDrop::Malformed),
        (route(1), NatDrop::Malformed),
        (link_local, NatDrop::Malformed),
        (v6_around(header, 51, &[0; 32]), NatDrop::Protocol),
        (v6_around(header, 50, &[0; 32]), NatDrop::Protocol),
        (solicitation, NatDrop::IcmpType),
        (v6(header, &echo(1, true)), NatDrop::NoMapping),
        (damaged, NatDrop::Checksum),
        (error_v6(header, (1, 4, 0), &unrelated), NatDrop::NoMapping),
    ] {
        assert_eq!(switch.send(&packet, 0), Err(reason), "{packet:02x?}");
    }
    assert!(switch.send(&route(0), 0).is_ok());
    assert_eq!(switch.nat.len(), 1);
}

#[test]
fn errors_of_the_router_have_external_addresses() {
    let mut switch = Switch::new();
    let (_, port) = switch.open(host(), &udp((5000, 53)));
    let router = a6("2001:db8::9");
    let about = v6(Header::plain(remote(), host()), &udp((53, 5000)));
    let mut error = error_v6(Header::plain(router, remote()), (3, 0, 0), &about);
    let length = error.len();
    switch
        .nat66
        .translate_own_error(&switch.nat, &mut error, length);
    let about = v6(Header::plain(remote(), external()), &udp((53, port)));
    let expected = error_v6(Header::plain(router, remote()), (3, 0, 0), &about);
    assert_eq!(error, expected);
}

#[test]
fn copies_have_the_inside_destination_and_change_no_mapping() {
    let mut switch = Switch::new();
    let (_, port) = switch.open(host(), &tcp((5000, 80), 2));
    let answer = v6(Header::plain(remote(), external()), &tcp((80, port), 0x12));
    let inner = v6(Header::plain(external(), remote()), &tcp((port, 80), 2));
    let error = error_v6(Header::plain(remote(), external()), (1, 4, 0), &inner);
    let before = switch.nat.list(0, usize::MAX).0;
    for packet in [answer, error] {
        let mut copy = packet.clone();
        let length = copy.len();
        let outcome = switch.nat66.show_inside(&switch.nat, &mut copy, length);
        assert_eq!(outcome, NatOutcome::Translated);
        assert_eq!(switch.nat.counters().inbound, 0);
        assert_eq!(switch.nat.list(0, usize::MAX).0, before);
        assert_eq!(copy[24..40], host().octets());
        let other = Switch::new();
        let mut copy = packet;
        let outcome = other.nat66.show_inside(&other.nat, &mut copy, length);
        assert_eq!(outcome, NatOutcome::Dropped(NatDrop::NoMapping));
    }
    let answer = v6(Header::plain(remote(), external()), &tcp((80, port), 0x12));
    let mut copy = answer.clone();
    let length = copy.len();
    switch.nat66.show_inside(&switch.nat, &mut copy, length);
    assert_eq!(switch.receive(&answer, 0).unwrap(), copy);
    let protocol = crate::nat::NatProtocol::Tcp;
    let of = |socket: &str| {
        let internal = socket.parse().unwrap();
        switch.nat66.external_of(&switch.nat, protocol, internal)
    };
    let wanted = SocketAddrV6::new(external(), port, 0, 0);
    assert_eq!(of("[fd00:1::5]:5000"), Some(wanted));
    assert_eq!((of("[fd00:1::5]:1"), of("[fd00:1::6]:5000")), (None, None));
}

#[test]
fn settings_without_sense_are_refused() {
    let settings = settings();
    assert_eq!(settings.check(&[forward(443, "[fd00:1::5]:8443")]), Ok(()));
    let error = |forwards: &[Forward<SocketAddrV6>]| settings.check(forwards).unwrap_err();
    let mut of_icmp = forward(443, "[fd00:1::5]:8443");
    of_icmp.protocol = crate::nat::NatProtocol::Icmp;
    let mut elsewhere = forward(443, "[fd00:1::5]:8443");
    elsewhere.external.set_ip(remote());
    for (forwards, printed) in [
        (vec![of_icmp], "only TCP and UDP"),
        (vec![elsewhere], "not an external address of the pool"),
        (vec![forward(0, "[fd00:1::5]:1")], "port 0 is reserved"),
        (
            vec![forward(1, "[fe80::5]:1")],
            "not a unicast address of a host",
        ),
        (
            vec![forward(1, "[ff02::1]:1")],
            "not a unicast address of a host",
        ),
        (
            vec![forward(1, "[fd00:1::5]:1"), forward(1, "[fd00:1::6]:1")],
            "another forward has one of these endpoints",
        ),
        (
            vec![forward(1, "[fd00:1::5]:1"), forward(2, "[fd00:1::5]:1")],
            "another forward has one of these endpoints",
        ),
    ] {
        let error = error(&forwards).to_string();
        assert!(error.contains(printed), "{error}");
    }
    for (externals, printed) in [
        (vec![], "0 external addresses"),
        (vec![external(), external()], "listed twice"),
    ] {
        let settings = Nat66Settings {
            externals,
            hosts_max: 8,
        };
        let error = settings.check(&[]).unwrap_err().to_string();
        assert!(error.contains(printed), "{error}");
    }
}
