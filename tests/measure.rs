// SPDX-License-Identifier: Apache-2.0
//! Tests of `quietwire measure` and `--tester sim` with the real binary: every method ends with a result, invalid input is
//! named, and failures of the tester are never attributed to the device.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "measure/time_stamps.rs"]
mod time_stamps;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use quietwire_base::testing::KillOnDrop;
use serde_json::{Value, json};

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
        // Not a terminal: plain lines.
        assert!(
            printed.contains("100 % load is") && !printed.contains('\u{1b}'),
            "{method}: {printed}"
        );
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
            &["search.goal[0].loss-ratio", "not in [0, 1)"] as &[&str],
        ),
        (&["--goal", "NDR=-0.1"], &["loss-ratio", "not in [0, 1)"]),
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
        (&["--max-rate-pps", "0"], &["trials.max-rate-pps"]),
        (&["--max-rate-pps=-5"], &["max-rate-pps"]),
        (&["--max-rate-pps", "nan"], &["trials.max-rate-pps"]),
        (
            &["--max-rate-pps", "1e11"],
            &["trials.max-rate-pps", "at most 1e10"],
        ),
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
fn what_a_study_cannot_do_with_traffic_is_named() {
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
fn a_measurement_cites_the_calibration_and_says_when_it_offers_more() {
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
        "1",
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
        let loads = [
            "--set",
            "loads-percent=[10,100]",
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

/// A process that is killed with this value.
struct Running(KillOnDrop);

impl Running {
    fn signal(&self, name: &str) {
        let id = self.0.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        assert!(sent.unwrap().success());
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(u32) -> bool) {
        let began = Instant::now();
        while !done(self.0.id()) {
            assert!(
                began.elapsed() < DEADLINE,
                "timeout after {DEADLINE:?}: {what}"
            );
            assert!(
                matches!(self.0.try_wait(), Ok(None)),
                "{what}: the process has ended"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until it has ended by itself.
    fn ended(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < DEADLINE, "the process did not end");
            match self.0.try_wait().unwrap() {
                Some(status) => return status,
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }
}

fn has_tester_thread(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
        return false;
    };
    threads.flatten().any(|thread| {
        let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        name.starts_with("qw-tester")
    })
}

#[test]
fn a_tester_that_is_held_up_says_so_and_ends() {
    let workspace = Workspace::new();
    let out = workspace.path("out.json");
    let mut command =
        workspace.quietwire(&["generate", "--port", "null:", "--rate", "1k", "--json"]);
    command.args(["--memory-mib", "64", "--no-huge", "--isolation", "none"]);
    command.args(["--duration", "500ms", "--warm-up", "0s", "--drain", "0s"]);
    command.stdout(File::create(&out).unwrap());
    command.stderr(File::create(workspace.path("said")).unwrap());
    let mut running = Running(KillOnDrop(command.spawn().unwrap()));
    running.until("it sends", has_tester_thread);
    running.signal("STOP");
    // Stopped for this long: more than a second beyond its deadline.
    let held = Instant::now();
    running.until("the tester was stopped", |_| {
        held.elapsed() > Duration::from_secs(2)
    });
    running.signal("CONT");
    let status = running.ended();
    let printed = fs::read_to_string(workspace.path("said")).unwrap();
    assert_eq!(status.code(), Some(FAILED), "{printed}");
    assert_eq!(
        printed,
        "quietwire: the trial is invalid because the tester failed, so it has no result for the device (--attempts N repeats it)\n"
    );
    let result: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
    let reasons = result["validity"]["reasons"].to_string();
    assert_eq!(result["validity"]["state"], "invalid");
    assert!(
        reasons.contains("after its deadline: the tester stalled"),
        "{reasons}"
    );
    assert!(result["health"]["overrun_ns"].as_u64().unwrap() > 1_000_000_000);
}

/// A device that sends received frames after 300 ms, between the tester's two ports: the switch, which drops frames that do
/// not fit the tester's ring, and the process that holds the frames.
struct Delaying {
    switch: Running,
    device: Running,
}

/// Time for which the device holds a frame, microseconds: longer than the tester is stopped.
const HELD_US: u64 = 300_000;

impl Delaying {
    fn start(workspace: &Workspace) -> Self {
        let uri = |name: &str, role: &str| {
            format!("memif:{}?role={role}", workspace.path(name).display())
        };
        let mut command = workspace.quietwire(&["switch", "run", "--huge-pages", "never"]);
        command.args(["--memory-mib", "128", "--idle", "yield"]);
        for name in ["t0", "t1", "d0", "d1"] {
            command.args(["--port", &format!("{name}={}", uri(name, "server"))]);
        }
        command.args(["--cross-connect", "t0,d0", "--cross-connect", "t1,d1"]);
        command
            .arg("--control-socket")
            .arg(workspace.path("control"));
        command.stderr(File::create(workspace.path("switch-said")).unwrap());
        let mut switch = Running(KillOnDrop(command.stdout(Stdio::null()).spawn().unwrap()));
        switch.until("the switch has its ports", |_| {
            ["t0", "t1", "d0", "d1", "control"]
                .iter()
                .all(|name| workspace.path(name).exists())
        });
        let options = json!({
            "ports": [uri("d0", "client"), uri("d1", "client")],
            "cpu": 0,
            "ring-size": 1024,
            "frame-size-max": 1518,
            "memory-mib": 256,
            "uses-huge-pages": false,
        });
        let mut command =
            workspace.quietwire(&["tester", "self-test-device", &options.to_string()]);
        command.stderr(File::create(workspace.path("device-said")).unwrap());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut replies = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut ready = || assert_eq!(replies.next().unwrap().unwrap(), "\"ready\"");
        ready();
        let script = json!({ "seed": 1, "delay_us": HELD_US, "rules": [] });
        let begin = json!({ "begin": { "trial": 1, "script": script } });
        writeln!(child.stdin.as_mut().unwrap(), "{begin}").unwrap();
        ready();
        Self {
            switch,
            device: Running(KillOnDrop(child)),
        }
    }

    /// Returns a counter of one port of the switch.
    fn count(&self, workspace: &Workspace, port: &str, key: &str) -> u64 {
        let show = ["switch", "show", "ports", "--json", "--control-socket"];
        let mut command = workspace.quietwire(&show);
        let output = command.arg(workspace.path("control")).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let ports: Value = serde_json::from_slice(&output.stdout).unwrap();
        let port = ports
            .as_array()
            .unwrap()
            .iter()
            .find(|it| it["name"] == port);
        let port = port.unwrap();
        let counter = port.get(key).or_else(|| port["drops"].get(key));
        counter.unwrap().as_u64().unwrap()
    }
}

#[test]
fn what_a_stopped_tester_does_not_receive_is_no_loss_of_the_device() {
    let workspace = Workspace::new();
    let out = workspace.path("out.json");
    let mut device = Delaying::start(&workspace);
    let mut command = workspace.quietwire(&["generate", "--rate", "20k", "--direction", "one-way"]);
    for name in ["t0", "t1"] {
        let uri = format!("memif:{}?role=client", workspace.path(name).display());
        command.args(["--port", &uri]);
    }
    // The ring is full after 13 ms.
    command.args(["--receive-ring-size", "256", "--duration", "3s"]);
    command.args(["--warm-up", "0s", "--drain", "1s", "--json"]);
    command.args(["--memory-mib", "64", "--no-huge", "--isolation", "none"]);
    command.stdout(File::create(&out).unwrap());
    command.stderr(File::create(workspace.path("said")).unwrap());
    let mut running = Running(KillOnDrop(command.spawn().unwrap()));
    // More frames than those of the preparation.
    running.until("frames come back", |_| {
        device.count(&workspace, "t1", "tx_frames") > 4000
    });
    running.signal("STOP");
    let (before, held) = (device.count(&workspace, "t1", "tx_full"), Instant::now());
    running.until("the ring is full", |_| {
        held.elapsed() > Duration::from_millis(30)
            && device.count(&workspace, "t1", "tx_full") > before
    });
    running.signal("CONT");
    let status = running.ended();
    let printed = fs::read_to_string(workspace.path("said")).unwrap();
    assert_eq!(status.code(), Some(FAILED), "{printed}");
    let result: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
    let lost = result["lost_frames"].as_u64().unwrap();
    assert!(lost > 0, "{result}");
    // The switch and the device lost no frame: all lost frames found the tester's ring full.
    assert_eq!(device.count(&workspace, "t1", "tx_full"), lost, "{result}");
    let reasons = result["validity"]["reasons"].as_array().unwrap();
    let reason = reasons.iter().find(|reason| {
        let text = reason["text"].as_str().unwrap();
        text.contains("lost frames found its receive rings full")
    });
    let reason = reason.unwrap_or_else(|| panic!("{result}"));
    // The host may have stalled the tester for longer than it was stopped.
    let gap = |key: &str| result["health"][key].as_u64().unwrap();
    let is_hosts = gap("longest_host_gap_ns") * 2 >= gap("longest_gap_ns");
    let cause = if is_hosts {
        "host-stall"
    } else {
        "receive-gap"
    };
    assert_eq!(reason["cause"], cause, "{result}");
    // Both ran the whole time.
    for running in [&mut device.switch, &mut device.device] {
        assert!(matches!(running.0.try_wait(), Ok(None)));
    }
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

#[test]
fn a_place_for_results_that_will_not_do_is_refused_before_the_first_trial() {
    let workspace = Workspace::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let pipe = elsewhere.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let pipe = pipe.to_str().unwrap();
    for (option, path) in [
        ("--html", "/dev/full"),
        ("--store", "/dev/full"),
        ("--html", pipe),
        ("--html", "/proc/none/page.html"),
    ] {
        let measure = ["measure", "single-run", "--tester", "sim", option, path];
        workspace.refused(&measure, &[option, path]);
    }
    // A disk without space accepts a file, but no contents.
    let script = r#"mount -t tmpfs -o size=20k none "$1" || exit 99; shift; exec "$@""#;
    for option in ["--html", "--store"] {
        let path = elsewhere.path().join("result");
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", script, "sh"])
            .arg(elsewhere.path())
            .arg(env!("CARGO_BIN_EXE_quietwire"))
            .args(["measure", "single-run", "--tester", "sim", option])
            .arg(&path)
            .output()
            .unwrap();
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(FAILED), "{option}: {printed}");
        assert!(
            printed.contains(option) && printed.contains("No space left"),
            "{printed}"
        );
        assert!(
            output.stdout.is_empty(),
            "{option}: {}",
            text(&output.stdout)
        );
    }
}

#[test]
fn what_was_measured_is_printed_even_if_the_page_cannot_be_written() {
    let disk = tempfile::tempdir().unwrap();
    // There is space for the check of 64 KiB, but not for the page of twenty searches.
    let script = r#"mount -t tmpfs -o size=68k none "$1" || exit 99; shift; "$@"; code=$?; ls -A "${0%/*}"; exit $code"#;
    let page = disk.path().join("page.html");
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(&page)
        .arg(disk.path())
        .arg(env!("CARGO_BIN_EXE_quietwire"))
        .args(["measure", "repeat", "--tester", "sim", "--html"])
        .arg(&page)
        .output()
        .unwrap();
    let (result, printed) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(FAILED), "{printed}");
    assert!(result.contains("NDR"), "{result}");
    assert!(
        printed.contains("cannot write the page") && printed.contains("No space left"),
        "{printed}"
    );
    assert!(
        !result.contains("page.html"),
        "a part of the page is left: {result}"
    );
}

#[test]
fn an_interrupted_measurement_prints_its_trials() {
    let workspace = Workspace::new();
    let words = [
        "measure",
        "single-run",
        "--no-huge",
        "--memory-mib",
        "64",
        "--isolation",
        "none",
        "--max-rate-pps",
        "20k",
        "--duration",
        "100ms",
        "--warm-up",
        "0s",
    ];
    for more in [&[][..], &["--json"]] {
        let ports = workspace.loop_ports();
        let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
        let mut measure = workspace
            .quietwire(&[&words[..], &ports, more].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Two trials have ended, and the search has not.
        let mut lines = BufReader::new(measure.stderr.take().unwrap()).lines();
        let mut ended = lines
            .by_ref()
            .filter(|line| line.as_ref().unwrap().contains("Mpps offered"));
        assert!(ended.nth(1).is_some());
        let interrupt = Command::new("kill")
            .args(["-INT", &measure.id().to_string()])
            .status();
        assert!(interrupt.unwrap().success());
        let rest: Vec<String> = lines.map(|line| line.unwrap()).collect();
        let output = measure.wait_with_output().unwrap();
        let (result, printed) = (text(&output.stdout), rest.join("\n"));
        assert_eq!(output.status.code(), Some(FAILED), "{printed}");
        assert!(
            printed.contains("interrupted before the measurement"),
            "{printed}"
        );
        if more.is_empty() {
            assert!(result.contains("search NDR: not finished"), "{result}");
            assert!(result.contains("0.0020"), "{result}");
        } else {
            let result: Value = serde_json::from_str(&result).unwrap();
            let trials = result["unfinished"][0]["trials"].as_array().unwrap();
            assert!(trials.len() >= 2, "{result}");
        }
    }
}

/// Checks that a command is refused with one message that contains all of `parts`, where earlier commands left files.
fn refused_beside_files(workspace: &Workspace, arguments: &[&str], parts: &[&str]) {
    let output = workspace.ended(arguments);
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(BAD_INPUT), "{printed}");
    for part in parts {
        assert!(printed.contains(part), "no '{part}' in: {printed}");
    }
}

#[test]
fn a_study_on_a_simulated_device_ends_with_its_verdicts() {
    let workspace = Workspace::new();
    let study = |rounds: u32, bound: u32| {
        format!(
            "name = \"judged\"\ntitle = \"T\"\nrounds = {rounds}\n[device]\nswitch = \"other\"\ntopology = \"vNet1\"\nlink = \"other\"\n\
             [tester]\ncpu = \"0\"\n[trials]\nduration-s = 1\nmax-rate-pps = 9_000_000\n\
             [search]\nstart-rate-percent = 20\nstart-step-percent = 20\nresolution-percent = 5\n\
             goal = [{{ name = \"NDR\", loss-ratio = 0.0 }}]\n\
             [[objective]]\nquantity = \"NDR\"\ncase = \"c\"\nat-least-pps = {bound}\n\
             [[case]]\nname = \"c\"\nneighbours = \"none\"\nisolation = \"none\"\n"
        )
    };
    let run = |rounds, bound, more: &[&str]| {
        fs::write(workspace.path("study.toml"), study(rounds, bound)).unwrap();
        let words = ["study", "run", "study.toml", "--fresh", "--tester"];
        let output = workspace.ended(&[&words[..], &["sim:capacity=5M"], more].concat());
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let (code, table, printed) = run(5, 1_000_000, &[]);
    assert_eq!(code, Some(0), "{printed}");
    let first = table.find("verdict").unwrap();
    assert!(first < table.find("frames of 64").unwrap(), "{table}");
    assert!(table.contains("5 of 5"), "{table}");

    let files = ["--junit", "out/verdicts.xml", "--badge", "out/verdicts.svg"];
    let (code, _, printed) = run(5, 8_000_000, &files);
    assert_eq!(code, Some(FAILED), "{printed}");
    assert!(
        printed.contains("objectives not met: NDR of c at least 8.00"),
        "{printed}"
    );
    let xml = fs::read_to_string(workspace.path("out/verdicts.xml")).unwrap();
    assert!(xml.contains("failures=\"1\""), "{xml}");
    let badge = fs::read_to_string(workspace.path("out/verdicts.svg")).unwrap();
    assert!(badge.contains("fail 1 of 1"), "{badge}");
    // The same verdict from the store alone, with the same exit code.
    let report = ["study", "report", "judged.sqlite", "--json"];
    let output = workspace.ended(&report);
    assert_eq!(
        output.status.code(),
        Some(FAILED),
        "{}",
        text(&output.stderr)
    );
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["summary"]["verdicts"][0]["verdict"], "fail");

    let (code, _, printed) = run(3, 1_000_000, &[]);
    assert_eq!(code, Some(FAILED), "{printed}");
    assert!(
        printed.contains("undecided") && printed.contains("--allow-unknown"),
        "{printed}"
    );
    let (code, table, printed) = run(3, 1_000_000, &["--allow-unknown"]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(table.contains("requires at least 5"), "{table}");
    let (code, _, printed) = run(1, 1_000_000, &["--quick"]);
    assert_eq!(code, Some(0), "{printed}");

    let words = ["study", "run", "study.toml", "--fresh", "--tester", "sim"];
    refused_beside_files(
        &workspace,
        &[&words[..], &["--baseline", "judged.sqlite"]].concat(),
        &["--baseline", "no objective"],
    );
    refused_beside_files(
        &workspace,
        &[&words[..], &["--junit", "."]].concat(),
        &["--junit"],
    );
}

#[test]
fn a_baseline_is_read_before_the_first_trial() {
    let workspace = Workspace::new();
    let study = "name = \"next\"\ntitle = \"T\"\nrounds = 6\n[device]\nswitch = \"other\"\ntopology = \"vNet1\"\nlink = \"other\"\n\
         [tester]\ncpu = \"0\"\n[trials]\nduration-s = 1\nmax-rate-pps = 9_000_000\n\
         [search]\nstart-rate-percent = 20\nstart-step-percent = 20\nresolution-percent = 5\n\
         goal = [{ name = \"NDR\", loss-ratio = 0.0 }]\n\
         [[objective]]\nquantity = \"NDR\"\ncase = \"c\"\nbaseline = \"before.sqlite\"\nat-least-ratio = 0.9\n\
         [[case]]\nname = \"c\"\nneighbours = \"none\"\nisolation = \"none\"\n";
    fs::write(workspace.path("study.toml"), study).unwrap();
    let run = |tester: &'static str, more: &[&str]| {
        let words = ["study", "run", "study.toml", "--tester", tester];
        workspace.ended(&[&words[..], more].concat())
    };
    let missing = run("sim:capacity=5M", &[]);
    assert_eq!(missing.status.code(), Some(BAD_INPUT));
    assert!(text(&missing.stderr).contains("before.sqlite"));
    assert!(!workspace.path("next.sqlite").exists());

    let plain = study.replace(
        "baseline = \"before.sqlite\"\nat-least-ratio = 0.9",
        "at-least-pps = 1",
    );
    fs::write(workspace.path("before.toml"), plain).unwrap();
    let words = [
        "study",
        "run",
        "before.toml",
        "--tester",
        "sim:capacity=5M",
        "--store",
    ];
    let before = workspace.ended(&[&words[..], &["before.sqlite"]].concat());
    assert_eq!(before.status.code(), Some(0), "{}", text(&before.stderr));
    let same = run("sim:capacity=5M", &[]);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same.stderr));
    let slower = run("sim:capacity=3M", &["--fresh"]);
    assert_eq!(
        slower.status.code(),
        Some(FAILED),
        "{}",
        text(&slower.stderr)
    );
    // A report is possible without the baseline, and with it elsewhere.
    fs::rename(
        workspace.path("before.sqlite"),
        workspace.path("moved.sqlite"),
    )
    .unwrap();
    let report = workspace.ended(&["study", "report", "next.sqlite", "--allow-unknown"]);
    assert_eq!(report.status.code(), Some(0), "{}", text(&report.stderr));
    assert!(text(&report.stdout).contains("baseline cannot be read"));
    let words = [
        "study",
        "report",
        "next.sqlite",
        "--baseline",
        "moved.sqlite",
    ];
    let report = workspace.ended(&words);
    assert_eq!(
        report.status.code(),
        Some(FAILED),
        "{}",
        text(&report.stderr)
    );
}

#[test]
fn two_stores_are_compared_and_a_regression_ends_with_code_1() {
    let workspace = Workspace::new();
    let study = "name = \"t\"\ntitle = \"T\"\nrounds = 7\n[device]\nswitch = \"other\"\ntopology = \"vNet1\"\nlink = \"other\"\n\
         [tester]\ncpu = \"0\"\n[trials]\nduration-s = 1\nmax-rate-pps = 9_000_000\n\
         [search]\nstart-rate-percent = 20\nstart-step-percent = 20\nresolution-percent = 5\n\
         goal = [{ name = \"NDR\", loss-ratio = 0.0 }]\n\
         [[case]]\nname = \"c\"\nneighbours = \"none\"\nisolation = \"none\"\n";
    fs::write(workspace.path("study.toml"), study).unwrap();
    for (tester, store) in [
        ("sim:capacity=5M", "fast.sqlite"),
        ("sim:capacity=3M", "slow.sqlite"),
    ] {
        let words = [
            "study",
            "run",
            "study.toml",
            "--tester",
            tester,
            "--store",
            store,
        ];
        let output = workspace.ended(&words);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    let slower = workspace.ended(&["compare", "fast.sqlite", "slow.sqlite"]);
    assert_eq!(slower.status.code(), Some(FAILED));
    assert!(
        text(&slower.stdout).contains("REGRESSION"),
        "{}",
        text(&slower.stdout)
    );
    assert!(text(&slower.stderr).contains("margin of 2 %: NDR of c"));
    let (faster, _) = workspace.json(&["compare", "slow.sqlite", "fast.sqlite"]);
    assert_eq!(faster["quantities"][0]["finding"], "different");
    assert_eq!(faster["quantities"][0]["is_regression"], false);
    let (same, _) = workspace.json(&["compare", "fast.sqlite", "fast.sqlite"]);
    assert_eq!(same["quantities"][0]["finding"], "same");
    let with_margin = ["compare", "fast.sqlite", "slow.sqlite", "--margin", "60"];
    assert_eq!(workspace.ended(&with_margin).status.code(), Some(0));
    refused_beside_files(
        &workspace,
        &["compare", "fast.sqlite", "none.sqlite"],
        &["none.sqlite"],
    );
    refused_beside_files(
        &workspace,
        &["compare", "fast.sqlite", "slow.sqlite", "--confidence", "1"],
        &["--confidence"],
    );
}

#[test]
fn a_study_is_resumed_under_the_same_conditions_only() {
    let workspace = Workspace::new();
    let study = "name = \"t\"\ntitle = \"T\"\n[device]\nswitch = \"other\"\ntopology = \"vNet1\"\nlink = \"other\"\n\
         [tester]\ncpu = \"0\"\n[trials]\nduration-s = 1\nmax-rate-pps = 1_000_000\n[sweep]\nloads-percent = [1]\n\
         [[case]]\nname = \"c\"\nneighbours = \"none\"\nisolation = \"none\"\n";
    fs::write(workspace.path("study.toml"), study).unwrap();
    let run = |tester: &str, more: &[&str]| {
        let words = ["study", "run", "study.toml", "--json", "--tester", tester];
        let output = workspace.ended(&[&words[..], more].concat());
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let (code, _, printed) = run("sim:capacity=5M", &[]);
    assert_eq!(code, Some(0), "{printed}");
    let (code, _, printed) = run("sim:capacity=5M", &["--resume"]);
    assert_eq!(code, Some(0), "{printed}");
    for more in [&["--resume"][..], &["--resume", "--dry-run"]] {
        let (code, _, printed) = run("sim:capacity=6M", more);
        assert_eq!(code, Some(BAD_INPUT), "{printed}");
        for part in ["other conditions", "traffic generator was", "--anyway"] {
            assert!(printed.contains(part), "no '{part}' in: {printed}");
        }
    }
    let (code, result, printed) = run("sim:capacity=6M", &["--resume", "--anyway"]);
    assert_eq!(code, Some(0), "{printed}");
    let result: Value = serde_json::from_str(&result).unwrap();
    let runs = result["runs"].as_array().unwrap();
    let despite = |run: &Value| run["resumed_despite"].as_array().unwrap().len();
    assert_eq!(runs.iter().map(despite).collect::<Vec<_>>(), [0, 0, 1]);
    let page = fs::read_to_string(workspace.path("t.html")).unwrap();
    assert!(page.contains("Resumed under other conditions"));
    // A store that a run has open stays where it is.
    let store = File::open(workspace.path("t.sqlite")).unwrap();
    store.lock().unwrap();
    let (code, _, printed) = run("sim", &["--fresh"]);
    assert_ne!(code, Some(0), "{printed}");
    assert!(!workspace.path("t.sqlite.1").exists(), "{printed}");
    drop(store);
    let (code, _, printed) = run("sim", &["--fresh"]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(workspace.path("t.sqlite.1").exists());
}

#[test]
fn a_view_is_given_back_with_the_terminal_and_lines_are_plain_elsewhere() {
    let workspace = Workspace::new();
    let arguments = ["measure", "single-run", "--tester", "sim", "--progress"];
    let output = workspace.ended(&arguments);
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    assert!(!printed.contains('\u{1b}'), "{printed}");
    assert!(
        printed.contains("case device, round 1") && printed.contains("Mpps offered"),
        "{printed}"
    );
    // `script` provides a terminal.
    let binary = env!("CARGO_BIN_EXE_quietwire");
    let line = format!("{binary} {} 2>&1 >/dev/null", arguments.join(" "));
    let output = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .current_dir(workspace.0.path())
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}");
    let entered = shown
        .find("\u{1b}[?1049h")
        .expect("the view uses the terminal");
    let left = shown
        .rfind("\u{1b}[?1049l")
        .expect("the view restores the terminal");
    assert!(entered < left, "{shown}");
}

/// The table of a measurement, by a terminal of so many columns; of none if it is no terminal.
fn table_of(arguments: &[&str], columns: Option<usize>) -> String {
    let workspace = Workspace::new();
    let tester = "sim:capacity=5M,line-rate=10M,noise=0.02,seed=3";
    let mut command =
        workspace.quietwire(&[&["measure"], arguments, &["--tester", tester]].concat());
    match columns {
        Some(columns) => command.env("COLUMNS", columns.to_string()),
        None => command.env_remove("COLUMNS"),
    };
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Cells of the row that begins with this one.
fn cells<'a>(table: &'a str, first: &str) -> Vec<&'a str> {
    let rows = table.lines().map(|line| {
        let cells = line.split(['│', '┆']).map(str::trim);
        cells.filter(|cell| !cell.is_empty()).collect::<Vec<_>>()
    });
    let mut rows = rows.filter(|cells| cells.first() == Some(&first));
    rows.next()
        .unwrap_or_else(|| panic!("no {first} in:\n{table}"))
}

#[test]
fn a_sweep_lists_load_loss_and_validity_of_each_load() {
    let sweep = ["loss-sweep", "--set", "loads-percent=[40,60]"];
    for columns in [Some(80), None] {
        let table = table_of(&sweep, columns);
        let low = cells(&table, "40 %");
        assert!(
            low[1].starts_with("4 0") || low[1].starts_with("3 9"),
            "{table}"
        );
        assert_eq!(low.last(), Some(&"valid"), "{table}");
        let high = cells(&table, "60 %");
        assert!(
            high[2].starts_with("1") && high[2].ends_with(" %"),
            "{table}"
        );
        assert_ne!(high[3], "0", "{table}");
        assert_eq!(high.len(), 6, "{table}");
    }
}

#[test]
fn tables_fit_the_terminal_and_break_no_cell_inside_a_word() {
    for method in ["latency", "loss-sweep", "single-run"] {
        for columns in [60, 80, 100] {
            let table = table_of(&[method], Some(columns));
            for line in table.lines() {
                let is_within = line.chars().count() <= columns;
                assert!(is_within, "{method}, {columns}: {line}\n{table}");
                let cells = line.split(['│', '┆']).map(str::trim);
                for cell in cells {
                    let is_unit = ["µs", "ns", "ms", "%"].contains(&cell);
                    assert!(!is_unit, "{method}, {columns}: {line}\n{table}");
                }
            }
        }
    }
    // No terminal: as wide as needed.
    let table = table_of(&["latency"], None);
    let header = table.lines().find(|line| line.contains("p99.9")).unwrap();
    assert!(header.contains("load") && header.contains("max"), "{table}");
}

#[test]
fn a_page_does_not_say_what_it_does_not_know_of_the_devices_machine() {
    let workspace = Workspace::new();
    let run = [
        "measure",
        "loss-sweep",
        "--tester",
        "sim",
        "--html",
        "p.html",
    ];
    assert!(workspace.ended(&run).status.success());
    let page = fs::read_to_string(workspace.path("p.html")).unwrap();
    assert!(!page.contains("no neighbours") && !page.contains("placed by the scheduler"));
    assert!(page.contains("what else runs on its CPUs is unknown"));
    assert!(page.contains("Loss at each load"));
}
