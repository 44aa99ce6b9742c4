// SPDX-License-Identifier: Apache-2.0
//! Mappings of an active switch on its standby: the same ones after every change.

use proptest::prelude::*;

use super::*;
use crate::changes::{Applied, ApplyError, Replicate};

/// Two addresses with four blocks of eight ports.
fn small() -> NatSettings {
    NatSettings {
        pool: PortPool {
            last_port: 1024 + 31,
            block_size: 8,
            ..settings().pool
        },
        forwards: vec![Forward {
            protocol: NatProtocol::Tcp,
            external: socket("198.51.100.1:1030"),
            internal: socket("10.0.0.1:80"),
        }],
        mappings_max: 40,
        ..settings()
    }
}

fn active(settings: &NatSettings) -> Nat {
    let mut nat = Nat::new(settings).unwrap();
    nat.allow_changes();
    let mut none = Vec::new();
    assert!(!nat.take_changes((1, 1), &mut none));
    assert_eq!((none.len(), nat.take_lost_changes()), (0, 1));
    nat
}

fn follow(active: &mut Nat, standby: &mut Nat, now: u32) {
    loop {
        let mut list = Vec::new();
        let has_more = active.take_changes((2, 3), &mut list);
        assert!(list.len() <= 2);
        for change in &list {
            standby.apply(change, now).unwrap();
        }
        if !has_more {
            return;
        }
    }
}

fn share(active: &mut Nat, standby: &mut Nat, now: u32) {
    let mut from = Some(0);
    while let Some(start) = from {
        let mut list = Vec::new();
        from = active.share_into(start, (2, 3), &mut list);
        assert!(list.len() <= 2);
        for change in &list {
            standby.apply(change, now).unwrap();
        }
    }
}

/// Protocol, inside and external endpoint, and the remote address and port that the mapping depends on.
type Known = (
    NatProtocol,
    SocketAddrV4,
    SocketAddrV4,
    (Option<Ipv4Addr>, Option<u16>),
);

/// Returns all mappings.
fn known(nat: &Nat) -> Vec<Known> {
    let (list, next) = nat.list(0, usize::MAX);
    assert_eq!(next, None);
    let each = list.iter().map(|one| {
        let remote = (one.remote_address, one.remote_port);
        (one.protocol, one.internal, one.external, remote)
    });
    let mut all: Vec<_> = each.collect();
    all.sort();
    all
}

#[derive(Clone, Debug)]
struct Flow {
    host: u8,
    port: u16,
    /// Remote host, and remote port if it is no echo.
    remote: (u8, u16),
    protocol: NatProtocol,
    seconds: u32,
}

fn flow() -> impl Strategy<Value = Flow> {
    let protocol =
        prop::sample::select(vec![NatProtocol::Tcp, NatProtocol::Udp, NatProtocol::Icmp]);
    let seconds = prop_oneof![8 => Just(0u32), 2 => 1..90u32, 1 => Just(400u32)];
    let remote = (1..3u8, 80..82u16);
    (1..8u8, 1..20u16, remote, protocol, seconds).prop_map(
        |(host, port, remote, protocol, seconds)| Flow {
            host,
            port,
            remote,
            protocol,
            seconds,
        },
    )
}

/// Sends a packet of an inside host. Returns its external endpoint, if it is translated.
fn send(nat: &mut Nat, flow: &Flow, now: u32) -> Option<SocketAddrV4> {
    let source = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, flow.host), flow.port);
    let content = match flow.protocol {
        NatProtocol::Tcp => segment(ACK),
        NatProtocol::Udp => Content::Udp(7),
        NatProtocol::Icmp => Content::EchoRequest,
    };
    let port = match flow.protocol {
        NatProtocol::Icmp => flow.port,
        NatProtocol::Tcp | NatProtocol::Udp => flow.remote.1,
    };
    let remote = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, flow.remote.0), port);
    let sent = outbound(nat, &packet(source, remote, content), now);
    sent.ok().map(|sent| ends(&sent).0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_standby_has_the_mappings_of_the_active_switch_after_every_change(
        mapping in behaviour(),
        flows in prop::collection::vec(flow(), 1..150),
    ) {
        let settings = NatSettings { mapping, ..small() };
        let mut first = active(&settings);
        let mut second = Nat::new(&settings).unwrap();
        let mut now = 0;
        for flow in flows {
            now += flow.seconds;
            first.expire(now, usize::MAX);
            let external = send(&mut first, &flow, now);
            follow(&mut first, &mut second, now);
            second.expire(now, usize::MAX);
            // Packets of known mappings extend timeouts.
            share(&mut first, &mut second, now);
            prop_assert_eq!(known(&first), known(&second));
            prop_assert_eq!(first.hosts(), second.hosts());
            if external.is_some() {
                // A packet that arrives at the standby has the same external endpoint.
                prop_assert_eq!(send(&mut second, &flow, now), external);
            }
        }
    }

    #[test]
    fn any_record_is_refused_or_read_as_it_is_written(
        mut octets in prop::collection::vec(any::<u8>(), SAVED_MAPPING_OCTETS),
        is_plausible: bool,
        zeros_from in prop::sample::select(vec![14usize, 18, 20]),
        mapping in behaviour(),
    ) {
        if is_plausible {
            octets[0] %= 4;
            octets[1] %= 2;
            // Without a remote endpoint, without a remote port, or with both.
            octets[zeros_from..].fill(0);
        }
        let octets: [u8; SAVED_MAPPING_OCTETS] = octets.try_into().unwrap();
        let read = SavedMapping::from_octets(&octets);
        let may_have_port = octets[0] != NatProtocol::Icmp as u8 && octets[14..18] != [0; 4];
        let has_port = octets[18..] != [0; 2];
        let is_possible = octets[0] < 3 && octets[1] < 2 && (!has_port || may_have_port);
        prop_assert_eq!(read.is_some(), is_possible);
        if let Some(saved) = read {
            prop_assert_eq!(saved.to_octets(), octets);
            // Whatever it is, the tables stay consistent.
            let mut nat = Nat::new(&NatSettings { mapping, ..small() }).unwrap();
            let applied = nat.apply(&MappingChange::Present(saved), 0);
            prop_assert_eq!(known(&nat).len(), 1 + usize::from(applied.is_ok()));
        }
    }
}

#[test]
fn an_answer_to_tcp_gives_the_mapping_of_the_standby_its_long_timeout() {
    let mut first = active(&small());
    let mut second = Nat::new(&small()).unwrap();
    let (inside, remote) = (socket("10.0.0.5:9"), socket("192.0.2.1:80"));
    let sent = outbound(&mut first, &packet(inside, remote, segment(SYN)), 0).unwrap();
    let external = ends(&sent).0;
    let timeout = |nat: &Nat| {
        let list = nat.list(0, usize::MAX).0;
        let found = list.iter().find(|one| one.internal == inside);
        found.and_then(|one| one.expires_in_s)
    };
    follow(&mut first, &mut second, 0);
    assert_eq!(timeout(&second), Some(240));
    let answer = packet(remote, external, segment(SYN | ACK));
    inbound(&mut first, &answer, 0).unwrap();
    follow(&mut first, &mut second, 0);
    assert_eq!(timeout(&second), Some(7440));
    // A second answer changes nothing.
    inbound(&mut first, &answer, 0).unwrap();
    let mut none = Vec::new();
    assert!(!first.take_changes((1, 1), &mut none) && none.is_empty());
}

fn mapping(internal: &str, external: &str) -> SavedMapping {
    SavedMapping {
        protocol: NatProtocol::Udp,
        is_answered: false,
        internal: socket(internal),
        external: socket(external),
        remote: socket("0.0.0.0:0"),
    }
}

#[test]
fn a_mapping_takes_the_place_of_earlier_ones_and_static_forwards_stay() {
    let mut nat = Nat::new(&small()).unwrap();
    let mut apply = |internal, external| {
        let change = MappingChange::Present(mapping(internal, external));
        nat.apply(&change, 0)
    };
    assert_eq!(apply("10.0.0.2:5", "198.51.100.1:1040"), Ok(Applied::Added));
    assert_eq!(apply("10.0.0.2:6", "198.51.100.1:1041"), Ok(Applied::Added));
    assert_eq!(
        apply("10.0.0.2:5", "198.51.100.1:1040"),
        Ok(Applied::Updated)
    );
    // The active switch has given the block to another host since.
    assert_eq!(apply("10.0.0.3:5", "198.51.100.1:1042"), Ok(Applied::Added));
    // An address that the pool does not have, a port of no block, a block with a static forward.
    for external in ["198.51.100.9:1040", "198.51.100.1:1", "198.51.100.1:1025"] {
        assert_eq!(apply("10.0.0.3:9", external), Err(ApplyError::Invalid));
    }
    // A host has two blocks at most.
    assert_eq!(apply("10.0.0.3:6", "198.51.100.1:1050"), Ok(Applied::Added));
    let further = apply("10.0.0.3:7", "198.51.100.1:1033");
    assert_eq!(further, Err(ApplyError::Full));
    assert_eq!(known(&nat).len(), 3);
    let ended = MappingChange::Ended(mapping("10.0.0.3:5", "198.51.100.1:1043"));
    assert_eq!(nat.apply(&ended, 0), Ok(Applied::Absent));
    let ended = MappingChange::Ended(mapping("10.0.0.3:5", "198.51.100.1:1042"));
    assert_eq!(nat.apply(&ended, 0), Ok(Applied::Removed));
    assert_eq!(known(&nat).len(), 2);
    assert_eq!(nat.hosts(), 1);
}

/// The ends of mappings were lost, as after a restart of the active switch: a host has another external address since.
#[test]
fn a_host_with_another_external_address_loses_its_former_mappings() {
    let mut nat = Nat::new(&small()).unwrap();
    let apply = |nat: &mut Nat, internal, external| {
        let change = MappingChange::Present(mapping(internal, external));
        nat.apply(&change, 0)
    };
    let added = Ok(Applied::Added);
    // Two blocks, and a mapping of another host.
    for (internal, external) in [
        ("10.0.0.2:5", "198.51.100.1:1040"),
        ("10.0.0.2:6", "198.51.100.1:1033"),
        ("10.0.0.3:5", "198.51.100.1:1050"),
    ] {
        assert_eq!(apply(&mut nat, internal, external), added, "{external}");
    }
    let before = known(&nat);
    // A record that is refused changes nothing.
    let refused = apply(&mut nat, "10.0.0.2:7", "198.51.100.2:1");
    assert_eq!(refused, Err(ApplyError::Invalid));
    assert_eq!(known(&nat), before);
    assert_eq!(apply(&mut nat, "10.0.0.2:7", "198.51.100.2:1040"), added);
    let externals: Vec<SocketAddrV4> = known(&nat).into_iter().map(|one| one.2).collect();
    let forward = "198.51.100.1:1030";
    let expected = [forward, "198.51.100.2:1040", "198.51.100.1:1050"];
    assert_eq!(externals, expected.map(socket));
    // A host with a static forward, which stays, in a block that is free again.
    assert_eq!(apply(&mut nat, "10.0.0.1:9", "198.51.100.1:1040"), added);
    assert_eq!(apply(&mut nat, "10.0.0.1:10", "198.51.100.2:1033"), added);
    assert_eq!((known(&nat).len(), nat.hosts()), (4, 3));
    assert!(known(&nat).iter().any(|one| one.2 == socket(forward)));
}

#[test]
fn mappings_that_an_active_switch_restores_reach_its_standby() {
    let mut before = Nat::new(&small()).unwrap();
    for (host, protocol) in [(2, NatProtocol::Udp), (3, NatProtocol::Tcp)] {
        let flow = Flow {
            host,
            port: 5,
            remote: (1, 80),
            protocol,
            seconds: 0,
        };
        assert!(send(&mut before, &flow, 0).is_some());
    }
    let mut saved = Vec::new();
    assert_eq!(before.share_into(0, (10, 10_000), &mut saved), None);
    assert_eq!(saved.len(), 2);
    let (mut first, mut second) = (active(&small()), Nat::new(&small()).unwrap());
    for change in &saved {
        assert_eq!(first.apply(change, 0), Ok(Applied::Added));
    }
    follow(&mut first, &mut second, 0);
    assert_eq!(known(&second), known(&before));
}
