// SPDX-License-Identifier: Apache-2.0
//! Pools that get further external addresses while they are in use.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::share::Share;

const REMOTE: &str = "192.0.2.1:53";

/// Returns settings of one external address with two blocks of eight ports, one for each host.
fn small() -> NatSettings {
    let mut settings = settings();
    settings.pool = PortPool {
        addresses: vec!["198.51.100.9".parse().unwrap()],
        first_port: 1024,
        last_port: 1024 + 15,
        block_size: 8,
        blocks_per_host: 1,
        deterministic: Vec::new(),
        hold_down: HoldDown::default(),
    };
    settings
}

fn with(settings: &NatSettings, addresses: &[&str]) -> NatSettings {
    let mut more = settings.clone();
    let parsed = addresses.iter().map(|one| one.parse::<Ipv4Addr>().unwrap());
    more.pool.addresses.extend(parsed);
    more
}

/// Returns the addresses behind those of the former settings.
fn growth(more: &NatSettings, former: &NatSettings) -> PoolGrowth {
    assert!(more.extends(former));
    PoolGrowth::new(&more.pool, former.pool.addresses.len(), Share::WHOLE).unwrap()
}

fn sent(nat: &mut Nat, host: u8) -> Result<SocketAddrV4, NatDrop> {
    let source = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), 5000);
    let octets = packet(source, socket(REMOTE), Content::Udp(1));
    outbound(nat, &octets, 0).map(|octets| ends(&octets).0)
}

fn answered(nat: &mut Nat, external: SocketAddrV4) -> Result<SocketAddrV4, NatDrop> {
    let octets = packet(socket(REMOTE), external, Content::Udp(1));
    inbound(nat, &octets, 0).map(|octets| ends(&octets).1)
}

#[test]
fn a_full_pool_grows_and_established_mappings_stay() {
    let first = small();
    let mut nat = Nat::new(&first).unwrap();
    let kept = [sent(&mut nat, 1).unwrap(), sent(&mut nat, 2).unwrap()];
    assert_eq!(sent(&mut nat, 3), Err(NatDrop::NoPorts));
    // A lower address and a higher one than that of the pool.
    let second = with(&first, &["198.51.100.1", "203.0.113.1"]);
    let before = nat.octets();
    assert!(nat.grow(&mut growth(&second, &first)));
    assert!(nat.octets() > before + 2 * 768 * 1024);
    let added: Vec<SocketAddrV4> = (3..=6).map(|host| sent(&mut nat, host).unwrap()).collect();
    let is_new = |one: &SocketAddrV4| second.pool.addresses[1..].contains(one.ip());
    assert!(added.iter().all(is_new), "{added:?}");
    assert_eq!(sent(&mut nat, 7), Err(NatDrop::NoPorts));
    // And again, after the lists of the first growth are in use.
    let third = with(&second, &["198.51.100.5"]);
    assert!(nat.grow(&mut growth(&third, &second)));
    let last = sent(&mut nat, 7).unwrap();
    assert_eq!(*last.ip(), third.pool.addresses[3]);
    let all = kept.into_iter().chain(added).chain([last]);
    for (external, host) in all.zip(1u8..) {
        let inside = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), 5000);
        assert_eq!(answered(&mut nat, external), Ok(inside));
        assert_eq!(sent(&mut nat, host), Ok(external));
    }
    assert_eq!((nat.len(), nat.hosts()), (7, 7));
    // All ports return, each to its address.
    assert_eq!(nat.expire(301, 10_000), 7);
    assert_eq!((nat.len(), nat.hosts()), (0, 0));
}

#[test]
fn a_growth_of_another_pool_changes_nothing() {
    let first = small();
    let second = with(&first, &["198.51.100.1"]);
    let mut nat = Nat::new(&second).unwrap();
    // Made for the pool before it grew, and once more with an address that the pool has.
    assert!(!nat.grow(&mut growth(&second, &first)));
    let twice = with(&second, &["198.51.100.1"]);
    assert!(!nat.grow(&mut growth(&twice, &second)));
    let none = PoolGrowth::new(&second.pool, 2, Share::WHOLE);
    assert!(!nat.grow(&mut none.unwrap()));
    let full: Vec<String> = (0..EXTERNALS_MAX - 1)
        .map(|one| format!("203.0.{}.{}", one / 200, one % 200 + 1))
        .collect();
    let full: Vec<&str> = full.iter().map(String::as_str).collect();
    assert!(with(&second, &full).check().is_err());
    assert!(!nat.is_external(u32::from_be_bytes([203, 0, 113, 1])));
}

#[test]
fn only_further_addresses_behind_the_others_extend_settings() {
    let first = small();
    assert!(with(&first, &["198.51.100.1"]).extends(&first));
    assert!(!first.extends(&first));
    assert!(!first.extends(&with(&first, &["198.51.100.1"])));
    let mut other = with(&first, &["198.51.100.1"]);
    other.pool.addresses.swap(0, 1);
    assert!(!other.extends(&first));
    let changes: [fn(&mut NatSettings); 11] = [
        |one| one.pool.first_port += 1,
        |one| one.pool.last_port += 1,
        |one| one.pool.block_size += 1,
        |one| one.pool.blocks_per_host += 1,
        |one| one.pool.deterministic.push("10.0.0.0/31".parse().unwrap()),
        |one| one.pool.hold_down.seconds += 1,
        |one| one.mappings_max += 1,
        |one| one.hosts_max += 1,
        |one| one.timeouts.udp_s += 1,
        |one| one.mapping = MappingBehaviour::AddressDependent,
        |one| {
            one.pairs.push(Pair {
                internal: "10.0.0.200".parse().unwrap(),
                external: "203.0.113.200".parse().unwrap(),
            });
        },
    ];
    for change in changes {
        let mut other = with(&first, &["198.51.100.1"]);
        change(&mut other);
        assert!(!other.extends(&first), "{other:?}");
    }
}

#[test]
fn forwards_of_a_new_address_are_in_force_once_the_pool_has_it() {
    let first = small();
    let second = with(&first, &["198.51.100.1"]);
    let mut nat = Nat::new(&first).unwrap();
    let forward = Forward {
        protocol: NatProtocol::Udp,
        external: socket("198.51.100.1:1030"),
        internal: socket("10.0.0.200:53"),
    };
    assert_eq!(nat.set_forwards(&[forward]), 1);
    assert!(nat.grow(&mut growth(&second, &first)));
    assert_eq!(nat.set_forwards(&[forward]), 0);
    assert_eq!(answered(&mut nat, forward.external), Ok(forward.internal));
    // Its block is not for hosts: there are three for four hosts.
    let sent: Vec<_> = (1..=4).map(|host| sent(&mut nat, host)).collect();
    let refused = sent.iter().filter(|one| one.is_err());
    assert_eq!(refused.count(), 1, "{sent:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// A pool that grows by some addresses at a time has no two hosts with one external endpoint, and as many ports as one that had all
    /// addresses from the beginning.
    #[test]
    fn a_grown_pool_is_as_large_as_one_that_had_all_addresses(
        steps in prop::collection::vec(1usize..3, 1..4),
        hosts in prop::collection::vec(1u8..30, 1..40),
    ) {
        let (mut known, mut next) = (small(), 0u8);
        let mut nat = Nat::new(&known).unwrap();
        let mut hosts = hosts.into_iter();
        let mut found = BTreeMap::new();
        for step in steps {
            for host in hosts.by_ref().take(3) {
                if let Ok(external) = sent(&mut nat, host) {
                    let former = found.insert(host, external);
                    prop_assert!(former.is_none_or(|one| one == external));
                }
            }
            let added: Vec<String> = (0..step)
                .map(|at| format!("203.0.113.{}", 200 - next - at as u8))
                .collect();
            next += step as u8;
            let added: Vec<&str> = added.iter().map(String::as_str).collect();
            let more = with(&known, &added);
            prop_assert!(nat.grow(&mut growth(&more, &known)));
            known = more;
        }
        for host in 1..=60 {
            if let Ok(external) = sent(&mut nat, host) {
                let former = found.insert(host, external);
                prop_assert!(former.is_none_or(|one| one == external));
            }
        }
        prop_assert_eq!(found.len(), 2 * known.pool.addresses.len());
        let externals: BTreeSet<_> = found.values().copied().collect();
        prop_assert_eq!(externals.len(), found.len());
        for (host, external) in found {
            let inside = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), 5000);
            prop_assert_eq!(answered(&mut nat, external), Ok(inside));
        }
    }
}
