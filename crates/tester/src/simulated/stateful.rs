// SPDX-License-Identifier: Apache-2.0
//! The simulated device as a stateful one: a table of connections with timeouts, and a limit of new connections. The time is simulated,
//! so a run with connections takes only the time to count them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::distribution::{latency_ns, summary};
use super::options::SimOptions;
use crate::connections::{
    Connections, Conversation, ConversationLoad, ConversationOutcome, ConversationRun,
    FRAGMENTED_LOST, ILLEGAL_FORWARDED, Size,
};
use crate::error::TesterError;
use crate::latency::LatencySummary;
use crate::narrow::whole;
use crate::validity::InvalidCause;

/// Packets of a connection without data: handshake, and both FINs with their acknowledgements.
const PACKETS_OF_CONNECTION: f64 = 7.0;
/// Packets for a segment with data: the segment and its acknowledgement.
const PACKETS_OF_SEGMENT: f64 = 2.0;
/// Round trips of a connection with one transaction.
const TRIPS_OF_CONNECTION: f64 = 3.0;
/// Connections opened per second for loads on open connections.
const OPENING_PER_S: f64 = 10_000.0;
/// Excess of a load over what the simulated tester sends, as a ratio, that makes the run invalid.
const EXCESS: f64 = 1.001;

/// Connections in the table, and the limit of new ones.
#[derive(Debug, Default)]
pub(super) struct StateTable {
    /// When entries leave the table, nanoseconds.
    ends: BinaryHeap<Reverse<u64>>,
    /// When the next new connection is within the limit, nanoseconds.
    next_ns: f64,
}

/// Answer to a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    Admitted,
    /// The table is full.
    Full,
    /// The limit of new connections is reached.
    Limited,
}

/// Limits of the table.
#[derive(Clone, Copy, Debug)]
struct TableLimits {
    entries: usize,
    gap_ns: f64,
}

impl StateTable {
    /// Admits a connection at `now`, which leaves the table at `end`, nanoseconds.
    fn admit(&mut self, now: u64, end: u64, limits: TableLimits) -> Admission {
        while self
            .ends
            .peek()
            .is_some_and(|Reverse(earliest)| *earliest <= now)
        {
            self.ends.pop();
        }
        // One connection may come early, and a nanosecond of rounding is no excess.
        if self.next_ns > now as f64 + limits.gap_ns + 1.0 {
            return Admission::Limited;
        }
        if self.ends.len() >= limits.entries {
            return Admission::Full;
        }
        self.next_ns = self.next_ns.max(now as f64) + limits.gap_ns;
        self.ends.push(Reverse(end));
        Admission::Admitted
    }
}

/// Traffic of one connection and of one transaction: means over the mix.
#[derive(Clone, Copy, Debug)]
struct Traffic {
    packets_of_transaction: f64,
    answer: f64,
}

fn mean_octets(size: Size) -> f64 {
    let (smallest, largest) = size.bounds();
    (f64::from(smallest) + f64::from(largest)) / 2.0
}

impl Traffic {
    fn of(description: &Connections, answer: Option<u32>) -> Self {
        let mss = f64::from(description.mss());
        let shares: f64 = description.mix.iter().map(|entry| entry.share).sum();
        let answer_of =
            |entry: &Conversation| answer.map_or_else(|| mean_octets(entry.answer), f64::from);
        let mean = |of: &dyn Fn(&Conversation) -> f64| {
            let parts = description.mix.iter().map(|entry| entry.share * of(entry));
            parts.sum::<f64>() / shares
        };
        let segments = |octets: f64| (octets / mss).ceil().max(1.0);
        Self {
            packets_of_transaction: PACKETS_OF_SEGMENT
                * mean(&|entry| segments(mean_octets(entry.request)) + segments(answer_of(entry))),
            answer: mean(&answer_of),
        }
    }
}

/// Returns the frames per second of the traffic beside the connections.
pub(super) fn background_pps(description: &Connections) -> f64 {
    let illegal = description.illegal.as_ref().map_or(0.0, |it| it.rate);
    let fragments = description.fragments.as_ref();
    illegal + fragments.map_or(0.0, |it| it.rate * f64::from(it.fragments))
}

/// Counts of the connections that were opened.
#[derive(Clone, Copy, Debug, Default)]
struct Opened {
    admitted: u64,
    full: u64,
    limited: u64,
    open_largest: u64,
}

impl Opened {
    fn failed(&self) -> u64 {
        self.full.saturating_add(self.limited)
    }

    fn causes(&self) -> BTreeMap<String, u64> {
        let causes = [("refused", self.full), ("not_established", self.limited)];
        let causes = causes.into_iter().filter(|(_, count)| *count > 0);
        causes
            .map(|(name, count)| (name.to_owned(), count))
            .collect()
    }
}

/// The device in one run.
#[derive(Debug)]
pub(super) struct StatefulDevice<'a> {
    pub(super) options: &'a SimOptions,
    pub(super) states: &'a mut StateTable,
    /// The clock of the simulation, nanoseconds.
    pub(super) clock_ns: &'a mut u64,
    /// Capacity of the device in this run, frames per second.
    pub(super) capacity_pps: f64,
}

impl StatefulDevice<'_> {
    /// Opens connections at a rate. Each leaves the table `lifetime_s` after it was opened.
    fn open_at(&mut self, connections: u64, per_s: f64, lifetime_s: f64) -> Opened {
        let limits = TableLimits {
            entries: self.options.connections as usize,
            gap_ns: 1e9 / self.options.connection_rate,
        };
        let lifetime_ns = whole(lifetime_s * 1e9);
        let mut opened = Opened::default();
        for number in 0..connections {
            let since_ns = whole(number as f64 / per_s * 1e9);
            let now = self.clock_ns.saturating_add(since_ns);
            let end = now.saturating_add(lifetime_ns);
            let count = match self.states.admit(now, end, limits) {
                Admission::Admitted => &mut opened.admitted,
                Admission::Full => &mut opened.full,
                Admission::Limited => &mut opened.limited,
            };
            *count = count.saturating_add(1);
            let open = self.states.ends.len() as u64;
            opened.open_largest = opened.open_largest.max(open);
        }
        opened
    }

    /// Simulates a run with conversations.
    ///
    /// # Errors
    /// [`TesterError::Result`] if the times cannot be summarised.
    pub(super) fn run(
        &mut self,
        run: &ConversationRun,
    ) -> Result<ConversationOutcome, TesterError> {
        let traffic = Traffic::of(&run.description, run.answer);
        let mut outcome = match run.load {
            ConversationLoad::Connections { per_s } => self.connections(run, per_s, traffic),
            ConversationLoad::Open {
                connections,
                opening_per_s,
            } => self.all_open(run, connections, opening_per_s),
            ConversationLoad::Transactions { connections, per_s } => {
                self.transactions(run, connections, per_s, traffic)
            }
            ConversationLoad::Transfer { connections, .. } => {
                self.transfers(run, connections, traffic)
            }
        }?;
        self.add_background(run, &mut outcome);
        Ok(outcome)
    }

    /// Adds the failures of the traffic beside the connections, as the tester counts them.
    fn add_background(&self, run: &ConversationRun, outcome: &mut ConversationOutcome) {
        let Connections {
            illegal, fragments, ..
        } = &run.description;
        let part = |rate: f64, share: f64| whole((rate * run.duration_s * share).round());
        let (forwarded, lost) = (self.options.illegal_forwarded, self.options.fragmented_lost);
        let forwarded = illegal.as_ref().map_or(0, |it| part(it.rate, forwarded));
        let lost = fragments.as_ref().map_or(0, |it| part(it.rate, lost));
        for (name, count) in [(ILLEGAL_FORWARDED, forwarded), (FRAGMENTED_LOST, lost)] {
            if count > 0 {
                outcome.causes.insert(name.to_owned(), count);
            }
        }
        let failed = outcome.failed.saturating_add(forwarded);
        let failed = failed.saturating_add(lost);
        outcome.failed = failed.min(outcome.attempted);
    }

    /// Returns the times of round trips, which cross the device twice.
    fn times(&self, load: f64, samples: u64) -> Result<LatencySummary, TesterError> {
        summary(2.0 * latency_ns(self.options, load), samples)
    }

    /// Makes the run invalid if the simulated link does not carry its load.
    fn limit_to_link(&self, outcome: &mut ConversationOutcome, wanted: f64, packets: f64) {
        let reachable = self.options.line_rate_pps / packets;
        if wanted > reachable * EXCESS {
            outcome.achieved = Some(reachable);
            outcome.invalid.push(InvalidCause::RateMissed.because(format!(
                "a load of {wanted:.0} per second exceeds the simulated link, which carries {reachable:.0}"
            )));
        }
    }

    fn connections(
        &mut self,
        run: &ConversationRun,
        per_s: f64,
        traffic: Traffic,
    ) -> Result<ConversationOutcome, TesterError> {
        let attempted = whole((per_s * run.duration_s).round());
        let trip_s = 2.0 * self.options.latency_s;
        let lifetime_s = TRIPS_OF_CONNECTION * trip_s + self.options.closed_timeout_s;
        let opened = self.open_at(attempted, per_s, lifetime_s);
        let packets = PACKETS_OF_CONNECTION + traffic.packets_of_transaction;
        // Connections beyond the forwarding capacity lose packets.
        let capacity = self.capacity_pps / packets;
        let forwarded = whole((capacity * run.duration_s).round());
        let completed = opened.admitted.min(forwarded.max(1));
        let mut causes = opened.causes();
        if completed < opened.admitted {
            let timed_out = opened.admitted.saturating_sub(completed);
            causes.insert("timed_out".to_owned(), timed_out);
        }
        let load = per_s / capacity;
        let mut outcome = ConversationOutcome {
            attempted,
            failed: attempted.saturating_sub(completed),
            causes,
            open_largest: opened.open_largest,
            connections_per_s: completed as f64 / run.duration_s,
            transactions_per_s: completed as f64 / run.duration_s,
            received_bps: completed as f64 * traffic.answer * 8.0 / run.duration_s,
            handshake: self.times(load, opened.admitted)?,
            first_octet: self.times(load, completed)?,
            last_octet: self.times(load, completed)?,
            ..ConversationOutcome::default()
        };
        self.limit_to_link(&mut outcome, per_s, packets);
        Ok(outcome)
    }

    fn all_open(
        &mut self,
        run: &ConversationRun,
        connections: u32,
        opening_per_s: f64,
    ) -> Result<ConversationOutcome, TesterError> {
        let attempted = u64::from(connections);
        let opening_s = f64::from(connections) / opening_per_s;
        let lifetime_s = opening_s + run.duration_s;
        // Connections have data at their beginning, in their middle, and at their end.
        let is_forgotten = lifetime_s / 2.0 > self.options.idle_timeout_s;
        let in_table_s = if is_forgotten {
            self.options.idle_timeout_s
        } else {
            lifetime_s + self.options.closed_timeout_s
        };
        let opened = self.open_at(attempted, opening_per_s, in_table_s);
        let completed = if is_forgotten { 0 } else { opened.admitted };
        let mut causes = opened.causes();
        if is_forgotten && opened.admitted > 0 {
            causes.insert("timed_out".to_owned(), opened.admitted);
        }
        // The last connection begins and ends so much later than the first.
        self.pass(2.0 * opening_s);
        Ok(ConversationOutcome {
            attempted,
            failed: attempted.saturating_sub(completed),
            causes,
            open_largest: opened.open_largest,
            handshake: self.times(0.0, opened.admitted)?,
            first_octet: self.times(0.0, completed)?,
            last_octet: self.times(0.0, completed)?,
            ..ConversationOutcome::default()
        })
    }

    fn transactions(
        &mut self,
        run: &ConversationRun,
        connections: u32,
        per_s: f64,
        traffic: Traffic,
    ) -> Result<ConversationOutcome, TesterError> {
        let opened = self.opened_for(run, connections);
        let interval_s = f64::from(connections) / per_s;
        let each = whole((run.duration_s / interval_s).ceil().max(2.0));
        let attempted = u64::from(connections).saturating_mul(each);
        let capacity = self.capacity_pps / traffic.packets_of_transaction;
        let share = (capacity / per_s).min(1.0);
        let asked = opened.admitted.saturating_mul(each);
        let answered = whole((asked as f64 * share).round());
        let load = per_s / capacity;
        let mut causes = opened.causes();
        if share < 1.0 {
            causes.insert("late".to_owned(), asked.saturating_sub(answered));
        }
        let rate = answered as f64 / (each as f64 * interval_s);
        let mut outcome = ConversationOutcome {
            attempted,
            failed: attempted.saturating_sub(answered),
            causes,
            open_largest: opened.open_largest,
            transactions_per_s: rate,
            received_bps: rate * traffic.answer * 8.0,
            handshake: self.times(load, opened.admitted)?,
            first_octet: self.times(load, answered)?,
            last_octet: self.times(load, answered)?,
            ..ConversationOutcome::default()
        };
        self.limit_to_link(&mut outcome, per_s, traffic.packets_of_transaction);
        Ok(outcome)
    }

    /// Opens the connections of a load on open connections.
    fn opened_for(&mut self, run: &ConversationRun, connections: u32) -> Opened {
        let lifetime_s = run.duration_s + self.options.closed_timeout_s;
        let per_s = OPENING_PER_S.min(self.options.connection_rate);
        let opened = self.open_at(u64::from(connections), per_s, lifetime_s);
        self.pass(f64::from(connections) / per_s);
        opened
    }

    /// Advances the clock of the simulation. Its last value is `u64::MAX`.
    fn pass(&mut self, seconds: f64) {
        *self.clock_ns = self.clock_ns.saturating_add(whole(seconds * 1e9));
    }

    fn transfers(
        &mut self,
        run: &ConversationRun,
        connections: u32,
        traffic: Traffic,
    ) -> Result<ConversationOutcome, TesterError> {
        let opened = self.opened_for(run, connections);
        let carried = self.capacity_pps.min(self.options.line_rate_pps);
        let transactions_per_s = if opened.admitted > 0 {
            carried / traffic.packets_of_transaction
        } else {
            0.0
        };
        let answered = whole(transactions_per_s * run.duration_s);
        Ok(ConversationOutcome {
            attempted: u64::from(connections),
            failed: opened.failed(),
            causes: opened.causes(),
            open_largest: opened.open_largest,
            transactions_per_s,
            received_bps: transactions_per_s * traffic.answer * 8.0,
            handshake: self.times(1.0, opened.admitted)?,
            first_octet: self.times(1.0, answered)?,
            last_octet: self.times(1.0, answered)?,
            ..ConversationOutcome::default()
        })
    }
}
