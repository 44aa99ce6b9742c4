// SPDX-License-Identifier: Apache-2.0
//! `quietwire generate --connections`: conversations over TCP and UDP instead of frames at a rate.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use quietwire_dpdk::PortUri;
use quietwire_lab::IsolationRecord;
use quietwire_tester::connections::{
    ClientResult, ConnectionResult, Connections, ExpectedNat, FloodResult, FragmentsResult,
    IllegalResult, NatCheckReport, ServerResult, TranslationReport,
};
use quietwire_tester::{LatencySummary, Preparation, Validity};
use serde::Serialize;

use super::latency::summary_lines;
use super::losses::INDENT;
use super::settle::leave_alone;
use super::validity::validity_lines;
use crate::commands::isolation::IsolationArgs;
use crate::commands::own_tester::{LINK_DEADLINE, OwnTesterArgs, warn_of_one_thread};
use crate::exit::{CheckFailed, ISOLATION_LEFT, Usage, stop_on_signals};
use crate::text::{fold, print, terminal_width};
use crate::units::parse_connection_rate;

/// Options about frames, which have no meaning for conversations.
const FRAME_OPTIONS: [&str; 15] = [
    "rate",
    "traffic",
    "frame_size",
    "ip",
    "learning_time",
    "direction",
    "reflected",
    "flows",
    "destinations",
    "mac_addresses",
    "warm_up",
    "low_rate",
    "calibration",
    "device_control",
    "attempts",
];

/// Conversations instead of frames at a rate.
#[derive(Debug, Args)]
pub(super) struct ConnectionArgs {
    /// Open the connections and UDP conversations of this description (TOML), instead of sending frames at a rate.
    #[arg(long, value_name = "FILE", conflicts_with_all = FRAME_OPTIONS)]
    connections: Option<PathBuf>,
    /// Conversations to open per second, such as 1000 or 300k. Default: that of the description.
    #[arg(long, value_name = "RATE", value_parser = parse_connection_rate, conflicts_with_all = FRAME_OPTIONS)]
    connections_rate: Option<f64>,
    /// Conversations to keep open, 1 to 4194304. Default: that of the description.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4_194_304), conflicts_with_all = FRAME_OPTIONS)]
    concurrent: Option<u32>,
    /// Check that a NAT translates clients into this pool: addresses, FIRST-LAST or prefixes, then ports=FIRST-LAST,
    /// same-mapping and paired, separated by commas; or none. Default: that of the description.
    #[arg(long, value_name = "POOL", conflicts_with_all = FRAME_OPTIONS)]
    expect_nat: Option<ExpectedNat>,
}

impl ConnectionArgs {
    /// Returns true if the options ask for conversations.
    pub(super) fn is_requested(&self) -> bool {
        self.connections.is_some()
            || self.connections_rate.is_some()
            || self.concurrent.is_some()
            || self.expect_nat.is_some()
    }
}

/// Options of a run.
#[derive(Debug)]
pub(super) struct Setup<'a> {
    pub(super) connections: &'a ConnectionArgs,
    pub(super) ports: &'a [PortUri],
    pub(super) tester: &'a OwnTesterArgs,
    pub(super) isolation: &'a IsolationArgs,
    pub(super) duration: Duration,
    pub(super) drain: Duration,
    pub(super) settle: Duration,
    pub(super) json: bool,
}

/// The result as JSON.
#[derive(Serialize)]
struct Output<'a> {
    #[serde(flatten)]
    result: &'a ConnectionResult,
    /// The description, with the options.
    connections: &'a Connections,
    /// The isolation that was applied.
    isolation: &'a IsolationRecord,
}

pub(super) fn run(args: &Setup<'_>) -> Result<()> {
    let description = description(args.connections, args.ports.len())?;
    let cpus = args.tester.cpus()?;
    warn_of_one_thread(&cpus);
    args.isolation.check(args.tester)?;
    args.tester.check_machine(args.ports)?;
    let stop = stop_on_signals(ISOLATION_LEFT)?;
    let eal = args.tester.start_dpdk(&cpus, args.ports)?;
    let size_max = description.frame_size_max();
    let mut tester = args
        .tester
        .open(&eal, cpus, args.ports, size_max, Preparation::default())?;
    tester.abort_on(&stop);
    tester.wait_for_links(LINK_DEADLINE)?;
    let whole_s = args.duration.saturating_add(args.drain).as_secs_f64();
    let isolation = args
        .isolation
        .isolate(args.tester, &mut tester, whole_s, &stop)?;
    leave_alone(args.settle, &stop);
    let result = tester.run_connections(&description, args.duration, args.drain)?;
    stop.store(true, Ordering::Relaxed);
    let record = isolation.record().clone();
    let undone = isolation.undo();
    if args.json {
        let output = Output {
            result: &result,
            connections: &description,
            isolation: &record,
        };
        print(serde_json::to_string_pretty(&output)?)?;
    } else {
        print(result_text(&result, usize::from(terminal_width())))?;
    }
    undone?;
    match &result.validity {
        Validity::Valid => check_nat(&result),
        Validity::Invalid(_) => Err(CheckFailed(
            "the run is invalid because the tester failed, so it has no result for the device (use a lower rate, or a CPU without other work)"
                .to_owned(),
        )
        .into()),
    }
}

/// Fails if a NAT translated a conversation otherwise than expected.
fn check_nat(result: &ConnectionResult) -> Result<()> {
    let server = result.server.as_ref();
    match server.and_then(|server| server.nat_check.as_ref()) {
        Some(checked) if checked.violating > 0 => Err(CheckFailed(format!(
            "{} of {} conversations were translated otherwise than expected (the result lists the first of them)",
            checked.violating, checked.conversations
        ))
        .into()),
        _ => Ok(()),
    }
}

/// Returns the description of file and options.
fn description(args: &ConnectionArgs, given: usize) -> Result<Connections> {
    let mut description = match &args.connections {
        Some(path) => Connections::read(path)?,
        None => Connections::default(),
    };
    if args.connections_rate.is_some() {
        description.rate = args.connections_rate;
    }
    if let Some(number) = args.concurrent {
        description.concurrent = Some(number);
        // Space for those in TIME-WAIT as well.
        description.open_max = description.open_max.max(number.saturating_mul(2));
    }
    if args.expect_nat.is_some() {
        description.nat.clone_from(&args.expect_nat);
    }
    if let Some(fault) = description.first_fault() {
        bail!(Usage(fault.message));
    }
    if !description.has_load() {
        bail!(Usage(
            "the description has neither a rate nor a number of concurrent conversations (add --connections-rate or --concurrent)"
                .to_owned()
        ));
    }
    let needed = description.role.ports();
    if needed != given {
        bail!(Usage(format!(
            "--port: conversations with role = \"{}\" require {needed} ports, and {given} are given",
            description.role.name()
        )));
    }
    Ok(description)
}

/// Formats causes with their numbers.
fn causes<'a>(failed: impl IntoIterator<Item = (&'a str, u64)>) -> String {
    let failed = failed.into_iter();
    let listed: Vec<String> = failed
        .map(|(words, count)| format!("{count} {words}"))
        .collect();
    listed.join(", ")
}

fn count(name: &str, count: u64, what: &str) -> String {
    format!("{name:INDENT$}{count:>14}  {what}")
        .trim_end()
        .to_owned()
}

fn client_lines(client: &ClientResult, width: usize) -> Vec<String> {
    let failed = client.failed.values().sum();
    let by_cause = causes(
        client
            .failed
            .iter()
            .map(|(cause, count)| (cause.words(), *count)),
    );
    let per_second = |rate: f64| format!("{rate:.1} per second");
    let mut lines = vec![
        count("opened", client.opened, ""),
        count("established", client.established, ""),
        count(
            "completed",
            client.completed,
            &per_second(client.completed_rate),
        ),
        fold(&count("failed", failed, &by_cause), width, INDENT),
        count("unfinished", client.unfinished, ""),
        count("most open", client.open_largest, ""),
        count(
            "answers",
            client.transactions,
            &per_second(client.transaction_rate),
        ),
    ];
    if client.lost_datagrams > 0 {
        lines.push(count("unanswered", client.lost_datagrams, "datagrams"));
    }
    for entry in &client.mix {
        lines.push(fold(
            &format!(
                "{:INDENT$}'{}': {} opened, {} completed, {} failed, {} answers",
                "mix", entry.name, entry.opened, entry.completed, entry.failed, entry.transactions
            ),
            width,
            INDENT,
        ));
    }
    let times: [(&'static str, &LatencySummary); 3] = [
        ("handshake", &client.handshake),
        ("first octet", &client.first_octet),
        ("answer", &client.transaction),
    ];
    lines.extend(summary_lines(times));
    lines
}

fn server_lines(server: &ServerResult, width: usize) -> Vec<String> {
    let mut lines = vec![fold(
        &format!(
            "{:INDENT$}{} connections accepted, {} completed, {} datagrams answered",
            "server", server.accepted, server.completed, server.datagrams
        ),
        width,
        INDENT,
    )];
    if !server.failed.is_empty() {
        let failed = server.failed.iter();
        let by_cause = causes(failed.map(|(cause, count)| (cause.words(), *count)));
        lines.push(fold(
            &format!("{:INDENT$}failed: {by_cause}", ""),
            width,
            INDENT,
        ));
    }
    lines.extend(translation_line(&server.translations, width));
    let checked = server.nat_check.as_ref();
    lines.extend(checked.map(|checked| fold(&nat_check_line(checked), width, INDENT)));
    lines
}

/// Describes whether a NAT translated as expected.
fn nat_check_line(checked: &NatCheckReport) -> String {
    let name = "NAT check";
    if checked.violating == 0 {
        return format!(
            "{name:INDENT$}all {} conversations as expected",
            checked.conversations
        );
    }
    let faults = checked.faults.iter();
    let faults = causes(faults.map(|(fault, count)| (fault.words(), *count)));
    let first = checked.first.first().map_or_else(String::new, |first| {
        format!("; first: {} arrived as {}", first.source, first.arrived)
    });
    format!(
        "{name:INDENT$}{} of {} conversations otherwise than expected: {faults}{first}",
        checked.violating, checked.conversations
    )
}

/// Describes the flood beside the conversations.
fn flood_line(flood: &FloodResult) -> String {
    let arrived = flood.arrived.map_or_else(String::new, |arrived| {
        format!(", {arrived} arrived at the server")
    });
    format!(
        "{:INDENT$}{} of {} SYNs sent{arrived}",
        "flood", flood.sent, flood.scheduled
    )
}

/// Describes the illegal traffic beside the conversations.
fn illegal_line(illegal: &IllegalResult) -> String {
    let forwarded = illegal.forwarded.map_or_else(String::new, |forwarded| {
        format!(", {forwarded} forwarded by the device (must be 0)")
    });
    format!(
        "{:INDENT$}{} of {} SYNs sent{forwarded}",
        "illegal", illegal.sent, illegal.scheduled
    )
}

/// Describes the fragmented datagrams beside the conversations.
fn fragments_line(fragments: &FragmentsResult) -> String {
    let arrived = fragments.arrived.map_or_else(String::new, |arrived| {
        format!(
            "; arrived: {} datagrams complete, {} fragments, {} datagrams reassembled, {} damaged",
            arrived.complete, arrived.fragments, arrived.reassembled, arrived.damaged
        )
    });
    format!(
        "{:INDENT$}{} of {} datagrams sent in {} fragments{arrived}",
        "fragments", fragments.sent, fragments.scheduled, fragments.sent_fragments
    )
}

/// Describes what a NAT has changed; nothing if there is none.
fn translation_line(observed: &TranslationReport, width: usize) -> Option<String> {
    let (first, last) = (observed.pool.first()?, observed.pool.last()?);
    let ports = observed.pool.iter();
    let ports = ports.fold((u16::MAX, 0), |(low, high), listed| {
        (low.min(listed.first_port), high.max(listed.last_port))
    });
    let addresses = if observed.pool.len() == 1 {
        first.address.to_string()
    } else {
        format!(
            "{} addresses from {} to {}",
            observed.pool.len(),
            first.address,
            last.address
        )
    };
    let line = format!(
        "{:INDENT$}{} of {} sources changed to {addresses}, ports {} to {}; repeated sources: {} with the same mapping, {} with another \
         port, {} with another address",
        "NAT",
        observed.changed,
        observed.changed.saturating_add(observed.unchanged),
        ports.0,
        ports.1,
        observed.same_mapping,
        observed.other_port,
        observed.other_address
    );
    Some(fold(&line, width, INDENT))
}

/// Formats the result as text, folded to `width` columns.
fn result_text(result: &ConnectionResult, width: usize) -> String {
    let mut lines = Vec::new();
    let client = result.client.as_ref();
    lines.extend(client.into_iter().flat_map(|it| client_lines(it, width)));
    let server = result.server.as_ref();
    lines.extend(server.into_iter().flat_map(|it| server_lines(it, width)));
    let flood = result.flood.as_ref();
    lines.extend(flood.map(|flood| fold(&flood_line(flood), width, INDENT)));
    let illegal = result.illegal.as_ref();
    lines.extend(illegal.map(|illegal| fold(&illegal_line(illegal), width, INDENT)));
    let fragments = result.fragments.as_ref();
    lines.extend(fragments.map(|it| fold(&fragments_line(it), width, INDENT)));
    let ends = [client.map(|it| &it.tcp), server.map(|it| &it.tcp)];
    let sum = |of: fn(&quietwire_tester::connections::TcpResult) -> u64| -> u64 {
        ends.iter().flatten().map(|tcp| of(tcp)).sum()
    };
    lines.push(fold(
        &format!(
            "{:INDENT$}{} segments retransmitted, {} timeouts, {} segments out of order, {} frames damaged",
            "TCP",
            sum(|tcp| tcp.retransmitted_segments),
            sum(|tcp| tcp.timeouts),
            sum(|tcp| tcp.out_of_order_segments),
            sum(|tcp| tcp.damaged_frames)
        ),
        width,
        INDENT,
    ));
    let health = &result.health;
    lines.push(fold(
        &format!(
            "{:INDENT$}{} conversations not opened in time, longest gap {:.2} us, real-time {}",
            "tester",
            health.missed,
            health.longest_gap_ns as f64 / 1e3,
            if health.realtime { "yes" } else { "no" }
        ),
        width,
        INDENT,
    ));
    lines.extend(validity_lines(&result.validity, width));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use quietwire_tester::connections::{
        ArrivedFragments, FailureCause, MixResult, NatFault, NatViolation, PoolAddress, TcpResult,
    };

    use super::*;

    #[test]
    fn failures_and_translations_are_printed() {
        let client = ClientResult {
            scheduled: 10,
            opened: 10,
            established: 9,
            completed: 7,
            completed_rate: 3.5,
            failed: BTreeMap::from([(FailureCause::Refused, 1), (FailureCause::Damaged, 2)]),
            unfinished: 0,
            open_largest: 4,
            transactions: 7,
            transaction_rate: 3.5,
            lost_datagrams: 0,
            received_octets: 700,
            tcp: TcpResult::default(),
            handshake: LatencySummary::default(),
            first_octet: LatencySummary::default(),
            late_transactions: 0,
            sustained: None,
            transaction: LatencySummary::default(),
            mix: vec![MixResult {
                name: "web".to_owned(),
                opened: 10,
                completed: 7,
                failed: 3,
                transactions: 7,
            }],
        };
        let text = client_lines(&client, 200).join("\n");
        assert!(
            text.contains("\nfailed                  3  1 refused, 2 damaged payload\n"),
            "{text}"
        );
        assert!(text.contains("\nmix        'web': 10 opened, 7 completed, 3 failed, 7 answers"));
        assert!(
            text.contains("\ncompleted               7  3.5 per second\n"),
            "{text}"
        );
        assert_eq!(translation_line(&TranslationReport::default(), 80), None);
        let listed = |last: u8| PoolAddress {
            address: std::net::IpAddr::from([203, 0, 113, last]),
            conversations: 5,
            first_port: 1000 + u16::from(last),
            last_port: 2000 + u16::from(last),
        };
        let report = TranslationReport {
            changed: 10,
            pool: vec![listed(1), listed(2)],
            same_mapping: 6,
            ..TranslationReport::default()
        };
        let line = translation_line(&report, 400).unwrap();
        let expected = "NAT        10 of 10 sources changed to 2 addresses from 203.0.113.1 to 203.0.113.2, ports 1001 to 2002; repeated \
                        sources: 6 with the same mapping, 0 with another port, 0 with another address";
        assert_eq!(line, expected);
        let flood = FloodResult {
            scheduled: 10,
            sent: 9,
            arrived: Some(7),
        };
        let expected = "flood      9 of 10 SYNs sent, 7 arrived at the server";
        assert_eq!(flood_line(&flood), expected);
        let illegal = IllegalResult {
            scheduled: 10,
            sent: 10,
            forwarded: Some(1),
        };
        let expected = "illegal    10 of 10 SYNs sent, 1 forwarded by the device (must be 0)";
        assert_eq!(illegal_line(&illegal), expected);
        let fragments = FragmentsResult {
            scheduled: 10,
            sent: 10,
            sent_fragments: 20,
            arrived: Some(ArrivedFragments {
                fragments: 14,
                reassembled: 2,
                damaged: 1,
                complete: 8,
            }),
        };
        let expected = "fragments  10 of 10 datagrams sent in 20 fragments; arrived: 8 datagrams complete, 14 fragments, \
                        2 datagrams reassembled, 1 damaged";
        assert_eq!(fragments_line(&fragments), expected);
    }

    #[test]
    fn a_nat_that_is_not_as_expected_is_described() {
        let mut checked = NatCheckReport {
            expected: "203.0.113.0/28,ports=2000-2999".parse().unwrap(),
            conversations: 400,
            violating: 0,
            faults: BTreeMap::new(),
            first: Vec::new(),
        };
        let good = "NAT check  all 400 conversations as expected";
        assert_eq!(nat_check_line(&checked), good);
        checked.violating = 12;
        checked.faults = BTreeMap::from([(NatFault::OutsidePool, 10), (NatFault::OutsidePorts, 4)]);
        checked.first.push(NatViolation {
            fault: NatFault::OutsidePool,
            source: "198.18.0.1:1024".parse().unwrap(),
            arrived: "192.0.2.9:2000".parse().unwrap(),
        });
        let bad = "NAT check  12 of 400 conversations otherwise than expected: 10 outside the pool, 4 outside the ports; first: \
                   198.18.0.1:1024 arrived as 192.0.2.9:2000";
        assert_eq!(nat_check_line(&checked), bad);
    }
}
