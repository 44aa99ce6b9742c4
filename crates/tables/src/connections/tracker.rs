// SPDX-License-Identifier: Apache-2.0
//! The tracker: lookups and updates of bursts, new connections, expiry and early drops.

mod labels;
mod restore;
mod sessions;
mod standby;

use quietwire_base::BURST_MAX;
use quietwire_memory::prefetch;

use super::entry::{Entry, NONE};
use super::helpers::Helpers;
use super::joined::Joined;
use super::key::{Endpoint, Key, Secret};
use super::names::{CtState, Direction, Helper, InvalidReason, Refusal, State};
use super::noted::Noted;
use super::packet::{Kind, Packet};
use super::sessions::Sessions;
use super::settings::{ENTRIES_MAX, Seconds, Settings, SettingsError, SourceLimits, Timeouts};
use super::sources::{SourceId, Sources};
use super::tcp::{self, Side, Step};
use super::wheel::{Due, Wheel};
use super::zones::Zones;
use crate::arena::zeroed;
use crate::changes::ChangeRing;
use crate::hash_index::Index;

pub use restore::RestoreError;
pub use sessions::WaitingSession;

/// Handle of a connection. A handle of an ended connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Connection {
    pub(super) index: u32,
    pub(super) generation: u16,
}

/// Result of the tracker for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracked {
    /// Class of the packet.
    pub state: CtState,
    /// Reason of [`CtState::Invalid`].
    pub reason: Option<InvalidReason>,
    /// Direction of the packet within its connection; of a related error, that of the packet that it is about.
    pub direction: Direction,
    /// The connection. A new or related packet without one requires [`Tracker::commit`] once it is accepted.
    pub connection: Option<Connection>,
    /// Mark of the connection.
    pub mark: u32,
}

impl Tracked {
    /// A packet that is not tracked.
    pub const UNTRACKED: Self = Self::without_connection(CtState::Untracked, None);
    const NEW: Self = Self::without_connection(CtState::New, None);
    const EXPECTED: Self = Self::without_connection(CtState::Related, None);

    const fn without_connection(state: CtState, reason: Option<InvalidReason>) -> Self {
        Self {
            state,
            reason,
            direction: Direction::Original,
            connection: None,
            mark: 0,
        }
    }

    const fn invalid(reason: InvalidReason) -> Self {
        Self::without_connection(CtState::Invalid, Some(reason))
    }

    /// Returns true for the first packet of a connection, which requires [`Tracker::commit`] once it is accepted.
    #[inline(always)]
    #[must_use]
    pub const fn is_first(&self) -> bool {
        matches!(self.state, CtState::New | CtState::Related) && self.connection.is_none()
    }
}

/// Counters of a tracker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets by class.
    pub packets: [u64; CtState::ALL.len()],
    /// Invalid packets by reason.
    pub invalid: [u64; InvalidReason::ALL.len()],
    /// Refused connections by reason.
    pub refused: [u64; Refusal::ALL.len()],
    /// New connections.
    pub created: u64,
    /// Connections that expired.
    pub expired: u64,
    /// Connections dropped early because the table or a zone was full, for the sake of new ones.
    pub dropped_early: u64,
    /// Half-open connections dropped at their limit, for the sake of new ones.
    pub dropped_half_open: u64,
    /// Connections removed by request.
    pub flushed: u64,
}

impl Counters {
    /// Adds the counts of another tracker.
    pub fn add(&mut self, other: &Self) {
        let sum = |counts: &mut [u64], others: &[u64]| {
            for (count, more) in counts.iter_mut().zip(others) {
                *count = count.wrapping_add(*more);
            }
        };
        sum(&mut self.packets, &other.packets);
        sum(&mut self.invalid, &other.invalid);
        sum(&mut self.refused, &other.refused);
        self.created = self.created.wrapping_add(other.created);
        self.expired = self.expired.wrapping_add(other.expired);
        self.dropped_early = self.dropped_early.wrapping_add(other.dropped_early);
        self.dropped_half_open = self.dropped_half_open.wrapping_add(other.dropped_half_open);
        self.flushed = self.flushed.wrapping_add(other.flushed);
    }
}

/// Half-open connections that end for a new one at most. Two, so that their number returns to the limit after it has exceeded it.
const HALF_OPEN_VICTIMS: usize = 2;

/// Connection tracker of one forwarding thread. [`Tracker::new`] makes all allocations.
#[derive(Debug)]
pub struct Tracker {
    pub(super) entries: Box<[Entry]>,
    index: Index,
    secret: Secret,
    wheel: Wheel,
    zones: Zones,
    /// Maximum number of half-open connections.
    half_open_max: u32,
    timeouts: Timeouts,
    /// Unused entries.
    free: Vec<u32>,
    /// Datagrams whose first fragment has arrived.
    joined: Joined,
    /// Sources of connections, if they are limited.
    sources: Option<Box<Sources>>,
    /// Helpers, if there are any.
    helpers: Option<Box<Helpers>>,
    /// Labels of entries, if there are any.
    labels: Option<Box<[u128]>>,
    /// Changes for a standby, if they are wanted.
    changes: Option<Box<ChangeRing<Noted>>>,
    /// Sessions of NAT, if a log has them.
    sessions: Option<Box<Sessions>>,
    now: Seconds,
    counters: Counters,
}

impl Tracker {
    /// Creates a tracker without connections, with all of its memory.
    ///
    /// # Errors
    /// [`SettingsError`].
    pub fn new(settings: &Settings) -> Result<Self, SettingsError> {
        settings.check()?;
        let mut entries = zeroed::<Entry>(settings.entries_max as usize)?;
        // The kernel provides the pages now, and not when packets arrive.
        entries.fill(Entry::default());
        Ok(Self {
            entries,
            index: Index::new(settings.entries_max)?,
            secret: Secret::random(),
            wheel: Wheel::new(),
            zones: Zones::new(&settings.zone_limits),
            half_open_max: u32::MAX,
            timeouts: settings.timeouts,
            free: (0..settings.entries_max).rev().collect(),
            joined: Joined::new(),
            sources: None,
            helpers: None,
            labels: None,
            changes: None,
            sessions: None,
            now: 0,
            counters: Counters::default(),
        })
    }

    /// Returns the number of connections, including expired ones that [`Tracker::expire`] has not yet removed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len().saturating_sub(self.free.len())
    }

    /// Returns true if there are no connections.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the maximum number of connections.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Returns the memory of entries and index, octets.
    #[must_use]
    pub fn octets(&self) -> usize {
        let parts = [
            size_of_val(&self.entries[..]),
            self.index.octets(),
            self.free.capacity().saturating_mul(size_of::<u32>()),
            self.joined.octets(),
            self.sources.as_ref().map_or(0, |sources| sources.octets()),
            self.helpers.as_ref().map_or(0, |helpers| helpers.octets()),
            self.labels
                .as_ref()
                .map_or(0, |labels| size_of_val(&labels[..])),
            self.sessions.as_ref().map_or(0, |one| one.octets()),
        ];
        parts.into_iter().fold(0, usize::saturating_add)
    }

    /// Reads the data of these protocols, to expect the connections that it announces: [`Tracker::help`].
    pub fn allow_helpers(&mut self, helpers: &[Helper]) {
        self.helpers = (!helpers.is_empty()).then(|| Box::new(Helpers::new(helpers)));
    }

    /// Returns true if there are helpers, which require [`Tracker::help`].
    #[inline(always)]
    #[must_use]
    pub fn has_helpers(&self) -> bool {
        self.helpers.is_some()
    }

    /// Lets helpers read the data of an accepted packet that has been tracked. `octets` are those of the first buffer of its frame, `length` is
    /// that of the frame.
    pub fn help(&mut self, packet: &Packet, tracked: &Tracked, (octets, length): (&[u8], usize)) {
        let has_data = matches!(tracked.state, CtState::New | CtState::Established);
        if let Some(helpers) = &mut self.helpers
            && has_data
        {
            let ends = endpoints(&packet.key, packet.is_from_higher);
            let place = (ends, tracked.direction);
            helpers.read(packet, place, (octets, length), self.now);
        }
    }

    /// Limits the connections that each source address may have begun at a time, in each zone. The tracker must have no connections. It
    /// takes 32 octets more for each connection, and 8 to 16 for an index.
    ///
    /// # Errors
    /// [`SettingsError::Memory`].
    pub fn limit_sources(&mut self, limits: SourceLimits) -> Result<(), SettingsError> {
        let entries = u32::try_from(self.entries.len()).unwrap_or(ENTRIES_MAX);
        self.sources = Some(Box::new(Sources::new(limits, entries)?));
        Ok(())
    }

    /// Limits the half-open connections of all zones ([`State::is_half_open`]). At the limit, a new connection replaces the oldest half-open
    /// one: of its zone, or else of the next zone that has one.
    pub fn limit_half_open(&mut self, limit: u32) {
        self.half_open_max = limit.max(1);
    }

    /// Sets the timeouts. A connection expires by the former timeout of its state until its next packet.
    pub fn set_timeouts(&mut self, timeouts: Timeouts) {
        self.timeouts = timeouts;
    }

    /// Returns the number of half-open connections, including expired ones that [`Tracker::expire`] has not yet removed.
    #[must_use]
    pub const fn half_open(&self) -> u32 {
        self.zones.half_open()
    }

    /// Returns the number of connections of a zone and its limit; `None` if there is no such zone.
    #[must_use]
    pub fn zone_usage(&self, zone: u16) -> Option<(u32, u32)> {
        self.zones.usage(zone)
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Classifies the packets of a burst, in order, and updates their connections. At most [`BURST_MAX`] packets; results of further
    /// packets do not change.
    pub fn track(&mut self, packets: &[Packet], now: Seconds, tracked: &mut [Tracked]) {
        let mut hashes = [0; BURST_MAX];
        for (packet, hash) in packets.iter().zip(&mut hashes) {
            *hash = self.hash(packet);
        }
        let _first = self.track_hashed((packets, &hashes), now, tracked);
    }

    /// Returns the hash of a packet for [`Self::track_hashed`], and prefetches what its lookup reads first.
    #[inline(always)]
    #[must_use]
    pub fn hash(&self, packet: &Packet) -> u64 {
        let hash = self.secret.hash(&packet.key);
        self.index.prefetch(hash);
        hash
    }

    /// Does what [`Self::track`] does, with the hashes of the packets: those of [`Self::hash`] of this tracker. Returns the places of the first
    /// packets of connections ([`Tracked::is_first`]), one bit each, from the lowest bit on.
    ///
    /// Packets without an entry change nothing, so they follow the others: each of the two loops has the branches of one kind of packets.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "not zero in the loops, and places are below BURST_MAX"
    )]
    #[must_use]
    pub fn track_hashed(
        &mut self,
        (packets, hashes): (&[Packet], &[u64; BURST_MAX]),
        now: Seconds,
        tracked: &mut [Tracked],
    ) -> u64 {
        self.now = self.now.max(now);
        let mut first = 0_u64;
        let count = packets.len().min(tracked.len()).min(BURST_MAX);
        let mut candidates = [0; BURST_MAX];
        let (mut present, mut absent) = (0_u64, 0_u64);
        for (place, (hash, entry)) in hashes.iter().zip(&mut candidates).take(count).enumerate() {
            let (candidate, may_have) = self.index.candidate(*hash);
            *entry = candidate;
            present |= u64::from(may_have) << place;
            absent |= u64::from(!may_have) << place;
            if let Some(entry) = self.entries.get(candidate as usize) {
                prefetch(entry);
                prefetch(&entry.sides);
            }
        }
        while present != 0 {
            let place = present.trailing_zeros() as usize;
            present &= present - 1;
            if let (Some(packet), Some(result)) = (packets.get(place), tracked.get_mut(place))
                && let (Some(hash), Some(candidate)) = (hashes.get(place), candidates.get(place))
            {
                let live = self.live(packet, (*hash, *candidate));
                *result = self.track_one(packet, live);
                first |= u64::from(result.is_first()) << place;
            }
        }
        while absent != 0 {
            let place = absent.trailing_zeros() as usize;
            absent &= absent - 1;
            if let (Some(packet), Some(result)) = (packets.get(place), tracked.get_mut(place)) {
                *result = self.track_one(packet, None);
                first |= u64::from(result.is_first()) << place;
            }
        }
        first
    }

    /// Notes the connection of a first fragment, and gives a later one that of the first. `frame` is the frame as it was received, even if
    /// `packet` has been read from a copy with other addresses. Packets that are no fragments, and later fragments of unknown datagrams,
    /// stay as they are.
    pub fn join(&mut self, packet: &mut Packet, frame: &[u8], zone: u16, now: Seconds) {
        self.joined.join(packet, frame, zone, now);
    }

    fn count(&mut self, tracked: &Tracked) {
        add_one(&mut self.counters.packets, tracked.state as usize);
        if let Some(reason) = tracked.reason {
            add_one(&mut self.counters.invalid, reason as usize);
        }
    }

    /// Classifies and counts a packet with the entry of its key, if it has not expired.
    #[inline(always)]
    fn track_one(&mut self, packet: &Packet, live: Option<u32>) -> Tracked {
        let tracked = self.classify(packet, live);
        self.count(&tracked);
        tracked
    }

    #[inline(always)]
    fn classify(&mut self, packet: &Packet, live: Option<u32>) -> Tracked {
        match (packet.kind, live) {
            (Kind::Untracked, _) => Tracked::UNTRACKED,
            (Kind::Invalid(reason), _) => Tracked::invalid(reason),
            (Kind::Error(sequence), _) => self.track_error(packet, live, sequence),
            (_, Some(index)) => self.update(packet, index),
            // The first fragment may have to be committed.
            (Kind::Later(_), None) => Tracked::NEW,
            (_, None) => match opening_state(packet) {
                Ok(_) => self.first(packet),
                Err(reason) => Tracked::invalid(reason),
            },
        }
    }

    /// Classifies the first packet of a connection.
    #[inline(always)]
    fn first(&self, packet: &Packet) -> Tracked {
        let expects = |helpers: &Helpers| {
            let ends = endpoints(&packet.key, packet.is_from_higher);
            helpers.expects(packet, ends, self.now)
        };
        match &self.helpers {
            Some(helpers) if expects(helpers) => Tracked::EXPECTED,
            _ => Tracked::NEW,
        }
    }

    /// Finds the entry of a packet with this hash and candidate, if it has not expired.
    #[inline(always)]
    fn live(&self, packet: &Packet, (hash, candidate): (u64, u32)) -> Option<u32> {
        let entries = &self.entries;
        let is_entry = |index: u32| {
            entries
                .get(index as usize)
                .is_some_and(|entry| entry.key.is(&packet.key))
        };
        // Entry 0, which stands for none, may have a key that it had before it ended.
        let index = match candidate > 0 && is_entry(candidate) {
            true => candidate,
            false => self.index.find(hash, is_entry)?,
        };
        let is_live = self.entries.get(index as usize)?.expires_at > self.now;
        is_live.then_some(index)
    }

    /// Applies a packet to its connection.
    #[inline(always)]
    fn update(&mut self, packet: &Packet, index: u32) -> Tracked {
        let Some(entry) = self.entries.get_mut(index as usize) else {
            return Tracked::invalid(InvalidReason::NoConnection);
        };
        let Some(state) = entry.state() else {
            return Tracked::invalid(InvalidReason::NoConnection);
        };
        let direction = entry.direction(packet.is_from_higher);
        if let Kind::Later(end) = packet.kind {
            return follow(entry, index, direction, (end, packet.octets));
        }
        let step = match next_state(entry, state, direction, packet) {
            Ok(step) => step,
            Err(reason) => return Tracked::invalid(reason),
        };
        if step == Step::Reopen {
            return self.first(packet);
        }
        entry.count(direction, packet.octets);
        if direction == Direction::Reply {
            entry.set_replied();
        }
        let tracked = Tracked {
            state: entry.class(),
            reason: None,
            direction,
            connection: Some(Connection {
                index,
                generation: entry.generation,
            }),
            mark: entry.mark,
        };
        if let Step::Enter(next) = step {
            self.enter(index, state, next);
        }
        tracked
    }

    /// Sets the state of an entry, and its time of expiry.
    #[inline(always)]
    fn enter(&mut self, index: u32, former: State, next: State) {
        let expires_at = self.expiry_after(self.timeouts.of(next));
        self.wheel.set(&mut self.entries, index, expires_at);
        if former != next {
            self.change_state(index, former, next);
        }
    }

    #[cold]
    fn change_state(&mut self, index: u32, former: State, next: State) {
        let Some(entry) = self.entries.get_mut(index as usize) else {
            return;
        };
        entry.set_state(next);
        let zone = entry.key.zone();
        if let Some(sources) = &mut self.sources {
            sources.change(source_of(entry), former, next);
        }
        let (from, to) = (former.eviction(), next.eviction());
        if from != to {
            self.zones.remove(&mut self.entries, zone, from, index);
            self.zones.add(&mut self.entries, zone, to, index);
        }
        self.note_change(index);
        self.note_session(index);
    }

    /// Finds the connection of the packet that an ICMP error is about. The error changes nothing (RFC 5927): it extends no timeout.
    fn track_error(&self, packet: &Packet, live: Option<u32>, sequence: Option<u32>) -> Tracked {
        let unrelated = Tracked::invalid(InvalidReason::Unrelated);
        let Some((index, entry)) =
            live.and_then(|index| Some((index, self.entries.get(index as usize)?)))
        else {
            return unrelated;
        };
        let direction = entry.direction(packet.is_from_higher);
        let [original, reply] = &entry.sides;
        let (from, to) = match direction {
            Direction::Original => (original, reply),
            Direction::Reply => (reply, original),
        };
        let has_sent_none = direction == Direction::Reply && !entry.is_replied();
        if has_sent_none || sequence.is_some_and(|sequence| !from.has_sent(sequence, to)) {
            return unrelated;
        }
        Tracked {
            state: CtState::Related,
            reason: None,
            direction,
            connection: Some(Connection {
                index,
                generation: entry.generation,
            }),
            mark: entry.mark,
        }
    }

    /// Creates the connection of a packet that [`Tracker::track`] classified as a first one ([`Tracked::is_first`]), and that has been
    /// accepted. If an earlier packet of the burst has created it, applies the packet to it.
    ///
    /// # Errors
    /// [`Refusal`]: the packet should be dropped.
    pub fn commit(&mut self, packet: &Packet, now: Seconds) -> Result<Connection, Refusal> {
        self.now = self.now.max(now);
        let made = self.try_commit(packet);
        if let Err(refusal) = made {
            add_one(&mut self.counters.refused, refusal as usize);
        }
        made
    }

    fn try_commit(&mut self, packet: &Packet) -> Result<Connection, Refusal> {
        let hash = self.secret.hash(&packet.key);
        let entries = &self.entries;
        let is_entry = |index: u32| {
            entries
                .get(index as usize)
                .is_some_and(|entry| entry.key.is(&packet.key))
        };
        if let Some(index) = self.index.find(hash, is_entry) {
            let is_live = self
                .entries
                .get(index as usize)
                .is_some_and(|entry| entry.expires_at > self.now);
            if is_live {
                let tracked = self.update(packet, index);
                if let Some(connection) = tracked.connection {
                    return Ok(connection);
                }
                if tracked.state == CtState::Invalid {
                    return Err(Refusal::Conflict);
                }
            } else {
                self.counters.expired = self.counters.expired.wrapping_add(1);
            }
            // Expired, or closed and begun again.
            self.remove(index);
        }
        self.create(packet, hash)
    }

    fn create(&mut self, packet: &Packet, hash: u64) -> Result<Connection, Refusal> {
        let Ok(state) = opening_state(packet) else {
            return Err(Refusal::Conflict);
        };
        let zone = packet.key.zone();
        let source = (
            endpoints(&packet.key, packet.is_from_higher)[0].address,
            zone,
        );
        if let Some(sources) = &self.sources {
            sources.check(source)?;
        }
        self.make_space(zone)?;
        self.end_half_open(zone);
        let index = self.free.last().copied().ok_or(Refusal::TableFull)?;
        if !self.index.insert(hash, index) {
            return Err(Refusal::TableFull);
        }
        self.free.pop();
        self.counters.created = self.counters.created.wrapping_add(1);
        let expires_at = self.expiry_after(self.timeouts.of(state));
        let Some(entry) = self.entries.get_mut(index as usize) else {
            return Err(Refusal::TableFull);
        };
        entry.begin(packet.key, packet.is_from_higher, state);
        entry.expires_at = expires_at;
        entry.sides = match packet.kind {
            Kind::Tcp(segment) => [Side::opening(&segment), Side::default()],
            _ => [Side::default(); 2],
        };
        entry.count(Direction::Original, packet.octets);
        let generation = entry.generation;
        self.wheel.add(&mut self.entries, index);
        if let Some(sources) = &mut self.sources {
            sources.add(source, state);
        }
        self.zones.count(zone);
        self.zones
            .add(&mut self.entries, zone, state.eviction(), index);
        if let Some(helpers) = &mut self.helpers {
            let ends = endpoints(&packet.key, packet.is_from_higher);
            if helpers.take(packet, ends, self.now)
                && let Some(entry) = self.entries.get_mut(index as usize)
            {
                entry.set_expected();
            }
        }
        self.note_session(index);
        Ok(Connection { index, generation })
    }

    /// Drops an entry early if the zone or the table is full.
    fn make_space(&mut self, zone: u16) -> Result<(), Refusal> {
        let (count, limit) = self.zones.usage(zone).ok_or(Refusal::NoZone)?;
        let victim = if count >= limit {
            self.zones.victim_in(zone).ok_or(Refusal::ZoneFull)?
        } else if self.free.is_empty() {
            let victim = self.zones.victim_in(zone);
            victim
                .or_else(|| self.zones.victim_elsewhere(zone))
                .ok_or(Refusal::TableFull)?
        } else {
            return Ok(());
        };
        self.remove(victim);
        self.counters.dropped_early = self.counters.dropped_early.wrapping_add(1);
        Ok(())
    }

    /// Drops the oldest half-open connections if there are as many as allowed.
    fn end_half_open(&mut self, zone: u16) {
        for _ in 0..HALF_OPEN_VICTIMS {
            if self.zones.half_open() < self.half_open_max {
                return;
            }
            let Some(victim) = self.zones.half_open_victim(zone) else {
                return;
            };
            self.remove(victim);
            self.counters.dropped_half_open = self.counters.dropped_half_open.wrapping_add(1);
        }
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, index: u32) {
        self.note_end(index);
        self.note_session_end(index);
        let Some(entry) = self.entries.get_mut(index as usize) else {
            return;
        };
        let Some(state) = entry.state() else {
            return;
        };
        let (hash, zone) = (self.secret.hash(&entry.key), entry.key.zone());
        if let Some(sources) = &mut self.sources {
            sources.remove(source_of(entry), state);
        }
        entry.end();
        self.index.remove(hash, index);
        self.wheel.remove(&mut self.entries, index);
        self.zones
            .remove(&mut self.entries, zone, state.eviction(), index);
        self.zones.discount(zone);
        // Has space for all entries.
        self.free.push(index);
    }

    /// Removes expired connections: at most `budget` steps, each an entry or an empty slot of the timer wheel. Returns the number of
    /// removed connections.
    pub fn expire(&mut self, now: Seconds, budget: usize) -> usize {
        self.now = self.now.max(now);
        let mut removed = 0usize;
        for _ in 0..budget {
            match self.wheel.due(self.now) {
                Due::Nothing => break,
                Due::Moved => {}
                Due::Entry(index) => {
                    removed = removed.saturating_add(usize::from(self.expire_one(index)));
                }
            }
        }
        self.counters.expired = self.counters.expired.wrapping_add(removed as u64);
        removed
    }

    fn expire_one(&mut self, index: u32) -> bool {
        let expires_at = self
            .entries
            .get(index as usize)
            .map_or(0, |entry| entry.expires_at);
        let has_expired = expires_at <= self.now;
        if has_expired {
            self.remove(index);
        } else {
            self.wheel.remove(&mut self.entries, index);
            self.wheel.add(&mut self.entries, index);
        }
        has_expired
    }

    /// Returns the entry of a handle.
    pub(super) fn entry(&self, connection: Connection) -> Option<&Entry> {
        let entry = self.entries.get(connection.index as usize)?;
        let is_same = entry.generation == connection.generation && entry.state().is_some();
        is_same.then_some(entry)
    }

    /// Sets the mark of a connection. Returns false if the connection has ended.
    pub fn set_mark(&mut self, connection: Connection, mark: u32) -> bool {
        if self.entry(connection).is_none() {
            return false;
        }
        let Some(entry) = self.entries.get_mut(connection.index as usize) else {
            return false;
        };
        entry.mark = mark;
        self.note_change(connection.index);
        true
    }

    /// Counts a connection that was removed by request, and removes it.
    pub(super) fn flush_one(&mut self, index: u32) {
        self.remove(index);
        self.counters.flushed = self.counters.flushed.wrapping_add(1);
    }

    /// Returns the first second at which an entry has expired whose timeout begins now.
    #[inline(always)]
    fn expiry_after(&self, timeout_s: u32) -> Seconds {
        self.now.saturating_add(timeout_s).saturating_add(1)
    }

    /// Returns the current second.
    pub(super) const fn now(&self) -> Seconds {
        self.now
    }
}

/// Counts one at a place of counters.
#[inline(always)]
fn add_one<const N: usize>(counters: &mut [u64; N], place: usize) {
    if let Some(count) = counters.get_mut(place) {
        *count = count.wrapping_add(1);
    }
}

/// Returns the endpoints of a key, that of the sender first.
fn endpoints(key: &Key, is_from_higher: bool) -> [Endpoint; 2] {
    let [lower, higher] = key.endpoints();
    if is_from_higher {
        [higher, lower]
    } else {
        [lower, higher]
    }
}

/// Returns the source that has begun a connection.
fn source_of(entry: &Entry) -> SourceId {
    let is_from_higher = entry.direction(true) == Direction::Original;
    let [source, _] = endpoints(&entry.key, is_from_higher);
    (source.address, entry.key.zone())
}

/// Returns the state that the first packet of a connection leads to.
#[inline(always)]
fn opening_state(packet: &Packet) -> Result<State, InvalidReason> {
    match packet.kind {
        Kind::Tcp(segment) if !segment.has_valid_flags() => Err(InvalidReason::Flags),
        Kind::Tcp(segment) if segment.is_opening() => Ok(State::TcpSynSent),
        Kind::Udp => Ok(State::UdpUnreplied),
        Kind::EchoRequest => Ok(State::IcmpUnreplied),
        Kind::Other => Ok(State::OtherUnreplied),
        Kind::Invalid(reason) => Err(reason),
        Kind::Tcp(_) | Kind::EchoReply | Kind::Error(_) | Kind::Later(_) | Kind::Untracked => {
            Err(InvalidReason::NoConnection)
        }
    }
}

/// Applies a later fragment to the connection of the first one. It changes no state, and extends no timeout.
#[cold]
fn follow(
    entry: &mut Entry,
    index: u32,
    direction: Direction,
    (end, octets): (Option<u32>, u32),
) -> Tracked {
    entry.count(direction, octets);
    if let Some(end) = end {
        entry.sides_from(direction).0.extend(end);
    }
    Tracked {
        state: entry.class(),
        reason: None,
        direction,
        connection: Some(Connection {
            index,
            generation: entry.generation,
        }),
        mark: entry.mark,
    }
}

/// Returns the next step of a connection.
#[inline(always)]
fn next_state(
    entry: &mut Entry,
    state: State,
    direction: Direction,
    packet: &Packet,
) -> Result<Step, InvalidReason> {
    if let Kind::Tcp(segment) = packet.kind {
        if !segment.has_valid_flags() {
            return Err(InvalidReason::Flags);
        }
        let (from, to) = entry.sides_from(direction);
        return tcp::step(state, direction, from, to, &segment);
    }
    Ok(Step::Enter(match (state, direction) {
        (State::UdpUnreplied, Direction::Reply) => State::UdpReplied,
        (State::IcmpUnreplied, Direction::Reply) => State::IcmpReplied,
        (State::OtherUnreplied, Direction::Reply) => State::OtherReplied,
        _ => state,
    }))
}

// No entry has the number that ends a list.
const _: () = assert!(NONE > ENTRIES_MAX);
