// SPDX-License-Identifier: Apache-2.0
//! Results of runs with conversations.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::latency::LatencySummary;
use crate::validity::{InvalidCause, InvalidReason, Validity};

use super::add;
use super::client::Client;
use super::description::{Connections, TransportProtocol};
use super::expected_nat::NatCheckReport;
use super::flood::FloodResult;
use super::fragments::FragmentsResult;
use super::illegal::IllegalResult;
use super::nat::TranslationReport;
use super::outcome::{ConversationEnd, FailureCause};
use super::server::Server;
use super::session::Session;

/// Largest share of the schedule that the tester may fail to open, as a ratio.
const MISSED_RATIO_MAX: f64 = 0.01;
/// Largest disagreement of the clocks, as a ratio.
const CLOCK_ERROR_RATIO_MAX: f64 = 0.001;

/// Result of a run with conversations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectionResult {
    /// Start of the run, nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// Time in which conversations were opened, seconds.
    pub duration_s: f64,
    /// Whole time of the run, seconds.
    pub elapsed_s: f64,
    /// The client's end; `None` if the tester had none.
    pub client: Option<ClientResult>,
    /// The server's end; `None` if the tester had none.
    pub server: Option<ServerResult>,
    /// The flood beside the conversations; `None` if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flood: Option<FloodResult>,
    /// Illegal traffic beside the conversations; `None` if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub illegal: Option<IllegalResult>,
    /// Fragmented datagrams beside the conversations; `None` if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fragments: Option<FragmentsResult>,
    /// Health of the tester.
    pub health: ConnectionHealth,
    /// Whether the result describes the device.
    pub validity: Validity,
    /// Ends of connections in order, if they were logged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<ConversationEnd>,
}

/// Counters and times of the client's end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientResult {
    /// Conversations of the schedule.
    pub scheduled: u64,
    /// Conversations opened.
    pub opened: u64,
    /// Connections whose handshake was completed.
    pub established: u64,
    /// Conversations with all answers, whose connection was closed by both ends.
    pub completed: u64,
    /// Completed conversations per second of the whole run.
    pub completed_rate: f64,
    /// Failed conversations by cause.
    pub failed: BTreeMap<FailureCause, u64>,
    /// Conversations that were open at the end.
    pub unfinished: u64,
    /// Largest number of open conversations.
    pub open_largest: u64,
    /// Answers received completely.
    pub transactions: u64,
    /// Answers per second of the whole run.
    pub transaction_rate: f64,
    /// Datagrams without an answer.
    pub lost_datagrams: u64,
    /// Octets of payload received and checked.
    pub received_octets: u64,
    /// TCP.
    pub tcp: TcpResult,
    /// Time from a SYN to its answer.
    pub handshake: LatencySummary,
    /// Time from a request to the first octet of its answer, in TCP.
    #[serde(default)]
    pub first_octet: LatencySummary,
    /// Time from a request to its whole answer.
    pub transaction: LatencySummary,
    /// Answers that arrived after the next request of their connection was due, if requests have an interval.
    #[serde(default)]
    pub late_transactions: u64,
    /// Rates without the first tenth and without the end of the run; `None` if the run was too short.
    #[serde(default)]
    pub sustained: Option<SustainedRates>,
    /// By entry of the mix.
    pub mix: Vec<MixResult>,
}

/// Rates of the middle of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SustainedRates {
    /// Length of the part of the run, seconds.
    pub length_s: f64,
    /// Completed conversations per second.
    pub completed_rate: f64,
    /// Answers per second.
    pub transaction_rate: f64,
    /// Payload received and checked, bits per second.
    pub received_bps: f64,
}

/// Counters of one entry of the mix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MixResult {
    /// Name of the entry.
    pub name: String,
    /// Conversations opened.
    pub opened: u64,
    /// Conversations completed.
    pub completed: u64,
    /// Conversations failed.
    pub failed: u64,
    /// Answers received completely.
    pub transactions: u64,
}

/// Counters of the server's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerResult {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections that ended after all answers.
    pub completed: u64,
    /// Failed connections by cause.
    pub failed: BTreeMap<FailureCause, u64>,
    /// Connections without space in the table.
    pub refused: u64,
    /// Datagrams answered.
    pub datagrams: u64,
    /// Octets of payload received and checked.
    pub received_octets: u64,
    /// TCP.
    pub tcp: TcpResult,
    /// Changes by a NAT between the ends.
    pub translations: TranslationReport,
    /// Check of the translations; `None` if none is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nat_check: Option<NatCheckReport>,
}

/// Counters of TCP, and of frames that belong to no conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpResult {
    /// Segments sent again.
    pub retransmitted_segments: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Segments with data that arrived beyond a gap.
    pub out_of_order_segments: u64,
    /// Segments outside the window.
    pub unexpected_segments: u64,
    /// Frames of other protocols or addresses.
    pub foreign_frames: u64,
    /// Frames with a wrong length, checksum or option.
    pub damaged_frames: u64,
    /// Packets of conversations that do not exist, or not any more.
    pub stray_packets: u64,
}

/// Health of the tester in a run with conversations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConnectionHealth {
    /// Conversations of the schedule that were not opened in time.
    pub missed: u64,
    /// Longest time between two turns of the tester, nanoseconds.
    pub longest_gap_ns: u64,
    /// Longest time for which the host kept the tester from running, nanoseconds.
    pub longest_host_gap_ns: u64,
    /// Packets that found no space in the tester, or no buffer.
    pub dropped_packets: u64,
    /// Packets that found the device's receive queue full for longer than 1 ms. They are lost there, as frames of a load are.
    #[serde(default)]
    pub refused_packets: u64,
    /// Frames that the tester's own ports dropped.
    pub receive_drops: u64,
    /// Excess of the tester's time over the kernel's, as a ratio.
    pub clock_error_ratio: f64,
    /// Names of ports without link at the end.
    pub links_down: Vec<String>,
    /// Whether the thread had real-time priority.
    pub realtime: bool,
    /// Requests that the tester sent too late by more than half of their interval.
    #[serde(default)]
    pub delayed_requests: u64,
    /// Share of the time in which the tester had no frame to receive; `None` if it is unknown.
    #[serde(default)]
    pub idle_ratio: Option<f64>,
}

fn client_result(
    client: &mut Client,
    description: &Connections,
    scheduled: u64,
    elapsed_s: f64,
    sustained: Option<SustainedRates>,
) -> Result<ClientResult, String> {
    let tcp = TcpResult::of(client.shared());
    let record = client.record();
    let counts = description.mix.iter().zip(&record.classes);
    let mix: Vec<MixResult> = counts
        .map(|(entry, counts)| MixResult {
            name: entry.name.clone(),
            opened: counts.opened,
            completed: counts.completed,
            failed: counts.failed,
            transactions: counts.transactions,
        })
        .collect();
    let completed = mix.iter().map(|entry| entry.completed).sum::<u64>();
    let transactions = mix.iter().map(|entry| entry.transactions).sum::<u64>();
    let per_second = |count: u64| count as f64 / elapsed_s.max(f64::MIN_POSITIVE);
    Ok(ClientResult {
        scheduled,
        opened: client.opened(),
        established: record.established,
        completed,
        completed_rate: per_second(completed),
        failed: record.failures.by_cause(),
        unfinished: client.open_count(),
        open_largest: record.open_largest,
        transactions,
        transaction_rate: per_second(transactions),
        lost_datagrams: record.lost_datagrams,
        received_octets: record.received_octets,
        tcp,
        handshake: record.handshake.summary()?,
        first_octet: record.first_octet.summary()?,
        late_transactions: record.late_transactions,
        sustained,
        transaction: record.transaction.summary()?,
        mix,
    })
}

fn server_result(server: &mut Server) -> ServerResult {
    let tcp = TcpResult::of(server.shared());
    let record = server.record();
    ServerResult {
        accepted: record.accepted,
        completed: record.completed,
        failed: record.failures.by_cause(),
        refused: record.refused,
        datagrams: record.datagrams,
        received_octets: record.received_octets,
        tcp,
        translations: server.translations().report(),
        nat_check: server.translations().check_report(),
    }
}

impl TcpResult {
    fn of(shared: &super::end::Shared) -> Self {
        let (counters, others) = (&shared.counters, &shared.others);
        Self {
            retransmitted_segments: counters.retransmitted,
            timeouts: counters.timeouts,
            out_of_order_segments: counters.out_of_order,
            unexpected_segments: counters.unexpected,
            foreign_frames: others.foreign,
            damaged_frames: others.damaged,
            stray_packets: others.stray,
        }
    }
}

/// Times of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunTimes {
    pub(crate) started_unix_ns: u64,
    pub(crate) duration_s: f64,
    pub(crate) elapsed_s: f64,
}

/// Returns the result of a run.
///
/// # Errors
/// A histogram cannot be summarised.
pub(crate) fn assemble(
    mut session: Session,
    description: &Connections,
    times: RunTimes,
    health: ConnectionHealth,
) -> Result<ConnectionResult, String> {
    let (scheduled, missed) = session.end_schedule();
    let elapsed_s = times.elapsed_s;
    let sustained = session.window_rates().map(|rates| SustainedRates {
        length_s: rates.length_s,
        completed_rate: rates.completed,
        transaction_rate: rates.transactions,
        received_bps: rates.received_octets * 8.0,
    });
    let client = session.client.as_mut();
    let delayed_requests = client
        .as_ref()
        .map_or(0, |client| client.record().delayed_requests);
    let client = client
        .map(|client| client_result(client, description, scheduled, elapsed_s, sustained))
        .transpose()?;
    let mut dropped = health.dropped_packets;
    let of_client = session.client.as_mut().map(Client::shared);
    let of_server = session.server.as_mut().map(Server::shared);
    for shared in [of_client, of_server].into_iter().flatten() {
        add(&mut dropped, shared.dropped);
    }
    let background = session.end_background();
    let mut result = ConnectionResult {
        started_unix_ns: times.started_unix_ns,
        duration_s: times.duration_s,
        elapsed_s,
        client,
        server: session.server.as_mut().map(server_result),
        flood: background.flood,
        illegal: background.illegal,
        fragments: background.fragments,
        health: ConnectionHealth {
            missed,
            delayed_requests,
            dropped_packets: dropped,
            ..health
        },
        validity: Validity::Valid,
        ends: session
            .client
            .as_mut()
            .map_or_else(Vec::new, Client::take_log),
    };
    result.validity = Validity::of(reasons(&result, description));
    Ok(result)
}

/// Returns the failures of the tester.
fn reasons(result: &ConnectionResult, description: &Connections) -> Vec<InvalidReason> {
    let health = &result.health;
    let cause = |cause: InvalidCause| {
        cause.unless_of_host(health.longest_gap_ns, health.longest_host_gap_ns)
    };
    let mut reasons = Vec::new();
    for text in missed_rates(result) {
        reasons.push(cause(InvalidCause::RateMissed).because(text));
    }
    let own_timeouts = result.tcp_timeouts();
    if health.longest_gap_ns as f64 > description.rto_min_ms * 1e6 / 2.0 && own_timeouts > 0 {
        reasons.push(cause(InvalidCause::ReceiveGap).because(format!(
            "the tester did not run for {:.3} ms, so some of the {own_timeouts} retransmission timeouts may be its own",
            health.longest_gap_ns as f64 / 1e6
        )));
    }
    reasons.extend(
        reasons_of_intervals(result, description).map(|(it, text)| cause(it).because(text)),
    );
    reasons.extend(lost_frames(result));
    if health.clock_error_ratio.abs() > CLOCK_ERROR_RATIO_MAX {
        reasons.push(InvalidCause::Clock.because(format!(
            "the tester's clock and the kernel's disagree by {:.3} % about the length of the run (limit: {:.3} %)",
            health.clock_error_ratio.abs() * 100.0,
            CLOCK_ERROR_RATIO_MAX * 100.0
        )));
    }
    for name in &health.links_down {
        let text = format!("port {name} had no link at the end of the run");
        reasons.push(InvalidCause::LinkLost.because(text));
    }
    reasons
}

/// Returns which loads the tester did not offer.
fn missed_rates(result: &ConnectionResult) -> Vec<String> {
    let (health, client) = (&result.health, result.client.as_ref());
    let mut missed = Vec::new();
    let scheduled = client.map_or(0, |client| client.scheduled);
    if health.missed as f64 > MISSED_RATIO_MAX * scheduled as f64 {
        missed.push(format!(
            "the tester did not open {} of {scheduled} conversations of its schedule in time (limit: {:.0} %; use a lower rate, or a \
             larger open-max or more client addresses if they are exhausted)",
            health.missed,
            MISSED_RATIO_MAX * 100.0
        ));
    }
    if client.is_some_and(|client| client.opened == 0) {
        missed.push("no conversation was opened".to_owned());
    }
    for (sent, scheduled, packets) in [
        result
            .flood
            .map(|it| (it.sent, it.scheduled, "SYNs of the flood")),
        result
            .illegal
            .map(|it| (it.sent, it.scheduled, "illegal SYNs")),
        result
            .fragments
            .map(|it| (it.sent, it.scheduled, "fragmented datagrams")),
    ]
    .into_iter()
    .flatten()
    {
        if scheduled.saturating_sub(sent) as f64 > MISSED_RATIO_MAX * scheduled as f64 {
            missed.push(format!(
                "the tester sent {sent} of {scheduled} {packets} (limit: {:.0} % missing; use a lower rate)",
                MISSED_RATIO_MAX * 100.0
            ));
        }
    }
    missed
}

/// Returns why the tester lost frames or connections itself.
fn lost_frames(result: &ConnectionResult) -> Vec<InvalidReason> {
    let health = &result.health;
    let mut reasons = Vec::new();
    if health.receive_drops > 0 {
        reasons.push(InvalidCause::ReceiveDrops.because(format!(
            "the tester's own ports dropped {} received frames",
            health.receive_drops
        )));
    }
    let refused = result.server.as_ref().map_or(0, |server| server.refused);
    if refused > 0 {
        reasons.push(InvalidCause::Other.because(format!(
            "the tester's server refused {refused} connections, because its table was full (increase open-max)"
        )));
    }
    if health.dropped_packets > 0 {
        reasons.push(InvalidCause::Other.because(format!(
            "the tester dropped {} of its own packets, because its tables or buffers were full",
            health.dropped_packets
        )));
    }
    reasons
}

/// Returns why answers may be late by the tester's fault, if requests over TCP have intervals.
fn reasons_of_intervals(
    result: &ConnectionResult,
    description: &Connections,
) -> impl Iterator<Item = (InvalidCause, String)> {
    let entries = description.mix.iter();
    let over_tcp = entries.filter(|entry| entry.protocol == TransportProtocol::Tcp);
    let shortest_ms = over_tcp
        .filter_map(|entry| entry.interval_ms)
        .reduce(f64::min);
    let (health, client) = (&result.health, result.client.as_ref());
    let late = client.map_or(0, |client| client.late_transactions);
    let answers = client.map_or(0, |client| client.transactions);
    let gap_ms = health.longest_gap_ns as f64 / 1e6;
    let has_gap = late > 0 && shortest_ms.is_some_and(|shortest_ms| gap_ms > shortest_ms / 2.0);
    let gap = has_gap.then(|| {
        let text = format!(
            "the tester did not run for {gap_ms:.3} ms, so some of the {late} late answers may be its own"
        );
        (InvalidCause::ReceiveGap, text)
    });
    let has_missed = health.delayed_requests as f64 > MISSED_RATIO_MAX * answers as f64;
    let missed = (health.delayed_requests > 0 && has_missed).then(|| {
        let text = format!(
            "the tester sent {} of its requests too late (limit: {:.0} % of {answers}; use a lower rate or more connections)",
            health.delayed_requests,
            MISSED_RATIO_MAX * 100.0
        );
        (InvalidCause::RateMissed, text)
    });
    gap.into_iter().chain(missed)
}

impl ConnectionResult {
    /// Returns the number of retransmission timeouts of both ends.
    fn tcp_timeouts(&self) -> u64 {
        let client = self.client.as_ref().map_or(0, |it| it.tcp.timeouts);
        let server = self.server.as_ref().map_or(0, |it| it.tcp.timeouts);
        client.saturating_add(server)
    }
}
