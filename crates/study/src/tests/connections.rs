// SPDX-License-Identifier: Apache-2.0
//! Methods for stateful devices, on a simulated device with known limits.

use std::path::Path;

use quietwire_search::procedure::{
    ConversationSearchFindings, ProcedureEnd, ProcedureFindings, ProcedureResult,
};

use super::procedures::run_interrupted;
use crate::*;

const HEAD: &str = concat!(
    "name = \"connections\"\ntitle = \"Connections\"\n",
    include_str!("device.toml"),
    "mode = \"bridge\"\n[trials]\nduration-s = 1\n",
);

const CASE: &str = "[[case]]\nname = \"only\"\nneighbours = \"none\"\nisolation = \"none\"\n";

const STUDY: &str = "
[connections-per-second]
max-per-s = 50000
failure-ratio = 0
[concurrent-connections]
max-connections = 20000
failure-ratio = 0
[transactions-per-second]
max-per-s = 100000
failure-ratio = 0
[connection-throughput]
repeats = 2
[transaction-latency]
repeats = 2
failure-ratio = 0
";

const DEVICE: &str =
    "capacity=250k,line-rate=10M,connections=7000,connection-rate=16000,latency=20us";

fn text(sections: &str) -> String {
    format!("{HEAD}{sections}{CASE}")
}

fn parse(text: &str) -> Result<StudyFile, String> {
    StudyFile::parse(text, Path::new("c.toml")).map_err(|error| error.to_string())
}

/// Runs a study, interrupted after every `actions` actions and continued on a new device.
fn run(text: &str, device: &str, actions: u32) -> StudyResults {
    run_interrupted(text, device, actions, false)
}

fn result(results: &StudyResults, kind: &StepKind) -> ProcedureResult {
    let mut steps = results.steps.iter();
    let step = steps.find(|step| step.kind == *kind).unwrap();
    assert!(step.is_finished && !step.actions.is_empty() && step.trials.is_empty());
    step.procedure.clone().unwrap()
}

fn searched(results: &StudyResults, kind: &StepKind) -> ConversationSearchFindings {
    let found = result(results, kind);
    assert_eq!(found.end, ProcedureEnd::Finished);
    match found.findings {
        ProcedureFindings::ConnectionsPerSecond(found)
        | ProcedureFindings::ConcurrentConnections(found)
        | ProcedureFindings::TransactionsPerSecond(found) => *found,
        other => panic!("findings of another method: {other:?}"),
    }
}

fn check(results: &StudyResults) {
    for (kind, limit) in [
        (StepKind::ConnectionsPerSecond, 16_000.0),
        (StepKind::ConcurrentConnections, 7_000.0),
        // Four packets of a transaction.
        (StepKind::TransactionsPerSecond, 62_500.0),
    ] {
        let found = searched(results, &kind);
        let (highest, resolution) = (found.highest_held.unwrap(), found.config.resolution);
        assert!(highest <= limit + 1.0, "{kind}: {highest}");
        assert!(highest + resolution >= limit, "{kind}: {highest}");
        assert_eq!(found.held.unwrap().failed, 0);
        assert!(found.failed.unwrap().failed > 0);
    }
    let throughput = result(results, &StepKind::ConnectionThroughput);
    let ProcedureFindings::ConnectionThroughput(found) = throughput.findings else {
        panic!()
    };
    // A request and 180 segments of 1460 octets, with an acknowledgement each.
    let expected = 250_000.0 / 362.0 * 262_144.0 * 8.0;
    let mean = found.received_bps.unwrap().mean;
    assert!(
        (mean / expected - 1.0).abs() < 1e-9,
        "{mean} and {expected}"
    );
    let latency = result(results, &StepKind::TransactionLatency);
    let ProcedureFindings::TransactionLatency(found) = latency.findings else {
        panic!()
    };
    let per_s = found.per_s.unwrap();
    assert!((30_700.0..=31_250.0).contains(&per_s), "{per_s}");
    let mean = found.median_ns(|run| run.last_octet, |times| Some(times.mean_ns));
    // 40 us without load, and half more at half of the load.
    let mean = mean.unwrap();
    assert!((50_000.0..70_000.0).contains(&mean), "{mean}");
}

#[test]
fn each_method_finds_the_limits_of_the_simulated_device_and_can_be_resumed() {
    check(&run(&text(STUDY), DEVICE, u32::MAX));
    check(&run(&text(STUDY), DEVICE, 1));
}

#[test]
fn a_device_that_remembers_closed_connections_needs_a_pause() {
    let section = "[connections-per-second]\nmax-per-s = 5000\nfailure-ratio = 0\n";
    let device = "connections=4000,closed-timeout=500ms";
    let highest = |keys: &str| {
        let results = run(&text(&format!("{section}{keys}")), device, u32::MAX);
        searched(&results, &StepKind::ConnectionsPerSecond)
            .highest_held
            .unwrap_or(0.0)
    };
    // The table holds the connections of half a second.
    assert_eq!(highest("pause-s = 1\n"), 5_000.0);
    let small = "connections=1000,closed-timeout=500ms";
    let results = run(&text(&format!("{section}pause-s = 1\n")), small, u32::MAX);
    let found = searched(&results, &StepKind::ConnectionsPerSecond);
    let highest = found.highest_held.unwrap();
    assert!((1_950.0..=2_001.0).contains(&highest), "{highest}");
    let causes = found.failed.unwrap().causes;
    assert!(causes.contains_key("refused"), "{causes:?}");
}

#[test]
fn illegal_traffic_beside_connections_uses_capacity_of_the_device() {
    // Eleven packets of each connection.
    let section = "[connections-per-second]\nmax-per-s = 50000\nfailure-ratio = 0\n";
    for (illegal, limit) in [
        ("", 12_000.0),
        ("[connections.illegal]\nrate = 22000.0\n", 10_000.0),
    ] {
        let text = text(&format!("{section}{illegal}"));
        let results = run(&text, "capacity=132k,line-rate=10M", u32::MAX);
        let found = searched(&results, &StepKind::ConnectionsPerSecond);
        let (highest, resolution) = (found.highest_held.unwrap(), found.config.resolution);
        assert!(highest <= limit + 1.0, "{illegal}: {highest}");
        assert!(highest + resolution >= limit, "{illegal}: {highest}");
    }
}

#[test]
fn a_tester_that_is_the_limit_gives_a_lower_bound() {
    // The link carries 110,000 packets per second, eleven for each connection.
    let section = "[connections-per-second]\nmax-per-s = 50000\nfailure-ratio = 0\n";
    let results = run(&text(section), "capacity=1M,line-rate=110k", u32::MAX);
    let found = searched(&results, &StepKind::ConnectionsPerSecond);
    assert!(found.is_limit(), "{found:?}");
    let highest = found.highest_held.unwrap();
    assert!((9_000.0..=10_010.0).contains(&highest), "{highest}");
    assert_eq!(found.failed, None);
}

#[test]
fn descriptions_are_those_of_the_tester_and_are_written_as_they_are_read() {
    let described = "
[connections]
seed = 3
idle-timeout-ms = 45000.0
[connections.client]
count = 40
next-hop-mac = \"02:00:00:00:00:09\"
[connections.server]
address = \"198.18.1.7\"
[[connections.mix]]
name = \"web\"
port = 8080
request = [100, 200]
answer = 1000
[connections-per-second]
";
    let file = parse(&text(described)).unwrap();
    assert_eq!(file.conversations().mix[0].port, 8080);
    let written = toml::to_string(&file).unwrap();
    assert_eq!(parse(&written).unwrap(), file, "{written}");
    let usual = parse(&text("[connections-per-second]\n")).unwrap();
    assert_eq!(usual.conversations().client.count, 16);
    assert!(usual.opens_connections() && usual.connections.is_none());
}

#[test]
fn wrong_values_of_connection_methods_are_reported_with_their_key() {
    for (sections, expected) in [
        (
            "[connections-per-second]\nmax-per-s = 0\n",
            "connections-per-second.max-per-s: ",
        ),
        (
            "[connections-per-second]\nfailure-ratio = 1\n",
            "connections-per-second.failure-ratio: ",
        ),
        (
            "[connections-per-second]\nresolution-percent = 30\n",
            "connections-per-second.resolution-percent: ",
        ),
        (
            "[connections-per-second]\nspeed = 1\n",
            "connections-per-second.speed: ",
        ),
        (
            "[connections-per-second]\nbest-of = 0\n",
            "connections-per-second.best-of: ",
        ),
        (
            "[connections-per-second]\npause-s = -1\n",
            "connections-per-second.pause-s: ",
        ),
        (
            "[concurrent-connections]\nopening-per-s = 0\n",
            "concurrent-connections.opening-per-s: ",
        ),
        (
            "[concurrent-connections]\nmax-connections = 2000000\n",
            "concurrent-connections: 2000000 connections require more",
        ),
        (
            "[transactions-per-second]\nconnections = 10\n",
            "transactions-per-second.connections: 100000 requests per second over 10 connections",
        ),
        (
            "[transaction-latency]\nrate-per-s = -1\n",
            "transaction-latency.rate-per-s: ",
        ),
        (
            "[connection-throughput]\nanswer = 1000000000\n",
            "connection-throughput.transactions: ",
        ),
        (
            "[connections]\nrate = 5.0\n[connections-per-second]\n",
            "connections.rate: ",
        ),
        (
            "[connections]\nmss = 5\n[connections-per-second]\n",
            "connections.mss: ",
        ),
        (
            "[connections]\nrole = \"client\"\n[connections-per-second]\n",
            "connections-per-second: methods for connections require both ends",
        ),
        (
            "[traffic]\nframe-sizes = [64, 128]\n[connections-per-second]\n",
            "connections-per-second: connections have no frame size",
        ),
    ] {
        let message = parse(&text(sections)).unwrap_err();
        assert!(message.contains(expected), "{sections}: {message}");
    }
}
