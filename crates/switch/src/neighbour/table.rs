// SPDX-License-Identifier: Apache-2.0
//! The table of neighbours and its timers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use quietwire_packet::MacAddress;

use super::{Action, Counts, Facts, Shown, State, arp, nd};

/// RFC 4861, section 10: RETRANS_TIMER, MAX_MULTICAST_SOLICIT, MAX_UNICAST_SOLICIT, DELAY_FIRST_PROBE_TIME,
/// REACHABLE_TIME.
const RETRANSMIT: Duration = Duration::from_secs(1);
const ASKS: u32 = 3;
const DELAY: Duration = Duration::from_secs(5);
const REACHABLE: Duration = Duration::from_secs(30);

/// Bounds of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Neighbours in all.
    pub neighbours: usize,
    /// Packets that wait for one.
    pub waiting: usize,
    /// Questions a second for neighbours that are not known.
    pub asks_per_second: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            neighbours: 65_536,
            waiting: 16,
            asks_per_second: 2_000,
        }
    }
}

type Key = (u16, IpAddr);

#[derive(Debug)]
struct Entry<P> {
    state: State,
    mac: Option<MacAddress>,
    waiting: VecDeque<P>,
    asked: u32,
    heard: Duration,
    due: Option<Duration>,
}

/// All neighbours, with packets of some kind that wait for them.
#[derive(Debug)]
pub struct Neighbours<P> {
    limits: Limits,
    entries: BTreeMap<Key, Entry<P>>,
    timers: BTreeSet<(Duration, Key)>,
    /// Questions that may be sent, in millionths.
    tokens: u64,
    filled: Duration,
    random: u64,
    counts: Counts,
}

impl<P> Neighbours<P> {
    /// An empty table. `seed` makes the times at which neighbours are asked again differ (RFC 4861, section 6.3.2).
    #[must_use]
    pub fn new(limits: Limits, seed: u64) -> Self {
        Self {
            limits,
            entries: BTreeMap::new(),
            timers: BTreeSet::new(),
            tokens: u64::from(limits.asks_per_second) * 1_000_000,
            filled: Duration::ZERO,
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
        if let Some(entry) = self.entries.get_mut(&key) {
            if let Some(mac) = entry.mac {
                let packets = packet.into_iter().collect();
                out.push(Action::Found {
                    interface,
                    address,
                    mac,
                    packets,
                });
            } else if let Some(packet) = packet {
                if entry.waiting.len() >= self.limits.waiting {
                    entry.waiting.pop_front();
                    self.counts.overflowed += 1;
                }
                entry.waiting.push_back(packet);
            }
            return;
        }
        if !self.make_room() || !self.may_ask(now) {
            let packets: Vec<P> = packet.into_iter().collect();
            self.counts.overflowed += packets.len() as u64;
            return;
        }
        let entry = Entry {
            state: State::Incomplete,
            mac: None,
            waiting: packet.into_iter().collect(),
            asked: 1,
            heard: now,
            due: None,
        };
        self.entries.insert(key, entry);
        self.schedule(key, Some(now + RETRANSMIT));
        self.ask(facts, address, None, out);
    }

    /// Sets a neighbour that is not asked.
    pub fn set(
        &mut self,
        now: Duration,
        interface: u16,
        address: IpAddr,
        mac: MacAddress,
        out: &mut Vec<Action<P>>,
    ) {
        let key = (interface, address);
        self.learn(now, key, mac, State::Permanent, out);
    }

    /// Forgets a neighbour; false when there is none. Packets that wait for it are reported as not delivered.
    pub fn remove(&mut self, interface: u16, address: IpAddr, out: &mut Vec<Action<P>>) -> bool {
        let key = (interface, address);
        self.schedule(key, None);
        let Some(entry) = self.entries.remove(&key) else {
            return false;
        };
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
                entry.asked = 1;
                let mac = entry.mac;
                self.schedule(key, Some(now + RETRANSMIT));
                self.ask(facts, key.1, mac, out);
            }
            State::Incomplete | State::Probe if entry.asked < ASKS => {
                entry.asked += 1;
                let mac = entry.mac;
                self.schedule(key, Some(now + RETRANSMIT));
                self.ask(facts, key.1, mac, out);
            }
            State::Incomplete | State::Probe => {
                self.remove(key.0, key.1, out);
            }
        }
    }

    /// Notes what a neighbour's MAC address is. Tells so when that is new.
    pub(super) fn learn(
        &mut self,
        now: Duration,
        key: Key,
        mac: MacAddress,
        state: State,
        out: &mut Vec<Action<P>>,
    ) {
        let is_new = !self.entries.contains_key(&key);
        if is_new && !self.make_room() {
            return;
        }
        let entry = self.entries.entry(key).or_insert_with(|| Entry {
            state,
            mac: None,
            waiting: VecDeque::new(),
            asked: 0,
            heard: now,
            due: None,
        });
        if entry.state == State::Permanent && state != State::Permanent {
            return;
        }
        let is_other = entry.mac != Some(mac);
        entry.mac = Some(mac);
        // What somebody says unasked takes nothing from what was confirmed, unless it says something else
        // (RFC 4861, section 7.2.3).
        if state != State::Stale || is_other {
            entry.state = state;
            entry.heard = now;
        }
        let packets: Vec<P> = entry.waiting.drain(..).collect();
        let state = entry.state;
        if is_other || !packets.is_empty() {
            let (interface, address) = key;
            out.push(Action::Found {
                interface,
                address,
                mac,
                packets,
            });
        }
        let due = match state {
            State::Reachable => Some(now + self.reachable_time()),
            State::Stale => Some(now + DELAY),
            State::Permanent => None,
            State::Incomplete | State::Probe => return,
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

    fn may_ask(&mut self, now: Duration) -> bool {
        let most = u64::from(self.limits.asks_per_second) * 1_000_000;
        let since = now.saturating_sub(self.filled).as_micros() as u64;
        self.filled = now;
        let more = since.saturating_mul(u64::from(self.limits.asks_per_second));
        self.tokens = self.tokens.saturating_add(more).min(most);
        let may = self.tokens >= 1_000_000;
        if may {
            self.tokens -= 1_000_000;
        } else {
            self.counts.not_asked += 1;
        }
        may
    }

    fn make_room(&mut self) -> bool {
        let has_room = self.entries.len() < self.limits.neighbours;
        self.counts.no_room += u64::from(!has_room);
        has_room
    }
}
