// SPDX-License-Identifier: Apache-2.0
//! Blocks that are computed from inside addresses (RFC 7422).

use std::collections::BTreeSet;

use ipnet::Ipv4Net;
use proptest::prelude::*;

use super::*;
use crate::changes::{Applied, ApplyError, Replicate};
use crate::share::Share;

const REMOTE: &str = "192.0.2.1:53";
/// The hosts of [`small`], in the order of their blocks.
const HOSTS: [&str; 6] = [
    "10.0.1.0", "10.0.1.1", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7",
];

/// Returns settings of two external addresses with four blocks of eight ports each, for six hosts.
fn small() -> NatSettings {
    let mut settings = settings();
    settings.pool.last_port = 1024 + 4 * 8 - 1;
    settings.pool.block_size = 8;
    settings.pool.blocks_per_host = 1;
    settings.pool.deterministic = ["10.0.1.0/31", "10.0.0.4/30"]
        .map(|net| net.parse().unwrap())
        .to_vec();
    settings
}

fn sent(nat: &mut Nat, host: &str, port: u16) -> Result<SocketAddrV4, NatDrop> {
    let source = SocketAddrV4::new(host.parse().unwrap(), port);
    let octets = packet(source, socket(REMOTE), Content::Udp(1));
    outbound(nat, &octets, 0).map(|octets| ends(&octets).0)
}

#[test]
fn hosts_use_their_own_blocks_without_events() {
    let settings = small();
    let mut nat = Nat::new(&settings).unwrap();
    // In two rounds, the second one in another order.
    for hosts in [HOSTS, [5, 3, 1, 0, 2, 4].map(|at| HOSTS[at])] {
        for host in hosts {
            let (address, first, last) =
                settings.pool.ports_of_host(host.parse().unwrap()).unwrap();
            let mut ports = BTreeSet::new();
            for port in 5000..5008 {
                let external = sent(&mut nat, host, port).unwrap();
                assert_eq!(*external.ip(), address);
                ports.insert(external.port());
                let answer = packet(socket(REMOTE), external, Content::Udp(1));
                let received = inbound(&mut nat, &answer, 0).unwrap();
                assert_eq!(ends(&received).1.to_string(), format!("{host}:{port}"));
            }
            assert!(ports.into_iter().eq(first..=last), "{host}");
            assert_eq!(sent(&mut nat, host, 5008), Err(NatDrop::HostLimit));
        }
        assert_eq!(sent(&mut nat, "10.0.0.3", 5000), Err(NatDrop::NoPorts));
        assert_eq!((nat.len(), nat.hosts()), (48, 6));
        nat.flush(|_| true, 0, usize::MAX);
        assert_eq!((nat.len(), nat.hosts()), (0, 0));
    }
    assert_eq!(nat.take_events().count(), 0);
}

#[test]
fn further_addresses_change_no_block() {
    let more = small();
    let mut first = small();
    first.pool.addresses.truncate(1);
    first.pool.deterministic.truncate(1);
    let mut grown = first.clone();
    grown.pool.addresses.clone_from(&more.pool.addresses);
    assert!(grown.extends(&first) && !more.extends(&first));
    let mut nat = Nat::new(&first).unwrap();
    let kept = sent(&mut nat, HOSTS[1], 5000).unwrap();
    let mut growth = PoolGrowth::new(&grown.pool, 1, Share::WHOLE).unwrap();
    assert!(nat.grow(&mut growth));
    assert_eq!(sent(&mut nat, HOSTS[1], 5000), Ok(kept));
    for host in HOSTS {
        let host: Ipv4Addr = host.parse().unwrap();
        let before = first.pool.ports_of_host(host);
        assert_eq!(grown.pool.ports_of_host(host), before);
    }
}

/// A standby, and a switch that restores saved mappings, give a host no port of another one.
#[test]
fn mappings_of_other_blocks_are_refused() {
    let mut nat = Nat::new(&small()).unwrap();
    let kept = sent(&mut nat, HOSTS[0], 5000).unwrap();
    let change = |host: &str, external: &str| {
        MappingChange::Present(SavedMapping {
            protocol: NatProtocol::Udp,
            is_answered: false,
            internal: SocketAddrV4::new(host.parse().unwrap(), 6000),
            external: socket(external),
            remote: socket("0.0.0.0:0"),
        })
    };
    // The block of the second host, one of no host, and a host without a block.
    for (host, external) in [
        (HOSTS[0], "198.51.100.1:1032"),
        (HOSTS[0], "198.51.100.2:1055"),
        ("10.0.0.3", "198.51.100.2:1055"),
    ] {
        let applied = nat.apply(&change(host, external), 0);
        assert_eq!(applied, Err(ApplyError::Invalid), "{host} {external}");
    }
    let own = change(HOSTS[1], "198.51.100.1:1032");
    assert_eq!(nat.apply(&own, 0), Ok(Applied::Added));
    assert_eq!(sent(&mut nat, HOSTS[1], 6000).unwrap().port(), 1032);
    assert_eq!(sent(&mut nat, HOSTS[0], 5000), Ok(kept));
}

#[test]
fn settings_that_give_a_port_to_two_hosts_are_refused() {
    let refused = |change: &dyn Fn(&mut NatSettings)| {
        let mut settings = small();
        change(&mut settings);
        settings.check().unwrap_err()
    };
    assert_eq!(
        refused(&|one| one.pool.blocks_per_host = 2),
        NatSettingsError::DeterministicBlocks(2)
    );
    let inner: Ipv4Net = "10.0.0.6/32".parse().unwrap();
    let outer: Ipv4Net = "10.0.0.4/30".parse().unwrap();
    assert_eq!(
        refused(&|one| one.pool.deterministic.push(inner)),
        NatSettingsError::DeterministicOverlap(outer, inner)
    );
    let forward = |port: u16| Forward {
        protocol: NatProtocol::Tcp,
        external: SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 1), port),
        internal: socket("10.0.0.5:80"),
    };
    assert_eq!(
        refused(&|one| one.forwards.push(forward(1055))),
        NatSettingsError::DeterministicForward(forward(1055).external)
    );
    let mut outside = small();
    outside.forwards.push(forward(1056));
    outside.check().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Hosts and blocks are those of two lists: all inside addresses, and all blocks.
    #[test]
    fn each_inside_address_has_a_block_of_its_own(
        lengths in prop::collection::vec(26u8..=32, 1..4),
        first_port in 1u16..3000,
        (block_size, per_address, rest) in (1u16..50, 1u16..40, 0u16..50),
        spare in 0usize..3,
    ) {
        let net = |(length, at): (&u8, u8)| {
            Ipv4Net::new(Ipv4Addr::new(10, 0, 200 - 7 * at, 0), *length).unwrap()
        };
        let deterministic: Vec<Ipv4Net> = lengths.iter().zip(0u8..).map(net).collect();
        let hosts: Vec<Ipv4Addr> = deterministic
            .iter()
            .flat_map(|net| net.network().to_bits()..=net.broadcast().to_bits())
            .map(Ipv4Addr::from_bits)
            .collect();
        let required = hosts.len().div_ceil(usize::from(per_address));
        let addresses: Vec<Ipv4Addr> = (0..required + spare)
            .map(|at| Ipv4Addr::new(198, 51, 100, 250 - at as u8))
            .collect();
        let last_port = first_port + block_size * per_address - 1 + rest % block_size;
        let mut blocks = Vec::new();
        for address in &addresses {
            let mut first = first_port;
            while first + (block_size - 1) <= last_port {
                blocks.push((*address, first, first + (block_size - 1)));
                first += block_size;
            }
        }
        let mut pool = PortPool {
            addresses,
            first_port,
            last_port,
            block_size,
            blocks_per_host: 1,
            deterministic,
            hold_down: HoldDown::default(),
        };
        prop_assert_eq!(pool.check(), Ok(()));
        for (number, block) in blocks.iter().enumerate() {
            let (address, first, last) = *block;
            let host = hosts.get(number).copied();
            for port in [first, last] {
                prop_assert_eq!(pool.host_of_port(address, port), host);
            }
            if let Some(host) = host {
                prop_assert_eq!(pool.ports_of_host(host), Some(*block));
            }
        }
        let found: BTreeSet<_> = hosts.iter().map(|host| pool.ports_of_host(*host)).collect();
        prop_assert_eq!(found.len(), hosts.len());
        let used = blocks.last().unwrap().2;
        for port in [first_port - 1, used + 1] {
            prop_assert_eq!(pool.host_of_port(pool.addresses[0], port), None);
        }
        prop_assert_eq!(pool.ports_of_host(Ipv4Addr::new(10, 9, 0, 0)), None);
        // One external address fewer than required.
        pool.addresses.truncate(required - 1);
        if required > 1 {
            let refused = NatSettingsError::DeterministicHosts {
                hosts: hosts.len() as u64,
                addresses: required - 1,
                blocks: (required as u64 - 1) * u64::from(per_address),
                required: required as u64,
            };
            prop_assert_eq!(pool.check(), Err(refused));
        }
    }
}
