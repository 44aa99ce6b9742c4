// SPDX-License-Identifier: Apache-2.0
//! Packets of generated hosts compared with a model: one map from inside endpoints, and what the mapping behaviour adds, to external ones.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
struct Flow {
    host: u8,
    port: u16,
    remote: Remote,
    /// A remote endpoint that sends a packet to the external one.
    stranger: Remote,
    protocol: NatProtocol,
    seconds: u32,
}

/// Host and port; no port of an echo.
type Remote = (u8, u16);

/// Returns what of a remote endpoint a mapping depends on: address and port, or 0 in place of them.
fn dependence(
    mapping: MappingBehaviour,
    protocol: NatProtocol,
    remote: SocketAddrV4,
) -> SocketAddrV4 {
    let (address, port) = match mapping {
        MappingBehaviour::EndpointIndependent => (Ipv4Addr::UNSPECIFIED, 0),
        MappingBehaviour::AddressDependent => (*remote.ip(), 0),
        MappingBehaviour::AddressAndPortDependent if protocol == NatProtocol::Icmp => {
            (*remote.ip(), 0)
        }
        MappingBehaviour::AddressAndPortDependent => (*remote.ip(), remote.port()),
    };
    SocketAddrV4::new(address, port)
}

/// Returns a remote endpoint. That of an echo has its identifier.
fn remote_of((host, port): Remote, protocol: NatProtocol, identifier: u16) -> SocketAddrV4 {
    let port = match protocol {
        NatProtocol::Icmp => identifier,
        NatProtocol::Tcp | NatProtocol::Udp => port,
    };
    SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, host), port)
}

fn flow() -> impl Strategy<Value = Flow> {
    let protocol =
        prop::sample::select(vec![NatProtocol::Tcp, NatProtocol::Udp, NatProtocol::Icmp]);
    let seconds = prop_oneof![8 => Just(0u32), 2 => 1..30u32, 1 => Just(400u32)];
    let remote = || (1..4u8, 80..83u16);
    let remotes = (remote(), remote());
    (1..6u8, 1..40u16, remotes, protocol, seconds).prop_map(
        |(host, port, (remote, stranger), protocol, seconds)| Flow {
            host,
            port,
            remote,
            stranger,
            protocol,
            seconds,
        },
    )
}

fn content(protocol: NatProtocol, is_answer: bool) -> Content {
    match (protocol, is_answer) {
        (NatProtocol::Tcp, _) => segment(ACK),
        (NatProtocol::Udp, _) => Content::Udp(7),
        (NatProtocol::Icmp, false) => Content::EchoRequest,
        (NatProtocol::Icmp, true) => Content::EchoReply,
    }
}

/// Timeouts of one size, so that the model has one.
const TIMEOUT_S: u32 = 50;

fn small() -> NatSettings {
    NatSettings {
        pool: PortPool {
            last_port: 1024 + 31,
            block_size: 8,
            ..settings().pool
        },
        timeouts: NatTimeouts {
            udp_s: TIMEOUT_S,
            tcp_established_s: TIMEOUT_S,
            tcp_transitory_s: TIMEOUT_S,
            icmp_s: TIMEOUT_S,
        },
        ..settings()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn answers_return_to_the_sender_and_no_external_endpoint_is_shared(
        mapping in behaviour(),
        flows in prop::collection::vec(flow(), 1..200),
    ) {
        let mut nat = Nat::new(&NatSettings { mapping, ..small() }).unwrap();
        // External endpoint and last second, by inside endpoint and what a mapping depends on.
        let mut known: HashMap<Key, (SocketAddrV4, u32)> = HashMap::new();
        let mut now = 0;
        for flow in flows {
            now += flow.seconds;
            nat.expire(now, usize::MAX);
            known.retain(|_, (_, last)| *last + TIMEOUT_S >= now);
            let source = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, flow.host), flow.port);
            let remote = remote_of(flow.remote, flow.protocol, flow.port);
            let original = packet(source, remote, content(flow.protocol, false));
            let depends_on = dependence(mapping, flow.protocol, remote);
            let key = (flow.protocol as u8, source, depends_on);
            let translated = match outbound(&mut nat, &original, now) {
                Ok(translated) => translated,
                Err(reason) => {
                    // Only new mappings are refused.
                    prop_assert!(!known.contains_key(&key), "{:?}", reason);
                    prop_assert!(matches!(reason, NatDrop::HostLimit | NatDrop::NoPorts), "{:?}", reason);
                    continue;
                }
            };
            assert_sound(&translated);
            let (external, to) = ends(&translated);
            prop_assert_eq!(to.ip(), remote.ip());
            if let Some((former, _)) = known.get(&key) {
                prop_assert_eq!(*former, external);
            }
            for (other, (taken, _)) in &known {
                if *other != key {
                    let is_shared = other.0 == key.0 && *taken == external;
                    prop_assert!(!is_shared, "{:?} and {:?} share {}", other, key, external);
                }
                if other.1.ip() == source.ip() {
                    prop_assert_eq!(taken.ip(), external.ip());
                }
            }
            known.insert(key, (external, now));
            let from = remote_of(flow.remote, flow.protocol, external.port());
            let answer = packet(from, external, content(flow.protocol, true));
            let received = inbound(&mut nat, &answer, now).unwrap();
            assert_sound(&received);
            let (sender, receiver) = ends(&received);
            prop_assert_eq!(receiver, source);
            prop_assert_eq!(sender.ip(), remote.ip());
            let stranger = remote_of(flow.stranger, flow.protocol, external.port());
            let request = packet(stranger, external, content(flow.protocol, true));
            let expected = match dependence(mapping, flow.protocol, stranger) == depends_on {
                true => Ok(source),
                false => Err(NatDrop::Filtered),
            };
            let received = inbound(&mut nat, &request, now).map(|octets| ends(&octets).1);
            prop_assert_eq!(received, expected);
            let listed = nat.list(0, usize::MAX).0;
            prop_assert_eq!(listed.len(), known.len());
            prop_assert_eq!(nat.len(), known.len());
            for one in listed {
                let address = one.remote_address.unwrap_or(Ipv4Addr::UNSPECIFIED);
                let depends_on = SocketAddrV4::new(address, one.remote_port.unwrap_or(0));
                let key = (one.protocol as u8, one.internal, depends_on);
                prop_assert_eq!(known.get(&key).map(|(external, _)| *external), Some(one.external));
            }
        }
        // Every block goes back.
        nat.expire(now + TIMEOUT_S + 1, usize::MAX);
        prop_assert_eq!((nat.len(), nat.hosts()), (0, 0));
        let balance: i32 = blocks(&mut nat).map(|event| if event.is_assigned { 1 } else { -1 }).sum();
        prop_assert_eq!(balance, 0);
    }

    #[test]
    fn any_octets_are_translated_or_dropped(
        mut octets in prop::collection::vec(any::<u8>(), 0..120),
        protocol in prop::sample::select(&[1u8, 6, 17]),
        is_outbound: bool,
        mapping in behaviour(),
    ) {
        let mut nat = Nat::new(&NatSettings { mapping, ..small() }).unwrap();
        if let Some(header) = octets.first_chunk_mut::<20>() {
            header[0] = 0x45;
            header[9] = protocol;
            header[16..20].copy_from_slice(&[198, 51, 100, 1]);
        }
        let before = octets.clone();
        let length = octets.len();
        let outcome = match is_outbound {
            true => nat.outbound(&mut octets, length, 0),
            false => nat.inbound(&mut octets, length, 0),
        };
        if outcome == NatOutcome::Untouched {
            prop_assert_eq!(before, octets);
        }
    }
}

/// Protocols by number: they have no order that a map needs.
type NatProtocolKey = u8;

/// Protocol, inside endpoint, and what of the remote endpoint the mapping depends on.
type Key = (NatProtocolKey, SocketAddrV4, SocketAddrV4);
