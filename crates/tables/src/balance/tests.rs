// SPDX-License-Identifier: Apache-2.0

mod direct;
mod ipv6;
mod standby;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use proptest::prelude::*;
use quietwire_packet::checksum;

use super::*;
use crate::nat::NatProtocol;

const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 1;

fn socket(text: &str) -> SocketAddrV4 {
    text.parse().unwrap()
}

fn backend(number: u8, weight: u32, state: BackendState) -> Backend {
    Backend {
        endpoint: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, number), 8080),
        weight,
        state,
    }
}

fn client(number: u32) -> SocketAddrV4 {
    SocketAddrV4::new(
        Ipv4Addr::from_bits(0xc000_0200 + number / 50_000),
        (number % 50_000) as u16 + 1024,
    )
}

const VIRTUAL: &str = "198.51.100.1:80";

fn settings(connections_max: u32) -> BalanceSettings {
    BalanceSettings {
        protocol: NatProtocol::Tcp,
        endpoint: socket(VIRTUAL),
        connections_max,
        is_direct: false,
    }
}

fn balancers(connections_max: u32, backends: &[Backend]) -> Balancers {
    let set = BackendSet::new(backends);
    Balancers::new(vec![
        Balancer::new(&settings(connections_max), set).unwrap(),
    ])
}

/// Replaces the backends, as an order to a thread does.
fn replace(stage: &mut Balancers, backends: &[Backend]) {
    let mut next = balancers(stage.balancers()[0].settings().connections_max, backends);
    next.inherit(stage);
    *stage = next;
}

#[test]
fn shares_are_those_of_the_weights_and_few_choices_change_with_a_backend() {
    let weights: Vec<(u64, u32)> = (0..10u64)
        .map(|one| (one * 77, 1 + one as u32 % 3))
        .collect();
    let all = choices(&weights);
    let total: u32 = weights.iter().map(|(_, weight)| weight).sum();
    for (number, (_, weight)) in weights.iter().enumerate() {
        let count = all
            .iter()
            .filter(|one| usize::from(**one) == number)
            .count();
        let share = CHOICES as f64 * f64::from(*weight) / f64::from(total);
        assert!(
            (count as f64 / share - 1.0).abs() < 0.02,
            "{number}: {count} of {share}"
        );
    }
    let mut without = weights.clone();
    without[4].1 = 0;
    let fewer = choices(&without);
    let changed = all
        .iter()
        .zip(&fewer)
        .filter(|(before, after)| **before != 4 && before != after);
    // Most choices of the others stay.
    assert!(changed.count() < CHOICES / 10);
    assert!(!fewer.contains(&4) && !fewer.contains(&u16::MAX));
    assert_eq!(choices(&weights), all);
    assert!(choices(&[]).iter().all(|one| *one == u16::MAX));
    assert!(choices(&[(1, 0)]).iter().all(|one| *one == u16::MAX));
}

#[test]
fn established_connections_stay_while_backends_come_and_drain() {
    let up = |number| backend(number, 1, BackendState::Up);
    let mut stage = balancers(10_000, &[up(1), up(2)]);
    let to = |stage: &mut Balancers, number: u32, flags| {
        let balancer = &mut stage.balancers_mut()[0];
        balancer.to_backend(client(number), flags, 0)
    };
    let before: Vec<SocketAddrV4> = (0..1000)
        .map(|number| to(&mut stage, number, SYN).unwrap())
        .collect();
    let first = before.iter().filter(|one| **one == up(1).endpoint).count();
    assert!((400..600).contains(&first), "{first}");
    for (backends, is_kept) in [
        (vec![up(1), up(2), up(3)], true),
        (
            vec![backend(1, 1, BackendState::Draining), up(2), up(3)],
            true,
        ),
        (vec![backend(1, 1, BackendState::Down), up(2), up(3)], false),
    ] {
        replace(&mut stage, &backends);
        for (number, former) in (0..).zip(&before) {
            let now = to(&mut stage, number, ACK).unwrap();
            assert_eq!(now == *former, is_kept || *former != up(1).endpoint);
            assert!(is_kept || now != up(1).endpoint);
        }
    }
    let counters = stage.balancers()[0].counters();
    assert_eq!((counters.created, counters.moved), (1000, first as u64));
    let connections: Vec<u64> = stage.balancers()[0]
        .backends()
        .iter()
        .map(|one| one.connections)
        .collect();
    assert_eq!((connections[0], connections.iter().sum::<u64>()), (0, 1000));
    // A draining backend receives no new connections.
    replace(&mut stage, &[backend(1, 1, BackendState::Draining), up(2)]);
    for number in 2000..2200 {
        assert_eq!(to(&mut stage, number, SYN), Ok(up(2).endpoint));
    }
    replace(&mut stage, &[]);
    assert_eq!(to(&mut stage, 5000, SYN), Err(BalanceDrop::NoBackend));
    assert_eq!(to(&mut stage, 1, ACK), Err(BalanceDrop::NoBackend));
}

/// Opens a connection completely.
fn open(balancer: &mut Balancer, client: SocketAddrV4) {
    let backend = balancer.to_backend(client, SYN, 0).unwrap();
    assert!(balancer.to_client(backend, client, SYN | ACK, 0));
    balancer.to_backend(client, ACK, 0).unwrap();
}

#[test]
fn a_flood_of_syns_replaces_its_own_entries_and_established_ones_stay() {
    let mut stage = balancers(100, &[backend(1, 1, BackendState::Up)]);
    let balancer = &mut stage.balancers_mut()[0];
    for number in 0..60 {
        open(balancer, client(number));
    }
    // Spoofed acknowledgements are not better than SYNs: the backend resets them, or does not answer.
    for number in 1000..5000 {
        for flags in [SYN, ACK, ACK] {
            let backend = balancer.to_backend(client(number), flags, 0).unwrap();
            assert!(flags == SYN || balancer.to_client(backend, client(number), 4, 0));
        }
    }
    for number in 0..60 {
        assert!(balancer.backend_of(client(number)).is_some());
    }
    assert!(balancer.counters().replaced > 3000);
    assert_eq!(balancer.len(), 100);
    balancer.expire(61, 100);
    assert_eq!(balancer.len(), 60);
    balancer.expire(7441, 100);
    assert!(balancer.is_empty());
    assert_eq!(balancer.backends()[0].connections, 0);
    assert!(matches!(
        Balancer::new(&settings(0), BackendSet::new(&[])),
        Err(BalanceError::Connections(0))
    ));
}

#[test]
fn a_full_table_of_established_connections_refuses_new_ones() {
    let mut stage = balancers(4, &[backend(1, 1, BackendState::Up)]);
    let balancer = &mut stage.balancers_mut()[0];
    for number in 0..4 {
        open(balancer, client(number));
    }
    assert_eq!(
        balancer.to_backend(client(9), SYN, 0),
        Err(BalanceDrop::TableFull)
    );
    assert_eq!(
        balancer.counters().dropped[BalanceDrop::TableFull as usize],
        1
    );
    // A closed connection makes space, and its port can be used again at once.
    balancer.to_backend(client(2), FIN | ACK, 1).unwrap();
    open(balancer, client(2));
    assert_eq!(
        balancer.to_backend(client(9), SYN, 2),
        Err(BalanceDrop::TableFull)
    );
    balancer.to_backend(client(2), FIN | ACK, 2).unwrap();
    assert!(balancer.to_backend(client(9), SYN, 2).is_ok());
    assert_eq!((balancer.len(), balancer.backend_of(client(2))), (4, None));
}

/// Returns a TCP or UDP packet with right checksums.
fn packet(from: SocketAddrV4, to: SocketAddrV4, protocol: u8, flags: u8) -> Vec<u8> {
    let mut transport = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    if protocol == 6 {
        transport.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    } else {
        transport.extend([0, 12, 0, 0, 1, 2, 3, 4]);
    }
    let [high, low] = (20 + transport.len() as u16).to_be_bytes();
    let mut octets = vec![0x45, 0, high, low, 0, 0, 0x40, 0, 64, protocol, 0, 0];
    octets.extend(from.ip().octets());
    octets.extend(to.ip().octets());
    octets.extend(&transport);
    let sum = checksum(&octets[..20]).to_be_bytes();
    octets[10..12].copy_from_slice(&sum);
    let at = if protocol == 6 { 36 } else { 26 };
    let sum = transport_sum(&octets).to_be_bytes();
    octets[at..at + 2].copy_from_slice(&sum);
    octets
}

fn transport_sum(octets: &[u8]) -> u16 {
    let length = (octets.len() as u16 - 20).to_be_bytes();
    let pseudo = [&octets[12..20], &[0, octets[9]], &length].concat();
    checksum(&[&pseudo, &octets[20..]].concat())
}

fn ends(octets: &[u8]) -> (SocketAddrV4, SocketAddrV4) {
    let address = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&octets[at..at + 4]).unwrap());
    let port = |at: usize| u16::from_be_bytes([octets[at], octets[at + 1]]);
    (
        SocketAddrV4::new(address(12), port(20)),
        SocketAddrV4::new(address(16), port(22)),
    )
}

/// Returns an ICMP error about a packet, with right checksums.
fn error_about(inner: &[u8], from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let mut message = vec![3, 4, 0, 0, 0, 0, 5, 0];
    message.extend(&inner[..28]);
    let sum = checksum(&message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    let [high, low] = (20 + message.len() as u16).to_be_bytes();
    let mut octets = vec![0x45, 0, high, low, 0, 0, 0, 0, 64, 1, 0, 0];
    octets.extend(from.octets());
    octets.extend(to.octets());
    let sum = checksum(&octets).to_be_bytes();
    octets[10..12].copy_from_slice(&sum);
    octets.extend(message);
    octets
}

/// Receives a packet, or else sends it, as the router does.
fn sent(stage: &mut Balancers, octets: &[u8]) -> Option<Vec<u8>> {
    let mut octets = octets.to_vec();
    let length = octets.len();
    if stage.is_to_virtual(&octets) {
        let outcome = stage.receive(&mut octets, length, 0);
        return (outcome == BalanceOutcome::Translated).then_some(octets);
    }
    let is_sent = stage.is_from_backend(&octets) && stage.send(&mut octets, length, 0);
    is_sent.then_some(octets)
}

#[test]
fn answers_and_errors_have_the_virtual_endpoint_and_other_packets_stay() {
    let mut stage = balancers(100, &[backend(1, 1, BackendState::Up)]);
    let (to, from) = (socket(VIRTUAL), client(7));
    let request = packet(from, to, 6, SYN);
    assert!(stage.is_to_virtual(&request) && !stage.is_from_backend(&request));
    let mut copy = request.clone();
    assert!(stage.show_inside(&mut copy, request.len()));
    assert!(stage.balancers()[0].is_empty());
    let arrived = sent(&mut stage, &request).unwrap();
    assert_eq!(copy, arrived);
    let server = socket("10.0.0.1:8080");
    assert_eq!(arrived, packet(from, server, 6, SYN));
    let answer = packet(server, from, 6, SYN | ACK);
    assert!(stage.is_from_backend(&answer) && !stage.is_to_virtual(&answer));
    let received = sent(&mut stage, &answer).unwrap();
    assert_eq!(received, packet(to, from, 6, SYN | ACK));
    // The path reports a packet to the client as too big.
    let router = Ipv4Addr::new(192, 0, 2, 250);
    let error = error_about(&received, router, *to.ip());
    let expected = error_about(&answer, router, *server.ip());
    let mut copy = error.clone();
    assert!(stage.show_inside(&mut copy, error.len()) && copy == expected);
    assert_eq!(sent(&mut stage, &error), Some(expected));
    // The backend reports a packet of the client.
    let error = error_about(&arrived, *server.ip(), *from.ip());
    let expected = error_about(&request, *to.ip(), *from.ip());
    assert_eq!(sent(&mut stage, &error), Some(expected));
    // So does the router, with its own address.
    let mut own = error_about(&arrived, router, *from.ip());
    let length = own.len();
    stage.translate_own_error(&mut own, length);
    assert_eq!(own, error_about(&request, router, *from.ip()));
    for other in [
        packet(server, client(8), 6, SYN | ACK),
        packet(client(8), server, 6, SYN),
        packet(from, socket("198.51.100.1:81"), 6, SYN),
        packet(from, to, 17, 0),
        error_about(&packet(to, client(8), 6, ACK), router, *to.ip()),
    ] {
        assert_eq!(sent(&mut stage, &other), None);
    }
    assert!(!stage.is_to_virtual(&[0; 10]) && !stage.is_from_backend(&[0; 10]));
    let backends = stage.balancers()[0].backends();
    assert_eq!((backends[0].packets_in, backends[0].packets_out), (1, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A model with one map: a client stays with its backend while it is there and not down, and each answer is undone.
    #[test]
    fn connections_stay_with_their_backends_in_any_sequence_of_changes(
        steps in prop::collection::vec(
            (prop::collection::vec((1..6u8, 1..4u32, 0..3usize), 1..5), prop::collection::vec(0..40u32, 1..30)),
            1..12,
        ),
    ) {
        let mut stage = balancers(64, &[]);
        let mut known: HashMap<SocketAddrV4, SocketAddrV4> = HashMap::new();
        for (wanted, clients) in steps {
            let mut backends: Vec<Backend> = Vec::new();
            for (number, weight, state) in wanted {
                if backends.iter().all(|one| one.endpoint.ip().octets()[3] != number) {
                    backends.push(backend(number, weight, BackendState::ALL[state]));
                }
            }
            replace(&mut stage, &backends);
            let state_of = |end: &SocketAddrV4| {
                backends.iter().find(|one| one.endpoint == *end).map(|one| one.state)
            };
            for number in clients {
                let from = client(number);
                let request = packet(from, socket(VIRTUAL), 6, ACK);
                let keeps = known.get(&from).filter(|one| {
                    matches!(state_of(one), Some(BackendState::Up | BackendState::Draining))
                });
                let Some(arrived) = sent(&mut stage, &request) else {
                    prop_assert!(keeps.is_none());
                    prop_assert!(backends.iter().all(|one| one.state != BackendState::Up));
                    continue;
                };
                prop_assert_eq!(checksum(&arrived[..20]), 0);
                prop_assert_eq!(transport_sum(&arrived), 0);
                let chosen = ends(&arrived).1;
                match keeps {
                    Some(former) => prop_assert_eq!(*former, chosen),
                    None => prop_assert_eq!(state_of(&chosen), Some(BackendState::Up)),
                }
                known.insert(from, chosen);
                let answer = sent(&mut stage, &packet(chosen, from, 6, ACK)).unwrap();
                prop_assert_eq!(answer, packet(socket(VIRTUAL), from, 6, ACK));
            }
            let balancer = &stage.balancers()[0];
            prop_assert_eq!(balancer.len(), known.len());
        }
    }

    #[test]
    fn any_octets_are_translated_or_stay(mut octets in prop::collection::vec(any::<u8>(), 0..100), protocol in prop::sample::select(&[1u8, 6, 17])) {
        let mut stage = balancers(16, &[backend(1, 1, BackendState::Up)]);
        if let Some(header) = octets.first_chunk_mut::<24>() {
            (header[0], header[9]) = (0x45, protocol);
            header[16..20].copy_from_slice(&[198, 51, 100, 1]);
            header[22..24].copy_from_slice(&[0, 80]);
        }
        let before = octets.clone();
        let length = octets.len();
        if stage.receive(&mut octets, length, 0) == BalanceOutcome::Untouched {
            prop_assert_eq!(&before, &octets);
            if !stage.send(&mut octets, length, 0) {
                prop_assert_eq!(before, octets);
            }
        }
    }
}
