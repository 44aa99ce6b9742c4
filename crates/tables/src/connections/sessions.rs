// SPDX-License-Identifier: Apache-2.0
//! Sessions of NAT: connections with the external endpoints that NAT has given them, for a log (RFC 8158, section 4.3).
//!
//! NAT translates the first packet of a connection behind the tracker. So a new connection waits until the caller knows its external
//! endpoints, and its end has those that it had then, even if NAT has removed the mapping in the meantime.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::entry::Entry;
use super::key::Endpoint;
use crate::arena::NoMemory;

/// Connections whose external endpoints are not known yet, at most.
const WAITING_MAX: usize = 4096;
/// Ended sessions that wait, at most.
const ENDED_MAX: usize = 8192;

/// Index of an entry, and the number of times that it was used.
type EntryUse = (u32, u16);

/// External endpoints of the source and of the destination of a connection.
type Externals = [Option<Endpoint>; 2];

/// A session began or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionEvent {
    /// True if the session began; false if it ended.
    pub is_created: bool,
    /// IP protocol.
    pub protocol: u8,
    /// Endpoint that sent the first packet, as inside hosts see it.
    pub source: Endpoint,
    /// The other endpoint, as inside hosts see it.
    pub destination: Endpoint,
    /// External endpoints of the source and of the destination. At least one is there.
    pub external: [Option<Endpoint>; 2],
}

/// External endpoints of the connection of an entry.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Number of times that the entry had been used.
    generation: u16,
    external: Externals,
}

const EMPTY: Slot = Slot {
    generation: 0,
    external: [None; 2],
};

/// Sessions of a tracker. Memory never grows.
#[derive(Debug)]
pub(super) struct Sessions {
    slots: Box<[Slot]>,
    waiting: VecDeque<EntryUse>,
    ended: VecDeque<SessionEvent>,
    /// Events without space since [`Sessions::take_loss`].
    lost: u64,
}

fn event_of(is_created: bool, entry: &Entry, external: Externals) -> SessionEvent {
    let (source, destination) = entry.ends();
    SessionEvent {
        is_created,
        protocol: entry.key.protocol(),
        source,
        destination,
        external,
    }
}

impl Sessions {
    /// Allocates space for the sessions of this number of entries.
    pub(super) fn new(entries: usize) -> Result<Self, NoMemory> {
        let mut slots = Vec::new();
        let reserved = slots.try_reserve_exact(entries);
        reserved.map_err(|_| NoMemory(entries.saturating_mul(size_of::<Slot>())))?;
        // The kernel provides the pages now, and not when packets arrive.
        slots.resize(entries, EMPTY);
        Ok(Self {
            slots: slots.into_boxed_slice(),
            waiting: VecDeque::with_capacity(WAITING_MAX),
            ended: VecDeque::with_capacity(ENDED_MAX),
            lost: 0,
        })
    }

    /// Returns the memory, octets.
    pub(super) fn octets(&self) -> usize {
        size_of_val(&self.slots[..])
    }

    #[inline(always)]
    pub(super) fn has_work(&self) -> bool {
        !self.waiting.is_empty() || !self.ended.is_empty() || self.lost > 0
    }

    /// Returns the external endpoints of a session.
    fn external_of(&self, used: EntryUse) -> Option<Externals> {
        let slot = self.slots.get(used.0 as usize)?;
        let is_known = slot.generation == used.1 && slot.external != [None; 2];
        is_known.then_some(slot.external)
    }

    /// Notes that a connection has begun, or has another state, unless it has external endpoints already.
    pub(super) fn note(&mut self, used: EntryUse) {
        if self.external_of(used).is_some() {
            return;
        }
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(used);
        } else {
            self.lost = self.lost.saturating_add(1);
        }
    }

    /// Notes that the connection of an entry is about to end.
    pub(super) fn end(&mut self, used: EntryUse, entry: &Entry) {
        let Some(external) = self.external_of(used) else {
            return;
        };
        if let Some(slot) = self.slots.get_mut(used.0 as usize) {
            *slot = EMPTY;
        }
        if self.ended.len() < ENDED_MAX {
            self.ended.push_back(event_of(false, entry, external));
        } else {
            self.lost = self.lost.saturating_add(1);
        }
    }

    /// Sets the external endpoints of a connection. Returns its event, unless it has none or had some before.
    pub(super) fn begin(
        &mut self,
        used: EntryUse,
        entry: &Entry,
        external: [Option<SocketAddr>; 2],
    ) -> Option<SessionEvent> {
        let endpoint = |socket: SocketAddr| Endpoint {
            address: socket.ip(),
            port: socket.port(),
        };
        let external = external.map(|one| one.map(endpoint));
        if external == [None; 2] || self.external_of(used).is_some() {
            return None;
        }
        let slot = self.slots.get_mut(used.0 as usize)?;
        *slot = Slot {
            generation: used.1,
            external,
        };
        Some(event_of(true, entry, external))
    }

    /// Takes the connection that has waited the longest.
    pub(super) fn take_waiting(&mut self) -> Option<EntryUse> {
        self.waiting.pop_front()
    }

    /// Takes the session that ended first.
    pub(super) fn take_ended(&mut self) -> Option<SessionEvent> {
        self.ended.pop_front()
    }

    /// Returns the number of events without space since the last call.
    pub(super) fn take_loss(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }
}
