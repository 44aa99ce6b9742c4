// SPDX-License-Identifier: Apache-2.0
//! Connection tracking of a forwarding thread, in the filter stage: classify, apply rules, create the connections of accepted frames.
//!
//! The tracker sees packets to external addresses of NAT and of prefix translation, and to virtual endpoints of load balancers, with their
//! inside destination, so that both directions of a connection have the inside endpoint.

use std::net::SocketAddr;

use quietwire_dpdk::{BURST_MAX, Burst, cycles};
use quietwire_tables::connections::{
    Connection, ConnectionFilter, ConnectionInfo, Counters, CtState, NewShare, Packet, Timeouts,
    Tracked, Tracker,
};
use quietwire_tables::filter::{
    Continued, Dropped, NameFlows, PortRules, ThreadFrames, Verdict, Verdicts,
};

use super::nat::{NatCopy, NatStage};
use super::saved::Transfer;
use super::sessions::{externals_of, pass_sessions};
use super::translate::TranslatorsView;

/// Steps of the timer wheel per burst.
const EXPIRY_STEPS: usize = 64;

/// The tracker of a thread, and space for a burst.
#[derive(Debug)]
pub(crate) struct ConnectionStage {
    tracker: Tracker,
    packets: [Packet; BURST_MAX],
    /// Hashes of the packets.
    hashes: [u64; BURST_MAX],
    tracked: [Tracked; BURST_MAX],
    /// Tracked packets of the burst.
    count: usize,
    /// Places of those that begin connections, one bit each.
    first: u64,
    /// Labels of the connections of a burst, for rules that compare them.
    labels: [u128; BURST_MAX],
    copy: NatCopy,
    /// Limit of the time for frames that begin connections, if there is one.
    new_share: Option<NewShare>,
}

/// A request of the control thread. Its list has space for the results.
#[derive(Debug)]
pub(crate) struct ConnectionQuery {
    /// Connections to list or to remove.
    pub(crate) filter: ConnectionFilter,
    /// Removes them.
    pub(crate) is_flush: bool,
    /// Position in the table; `None` at the end.
    pub(crate) from: Option<u32>,
    /// Entries to read.
    pub(crate) budget: usize,
    /// Listed connections. The forwarding thread never exceeds its capacity.
    pub(crate) list: Vec<ConnectionInfo>,
    /// External endpoints of the sources and destinations of the listed connections. It has as much space.
    pub(crate) external: Vec<[Option<SocketAddr>; 2]>,
    /// Removed connections.
    pub(crate) removed: u64,
    /// Connections to save or to restore, instead.
    pub(crate) transfer: Transfer,
    /// Numbers of the tracker.
    pub(crate) totals: ConnectionTotals,
}

impl ConnectionQuery {
    /// Returns true if a list has no space for further connections.
    pub(crate) fn is_full(&self) -> bool {
        match &self.transfer {
            Transfer::None => !self.is_flush && self.list.len() >= self.list.capacity(),
            Transfer::Save(list) => list.len() >= list.capacity(),
            Transfer::Restore(..) => false,
            Transfer::Replicated(replicated) => replicated.is_full(),
        }
    }
}

/// Numbers of a tracker.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnectionTotals {
    pub(crate) connections: u64,
    pub(crate) half_open: u64,
    pub(crate) max_entries: u64,
    pub(crate) octets: u64,
    pub(crate) counters: Counters,
}

impl ConnectionTotals {
    /// Adds the numbers of another thread.
    pub(crate) fn add(&mut self, other: &Self) {
        self.connections = self.connections.saturating_add(other.connections);
        self.half_open = self.half_open.saturating_add(other.half_open);
        self.max_entries = self.max_entries.saturating_add(other.max_entries);
        self.octets = self.octets.saturating_add(other.octets);
        self.counters.add(&other.counters);
    }
}

/// Reads the labels of the connections of packets.
#[inline(never)]
fn read_labels(tracker: &Tracker, tracked: &[Tracked], labels: &mut [u128]) {
    for (tracked, label) in tracked.iter().zip(labels) {
        let connection = tracked.connection;
        *label = connection.map_or(0, |connection| tracker.label(connection));
    }
}

/// Sets mark and label of the connection of an accepted packet, if the rule that decided on it sets them.
#[inline(never)]
fn set_values(
    tracker: &mut Tracker,
    connection: Option<Connection>,
    rules: &PortRules,
    verdict: Verdict,
) {
    if let Some(connection) = connection
        && verdict.accepts()
    {
        let (mark, label) = rules.ct_values(verdict);
        if let Some(bits) = mark {
            tracker.set_mark_bits(connection, bits);
        }
        if let Some(bits) = label {
            tracker.set_label(connection, bits);
        }
    }
}

/// Returns the limit of a thread that is not saturated, for a share in percent. `None` without one.
fn limit_of(percent: Option<u32>) -> Option<NewShare> {
    // Without a cycle counter, no time is measured.
    let percent = percent.filter(|_| !cfg!(feature = "without-cycles"));
    percent.map(|percent| NewShare::new(percent, cycles::hz()))
}

impl ConnectionStage {
    /// Creates a stage. `new_share` is the share of the time of a saturated thread for frames that begin connections, percent. `None`: no
    /// limit.
    pub(crate) fn new(tracker: Tracker, new_share: Option<u32>) -> Self {
        Self {
            tracker,
            packets: [Packet::UNTRACKED; BURST_MAX],
            hashes: [0; BURST_MAX],
            tracked: [Tracked::UNTRACKED; BURST_MAX],
            count: 0,
            first: 0,
            labels: [0; BURST_MAX],
            copy: NatCopy::new(),
            new_share: limit_of(new_share),
        }
    }

    /// Sets the timeouts, the maximum number of half-open connections, and the share of the time for frames that begin connections, as
    /// [`Self::new`] does. Connections stay. A saturated thread stays saturated.
    pub(super) fn set_limits(
        &mut self,
        timeouts: Timeouts,
        half_open_max: u32,
        new_share: Option<u32>,
    ) {
        self.tracker.set_timeouts(timeouts);
        self.tracker.limit_half_open(half_open_max);
        match (&mut self.new_share, new_share) {
            (Some(limit), Some(percent)) => limit.set_percent(percent),
            (limit, percent) => *limit = limit_of(percent),
        }
    }

    /// Classifies the packets of a burst.
    #[expect(clippy::arithmetic_side_effects, reason = "at most BURST_MAX frames")]
    pub(super) fn track(
        &mut self,
        burst: &Burst,
        inside: TranslatorsView<'_>,
        (zone, now_s): (u16, u32),
    ) {
        self.tracker.expire(now_s, EXPIRY_STEPS);
        let mut count = 0;
        let received = burst.frames().zip(burst.lengths());
        let results = self.packets.iter_mut().zip(&mut self.hashes);
        for ((octets, length), (packet, hash)) in received.zip(results) {
            let length = length as usize;
            let copy = inside.copy_of(octets, length, &mut self.copy);
            packet.parse(copy.unwrap_or(octets), length, zone);
            if packet.is_fragment() {
                self.tracker.join(packet, octets, zone, now_s);
            }
            // The bucket arrives while the other frames are parsed.
            *hash = self.tracker.hash(packet);
            count += 1;
        }
        let packets = self.packets.get(..count).unwrap_or_default();
        let hashed = (packets, &self.hashes);
        self.first = self.tracker.track_hashed(hashed, now_s, &mut self.tracked);
        self.count = count;
    }

    /// Judges a tracked burst by rules that match on states, marks and labels of connections, and on their names if there is memory for them.
    /// Accepted new connections that have no space are dropped. Rules compare the marks and labels that connections have before the burst.
    #[expect(clippy::arithmetic_side_effects, reason = "at most BURST_MAX frames")]
    pub(super) fn judge(
        &mut self,
        burst: &Burst,
        rules: &PortRules,
        (now_s, names): (u32, Option<&mut NameFlows>),
        (verdicts, continued, frames): (&mut Verdicts, Option<&mut Continued>, &mut ThreadFrames),
    ) -> Dropped {
        let count = self.count;
        let packets = self.packets.get(..count).unwrap_or_default();
        let received = burst.frames().zip(burst.lengths());
        let out = (&mut *verdicts, continued, frames);
        let mut dropped = if rules.has_ct_values() {
            let tracked = self.tracked.get(..count).unwrap_or_default();
            if rules.has_labels() {
                read_labels(&self.tracker, tracked, &mut self.labels);
            }
            rules.judge_marked(received, (tracked, &self.labels), names, out)
        } else if let Some(names) = names {
            rules.judge_named(received, &self.tracked, names, out)
        } else {
            rules.judge_tracked(received, &self.tracked, out)
        };
        let sets_values = rules.sets_ct_values();
        for ((packet, tracked), verdict) in
            packets.iter().zip(&self.tracked).zip(verdicts.iter_mut())
        {
            let mut connection = tracked.connection;
            if tracked.is_first() && verdict.accepts() {
                let made: Result<Connection, _> = self.tracker.commit(packet, now_s);
                match made {
                    Ok(made) => connection = Some(made),
                    Err(refusal) => {
                        *verdict = Verdict::Refused(refusal);
                        dropped.refused += 1;
                    }
                }
            }
            if sets_values {
                set_values(&mut self.tracker, connection, rules, *verdict);
            }
        }
        if self.tracker.has_helpers() {
            self.help(burst, verdicts);
        }
        dropped
    }

    /// Returns true if the time for frames that begin connections is limited now.
    #[inline(always)]
    pub(super) fn is_limited(&self) -> bool {
        let share = self.new_share.as_ref();
        share.is_some_and(NewShare::is_saturated)
    }

    /// Returns the places of the frames of the tracked burst that begin connections if the thread has no time for them, one bit each, so that
    /// [`Self::forget`] and [`Self::has_dropped`] follow. Otherwise 0. `now` is the time behind [`Self::track`].
    pub(super) fn without_time(&mut self, now: u64) -> u64 {
        let counts = (self.count, self.first.count_ones() as usize);
        let share = self.new_share.as_mut();
        match share.is_none_or(|share| share.looked_up(now, counts)) {
            true => 0,
            false => self.first,
        }
    }

    /// Forgets the packets of the frames at these places, one bit each.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "not zero in the loop, and places are below BURST_MAX"
    )]
    pub(super) fn forget(&mut self, places: u64) {
        let mut kept = !places;
        let mut left = 0;
        while kept != 0 {
            let place = kept.trailing_zeros() as usize;
            kept &= kept - 1;
            if place >= self.count {
                break;
            }
            self.packets.copy_within(place..=place, left);
            self.tracked.copy_within(place..=place, left);
            left += 1;
        }
        self.count = left;
    }

    /// Notes that the refused frames have been dropped.
    pub(super) fn has_dropped(&mut self, now: u64) {
        if let Some(share) = &mut self.new_share {
            share.dropped(now);
        }
    }

    /// Notes the number of frames that a receive queue, or the ring of another thread, has returned.
    #[inline(always)]
    pub(super) fn received(&mut self, frames: usize) {
        if let Some(share) = &mut self.new_share {
            share.received(frames);
        }
    }

    /// Begins a burst. `now` is the time before it was received.
    #[inline(always)]
    pub(super) fn begin_burst(&mut self, now: u64) {
        if let Some(share) = &mut self.new_share {
            share.begin(now);
        }
    }

    /// Ends a burst, after its frames were sent.
    #[inline(always)]
    pub(super) fn end_burst(&mut self, now: u64) {
        if let Some(share) = &mut self.new_share {
            share.end(now);
        }
    }

    /// Ends a turn of the thread.
    #[inline(always)]
    pub(super) fn end_turn(&mut self, now: u64, is_idle: bool) {
        if let Some(share) = &mut self.new_share {
            share.end_turn(now, is_idle);
        }
    }

    /// Gives each frame of the judged burst the state, mark and label of its connection, for rules of frames that leave: `output`. `input` are
    /// the rules of the verdicts.
    #[inline(never)]
    pub(super) fn classify(
        &self,
        burst: &mut Burst,
        (input, output): (&PortRules, &PortRules),
        verdicts: &Verdicts,
    ) {
        let has_labels = output.has_labels();
        let tracked = self.tracked.iter().zip(verdicts);
        burst.set_classes(tracked.map(|(tracked, verdict)| {
            let label = match tracked.connection {
                Some(connection) if has_labels => self.tracker.label(connection),
                _ => 0,
            };
            let values = input.values_after(tracked, label, *verdict);
            output.class_of(tracked.state, values)
        }));
    }

    /// Lets helpers read the accepted packets of a burst.
    #[cold]
    fn help(&mut self, burst: &Burst, verdicts: &Verdicts) {
        let frames = burst.frames().zip(burst.lengths()).zip(verdicts);
        let packets = self.packets.iter().zip(&self.tracked);
        for (((octets, length), verdict), (packet, tracked)) in frames.zip(packets) {
            if verdict.accepts() {
                self.tracker
                    .help(packet, tracked, (octets, length as usize));
            }
        }
    }

    /// Returns true if a SYN in the frame with this number of the last burst begins a connection.
    pub(super) fn begins(&self, number: usize) -> bool {
        let tracked = self.tracked.get(number);
        tracked.is_some_and(|one| {
            matches!(
                one.state,
                CtState::New | CtState::Related | CtState::Untracked
            )
        })
    }

    /// Passes sessions of NAT that have begun and ended on to the log.
    #[inline(always)]
    pub(super) fn pass_sessions(&mut self, nat: Option<&mut NatStage>) {
        if self.tracker.has_session_work() {
            pass_sessions(&mut self.tracker, nat);
        }
    }

    /// Executes a part of a request. Allocates nothing.
    pub(super) fn answer(
        &mut self,
        query: &mut ConnectionQuery,
        nat: Option<&NatStage>,
        now_s: u32,
    ) {
        self.tracker.expire(now_s, EXPIRY_STEPS);
        if let Some(from) = query.from {
            self.answer_from((from, now_s), query, nat);
        }
        query.totals = ConnectionTotals {
            connections: self.tracker.len() as u64,
            half_open: u64::from(self.tracker.half_open()),
            max_entries: self.tracker.capacity() as u64,
            octets: self.tracker.octets() as u64,
            counters: *self.tracker.counters(),
        };
    }

    /// Lists, saves, restores or removes connections from a position on.
    fn answer_from(
        &mut self,
        (from, now_s): (u32, u32),
        query: &mut ConnectionQuery,
        nat: Option<&NatStage>,
    ) {
        if !matches!(query.transfer, Transfer::None) {
            let part = (from, query.budget);
            query.from = query.transfer.run(&mut self.tracker, part, now_s);
        } else if query.is_flush {
            let (removed, next) = self.tracker.flush(&query.filter, from, query.budget);
            query.removed = query.removed.saturating_add(removed as u64);
            query.from = next;
        } else {
            let limits = (query.list.capacity(), query.budget);
            query.from = self
                .tracker
                .list_into(&query.filter, from, limits, &mut query.list);
            let before = query.external.len();
            for info in query.list.iter().skip(before) {
                let ends = (info.source, info.destination);
                // It has as much space as the list.
                query.external.push(externals_of(nat, info.protocol, ends));
            }
        }
    }
}
