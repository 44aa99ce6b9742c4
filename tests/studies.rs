// SPDX-License-Identifier: Apache-2.0
//! Tests of studies of topologies with the real binary: several switches, applications, a machine that lacks something. No
//! figure is judged. Requires root and two CPUs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

/// One study at a time: each uses the CPUs of the machine exclusively.
static MACHINE: Mutex<()> = Mutex::new(());

/// Directory of the programs that a study may use, if not all.
const PROGRAMS: &str = "programs";

struct Workplace {
    directory: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Workplace {
    fn new() -> Self {
        Self {
            _alone: MACHINE.lock().unwrap_or_else(PoisonError::into_inner),
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn study(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quietwire"));
        command
            .arg("study")
            .args(words)
            .current_dir(self.directory.path())
            .stdin(Stdio::null());
        if self.path(PROGRAMS).exists() {
            command.env("PATH", self.path(PROGRAMS));
        }
        command.output().unwrap()
    }

    /// Hides these programs of the machine from studies.
    fn without_programs(&self, names: &[&str]) {
        let programs = self.path(PROGRAMS);
        fs::create_dir(&programs).unwrap();
        let path = std::env::var_os("PATH").unwrap();
        for directory in std::env::split_paths(&path) {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let link = programs.join(&name);
                let is_left_out = names.iter().any(|left_out| name == **left_out);
                // The first directory in PATH that has a program counts.
                if !is_left_out && fs::symlink_metadata(&link).is_err() {
                    symlink(entry.path(), link).unwrap();
                }
            }
        }
    }

    /// Runs a study to its end; returns its result.
    fn run(&self, study: &str, more: &[&str]) -> Value {
        let lab = self.path("lab");
        let words = [
            "run",
            study,
            "--json",
            "--store",
            "s.sqlite",
            "--state-directory",
        ];
        let words = [&words[..], &[lab.to_str().unwrap()], more].concat();
        let output = self.study(&words);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{printed}");
        // Only the lock of the lab remains, and none of its namespaces.
        let left = fs::read_dir(&lab).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["lock"]);
        let page = fs::read_to_string(self.path("s.html")).unwrap();
        assert!(page.contains("Comparison with published figures") || study.ends_with(".toml"));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn case<'a>(summary: &'a Value, name: &str) -> &'a Value {
    let cases = summary["sizes"][0]["cases"].as_array().unwrap();
    cases.iter().find(|case| case["name"] == name).unwrap()
}

/// Checks that every device reported its counters, and that each lost frame has a place.
fn assert_accounted(case: &Value) {
    let losses = &case["losses"];
    assert!(losses["trials"].as_u64() > Some(0), "{case}");
    assert_eq!(losses["trials_without"], 0, "{losses}");
    assert!(losses["without_counters"].is_null(), "{losses}");
    let count = |value: &Value| value.as_u64().unwrap();
    let places = losses["places"].as_array().into_iter().flatten();
    let placed: u64 = places.map(|place| count(&place["frames"])).sum();
    let others = count(&losses["tester_frames"]) + count(&losses["unknown_frames"]);
    assert_eq!(count(&losses["lost_frames"]), placed + others, "{losses}");
}

const SWITCHES: &str = r#"
name = "switches"
title = "A test"
[device]
switch = "quietwire"
topology = "vNet1"
[tester]
cpu = "0"
[trials]
duration-s = 0.2
warm-up-s = 0.05
drain-s = 0.1
invalid-repeats = 1
[search]
start-rate-percent = 50
start-step-percent = 50
resolution-percent = 25
[[search.goal]]
name = "PDR"
loss-ratio = 0.5
[sweep]
loads-percent = [50, 100]
[published]
title = "nothing"
source = "nobody's"
differs = "everything"
[[published.figure]]
configuration = "a bridge of the kernel's"
quantity = "half"
place = "nowhere"
case = "linux-bridge"
throughput = 0.5
[[published.figure]]
configuration = "VPP"
quantity = "up to twice"
place = "nowhere"
case = "vpp"
throughput = [1, 2]
[[case]]
name = "quietwire"
[[case]]
name = "linux-bridge"
switch = "linux-bridge"
[[case]]
name = "vpp"
switch = "vpp"
"#;

const MORE_SWITCHES: &str = r#"
[[case]]
name = "quietwire-veth"
link = "veth"
[[case]]
name = "ovs-netdev"
switch = "ovs-netdev"
neighbours = "off-forwarding-cpus"
kinds = ["cpu"]
"#;

#[test]
fn switches_are_measured_beside_each_other_and_what_is_missing_is_reported() {
    are_measured_beside_each_other(SWITCHES, &["quietwire", "linux-bridge"]);
}

#[test]
#[ignore = "takes half a minute; make test-labs runs it"]
fn more_switches_are_measured_beside_each_other() {
    let text = format!("{SWITCHES}{MORE_SWITCHES}");
    let names = ["quietwire", "quietwire-veth", "linux-bridge", "ovs-netdev"];
    are_measured_beside_each_other(&text, &names);
}

/// Runs a study with cases of these names and one without its program.
fn are_measured_beside_each_other(text: &str, names: &[&str]) {
    let place = Workplace::new();
    place.without_programs(&["vpp", "vppctl"]);
    fs::write(place.path("study.toml"), text).unwrap();
    let reported = place.run("study.toml", &[]);
    let summary = &reported["summary"];
    assert_eq!(summary["state"]["state"], "finished");
    let without: Vec<&str> = summary["unavailable"]
        .as_array()
        .unwrap()
        .iter()
        .map(|case| case["name"].as_str().unwrap())
        .collect();
    assert_eq!(without, ["vpp"]);
    let cycles = &case(summary, "quietwire")["cycles"];
    assert_eq!(cycles["cycle_source"], "counted", "{cycles}");
    assert!(
        cycles["cycles"]["median"].as_f64().unwrap() > 1.0,
        "{cycles}"
    );
    // The kernel counts no cycles: they are computed from the CPU time that it spent on frames.
    let cycles = &case(summary, "linux-bridge")["cycles"];
    assert_eq!(cycles["cycle_source"], "cpu_time", "{cycles}");
    for name in names {
        let observed = case(summary, name);
        assert_accounted(observed);
        assert!(
            observed["max_rate_pps"].as_f64().unwrap() > 0.0,
            "{observed}"
        );
        assert!(
            observed["highest_load"]["forwarding_pps"]["median"]
                .as_f64()
                .unwrap()
                > 0.0
        );
    }
    // In shared memory every loss shows in a counter.
    let losses = &case(summary, "quietwire")["losses"];
    assert_eq!(losses["unknown_frames"], 0, "{losses}");
    assert!(losses["differences"].is_null(), "{losses}");
    let rows = summary["sizes"][0]["published"].as_array().unwrap();
    assert_eq!(rows[0]["measured"]["case"], "linux-bridge");
    assert!(rows[1]["unanswered"].as_str().unwrap().contains("vpp"));
    // The page is rendered again from the store alone, with every configuration.
    let output = place.study(&["report", "s.sqlite", "--html", "again.html"]);
    assert!(output.status.success(), "{output:?}");
    let page = fs::read_to_string(place.path("again.html")).unwrap();
    for words in [&["unavailable", "Cycles per frame", "br0"][..], names].concat() {
        assert!(
            page.to_lowercase().contains(&words.to_lowercase()),
            "{words}"
        );
    }
}

/// Checks that applications reached each other in a case.
fn assert_applied(case: &Value) {
    let observed = &case["applications"];
    for key in ["tcp_up_bps", "tcp_down_bps", "echo_mean_ns"] {
        assert!(
            observed[key]["median"].as_f64().unwrap() > 0.0,
            "{observed}"
        );
    }
}

#[test]
fn applications_talk_through_a_case_of_a_ready_made_study() {
    let place = Workplace::new();
    let ready = include_str!("../studies/edge-noisy-neighbour.toml");
    let (head, _) = ready.split_once("[[objective]]").unwrap();
    let text = format!("{head}\n[[case]]\nname = \"quiet\"\n");
    fs::write(place.path("study.toml"), text).unwrap();
    let reported = place.run("study.toml", &["--quick"]);
    let summary = &reported["summary"];
    assert_eq!(summary["state"]["state"], "finished");
    assert_applied(case(summary, "quiet"));
}

#[test]
#[ignore = "takes half a minute; make test-labs runs it"]
fn applications_talk_through_a_ready_made_study() {
    let place = Workplace::new();
    let reported = place.run("edge-noisy-neighbour", &["--quick"]);
    let summary = &reported["summary"];
    assert_eq!(summary["is_quick"], true);
    assert_eq!(summary["state"]["state"], "finished");
    for name in ["quiet", "noisy", "noisy-pinned"] {
        assert_applied(case(summary, name));
    }
    let rows = summary["sizes"][0]["published"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    assert!(rows[0]["measured"]["tcp"][0].as_f64().unwrap() > 0.0);
}

#[test]
fn every_ready_made_study_reports_what_it_would_do() {
    let place = Workplace::new();
    let list = place.study(&["list", "--json"]);
    assert!(list.status.success(), "{list:?}");
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    let list = list.as_array().unwrap();
    assert!(list.len() >= 16);
    let check = |ready: &Value| {
        let name = ready["name"].as_str().unwrap();
        let dry = place.study(&["run", name, "--dry-run", "--json"]);
        assert!(dry.status.success(), "{dry:?}");
        let dry: Value = serde_json::from_slice(&dry.stdout).unwrap();
        assert_eq!(&dry, ready);
        let cases = dry["preview"]["cases"].as_array().unwrap();
        let can = |case: &&Value| case["unavailable"].is_null();
        // The first is the reference for the others.
        assert!(cases.iter().any(|case| can(&case)), "{name}: {cases:?}");
        let text = place.study(&["run", name, "--dry-run", "--quick"]);
        let text = String::from_utf8(text.stdout).unwrap();
        assert!(text.contains("up to") && text.contains(name), "{text}");
    };
    // Two at a time: a dry run occupies no CPU exclusively.
    let check = &check;
    std::thread::scope(|scope| {
        for half in list.chunks(list.len().div_ceil(2)) {
            scope.spawn(move || half.iter().for_each(check));
        }
    });
    // No file was written.
    assert_eq!(fs::read_dir(place.directory.path()).unwrap().count(), 0);
    let wrong = place.study(&["run", "no-such-study"]);
    assert_eq!(wrong.status.code(), Some(2));
}

const TENANTS: &str = r#"
name = "tenants"
title = "A test"
[device]
switch = "quietwire"
topology = "vNet4-nVNF"
vnf = "testpmd-io"
place = "container"
[tester]
cpu = "0"
realtime = false
[trials]
duration-s = 0.2
warm-up-s = 0.05
drain-s = 0.2
max-rate-pps = 100_000
invalid-repeats = 2
[latency]
rate-pps = 1000
duration-s = 0.1
repeats = 1
[tenants]
rate-pps = 500
loss-ratio = 0.9
trials = 10
most = 2
"#;

#[test]
fn tenants_are_added_until_the_goal_breaks_or_there_are_as_many_as_asked_for() {
    let place = Workplace::new();
    fs::write(place.path("study.toml"), TENANTS).unwrap();
    let reported = place.run("study.toml", &[]);
    assert_eq!(reported["summary"]["state"]["state"], "finished");
    // The switch, and testpmd in containers.
    let cases = reported["summary"]["sizes"][0]["cases"].as_array().unwrap();
    cases.iter().for_each(assert_accounted);
    let tenants = &reported["summary"]["sizes"][0]["tenants"];
    assert_eq!(tenants["found"][0]["is_through"], true, "{tenants}");
    let rows = tenants["rows"].as_array().unwrap();
    assert_eq!(rows[0]["tenants"], 1);
    for row in rows {
        assert_eq!(row["cycles"]["cycle_source"], "counted", "{row}");
        assert!(
            row["cycles_per_tenant_hz"]["median"].as_f64().unwrap() > 0.0,
            "{row}"
        );
    }
}

#[test]
#[ignore = "takes a minute; make test-labs runs it"]
fn filter_tracking_and_nat_are_measured_by_a_ready_made_study() {
    let place = Workplace::new();
    let reported = place.run("firewall-and-nat", &["--quick"]);
    let summary = &reported["summary"];
    assert_eq!(summary["state"]["state"], "finished");
    for kind in ["plain", "filter", "tracking", "nat"] {
        for name in [kind.to_owned(), format!("noisy-{kind}")] {
            let observed = case(summary, &name);
            assert_accounted(observed);
            let cycles = &observed["cycles"];
            assert_eq!(cycles["cycle_source"], "counted", "{cycles}");
            // Nearly all frames of the trials at a low load arrive: they are accepted, and translated.
            assert!(observed["round_trip"].is_object(), "{observed}");
        }
    }
}

/// A chain of three functions in containers.
const CHAIN: &str = r#"
name = "chain"
title = "A test"
[device]
switch = "quietwire"
topology = "vNet6-1VNFch"
vnfs = ["nat", "firewall", "quietwire-router"]
place = "container"
encapsulation = "ipv4"
[tester]
cpu = "0"
realtime = false
[trials]
duration-s = 0.2
warm-up-s = 0.1
drain-s = 0.3
max-rate-pps = 10_000
invalid-repeats = 2
[latency]
rate-pps = 1000
duration-s = 0.2
repeats = 1
[[case]]
name = "chain"
"#;

#[test]
#[ignore = "takes half a minute; make test-labs runs it"]
fn functions_of_a_chain_report_their_cost() {
    let place = Workplace::new();
    fs::write(place.path("study.toml"), CHAIN).unwrap();
    let reported = place.run("study.toml", &[]);
    assert_eq!(reported["summary"]["state"]["state"], "finished");
    let observed = case(&reported["summary"], "chain");
    assert_accounted(observed);
    let functions = observed["functions"].as_array().unwrap();
    let names: Vec<&str> = functions
        .iter()
        .map(|function| function["function"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["S", "1 nat", "2 firewall", "3 quietwire-router"]);
    for function in functions {
        for key in ["cycles", "cycles_per_forwarded", "cycles_per_chain_hz"] {
            let median = function[key]["median"].as_f64().unwrap();
            assert!(median > 1.0, "{function}");
        }
    }
}

/// A device with cards that no machine has, an isolation that few machines have, and one that this machine has.
const LACKING: &str = r#"
name = "lacking"
title = "A test"
[device]
switch = "quietwire"
topology = "vNet1"
link = "vhost-user"
[tester]
cpu = "0"
realtime = false
ports = ["ffff:fe:00.0", "ffff:fe:00.1"]
[trials]
duration-s = 0.2
max-rate-pps = 10_000
[latency]
rate-pps = 1000
duration-s = 0.1
repeats = 1
[[case]]
name = "cards"
ports = ["ffff:ff:00.0", "ffff:ff:00.1"]
[[case]]
name = "functions"
ports = ["ffff:ff:00.0", "ffff:ff:00.1"]
isolation = "sr-iov"
[[case]]
name = "image"
topology = "vNet3"
vnf = "own-image"
image = { kernel = "no-kernel", initramfs = "no-initramfs" }
[[case]]
name = "firewall"
topology = "vNet4-1VNF"
place = "container"
vnf = "firewall"
link = "memif"
rules = """
[[rule]]
name = "all"
action = "accept"
"""
"#;

#[test]
fn unavailable_cases_are_reported_and_the_others_are_run() {
    let place = Workplace::new();
    fs::write(place.path("study.toml"), LACKING).unwrap();
    let reported = place.run("study.toml", &[]);
    let left_out = reported["summary"]["unavailable"].as_array().unwrap();
    let why = |name: &str| {
        let mut all = left_out.iter();
        all.find(|case| case["name"] == name).unwrap()["reason"]
            .as_str()
            .unwrap()
    };
    assert!(
        why("cards").contains("ffff:ff:00.0: does not exist"),
        "{left_out:?}"
    );
    assert!(why("functions").contains("SR-IOV") || why("functions").contains("virtual functions"));
    assert!(
        why("image").contains("no-kernel is not a file"),
        "{left_out:?}"
    );
    let observed = case(&reported["summary"], "firewall");
    assert!(observed["round_trip"].is_object(), "{observed}");
}

/// A study of quietwire's switch beside neighbours.
const NOISY: &str = r#"
name = "noisy"
title = "A test"
[device]
switch = "quietwire"
topology = "vNet1"
forwarding-cpus = "1"
service-cpus = "0"
control-cpus = "0"
[tester]
cpu = "0"
realtime = false
[trials]
duration-s = 0.2
max-rate-pps = 10_000
[latency]
rate-pps = 1000
duration-s = 0.2
repeats = 1
[neighbours]
stressors = ["--cpu 1"]
[[case]]
name = "noisy"
neighbours = "everywhere"
isolation = "none"
"#;

/// Asserts that a run and a dry run refuse a study alike, and leave nothing.
#[track_caller]
fn assert_refused(place: &Workplace, text: &str, more: &[&str], code: i32, says: &str) {
    fs::write(place.path("study.toml"), text).unwrap();
    let lab = place.path("lab");
    let words = [
        "run",
        "study.toml",
        "--state-directory",
        lab.to_str().unwrap(),
    ];
    let run = place.study(&[&words[..], more].concat());
    let dry = place.study(&[&words[..], more, &["--dry-run"]].concat());
    let printed = String::from_utf8(dry.stderr).unwrap();
    assert_eq!(dry.status.code(), Some(code), "{printed}");
    assert!(printed.contains(says), "no '{says}' in: {printed}");
    assert!(dry.stdout.is_empty());
    assert_eq!(run.status.code(), Some(code));
    assert_eq!(String::from_utf8(run.stderr).unwrap(), printed);
    assert!(!place.path("noisy.sqlite").exists() && !lab.exists());
}

#[test]
fn a_dry_run_refuses_what_a_run_refuses() {
    let place = Workplace::new();
    let fine = place.path("study.toml");
    fs::write(&fine, NOISY).unwrap();
    let dry = place.study(&["run", "study.toml", "--dry-run"]);
    assert!(dry.status.success(), "{dry:?}");
    let with = |old: &str, new: &str| {
        assert!(NOISY.contains(old), "{old}");
        NOISY.replace(old, new)
    };
    let refused = |text: &str, more: &[&str], says: &str| {
        assert_refused(&place, text, more, 2, says);
    };
    let cpu = with("forwarding-cpus = \"1\"", "forwarding-cpus = \"1,99\"");
    refused(&cpu, &[], "CPU 99");
    let stressor = with("--cpu 1", "--no-such-stressor 1");
    refused(&stressor, &[], "no-such-stressor");
    refused(NOISY, &["--store", "/proc/no/store.sqlite"], "--store");
    refused(NOISY, &["--html", "/proc/page.html"], "--html");
    refused(NOISY, &["--html", "/"], "a directory");
    refused(
        NOISY,
        &["--store", "study.toml/s.sqlite"],
        "not a directory",
    );
    refused(NOISY, &["--tester", "sim"], "has neighbours");
    fs::write(place.path("taken.sqlite"), "text").unwrap();
    refused(NOISY, &["--store", "taken.sqlite"], "already exists");
    let resume = ["--resume", "--store", "taken.sqlite"];
    refused(NOISY, &resume, "not a quietwire result store");

    place.without_programs(&["stress-ng"]);
    assert_refused(&place, NOISY, &[], 3, "stress-ng");
}
