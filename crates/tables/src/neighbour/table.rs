// SPDX-License-Identifier: Apache-2.0
//! The neighbour table and its timers.
//!
//! `bounds` keeps it within its limits, `received` handles frames, and `kernel` handles the kernel's notifications.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use quietwire_packet::MacAddress;

use super::limits::{EvictionRank, Limits};
use super::{Action, Counts, InterfaceInfo, NeighbourInfo, Origin, State, arp, nd};
use crate::rate_limit::{InterfaceRateLimits, RateLimit};

/// Constants of RFC 4861, section 10: RETRANS_TIMER, MAX_MULTICAST_SOLICIT, MAX_UNICAST_SOLICIT, DELAY_FIRST_PROBE_TIME, REACHABLE_TIME.
const RETRANSMIT: Duration = Duration::from_secs(1);
const ASKS: u32 = 3;
const DELAY: Duration = Duration::from_secs(5);
const REACHABLE_MS: u64 = 30_000;

pub(super) type Key = (u16, IpAddr);

#[derive(Debug)]
pub(super) struct Entry<P> {
    pub(super) state: State,
    pub(super) origin: Origin,
    mac: Option<MacAddress>,
    pub(super) waiting: VecDeque<P>,
    asked: u32,
    pub(super) heard: Duration,
    due: Option<Duration>,
    /// Whether it has ever answered a request.
    pub(super) confirmed: bool,
    /// Its position in the order of [`EvictionRank`], if it can be evicted.
    pub(super) ranked: Option<(EvictionRank, Duration)>,
}

impl<P> Entry<P> {
    const fn new(state: State, now: Duration) -> Self {
        Self {
            state,
            origin: Origin::Found,
            mac: None,
            waiting: VecDeque::new(),
            asked: 0,
            heard: now,
            due: None,
            confirmed: false,
            ranked: None,
        }
    }
}

/// All neighbours, and the packets that wait for them.
#[derive(Debug)]
pub struct Neighbours<P> {
    pub(super) limits: Limits,
    pub(super) entries: BTreeMap<Key, Entry<P>>,
    timers: BTreeSet<(Duration, Key)>,
    /// Neighbours that can be evicted, the least useful first.
    pub(super) ranks: BTreeSet<(EvictionRank, Duration, Key)>,
    /// Number of waiting packets.
    pub(super) held: usize,
    /// Limits of requests by interface, so that a scan of one link does not stop resolution on the others.
    pub(super) rates: InterfaceRateLimits,
    random: u64,
    pub(super) counts: Counts,
}

impl<P> Neighbours<P> {
    /// Creates an empty table. `seed` randomises the reachable times (RFC 4861, section 6.3.2).
    #[must_use]
    pub fn new(limits: Limits, seed: u64) -> Self {
        let rate = RateLimit::with_full_burst(limits.asks_per_second);
        Self {
            limits,
            entries: BTreeMap::new(),
            timers: BTreeSet::new(),
            ranks: BTreeSet::new(),
            held: 0,
            rates: InterfaceRateLimits::new(rate),
            random: seed | 1,
            counts: Counts::default(),
        }
    }

    /// Returns the counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn counts_mut(&mut self) -> &mut Counts {
        &mut self.counts
    }

    /// Resolves a neighbour, with or without a packet. The packet waits until the neighbour is resolved; if it is known already, the packet
    /// is returned at once.
    pub fn resolve(
        &mut self,
        now: Duration,
        interface_info: &InterfaceInfo,
        address: IpAddr,
        packet: Option<P>,
        out: &mut Vec<Action<P>>,
    ) {
        let interface = interface_info.number;
        let key = (interface, address);
        if let Some(entry) = self.entries.get(&key) {
            match (entry.mac, packet) {
                (Some(mac), packet) => out.push(Action::Found {
                    interface,
                    address,
                    mac,
                    packets: packet.into_iter().collect(),
                }),
                (None, Some(packet)) => self.wait(key, packet),
                (None, None) => {}
            }
            return;
        }
        let dropped = u64::from(packet.is_some());
        if !interface_info.may_be_neighbour(address) {
            self.counts.refused = self.counts.refused.saturating_add(dropped);
            return;
        }
        // Space comes last: no neighbour may be evicted for one that is not requested in the end.
        if !self.may_ask(now, interface) || !self.make_space(EvictionRank::Solicited, out) {
            self.counts.overflowed = self.counts.overflowed.saturating_add(dropped);
            return;
        }
        self.entries.insert(key, Entry::new(State::Incomplete, now));
        self.rank(key);
        if let Some(packet) = packet {
            self.wait(key, packet);
        }
        self.begin_asking(now, interface_info, key, out);
    }

    fn begin_asking(
        &mut self,
        now: Duration,
        interface_info: &InterfaceInfo,
        key: Key,
        out: &mut Vec<Action<P>>,
    ) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.asked = 1;
            let mac = entry.mac;
            self.schedule(key, Some(now.saturating_add(RETRANSMIT)));
            self.ask(interface_info, key.1, mac, out);
        }
    }

    /// Sets a static neighbour. Returns false if the table is full of such neighbours.
    pub fn set(
        &mut self,
        now: Duration,
        interface: u16,
        address: IpAddr,
        mac: MacAddress,
        out: &mut Vec<Action<P>>,
    ) -> bool {
        let key = (interface, address);
        self.learn_from(now, key, mac, (State::Permanent, Origin::Static), out);
        self.entries.contains_key(&key)
    }

    /// Removes a neighbour. Returns false if there is none. Packets that wait for it are reported as undeliverable.
    pub fn remove(&mut self, interface: u16, address: IpAddr, out: &mut Vec<Action<P>>) -> bool {
        let key = (interface, address);
        self.schedule(key, None);
        let Some(entry) = self.entries.remove(&key) else {
            return false;
        };
        if let Some((eviction_rank, heard)) = entry.ranked {
            self.ranks.remove(&(eviction_rank, heard, key));
        }
        self.held = self.held.saturating_sub(entry.waiting.len());
        Self::end(key, entry, out);
        true
    }

    /// Removes all neighbours of an interface.
    pub fn flush(&mut self, interface: u16, out: &mut Vec<Action<P>>) {
        let keys: Vec<Key> = self
            .entries
            .keys()
            .filter(|key| key.0 == interface)
            .copied()
            .collect();
        for (interface, address) in keys {
            self.remove(interface, address, out);
        }
    }

    fn end((interface, address): Key, entry: Entry<P>, out: &mut Vec<Action<P>>) {
        if entry.mac.is_some() {
            out.push(Action::Lost { interface, address });
        }
        if !entry.waiting.is_empty() || entry.mac.is_none() {
            let packets = entry.waiting.into_iter().collect();
            out.push(Action::Unreachable {
                interface,
                address,
                packets,
            });
        }
    }

    /// Returns all neighbours.
    pub fn list(&self, now: Duration) -> impl Iterator<Item = NeighbourInfo> + '_ {
        self.entries
            .iter()
            .map(move |((interface, address), entry)| NeighbourInfo {
                interface: *interface,
                address: *address,
                mac: entry.mac,
                state: entry.state,
                origin: entry.origin,
                age: now.saturating_sub(entry.heard),
            })
    }

    /// Returns the MAC address of a neighbour.
    #[must_use]
    pub fn mac(&self, interface: u16, address: IpAddr) -> Option<MacAddress> {
        self.entries.get(&(interface, address))?.mac
    }

    /// Returns the time of the next [`Self::tick`] with work to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// Handles expired timers. `facts_of` describes an interface; neighbours of a removed interface are removed.
    pub fn tick<'a>(
        &mut self,
        now: Duration,
        facts_of: impl Fn(u16) -> Option<&'a InterfaceInfo>,
        out: &mut Vec<Action<P>>,
    ) {
        // A rescheduled timer is due later.
        while let Some((due, key)) = self.timers.first().copied() {
            if due > now {
                break;
            }
            self.timers.pop_first();
            match facts_of(key.0) {
                Some(interface_info) => self.is_due(now, interface_info, key, out),
                None => {
                    self.remove(key.0, key.1, out);
                }
            }
        }
    }

    fn is_due(
        &mut self,
        now: Duration,
        interface_info: &InterfaceInfo,
        key: Key,
        out: &mut Vec<Action<P>>,
    ) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        entry.due = None;
        match entry.state {
            State::Permanent => {}
            State::Reachable | State::Stale => {
                entry.state = State::Probe;
                self.begin_asking(now, interface_info, key, out);
            }
            State::Incomplete | State::Probe if entry.asked < ASKS => {
                entry.asked = entry.asked.saturating_add(1);
                let mac = entry.mac;
                self.schedule(key, Some(now.saturating_add(RETRANSMIT)));
                // A suppressed request counts nevertheless, so that the wait for an answer ends. Known neighbours are probed first (RFC
                // 6583, section 7.1).
                if mac.is_some() || self.may_ask(now, key.0) {
                    self.ask(interface_info, key.1, mac, out);
                }
            }
            State::Incomplete | State::Probe => {
                self.remove(key.0, key.1, out);
            }
        }
    }

    /// Updates a MAC address by a neighbour's own message. Reports a changed address.
    pub(super) fn learn(
        &mut self,
        now: Duration,
        key: Key,
        mac: MacAddress,
        state: State,
        out: &mut Vec<Action<P>>,
    ) {
        self.learn_from(now, key, mac, (state, Origin::Found), out);
    }

    /// Updates a MAC address by a message of any origin. Reports a changed address.
    pub(super) fn learn_from(
        &mut self,
        now: Duration,
        key: Key,
        mac: MacAddress,
        (state, origin): (State, Origin),
        out: &mut Vec<Action<P>>,
    ) {
        if !self.entries.contains_key(&key) {
            let eviction_rank = match state {
                State::Permanent => EvictionRank::Set,
                _ => EvictionRank::Unconfirmed,
            };
            if !self.make_space(eviction_rank, out) {
                return;
            }
            self.entries.insert(key, Entry::new(state, now));
        }
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        // Static entries stay, and permanent entries of the kernel stay until the kernel changes them.
        let is_firm = entry.state == State::Permanent
            && match entry.origin {
                Origin::Static => origin != Origin::Static,
                _ => origin == Origin::Found,
            };
        if is_firm {
            return;
        }
        let is_other = entry.mac.replace(mac) != Some(mac);
        let packets: Vec<P> = entry.waiting.drain(..).collect();
        self.held = self.held.saturating_sub(packets.len());
        if is_other || !packets.is_empty() {
            let (interface, address) = key;
            out.push(Action::Found {
                interface,
                address,
                mac,
                packets,
            });
        }
        // Unsolicited information neither confirms a neighbour nor invalidates a confirmed one, unless the address differs: states and
        // timers stay (RFC 4861, sections 7.2.3 and 7.2.5).
        if state == State::Stale && !is_other {
            return;
        }
        entry.state = state;
        entry.origin = origin;
        entry.heard = now;
        entry.confirmed |= state == State::Reachable;
        self.rank(key);
        let due = match state {
            State::Reachable => Some(now.saturating_add(self.reachable_time())),
            State::Stale => Some(now.saturating_add(DELAY)),
            State::Permanent | State::Incomplete | State::Probe => None,
        };
        self.schedule(key, due);
    }

    /// Starts probing a confirmed neighbour.
    pub(super) fn start_probe(&mut self, now: Duration, key: Key) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.state = State::Stale;
            self.schedule(key, Some(now.saturating_add(DELAY)));
        }
    }

    /// Returns state and MAC address of a neighbour.
    pub(super) fn known(&self, key: Key) -> Option<(State, Option<MacAddress>)> {
        self.entries.get(&key).map(|entry| (entry.state, entry.mac))
    }

    fn schedule(&mut self, key: Key, due: Option<Duration>) {
        if let Some(entry) = self.entries.get_mut(&key) {
            if let Some(former) = entry.due.take() {
                self.timers.remove(&(former, key));
            }
            entry.due = due;
            if let Some(due) = due {
                self.timers.insert((due, key));
            }
        }
    }

    /// Sends a request to the link, or to the neighbour alone.
    fn ask(
        &mut self,
        interface_info: &InterfaceInfo,
        address: IpAddr,
        mac: Option<MacAddress>,
        out: &mut Vec<Action<P>>,
    ) {
        let frame = match (address, interface_info.source_for(address)) {
            (IpAddr::V4(target), Some(IpAddr::V4(source))) => {
                Some(arp::request(interface_info.mac, source, target, mac))
            }
            (IpAddr::V6(target), Some(IpAddr::V6(source))) => {
                Some(nd::solicitation(interface_info.mac, source, target, mac))
            }
            // An interface without an address of that IP version cannot send a request.
            _ => None,
        };
        if let Some(frame) = frame {
            self.counts.asked = self.counts.asked.saturating_add(1);
            out.push(Action::Transmit {
                interface: interface_info.number,
                frame,
            });
        }
    }

    /// Returns a random time between half and one and a half of the reachable time (RFC 4861, section 6.3.2).
    fn reachable_time(&mut self) -> Duration {
        // xorshift64 (Marsaglia, 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let more = self.random % REACHABLE_MS;
        Duration::from_millis((REACHABLE_MS / 2).saturating_add(more))
    }
}
