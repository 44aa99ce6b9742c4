// SPDX-License-Identifier: Apache-2.0
//! Mappings of an active switch on its standby: the same ones of clients and of IPv4 hosts after every change, whatever the numbers of
//! clients.

use std::net::{IpAddr, SocketAddrV4};

use proptest::prelude::*;

use super::*;
use crate::changes::{Applied, ApplyError};
use crate::nat::{MappingChange, NatProtocol, ReplicateIpv6, SavedMappingIpv6, is_client_number};

/// One address with four blocks of eight ports.
fn small() -> Switch {
    let mut nat = nat_settings();
    nat.pool.last_port = 1024 + 31;
    nat.pool.block_size = 8;
    nat.mappings_max = 40;
    let nat64 = Nat64Settings {
        clients: vec!["2001:db8:1::/48".parse().unwrap()],
        ..settings()
    };
    Switch::with(&nat, &nat64)
}

fn active() -> Switch {
    let mut switch = small();
    switch.nat.allow_changes();
    switch.nat64.allow_changes();
    let (nat, mut none) = (&mut switch.nat, Vec::new());
    assert!(!switch.nat64.take_changes(nat, (1, 1), &mut none));
    assert_eq!((none.len(), switch.nat64.take_lost_changes(nat)), (0, 1));
    switch
}

/// Returns the address of a client, or of an IPv4 host for an even number.
fn from_number(host: u8) -> IpAddr {
    match host % 2 {
        0 => IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)),
        _ => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, u16::from(host))),
    }
}

/// Passes events of clients and of IPv4 hosts on.
fn pass_all(switch: &mut Switch) {
    while let Some(event) = switch.nat.take_event() {
        let client = switch.nat64.note(&mut switch.nat, &event);
        let host = event.host().expect("an event of a host");
        assert_eq!(client.is_some(), is_client_number(host.to_bits()));
    }
}

fn expire(switch: &mut Switch, now: u32) {
    switch.nat.expire(now, 4096);
    pass_all(switch);
}

type Change = MappingChange<SavedMappingIpv6>;

fn apply(switch: &mut Switch, change: &Change, now: u32) -> Result<Applied, ApplyError> {
    let applied = switch.nat64.apply(&mut switch.nat, change, now);
    pass_all(switch);
    applied
}

fn follow(active: &mut Switch, standby: &mut Switch, now: u32) {
    loop {
        let (nat, mut list) = (&mut active.nat, Vec::new());
        let has_more = active.nat64.take_changes(nat, (2, 3), &mut list);
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
        let nat64 = &active.nat64;
        from = nat64.share_into(&active.nat, start, (2, 3), &mut list);
        assert!(list.len() <= 2);
        for change in &list {
            apply(standby, change, now).unwrap();
        }
    }
}

/// Returns protocol, inside address and port, and external endpoint of all mappings.
fn known(switch: &Switch) -> Vec<(NatProtocol, IpAddr, u16, SocketAddrV4)> {
    let (list, next) = switch.nat.list(0, usize::MAX);
    assert_eq!(next, None);
    let each = list.iter().map(|one| {
        let number = *one.internal.ip();
        let client = switch.nat64.client(number);
        assert_eq!(client.is_some(), is_client_number(number.to_bits()));
        let host = client.map_or(IpAddr::V4(number), IpAddr::V6);
        (one.protocol, host, one.internal.port(), one.external)
    });
    let mut all: Vec<_> = each.collect();
    all.sort();
    all
}

fn flow() -> impl Strategy<Value = (u8, u16, u8, u32)> {
    let seconds = prop_oneof![8 => Just(0u32), 2 => 1..90u32, 1 => Just(400u32)];
    (1..8u8, 1..20u16, 0..3u8, seconds)
}

/// Sends a packet of a host. Returns its external endpoint, if it is translated.
fn send(
    switch: &mut Switch,
    (host, port, protocol): (u8, u16, u8),
    now: u32,
) -> Option<(Ipv4Addr, u16)> {
    let content = match protocol {
        0 => tcp((port, 80), 0x10),
        1 => udp((port, 80), b"data"),
        _ => echo(port, false),
    };
    let sent = match from_number(host) {
        IpAddr::V6(client) => {
            let packet = v6(Header::plain(client, mapped(server())), &content);
            let mut buffer = [&[0xee; SPACE][..], &packet].concat();
            let place = (SPACE, packet.len());
            let made = switch.nat64.send(&mut switch.nat, &mut buffer, place, now);
            made.ok().map(|made| buffer[made.start..made.end].to_vec())
        }
        IpAddr::V4(host) => {
            let mut packet = v4(Header::plain(host, server()), &content);
            let length = packet.len();
            let outcome = switch.nat.outbound(&mut packet, length, now);
            (outcome == NatOutcome::Translated).then_some(packet)
        }
    };
    pass_all(switch);
    Some(ends_v4(&sent?).0)
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
            expire(&mut first, now);
            let external = send(&mut first, (host, port, protocol), now);
            follow(&mut first, &mut second, now);
            expire(&mut second, now);
            // Packets of known mappings extend timeouts.
            share(&first, &mut second, now);
            prop_assert_eq!(known(&first), known(&second));
            prop_assert_eq!(first.nat64.clients(), second.nat64.clients());
            if external.is_some() {
                // A packet that arrives at the standby has the same external endpoint.
                prop_assert_eq!(send(&mut second, (host, port, protocol), now), external);
            }
        }
        prop_assert_eq!(first.nat64.take_lost_changes(&mut first.nat), 0);
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
    let (first, second) = ("[::ffff:198.51.100.1]:1040", "[::ffff:198.51.100.1]:1042");
    let third = "[::ffff:198.51.100.1]:1043";
    assert_eq!(present("[2001:db8:1::2]:5", first), Ok(Applied::Added));
    assert_eq!(present("[2001:db8:1::2]:5", first), Ok(Applied::Updated));
    // The active switch has given the block to another client since, and then to an IPv4 host.
    assert_eq!(present("[2001:db8:1::3]:5", second), Ok(Applied::Added));
    assert_eq!(present("[::ffff:10.0.0.4]:5", third), Ok(Applied::Added));
    for (internal, external) in [
        // An address that the pool does not have, addresses that are not IPv4-mapped, a port of no block.
        ("[2001:db8:1::3]:9", "[::ffff:198.51.100.9]:1040"),
        ("[2001:db8:1::3]:9", "[2001:db8::1]:1040"),
        ("[2001:db8:1::3]:9", "[::198.51.100.1]:1040"),
        ("[2001:db8:1::3]:9", "[::ffff:198.51.100.1]:1"),
        // A host that is not a client, an address of the prefix, addresses of no host, the number of a client.
        ("[2001:db8:2::3]:9", first),
        ("[2001:db8:64::c633:6401]:9", first),
        ("[ff02::1]:9", first),
        ("[::]:9", first),
        ("[::ffff:240.0.0.0]:9", first),
    ] {
        let refused = present(internal, external);
        assert_eq!(refused, Err(ApplyError::Invalid), "{internal} {external}");
    }
    let mut ended = |internal: &str, external: &str| {
        let change = MappingChange::Ended(mapping(internal, external));
        apply(&mut switch, &change, 0)
    };
    assert_eq!(ended("[2001:db8:1::2]:5", first), Ok(Applied::Absent));
    assert_eq!(ended("[2001:db8:1::3]:5", second), Ok(Applied::Absent));
    assert_eq!(ended("[::ffff:10.0.0.4]:5", second), Ok(Applied::Absent));
    assert_eq!(ended("[::ffff:10.0.0.4]:5", third), Ok(Applied::Removed));
    assert_eq!((known(&switch).len(), switch.nat64.clients()), (0, 0));
}

/// Without prefixes of clients, all other hosts are clients.
#[test]
fn no_client_has_an_address_of_the_prefix_or_of_an_ipv4_host() {
    let mut switch = Switch::new();
    let external = "[::ffff:198.51.100.1]:1040";
    let change = MappingChange::Present(mapping("[2001:db8:64::c633:6401]:9", external));
    assert_eq!(apply(&mut switch, &change, 0), Err(ApplyError::Invalid));
    let source = a6("::ffff:10.0.0.4");
    let packet = v6(Header::plain(source, mapped(server())), &udp((9, 53), b"a"));
    assert_eq!(switch.send(&packet, 0), Err(NatDrop::Malformed));
}
