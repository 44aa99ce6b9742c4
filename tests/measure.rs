// SPDX-License-Identifier: Apache-2.0
//! Tests of `quietwire measure` and `--tester sim` with the real binary: every method ends with a result, invalid input is
//! named, and failures of the tester are never attributed to the device.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "measure/held_up.rs"]
mod held_up;
#[path = "measure/output.rs"]
mod output;
#[path = "measure/studies.rs"]
mod studies;
#[path = "measure/time_stamps.rs"]
mod time_stamps;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

const BAD_INPUT: i32 = 2;
const FAILED: i32 = 1;
const DEADLINE: Duration = Duration::from_secs(60);

/// A directory without any calibration.
struct Workspace(tempfile::TempDir);

impl Workspace {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn quietwire(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quietwire"));
        command
            .args(arguments)
            .current_dir(self.0.path())
            .env("XDG_STATE_HOME", self.path("state"))
            .stdin(Stdio::null());
        command
    }

    fn ended(&self, arguments: &[&str]) -> Output {
        self.quietwire(arguments).output().unwrap()
    }

    /// Runs a command that must succeed; returns its JSON result and its standard error.
    fn json(&self, arguments: &[&str]) -> (Value, String) {
        let output = self.ended(&[arguments, &["--json"]].concat());
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {printed}");
        (serde_json::from_slice(&output.stdout).unwrap(), printed)
    }

    /// Checks that a command is refused with one message that contains all of `parts`.
    fn refused(&self, arguments: &[&str], parts: &[&str]) {
        let output = self.ended(arguments);
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            output.status.code(),
            Some(BAD_INPUT),
            "{arguments:?}: {printed}"
        );
        assert!(output.stdout.is_empty(), "{arguments:?}");
        for part in parts {
            assert!(
                printed.contains(part),
                "{arguments:?}: no '{part}' in: {printed}"
            );
        }
        let ours = printed
            .lines()
            .filter(|line| line.starts_with("quietwire: "));
        let claps = printed.lines().filter(|line| line.starts_with("error: "));
        assert_eq!(ours.count() + claps.count(), 1, "{arguments:?}: {printed}");
        assert!(!printed.contains("panicked"), "{printed}");
        assert!(
            fs::read_dir(self.0.path()).unwrap().next().is_none(),
            "the command left something behind"
        );
    }

    /// Returns two connected ports of the tester.
    fn loop_ports(&self) -> Vec<String> {
        let socket = self.path("loop.sock");
        ["server", "client"]
            .iter()
            .flat_map(|role| {
                let uri = format!("memif:{}?role={role}", socket.display());
                ["--port".to_owned(), uri]
            })
            .collect()
    }
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

#[test]
fn every_method_ends_with_a_result_on_a_simulated_device() {
    let workspace = Workspace::new();
    let device =
        "sim:capacity=5M,line-rate=10M,buffer=500,addresses=300,learning-rate=5000,restart=50ms";
    for (method, settings) in [
        ("single-run", &[] as &[&str]),
        ("best-of-n", &["trials-per-rate=2"]),
        ("worst-of-n", &["trials-per-rate=2"]),
        ("best-and-worst-of-n", &["trials-per-rate=2"]),
        ("repeat", &["repeats=3"]),
        ("mlrsearch", &["goal.duration-sum-s=4"]),
        ("loss-sweep", &["loads-percent=[40,60]"]),
        ("loss-distribution", &["loads-percent=[40,60]", "trials=3"]),
        ("forwarding-rate-at-max-load", &["lower-loads-percent=[80]"]),
        ("latency", &[]),
        ("soak", &["duration-s=20"]),
        ("back-to-back", &["repeats=2", "longest-burst-s=0.01"]),
        ("system-recovery", &["repeats=1"]),
        ("reset", &["repeats=1"]),
        ("address-caching", &["max-addresses=500"]),
        (
            "address-learning-rate",
            &["addresses=200", "max-rate-pps=20000"],
        ),
    ] {
        let mut arguments = vec!["measure", method, "--tester", device];
        settings
            .iter()
            .for_each(|it| arguments.extend(["--set", *it]));
        let (result, printed) = workspace.json(&arguments);
        // A simulated result must not be taken for a measurement.
        let summary = &result["summary"];
        assert_eq!(summary["is_simulated"], true, "{method}: {summary}");
        assert_eq!(summary["state"]["state"], "finished", "{method}");
        let case = &summary["sizes"][0]["cases"][0];
        assert_eq!(case["name"], "device", "{method}: {summary}");
        assert!(!printed.contains("INVALID"), "{method}: {printed}");
        // These methods do not use the maximum rate.
        let measures_rate = !method.starts_with("address-");
        assert_eq!(
            printed.contains("100 % load is"),
            measures_rate,
            "{method}: {printed}"
        );
        // Not a terminal: plain lines.
        assert!(!printed.contains('\u{1b}'), "{method}: {printed}");
        // The search by the first trials has a result on both sides too.
        let goals = case["goals"].as_array().into_iter().flatten();
        let singles = goals.filter(|goal| goal["single_pps"]["median"].is_number());
        let expected = if method == "best-and-worst-of-n" {
            2
        } else {
            0
        };
        assert_eq!(singles.count(), expected, "{method}: {case}");
    }
}

#[test]
fn connections_that_a_simulated_device_serves_are_found() {
    let workspace = Workspace::new();
    fs::write(
        workspace.path("c.toml"),
        "[connections.client]\ncount = 32\n[[connections.mix]]\nname = \"web\"\nport = 80\nrequest = 100\nanswer = 1000\n",
    )
    .unwrap();
    let device = "sim:capacity=250k,connections=7000,connection-rate=16000";
    let run = |method: &str, settings: &[&str]| {
        let mut arguments = vec![
            "measure",
            method,
            "--tester",
            device,
            "--connections",
            "c.toml",
        ];
        settings
            .iter()
            .for_each(|it| arguments.extend(["--set", *it]));
        let (result, printed) = workspace.json(&arguments);
        let summary = &result["summary"];
        assert_eq!(summary["state"]["state"], "finished", "{method}");
        assert!(!printed.contains("INVALID"), "{method}: {printed}");
        // No frames are sent to find a rate.
        assert!(!printed.contains("100 % load is"), "{method}: {printed}");
        let methods = &summary["sizes"][0]["cases"][0]["methods"];
        methods[0]["findings"].clone()
    };
    for (method, settings, limit, resolution) in [
        (
            "connections-per-second",
            &["max-per-s=50000"] as &[&str],
            16_000.0,
            500.0,
        ),
        (
            "concurrent-connections",
            &["max-connections=20000"],
            7_000.0,
            200.0,
        ),
        ("transactions-per-second", &[], 62_500.0, 1_000.0),
    ] {
        let found = run(method, settings);
        let highest = found["highest_held"].as_f64().unwrap();
        // A few failures are allowed.
        assert!(highest <= limit * 1.01, "{method}: {found}");
        assert!(highest + resolution >= limit, "{method}: {found}");
    }
    let found = run("connection-throughput", &["repeats=2"]);
    let mean = found["received_bps"]["mean"].as_f64().unwrap();
    assert!((mean - 250_000.0 / 4.0 * 8_000.0).abs() < 1.0, "{found}");
    let found = run("transaction-latency", &["rate-per-s=1000", "repeats=2"]);
    assert_eq!(found["per_s"], 1000.0, "{found}");
    assert_eq!(found["runs"].as_array().unwrap().len(), 2);
}

#[test]
fn rates_that_are_found_are_those_of_the_device() {
    let workspace = Workspace::new();
    for method in ["single-run", "worst-of-n", "mlrsearch"] {
        let store = format!("{method}.sqlite");
        let run = [
            "measure",
            method,
            "--tester",
            "sim:capacity=5M,line-rate=10M",
            "--store",
            &store,
        ];
        let (result, _) = workspace.json(&run);
        let goals = &result["summary"]["sizes"][0]["cases"][0]["goals"];
        for (goal, name) in goals.as_array().unwrap().iter().zip(["NDR", "PDR"]) {
            assert_eq!(goal["name"], name, "{goals}");
            let rate_pps = goal["rate_pps"]["median"].as_f64().unwrap();
            // The goals allow a loss of half a percent at most, and searches have a precision of one percent.
            assert!(
                (4_950_000.0..=5_050_000.0).contains(&rate_pps),
                "{method}: {goal}"
            );
        }
        assert_eq!(goals.as_array().unwrap().len(), 2);
        // The same page from the store alone.
        let report = workspace.ended(&["study", "report", &store, "--json"]);
        let again: Value = serde_json::from_slice(&report.stdout).unwrap();
        assert_eq!(again, result);
    }
}

#[test]
fn impossible_requests_are_named() {
    let workspace = Workspace::new();
    let single =
        |more: &[&'static str]| [&["measure", "single-run", "--tester", "sim"], more].concat();
    for (more, parts) in [
        (
            &["--goal", "NDR=1"] as &[&str],
            &["--goal", "not in [0, 1)"] as &[&str],
        ),
        (&["--goal", "NDR=-0.1"], &["--goal", "not in [0, 1)"]),
        (&["--goal", "NDR=nan"], &["'NDR=nan' is not a goal"]),
        (&["--goal", "NDR=inf"], &["is not a goal"]),
        (&["--goal", "NDR"], &["use NAME=RATIO"]),
        (
            &["--goal", "A=0", "--goal", "A=0.1"],
            &["two goals have the name 'A'"],
        ),
        (&["--duration", "0s"], &["--duration", "longer than 0"]),
        (&["--duration", "1parsec"], &["--duration"]),
        (
            &["--set", "trials.duration-s=0"],
            &["trials.duration-s", "--duration"],
        ),
        (
            &[
                "--set",
                "resolution-percent=1",
                "--set",
                "resolution-percent=2",
            ],
            &["resolution-percent", "twice"],
        ),
        (
            &["--set", "resolution-percent=0"],
            &["search.resolution-percent"],
        ),
        (
            &["--set", "start-rate-percent=101"],
            &["search.start-rate-percent"],
        ),
        (&["--set", "colour=1"], &["colour"]),
        (&["--set", "colour"], &["expected KEY=VALUE"]),
        (&["--set", "traffic.colour=1"], &["colour"]),
        (&["--set", "goal.colour=1"], &["colour"]),
        (&["--set", "nosuch.colour=1"], &["nosuch"]),
        (
            &["--set", "trials-per-rate=3"],
            &["search.trials-per-rate", "does not support this key"],
        ),
        (&["--max-rate-pps", "0"], &["above 0 and at most 10G"]),
        (&["--max-rate-pps=-5"], &["--max-rate-pps", "at most 10G"]),
        (&["--max-rate-pps", "nan"], &["at most 10G"]),
        (&["--max-rate-pps", "1e11"], &["at most 10G"]),
        (&["--frame-size", "63"], &["64 to 9000"]),
        (&["--frame-size", "9001"], &["64 to 9000"]),
        (&["--port", "null:"], &["--tester", "--port"]),
        (&["--calibration", "c.json"], &["--tester", "--calibration"]),
    ] {
        workspace.refused(&single(more), parts);
    }
    for (arguments, parts) in [
        (
            &[
                "measure",
                "soak",
                "--tester",
                "sim",
                "--set",
                "duration-s=0",
            ] as &[&str],
            &["soak.duration-s"] as &[&str],
        ),
        (
            &[
                "measure",
                "soak",
                "--tester",
                "sim",
                "--set",
                "loss-ratio=0",
            ],
            &["soak.loss-ratio"],
        ),
        (
            &[
                "measure",
                "soak",
                "--tester",
                "sim",
                "--set",
                "loss-ratio=1",
            ],
            &["soak.loss-ratio"],
        ),
        (
            &[
                "measure",
                "mlrsearch",
                "--tester",
                "sim",
                "--set",
                "goal.exceed-ratio=1",
            ],
            &["exceed-ratio"],
        ),
        (
            &[
                "measure",
                "mlrsearch",
                "--tester",
                "sim",
                "--set",
                "goal.duration-sum-s=0",
            ],
            &["duration-sum-s"],
        ),
        (
            &[
                "measure",
                "loss-sweep",
                "--tester",
                "sim",
                "--set",
                "loads-percent=[0]",
            ],
            &["sweep.loads-percent"],
        ),
        (
            &[
                "measure",
                "loss-sweep",
                "--tester",
                "sim",
                "--set",
                "loads-percent=[101]",
            ],
            &["sweep.loads-percent"],
        ),
        (
            &["measure", "address-caching", "--tester", "sim"],
            &["max-addresses"],
        ),
        (
            &["measure", "guess", "--tester", "sim"],
            &["'guess'", "single-run"],
        ),
        (&["measure", "single-run"], &["--port"]),
        (
            &["measure", "single-run", "--tester", "sim:noise=2"],
            &["noise", "'2' is not a number from 0 to 1"],
        ),
        (
            &["measure", "single-run", "--tester", "sim:latency=5"],
            &["latency", "is not a time"],
        ),
        (
            &["measure", "single-run", "--tester", "sim:colour=red"],
            &["colour", "unknown parameter"],
        ),
        (
            &["measure", "single-run", "--tester", "ixia:h"],
            &["unknown tester 'ixia:h'"],
        ),
    ] {
        workspace.refused(arguments, parts);
    }
}

#[test]
fn a_rate_above_the_line_is_not_counted_against_the_device() {
    let workspace = Workspace::new();
    let sweep = |load: &'static str| {
        [
            "measure",
            "loss-sweep",
            "--tester",
            "sim:capacity=9M,line-rate=10M",
            "--max-rate-pps",
            "20M",
            "--set",
            load,
        ]
    };
    let mut arguments = sweep("loads-percent=[40,100]");
    arguments[5] = "20_000_000";
    let output = workspace.ended(&arguments);
    assert_eq!(
        output.status.code(),
        Some(BAD_INPUT),
        "{}",
        text(&output.stderr)
    );
    arguments[5] = "20000000";
    let (result, printed) = workspace.json(&arguments);
    assert!(printed.contains("INVALID"), "{printed}");
    let whole = result.to_string();
    assert!(whole.contains("exceeds the simulated link rate"), "{whole}");
}

#[test]
fn traffic_that_a_study_does_not_support_is_reported() {
    let workspace = Workspace::new();
    for (frames, parts) in [
        (
            "replay = { file = \"a.pcap\" }",
            &["study.toml", "traffic.frames.replay"] as &[&str],
        ),
        (
            "burst = { frames = 4, gap-us = 1.0 }",
            &["traffic.frames.burst", "remove gap-us"],
        ),
        ("sizes = 128", &["traffic.frames.sizes", "frame-sizes"]),
        ("colour = 1", &["colour"]),
    ] {
        let study = format!(
            "name = \"t\"\ntitle = \"T\"\n[device]\nswitch = \"other\"\ntopology = \"vNet1\"\nlink = \"other\"\n\
             [tester]\ncpu = \"0\"\n[traffic.frames]\n{frames}\n[trials]\nduration-s = 1\n[sweep]\nloads-percent = [1]\n\
             [[case]]\nname = \"c\"\nneighbours = \"none\"\nisolation = \"none\"\n"
        );
        let elsewhere = tempfile::tempdir().unwrap();
        let file = elsewhere.path().join("study.toml");
        fs::write(&file, study).unwrap();
        let run = ["study", "run", file.to_str().unwrap(), "--tester", "sim"];
        workspace.refused(&run, parts);
    }
}

#[test]
fn a_measurement_cites_the_calibration_and_reports_exceeding_it() {
    let workspace = Workspace::new();
    let ports = workspace.loop_ports();
    let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
    let small = ["--memory-mib", "64", "--no-huge", "--isolation", "none"];
    let quick = [
        "--duration",
        "20ms",
        "--pacing-duration",
        "20ms",
        "--steps",
        "0",
    ];
    let calibrate = [&["tester", "calibrate"], &ports[..], &small, &quick].concat();
    // A busy machine may have no clean rate: then the command ends with 1, but still writes the file.
    let output = workspace.ended(&calibrate);
    assert!(
        matches!(output.status.code(), Some(0 | FAILED)),
        "{}",
        text(&output.stderr)
    );
    let path = workspace.path("state/quietwire/calibration.json");
    let mut kept: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    kept["calibrations"][0]["sizes"][0]["clean_rate_pps"] = 2000.0.into();
    fs::write(&path, kept.to_string()).unwrap();
    let sweep = |max_rate: &'static str, more: &[&'static str]| {
        let measure = [
            "measure",
            "loss-sweep",
            "--one-way",
            "--duration",
            "50ms",
            "--warm-up",
            "0s",
        ];
        // A busy machine disturbs many trials.
        let loads = [
            "--set",
            "loads-percent=[10,100]",
            "--set",
            "trials.invalid-repeats=100",
            "--max-rate-pps",
            max_rate,
        ];
        workspace.json(&[&measure, &ports[..], &small, &loads, more].concat())
    };
    let (result, printed) = sweep("10000", &[]);
    let before = printed.split("offered").next().unwrap();
    assert!(
        before.contains("calibrated up to 0.0020 Mpps")
            && before.contains("100 % load is 0.0100 Mpps"),
        "{printed}"
    );
    // An invalid trial is repeated.
    let trials: Vec<&str> = printed
        .lines()
        .filter(|line| line.contains(" offered"))
        .collect();
    assert!(trials.len() >= 2, "{printed}");
    for line in trials {
        let is_marked = line.contains("(above the calibrated rate)");
        assert_eq!(is_marked, !line.contains("0.001 Mpps"), "{printed}");
    }
    assert!(!result.to_string().contains("\"is_simulated\":true"));
    let (_, printed) = sweep("2000", &[]);
    assert!(!printed.contains("calibrated"), "{printed}");
    // Another file, without calibrations.
    let (_, printed) = sweep("10000", &["--calibration", "other.json"]);
    assert!(
        printed.contains("other.json has no calibration of this tester"),
        "{printed}"
    );
    assert!(!printed.contains("calibrated up to"), "{printed}");
}

#[test]
fn a_search_without_a_result_fails_with_the_cause_and_the_remedy() {
    let workspace = Workspace::new();
    for (method, of) in [
        ("single-run", " for NDR"),
        ("mlrsearch", " for NDR"),
        ("soak", ""),
        ("loss-sweep", ""),
        ("forwarding-rate-at-max-load", ""),
    ] {
        let output = workspace.ended(&["measure", method, "--tester", "sim:invalid=1"]);
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(FAILED), "{method}: {printed}");
        for part in [
            &format!("quietwire: no result{of}: the tester failed in "),
            "because the simulated tester failed in this trial",
            "--cpus and --realtime-priority",
            "--set trials.invalid-repeats=N",
        ] {
            assert!(
                printed.contains(part),
                "{method}: no '{part}' in: {printed}"
            );
        }
    }
    // Occasional failures of the tester do not prevent a result.
    let output = workspace.ended(&[
        "measure",
        "single-run",
        "--tester",
        "sim:invalid=0.05,seed=3",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}
