// SPDX-License-Identifier: Apache-2.0
//! Any packet to the router's own ICMP: an answer or an error is a sound packet to the one that sent it, of a size that is
//! allowed, and is itself never answered with an error.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use quietwire_packet::{ETHERNET_HEADER_LENGTH, Network, Transport, checksum, parse};
use quietwire_tables::icmp::{Error, echo_reply, error};

const ERRORS: [Error; 8] = [
    Error::NetUnreachable,
    Error::HostUnreachable,
    Error::ProtocolUnreachable,
    Error::PortUnreachable,
    Error::Prohibited,
    Error::TooBig(1280),
    Error::TimeExceeded,
    Error::ParameterProblem(9),
];

/// Parses a packet behind an Ethernet header, and checks that it is whole and sound; gives its source and destination.
fn sound(packet: &[u8]) -> (IpAddr, IpAddr) {
    let kind = if packet[0] >> 4 == 4 {
        [8, 0]
    } else {
        [0x86, 0xdd]
    };
    let frame = [&[0; 12][..], &kind, packet].concat();
    let parsed = parse(&frame).expect("what the router makes can be parsed");
    let ip = parsed.ip().expect("an IP packet");
    assert!(matches!(ip.transport, Transport::Icmp { .. }));
    assert_eq!(usize::from(ip.end), frame.len());
    let message = &frame[usize::from(ip.transport_offset)..];
    match parsed.network {
        Network::Ipv4(_) => {
            assert_eq!(checksum(&packet[..20]), 0);
            assert_eq!(checksum(message), 0);
            let header = parsed.ipv4(&frame).expect("a header");
            (header.source().into(), header.destination().into())
        }
        Network::Ipv6(_) => {
            let length = (message.len() as u32).to_be_bytes();
            let pseudo = [&packet[8..40], &length, &[0, 0, 0, 58], message].concat();
            assert_eq!(checksum(&pseudo), 0);
            let header = parsed.ipv6(&frame).expect("a header");
            (header.source().into(), header.destination().into())
        }
        _ => panic!("no IP packet"),
    }
}

/// The first octets select the kind that a packet most likely is; checksums are set right half of the time.
fn packet(input: &[u8]) -> Vec<u8> {
    let [choice, rest @ ..] = input else {
        return Vec::new();
    };
    let mut packet = rest.to_vec();
    if choice & 1 != 0 || packet.len() < ETHERNET_HEADER_LENGTH {
        return packet;
    }
    let length = packet.len() as u16;
    if choice & 2 == 0 && packet.len() >= 28 {
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        packet[9] = 1;
        packet[10..12].fill(0);
        let sum = checksum(&packet[..20]).to_be_bytes();
        packet[10..12].copy_from_slice(&sum);
        packet[22..24].fill(0);
        let sum = checksum(&packet[20..]).to_be_bytes();
        packet[22..24].copy_from_slice(&sum);
    } else if choice & 2 != 0 && packet.len() >= 48 {
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&(length - 40).to_be_bytes());
        if choice & 4 == 0 {
            packet[6] = 58;
            packet[42..44].fill(0);
            let length = (packet.len() as u32 - 40).to_be_bytes();
            let pseudo = [&packet[8..40], &length, &[0, 0, 0, 58], &packet[40..]].concat();
            let sum = checksum(&pseudo).to_be_bytes();
            packet[42..44].copy_from_slice(&sum);
        }
    }
    packet
}

fuzz_target!(|input: &[u8]| {
    let packet = packet(input);
    if let Some(reply) = echo_reply(&packet) {
        let (source, destination) = sound(&reply);
        let (from, to) = if packet[0] >> 4 == 4 {
            let at = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&packet[at..at + 4]).unwrap());
            (at(12), at(16))
        } else {
            let at = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).unwrap());
            (at(8), at(24))
        };
        assert_eq!((source, destination), (to, from));
    }
    for own in ["192.0.2.1", "2001:db8::1"] {
        let own: IpAddr = own.parse().expect("an address");
        for kind in ERRORS {
            let Some(reported) = error(&packet, kind, own) else {
                continue;
            };
            assert!(reported.len() <= if own.is_ipv4() { 576 } else { 1280 });
            let (source, _) = sound(&reported);
            assert_eq!(source, own);
            assert_eq!(error(&reported, kind, own), None);
            assert_eq!(echo_reply(&reported), None);
        }
    }
});
