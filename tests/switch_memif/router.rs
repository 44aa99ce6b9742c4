// SPDX-License-Identifier: Apache-2.0
//! The router as observed on the wire: neighbours, forwarding, errors, fragments, VRFs, bridges.

use std::net::{IpAddr, Ipv4Addr};

use etherparse::{
    ArpEthIpv4Packet, ArpHardwareId, ArpOperation, ArpPacket, EtherType, IpNumber, Ipv4Slice,
    PacketBuilder, SlicedPacket,
};
use quietwire_switch::report::{
    InterfaceReport, NeighbourReport, RoutesReport, StatsReport, VrfReport,
};

use crate::bench::{Bench, Peer, change, command, output, refused, until};

pub(crate) const ROUTER_A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
pub(crate) const ROUTER_B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
pub(crate) const HOST_A: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const HOST_B: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn show_routes(bench: &Bench, more: &[&str]) -> RoutesReport {
    let arguments = [&["show", "routes", "--json"], more].concat();
    serde_json::from_str(&output(&mut command(bench, &arguments))).unwrap()
}

/// Returns a router with an interface on each of two ports: 192.0.2.1/24 and 2001:db8:a::1/64, 198.51.100.1/24 and
/// 2001:db8:b::1/64.
pub(crate) fn router() -> Bench {
    let bench = Bench::start(&["a", "b"], &[]);
    for (name, mac, v4, v6) in [
        ("a", "02:00:00:00:00:0a", "192.0.2.1/24", "2001:db8:a::1/64"),
        (
            "b",
            "02:00:00:00:00:0b",
            "198.51.100.1/24",
            "2001:db8:b::1/64",
        ),
    ] {
        let interface = format!("{name}0");
        change(
            &bench,
            &[
                "add",
                "interface",
                &interface,
                "--port",
                name,
                "--mac",
                mac,
                "--address",
                v4,
                "--address",
                v6,
            ],
        );
    }
    bench
}

/// Returns a datagram in a frame.
pub(crate) fn udp(
    macs: ([u8; 6], [u8; 6]),
    from: &str,
    to: &str,
    ttl: u8,
    payload: usize,
) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(macs.0, macs.1);
    let builder = match (from.parse().unwrap(), to.parse().unwrap()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => builder.ipv4(from.octets(), to.octets(), ttl),
        (IpAddr::V6(from), IpAddr::V6(to)) => builder.ipv6(from.octets(), to.octets(), ttl),
        _ => panic!(),
    };
    let builder = builder.udp(4000, 5000);
    let mut frame = Vec::new();
    builder.write(&mut frame, &vec![0x5a; payload]).unwrap();
    frame
}

fn arp(operation: ArpOperation, macs: ([u8; 6], [u8; 6]), from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let target = if operation == ArpOperation::REQUEST {
        [0; 6]
    } else {
        macs.1
    };
    let packet = ArpPacket::new(
        ArpHardwareId::ETHERNET,
        EtherType::IPV4,
        operation,
        &macs.0,
        &from.octets(),
        &target,
        &to.octets(),
    )
    .unwrap();
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(macs.0, macs.1)
        .arp(packet)
        .write(&mut frame)
        .unwrap();
    frame.resize(60, 0);
    frame
}

fn read_arp(frame: &[u8]) -> Option<ArpEthIpv4Packet> {
    let sliced = SlicedPacket::from_ethernet(frame).ok()?;
    let Some(etherparse::NetSlice::Arp(arp)) = sliced.net else {
        return None;
    };
    arp.to_packet().try_eth_ipv4().ok()
}

/// Answers the router's request for an address, which arrives first.
pub(crate) fn answer(peer: &mut Peer, mac: [u8; 6], address: Ipv4Addr) {
    let asked = peer.receive(1);
    let question = read_arp(&asked[0]).unwrap();
    assert_eq!(question.operation, ArpOperation::REQUEST);
    assert_eq!(question.target_ipv4_addr(), address);
    let router = question.sender_mac;
    let reply = arp(
        ArpOperation::REPLY,
        (mac, router),
        address,
        question.sender_ipv4_addr(),
    );
    peer.send(&[reply]);
}

pub(crate) fn v4(frame: &[u8]) -> Ipv4Slice<'_> {
    Ipv4Slice::from_slice(&frame[14..]).unwrap()
}

#[test]
fn the_first_packets_wait_for_their_neighbour_and_go_on() {
    let bench = router();
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let packets: Vec<Vec<u8>> = (0..3)
        .map(|n| udp((HOST_A, ROUTER_A), "192.0.2.7", "198.51.100.9", 64, 20 + n))
        .collect();
    a.send(&packets);
    answer(&mut b, HOST_B, Ipv4Addr::new(198, 51, 100, 9));
    let received = b.receive(3);
    for (sent, got) in packets.iter().zip(&received) {
        // Link addresses are replaced, the TTL is one lower, the checksum is right, and everything else is unchanged.
        assert_eq!(got[..12], [HOST_B, ROUTER_B].concat());
        assert_eq!(v4(got).header().ttl(), 63);
        let header = v4(got).header().to_header();
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        assert_eq!(got[14 + 12..], sent[14 + 12..]);
    }
    // Now the neighbour is known.
    let more = udp((HOST_A, ROUTER_A), "192.0.2.7", "198.51.100.9", 2, 100);
    a.send(std::slice::from_ref(&more));
    assert_eq!(v4(&b.receive(1)[0]).header().ttl(), 1);
    let neighbours: Vec<NeighbourReport> = bench.show("neighbours");
    assert_eq!(neighbours.len(), 1);
    assert_eq!(neighbours[0].mac.unwrap().to_string(), "02:00:00:00:00:02");
    let routes = show_routes(&bench, &["--prefix", "198.51.100.0/24"]);
    let active: Vec<String> = routes
        .routes
        .iter()
        .filter(|route| route.is_active)
        .map(|route| route.prefix.to_string())
        .collect();
    assert_eq!(
        active,
        [
            "198.51.100.0/24",
            "198.51.100.1/32",
            "198.51.100.9/32",
            "198.51.100.255/32"
        ]
    );
    let stats: StatsReport = bench.show("stats");
    assert!(stats.router.forwarded >= 4, "{:?}", stats.router);
}

#[test]
fn questions_for_our_addresses_are_answered() {
    let bench = router();
    let mut a = bench.peer("a");
    // RFC 826, and echo (RFC 792).
    let (host, us) = (Ipv4Addr::new(192, 0, 2, 7), Ipv4Addr::new(192, 0, 2, 1));
    a.send(&[arp(ArpOperation::REQUEST, (HOST_A, [0xff; 6]), host, us)]);
    let reply = read_arp(&a.receive(1)[0]).unwrap();
    assert_eq!(
        (reply.operation, reply.sender_mac, reply.target_mac),
        (ArpOperation::REPLY, ROUTER_A, HOST_A)
    );
    let mut ping = Vec::new();
    PacketBuilder::ethernet2(HOST_A, ROUTER_A)
        .ipv4(host.octets(), us.octets(), 64)
        .icmpv4_echo_request(7, 9)
        .write(&mut ping, b"are you there?")
        .unwrap();
    a.send(&[ping]);
    let pong = a.receive(1);
    let mut expected = Vec::new();
    PacketBuilder::ethernet2(ROUTER_A, HOST_A)
        .ipv4(us.octets(), host.octets(), 64)
        .icmpv4_echo_reply(7, 9)
        .write(&mut expected, b"are you there?")
        .unwrap();
    assert_eq!(pong[0][34..expected.len()], expected[34..]);
    assert_eq!(v4(&pong[0]).header().source_addr(), us);

    // The same for IPv6: a neighbour solicitation for the router's address (RFC 4861), an echo request (RFC 4443).
    let host = "2001:db8:a::7".parse::<std::net::Ipv6Addr>().unwrap();
    let us = "2001:db8:a::1".parse::<std::net::Ipv6Addr>().unwrap();
    let mut ping = Vec::new();
    PacketBuilder::ethernet2(HOST_A, ROUTER_A)
        .ipv6(host.octets(), us.octets(), 64)
        .icmpv6_echo_request(7, 9)
        .write(&mut ping, b"and you?")
        .unwrap();
    a.send(&[ping]);
    // The router first solicits the host, by the group of its address.
    let question = a.receive(1);
    assert_eq!(question[0][..6], [0x33, 0x33, 0xff, 0, 0, 7]);
    assert_eq!((question[0][54], question[0][21]), (135, 255));
    let mut advertisement = vec![0x60, 0, 0, 0];
    advertisement.splice(..0, [&ROUTER_A[..], &HOST_A, &[0x86, 0xdd]].concat());
    let mut message = vec![136, 0, 0, 0, 0x60, 0, 0, 0];
    message.extend(host.octets());
    message.extend([2, 1]);
    message.extend(HOST_A);
    let sum = icmpv6_sum(host, us, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    advertisement.extend((message.len() as u16).to_be_bytes());
    advertisement.extend([58, 255]);
    advertisement.extend(host.octets());
    advertisement.extend(us.octets());
    advertisement.extend(message);
    a.send(&[advertisement]);
    let pong = a.receive(1);
    assert_eq!(pong[0][..12], [HOST_A, ROUTER_A].concat());
    assert_eq!((pong[0][54], &pong[0][62..]), (129, &b"and you?"[..]));
}

fn icmpv6_sum(from: std::net::Ipv6Addr, to: std::net::Ipv6Addr, message: &[u8]) -> u16 {
    let header = etherparse::Icmpv6Type::Unknown {
        type_u8: message[0],
        code_u8: message[1],
        bytes5to8: message[4..8].try_into().unwrap(),
    };
    header
        .calc_checksum(from.octets(), to.octets(), &message[8..])
        .unwrap()
}

#[test]
fn senders_are_reported_why_a_packet_does_not_go_on() {
    let bench = router();
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    change(
        &bench,
        &["add", "neighbour", "a0", "192.0.2.7", "02:00:00:00:00:01"],
    );
    change(
        &bench,
        &[
            "add",
            "neighbour",
            "b0",
            "198.51.100.9",
            "02:00:00:00:00:02",
        ],
    );
    change(
        &bench,
        &["add", "route", "203.0.113.0/25", "--kind", "prohibit"],
    );
    change(
        &bench,
        &["add", "route", "203.0.113.128/25", "--kind", "blackhole"],
    );
    let to = |to: &str, ttl| udp((HOST_A, ROUTER_A), "192.0.2.7", to, ttl, 40);
    for (packet, kind, code) in [
        (to("198.51.100.9", 1), 11, 0),
        (to("10.0.0.1", 64), 3, 0),
        (to("203.0.113.1", 64), 3, 13),
        (to("192.0.2.1", 64), 3, 3),
    ] {
        a.send(std::slice::from_ref(&packet));
        let error = a.receive(1);
        let ip = v4(&error[0]);
        assert_eq!(ip.header().source_addr(), Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(ip.header().protocol(), IpNumber::ICMP);
        let message = ip.payload().payload;
        assert_eq!((message[0], message[1]), (kind, code));
        // The packet is quoted as it was received (RFC 1812, section 4.3.2.3).
        assert_eq!(message[8..], packet[14..]);
    }
    a.send(&[to("203.0.113.200", 64)]);
    // Too big for the next link, and it must not be fragmented (RFC 1191).
    change(
        &bench,
        &[
            "set",
            "interface",
            "b0",
            "--port",
            "b",
            "--mac",
            "02:00:00:00:00:0b",
            "--address",
            "198.51.100.1/24",
            "--mtu",
            "600",
        ],
    );
    let mut big = udp((HOST_A, ROUTER_A), "192.0.2.7", "198.51.100.9", 64, 1000);
    a.send(std::slice::from_ref(&big));
    let error = a.receive(1);
    let message = v4(&error[0]).payload().payload.to_vec();
    assert_eq!(
        (message[0], message[1], &message[4..8]),
        (3, 4, &[0, 0, 2, 88][..])
    );
    // If that is allowed, it is sent in fragments (RFC 791).
    let mut header = v4(&big).header().to_header();
    header.dont_fragment = false;
    header.identification = 77;
    header.header_checksum = header.calc_header_checksum();
    big[14..34].copy_from_slice(&header.to_bytes());
    a.send(std::slice::from_ref(&big));
    let pieces = b.receive(2);
    let mut payload: Vec<u8> = Vec::new();
    for piece in &pieces {
        let ip = v4(piece);
        assert!(ip.header().total_len() <= 600);
        let header = ip.header().to_header();
        assert_eq!((header.identification, header.time_to_live), (77, 63));
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        assert_eq!(
            usize::from(header.fragment_offset.value()) * 8,
            payload.len()
        );
        payload.extend(ip.payload().payload);
    }
    assert!(v4(&pieces[0]).header().more_fragments() && !v4(&pieces[1]).header().more_fragments());
    assert_eq!(payload, big[34..]);
    // The service thread counts after it has sent.
    until("all packets are counted", || {
        let StatsReport { router, .. } = bench.show("stats");
        let counts = (
            router.dropped["blackhole"],
            router.errors,
            router.fragmented,
        );
        (counts == (1, 5, 1)).then_some(())
    });
}

#[test]
fn routes_come_and_go() {
    let bench = router();
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    change(
        &bench,
        &[
            "add",
            "neighbour",
            "b0",
            "198.51.100.9",
            "02:00:00:00:00:02",
        ],
    );
    change(
        &bench,
        &[
            "add",
            "neighbour",
            "b0",
            "2001:db8:b::9",
            "02:00:00:00:00:02",
        ],
    );
    change(
        &bench,
        &["add", "route", "10.0.0.0/8", "--via", "198.51.100.9"],
    );
    change(
        &bench,
        &[
            "add",
            "route",
            "2001:db8:c::/48",
            "--via",
            "2001:db8:b::9,b0",
        ],
    );
    for (from, to) in [
        ("192.0.2.7", "10.1.2.3"),
        ("2001:db8:a::7", "2001:db8:c::1"),
    ] {
        a.send(&[udp((HOST_A, ROUTER_A), from, to, 64, 10)]);
        let got = b.receive(1);
        assert_eq!(got[0][..12], [HOST_B, ROUTER_B].concat());
    }
    let config: String = bench.show("config");
    for part in [
        "prefix = \"10.0.0.0/8\"",
        "address = \"2001:db8:b::9\"",
        "[[neighbour]]",
    ] {
        assert!(config.contains(part), "{config}");
    }
    for (arguments, part) in [
        (
            &["add", "route", "10.0.0.0/8", "--via", "203.0.113.1"][..],
            "203.0.113.1 is on the link of no",
        ),
        (&["add", "route", "10.0.0.0/8"], "the route has no next hop"),
        (
            &["add", "route", "10.0.0.0/8", "--via", "x0"],
            "no such interface: 'x0'",
        ),
        (
            &["add", "route", "10.0.0.0/8", "--via", "2001:db8:b::9"],
            "have different IP versions",
        ),
        (
            &["add", "route", "10.0.0.0/8", "--via", "198.51.100.1"],
            "of the router itself",
        ),
        (
            &["add", "route", "10.0.0.0/8", "--via", "b0", "--vrf", "red"],
            "no such VRF: 'red'",
        ),
        (&["del", "route", "10.0.0.0/9"], "no such static route"),
        (
            &["add", "neighbour", "b0", "192.0.2.7", "02:00:00:00:00:01"],
            "not on the link",
        ),
        (&["del", "interface", "c0"], "no such interface: 'c0'"),
    ] {
        let error = refused(&bench, arguments);
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
    // Without the interface the route is inactive; with it, it is active again.
    let active =
        |bench: &Bench| show_routes(bench, &["--prefix", "10.0.0.0/8"]).routes[0].is_active;
    assert!(active(&bench));
    change(&bench, &["del", "route", "10.0.0.0/8"]);
    assert_eq!(show_routes(&bench, &["--prefix", "10.0.0.0/8"]).total, 0);
    a.send(&[udp((HOST_A, ROUTER_A), "192.0.2.7", "10.1.2.3", 64, 10)]);
    let stats = until("the packet has no route", || {
        let stats: StatsReport = bench.show("stats");
        (stats.router.punted["no-route"] == 1).then_some(stats)
    });
    assert_eq!(stats.router.forwarded, 2);
}

#[test]
fn vrfs_have_routes_of_their_own_and_vlans_interfaces() {
    let bench = Bench::start(&["a", "b"], &[]);
    change(&bench, &["add", "vrf", "blue"]);
    for (name, port, vlan, address, vrf) in [
        ("a10", "a", "10", "192.0.2.1/24", "main"),
        ("b10", "b", "10", "198.51.100.1/24", "main"),
        ("a20", "a", "20", "192.0.2.1/24", "blue"),
        ("b20", "b", "20", "203.0.113.1/24", "blue"),
    ] {
        change(
            &bench,
            &[
                "add",
                "interface",
                name,
                "--port",
                port,
                "--vlan",
                vlan,
                "--address",
                address,
                "--vrf",
                vrf,
                "--mac",
                "02:00:00:00:00:0a",
            ],
        );
    }
    change(
        &bench,
        &[
            "add",
            "neighbour",
            "b10",
            "198.51.100.9",
            "02:00:00:00:00:02",
        ],
    );
    change(
        &bench,
        &[
            "add",
            "neighbour",
            "b20",
            "203.0.113.9",
            "02:00:00:00:00:03",
        ],
    );
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let tagged =
        |frame: Vec<u8>, vlan: u8| [&frame[..12], &[0x81, 0, 0, vlan], &frame[12..]].concat();
    let to = |to| udp((HOST_A, ROUTER_A), "192.0.2.7", to, 64, 10);
    a.send(&[
        tagged(to("198.51.100.9"), 10),
        tagged(to("203.0.113.9"), 20),
    ]);
    let got = b.receive(2);
    for (frame, mac, vlan) in [(&got[0], 2, 10), (&got[1], 3, 20)] {
        assert_eq!(frame[..6], [2, 0, 0, 0, 0, mac]);
        assert_eq!(frame[12..16], [0x81, 0, 0, vlan]);
    }
    // Not from one VRF to another.
    a.send(&[tagged(to("203.0.113.9"), 10), to("198.51.100.9")]);
    until("they are dropped", || {
        let stats: StatsReport = bench.show("stats");
        (stats.router.punted["no-route"] == 1 && stats.router.dropped["no-interface"] == 1)
            .then_some(())
    });
    let vrfs: Vec<VrfReport> = bench.show("vrfs");
    assert_eq!(vrfs[1].interfaces, ["a20", "b20"]);
    let error = refused(&bench, &["del", "vrf", "blue"]);
    assert!(error.contains("blue"), "{error}");
    for interface in ["a20", "b20"] {
        change(&bench, &["del", "interface", interface]);
    }
    change(&bench, &["del", "vrf", "blue"]);
    let vrfs: Vec<VrfReport> = bench.show("vrfs");
    assert_eq!(vrfs.len(), 1);
}

#[test]
fn a_bridge_has_an_interface_of_the_router() {
    let bench = Bench::start(&["a", "b", "c"], &["--bridge", "lan=a,b"]);
    change(
        &bench,
        &[
            "add",
            "interface",
            "lan0",
            "--bridge",
            "lan",
            "--address",
            "192.0.2.1/24",
            "--mac",
            "02:00:00:00:00:0a",
        ],
    );
    change(
        &bench,
        &[
            "add",
            "interface",
            "c0",
            "--port",
            "c",
            "--address",
            "198.51.100.1/24",
            "--mac",
            "02:00:00:00:00:0b",
        ],
    );
    let (mut a, mut b, mut c) = (bench.peer("a"), bench.peer("b"), bench.peer("c"));
    // The bridge still forwards, and the router answers in it.
    let (host, us) = (Ipv4Addr::new(192, 0, 2, 7), Ipv4Addr::new(192, 0, 2, 1));
    let question = arp(ArpOperation::REQUEST, (HOST_A, [0xff; 6]), host, us);
    a.send(std::slice::from_ref(&question));
    assert_eq!(b.receive(1), [question]);
    assert_eq!(read_arp(&a.receive(1)[0]).unwrap().sender_mac, ROUTER_A);
    // From outside to a known station, and to one that has to be resolved in the whole bridge.
    c.send(&[udp((HOST_B, ROUTER_B), "198.51.100.9", "192.0.2.7", 64, 10)]);
    assert_eq!(a.receive(1)[0][..12], [HOST_A, ROUTER_A].concat());
    c.send(&[udp((HOST_B, ROUTER_B), "198.51.100.9", "192.0.2.8", 64, 10)]);
    let asked = a.receive(1);
    assert_eq!(
        read_arp(&asked[0]).unwrap().target_ipv4_addr(),
        Ipv4Addr::new(192, 0, 2, 8)
    );
    answer(&mut b, [2, 0, 0, 0, 0, 8], Ipv4Addr::new(192, 0, 2, 8));
    assert_eq!(b.receive(1)[0][..6], [2, 0, 0, 0, 0, 8]);
    // In the other direction.
    a.send(&[udp((HOST_A, ROUTER_A), "192.0.2.7", "198.51.100.9", 64, 10)]);
    answer(&mut c, HOST_B, Ipv4Addr::new(198, 51, 100, 9));
    assert_eq!(c.receive(1)[0][..12], [HOST_B, ROUTER_B].concat());
    let interfaces: Vec<InterfaceReport> = bench.show("interfaces");
    assert_eq!(interfaces[0].bridge.as_deref(), Some("lan"));
}
