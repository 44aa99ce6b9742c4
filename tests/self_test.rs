// SPDX-License-Identifier: Apache-2.0
//! Tests of `quietwire tester self-test` with the real binary: the figures of the tester agree with the ledger of the
//! device, the exit code matches the JSON, and no process remains.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quietwire_base::Deadline;
use serde_json::Value;

const FAILED: i32 = 1;
const BAD_INPUT: i32 = 2;
const DEADLINE: Duration = Duration::from_secs(60);
/// A busy machine may take the CPU from a trial, whose result is then not proven.
const ATTEMPTS: usize = 3;

/// One self-test at a time: on the same two CPUs, each would keep others from a proof.
static MACHINE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn self_test(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quietwire"));
    command
        .args(["tester", "self-test", "--no-huge", "--memory-mib", "256"])
        .args(arguments)
        .env("QUIETWIRE_LOG", "warn")
        .stdin(Stdio::null());
    command
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// Fails if the exit code does not match the counts.
fn check_exit(output: &Output, result: &Value) {
    let count = |key: &str| result[key].as_u64().unwrap();
    let is_proven = count("differing") == 0 && count("agreeing") > 0;
    let expected = if is_proven { 0 } else { FAILED };
    assert_eq!(
        output.status.code(),
        Some(expected),
        "{}",
        text(&output.stderr)
    );
    let cases = result["cases"].as_array().unwrap().len() as u64;
    assert_eq!(
        count("agreeing") + count("differing") + count("not_proven"),
        cases
    );
}

/// Returns the sum of one figure of a ledger over both directions.
fn in_ledger(case: &Value, key: &str) -> u64 {
    let directions = case["ledger"]["directions"].as_array().unwrap();
    let figures = directions.iter().map(|tally| tally[key].as_u64().unwrap());
    figures.sum()
}

fn measured(case: &Value, name: &str) -> u64 {
    let figures = case["figures"].as_array().unwrap();
    let figure = figures.iter().find(|figure| figure["name"] == name);
    figure.unwrap_or_else(|| panic!("no {name}: {case}"))["measured"]
        .as_u64()
        .unwrap()
}

/// Options that choose the tester's access to frames, its ports and its CPUs.
type Setup = &'static [&'static str];

const IN_PLACE: Setup = &["--frame-access", "in-place"];
const IN_BUFFERS: Setup = &["--frame-access", "packet-buffers"];
/// The tester owns the buffers of the rings.
const MEMIF_CLIENT: Setup = &["--link", "memif-client"];
const VIRTIO_USER: Setup = &["--link", "virtio-user"];
const VIRTIO_USER_PACKED: Setup = &["--link", "virtio-user-packed"];
const VHOST: Setup = &["--link", "vhost"];
/// Each CPU has one port. On two CPUs, the device runs while the tester sleeps.
const TWO_CPUS: Setup = &["--link", "memif-client", "--cpus", "0,1", "--idle", "sleep"];

/// A fault, the figure of the ledger that shows it, and the tester's figure that must be the same.
type Expected = (&'static str, &'static str, Option<&'static str>);

const FAULTS: [Expected; 8] = [
    ("loss", "lost", Some("lost_frames")),
    ("duplicate", "copies", Some("duplicate_frames")),
    ("reorder", "reordered", Some("reordered_frames")),
    ("delay", "forwarded", Some("received_frames")),
    ("stall", "stalls", None),
    ("damage", "damaged", Some("damaged_frames")),
    ("late-duplicate", "copies", Some("duplicate_frames")),
    ("misdirect", "misdirected", None),
];

/// The case without a fault.
const FAULTLESS: Expected = ("none", "forwarded", Some("received_frames"));

/// Returns the number of frames that the full ring of the device refused: it never received them.
fn refused(case: &Value) -> u64 {
    let offered: u64 = (0..2)
        .map(|port| measured(case, &format!("port {port} offered_frames")))
        .sum();
    offered - in_ledger(case, "received")
}

/// Runs these faults at a rate, in one setup. Returns those that were not proven, each with the reasons. A difference fails the
/// test.
fn not_proven(rate: &str, setup: Setup, faults: &[Expected]) -> Vec<(Expected, Value)> {
    let mut command = self_test(&["--rate", rate, "--frame-size", "64"]);
    command.args(setup);
    // At the lowest rate, the first copy of 2,500 frames later is due after some 50 ms, and all other faults before.
    command.args(["--duration", "200ms", "--json"]);
    // Every run has the case without a fault.
    for (fault, _, _) in faults.iter().filter(|expected| **expected != FAULTLESS) {
        command.args(["--fault", fault]);
    }
    let output = command.output().unwrap();
    let result: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    check_exit(&output, &result);
    if let ["--link", link, ..] = setup {
        assert_eq!(result["link"], *link);
    }
    let cases = result["cases"].as_array().unwrap();
    assert!(cases.iter().any(|case| case["name"] == "none"));
    for case in cases {
        let verdict = &case["verdict"];
        match verdict["state"].as_str().unwrap() {
            "agrees" => {}
            "not-proven" => {
                let reasons = verdict["reasons"].as_array().unwrap();
                assert!(!reasons.is_empty(), "{case}");
                assert!(reasons.iter().all(|it| !it.as_str().unwrap().is_empty()));
            }
            _ => panic!("{case}"),
        }
    }
    let mut open = Vec::new();
    for (fault, key, figure) in faults {
        let case = cases.iter().find(|case| case["name"] == *fault).unwrap();
        if case["verdict"]["state"] != "agrees" {
            open.push(((*fault, *key, *figure), case["verdict"]["reasons"].clone()));
            continue;
        }
        assert!(in_ledger(case, key) > 0, "{case}");
        if let Some(figure) = figure {
            let refused = if *figure == "lost_frames" {
                refused(case)
            } else {
                0
            };
            assert_eq!(
                in_ledger(case, key) + refused,
                measured(case, figure),
                "{case}"
            );
        }
    }
    open
}

/// Runs these cases at a rate until each agrees. Fails if some never does, or if one differs.
fn assert_proven(rate: &str, setup: Setup, cases: &[Expected]) {
    let _alone = alone();
    let mut open = cases.to_vec();
    let mut why = Vec::new();
    for _ in 0..ATTEMPTS {
        why = not_proven(rate, setup, &open);
        open = why.iter().map(|(expected, _)| *expected).collect();
        if open.is_empty() {
            return;
        }
    }
    panic!("not proven at {rate} frames per second, {setup:?}: {why:?}");
}

/// Returns the faults with these names.
fn faults_named(names: &[&str]) -> Vec<Expected> {
    let is_named = |fault: &Expected| names.contains(&fault.0);
    FAULTS.into_iter().filter(is_named).collect()
}

#[test]
fn the_tester_counts_what_the_device_did() {
    assert_proven("100k", IN_PLACE, &FAULTS);
}

/// The faults that differ by what the tester does with a frame.
const OF_FRAME: [&str; 4] = ["loss", "duplicate", "reorder", "damage"];

#[test]
fn the_tester_counts_what_the_device_did_in_packet_buffers_too() {
    assert_proven("100k", IN_BUFFERS, &faults_named(&OF_FRAME));
}

#[test]
fn the_tester_counts_what_the_device_did_in_buffers_of_its_own() {
    assert_proven("100k", MEMIF_CLIENT, &faults_named(&OF_FRAME));
    assert_proven("100k", VIRTIO_USER, &faults_named(&["reorder", "damage"]));
}

#[test]
fn two_threads_of_the_tester_count_what_the_device_did() {
    let faults = faults_named(&["loss", "duplicate", "misdirect"]);
    assert_proven("50k", TWO_CPUS, &faults);
}

/// Runs these faults. Returns the names of the cases that were not proven, with the reasons. A difference fails the test.
fn unproven_connections(faults: &[&str]) -> Vec<Value> {
    let mut command = self_test(&["--connections", "--duration", "200ms", "--json"]);
    for fault in faults {
        command.args(["--fault", fault]);
    }
    let output = command.output().unwrap();
    let result: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    check_exit(&output, &result);
    let cases = result["cases"].as_array().unwrap();
    // None, each, and all.
    assert_eq!(cases.len(), faults.len() + 2);
    for case in cases {
        assert_ne!(case["verdict"]["state"], "differs", "{case}");
        let failed = measured(case, "opened") - measured(case, "completed");
        let is_agreed = case["verdict"]["state"] == "agrees";
        assert!(
            !is_agreed || (case["name"] == "none") == (failed == 0),
            "{case}"
        );
    }
    let open = cases
        .iter()
        .filter(|case| case["verdict"]["state"] != "agrees");
    open.map(|case| case["verdict"].clone()).collect()
}

#[test]
fn connections_with_faults_of_the_device_are_counted_as_in_its_ledger() {
    let _alone = alone();
    let mut open = Vec::new();
    for _ in 0..ATTEMPTS {
        open = unproven_connections(&["refuse", "forget"]);
        if open.is_empty() {
            return;
        }
    }
    panic!("not proven: {open:?}");
}

#[test]
#[ignore = "needs two CPUs without other work; make test-labs runs it"]
fn the_tester_counts_what_the_device_did_at_1_mpps() {
    for setup in [
        IN_PLACE,
        IN_BUFFERS,
        MEMIF_CLIENT,
        VIRTIO_USER,
        VIRTIO_USER_PACKED,
        VHOST,
    ] {
        assert_proven("1M", setup, &[&FAULTS[..], &[FAULTLESS]].concat());
    }
}

#[test]
#[ignore = "needs two CPUs without other work; make test-labs runs it"]
fn two_threads_of_the_tester_count_every_fault_of_the_device() {
    assert_proven("100k", TWO_CPUS, &[&FAULTS[..], &[FAULTLESS]].concat());
}

/// A machine that is too slow for this rate proves nothing at it, and the verdict contains the reasons. They are printed.
#[test]
#[ignore = "needs two CPUs without other work; make test-labs runs it"]
fn no_figure_of_the_tester_is_wrong_at_10_mpps_whether_or_not_it_is_proven() {
    let _alone = alone();
    for ((fault, _, _), reasons) in not_proven("10M", IN_PLACE, &FAULTS) {
        println!("10M frames per second, {fault}: not proven: {reasons}");
    }
}

#[test]
fn invalid_options_of_a_self_test_are_refused() {
    for (arguments, part) in [
        (["--rate", "max"], "frames per second"),
        (["--fault", "colour"], "unknown fault"),
        (["--fault", "forget"], "add --connections"),
        (["--connections", "--fault=loss"], "remove --connections"),
        (["--frame-size", "63"], "64"),
        (["--device-cpu", "100000"], "not online"),
        (["--link", "tap"], "memif-client"),
        (["--rate", "1"], "fewer than 2 frames"),
    ] {
        let output = self_test(&arguments).output().unwrap();
        let printed = text(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(BAD_INPUT),
            "{arguments:?}: {printed}"
        );
        assert!(printed.contains(part), "{arguments:?}: {printed}");
    }
}

/// Returns the device that a self-test started, by its parent.
fn device_of(parent: u32) -> Option<u32> {
    let children = format!("/proc/{parent}/task/{parent}/children");
    let children = fs::read_to_string(children).ok()?;
    let mut numbers = children.split_whitespace();
    let child: u32 = numbers.next()?.parse().ok()?;
    let words = fs::read(format!("/proc/{child}/cmdline")).ok()?;
    text(&words).contains("self-test-device").then_some(child)
}

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.trim().chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

fn wait_until<T>(condition: impl FnMut() -> Option<T>) -> T {
    Deadline::after(DEADLINE)
        .poll(Duration::from_millis(5), condition)
        .unwrap_or_else(|| panic!("timeout after {DEADLINE:?}"))
}

#[test]
fn the_device_ends_with_its_parent() {
    let _alone = alone();
    let mut command = self_test(&["--rate", "10k", "--duration", "60s", "--fault", "loss"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut parent: Child = command.spawn().unwrap();
    let device = wait_until(|| device_of(parent.id()));
    parent.kill().unwrap();
    parent.wait().unwrap();
    wait_until(|| (!is_alive(device)).then_some(()));
}
