// SPDX-License-Identifier: Apache-2.0
//! Mappings of an active switch on its standby: the same ones after every change, whatever the numbers of hosts.

use proptest::prelude::*;

use super::*;
use crate::changes::{Applied, ApplyError};
use crate::nat::{MappingChange, NatProtocol, ReplicateIpv6, SavedMappingIpv6};

/// One address with four blocks of eight ports.
fn small() -> Switch {
    let mut nat = nat_settings();
    nat.pool.last_port = 1024 + 31;
    nat.pool.block_size = 8;
    nat.mappings_max = 40;
    let mut switch = Switch::with(&nat, &settings());
    let internal = SocketAddrV6::new(from_number(1), 80, 0, 0);
    let forward = Forward {
        protocol: NatProtocol::Tcp,
        external: SocketAddrV6::new(external(), 1030, 0, 0),
        internal,
    };
    assert_eq!(switch.set_forwards(&[forward]), 0);
    switch
}

fn active() -> Switch {
    let mut switch = small();
    switch.nat.allow_changes();
    switch.nat66.allow_changes();
    let (nat, mut none) = (&mut switch.nat, Vec::new());
    assert!(!switch.nat66.take_changes(nat, (1, 1), &mut none));
    assert_eq!((none.len(), switch.nat66.take_lost_changes(nat)), (0, 1));
    switch
}

fn from_number(host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, host)
}

type Change = MappingChange<SavedMappingIpv6>;

fn apply(switch: &mut Switch, change: &Change, now: u32) -> Result<Applied, ApplyError> {
    let applied = switch.nat66.apply(&mut switch.nat, change, now);
    switch.pass_events();
    applied
}

fn follow(active: &mut Switch, standby: &mut Switch, now: u32) {
    loop {
        let mut list = Vec::new();
        let has_more = active
            .nat66
            .take_changes(&mut active.nat, (2, 3), &mut list);
        assert!(list.len() <= 2);
        for change in &list {
            apply(standby, change, now).unwrap();
        }
        if !has_more {
            return;
        }
    }
}

fn share(active: &Switch, standby: &mut Switch, now: u32) {
    let mut from = Some(0);
    while let Some(start) = from {
        let mut list = Vec::new();
        let nat66 = &active.nat66;
        from = nat66.share_into(&active.nat, start, (2, 3), &mut list);
        assert!(list.len() <= 2);
        for change in &list {
            apply(standby, change, now).unwrap();
        }
    }
}

/// Returns protocol, inside and external endpoint of all mappings.
fn known(switch: &Switch) -> Vec<(NatProtocol, SocketAddrV6, SocketAddrV6)> {
    let (list, next) = switch.nat.list(0, usize::MAX);
    assert_eq!(next, None);
    let end = |address: Option<Ipv6Addr>, port| SocketAddrV6::new(address.unwrap(), port, 0, 0);
    let each = list.iter().map(|one| {
        let internal = switch.nat66.host(*one.internal.ip());
        let external = switch.nat66.external(*one.external.ip());
        (
            one.protocol,
            end(internal, one.internal.port()),
            end(external, one.external.port()),
        )
    });
    let mut all: Vec<_> = each.collect();
    all.sort();
    all
}

fn flow() -> impl Strategy<Value = (u16, u16, u8, u32)> {
    let seconds = prop_oneof![8 => Just(0u32), 2 => 1..90u32, 1 => Just(400u32)];
    (1..8u16, 1..20u16, 0..3u8, seconds)
}

/// Sends a packet of an inside host. Returns its external endpoint, if it is translated.
fn send(switch: &mut Switch, flow: (u16, u16, u8), now: u32) -> Option<(Ipv6Addr, u16)> {
    let (host, port, protocol) = flow;
    let content = match protocol {
        0 => tcp((port, 80), 0x10),
        1 => udp((port, 80)),
        _ => echo(port, false),
    };
    let packet = v6(Header::plain(from_number(host), remote()), &content);
    let sent = switch.send(&packet, now).ok()?;
    Some(ends_v6(&sent).0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_standby_has_the_mappings_of_the_active_switch_after_every_change(
        flows in prop::collection::vec(flow(), 1..150),
    ) {
        let (mut first, mut second) = (active(), small());
        let mut now = 0;
        for (host, port, protocol, seconds) in flows {
            now += seconds;
            first.expire(now);
            let external = send(&mut first, (host, port, protocol), now);
            follow(&mut first, &mut second, now);
            second.expire(now);
            // Packets of known mappings extend timeouts.
            share(&first, &mut second, now);
            prop_assert_eq!(known(&first), known(&second));
            prop_assert_eq!(first.nat66.hosts(), second.nat66.hosts());
            if external.is_some() {
                // A packet that arrives at the standby has the same external endpoint.
                prop_assert_eq!(send(&mut second, (host, port, protocol), now), external);
            }
        }
        prop_assert_eq!(first.nat66.take_lost_changes(&mut first.nat), 0);
    }
}

fn mapping(internal: &str, external: &str) -> SavedMappingIpv6 {
    SavedMappingIpv6 {
        protocol: NatProtocol::Udp,
        is_answered: false,
        internal: internal.parse().unwrap(),
        external: external.parse().unwrap(),
    }
}

#[test]
fn a_mapping_takes_the_place_of_earlier_ones_and_impossible_ones_are_refused() {
    let mut switch = small();
    let mut present = |internal: &str, external: &str| {
        let change = MappingChange::Present(mapping(internal, external));
        apply(&mut switch, &change, 0)
    };
    let (first, second) = ("[2001:db8::1]:1040", "[2001:db8::1]:1042");
    assert_eq!(present("[fd00:1::2]:5", first), Ok(Applied::Added));
    assert_eq!(present("[fd00:1::2]:5", first), Ok(Applied::Updated));
    // The active switch has given the block to another host since.
    assert_eq!(present("[fd00:1::3]:5", second), Ok(Applied::Added));
    // An address that the pool does not have, a port of no block, a block with a static forward, addresses of no host.
    for (internal, external) in [
        ("[fd00:1::3]:9", "[2001:db8::9]:1040"),
        ("[fd00:1::3]:9", "[2001:db8::1]:1"),
        ("[fd00:1::3]:9", "[2001:db8::1]:1025"),
        ("[ff02::1]:9", first),
        ("[::]:9", first),
    ] {
        assert_eq!(present(internal, external), Err(ApplyError::Invalid));
    }
    let mut ended = |internal: &str, external: &str| {
        let change = MappingChange::Ended(mapping(internal, external));
        apply(&mut switch, &change, 0)
    };
    assert_eq!(ended("[fd00:1::2]:5", first), Ok(Applied::Absent));
    assert_eq!(ended("[fd00:1::3]:5", first), Ok(Applied::Absent));
    assert_eq!(ended("[fd00:1::3]:5", second), Ok(Applied::Removed));
    let left = known(&switch);
    assert_eq!((left.len(), left[0].1.port()), (1, 80));
}

#[test]
fn a_change_has_the_address_of_a_host_whose_number_another_one_has_since() {
    let mut switch = active();
    let (nat, mut list) = (&mut switch.nat, Vec::new());
    assert!(!switch.nat66.take_changes(nat, (9, 9), &mut list));
    for host in 2..5 {
        let now = u32::from(host) * 1000;
        switch.expire(now);
        assert!(send(&mut switch, (host, 7, 1), now).is_some());
    }
    let has_more = switch
        .nat66
        .take_changes(&mut switch.nat, (99, 99), &mut list);
    let changes: Vec<(bool, Ipv6Addr)> = list
        .iter()
        .map(|one| {
            let is_present = matches!(one, MappingChange::Present(_));
            (is_present, *one.saved().internal.ip())
        })
        .collect();
    let expected = [(true, 2), (false, 2), (true, 3), (false, 3), (true, 4)];
    let expected = expected.map(|(is_present, host)| (is_present, from_number(host)));
    assert_eq!((&changes[..], has_more), (&expected[..], false));
    // Without further changes, none is noted.
    switch.nat66.end_changes(&mut switch.nat);
    assert!(send(&mut switch, (4, 8, 1), 4000).is_some());
    list.clear();
    let nat = &mut switch.nat;
    assert!(!switch.nat66.take_changes(nat, (99, 99), &mut list));
    assert_eq!((list.len(), switch.nat66.take_lost_changes(nat)), (0, 1));
}
