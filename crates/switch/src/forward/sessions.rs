// SPDX-License-Identifier: Apache-2.0
//! Sessions of NAT for the log: connections of the tracker with the external endpoints that NAT has given them.
//!
//! The tracker sees the first packet of a connection before NAT translates it. So the external endpoints are known at the end of a turn.

use std::net::{IpAddr, SocketAddr};

use quietwire_dpdk::cycles;
use quietwire_tables::connections::{Endpoint, SessionEvent, Tracker};

use super::nat::{NatInstance, NatStage};
use super::nat_events::EventSink;

/// Returns the external endpoints of the source and of the destination of a connection with these inside endpoints.
pub(super) fn externals_of(
    nat: Option<&NatStage>,
    protocol: u8,
    (source, destination): (Endpoint, Endpoint),
) -> [Option<SocketAddr>; 2] {
    let socket = |end: Endpoint| SocketAddr::new(end.address, end.port);
    let external = |internal: SocketAddr, remote: SocketAddr| {
        nat.and_then(|nat| nat.external_of(protocol, internal, remote))
    };
    let (from, to) = (socket(source), socket(destination));
    let of_destination = external(to, from);
    // The source has addressed an inside host by its external endpoint.
    [external(from, of_destination.unwrap_or(to)), of_destination]
}

/// Passes sessions that have begun and ended on to the log.
#[cold]
pub(super) fn pass_sessions(tracker: &mut Tracker, mut nat: Option<&mut NatStage>) {
    let now = cycles::now();
    // Neither queue grows meanwhile.
    while let Some(event) = tracker.take_ended_session() {
        note(nat.as_deref_mut(), now, event);
    }
    while let Some(waiting) = tracker.take_waiting_session() {
        let ends = (waiting.source, waiting.destination);
        let external = externals_of(nat.as_deref(), waiting.protocol, ends);
        if let Some(event) = tracker.begin_session(waiting.connection, external) {
            note(nat.as_deref_mut(), now, event);
        }
    }
    let lost = tracker.take_lost_sessions();
    if let Some(sink) = first_sink(nat).filter(|_| lost > 0) {
        sink.add_loss(lost);
    }
}

/// Passes a session on to the log of its instance. An instance that has ended has no log.
fn note(nat: Option<&mut NatStage>, now: u64, event: SessionEvent) {
    if let Some(sink) = nat.and_then(|nat| sink_of(nat, &event)) {
        sink.push_session(now, event);
    }
}

fn sink_of<'nat>(nat: &'nat mut NatStage, event: &SessionEvent) -> Option<&'nat mut EventSink> {
    let external = event.external.iter().flatten().next()?.address;
    let mut instances = nat.instances.iter_mut();
    let instance = instances.find(|one| has_external(one, external))?;
    instance.tables.as_mut()?.events.as_mut()
}

fn has_external(instance: &NatInstance, address: IpAddr) -> bool {
    let Some(tables) = &instance.tables else {
        return false;
    };
    match (address, &tables.nat66) {
        (IpAddr::V4(address), None) => tables.nat.is_external(address.to_bits()),
        (IpAddr::V6(address), Some(nat66)) => nat66.is_external(address.to_bits()),
        _ => false,
    }
}

/// Returns the way to the log of the first instance that has one: a tracker does not know which instance has lost an event.
fn first_sink(nat: Option<&mut NatStage>) -> Option<&mut EventSink> {
    let mut instances = nat?.instances.iter_mut();
    instances.find_map(|one| one.tables.as_mut()?.events.as_mut())
}
