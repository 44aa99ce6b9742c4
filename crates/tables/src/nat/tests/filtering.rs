// SPDX-License-Identifier: Apache-2.0
//! Address-dependent filtering of endpoint-independent mappings (RFC 4787, REQ-8; RFC 5382, REQ-3).

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::changes::{Applied, ApplyError, Replicate};

const HOST: &str = "10.0.0.1:4000";
const NEIGHBOUR: &str = "10.0.0.2:4000";
const REMOTE: &str = "192.0.2.1:53";
const OTHER: &str = "192.0.2.2:53";
/// Timeouts of one size, so that the model has one.
const TIMEOUT_S: u32 = 50;

fn filtering() -> NatSettings {
    NatSettings {
        filtering: FilteringBehaviour::AddressDependent,
        ..settings()
    }
}

/// Sends a datagram of an inside host. Returns its external endpoint.
fn sends(nat: &mut Nat, from: &str, to: SocketAddrV4, now: u32) -> Result<SocketAddrV4, NatDrop> {
    let octets = packet(socket(from), to, Content::Udp(3));
    outbound(nat, &octets, now).map(|octets| ends(&octets).0)
}

/// Sends a datagram of a remote host to an external endpoint. Returns its inside endpoint.
fn reached(
    nat: &mut Nat,
    remote: &str,
    to: SocketAddrV4,
    now: u32,
) -> Result<SocketAddrV4, NatDrop> {
    let octets = packet(socket(remote), to, Content::Udp(3));
    let received = inbound(nat, &octets, now)?;
    assert_sound(&received);
    Ok(ends(&received).1)
}

#[test]
fn one_external_endpoint_accepts_addresses_that_the_host_has_sent_to() {
    let mut nat = Nat::new(&filtering()).unwrap();
    let external = sends(&mut nat, HOST, socket(REMOTE), 0).unwrap();
    let host = Ok(socket(HOST));
    assert_eq!(reached(&mut nat, REMOTE, external, 0), host);
    // The port of the remote host does not count.
    assert_eq!(reached(&mut nat, "192.0.2.1:99", external, 0), host);
    let filtered = Err(NatDrop::Filtered);
    assert_eq!(reached(&mut nat, OTHER, external, 0), filtered);
    // The address is for this endpoint only.
    let neighbour = sends(&mut nat, NEIGHBOUR, socket(OTHER), 0).unwrap();
    assert_eq!(reached(&mut nat, OTHER, external, 0), filtered);
    assert_eq!(reached(&mut nat, REMOTE, neighbour, 0), filtered);
    assert_eq!(sends(&mut nat, HOST, socket(OTHER), 0), Ok(external));
    assert_eq!(reached(&mut nat, OTHER, external, 0), host);
    let counted = nat.counters().dropped[NatDrop::Filtered as usize];
    assert_eq!(counted, 3);
    let listed = nat.list(0, usize::MAX).0;
    assert!(listed.iter().all(|one| one.remote_address.is_none()));
}

#[test]
fn a_permission_has_the_timeout_of_the_mapping() {
    let mut nat = Nat::new(&filtering()).unwrap();
    let external = sends(&mut nat, HOST, socket(REMOTE), 0).unwrap();
    assert_eq!(sends(&mut nat, HOST, socket(OTHER), 200), Ok(external));
    assert_eq!(reached(&mut nat, REMOTE, external, 300), Ok(socket(HOST)));
    assert_eq!(
        reached(&mut nat, REMOTE, external, 301),
        Err(NatDrop::Filtered)
    );
    assert_eq!(reached(&mut nat, OTHER, external, 301), Ok(socket(HOST)));
}

#[test]
fn echoes_and_errors_are_filtered_by_the_remote_address_too() {
    let mut nat = Nat::new(&filtering()).unwrap();
    let echo = packet(
        socket("10.0.0.1:9"),
        socket("192.0.2.1:9"),
        Content::EchoRequest,
    );
    let external = ends(&outbound(&mut nat, &echo, 0).unwrap()).0;
    let mut reply = |from: [u8; 4]| {
        let from = SocketAddrV4::new(from.into(), external.port());
        let reply = packet(from, external, Content::EchoReply);
        inbound(&mut nat, &reply, 0).map(|octets| ends(&octets).1)
    };
    assert_eq!(reply([192, 0, 2, 1]), Ok(socket("10.0.0.1:9")));
    assert_eq!(reply([192, 0, 2, 2]), Err(NatDrop::Filtered));
    // Any router sends errors about packets to the remote host.
    let external = sends(&mut nat, HOST, socket(REMOTE), 0).unwrap();
    let mut error = |to: &str| {
        let about = packet(external, socket(to), Content::Udp(3));
        inbound(&mut nat, &error_about(&about, "203.0.113.9", external), 0)
    };
    assert!(error(REMOTE).is_ok());
    assert_eq!(error(OTHER), Err(NatDrop::Filtered));
}

#[test]
fn published_ports_are_for_all_and_inside_hosts_send_to_each_other_first() {
    let published = socket("198.51.100.1:443");
    let mut nat = Nat::new(&NatSettings {
        forwards: vec![Forward {
            protocol: NatProtocol::Udp,
            external: published,
            internal: socket("10.0.0.5:8443"),
        }],
        ..filtering()
    })
    .unwrap();
    let server = Ok(socket("10.0.0.5:8443"));
    assert_eq!(reached(&mut nat, OTHER, published, 0), server);
    // Answers of the server replace no permission of others.
    sends(&mut nat, "10.0.0.9:1", socket(REMOTE), 0).unwrap();
    for number in 0..50_000u32 {
        let remote = SocketAddrV4::new(Ipv4Addr::from_bits(0x0800_0000 + number), 53);
        let sent = sends(&mut nat, "10.0.0.5:8443", remote, 0);
        assert_eq!(sent, Ok(published));
    }
    let kept = sends(&mut nat, "10.0.0.9:1", socket(OTHER), 0).unwrap();
    let inside = reached(&mut nat, REMOTE, kept, 0);
    assert_eq!(inside, Ok(socket("10.0.0.9:1")));
    let first = sends(&mut nat, HOST, socket(REMOTE), 0).unwrap();
    let second = sends(&mut nat, NEIGHBOUR, socket(REMOTE), 0).unwrap();
    assert_eq!(sends(&mut nat, HOST, second, 0), Err(NatDrop::Filtered));
    assert_eq!(sends(&mut nat, NEIGHBOUR, first, 0), Ok(second));
    assert_eq!(sends(&mut nat, HOST, second, 0), Ok(first));
}

#[test]
fn many_remote_addresses_replace_earlier_ones() {
    let mut nat = Nat::new(&NatSettings {
        mappings_max: 8,
        ..filtering()
    })
    .unwrap();
    let octets = nat.octets();
    for number in 0..2000u32 {
        let remote = SocketAddrV4::new(Ipv4Addr::from_bits(0xc633_0000 + number), 53);
        let external = sends(&mut nat, HOST, remote, number / 100).unwrap();
        let from = remote.to_string();
        let inside = reached(&mut nat, &from, external, number / 100);
        assert_eq!(inside, Ok(socket(HOST)));
    }
    assert_eq!(nat.octets(), octets);
}

/// Gives all entries to another translator. Returns their number.
fn share(nat: &mut Nat, other: &mut Nat, now: u32) -> usize {
    let (mut from, mut count) = (Some(0), 0);
    while let Some(start) = from {
        let mut list = Vec::new();
        from = nat.share_into(start, (2, 100), &mut list);
        count += list.len();
        for change in &list {
            other.apply(change, now).unwrap();
        }
    }
    count
}

#[test]
fn a_standby_has_the_permissions_of_the_active_switch() {
    let mut first = Nat::new(&filtering()).unwrap();
    first.allow_changes();
    let mut changes = Vec::new();
    assert!(!first.take_changes((1, 1), &mut changes));
    let external = sends(&mut first, HOST, socket(REMOTE), 0).unwrap();
    // Another port of the same address is no change.
    sends(&mut first, HOST, socket("192.0.2.1:99"), 10).unwrap();
    assert!(!first.take_changes((10, 10), &mut changes));
    let mut second = Nat::new(&filtering()).unwrap();
    assert_eq!(changes.len(), 2);
    for change in &changes {
        assert_eq!(second.apply(change, 10), Ok(Applied::Added));
    }
    let (host, filtered) = (Ok(socket(HOST)), Err(NatDrop::Filtered));
    assert_eq!(reached(&mut second, REMOTE, external, 10), host);
    assert_eq!(reached(&mut second, OTHER, external, 10), filtered);
    assert_eq!(second.apply(&changes[1], 10), Ok(Applied::Updated));
    // The records are those of no other NAT.
    let mut other = Nat::new(&settings()).unwrap();
    assert_eq!(other.apply(&changes[1], 0), Err(ApplyError::Invalid));
    let mut saved = *changes[1].saved();
    saved.remote.set_port(9);
    let with_port = MappingChange::Present(saved);
    assert_eq!(second.apply(&with_port, 10), Err(ApplyError::Invalid));

    assert_eq!(sends(&mut first, HOST, socket(OTHER), 200), Ok(external));
    let neighbour = sends(&mut first, NEIGHBOUR, socket(OTHER), 200).unwrap();
    let mut third = Nat::new(&filtering()).unwrap();
    // Two mappings and three permissions.
    assert_eq!(share(&mut first, &mut third, 200), 5);
    for remote in [REMOTE, OTHER] {
        assert_eq!(reached(&mut third, remote, external, 200), host);
    }
    assert_eq!(reached(&mut third, REMOTE, neighbour, 200), filtered);
    let inside = reached(&mut third, OTHER, neighbour, 200);
    assert_eq!(inside, Ok(socket(NEIGHBOUR)));
    // One of the permissions has expired.
    first.expire(320, usize::MAX);
    let mut fourth = Nat::new(&filtering()).unwrap();
    assert_eq!(share(&mut first, &mut fourth, 320), 4);
    assert_eq!(reached(&mut fourth, REMOTE, external, 320), filtered);
    assert_eq!(reached(&mut fourth, OTHER, external, 320), host);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn permissions_are_those_of_a_map(
        flows in prop::collection::vec(
            (1..4u8, 1..6u16, (1..5u8, 1..5u8), any::<bool>(), prop_oneof![8 => Just(0u32), 2 => 1..40u32]),
            1..200,
        ),
    ) {
        let mut nat = Nat::new(&NatSettings {
            // So large that no permission is replaced.
            mappings_max: 1 << 14,
            timeouts: NatTimeouts {
                udp_s: TIMEOUT_S,
                tcp_established_s: TIMEOUT_S,
                tcp_transitory_s: TIMEOUT_S,
                icmp_s: TIMEOUT_S,
            },
            ..filtering()
        })
        .unwrap();
        // Last second, by protocol, inside endpoint and remote address.
        let mut known: HashMap<(bool, SocketAddrV4, u8), u32> = HashMap::new();
        let mut now = 0;
        for (host, port, (remote, stranger), is_tcp, seconds) in flows {
            now += seconds;
            nat.expire(now, usize::MAX);
            known.retain(|_, last| *last + TIMEOUT_S >= now);
            let inside = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), port);
            let remote_end = |number, port| SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, number), port);
            let content = || match is_tcp {
                true => segment(ACK),
                false => Content::Udp(7),
            };
            let sent = packet(inside, remote_end(remote, 80), content());
            let external = ends(&outbound(&mut nat, &sent, now).unwrap()).0;
            known.insert((is_tcp, inside, remote), now);
            let request = packet(remote_end(stranger, 81), external, content());
            let expected = match known.contains_key(&(is_tcp, inside, stranger)) {
                true => Ok(inside),
                false => Err(NatDrop::Filtered),
            };
            let received = inbound(&mut nat, &request, now).map(|octets| ends(&octets).1);
            prop_assert_eq!(received, expected);
        }
    }
}
