// SPDX-License-Identifier: Apache-2.0
//! Lists of connections, page by page, and their removal.

use ipnet::IpNet;

use super::ct_bits::{LabelBits, MarkBits};
use super::entry::Entry;
use super::key::Endpoint;
use super::names::State;
use super::settings::Seconds;
use super::tracker::{Connection, Tracker};

/// A connection in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// Zone.
    pub zone: u16,
    /// IP protocol.
    pub protocol: u8,
    /// Endpoint that sent the first packet.
    pub source: Endpoint,
    /// The other endpoint.
    pub destination: Endpoint,
    /// State.
    pub state: State,
    /// True if both sides have sent packets.
    pub is_replied: bool,
    /// Mark.
    pub mark: u32,
    /// Label.
    pub label: u128,
    /// Seconds until it expires, unless further packets arrive.
    pub expires_in_s: u32,
    /// Packets of each direction, up to 2^32 - 1.
    pub packets: [u32; 2],
    /// Octets of IP packets of each direction.
    pub octets: [u64; 2],
}

/// Connections that match all given fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionFilter {
    /// Only of this zone.
    pub zone: Option<u16>,
    /// Only of this IP protocol.
    pub protocol: Option<u8>,
    /// Only in this state.
    pub state: Option<State>,
    /// Only if one of the addresses is in this prefix.
    pub address: Option<IpNet>,
    /// Only if one of the ports is this one.
    pub port: Option<u16>,
    /// Only with these bits of the mark.
    pub mark: Option<MarkBits>,
    /// Only with these bits of the label.
    pub label: Option<LabelBits>,
}

impl ConnectionFilter {
    /// Returns true if a connection matches.
    #[must_use]
    pub fn matches(&self, info: &ConnectionInfo) -> bool {
        let ends = [info.source, info.destination];
        let is_within = |prefix: IpNet| ends.iter().any(|end| prefix.contains(&end.address));
        self.zone.is_none_or(|zone| zone == info.zone)
            && self.protocol.is_none_or(|number| number == info.protocol)
            && self.state.is_none_or(|state| state == info.state)
            && self.mark.is_none_or(|bits| bits.matches(info.mark))
            && self.label.is_none_or(|bits| bits.matches(info.label))
            && self.address.is_none_or(is_within)
            && self
                .port
                .is_none_or(|port| ends.iter().any(|end| end.port == port))
    }
}

fn info(entry: &Entry, label: u128, now: Seconds) -> Option<ConnectionInfo> {
    let state = entry.state()?;
    let (source, destination) = entry.ends();
    // An expired connection has ended, even if it is still in the table.
    let expires_in_s = entry.expires_at.checked_sub(now)?.checked_sub(1)?;
    Some(ConnectionInfo {
        zone: entry.key.zone(),
        protocol: entry.key.protocol(),
        source,
        destination,
        state,
        is_replied: entry.is_replied(),
        mark: entry.mark,
        label,
        expires_in_s,
        packets: entry.packets,
        octets: entry.octets,
    })
}

/// A part of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Connections.
    pub connections: Vec<ConnectionInfo>,
    /// Start of the next part; `None` at the end.
    pub next: Option<u32>,
}

impl Tracker {
    /// Returns a connection by its handle; `None` if it has ended.
    #[must_use]
    pub fn get(&self, connection: Connection) -> Option<ConnectionInfo> {
        self.info_at(connection.index, self.entry(connection)?)
    }

    /// Returns the connection of the entry at a position.
    fn info_at(&self, index: u32, entry: &Entry) -> Option<ConnectionInfo> {
        info(entry, self.label_at(index, entry), self.now())
    }

    /// Lists connections from position `from` on, 0 at first: at most `count` of them, from at most `budget` entries. Connections that
    /// begin or end between two parts may be missing.
    #[must_use]
    pub fn list(&self, filter: &ConnectionFilter, from: u32, count: usize, budget: usize) -> Page {
        let mut page = Page {
            connections: Vec::with_capacity(count.min(budget)),
            next: None,
        };
        page.next = self.list_into(filter, from, (count, budget), &mut page.connections);
        page
    }

    /// As [`Self::list`], into a list that never has more than `count` connections, from at most `budget` entries. Allocates nothing if the
    /// list has space for them.
    pub fn list_into(
        &self,
        filter: &ConnectionFilter,
        from: u32,
        (count, budget): (usize, usize),
        list: &mut Vec<ConnectionInfo>,
    ) -> Option<u32> {
        let start = (from as usize).min(self.entries.len());
        let end = start.saturating_add(budget).min(self.entries.len());
        let entries = self.entries.get(start..end).unwrap_or_default();
        for (position, entry) in (from..).zip(entries) {
            if list.len() >= count {
                return Some(position);
            }
            let listed = self.info_at(position, entry);
            let listed = listed.filter(|info| filter.matches(info));
            list.extend(listed);
        }
        let is_last = end >= self.entries.len();
        if is_last {
            None
        } else {
            u32::try_from(end).ok()
        }
    }

    /// Removes connections from position `from` on, out of at most `budget` entries. Returns their number, and the position to continue
    /// from; `None` at the end.
    pub fn flush(
        &mut self,
        filter: &ConnectionFilter,
        from: u32,
        budget: usize,
    ) -> (usize, Option<u32>) {
        let start = (from as usize).min(self.entries.len());
        let end = start.saturating_add(budget).min(self.entries.len());
        let mut removed = 0_usize;
        for place in start..end {
            let Ok(index) = u32::try_from(place) else {
                break;
            };
            let entry = self.entries.get(place);
            let listed = entry.and_then(|entry| self.info_at(index, entry));
            if listed.is_some_and(|info| filter.matches(&info)) {
                self.flush_one(index);
                removed = removed.saturating_add(1);
            }
        }
        let next = (end < self.entries.len()).then(|| u32::try_from(end).ok());
        (removed, next.flatten())
    }
}
