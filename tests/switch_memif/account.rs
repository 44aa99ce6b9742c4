// SPDX-License-Identifier: Apache-2.0
//! `quietwire generate --device-control`: each lost frame is attributed to the port and the reason that lost it.

use std::process::Command;

use quietwire_switch::report::{PortDrop, PortReport};
use serde_json::Value;

use crate::bench::{Bench, command, output, quietwire};

/// UDP source port of the tester's first flow.
const FIRST_SOURCE_PORT: &str = "1024";

/// Returns `generate` on ports a and b.
pub(crate) fn generate(bench: &Bench, more: &[&str]) -> Command {
    let mut command = quietwire();
    command.arg("generate");
    for name in ["a", "b"] {
        let path = bench.path(&format!("{name}.sock"));
        let uri = format!("memif:{}?role=client", path.display());
        command.args(["--port", &uri]);
    }
    command.arg("--device-control");
    command.arg(bench.path("control.sock"));
    command.args(["--no-huge", "--memory-mib", "128"]);
    if !more.contains(&"--drain") {
        command.args(["--drain", "300ms"]);
    }
    // Other tests run at the same time, on all CPUs.
    command.args(["--isolation", "none"]);
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

#[test]
fn what_a_rule_drops_is_lost_at_its_port() {
    let bench = Bench::start(&["a", "b"], &["--bridge", "lan=a,b"]);
    let change = |arguments: &[&str]| output(&mut command(&bench, arguments));
    let trial = [
        "--rate",
        "20k",
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

    // The text for users.
    let mut text = generate(&bench, &[&trial[..], &["--warm-up", "0s"]].concat());
    let text = String::from_utf8(text.output().unwrap().stdout).unwrap();
    let is_there = text.contains("lost at") && text.contains("switch b: denied");
    assert!(is_there, "{text}");
}

#[test]
fn a_full_transmit_ring_is_where_frames_are_lost() {
    let bench = Bench::start(&["a", "b", "c"], &["--bridge", "lan=a,b,c"]);
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
