// SPDX-License-Identifier: Apache-2.0
//! Hold-down of returned blocks (RFC 6888, REQ-8).

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::changes::{Applied, Replicate};

const REMOTE: &str = "192.0.2.1:53";
const HOLD_DOWN_S: u32 = 120;
/// Second in which the mappings of second 0 have expired.
const EXPIRED: u32 = 301;

/// Returns settings of one external address with four blocks of eight ports, of which so many are held.
fn held(blocks_max: u16) -> NatSettings {
    let mut settings = settings();
    settings.pool.addresses.truncate(1);
    settings.pool.last_port = 1024 + 4 * 8 - 1;
    settings.pool.block_size = 8;
    settings.pool.hold_down = HoldDown {
        seconds: HOLD_DOWN_S,
        blocks_max,
    };
    settings
}

fn sent(nat: &mut Nat, host: u8, now: u32) -> Result<SocketAddrV4, NatDrop> {
    let source = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), 5000);
    let octets = packet(source, socket(REMOTE), Content::Udp(1));
    outbound(nat, &octets, now).map(|octets| ends(&octets).0)
}

/// Returns the first port of the block of an external endpoint.
fn block(external: SocketAddrV4) -> u16 {
    external.port() / 8 * 8
}

/// Returns a NAT whose four blocks have been returned by the hosts 1 to 4, and the blocks of these.
fn returned(blocks_max: u16) -> (Nat, Vec<u16>) {
    let mut nat = Nat::new(&held(blocks_max)).unwrap();
    let blocks = (1..=4).map(|host| block(sent(&mut nat, host, 0).unwrap()));
    let blocks = blocks.collect();
    assert_eq!(nat.expire(EXPIRED, usize::MAX), 4);
    (nat, blocks)
}

#[test]
fn a_returned_block_is_only_for_its_host_until_its_hold_down_ends() {
    let (mut nat, blocks) = returned(4);
    assert_eq!(sent(&mut nat, 5, EXPIRED), Err(NatDrop::NoPorts));
    let again = sent(&mut nat, 2, EXPIRED).unwrap();
    assert_eq!(block(again), blocks[1]);
    let end = EXPIRED + HOLD_DOWN_S;
    assert_eq!(sent(&mut nat, 5, end - 1), Err(NatDrop::NoPorts));
    for host in 5..=7 {
        let other = sent(&mut nat, host, end).unwrap();
        assert_ne!(block(other), blocks[1]);
    }
    assert_eq!(sent(&mut nat, 8, end), Err(NatDrop::NoPorts));
    // The established mapping has stayed.
    assert_eq!(sent(&mut nat, 2, end), Ok(again));
}

#[test]
fn more_blocks_than_the_maximum_end_the_oldest_hold_down() {
    for (blocks_max, free) in [(0, 4), (1, 3), (3, 1)] {
        let (mut nat, _) = returned(blocks_max);
        let results = (5..=8).map(|host| sent(&mut nat, host, EXPIRED));
        let found = results.filter(Result::is_ok).count();
        assert_eq!(found, free, "{blocks_max}");
    }
}

#[test]
fn a_forward_ends_the_hold_down_of_its_block() {
    let (mut nat, _) = returned(4);
    let forward = Forward {
        protocol: NatProtocol::Udp,
        external: socket("198.51.100.1:1030"),
        internal: socket("10.0.0.9:53"),
    };
    assert_eq!(nat.set_forwards(&[forward]), 0);
    assert_eq!(sent(&mut nat, 5, EXPIRED), Err(NatDrop::NoPorts));
    assert_eq!(nat.set_forwards(&[]), 0);
    let external = sent(&mut nat, 5, EXPIRED).unwrap();
    assert_eq!(block(external), 1024);
    assert_eq!(sent(&mut nat, 6, EXPIRED), Err(NatDrop::NoPorts));
}

/// A standby gives hosts the blocks that the active switch has given them.
#[test]
fn a_standby_gives_held_blocks_to_the_hosts_of_the_active_switch() {
    let (mut nat, _) = returned(4);
    let change = MappingChange::Present(SavedMapping {
        protocol: NatProtocol::Udp,
        is_answered: false,
        internal: socket("10.0.0.9:5000"),
        external: socket("198.51.100.1:1041"),
        remote: socket("0.0.0.0:0"),
    });
    assert_eq!(nat.apply(&change, EXPIRED), Ok(Applied::Added));
    assert_eq!(sent(&mut nat, 9, EXPIRED), Ok(socket("198.51.100.1:1041")));
    // The other three are still held.
    let end = EXPIRED + HOLD_DOWN_S;
    let found = (5..=8).filter(|host| sent(&mut nat, *host, end).is_ok());
    assert_eq!(found.count(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A block of another host has been returned a hold-down ago, and if no host gets a block, all of them are in use or held.
    #[test]
    fn blocks_change_hosts_after_a_hold_down(
        addresses in 1usize..3,
        steps in prop::collection::vec((1u8..12, 0u32..200), 1..150),
    ) {
        let mut settings = NatSettings {
            pool: PortPool { addresses: settings().pool.addresses, ..held(u16::MAX).pool },
            ..settings()
        };
        settings.pool.addresses.truncate(addresses);
        let mut nat = Nat::new(&settings).unwrap();
        let mut assigned = BTreeSet::new();
        let mut former: BTreeMap<(Ipv4Addr, u16), (Ipv4Addr, u32)> = BTreeMap::new();
        let mut now = 0;
        for (host, seconds) in steps {
            now += seconds;
            nat.expire(now, usize::MAX);
            let result = sent(&mut nat, host, now);
            for event in blocks(&mut nat) {
                let block = (event.external, event.first_port);
                if event.is_assigned {
                    prop_assert!(assigned.insert(block));
                    if let Some((owner, at)) = former.remove(&block) {
                        prop_assert!(owner == event.host || now >= at + HOLD_DOWN_S, "{:?}", event);
                    }
                } else {
                    prop_assert!(assigned.remove(&block));
                    former.insert(block, (event.host, now));
                }
            }
            if let Err(reason) = result {
                prop_assert_eq!(reason, NatDrop::NoPorts);
                let held = former.values().filter(|(_, at)| now < at + HOLD_DOWN_S);
                prop_assert_eq!(assigned.len() + held.count(), 4 * addresses);
            }
        }
    }
}
