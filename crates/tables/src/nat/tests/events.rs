// SPDX-License-Identifier: Apache-2.0
//! Events of mappings and limits for a log.

use std::collections::BTreeSet;

use super::*;

const REMOTE: &str = "192.0.2.1:53";
const ALL: EventKinds = EventKinds {
    mappings: true,
    limits: true,
};

fn send(nat: &mut Nat, host: u8, port: u16, now: u32) -> Result<(), NatDrop> {
    let source = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), port);
    let octets = packet(source, socket(REMOTE), Content::Udp(1));
    outbound(nat, &octets, now).map(|_| ())
}

/// Blocks and mappings that have begun and not ended.
#[derive(Debug, Default)]
struct Known {
    blocks: BTreeSet<(Ipv4Addr, u16, u16)>,
    mappings: BTreeSet<(NatProtocol, SocketAddrV4, SocketAddrV4)>,
}

impl Known {
    /// Applies events, each of which has to follow from those before. Returns their number.
    fn apply(&mut self, nat: &mut Nat) -> usize {
        let mut count = 0;
        for event in nat.take_events() {
            count += 1;
            match event {
                NatEvent::Block(one) => {
                    let ports = (one.first_port, one.last_port);
                    let block = (one.external, ports.0, ports.1);
                    match one.is_assigned {
                        true => assert!(self.blocks.insert(block), "{one:?}"),
                        false => assert!(self.blocks.remove(&block), "{one:?}"),
                    }
                    let is_in_block = |external: &SocketAddrV4| {
                        *external.ip() == one.external
                            && (ports.0..=ports.1).contains(&external.port())
                    };
                    let mut externals = self.mappings.iter().map(|known| &known.2);
                    assert!(!externals.any(is_in_block), "{one:?}");
                }
                NatEvent::Mapping(one) => {
                    let mapping = (one.protocol, one.internal, one.external);
                    let mut blocks = self.blocks.iter();
                    let has_block = blocks.any(|(address, first, last)| {
                        address == one.external.ip()
                            && (*first..=*last).contains(&one.external.port())
                    });
                    assert!(has_block, "{one:?}");
                    match one.is_created {
                        true => assert!(self.mappings.insert(mapping), "{one:?}"),
                        false => assert!(self.mappings.remove(&mapping), "{one:?}"),
                    }
                }
                NatEvent::Limit(one) => unreachable!("{one:?}"),
            }
        }
        count
    }
}

#[test]
fn each_mapping_that_begins_ends_between_the_events_of_its_block() {
    let mut nat = Nat::new(&settings()).unwrap();
    nat.allow_events(ALL);
    let mut known = Known::default();
    for round in 0..4 {
        let now = round * 400;
        for host in 1..=5 {
            for port in 1..=70 {
                send(&mut nat, host, port, now).unwrap();
                known.apply(&mut nat);
            }
        }
        let mut listed = nat.list(0, 10_000).0.into_iter();
        assert_eq!(known.mappings.len(), 350);
        assert!(listed.all(|one| {
            let mapping = (one.protocol, one.internal, one.external);
            known.mappings.contains(&mapping)
        }));
        // A packet without new mapping has no event.
        send(&mut nat, 1, 1, now).unwrap();
        assert_eq!(known.apply(&mut nat), 0);
        // Some expire, some are flushed, and some are replaced by the packets of the next round.
        match round {
            0 => assert_eq!(nat.expire(now + 399, 10_000), 350),
            1 => assert_eq!(nat.flush(|_| true, 0, 10_000), (350, None)),
            _ => assert_eq!(nat.expire(now + 399, 500), 350 - nat.len()),
        }
        known.apply(&mut nat);
        assert_eq!(known.mappings.len(), nat.len());
    }
    nat.flush(|_| true, 0, 10_000);
    nat.expire(4000, 10_000);
    known.apply(&mut nat);
    assert!(known.mappings.is_empty() && known.blocks.is_empty());
    assert_eq!(nat.events_lost(), 0);
}

#[test]
fn static_forwards_have_no_events_and_end_those_of_mappings_in_their_place() {
    let mut nat = Nat::new(&settings()).unwrap();
    nat.allow_events(ALL);
    let mut known = Known::default();
    let external = external(&mut nat, "10.0.0.1:53", REMOTE, Content::Udp(1));
    assert_eq!(known.apply(&mut nat), 2);
    let forward = Forward {
        protocol: NatProtocol::Udp,
        external,
        internal: socket("10.0.0.9:53"),
    };
    assert_eq!(nat.set_forwards(&[forward]), 0);
    assert_eq!(known.apply(&mut nat), 2);
    assert!(known.mappings.is_empty());
    assert_eq!(nat.set_forwards(&[]), 0);
    assert_eq!(known.apply(&mut nat), 0);
}

#[test]
fn without_a_request_there_are_events_of_blocks_only() {
    let mut settings = settings();
    settings.mappings_max = 1;
    let mut nat = Nat::new(&settings).unwrap();
    send(&mut nat, 1, 1, 0).unwrap();
    assert_eq!(send(&mut nat, 1, 2, 0), Err(NatDrop::TableFull));
    nat.flush(|_| true, 0, 10_000);
    let events: Vec<NatEvent> = nat.take_events().collect();
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|one| matches!(one, NatEvent::Block(_))));
}

/// Returns the limits in the events, with their maximum.
fn limits(nat: &mut Nat) -> Vec<(NatLimit, Option<u32>)> {
    let limit = |event| match event {
        NatEvent::Limit(one) => Some((one.limit, one.maximum)),
        NatEvent::Block(_) | NatEvent::Mapping(_) => None,
    };
    nat.take_events().filter_map(limit).collect()
}

#[test]
fn each_limit_has_an_event_once_a_second() {
    let mut settings = settings();
    settings.pool = PortPool {
        addresses: vec!["198.51.100.1".parse().unwrap()],
        first_port: 1024,
        last_port: 1024 + 4 * 8 - 1,
        block_size: 8,
        blocks_per_host: 3,
        ..settings.pool
    };
    settings.mappings_max = 32;
    settings.hosts_max = 3;
    let mut nat = Nat::new(&settings).unwrap();
    nat.allow_events(ALL);
    for port in 0..24 {
        send(&mut nat, 1, port, 0).unwrap();
    }
    assert!(limits(&mut nat).is_empty());
    for _ in 0..3 {
        assert_eq!(send(&mut nat, 1, 24, 0), Err(NatDrop::HostLimit));
    }
    let events: Vec<NatEvent> = nat.take_events().collect();
    let expected = LimitEvent {
        limit: NatLimit::HostBlocks,
        protocol: None,
        host: Some(Ipv4Addr::new(10, 0, 0, 1)),
        external: None,
        maximum: Some(24),
    };
    assert_eq!(events, [NatEvent::Limit(expected)]);
    assert_eq!(send(&mut nat, 1, 24, 1), Err(NatDrop::HostLimit));
    assert_eq!(limits(&mut nat), [(NatLimit::HostBlocks, Some(24))]);
    // The last block. The host has an external address, and its other packets need a further block.
    for port in 0..8 {
        send(&mut nat, 2, port, 1).unwrap();
    }
    nat.flush(|one| one.internal.port() == 0, 0, 10_000);
    assert_eq!(send(&mut nat, 3, 1, 1), Err(NatDrop::NoPorts));
    send(&mut nat, 2, 9, 1).unwrap();
    assert_eq!(send(&mut nat, 2, 10, 1), Err(NatDrop::NoPorts));
    let events: Vec<NatEvent> = nat.take_events().collect();
    let exhausted = LimitEvent {
        limit: NatLimit::Ports,
        protocol: Some(NatProtocol::Udp),
        host: None,
        external: Some(Ipv4Addr::new(198, 51, 100, 1)),
        maximum: None,
    };
    assert!(events.contains(&NatEvent::Limit(exhausted)), "{events:?}");
    let is_of_pool = |event: &&NatEvent| matches!(event, NatEvent::Limit(one) if one.limit == NatLimit::Addresses);
    assert_eq!(events.iter().filter(is_of_pool).count(), 1);
    // A table of mappings, and one of hosts.
    send(&mut nat, 1, 0, 1).unwrap();
    assert_eq!(send(&mut nat, 3, 1, 1), Err(NatDrop::TableFull));
    assert_eq!(limits(&mut nat), [(NatLimit::Mappings, Some(32))]);
    let mut nat = Nat::new(&NatSettings {
        hosts_max: 1,
        ..super::settings()
    })
    .unwrap();
    nat.allow_events(ALL);
    send(&mut nat, 1, 1, 0).unwrap();
    assert_eq!(send(&mut nat, 2, 1, 0), Err(NatDrop::TableFull));
    assert_eq!(limits(&mut nat), [(NatLimit::Hosts, Some(1))]);
}

/// A forwarding thread takes events behind each packet.
#[test]
fn events_without_space_are_counted_and_those_of_blocks_stay() {
    let mut settings = settings();
    settings.pool.block_size = 16_384;
    settings.mappings_max = 5000;
    let mut nat = Nat::new(&settings).unwrap();
    nat.allow_events(ALL);
    for port in 1..=5000 {
        send(&mut nat, 1, port, 0).unwrap();
    }
    assert_eq!(nat.events_lost(), 5000 - 4096);
    nat.flush(|_| true, 0, 10_000);
    assert_eq!(nat.counters().events_lost, 10_000 - 4096);
    let events: Vec<NatEvent> = nat.take_events().collect();
    let is_block = |one: &&NatEvent| matches!(one, NatEvent::Block(_));
    assert_eq!(events.iter().filter(is_block).count(), 2);
    assert_eq!(events.len(), 4096 + 2);
    // There is space again.
    send(&mut nat, 1, 1, 0).unwrap();
    assert_eq!(nat.take_events().count(), 2);
}
