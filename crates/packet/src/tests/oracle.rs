// SPDX-License-Identifier: Apache-2.0
//! Tests that parsing a well-formed frame returns what was written, and the same as etherparse.

use etherparse::{LinkExtSlice, LinkSlice, NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;

use super::assert_within;
use super::frames::{NetworkSpec, Spec, TransportSpec, specs};
use crate::{ArpOperation, Fragment, Ip, MacAddress, Network, Parsed, Transport, parse};

/// Returns the offset of `part` in `frame`; both are of the same allocation.
fn place(frame: &[u8], part: &[u8]) -> u16 {
    (part.as_ptr() as usize - frame.as_ptr() as usize) as u16
}

fn expected_fragment((offset, more): (u16, bool)) -> Fragment {
    match (offset, more) {
        (0, false) => Fragment::Whole,
        (0, true) => Fragment::First,
        _ => Fragment::Later,
    }
}

fn expected_transport(spec: &TransportSpec, fragment: Fragment) -> Transport {
    match spec {
        _ if fragment == Fragment::Later => Transport::Other,
        TransportSpec::Udp { ports, .. } => Transport::Udp {
            source_port: ports.0,
            destination_port: ports.1,
        },
        TransportSpec::Tcp { ports, flags, .. } => Transport::Tcp {
            source_port: ports.0,
            destination_port: ports.1,
            flags: *flags,
        },
        TransportSpec::Icmp { kind, code, .. } => Transport::Icmp {
            kind: *kind,
            code: *code,
        },
        TransportSpec::Other(_) => Transport::Other,
    }
}

fn same_link(parsed: &Parsed, sliced: &SlicedPacket<'_>, spec: &Spec) {
    let Some(LinkSlice::Ethernet2(ethernet)) = &sliced.link else {
        panic!("etherparse saw no Ethernet");
    };
    assert_eq!(parsed.destination, MacAddress(ethernet.destination()));
    assert_eq!(parsed.source, MacAddress(ethernet.source()));
    let ours: Vec<(u16, u16)> = parsed
        .tags
        .iter()
        .flatten()
        .map(|tag| (tag.tpid.0, tag.tci))
        .collect();
    assert_eq!(ours, spec.tags);
    assert_eq!(ours.len(), sliced.link_exts.len());
    for (tag, theirs) in parsed.tags.iter().flatten().zip(&sliced.link_exts) {
        let LinkExtSlice::Vlan(theirs) = theirs else {
            panic!("etherparse saw another kind of tag");
        };
        assert_eq!(tag.priority(), theirs.priority_code_point().value());
        assert_eq!(tag.drop_eligible(), theirs.drop_eligible_indicator());
        let number = theirs.vlan_identifier().value();
        assert_eq!(tag.id().map_or(number % 4095, |id| id.get()), number % 4095);
        assert_eq!(tag.id().is_none(), number == 0 || number == 4095);
    }
}

/// Checks the payload against etherparse: protocol, offset, end, whether it is a fragment.
fn same_payload(
    ip: &Ip,
    frame: &[u8],
    payload: &etherparse::IpPayloadSlice<'_>,
    transport: &TransportSpec,
    fragment: Fragment,
) {
    assert_eq!(ip.protocol.0, payload.ip_number.0);
    assert_eq!(ip.transport_offset, place(frame, payload.payload));
    assert_eq!(
        ip.end,
        place(frame, payload.payload) + payload.payload.len() as u16
    );
    assert_eq!(ip.fragment, fragment);
    assert_eq!(payload.fragmented, fragment != Fragment::Whole);
    assert_eq!(ip.transport, expected_transport(transport, fragment));
}

fn same_transport(ip: &Ip, sliced: &SlicedPacket<'_>) {
    // etherparse does not parse fragments; the first fragment is compared with the written fields only.
    if ip.fragment != Fragment::Whole {
        assert!(sliced.transport.is_none());
        return;
    }
    match (&ip.transport, &sliced.transport) {
        (
            Transport::Udp {
                source_port,
                destination_port,
            },
            Some(TransportSlice::Udp(theirs)),
        ) => {
            assert_eq!(*source_port, theirs.source_port());
            assert_eq!(*destination_port, theirs.destination_port());
        }
        (
            Transport::Tcp {
                source_port,
                destination_port,
                flags,
            },
            Some(TransportSlice::Tcp(theirs)),
        ) => {
            assert_eq!(*source_port, theirs.source_port());
            assert_eq!(*destination_port, theirs.destination_port());
            assert_eq!(flags & 0x02 != 0, theirs.syn());
            assert_eq!(flags & 0x01 != 0, theirs.fin());
        }
        (Transport::Icmp { kind, code }, Some(TransportSlice::Icmpv4(theirs))) => {
            assert_eq!((*kind, *code), (theirs.type_u8(), theirs.code_u8()));
        }
        (Transport::Icmp { kind, code }, Some(TransportSlice::Icmpv6(theirs))) => {
            assert_eq!((*kind, *code), (theirs.type_u8(), theirs.code_u8()));
        }
        (Transport::Other, None) => {}
        (ours, theirs) => panic!("{ours:?} here, {theirs:?} there"),
    }
}

fn same_network(parsed: &Parsed, frame: &[u8], sliced: &SlicedPacket<'_>, spec: &Spec) {
    match (&parsed.network, &sliced.net, &spec.network) {
        (
            Network::Ipv4(ip),
            Some(NetSlice::Ipv4(theirs)),
            NetworkSpec::Ipv4 {
                options,
                fragment,
                transport,
                dscp,
                ..
            },
        ) => {
            let ours = parsed.ipv4(frame).unwrap();
            let header = theirs.header();
            assert_eq!(parsed.network_offset, place(frame, header.slice()));
            assert_eq!(ours.length(), header.slice().len());
            assert_eq!(ours.options().len(), options * 4);
            assert_eq!(ours.source(), header.source_addr());
            assert_eq!(ours.destination(), header.destination_addr());
            assert_eq!(ours.ttl(), header.ttl());
            assert_eq!(ours.dscp(), *dscp);
            assert_eq!(ours.ecn(), 0);
            assert_eq!(ours.identification(), header.identification());
            assert_eq!(ours.dont_fragment(), header.dont_fragment());
            assert_eq!(ours.total_length(), header.total_len());
            assert_eq!(ours.checksum(), header.header_checksum());
            assert!(ours.checksum_is_right());
            let fragment = expected_fragment(*fragment);
            same_payload(ip, frame, theirs.payload(), transport, fragment);
            same_transport(ip, sliced);
        }
        (
            Network::Ipv6(ip),
            Some(NetSlice::Ipv6(theirs)),
            NetworkSpec::Ipv6 {
                extensions,
                fragment,
                transport,
                ..
            },
        ) => {
            let ours = parsed.ipv6(frame).unwrap();
            let header = theirs.header();
            assert_eq!(parsed.network_offset, place(frame, header.slice()));
            assert_eq!(ours.source(), header.source_addr());
            assert_eq!(ours.destination(), header.destination_addr());
            assert_eq!(ours.traffic_class(), header.traffic_class());
            assert_eq!(ours.flow_label(), header.flow_label().value());
            assert_eq!(ours.hop_limit(), header.hop_limit());
            assert_eq!(ours.payload_length(), header.payload_length());
            let fragment = if extensions.iter().any(|(kind, _)| *kind == 44) {
                expected_fragment(*fragment)
            } else {
                Fragment::Whole
            };
            if fragment == Fragment::Later {
                // etherparse continues in a later fragment with octets that are not a header; this crate stops there.
                assert_eq!(ip.transport, Transport::Other);
            } else {
                same_payload(ip, frame, theirs.payload(), transport, fragment);
            }
            same_transport(ip, sliced);
        }
        (
            Network::Arp,
            Some(NetSlice::Arp(theirs)),
            NetworkSpec::Arp {
                operation,
                sender,
                target,
            },
        ) => {
            let ours = parsed.arp(frame).unwrap();
            assert_eq!(parsed.network_offset, place(frame, theirs.slice()));
            let expected = match operation {
                1 => ArpOperation::Request,
                2 => ArpOperation::Reply,
                other => ArpOperation::Other(*other),
            };
            assert_eq!(ours.operation(), expected);
            assert_eq!(ours.sender_mac().0, sender.0);
            assert_eq!(ours.sender_ip().octets(), sender.1);
            assert_eq!(ours.target_mac().0, target.0);
            assert_eq!(ours.target_ip().octets(), target.1);
        }
        (ours, theirs, _) => panic!("{ours:?} here, {theirs:?} there"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn reads_what_etherparse_reads(spec in specs()) {
        let frame = spec.bytes();
        let parsed = parse(&frame).unwrap();
        assert_within(&parsed, &frame);
        let sliced = SlicedPacket::from_ethernet(&frame).unwrap();
        same_link(&parsed, &sliced, &spec);
        same_network(&parsed, &frame, &sliced, &spec);
    }

    /// Checks that damaged frames that both parsers accept are parsed alike.
    #[test]
    fn agrees_with_etherparse_on_damaged_frames_that_both_take(
        spec in specs(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut frame = spec.bytes();
        for (place, value) in changes {
            let place = place.index(frame.len());
            frame[place] = value;
        }
        let (Ok(parsed), Ok(sliced)) = (parse(&frame), SlicedPacket::from_ethernet(&frame)) else {
            return Ok(());
        };
        match (&parsed.network, &sliced.net) {
            (Network::Ipv4(_), Some(NetSlice::Ipv4(theirs))) => {
                let header = theirs.header();
                prop_assert_eq!(parsed.network_offset, place(&frame, header.slice()));
                prop_assert_eq!(parsed.ipv4(&frame).unwrap().length(), header.slice().len());
            }
            (Network::Ipv6(_), Some(NetSlice::Ipv6(theirs))) => {
                prop_assert_eq!(parsed.network_offset, place(&frame, theirs.header().slice()));
            }
            (Network::Ipv4(_) | Network::Ipv6(_), theirs) => {
                prop_assert!(false, "{:?} here, {:?} there", parsed.network, theirs);
            }
            (Network::Arp | Network::Other, Some(NetSlice::Ipv4(_) | NetSlice::Ipv6(_))) => {
                // etherparse skips a third tag, the old type of service tags and MACsec.
                prop_assert!(
                    matches!(parsed.ethertype.0, 0x8100 | 0x88a8 | 0x9100 | 0x88e5),
                    "{} hides IP",
                    parsed.ethertype
                );
            }
            (Network::Arp | Network::Other, _) => {}
        }
    }
}
