// SPDX-License-Identifier: Apache-2.0
//! Kernel filters compared with rules evaluated one by one on headers parsed by another library.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};

use super::*;
use crate::filter::{EtherType, PacketMatch, Ports, Protocol};

fn ports((first, last): (u16, u16)) -> Ports {
    Ports { first, last }
}

/// Fields of a frame from the reference parser: IP version, addresses, protocol, ports.
struct Packet {
    addresses: Option<(IpAddr, IpAddr)>,
    protocol: Option<u8>,
    ports: Option<(u16, u16)>,
    ethertype: u16,
}

impl Packet {
    fn read(frame: &[u8]) -> Self {
        let sliced = SlicedPacket::from_ethernet(frame).unwrap();
        let ethertype = u16::from_be_bytes([frame[12], frame[13]]);
        let (addresses, protocol) = match &sliced.net {
            Some(NetSlice::Ipv4(ip)) => {
                let header = ip.header();
                let addresses = (
                    header.source_addr().into(),
                    header.destination_addr().into(),
                );
                (Some(addresses), Some(ip.payload().ip_number.0))
            }
            Some(NetSlice::Ipv6(ip)) => {
                let header = ip.header();
                let addresses = (
                    header.source_addr().into(),
                    header.destination_addr().into(),
                );
                (Some(addresses), Some(ip.payload().ip_number.0))
            }
            _ => (None, None),
        };
        let ports = match &sliced.transport {
            Some(TransportSlice::Udp(udp)) => Some((udp.source_port(), udp.destination_port())),
            Some(TransportSlice::Tcp(tcp)) => Some((tcp.source_port(), tcp.destination_port())),
            _ => None,
        };
        Self {
            addresses,
            protocol,
            ports,
            ethertype,
        }
    }

    fn is_as(&self, rule: &FilterRule, interface: u16, vrf: u16) -> bool {
        let is_on = rule.interface.is_none_or(|one| one == interface)
            && rule.vrf.is_none_or(|one| one == vrf);
        let is_of = rule
            .packet
            .ethertype
            .is_none_or(|one| one.0 == self.ethertype)
            && rule
                .packet
                .protocol
                .is_none_or(|one| Some(one.0) == self.protocol);
        let within = |prefix: Option<IpNet>, of: fn((IpAddr, IpAddr)) -> IpAddr| {
            prefix.is_none_or(|prefix| {
                self.addresses
                    .is_some_and(|addresses| prefix.contains(&of(addresses)))
            })
        };
        let among = |range: Option<Ports>, of: fn((u16, u16)) -> u16| {
            range.is_none_or(|Ports { first, last }| {
                self.ports
                    .is_some_and(|ports| first <= of(ports) && of(ports) <= last)
            })
        };
        is_on
            && is_of
            && within(rule.packet.source, |(from, _)| from)
            && within(rule.packet.destination, |(_, to)| to)
            && among(rule.packet.source_port, |(from, _)| from)
            && among(rule.packet.destination_port, |(_, to)| to)
    }
}

/// Decisions that rules do not override.
fn is_closed(decision: Decision) -> bool {
    match decision {
        Decision::Punt(Punt::Arp | Punt::ForUs) => true,
        Decision::Drop(reason) => ![
            RouterDrop::UnknownProtocol,
            RouterDrop::Martian,
            RouterDrop::Multicast,
            RouterDrop::Blackhole,
        ]
        .contains(&reason),
        _ => false,
    }
}

/// Valid frames of several kinds, to an interface of the router or to a group.
pub(super) fn sound() -> impl Strategy<Value = (Vec<u8>, u16)> {
    let kind = prop_oneof![3 => Just(17u8), 3 => Just(6), 1 => Just(89), 1 => Just(0)];
    let ports = prop::sample::select(&[179u16, 180, 5000]);
    (mac(), middle(), kind, ports.clone(), ports, 0..4u16).prop_map(
        |(mac, (from, to, ttl, _), kind, from_port, to_port, interface)| {
            let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 0x77], mac);
            let mut frame = Vec::new();
            let builder = match (from, to) {
                _ if kind == 0 => {
                    frame.extend(mac);
                    frame.extend([2, 0, 0, 0, 0, 0x77, 0x88, 0xcc, 2, 7, 4]);
                    frame.resize(60, 0);
                    return (frame, interface);
                }
                (IpAddr::V4(from), IpAddr::V4(to)) => builder.ipv4(from.octets(), to.octets(), ttl),
                (IpAddr::V6(from), IpAddr::V6(to)) => builder.ipv6(from.octets(), to.octets(), ttl),
                _ => panic!("one version of IP"),
            };
            let payload = [7; 20];
            match kind {
                17 => builder.udp(from_port, to_port).write(&mut frame, &payload),
                6 => builder
                    .tcp(from_port, to_port, 1, 1)
                    .write(&mut frame, &payload),
                kind => builder.write(&mut frame, etherparse::IpNumber(kind), &payload),
            }
            .unwrap();
            (frame, interface)
        },
    )
}

fn rule() -> impl Strategy<Value = FilterRule> {
    let maybe = prop::option::weighted::<BoxedStrategy<u16>>;
    let prefix = prop::sample::select(&[
        "192.0.2.0/24",
        "198.51.100.9/32",
        "0.0.0.0/0",
        "::/0",
        "2001:db8:a::/48",
        "2001:db8:b::9/128",
    ])
    .prop_map(|text: &str| text.parse::<IpNet>().unwrap());
    let ranges = prop::sample::select(&[(179, 179), (180, 6000), (0, 65535)]);
    (
        maybe(0.3, (0..3u16).boxed()),
        maybe(0.3, (0..2u16).boxed()),
        maybe(
            0.3,
            prop::sample::select(&[0x800u16, 0x86dd, 0x88cc]).boxed(),
        ),
        prop::option::weighted(0.4, prop::sample::select(&[17u8, 6, 89])),
        prop::option::weighted(0.2, prefix.clone()),
        prop::option::weighted(0.2, prefix),
        prop::option::weighted(0.2, ranges.clone()),
        prop::option::weighted(0.2, ranges),
    )
        .prop_map(
            |(interface, vrf, ethertype, protocol, source, destination, from, to)| FilterRule {
                interface,
                vrf,
                packet: PacketMatch {
                    ethertype: match source.or(destination) {
                        Some(IpNet::V4(_)) => Some(EtherType(0x800)),
                        Some(IpNet::V6(_)) => Some(EtherType(0x86dd)),
                        None => ethertype.map(EtherType),
                    },
                    protocol: protocol.map(Protocol),
                    source,
                    destination: destination.filter(|one| {
                        source.is_none_or(|source| source.addr().is_ipv4() == one.addr().is_ipv4())
                    }),
                    source_port: from.map(ports),
                    destination_port: to.map(ports),
                },
            },
        )
}

/// Returns a world with kernel filters; interface 1 has no tap.
fn filtered(rules: &[FilterRule]) -> (World, Vec<Arc<AtomicU64>>) {
    let mut world = World::new();
    let counts: Vec<Arc<AtomicU64>> = rules.iter().map(|_| Arc::default()).collect();
    let counted = rules.iter().copied().zip(counts.iter().cloned());
    world.router.kernel_filter = Some(Arc::new(KernelFilter::new(counted, [0, 2])));
    (world, counts)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_kernel_gets_the_packets_of_the_reference_filter(
        frames in prop::collection::vec(sound(), 1..32),
        rules in prop::collection::vec(rule(), 1..6),
    ) {
        let plain = World::new();
        let (world, counts) = filtered(&rules);
        let (before, _) = plain.decide(&frames);
        let (after, tally) = world.decide(&frames);
        let mut expected = vec![0u64; rules.len()];
        for ((frame, interface), (before, after)) in frames.iter().zip(before.iter().zip(&after)) {
            let vrf = u16::from(*interface == 2);
            let packet = Packet::read(frame);
            let matching = rules.iter().position(|rule| packet.is_as(rule, *interface, vrf));
            let matching = matching.filter(|_| [0, 2].contains(interface) && !is_closed(*before));
            match matching {
                Some(rule) => {
                    expected[rule] += 1;
                    prop_assert_eq!(*after, Decision::Punt(Punt::KernelFilter));
                }
                None => prop_assert_eq!(after, before),
            }
        }
        let counted: Vec<u64> = counts.iter().map(|one| one.load(Ordering::Relaxed)).collect();
        prop_assert_eq!(tally.punted[Punt::KernelFilter as usize], expected.iter().sum::<u64>());
        prop_assert_eq!(counted, expected);
    }

    /// Any octets.
    #[test]
    fn no_frame_harms_the_filter(frames in prop::collection::vec(frame(), 1..32), rules in prop::collection::vec(rule(), 1..64)) {
        let (world, _) = filtered(&rules);
        prop_assert_eq!(world.decide(&frames).0.len(), frames.len());
    }
}

/// RFC 8200, section 4.5; RFC 791, section 3.2: only the first fragment of a datagram has ports, and they can be behind extension headers.
#[test]
fn ports_are_read_where_they_are() {
    let rule = FilterRule {
        packet: PacketMatch {
            protocol: Some(Protocol(17)),
            destination_port: Some(ports((5000, 5000))),
            ..PacketMatch::default()
        },
        ..FilterRule::default()
    };
    let (world, _) = filtered(&[rule]);
    let is_taken = |frame: &[u8]| {
        let decision = world.decide(&[(frame.to_vec(), 0)]).0[0];
        decision == Decision::Punt(Punt::KernelFilter)
    };
    let mut v4 = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 0x77], [2, 0, 0, 0, 0, 0xa])
        .ipv4([192, 0, 2, 7], [198, 51, 100, 9], 64)
        .udp(4000, 5000)
        .write(&mut v4, &[0; 24])
        .unwrap();
    assert!(is_taken(&v4));
    let with_offset = |offset: u16| {
        let mut frame = v4.clone();
        frame[20..22].copy_from_slice(&offset.to_be_bytes());
        frame[24..26].fill(0);
        let header = etherparse::Ipv4HeaderSlice::from_slice(&frame[14..]).unwrap();
        let sum = header.to_header().calc_header_checksum();
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    assert!(is_taken(&with_offset(0x2000)));
    assert!(!is_taken(&with_offset(0x2001)));
    let v6 = |headers: &[u8], first: u8| {
        let mut frame = vec![2, 0, 0, 0, 0, 0xa, 2, 0, 0, 0, 0, 0x77, 0x86, 0xdd];
        frame.extend([0x60, 0, 0, 0, 0, (headers.len() + 8) as u8, first, 64]);
        for address in ["2001:db8:a::7", "2001:db8:b::9"] {
            frame.extend(address.parse::<Ipv6Addr>().unwrap().octets());
        }
        frame.extend(headers);
        frame.extend([0xf, 0xa0, 0x13, 0x88, 0, 8, 0, 0]);
        frame
    };
    assert!(is_taken(&v6(&[], 17)));
    assert!(is_taken(&v6(&[17, 0, 1, 4, 0, 0, 0, 0], 0)));
    assert!(is_taken(&v6(&[17, 0, 0, 1, 0, 0, 0, 9], 44)));
    assert!(!is_taken(&v6(&[17, 0, 0, 9, 0, 0, 0, 9], 44)));
    // A header that ends beyond the packet.
    assert!(!is_taken(&v6(&[17, 200, 1, 4, 0, 0, 0, 0], 0)));
}
