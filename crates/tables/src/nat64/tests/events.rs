// SPDX-License-Identifier: Apache-2.0
//! Events of mappings of clients for a log.

use super::*;
use crate::nat::{EventKinds, LimitEvent, NatEvent, NatLimit};

const ALL: EventKinds = EventKinds {
    mappings: true,
    limits: true,
};

/// An event and its client.
type Noted = (NatEvent, Option<Ipv6Addr>);

/// Sends a datagram of a client. Returns the result and the events with their clients, as a forwarding thread passes them on.
fn events(switch: &mut Switch, host: Ipv6Addr, now: u32) -> (Result<(), NatDrop>, Vec<Noted>) {
    let packet = v6(
        Header::plain(host, mapped(server())),
        &udp((5000, 53), b"a"),
    );
    let mut buffer = [&[0xee; SPACE][..], &packet[..]].concat();
    let place = (SPACE, packet.len());
    let sent = switch
        .nat64
        .send(&mut switch.nat, &mut buffer, place, now)
        .map(|_| ());
    (sent, taken(switch))
}

fn taken(switch: &mut Switch) -> Vec<(NatEvent, Option<Ipv6Addr>)> {
    let mut events = Vec::new();
    while let Some(event) = switch.nat.take_event() {
        let client = switch.nat64.note(&mut switch.nat, &event);
        events.push((event, client));
    }
    events
}

fn kinds(events: &[(NatEvent, Option<Ipv6Addr>)]) -> Vec<&'static str> {
    let kind = |(event, _): &(NatEvent, Option<Ipv6Addr>)| match event {
        NatEvent::Block(one) if one.is_assigned => "assigned",
        NatEvent::Block(_) => "returned",
        NatEvent::Mapping(one) if one.is_created => "created",
        NatEvent::Mapping(_) => "deleted",
        NatEvent::Limit(one) => one.limit.name(),
    };
    events.iter().map(kind).collect()
}

#[test]
fn events_of_mappings_have_the_client_until_it_has_no_number() {
    let mut switch = Switch::new();
    switch.nat.allow_events(ALL);
    let (sent, first) = events(&mut switch, client(), 0);
    assert_eq!((sent, kinds(&first)), (Ok(()), vec!["assigned", "created"]));
    // The mapping has expired, and the packet begins another one.
    let (sent, second) = events(&mut switch, client(), 1000);
    let expected = vec!["deleted", "returned", "assigned", "created"];
    assert_eq!((sent, kinds(&second)), (Ok(()), expected));
    switch.nat.expire(2000, 4096);
    let last = taken(&mut switch);
    assert_eq!(kinds(&last), ["deleted", "returned"]);
    let mut all = first.iter().chain(&second).chain(&last);
    assert!(all.all(|(_, host)| *host == Some(client())));
}

#[test]
fn a_full_table_of_clients_has_an_event() {
    let mut switch = Switch::with(
        &nat_settings(),
        &Nat64Settings {
            clients_max: 1,
            ..settings()
        },
    );
    switch.nat.allow_events(ALL);
    assert_eq!(events(&mut switch, client(), 0).0, Ok(()));
    let (sent, noted) = events(&mut switch, a6("2001:db8:1::6"), 0);
    assert_eq!(sent, Err(NatDrop::TableFull));
    let full = LimitEvent {
        limit: NatLimit::Hosts,
        protocol: None,
        host: None,
        external: None,
        maximum: Some(8),
    };
    assert_eq!(noted, [(NatEvent::Limit(full), None)]);
}
