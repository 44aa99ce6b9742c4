// SPDX-License-Identifier: Apache-2.0
//! Chains that are crossed on purpose: frames of one chain leave at a port of another. A check reports the flows and the
//! ports at which they arrived, and a search finds no rate.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use quietwire_base::testing::KillOnDrop;
use quietwire_base::{ProcessId, wait_until};
use quietwire_lab::topology::{CATALOG, Chains};
use serde_json::Value;

use super::{DEADLINE, Labs, has_guests};

/// Exchanges the last ports of the first two chains, as the tester finds them. A second call restores them.
fn exchange_ports(labs: &Labs, name: &str) {
    let file = labs.directory.path().join("named").join(name);
    let file = file.join("state.json");
    let mut state: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let chains = state["tester"]["chains"].as_array_mut().unwrap();
    let (first, others) = chains.split_at_mut(1);
    std::mem::swap(&mut first[0][1], &mut others[0][1]);
    fs::write(&file, serde_json::to_vec(&state).unwrap()).unwrap();
}

/// Runs `quietwire switch …` for the switch S of a lab with two chains.
fn change_switch(directory: &Path, words: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_quietwire"))
        .arg("switch")
        .args(words)
        .arg("--control-socket")
        .arg(directory.join("S/switch.sock"))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {printed}");
}

/// Crosses two chains of one VNF each within the switch. Each has four ports of the switch, of which the last is the
/// tester's.
fn cross_switch(directory: &Path) {
    for port in ["p3", "p7"] {
        change_switch(directory, &["del", "cross-connect", port]);
    }
    for pair in [["p2", "p7"], ["p6", "p3"]] {
        change_switch(directory, &[&["add", "cross-connect"][..], &pair].concat());
    }
}

/// Checks that the check fails, and reports for each flow the port of the other chain at which it arrived.
fn assert_crossed(labs: &Labs, state: &Value) {
    // The check waits for all of it. One frame of each flow is enough.
    let drain = if has_guests(state) { "2s" } else { "300ms" };
    let output = labs.trial_with_drain(state, drain);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{printed}");
    for part in [
        "of chain 1 forth came out at the last port of chain 2",
        "of chain 1 back came out at the first port of chain 2",
        "of chain 2 forth came out at the last port of chain 1",
        "of chain 2 back came out at the first port of chain 1",
    ] {
        assert!(printed.contains(part), "no '{part}' in: {printed}");
    }
}

/// Starts a topology with two chains, crosses it between the tester's ports, and then restores it.
fn crossed_and_restored(words: &[&str]) -> (Labs, Value) {
    let labs = Labs::new();
    let state = labs.up(&[words, &["--chains", "2"]].concat());
    exchange_ports(&labs, words[0]);
    assert_crossed(&labs, &state);
    exchange_ports(&labs, words[0]);
    labs.check(&state, 2);
    (labs, state)
}

fn is_reported_crossed(words: &[&str]) {
    let (labs, state) = crossed_and_restored(words);
    labs.done("down", &[]);
    labs.assert_gone(&state);
}

const CONTAINERS: [&str; 2] = ["--place", "container"];

#[test]
fn chains_of_one_vnf_that_ports_or_the_switch_cross_fail_the_check() {
    let (labs, state) = crossed_and_restored(&[&["vNet4-nVNF"], &CONTAINERS[..]].concat());
    cross_switch(&labs.directory.path().join("named/vNet4-nVNF"));
    assert_crossed(&labs, &state);
    labs.done("down", &[]);
    labs.assert_gone(&state);
}

#[test]
#[ignore = "takes a minute or more; make test-labs runs it"]
fn crossed_chains_beside_a_switch_in_a_container_fail_the_check() {
    is_reported_crossed(&[&["vNet5-nVNF"], &CONTAINERS[..]].concat());
}

#[test]
#[ignore = "takes a minute or more; make test-labs runs it"]
fn crossed_chains_of_several_vnfs_fail_the_check() {
    is_reported_crossed(&[&["vNet6-nVNFch", "--length", "2"], &CONTAINERS[..]].concat());
}

#[test]
#[ignore = "takes a minute or more; make test-labs runs it"]
fn crossed_chains_of_several_vnfs_beside_a_switch_in_a_container_fail_the_check() {
    is_reported_crossed(&[&["vNet7-nVNFch", "--length", "2"], &CONTAINERS[..]].concat());
}

#[test]
#[ignore = "takes minutes where guests are emulated; make test-labs runs it"]
fn crossed_chains_with_guests_fail_the_check() {
    let several = CATALOG.iter().filter(|one| one.chains == Chains::Many);
    for topology in several {
        eprintln!("{}", topology.name);
        is_reported_crossed(&[topology.name]);
    }
}

/// Half of the frames may be lost, but still no rate meets the goal. Keys of the search and of its goal are inserted.
const STUDY: &str = r#"
name = "crossed"
title = "Crossed chains"
[device]
switch = "quietwire"
topology = "vNet4-nVNF"
chains = 2
place = "container"
[tester]
cpu = "0"
realtime = false
[trials]
duration-s = 0.1
warm-up-s = 0.05
drain-s = 0.2
max-rate-pps = 4000
invalid-repeats = 50
[search]
SEARCH
[[search.goal]]
name = "PDR"
loss-ratio = 0.5
GOAL
[[case]]
name = "crossed"
"#;

/// Methods, with the keys of their searches and goals.
const METHODS: [(&str, &str, &str); 3] = [
    (
        "single-run",
        "start-rate-percent = 50\nstart-step-percent = 50\nresolution-percent = 25",
        "",
    ),
    (
        "best-of-n",
        "start-rate-percent = 50\nstart-step-percent = 50\nresolution-percent = 25\ntrials-per-rate = 2",
        "",
    ),
    (
        "mlrsearch",
        "min-rate-percent = 25",
        "width-percent = 25\nduration-sum-s = 0.1",
    ),
];

#[test]
fn a_search_finds_no_rate_on_crossed_chains() {
    finds_no_rate(&Labs::new(), METHODS[2]);
}

#[test]
#[ignore = "takes a minute or more; make test-labs runs it"]
fn searches_of_three_methods_find_no_rate_on_crossed_chains() {
    let labs = Labs::new();
    for method in METHODS {
        finds_no_rate(&labs, method);
    }
}

/// Runs a study whose chains are crossed before its search, by a method with the keys of its search and goal.
fn finds_no_rate(labs: &Labs, (method, search, goal): (&str, &str, &str)) {
    eprintln!("{method}");
    let search = format!("method = \"{method}\"\n{search}");
    let text = STUDY.replace("SEARCH", &search).replace("GOAL", goal);
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("crossed.toml"), text).unwrap();
    let file = |name: &str| fs::File::create(path(name)).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_quietwire"))
        .args(["study", "run", "crossed.toml", "--json"])
        .arg("--state-directory")
        .arg(labs.directory.path())
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .stdout(file("result.json"))
        .stderr(file("log"))
        .spawn();
    let mut study = KillOnDrop(child.unwrap());
    let printed = || fs::read_to_string(path("log")).unwrap();
    // The switch starts first, then the VNFs and the tester: the study is stopped until the chains are crossed.
    let lab = labs.directory.path().join("named/study");
    let is_there = || lab.join("S/switch.sock").exists();
    assert!(wait_until(DEADLINE, is_there), "{}", printed());
    study.signal(Signal::SIGSTOP).unwrap();
    cross_switch(&lab);
    study.signal(Signal::SIGCONT).unwrap();
    let process = ProcessId::of(i32::try_from(study.id()).unwrap());
    let has_ended = || process.as_ref().is_none_or(|one| !one.is_alive());
    assert!(wait_until(3 * DEADLINE, has_ended), "{}", printed());
    assert!(study.wait().unwrap().success(), "{}", printed());
    let reported: Value = serde_json::from_slice(&fs::read(path("result.json")).unwrap()).unwrap();
    let case = &reported["summary"]["sizes"][0]["cases"][0];
    let outcomes = &case["goals"][0]["outcomes"];
    assert_eq!(outcomes[0]["outcome"], "nothing_held", "{case:#}");
    assert_eq!(outcomes.as_array().unwrap().len(), 1);
    assert!(
        case.to_string().contains(r#""reason":"misdirected""#),
        "{case:#}"
    );
    assert_eq!(labs.done("clean", &[]), "nothing was left behind\n");
}
