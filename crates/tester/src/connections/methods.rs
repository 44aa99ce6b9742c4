// SPDX-License-Identifier: Apache-2.0
//! Loads of the methods after RFC 9411, section 7, as runs with conversations, and their outcomes.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use quietwire_base::Deadline;

use crate::error::TesterError;
use crate::latency::LatencySummary;
use crate::tester::Tester;
use crate::validity::{InvalidCause, InvalidReason, Validity};

use super::description::{Connections, OPEN_MAX, RATE_MAX, Role, Size, TransportProtocol};
use super::drive::RunExtras;
use super::outcome::FailureCause;
use super::result::{ClientResult, ConnectionResult};

/// Share of idle time below which failures may be those of a tester that was the limit.
const IDLE_RATIO_MIN: f64 = 0.01;
/// Answers of a connection that is kept open: before, in the middle, and at the end.
const CHECKS: u32 = 3;
/// Time without progress that connections are given in addition to the time between their requests, milliseconds.
const IDLE_SPARE_MS: f64 = 30_000.0;
/// Space in tables beyond the connections that are open.
const OPEN_SPARE: f64 = 1_024.0;
/// Connections that may be in TIME-WAIT while transfers replace each other.
const REPLACED: f64 = 100_000.0;
/// Shortest time in which the connections of a load with transactions are opened, seconds, and their highest rate.
const OPENING_S: f64 = 1.0;
const OPENING_PER_S: f64 = 10_000.0;
/// Names of failures beside the connections: illegal SYNs that the device forwarded, and fragmented datagrams that did not arrive.
pub(crate) const ILLEGAL_FORWARDED: &str = "illegal_forwarded";
pub(crate) const FRAGMENTED_LOST: &str = "fragmented_lost";
/// Interval of the checks for an abort.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Load of a run with conversations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ConversationLoad {
    /// Connections opened at a rate, each with one request and one answer (RFC 9411, section 7.2).
    Connections {
        /// Connections opened per second.
        per_s: f64,
    },
    /// Connections that are all open at once for the duration (RFC 9411, section 7.5).
    Open {
        /// Number of connections.
        connections: u32,
        /// Connections opened per second.
        opening_per_s: f64,
    },
    /// Requests at a rate on open connections. A request is due a fixed interval after the one before; its answer must arrive before the
    /// next request of the connection is due.
    Transactions {
        /// Number of connections.
        connections: u32,
        /// Requests per second, summed over all connections.
        per_s: f64,
    },
    /// Answers as fast as TCP transfers them (RFC 9411, section 7.3).
    Transfer {
        /// Number of connections that are open at a time.
        connections: u32,
        /// Requests of a connection.
        transactions: u32,
    },
}

/// A run with conversations for a method.
#[derive(Clone, Debug, PartialEq)]
pub struct ConversationRun {
    /// Addresses, sizes and limits. Its rate, its number of connections, and the transactions and times of its mix are not used.
    pub description: Connections,
    /// The load.
    pub load: ConversationLoad,
    /// Duration of the load, seconds.
    pub duration_s: f64,
    /// Time in which conversations may end afterwards, seconds.
    pub drain_s: f64,
    /// Wait afterwards, seconds.
    pub pause_s: f64,
    /// Octets of each answer; `None` for those of the mix.
    pub answer: Option<u32>,
}

/// Outcome of a run with conversations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConversationOutcome {
    /// Connections, or with [`ConversationLoad::Transactions`] transactions, that the run attempted.
    pub attempted: u64,
    /// Those of them that failed or were too late.
    pub failed: u64,
    /// Failed connections by the name of the cause.
    pub causes: BTreeMap<String, u64>,
    /// Largest number of connections that were open at once.
    pub open_largest: u64,
    /// Connections completed per second, without the first tenth of the run.
    pub connections_per_s: f64,
    /// Answers received per second, without the first tenth of the run.
    pub transactions_per_s: f64,
    /// Payload received and checked, bits per second, without the first tenth of the run.
    pub received_bps: f64,
    /// Share of the time in which the tester had nothing to receive; `None` if it is unknown.
    pub tester_idle_ratio: Option<f64>,
    /// Time from a SYN to its answer.
    pub handshake: LatencySummary,
    /// Time from a request to the first octet of its answer.
    pub first_octet: LatencySummary,
    /// Time from a request to the last octet of its answer.
    pub last_octet: LatencySummary,
    /// Value of the load that the tester reached, if it missed the intended one.
    pub achieved: Option<f64>,
    /// Failures of the tester; empty if the outcome describes the device.
    pub invalid: Vec<InvalidReason>,
}

impl ConversationOutcome {
    /// Returns whether the outcome describes the device.
    #[must_use]
    pub fn validity(&self) -> Validity {
        Validity::of(self.invalid.clone())
    }
}

/// A run as the ends require it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PreparedRun {
    pub(crate) description: Connections,
    /// Time in which conversations are opened, seconds.
    pub(crate) opening_s: f64,
    /// Time for them to end, seconds.
    pub(crate) drain_s: f64,
    /// Part of the run whose rates are reported, seconds.
    pub(crate) window_s: [f64; 2],
    /// Attempts, if they are known before.
    pub(crate) attempts: Option<u64>,
}

/// Returns nanoseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates"
)]
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// Returns a whole number, at least 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates"
)]
fn round_up(number: f64) -> u32 {
    number.ceil().max(1.0) as u32
}

impl ConversationRun {
    /// Returns the run as the ends require it.
    ///
    /// # Errors
    /// A sentence about a load or a description that is not possible.
    pub(crate) fn prepare(&self) -> Result<PreparedRun, String> {
        let mut description = self.description.clone();
        if let Some(entry) = description
            .mix
            .iter()
            .find(|entry| entry.protocol != TransportProtocol::Tcp)
        {
            return Err(format!(
                "entry '{}' of the mix uses UDP, and methods for connections require TCP (remove it)",
                entry.name
            ));
        }
        if description.role != Role::Both {
            return Err(
                "methods for connections require both ends of the tester (remove role)".to_owned(),
            );
        }
        let rates = match self.load {
            ConversationLoad::Connections { per_s }
            | ConversationLoad::Transactions { per_s, .. } => [per_s, self.duration_s],
            ConversationLoad::Open { opening_per_s, .. } => [opening_per_s, self.duration_s],
            ConversationLoad::Transfer { .. } => [1.0, self.duration_s],
        };
        if !rates.iter().all(|it| *it > 0.0 && *it <= RATE_MAX) {
            return Err("the rate or the duration of the load is out of range".to_owned());
        }
        (description.rate, description.concurrent) = (None, None);
        if let Some(answer) = self.answer {
            for entry in &mut description.mix {
                entry.answer = Size::Fixed(answer);
            }
        }
        let prepared = match self.load {
            ConversationLoad::Connections { per_s } => self.at_rate(description, per_s),
            ConversationLoad::Open {
                connections,
                opening_per_s,
            } => self.all_open(description, connections, opening_per_s),
            ConversationLoad::Transactions { connections, per_s } => {
                self.at_transaction_rate(description, connections, per_s)
            }
            ConversationLoad::Transfer {
                connections,
                transactions,
            } => self.transfers(description, connections, transactions),
        };
        self.check(&prepared)?;
        Ok(prepared)
    }

    /// Checks whether the load is possible with the description.
    ///
    /// # Errors
    /// A sentence.
    pub fn validate(&self) -> Result<(), String> {
        self.prepare().map(|_| ())
    }

    fn check(&self, prepared: &PreparedRun) -> Result<(), String> {
        let description = &prepared.description;
        if let Some(fault) = description.first_fault() {
            return Err(fault.message);
        }
        let connections = match self.load {
            ConversationLoad::Connections { .. } => return Ok(()),
            ConversationLoad::Open { connections, .. }
            | ConversationLoad::Transactions { connections, .. }
            | ConversationLoad::Transfer { connections, .. } => u64::from(connections),
        };
        let [first, last] = description.client.ports;
        let ports = u64::from(last.saturating_sub(first)).saturating_add(1);
        let endpoints = ports.saturating_mul(u64::from(description.client.count));
        if connections > endpoints {
            return Err(format!(
                "{connections} connections require more than the {endpoints} addresses and ports of the client (increase count of \
                 [connections.client])"
            ));
        }
        Ok(())
    }

    fn at_rate(&self, mut description: Connections, per_s: f64) -> PreparedRun {
        for entry in &mut description.mix {
            entry.repeat(1, 0.0, None);
        }
        // What a timeout repairs would be served after the load, and an overload would hold.
        (description.syn_retries, description.retries) = (0, 0);
        // Connections stay in the table until the end of TIME-WAIT.
        let open = per_s * (description.time_wait_ms / 1e3 + self.drain_s);
        description.rate = Some(per_s);
        self.opened_for(self.duration_s, open, description)
    }

    fn all_open(
        &self,
        mut description: Connections,
        connections: u32,
        opening_per_s: f64,
    ) -> PreparedRun {
        let all_s = f64::from(connections) / opening_per_s;
        let lifetime_s = all_s + self.duration_s;
        let think_ms = lifetime_s * 1e3 / f64::from(CHECKS - 1);
        for entry in &mut description.mix {
            entry.repeat(CHECKS, think_ms, None);
        }
        description.idle_timeout_ms = description.idle_timeout_ms.max(think_ms + IDLE_SPARE_MS);
        description.rate = Some(opening_per_s);
        let open = f64::from(connections);
        let prepared = self.opened_for(all_s, open, description);
        PreparedRun {
            drain_s: lifetime_s + self.drain_s,
            window_s: [all_s, all_s + self.duration_s],
            attempts: Some(u64::from(connections)),
            ..prepared
        }
    }

    fn at_transaction_rate(
        &self,
        mut description: Connections,
        connections: u32,
        per_s: f64,
    ) -> PreparedRun {
        let interval_s = f64::from(connections) / per_s;
        let opening_s = (f64::from(connections) / OPENING_PER_S).max(OPENING_S);
        // The first connection lives until all have been open for the duration.
        let lifetime_s = opening_s + self.duration_s;
        let transactions = round_up(lifetime_s / interval_s).max(2);
        for entry in &mut description.mix {
            entry.repeat(transactions, 0.0, Some(interval_s * 1e3));
        }
        let idle_ms = interval_s * 1e3 + IDLE_SPARE_MS;
        description.idle_timeout_ms = description.idle_timeout_ms.max(idle_ms);
        description.rate = Some(f64::from(connections) / opening_s);
        let prepared = self.opened_for(opening_s, f64::from(connections), description);
        let attempts = u64::from(connections).saturating_mul(u64::from(transactions));
        PreparedRun {
            drain_s: f64::from(transactions) * interval_s + self.drain_s,
            window_s: [opening_s, lifetime_s],
            attempts: Some(attempts),
            ..prepared
        }
    }

    fn transfers(
        &self,
        mut description: Connections,
        connections: u32,
        transactions: u32,
    ) -> PreparedRun {
        for entry in &mut description.mix {
            entry.repeat(transactions, 0.0, None);
        }
        description.concurrent = Some(connections);
        let open = f64::from(connections) + REPLACED;
        self.opened_for(self.duration_s, open, description)
    }

    /// Returns a run that opens conversations for a time, of which so many are open at most.
    fn opened_for(&self, opening_s: f64, open: f64, mut description: Connections) -> PreparedRun {
        description.open_max = round_up(open + OPEN_SPARE).min(OPEN_MAX);
        PreparedRun {
            description,
            opening_s,
            drain_s: self.drain_s,
            window_s: [opening_s / 10.0, opening_s],
            attempts: None,
        }
    }

    /// Returns the outcome of a result.
    pub(crate) fn outcome(
        &self,
        prepared: &PreparedRun,
        result: &ConnectionResult,
    ) -> ConversationOutcome {
        let Some(client) = &result.client else {
            return ConversationOutcome::default();
        };
        let (attempted, failed) = self.attempts(prepared, client);
        let server = result.server.as_ref();
        let checked = server.and_then(|server| server.nat_check.as_ref());
        let mistranslated = checked.map_or(0, |checked| checked.violating);
        let forwarded = result.illegal.and_then(|illegal| illegal.forwarded);
        let forwarded = forwarded.unwrap_or(0);
        let lost = result.fragments.map_or(0, |fragments| fragments.lost());
        let failed = [mistranslated, forwarded, lost]
            .into_iter()
            .fold(failed, u64::saturating_add)
            .min(attempted);
        let sustained = client.sustained.unwrap_or_default();
        let causes = client.failed.iter();
        let mut causes: BTreeMap<String, u64> = causes
            .map(|(cause, count)| (name(*cause), *count))
            .collect();
        for (name, count) in [
            ("unfinished", client.unfinished),
            ("late", client.late_transactions),
            ("mistranslated", mistranslated),
            (ILLEGAL_FORWARDED, forwarded),
            (FRAGMENTED_LOST, lost),
        ] {
            if count > 0 {
                causes.insert(name.to_owned(), count);
            }
        }
        let mut invalid = result.validity.reasons().to_vec();
        let idle_ratio = result.health.idle_ratio;
        let health = &result.health;
        let gap_ms = health.longest_gap_ns as f64 / 1e6;
        if failed > 0 && invalid.is_empty() && gap_ms > prepared.description.rto_min_ms / 2.0 {
            let cause = InvalidCause::ReceiveGap
                .unless_of_host(health.longest_gap_ns, health.longest_host_gap_ns);
            invalid.push(cause.because(format!(
                "the tester did not run for {gap_ms:.3} ms, so some of the {failed} failures may be its own"
            )));
        }
        let is_transfer = matches!(self.load, ConversationLoad::Transfer { .. });
        if failed > 0 && !is_transfer && idle_ratio.is_some_and(|it| it < IDLE_RATIO_MIN) {
            invalid.push(InvalidCause::RateMissed.because(format!(
                "the tester had frames to receive for more than {:.0} % of the time, so it may have been the limit",
                (1.0 - IDLE_RATIO_MIN) * 100.0
            )));
        }
        if attempted == 0 {
            invalid.push(InvalidCause::RateMissed.because("the tester opened no connection"));
        }
        let is_missed = invalid
            .first()
            .is_some_and(|it| it.cause == InvalidCause::RateMissed);
        ConversationOutcome {
            attempted,
            failed,
            causes,
            open_largest: client.open_largest,
            connections_per_s: sustained.completed_rate,
            transactions_per_s: sustained.transaction_rate,
            received_bps: sustained.received_bps,
            tester_idle_ratio: idle_ratio,
            handshake: client.handshake.clone(),
            first_octet: client.first_octet.clone(),
            last_octet: client.transaction.clone(),
            achieved: is_missed.then(|| self.achieved(client)),
            invalid,
        }
    }

    /// Returns the attempts, and those of them that failed.
    fn attempts(&self, prepared: &PreparedRun, client: &ClientResult) -> (u64, u64) {
        match self.load {
            ConversationLoad::Connections { .. } => (
                client.opened,
                client.opened.saturating_sub(client.completed),
            ),
            ConversationLoad::Open { .. } => {
                let attempted = prepared.attempts.unwrap_or(client.opened);
                (attempted, attempted.saturating_sub(client.completed))
            }
            ConversationLoad::Transactions { .. } => {
                let attempted = prepared.attempts.unwrap_or(client.transactions);
                let missing = attempted.saturating_sub(client.transactions);
                let failed = missing.saturating_add(client.late_transactions);
                (attempted, failed.min(attempted))
            }
            // Connections that are still open at the end of the drain time have not failed.
            ConversationLoad::Transfer { .. } => (
                client.opened,
                client.failed.values().sum::<u64>().min(client.opened),
            ),
        }
    }

    /// Returns the value of the load that the tester reached.
    fn achieved(&self, client: &ClientResult) -> f64 {
        match self.load {
            ConversationLoad::Connections { .. } => client.opened as f64 / self.duration_s,
            ConversationLoad::Open { .. } => client.open_largest as f64,
            ConversationLoad::Transactions { .. } => client
                .sustained
                .map_or(client.transaction_rate, |rates| rates.transaction_rate),
            ConversationLoad::Transfer { connections, .. } => f64::from(connections),
        }
    }
}

/// Returns the name of a cause in JSON.
fn name(cause: FailureCause) -> String {
    match serde_json::to_value(cause) {
        Ok(serde_json::Value::String(name)) => name,
        _ => cause.words().to_owned(),
    }
}

impl Tester {
    /// Runs conversations for a method after RFC 9411, section 7.
    ///
    /// # Errors
    /// [`TesterError`] if the run cannot begin or was aborted. A failure of the tester during the run makes the outcome invalid.
    pub fn converse(&mut self, run: &ConversationRun) -> Result<ConversationOutcome, TesterError> {
        let prepared = run.prepare().map_err(TesterError::BadTrial)?;
        let length = |seconds: f64| Duration::from_nanos(nanoseconds(seconds));
        let result = self.run_conversations(
            &prepared.description,
            length(prepared.opening_s),
            length(prepared.drain_s),
            RunExtras {
                window: Some(prepared.window_s.map(nanoseconds)),
                ..RunExtras::default()
            },
        )?;
        let outcome = run.outcome(&prepared, &result);
        let is_aborted = || self.abort.load(Ordering::Relaxed).then_some(());
        let end = Deadline::after(length(run.pause_s));
        if end.poll(POLL_INTERVAL, is_aborted).is_some() {
            return Err(TesterError::Aborted);
        }
        Ok(outcome)
    }
}
