// SPDX-License-Identifier: Apache-2.0
//! The table of neighbours and its timers.
//!
//! What keeps it within its limits is in `bounds`, what frames change in `received`, and what the kernel does in `kernel`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use quietwire_packet::MacAddress;

use super::limits::{Limits, Rate, Worth};
use super::{Action, Counts, Facts, Origin, Shown, State, arp, nd};

/// RFC 4861, section 10: RETRANS_TIMER, MAX_MULTICAST_SOLICIT, MAX_UNICAST_SOLICIT, DELAY_FIRST_PROBE_TIME,
/// REACHABLE_TIME.
const RETRANSMIT: Duration = Duration::from_secs(1);
const ASKS: u32 = 3;
const DELAY: Duration = Duration::from_secs(5);
const REACHABLE: Duration = Duration::from_secs(30);

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
    /// Whether it has ever answered a question.
    pub(super) confirmed: bool,
    /// Where it is in the order of [`Worth`], if anything may take its place.
    pub(super) ranked: Option<(Worth, Duration)>,
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

/// All neighbours, with packets of some kind that wait for them.
#[derive(Debug)]
pub struct Neighbours<P> {
    pub(super) limits: Limits,
    pub(super) entries: BTreeMap<Key, Entry<P>>,
    timers: BTreeSet<(Duration, Key)>,
    /// Those whose place another may take, the least useful first.
    pub(super) ranks: BTreeSet<(Worth, Duration, Key)>,
    /// Packets that wait.
    pub(super) held: usize,
    pub(super) rate: Rate,
    random: u64,
    pub(super) counts: Counts,
}

impl<P> Neighbours<P> {
    /// An empty table. `seed` makes the times at which neighbours are asked again differ (RFC 4861, section 6.3.2).
    #[must_use]
    pub fn new(limits: Limits, seed: u64) -> Self {
        Self {
            limits,
            entries: BTreeMap::new(),
            timers: BTreeSet::new(),
            ranks: BTreeSet::new(),
            held: 0,
            rate: Rate::new(limits.asks_per_second),
            random: seed | 1,
            counts: Counts::default(),
        }
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn counts_mut(&mut self) -> &mut Counts {
        &mut self.counts
    }

    /// A packet is to go to a neighbour, or somebody wants to know it. A packet waits until the neighbour is found; when it is
    /// known already, the packet comes back at once.
    pub fn resolve(
        &mut self,
        now: Duration,
        facts: &Facts,
        address: IpAddr,
        packet: Option<P>,
        out: &mut Vec<Action<P>>,
    ) {
        let interface = facts.number;
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
        if !facts.may_be_neighbour(address) {
            self.counts.refused += dropped;
            return;
        }
        // Room comes last: nobody is to lose a place to one that is not asked for after all.
        if !self.may_ask(now) || !self.make_room(Worth::AskedFor, out) {
            self.counts.overflowed += dropped;
            return;
        }
        self.entries.insert(key, Entry::new(State::Incomplete, now));
        self.rank(key);
        if let Some(packet) = packet {
            self.wait(key, packet);
        }
        self.begin_asking(now, facts, key, out);
    }

    fn begin_asking(&mut self, now: Duration, facts: &Facts, key: Key, out: &mut Vec<Action<P>>) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.asked = 1;
            let mac = entry.mac;
            self.schedule(key, Some(now + RETRANSMIT));
            self.ask(facts, key.1, mac, out);
        }
    }

    /// Sets a neighbour that is not asked; false when the table is full of such.
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

    /// Forgets a neighbour; false when there is none. Packets that wait for it are reported as not delivered.
    pub fn remove(&mut self, interface: u16, address: IpAddr, out: &mut Vec<Action<P>>) -> bool {
        let key = (interface, address);
        self.schedule(key, None);
        let Some(entry) = self.entries.remove(&key) else {
            return false;
        };
        if let Some((worth, heard)) = entry.ranked {
            self.ranks.remove(&(worth, heard, key));
        }
        self.held -= entry.waiting.len();
        Self::end(key, entry, out);
        true
    }

    /// Forgets all neighbours of an interface.
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

    /// All neighbours.
    pub fn list(&self, now: Duration) -> impl Iterator<Item = Shown> + '_ {
        self.entries
            .iter()
            .map(move |((interface, address), entry)| Shown {
                interface: *interface,
                address: *address,
                mac: entry.mac,
                state: entry.state,
                origin: entry.origin,
                age: now.saturating_sub(entry.heard),
            })
    }

    /// The MAC address of a neighbour.
    #[must_use]
    pub fn mac(&self, interface: u16, address: IpAddr) -> Option<MacAddress> {
        self.entries.get(&(interface, address))?.mac
    }

    /// When [`Self::tick`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// Does what is due. `facts_of` tells of an interface; neighbours of one that is gone are forgotten.
    pub fn tick<'a>(
        &mut self,
        now: Duration,
        facts_of: impl Fn(u16) -> Option<&'a Facts>,
        out: &mut Vec<Action<P>>,
    ) {
        // What is put back is due later.
        while let Some((due, key)) = self.timers.first().copied() {
            if due > now {
                break;
            }
            self.timers.pop_first();
            match facts_of(key.0) {
                Some(facts) => self.is_due(now, facts, key, out),
                None => {
                    self.remove(key.0, key.1, out);
                }
            }
        }
    }

    fn is_due(&mut self, now: Duration, facts: &Facts, key: Key, out: &mut Vec<Action<P>>) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        entry.due = None;
        match entry.state {
            State::Permanent => {}
            State::Reachable | State::Stale => {
                entry.state = State::Probe;
                self.begin_asking(now, facts, key, out);
            }
            State::Incomplete | State::Probe if entry.asked < ASKS => {
                entry.asked += 1;
                let mac = entry.mac;
                self.schedule(key, Some(now + RETRANSMIT));
                // One that is held back counts nevertheless: the wait for an answer has an end. Those who are known are asked
                // before others (RFC 6583, section 7.1).
                if mac.is_some() || self.may_ask(now) {
                    self.ask(facts, key.1, mac, out);
                }
            }
            State::Incomplete | State::Probe => {
                self.remove(key.0, key.1, out);
            }
        }
    }

    /// Notes what a neighbour itself has said of its MAC address. Tells so when that is new.
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

    /// Notes what somebody has said of a neighbour's MAC address. Tells so when that is new.
    pub(super) fn learn_from(
        &mut self,
        now: Duration,
        key: Key,
        mac: MacAddress,
        (state, origin): (State, Origin),
        out: &mut Vec<Action<P>>,
    ) {
        if !self.entries.contains_key(&key) {
            let worth = match state {
                State::Permanent => Worth::Set,
                _ => Worth::Unconfirmed,
            };
            if !self.make_room(worth, out) {
                return;
            }
            self.entries.insert(key, Entry::new(state, now));
        }
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        // What an operator has set stays, and what the kernel has been told for good stays until it says otherwise.
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
        self.held -= packets.len();
        if is_other || !packets.is_empty() {
            let (interface, address) = key;
            out.push(Action::Found {
                interface,
                address,
                mac,
                packets,
            });
        }
        // What somebody says unasked confirms nothing and takes nothing from what was confirmed, unless it says something
        // else: states and timers stay (RFC 4861, sections 7.2.3 and 7.2.5).
        if state == State::Stale && !is_other {
            return;
        }
        entry.state = state;
        entry.origin = origin;
        entry.heard = now;
        entry.confirmed |= state == State::Reachable;
        self.rank(key);
        let due = match state {
            State::Reachable => Some(now + self.reachable_time()),
            State::Stale => Some(now + DELAY),
            State::Permanent | State::Incomplete | State::Probe => None,
        };
        self.schedule(key, due);
    }

    /// A neighbour that was confirmed is in doubt.
    pub(super) fn doubt(&mut self, now: Duration, key: Key) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.state = State::Stale;
            self.schedule(key, Some(now + DELAY));
        }
    }

    /// The state and the MAC address of a neighbour.
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

    /// Asks a link for an address, or only the neighbour that should have it.
    fn ask(
        &mut self,
        facts: &Facts,
        address: IpAddr,
        mac: Option<MacAddress>,
        out: &mut Vec<Action<P>>,
    ) {
        let frame = match (address, facts.source_for(address)) {
            (IpAddr::V4(target), Some(IpAddr::V4(source))) => {
                Some(arp::request(facts.mac, source, target, mac))
            }
            (IpAddr::V6(target), Some(IpAddr::V6(source))) => {
                Some(nd::solicitation(facts.mac, source, target, mac))
            }
            // An interface without an address of that kind cannot ask.
            _ => None,
        };
        if let Some(frame) = frame {
            self.counts.asked += 1;
            out.push(Action::Transmit {
                interface: facts.number,
                frame,
            });
        }
    }

    /// Between half and one and a half of the time (RFC 4861, section 6.3.2).
    fn reachable_time(&mut self) -> Duration {
        // xorshift64 (Marsaglia, 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        REACHABLE / 2 + Duration::from_millis(self.random % REACHABLE.as_millis() as u64)
    }
}
