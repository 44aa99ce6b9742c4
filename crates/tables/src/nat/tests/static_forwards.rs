// SPDX-License-Identifier: Apache-2.0
//! Static forwards that come and go, and hairpinning to external addresses without mapping.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn forward(external: u16, internal: u16) -> Forward {
    Forward {
        protocol: NatProtocol::Tcp,
        external: SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 1), external),
        internal: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 5), internal),
    }
}

#[test]
fn new_forwards_leave_mappings_alone_unless_they_need_their_ports() {
    let mut nat = Nat::new(&settings()).unwrap();
    let remote = "192.0.2.1:53";
    let kept = external(&mut nat, "10.0.0.1:1", remote, segment(SYN));
    let taken = external(&mut nat, "10.0.0.2:1", remote, segment(SYN));
    let wanted = Forward {
        external: taken,
        ..forward(0, 80)
    };
    assert_eq!(nat.set_forwards(&[wanted]), 0);
    let received = |nat: &mut Nat, to| {
        let octets = packet(socket(remote), to, segment(SYN));
        inbound(nat, &octets, 0).map(|octets| ends(&octets).1)
    };
    assert_eq!(received(&mut nat, kept), Ok(socket("10.0.0.1:1")));
    assert_eq!(received(&mut nat, taken), Ok(wanted.internal));
    // The host gets another port.
    let other = external(&mut nat, "10.0.0.2:1", remote, segment(SYN));
    assert_ne!(other, taken);
    assert_eq!(nat.set_forwards(&[]), 0);
    assert_eq!(received(&mut nat, taken), Err(NatDrop::NoMapping));
    assert_eq!(received(&mut nat, kept), Ok(socket("10.0.0.1:1")));
}

#[test]
fn a_host_that_used_the_port_of_a_forward_before_gets_the_forward() {
    let mut nat = Nat::new(&settings()).unwrap();
    let remote = "192.0.2.1:53";
    let former = external(&mut nat, "10.0.0.5:80", remote, segment(SYN));
    assert_eq!(nat.set_forwards(&[forward(443, 80)]), 0);
    let now = external(&mut nat, "10.0.0.5:80", remote, segment(SYN));
    assert_eq!(now, socket("198.51.100.1:443"));
    let octets = packet(socket(remote), former, segment(ACK));
    assert_eq!(inbound(&mut nat, &octets, 0), Err(NatDrop::NoMapping));
    assert_eq!(nat.hosts(), 0);
}

#[test]
fn forwards_take_no_space_from_mappings() {
    let mut nat = Nat::new(&NatSettings {
        mappings_max: 2,
        forwards: vec![forward(443, 80), forward(444, 81)],
        ..settings()
    })
    .unwrap();
    let send = |nat: &mut Nat, port| {
        let source = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), port);
        let octets = packet(source, socket("192.0.2.1:53"), Content::Udp(1));
        outbound(nat, &octets, 0).map(drop)
    };
    assert_eq!((send(&mut nat, 1), send(&mut nat, 2)), (Ok(()), Ok(())));
    assert_eq!(send(&mut nat, 3), Err(NatDrop::TableFull));
    assert_eq!(nat.set_forwards(&[]), 0);
    assert_eq!(send(&mut nat, 3), Err(NatDrop::TableFull));
    assert_eq!(send(&mut nat, 1), Ok(()));
}

#[test]
fn a_packet_to_an_external_address_without_mapping_stays_as_it_is() {
    let mut nat = Nat::new(&settings()).unwrap();
    let octets = packet(
        socket("10.0.0.1:1"),
        socket("198.51.100.1:22"),
        segment(SYN),
    );
    let mut sent = octets.clone();
    let outcome = nat.hairpin(&mut sent, octets.len(), 0);
    assert_eq!(outcome, NatOutcome::Dropped(NatDrop::NoMapping));
    assert_eq!((sent, nat.len()), (octets, 0));
    let mut other = packet(socket("10.0.0.1:1"), socket("192.0.2.1:22"), segment(SYN));
    let length = other.len();
    assert_eq!(nat.hairpin(&mut other, length, 0), NatOutcome::Untouched);
}

#[test]
fn a_copy_shows_the_inside_and_changes_nothing() {
    let mut nat = Nat::new(&settings()).unwrap();
    let source = external(&mut nat, "10.0.0.1:1", "192.0.2.1:53", segment(SYN));
    let answer = packet(socket("192.0.2.1:53"), source, segment(SYN | ACK));
    let before = nat.counters();
    let mut copy = answer.clone();
    assert_eq!(
        nat.show_inside(&mut copy, answer.len()),
        NatOutcome::Translated
    );
    assert_eq!(nat.counters(), before);
    assert_eq!(copy, inbound(&mut nat, &answer, 0).unwrap());
    let (inside, remote) = (socket("10.0.0.1:1"), socket("192.0.2.1:53"));
    let external = nat.external_of(NatProtocol::Tcp, inside, remote);
    assert_eq!(external, Some(source));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_sequence_of_forwards_returns_all_ports(
        steps in prop::collection::vec((prop::collection::btree_set((1000..1040u16, 0..3u16), 0..6), 1..20u16), 1..20),
    ) {
        let mut nat = Nat::new(&NatSettings {
            pool: PortPool {
                addresses: vec![Ipv4Addr::new(198, 51, 100, 1)],
                first_port: 1008,
                last_port: 1039,
                block_size: 4,
                blocks_per_host: 2,
                deterministic: Vec::new(),
                hold_down: HoldDown::default(),
            },
            ..settings()
        })
        .unwrap();
        for (ports, host_port) in steps {
            // One forward for each external and for each inside port.
            let (mut externals, mut internals) = (BTreeSet::new(), BTreeSet::new());
            let wanted: Vec<Forward> = ports
                .into_iter()
                .filter(|(external, internal)| externals.insert(*external) && internals.insert(*internal))
                .map(|(external, internal)| forward(external, 80 + internal))
                .collect();
            let mut wanted = wanted;
            wanted.sort_unstable();
            prop_assert_eq!(nat.set_forwards(&wanted), 0);
            for one in &wanted {
                let request = packet(socket("192.0.2.1:9"), one.external, segment(SYN));
                prop_assert_eq!(ends(&inbound(&mut nat, &request, 0).unwrap()).1, one.internal);
            }
            for host in 1..4 {
                let source = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), host_port);
                let octets = packet(source, socket("192.0.2.1:9"), segment(SYN));
                if let Ok(sent) = outbound(&mut nat, &octets, 0) {
                    let external = ends(&sent).0;
                    prop_assert!(!wanted.iter().any(|one| one.external == external));
                }
            }
            let counted = nat.list(0, usize::MAX).0.iter().filter(|one| one.expires_in_s.is_none()).count();
            prop_assert_eq!(counted, wanted.len());
        }
        nat.set_forwards(&[]);
        nat.expire(10_000, usize::MAX);
        prop_assert_eq!((nat.len(), nat.hosts()), (0, 0));
        // Every block is free again: as many hosts as there are blocks get one each.
        for host in 1..=8 {
            let source = SocketAddrV4::new(Ipv4Addr::new(10, 1, 0, host), 7);
            let octets = packet(source, socket("192.0.2.1:9"), segment(SYN));
            prop_assert!(outbound(&mut nat, &octets, 10_000).is_ok());
        }
    }
}
