// SPDX-License-Identifier: Apache-2.0
//! Packets of generated hosts compared with a model: one map from inside to external endpoints.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
struct Flow {
    host: u8,
    port: u16,
    remote: u8,
    protocol: NatProtocol,
    seconds: u32,
}

fn flow() -> impl Strategy<Value = Flow> {
    let protocol = prop_oneof![
        Just(NatProtocol::Tcp),
        Just(NatProtocol::Udp),
        Just(NatProtocol::Icmp)
    ];
    let seconds = prop_oneof![8 => Just(0u32), 2 => 1..30u32, 1 => Just(400u32)];
    (1..6u8, 1..40u16, 1..4u8, protocol, seconds).prop_map(
        |(host, port, remote, protocol, seconds)| Flow {
            host,
            port,
            remote,
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
    fn answers_return_to_the_sender_and_no_external_endpoint_is_shared(flows in prop::collection::vec(flow(), 1..200)) {
        let mut nat = Nat::new(&small()).unwrap();
        // External endpoint and last second, by inside endpoint.
        let mut known: HashMap<(NatProtocolKey, SocketAddrV4), (SocketAddrV4, u32)> = HashMap::new();
        let mut now = 0;
        for flow in flows {
            now += flow.seconds;
            nat.expire(now, usize::MAX);
            known.retain(|_, (_, last)| *last + TIMEOUT_S >= now);
            let source = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, flow.host), flow.port);
            let remote_port = if flow.protocol == NatProtocol::Icmp { flow.port } else { 80 };
            let remote = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, flow.remote), remote_port);
            let original = packet(source, remote, content(flow.protocol, false));
            let key = (flow.protocol as u8, source);
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
            for ((protocol, other), (taken, _)) in &known {
                if (*protocol, *other) != key {
                    prop_assert!(*protocol != key.0 || *taken != external, "{} and {} share {}", other, source, external);
                }
                if other.ip() == source.ip() {
                    prop_assert_eq!(taken.ip(), external.ip());
                }
            }
            known.insert(key, (external, now));
            let from = if flow.protocol == NatProtocol::Icmp {
                SocketAddrV4::new(*remote.ip(), external.port())
            } else {
                remote
            };
            let answer = packet(from, external, content(flow.protocol, true));
            let received = inbound(&mut nat, &answer, now).unwrap();
            assert_sound(&received);
            let (sender, receiver) = ends(&received);
            prop_assert_eq!(receiver, source);
            prop_assert_eq!(sender.ip(), remote.ip());
            let listed = nat.list(0, usize::MAX).0;
            prop_assert_eq!(listed.len(), known.len());
            prop_assert_eq!(nat.len(), known.len());
            for one in listed {
                let key = (one.protocol as u8, one.internal);
                prop_assert_eq!(known.get(&key).map(|(external, _)| *external), Some(one.external));
            }
        }
        // Every block goes back.
        nat.expire(now + TIMEOUT_S + 1, usize::MAX);
        prop_assert_eq!((nat.len(), nat.hosts()), (0, 0));
        let balance: i32 = nat.take_events().map(|event| if event.is_assigned { 1 } else { -1 }).sum();
        prop_assert_eq!(balance, 0);
    }

    #[test]
    fn any_octets_are_translated_or_dropped(
        mut octets in prop::collection::vec(any::<u8>(), 0..120),
        protocol in prop_oneof![Just(1u8), Just(6), Just(17)],
        is_outbound: bool,
    ) {
        let mut nat = Nat::new(&small()).unwrap();
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
