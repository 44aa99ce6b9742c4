// SPDX-License-Identifier: Apache-2.0
//! Gateways that are unreachable for a while or off the link, and invalid packets, as observed on the wire.

use std::net::Ipv4Addr;

use quietwire_switch::report::{NeighbourReport, StatsReport};

use crate::bench::{Bench, Peer, change, refused, until};
use crate::router::{HOST_A, HOST_B, ROUTER_A, ROUTER_B, answer, router, udp, v4};

const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 9);

/// Sends a packet from a host on one side to the gateway on the other.
fn goes_through(a: &mut Peer, b: &mut Peer, to: &str) {
    let packet = udp((HOST_A, ROUTER_A), "192.0.2.7", to, 64, 40);
    a.send(std::slice::from_ref(&packet));
    // Neighbour requests may arrive in between.
    let received = until("the packet is forwarded", || {
        let mut all = b.receive_now().into_iter();
        all.find(|frame| frame[12..14] == [8, 0])
    });
    assert_eq!(received[..12], [HOST_B, ROUTER_B].concat());
    assert_eq!(v4(&received).payload().payload, &packet[34..]);
}

fn knows(bench: &Bench, address: Ipv4Addr) -> bool {
    let all: Vec<NeighbourReport> = bench.show("neighbours");
    all.iter()
        .any(|one| one.address == address && one.mac.is_some())
}

#[test]
fn a_gateway_is_resolved_without_packets_until_it_answers() {
    let bench = router();
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    change(
        &bench,
        &["add", "route", "10.0.0.0/8", "--via", "198.51.100.9"],
    );
    // Three requests are repeated as for any neighbour; further ones are sent without traffic.
    let asked = b.receive(4);
    assert!(asked.iter().all(|frame| frame[12..14] == [8, 6]));
    answer(&mut b, HOST_B, GATEWAY);
    until("the gateway is known", || {
        knows(&bench, GATEWAY).then_some(())
    });
    b.receive_now();
    goes_through(&mut a, &mut b, "10.1.2.3");
    // After removal, it is requested immediately.
    change(&bench, &["del", "neighbour", "b0", "198.51.100.9"]);
    answer(&mut b, HOST_B, GATEWAY);
    until("the gateway is known again", || {
        knows(&bench, GATEWAY).then_some(())
    });
    goes_through(&mut a, &mut b, "10.1.2.3");
}

#[test]
fn a_gateway_off_the_link_requires_onlink() {
    let bench = router();
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let far = Ipv4Addr::new(203, 0, 113, 9);
    let printed = refused(
        &bench,
        &["add", "route", "10.0.0.0/8", "--via", "203.0.113.9,b0"],
    );
    assert!(printed.contains("add onlink"), "{printed}");
    let via = "203.0.113.9,b0,onlink";
    change(&bench, &["add", "route", "10.0.0.0/8", "--via", via]);
    let config: String = bench.show("config");
    assert!(config.contains("onlink = true"), "{config}");
    answer(&mut b, HOST_B, far);
    until("the gateway is known", || knows(&bench, far).then_some(()));
    goes_through(&mut a, &mut b, "10.1.2.3");
}

/// Checks RFC 791, section 3.1: thirteen bits of eight octets each.
#[test]
fn a_piece_that_ends_beyond_the_largest_packet_is_not_cut_once_more() {
    let bench = router();
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let mac = "02:00:00:00:00:02";
    change(&bench, &["add", "neighbour", "b0", "198.51.100.9", mac]);
    let smaller = ["--port", "b", "--mac", "02:00:00:00:00:0b", "--mtu", "600"];
    let set = ["set", "interface", "b0", "--address", "198.51.100.1/24"];
    change(&bench, &[&set[..], &smaller].concat());
    let piece = |offset: u16| {
        let mut frame = udp((HOST_A, ROUTER_A), "192.0.2.7", "198.51.100.9", 64, 1000);
        let mut header = v4(&frame).header().to_header();
        header.dont_fragment = false;
        header.fragment_offset = offset.try_into().unwrap();
        header.header_checksum = header.calc_header_checksum();
        frame[14..34].copy_from_slice(&header.to_bytes());
        frame
    };
    a.send(&[piece(8100), piece(8000)]);
    let received = b.receive(2);
    let offsets: Vec<u16> = received
        .iter()
        .map(|frame| v4(frame).header().fragments_offset().value())
        .collect();
    assert_eq!(offsets, [8000, 8072]);
    let stats: StatsReport = bench.show("stats");
    assert_eq!(stats.router.dropped["fragment-offset"], 1);
}

/// Checks RFC 4443, section 3.4, and RFC 8200, sections 4 and 4.7.
#[test]
fn unknown_next_headers_are_reported_by_icmpv6_errors() {
    let bench = router();
    let mut a = bench.peer("a");
    let mac = "02:00:00:00:00:01";
    change(&bench, &["add", "neighbour", "a0", "2001:db8:a::7", mac]);
    let packet = |headers: &[u8], first: u8| {
        let mut frame = udp((HOST_A, ROUTER_A), "2001:db8:a::7", "2001:db8:a::1", 64, 16);
        frame[20] = first;
        frame[54..54 + headers.len()].copy_from_slice(headers);
        frame
    };
    // No next header, which is no error; then an unsupported protocol, after the header and after an extension header.
    let behind = packet(&[253, 0, 1, 4, 0, 0, 0, 0], 0);
    a.send(&[packet(&[], 59), packet(&[], 253), behind]);
    let received = a.receive(2);
    for (frame, pointer) in received.iter().zip([6u8, 40]) {
        assert_eq!((frame[20], frame[54], frame[55]), (58, 4, 1), "{frame:?}");
        assert_eq!(frame[58..62], [0, 0, 0, pointer]);
    }
    // The service thread counts after it has sent.
    until("all packets are counted", || {
        let stats: StatsReport = bench.show("stats");
        let counts = (stats.router.errors, stats.router.unknown_protocol);
        (counts == (2, 3)).then_some(())
    });
}
