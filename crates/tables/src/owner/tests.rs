// SPDX-License-Identifier: Apache-2.0
//! Tables of several forwarding CPUs, each with the packets that it owns, compared with one obvious model of all.

mod balance;
mod connections;
mod nat;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};

use proptest::prelude::*;
use quietwire_packet::checksum;

use super::*;
use crate::connections::Endpoint;
use crate::connections::reference::{Content, Sent, TcpSent};
use crate::testing::ends;

const SYN: u8 = 2;
const ACK: u8 = 16;

fn host_v4(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))
}

/// Address of a load balancer in the external prefix of the tests.
const BALANCED: &str = "[2001:db8:1::80]:80";

fn host_v6(number: u8) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into()))
}

fn end(address: IpAddr, port: u16) -> Endpoint {
    Endpoint { address, port }
}

fn segment(flags: u8) -> Content {
    Content::Tcp(TcpSent {
        sequence: 1,
        acknowledgement: 2,
        flags,
        window: 1000,
        scale: None,
        data: 5,
    })
}

fn reversed(sent: &Sent, content: Content) -> Sent {
    Sent {
        zone: sent.zone,
        source: sent.destination,
        destination: sent.source,
        content,
    }
}

/// Returns an ICMP error about a packet, from a router, to its source.
fn error(about: &Sent) -> Sent {
    let router = match about.source.address {
        IpAddr::V4(_) => host_v4(254),
        IpAddr::V6(_) => host_v6(254),
    };
    Sent {
        zone: about.zone,
        source: end(router, 0),
        destination: about.source,
        content: Content::Error(Box::new(about.clone())),
    }
}

/// Returns the frame of a packet, behind a tag if there is one.
fn frame(sent: &Sent, tag: Option<u16>) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    if let Some(tci) = tag {
        frame.extend([0x81, 0]);
        frame.extend(tci.to_be_bytes());
    }
    frame.extend(sent.ethertype().to_be_bytes());
    frame.extend(sent.octets());
    frame
}

/// Returns an IPv4 packet between two sockets.
fn packet(source: SocketAddrV4, destination: SocketAddrV4, content: Content) -> Vec<u8> {
    let endpoint = |socket: SocketAddrV4| end(IpAddr::V4(*socket.ip()), socket.port());
    let sent = Sent {
        zone: 0,
        source: endpoint(source),
        destination: endpoint(destination),
        content,
    };
    sent.octets()
}

fn put(octets: &mut [u8], at: usize, word: u16) {
    octets[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

/// Returns an ICMP error about a packet, from a router, with right checksums.
fn error_about(inner: &[u8], to: Ipv4Addr) -> Vec<u8> {
    let mut inner = inner[..28].to_vec();
    put(&mut inner, 10, 0);
    let sum = checksum(&inner[..20]);
    put(&mut inner, 10, sum);
    let mut message = vec![11, 0, 0, 0, 0, 0, 0, 0];
    message.extend(&inner);
    let sum = checksum(&message);
    put(&mut message, 2, sum);
    let [high, low] = (message.len() as u16 + 20).to_be_bytes();
    let start = [0x45, 0, high, low, 0, 0, 0, 0, 64, 1, 0, 0];
    let router = Ipv4Addr::new(203, 0, 113, 254).octets();
    [&start[..], &router, &to.octets(), &message].concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn both_directions_of_a_connection_and_errors_about_it_have_one_owner(
        hosts in (0..20u8, 0..20u8),
        ports: (u16, u16),
        is_v6: bool,
        kind in 0..4u8,
        count in 1..9u16,
        tag: Option<u16>,
    ) {
        let owners = Owners::new(count);
        let address = if is_v6 { host_v6 } else { host_v4 };
        let (content, answer) = match kind {
            0 => (segment(SYN), segment(SYN | ACK)),
            1 => (Content::Udp(9), Content::Udp(1)),
            2 => (Content::EchoRequest, Content::EchoReply),
            _ => (Content::Other(50), Content::Other(50)),
        };
        let to_port = if kind == 2 { ports.0 } else { ports.1 };
        let sent = Sent {
            zone: 0,
            source: end(address(hosts.0), ports.0),
            destination: end(address(hosts.1), to_port),
            content,
        };
        let owner = owners.of_frame(&frame(&sent, tag)).unwrap();
        prop_assert!(owner < count);
        let answer = reversed(&sent, answer);
        // The ports of an answer need not be those of the packet.
        prop_assert_eq!(owners.of_frame(&frame(&answer, None)), Some(owner));
        for error in [error(&sent), error(&answer)] {
            prop_assert_eq!(owners.of_frame(&frame(&error, tag)), Some(owner));
        }
        // So do fragments.
        if !is_v6 {
            for word in [0x2000u16, 0x2003, 0x0007] {
                let mut octets = frame(&sent, None);
                put(&mut octets, 14 + 6, word);
                prop_assert_eq!(owners.of_frame(&octets), Some(owner));
            }
        }
    }

    #[test]
    fn any_octets_have_an_owner_or_none(mut octets in prop::collection::vec(any::<u8>(), 0..120), version in 0..3u8) {
        if let Some(start) = octets.first_chunk_mut::<15>() {
            start[0] &= 0xfe;
            match version {
                0 => start[12..].copy_from_slice(&[0x08, 0x00, 0x45]),
                1 => start[12..].copy_from_slice(&[0x86, 0xdd, 0x60]),
                _ => {}
            }
        }
        let mut owners = Owners::new(3);
        owners.add_nat(&nat::settings(), &[], &[(0x0a00_0000, 0xffff_ff00)]);
        if let Some(owner) = owners.of_frame(&octets) {
            prop_assert!(owner < 3);
        }
    }
}

#[test]
fn packets_to_an_external_prefix_have_the_owner_of_the_inside_address() {
    let net = |text: &str| -> ipnet::Ipv6Net { text.parse().unwrap() };
    let pair = PrefixPair::new(net("fd01:203:405::/48"), net("2001:db8:1::/48")).unwrap();
    let inside = |host: u16| Ipv6Addr::new(0xfd01, 0x203, 0x405, 1, 0, 0, 0, host);
    let outside = |host: u16| {
        let external = pair.external_of(inside(host).to_bits());
        Ipv6Addr::from_bits(external.unwrap().unwrap())
    };
    let sent = |from: IpAddr, to: IpAddr| Sent {
        zone: 0,
        source: end(from, 4000),
        destination: end(to, 4000),
        content: Content::Udp(9),
    };
    for has_balancer in [false, true] {
        let mut owners = Owners::new(3);
        owners.add_prefix_pair(pair);
        if has_balancer {
            // Within the external prefix.
            let endpoint: SocketAddr = BALANCED.parse().unwrap();
            owners.add_balancer(NatProtocol::Tcp, [endpoint]);
        }
        let owner = |sent: &Sent| owners.of_frame(&frame(sent, None)).unwrap();
        let mut all = BTreeSet::new();
        for host in 1..64 {
            let (inside, outside) = (IpAddr::V6(inside(host)), IpAddr::V6(outside(host)));
            let remote = host_v6(9);
            let first = owner(&sent(inside, remote));
            all.insert(first);
            assert_eq!(owner(&sent(remote, outside)), first);
            // Errors about packets as they are outside, and as they are inside.
            for about in [sent(outside, remote), sent(remote, inside)] {
                assert_eq!(owner(&error(&about)), first);
            }
        }
        assert_eq!(all.len(), 3);
        if has_balancer {
            let balanced: SocketAddr = BALANCED.parse().unwrap();
            let balanced = end(balanced.ip(), balanced.port());
            let tcp = |source, destination| Sent {
                zone: 0,
                source,
                destination,
                content: segment(0x10),
            };
            let mut all = BTreeSet::new();
            for host in 1..32 {
                let client = end(host_v6(host), 4000);
                let there = owner(&tcp(client, balanced));
                assert_eq!(owner(&tcp(balanced, client)), there);
                all.insert(there);
            }
            assert!(all.len() > 1);
        }
        // Between inside hosts.
        let (one, other) = (IpAddr::V6(inside(1)), IpAddr::V6(inside(2)));
        let there = owner(&sent(one, IpAddr::V6(outside(2))));
        assert_eq!(owner(&sent(other, IpAddr::V6(outside(1)))), there);
    }
}

#[test]
fn frames_to_groups_and_without_a_packet_have_no_owner() {
    let owners = Owners::new(2);
    let sent = Sent {
        zone: 0,
        source: end(host_v4(1), 1),
        destination: end(host_v4(2), 2),
        content: Content::Udp(1),
    };
    let mut octets = frame(&sent, None);
    assert!(owners.of_frame(&octets).is_some());
    assert_eq!(owners.of_frame(&octets[..20]), None);
    put(&mut octets, 12, 0x0806);
    assert_eq!(owners.of_frame(&octets), None);
    let mut octets = frame(&sent, None);
    octets[0] |= 1;
    assert_eq!(owners.of_frame(&octets), None);
    assert_eq!(owners.of_frame(&[]), None);
}
