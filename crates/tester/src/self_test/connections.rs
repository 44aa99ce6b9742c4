// SPDX-License-Identifier: Apache-2.0
//! Self-test of the tester's account of connections: a stateful device mistreats chosen ones, and its ledger is compared with the
//! tester's account, connection by connection.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use serde::Serialize;

use super::compare::{Figure, Verdict};
use super::connection_device::{
    ConnectionFault, ConnectionLedger, ConnectionScript, LedgerConnection,
};
use super::link::DeviceLink;
use crate::connections::{
    ClientSide, ConnectionResult, Connections, ConversationEnd, FailureCause,
};
use crate::error::TesterError;
use crate::tester::Tester;

/// One in this number of connections has a fault: a prime, so that the faults meet all client addresses.
const EVERY: u64 = 7;
/// Trials of a case at most.
const TRIALS_MAX: u32 = 3;
/// Time in which connections may end: longer than all their timeouts.
const DRAIN: Duration = Duration::from_secs(5);
/// Longest time for which the device may not have run, nanoseconds: half of the smallest timeout.
const GAP_NS_MAX: u64 = 100_000_000;
/// Differences that are listed at most.
const LISTED_MAX: usize = 8;
/// Client addresses.
const CLIENTS: u32 = 4;

/// Loads and faults of a self-test with connections.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionSelfTestOptions {
    /// Connections opened per second.
    pub rate: f64,
    /// Time during which connections are opened in each trial, seconds.
    pub duration_s: f64,
    /// Faults. Each is tested in a separate case, in addition to a case without faults and one with all of them.
    pub faults: Vec<ConnectionFault>,
    /// Seed of the payloads.
    pub seed: u64,
}

/// Result of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConnectionCaseReport {
    /// The fault, `none` or `all`.
    pub name: String,
    /// Connections opened per second.
    pub rate: f64,
    /// Script of the device.
    pub script: ConnectionScript,
    /// Outcome.
    pub verdict: Verdict,
    /// Number of trials. An inconclusive trial is repeated. The other fields describe the last one.
    pub trials: u32,
    /// Connections in the ledger of the device.
    pub connections: u64,
    /// Outcomes in the tester's account, with the numbers in the ledger.
    pub figures: Vec<Figure>,
}

/// Outcome of a connection by its name.
type Outcome = &'static str;

const COMPLETED: Outcome = "completed";

/// Returns the outcome that a connection must have.
fn expected(connection: &LedgerConnection) -> Outcome {
    let Some(fault) = connection.fault.filter(|_| connection.touched > 0) else {
        return COMPLETED;
    };
    let cause = match fault {
        ConnectionFault::Refuse => FailureCause::Refused,
        ConnectionFault::DropSynAck | ConnectionFault::WrongAddress => FailureCause::NotEstablished,
        ConnectionFault::Reset => FailureCause::Reset,
        ConnectionFault::ChangePayload => FailureCause::Damaged,
        ConnectionFault::Forget => FailureCause::TimedOut,
    };
    cause.words()
}

fn observed(end: &ConversationEnd) -> Outcome {
    end.failure.map_or(COMPLETED, FailureCause::words)
}

/// Returns outcomes by client address and port, in order.
fn by_source<'a, T: 'a>(
    all: impl Iterator<Item = &'a T>,
    of: impl Fn(&T) -> (SocketAddr, Outcome),
) -> BTreeMap<SocketAddr, Vec<Outcome>> {
    let mut sources = BTreeMap::new();
    for one in all {
        let (source, outcome) = of(one);
        sources.entry(source).or_insert_with(Vec::new).push(outcome);
    }
    sources
}

/// Returns the number of connections with each outcome, in the ledger and in the tester's account.
fn figures(ledger: &ConnectionLedger, result: &ConnectionResult) -> Vec<Figure> {
    let in_ledger = |outcome: Outcome| {
        let connections = ledger.connections.iter();
        connections.filter(|it| expected(it) == outcome).count() as u64
    };
    let client = result.client.as_ref();
    let opened = client.map_or(0, |client| client.opened);
    let completed = client.map_or(0, |client| client.completed);
    let mut figures = vec![
        Figure::exact("opened", ledger.connections.len() as u64, opened),
        Figure::exact(COMPLETED, in_ledger(COMPLETED), completed),
    ];
    for cause in FailureCause::ALL {
        let failed = client.and_then(|client| client.failed.get(&cause).copied());
        let words = cause.words();
        figures.push(Figure::exact(words, in_ledger(words), failed.unwrap_or(0)));
    }
    figures
}

/// Returns each connection whose outcome differs from that in the ledger, as a sentence, and their number.
fn differences(ledger: &ConnectionLedger, ends: &[ConversationEnd]) -> (Vec<String>, usize) {
    let meant = by_source(ledger.connections.iter(), |it| {
        (SocketAddr::V4(it.source), expected(it))
    });
    let counted = by_source(ends.iter(), |it| (it.source, observed(it)));
    let sources = meant.keys().chain(counted.keys());
    let mut sources: Vec<&SocketAddr> = sources.collect();
    sources.sort();
    sources.dedup();
    let listed = |outcomes: Option<&Vec<Outcome>>| match outcomes {
        None => "nothing".to_owned(),
        Some(outcomes) => outcomes.join(", "),
    };
    let different = sources.into_iter().filter_map(|source| {
        let (meant, counted) = (meant.get(source), counted.get(source));
        (meant != counted).then(|| {
            format!(
                "connection from {source}: {} by the device's ledger, {} by the tester",
                listed(meant),
                listed(counted)
            )
        })
    });
    let all: Vec<String> = different.collect();
    let count = all.len();
    (all.into_iter().take(LISTED_MAX).collect(), count)
}

/// Compares a result with the ledger of the device.
fn verdict(ledger: &ConnectionLedger, result: &ConnectionResult, figures: &[Figure]) -> Verdict {
    let mut doubts: Vec<String> = result.validity.text().into_iter().collect();
    if ledger.longest_gap_ns > GAP_NS_MAX {
        doubts.push(format!(
            "the device did not run for {:.1} ms",
            ledger.longest_gap_ns as f64 / 1e6
        ));
    }
    let unfinished = result.client.as_ref().map_or(0, |it| it.unfinished);
    if unfinished > 0 {
        doubts.push(format!("{unfinished} connections were open at the end"));
    }
    if ledger.unlisted > 0 {
        doubts.push(format!(
            "{} connections exceed the ledger (use a lower rate)",
            ledger.unlisted
        ));
    }
    if !doubts.is_empty() {
        return Verdict::NotProven(doubts);
    }
    let (mut wrong, count) = differences(ledger, &result.ends);
    if count > wrong.len() {
        wrong.push(format!("and {} more", count.saturating_sub(wrong.len())));
    }
    for figure in figures.iter().filter(|figure| !figure.agrees()) {
        wrong.push(format!(
            "{}: {} by the device's ledger, {} by the tester",
            figure.name, figure.least, figure.measured
        ));
    }
    if wrong.is_empty() {
        Verdict::Agrees
    } else {
        Verdict::Differs(wrong)
    }
}

impl ConnectionSelfTestOptions {
    /// Returns the names and faults of the cases in the order in which they are run.
    #[must_use]
    pub fn cases(&self) -> Vec<(&'static str, Vec<ConnectionFault>)> {
        let mut cases = vec![("none", Vec::new())];
        let single = self.faults.iter();
        cases.extend(single.map(|fault| (fault.name(), vec![*fault])));
        if self.faults.len() > 1 {
            cases.push(("all", self.faults.clone()));
        }
        cases
    }

    /// Returns the connections of a trial. Their timeouts are short, and a fault costs a second or two.
    #[must_use]
    pub fn description(&self) -> Connections {
        Connections {
            rate: Some(self.rate),
            seed: self.seed,
            syn_retries: 0,
            retries: 2,
            client: ClientSide {
                count: CLIENTS,
                ..ClientSide::default()
            },
            ..Connections::default()
        }
    }
}

impl Tester {
    /// Runs all cases with connections over a device with faults. Calls `tell` with each report.
    ///
    /// # Errors
    /// [`TesterError`] if the device ended or does not reply, or if a trial cannot be run.
    pub fn self_test_connections<R: Read + AsFd, W: Write>(
        &mut self,
        device: &mut DeviceLink<R, W>,
        options: &ConnectionSelfTestOptions,
        mut tell: impl FnMut(&ConnectionCaseReport),
    ) -> Result<Vec<ConnectionCaseReport>, TesterError> {
        let mut reports = Vec::new();
        for (name, faults) in options.cases() {
            let report = self.run_connection_case(device, name, faults, options)?;
            tell(&report);
            reports.push(report);
        }
        Ok(reports)
    }

    fn run_connection_case<R: Read + AsFd, W: Write>(
        &mut self,
        device: &mut DeviceLink<R, W>,
        name: &str,
        faults: Vec<ConnectionFault>,
        options: &ConnectionSelfTestOptions,
    ) -> Result<ConnectionCaseReport, TesterError> {
        let script = ConnectionScript {
            faults,
            every: EVERY,
        };
        let duration = Duration::try_from_secs_f64(options.duration_s)
            .map_err(|error| TesterError::BadTrial(error.to_string()))?;
        let mut trials = 0_u32;
        loop {
            trials = trials.saturating_add(1);
            device.begin_connections(script.clone())?;
            let result = self.run_logged(&options.description(), duration, DRAIN)?;
            let ledger = device.finish_connections()?;
            let figures = figures(&ledger, &result);
            let verdict = verdict(&ledger, &result, &figures);
            let is_over = !matches!(verdict, Verdict::NotProven(_)) || trials == TRIALS_MAX;
            if is_over {
                return Ok(ConnectionCaseReport {
                    name: name.to_owned(),
                    rate: options.rate,
                    script,
                    verdict,
                    trials,
                    connections: ledger.connections.len() as u64,
                    figures,
                });
            }
        }
    }
}
