// SPDX-License-Identifier: Apache-2.0

mod behaviours;
mod deterministic;
mod events;
mod filtering;
mod flush;
mod fragments;
mod growth;
mod hold_down;
mod model;
mod pairs;
mod requirements;
mod standby;
mod static_forwards;

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use quietwire_packet::checksum;

use super::*;
use crate::connections::Endpoint;
use crate::connections::reference::{Content, Sent, TcpSent};
use crate::testing::ends;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

fn socket(text: &str) -> SocketAddrV4 {
    text.parse().unwrap()
}

fn end(socket: SocketAddrV4) -> Endpoint {
    Endpoint {
        address: IpAddr::V4(*socket.ip()),
        port: socket.port(),
    }
}

fn settings() -> NatSettings {
    NatSettings {
        pool: PortPool {
            addresses: vec![
                "198.51.100.1".parse().unwrap(),
                "198.51.100.2".parse().unwrap(),
            ],
            first_port: 1024,
            last_port: 65_535,
            block_size: 64,
            blocks_per_host: 2,
            deterministic: Vec::new(),
            hold_down: HoldDown::default(),
        },
        forwards: Vec::new(),
        pairs: Vec::new(),
        mappings_max: 1000,
        hosts_max: 100,
        mapping: MappingBehaviour::default(),
        filtering: FilteringBehaviour::default(),
        timeouts: NatTimeouts::default(),
    }
}

/// Generates mapping behaviours.
fn behaviour() -> impl proptest::strategy::Strategy<Value = MappingBehaviour> {
    proptest::sample::select(vec![
        MappingBehaviour::EndpointIndependent,
        MappingBehaviour::AddressDependent,
        MappingBehaviour::AddressAndPortDependent,
    ])
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

/// Returns an IPv4 packet with right checksums.
fn packet(source: SocketAddrV4, destination: SocketAddrV4, content: Content) -> Vec<u8> {
    let sent = Sent {
        zone: 0,
        source: end(source),
        destination: end(destination),
        content,
    };
    let mut octets = sent.octets();
    put(&mut octets, 10, 0);
    let sum = checksum(&octets[..20]);
    put(&mut octets, 10, sum);
    if let Some(at) = sum_at(octets[9]) {
        put(&mut octets, at, 0);
        let sum = transport_sum(&octets);
        put(&mut octets, at, sum);
    }
    octets
}

fn put(octets: &mut [u8], at: usize, word: u16) {
    octets[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

/// Offset of the transport checksum in a packet without options.
fn sum_at(protocol: u8) -> Option<usize> {
    match protocol {
        1 => Some(22),
        6 => Some(36),
        17 => Some(26),
        _ => None,
    }
}

/// Returns the checksum over payload and pseudo header (RFC 9293, section 3.1), 0 over a sound packet.
fn transport_sum(octets: &[u8]) -> u16 {
    let length = (octets.len() as u16 - 20).to_be_bytes();
    let pseudo = match octets[9] {
        1 => Vec::new(),
        protocol => [&octets[12..20], &[0, protocol], &length].concat(),
    };
    checksum(&[&pseudo, &octets[20..]].concat())
}

/// Checks all checksums of a packet.
fn assert_sound(octets: &[u8]) {
    assert_eq!(checksum(&octets[..20]), 0, "header checksum");
    assert_eq!(transport_sum(octets), 0, "transport checksum");
}

/// Returns an ICMP error about a packet, with right checksums: time exceeded, from a router.
fn error_about(inner: &[u8], from: &str, to: SocketAddrV4) -> Vec<u8> {
    let mut message = vec![11, 0, 0, 0, 0, 0, 0, 0];
    message.extend(&inner[..28.min(inner.len())]);
    let sum = checksum(&message);
    put(&mut message, 2, sum);
    let length = message.len() as u16 + 20;
    let from: Ipv4Addr = from.parse().unwrap();
    let [high, low] = length.to_be_bytes();
    let start = [0x45, 0, high, low, 0, 0, 0, 0, 64, 1, 0, 0];
    let mut octets = [&start[..], &from.octets(), &to.ip().octets(), &message].concat();
    let sum = checksum(&octets[..20]);
    put(&mut octets, 10, sum);
    octets
}

fn outbound(nat: &mut Nat, octets: &[u8], now: u32) -> Result<Vec<u8>, NatDrop> {
    let mut octets = octets.to_vec();
    let length = octets.len();
    match nat.outbound(&mut octets, length, now) {
        NatOutcome::Translated | NatOutcome::Hairpinned => Ok(octets),
        NatOutcome::Dropped(reason) => Err(reason),
        NatOutcome::Untouched => unreachable!("outbound packets are translated"),
    }
}

fn inbound(nat: &mut Nat, octets: &[u8], now: u32) -> Result<Vec<u8>, NatDrop> {
    let mut octets = octets.to_vec();
    let length = octets.len();
    match nat.inbound(&mut octets, length, now) {
        NatOutcome::Translated => Ok(octets),
        NatOutcome::Dropped(reason) => Err(reason),
        outcome => unreachable!("{outcome:?}"),
    }
}

/// Takes the events of port blocks.
fn blocks(nat: &mut Nat) -> impl Iterator<Item = BlockEvent> + '_ {
    nat.take_events().filter_map(|event| match event {
        NatEvent::Block(event) => Some(event),
        NatEvent::Mapping(_) | NatEvent::Limit(_) => None,
    })
}

/// Sends a packet out, and returns its external endpoint.
fn external(nat: &mut Nat, source: &str, destination: &str, content: Content) -> SocketAddrV4 {
    let packet = packet(socket(source), socket(destination), content);
    ends(&outbound(nat, &packet, 0).unwrap()).0
}
