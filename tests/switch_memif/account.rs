// SPDX-License-Identifier: Apache-2.0
//! `quietwire generate --device-control`: each lost frame is attributed to the port and the reason that lost it.

use std::process::Command;

use quietwire_switch::report::{PortDrop, PortReport};
use serde_json::Value;

use crate::bench::{Bench, command, output, quietwire, until};

/// UDP source port of the tester's first flow.
const FIRST_SOURCE_PORT: &str = "1024";

/// Runs of a measurement until one is not disturbed by other programs.
const ATTEMPTS: usize = 5;

/// Returns a command of the tester on ports a and b, beside the switch.
fn on_ports(bench: &Bench, words: &[&str]) -> Command {
    let mut command = quietwire();
    command.args(words);
    for name in ["a", "b"] {
        let path = bench.path(&format!("{name}.sock"));
        let uri = format!("memif:{}?role=client", path.display());
        command.args(["--port", &uri]);
    }
    command.arg("--device-control");
    command.arg(bench.path("control.sock"));
    command.args(["--no-huge", "--memory-mib", "128"]);
    // Other tests run at the same time, on all CPUs.
    command.args(["--isolation", "none"]);
    command
}

/// Returns `generate` on ports a and b.
pub(crate) fn generate(bench: &Bench, more: &[&str]) -> Command {
    let mut command = on_ports(bench, &["generate"]);
    if !more.contains(&"--drain") {
        command.args(["--drain", "300ms"]);
    }
    command.args(more);
    command
}

/// Returns the result of a trial; an invalid trial has an account as well.
pub(crate) fn result(command: &mut Command) -> Value {
    let output = command.arg("--json").output().unwrap();
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns where frames were lost: port, reason and frames, most frames first. Checks that they sum up to the whole loss,
/// and that no counter contradicts another.
pub(crate) fn places(result: &Value) -> Vec<(String, String, u64)> {
    let account = &result["loss_account"]["account"];
    assert_eq!(account["unknown_frames"], 0, "{account}");
    assert_eq!(account["tester_frames"], 0, "{account}");
    assert!(account["differences"].is_null(), "{account}");
    let text = |place: &Value, key: &str| place[key].as_str().unwrap().to_owned();
    let places: Vec<(String, String, u64)> = account["places"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|place| {
            assert_eq!(place["element"], "switch");
            let frames = place["frames"].as_u64().unwrap();
            (text(place, "port"), text(place, "reason"), frames)
        })
        .collect();
    let lost: u64 = places.iter().map(|(.., frames)| frames).sum();
    assert_eq!(result["lost_frames"], lost, "{account}");
    places
}

/// Returns true if the figure is a share.
fn is_share(figure: &Value) -> bool {
    figure
        .as_f64()
        .is_some_and(|share| (0.0..=1.0).contains(&share))
}

/// Checks that a result has the idle time of both sides. Returns the part that limited the rate, if it names one.
fn limit(result: &Value) -> Option<String> {
    let limit = &result["limit"];
    for key in ["device_idle_ratio", "tester_idle_ratio"] {
        assert!(is_share(&limit[key]), "{key}: {limit}");
    }
    limit["by"].as_str().map(str::to_owned)
}

#[test]
fn frames_that_a_rule_drops_are_lost_at_its_port() {
    let bench = Bench::alone(&["a", "b"], &["--bridge", "lan=a,b"]);
    let change = |arguments: &[&str]| output(&mut command(&bench, arguments));
    // Fewer frames than a ring has: a tester that other programs stall loses none.
    let trial = [
        "--rate",
        "4k",
        "--duration",
        "200ms",
        "--flows",
        "4",
        "--low-rate",
        "0",
    ];
    // Without loss, there are no places.
    let clean = result(&mut generate(
        &bench,
        &[&trial[..], &["--warm-up", "100ms"]].concat(),
    ));
    assert_eq!(places(&clean), []);
    assert_eq!(clean["lost_frames"], 0);
    // All frames came through, so neither side was a limit.
    assert_eq!(limit(&clean), None);

    // One of four flows of port a. The length of the warm-up does not matter: the rule drops its frames as well.
    let quarter = ["add", "rule", "quarter", "--action", "drop", "--port", "a"];
    let first_flow = ["--protocol", "udp", "--source-port", FIRST_SOURCE_PORT];
    change(&[&quarter[..], &first_flow].concat());
    for warm_up in ["0s", "200ms"] {
        let reported = result(&mut generate(
            &bench,
            &[&trial[..], &["--warm-up", warm_up]].concat(),
        ));
        let offered = reported["ports"][0]["offered_frames"].as_u64().unwrap();
        let lost = reported["lost_frames"].as_u64().unwrap();
        assert!(lost.abs_diff(offered / 4) <= 1, "{lost} of {offered}");
        // A trial that the tester failed in shows no limit.
        let is_valid = reported["validity"]["state"] == "valid";
        assert_eq!(limit(&reported).is_some(), is_valid, "{reported}");
        assert_eq!(
            places(&reported),
            [("a".to_owned(), "denied".to_owned(), lost)]
        );
    }
    // All frames of port b: both ports have separate places.
    change(&["add", "rule", "all", "--action", "drop", "--port", "b"]);
    let reported = result(&mut generate(
        &bench,
        &[&trial[..], &["--warm-up", "0s"]].concat(),
    ));
    let offered = |port: usize| reported["ports"][port]["offered_frames"].as_u64().unwrap();
    let found = places(&reported);
    assert_eq!(found[0].0, "b");
    assert_eq!(found[1].0, "a");
    assert!(found[0].2.abs_diff(offered(1)) <= 2, "{found:?}");
    assert!(found[1].2.abs_diff(offered(0) / 4) <= 2, "{found:?}");

    // The text for users. A trial that the tester failed in shows no limit.
    let shown = || {
        let mut text = generate(&bench, &[&trial[..], &["--warm-up", "0s"]].concat());
        let text = String::from_utf8(text.output().unwrap().stdout).unwrap();
        let is_there = text.contains("lost at") && text.contains("switch b: denied");
        assert!(is_there, "{text}");
        text
    };
    until("the limit is shown", || {
        let text = shown();
        (text.contains("\nlimit ") && text.contains("device idle")).then_some(())
    });
}

#[test]
fn a_search_through_a_running_switch_has_the_idle_time_of_both_sides() {
    let bench = Bench::alone(&["a", "b"], &["--cross-connect", "a,b"]);
    let measured = || {
        let mut measure = on_ports(&bench, &["measure", "single-run"]);
        measure.args(["--max-rate-pps", "20k", "--duration", "100ms"]);
        let output = measure.args(["--warm-up", "0s", "--json"]).output();
        let document: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        document["summary"]["sizes"][0]["cases"][0]["limits"][0].clone()
    };
    let mut limits = (0..ATTEMPTS).map(|_| measured());
    let limit = limits.find(|limit| !limit.is_null()).expect("a rate");
    for key in ["device_idle_ratio", "tester_idle_ratio"] {
        assert!(is_share(&limit[key]["median"]), "{key}: {limit}");
    }
    // By the counters of the switch, the limit is known.
    assert_ne!(limit["by"], "device", "{limit}");
}

#[test]
fn a_full_transmit_ring_is_where_frames_are_lost() {
    let bench = Bench::alone(&["a", "b", "c"], &["--bridge", "lan=a,b,c"]);
    // Frames to the tester's other port are sent to port c instead, whose peer never receives.
    let _silent = bench.peer("c");
    let address = "02:01:00:00:00:00";
    output(&mut command(&bench, &["add", "fdb", "lan", address, "c"]));
    let trial = ["--rate", "20k", "--duration", "500ms", "--warm-up", "0s"];
    let one_way = ["--direction", "one-way", "--low-rate", "0"];
    let reported = result(&mut generate(&bench, &[&trial[..], &one_way].concat()));
    let found = places(&reported);
    let ports: Vec<PortReport> = bench.show("ports");
    let counts = &ports[2].counts;
    assert!(counts.drops[PortDrop::TxFull] > 0, "{counts:?}");
    let offered = reported["offered_frames"].as_u64().unwrap();
    assert_eq!(reported["lost_frames"], offered);
    // The learning frame was sent before the counted part, but the counters of the switch include it.
    let account = &reported["loss_account"]["account"];
    let before = account["lost_before_frames"].as_u64().unwrap();
    let sent = offered + before - counts.drops[PortDrop::TxFull];
    let mut expected = [
        ("c", "tx_full", counts.drops[PortDrop::TxFull]),
        ("c", "sent_elsewhere", sent),
    ];
    expected.sort_by_key(|(.., frames)| std::cmp::Reverse(*frames));
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!((&*found.0, &*found.1), (expected.0, expected.1));
        assert!(expected.2 - found.2 <= before, "{found:?} {expected:?}");
    }
    let placed: u64 = found.iter().map(|(.., frames)| frames).sum();
    assert_eq!((placed, found.len()), (offered, 2));
}

#[test]
fn a_wrong_control_socket_is_refused_before_anything_is_sent() {
    let bench = Bench::start(&["a", "b"], &["--cross-connect", "a,b"]);
    let mut command = quietwire();
    let socket = bench.path("a.sock");
    let uri = format!("memif:{}?role=client", socket.display());
    command.args(["generate", "--port", &uri, "--rate", "1k", "--no-huge"]);
    command.args([
        "--memory-mib",
        "128",
        "--device-control",
        "/nowhere/control.sock",
    ]);
    let output = command.output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(
        printed.contains("--device-control /nowhere/control.sock: "),
        "{printed}"
    );
    let ports: Vec<PortReport> = bench.show("ports");
    assert_eq!(ports[0].counts.rx_frames, 0);
}
