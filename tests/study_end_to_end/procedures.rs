// SPDX-License-Identifier: Apache-2.0
//! Bursts, overloads, restarts and addresses on the real switch: the results must match its configuration.

use std::fs;

use quietwire_base::testing::KillOnDrop;
use serde_json::Value;

use super::*;

/// The switch has 25 addresses, which bisection from one more finds in eight steps, and its rings hold two thousand frames, even if others
/// use its CPU.
/// Its threads have CPUs of their own: beside one that polls, the tester could not send a burst back to back. Bursts are short, because a
/// host that takes the CPU away a thousand times per second leaves none of a few milliseconds back to back.
const PROCEDURES: &str = concat!(
    r#"
name = "procedures"
title = "Procedures"
"#,
    include_str!("../../crates/study/src/tests/device.toml"),
    r#"
mode = "bridge"
rx-ring-size = 2048
tx-ring-size = 2048
max-entries = 25
[traffic]
frame-sizes = [64]
directions = "both"
[trials]
duration-s = 0.1
warm-up-s = 0.05
drain-s = 0.05
max-rate-pps = 200_000
invalid-repeats = 60
[back-to-back]
rate-percent = 50
longest-burst-s = 0.02
resolution-frames = 1200
repeats = 2
pause-s = 0.05
[system-recovery]
rate-percent = 50
overload-s = 0.2
reduced-s = 0.2
repeats = 2
[reset]
rate-percent = 10
limit-s = 30
repeats = 2
[address-caching]
max-addresses = 26
learning-rate-pps = 100_000
probe-rate-pps = 100_000
[address-learning-rate]
addresses = 20
max-rate-pps = 20_000
resolution-pps = 15_000
probe-rate-pps = 50_000
[[case]]
name = "only"
neighbours = "none"
isolation = "pinned"
"#
);

/// Returns every object in a JSON document with this method.
fn of_method<'a>(value: &'a Value, method: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(members) => {
            if members.get("method").and_then(Value::as_str) == Some(method) {
                found.push(value);
            }
            members.values().for_each(|it| of_method(it, method, found));
        }
        Value::Array(items) => items.iter().for_each(|it| of_method(it, method, found)),
        _ => {}
    }
}

fn findings<'a>(json: &'a Value, method: &str) -> &'a Value {
    let mut found = Vec::new();
    of_method(json, method, &mut found);
    assert_eq!(found.len(), 1, "{method}: {json:#}");
    found[0]
}

#[test]
fn procedures_find_what_the_switch_was_configured_with() {
    let place = Workplace::new();
    fs::write(place.path("study.toml"), PROCEDURES).unwrap();
    let output = place.study(&["--json"]).output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();

    // The test port itself uses one entry.
    let caching = findings(&json, "address-caching");
    assert_eq!(caching["capacity_addresses"], 24, "{caching:#}");
    assert_eq!(caching["is_limit"], false);
    let learning = findings(&json, "address-learning-rate");
    let rate = learning["learning_rate_pps"].as_u64().unwrap();
    assert!((1..=20_000).contains(&rate), "{learning:#}");

    let bursts = findings(&json, "back-to-back");
    let longest = bursts["longest_frames"].as_array().unwrap();
    assert_eq!(longest.len(), 2, "{bursts:#}");
    // At most as many as were sent; half of that fits the rings of both ports twice.
    for frames in longest.iter().map(|it| it.as_u64().unwrap()) {
        assert!((1_000..=4_000).contains(&frames), "{bursts:#}");
    }
    let recoveries = findings(&json, "system-recovery")["recoveries_s"].clone();
    let recoveries = recoveries.as_array().unwrap();
    assert_eq!(recoveries.len(), 2, "{recoveries:?}");
    for after_s in recoveries {
        assert!(
            after_s.as_f64().is_none_or(|it| it <= 0.2),
            "{recoveries:?}"
        );
    }

    let reset = findings(&json, "reset");
    let outages = reset["outages"].as_array().unwrap();
    assert_eq!(outages.len(), 2, "{reset:#}");
    for outage in outages {
        let by_loss_s = outage["by_loss_s"].as_f64().unwrap();
        let by_time_s = outage["by_time_s"].as_f64().unwrap();
        assert!(by_loss_s > 0.0 && by_loss_s < 30.0, "{outage}");
        assert!(by_time_s > 0.0 && by_time_s < 30.0, "{outage}");
        // Two ways to measure the same.
        let ratio = by_loss_s / by_time_s;
        assert!((0.5..2.0).contains(&ratio), "{outage}");
    }
    place.assert_nothing_left();
}

/// A long sweep of short loads.
const SWEEP: &str = concat!(
    r#"
name = "sweep"
title = "A sweep"
"#,
    include_str!("../../crates/study/src/tests/device.toml"),
    r#"
[trials]
duration-s = 0.5
warm-up-s = 0
drain-s = 0.05
max-rate-pps = 20_000
[sweep]
loads-percent = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
[[case]]
name = "only"
neighbours = "none"
isolation = "none"
"#
);

/// Returns the process whose command line has all of these words.
fn process_with(parts: &[&str]) -> Option<i32> {
    fs::read_dir("/proc").unwrap().find_map(|entry| {
        let entry = entry.ok()?;
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read_to_string(entry.path().join("cmdline")).ok()?;
        let is_it =
            pid != std::process::id().cast_signed() && parts.iter().all(|part| line.contains(part));
        is_it.then_some(pid)
    })
}

fn kill(pid: i32) {
    let killed = Command::new("kill")
        .args(["-KILL", &pid.to_string()])
        .status();
    assert!(killed.unwrap().success());
}

/// Waits for the end of a command; returns its exit code and its standard error.
fn ended(mut child: Child, log: &std::path::Path) -> (Option<i32>, String) {
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(began.elapsed() < DEADLINE, "the command does not end");
        sleep(Duration::from_millis(20));
    };
    (status.code(), fs::read_to_string(log).unwrap())
}

#[test]
fn a_device_that_dies_in_the_midst_of_a_trial_ends_the_study_with_a_message() {
    let place = Workplace::new();
    fs::write(place.path("study.toml"), SWEEP).unwrap();
    let log = place.path("said");
    let child = place
        .study(&[])
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while place.trials() < 1 {
        assert!(began.elapsed() < DEADLINE, "no trials were stored");
        sleep(Duration::from_millis(20));
    }
    let lab = place.path("lab").display().to_string();
    kill(process_with(&["switch", "--control-socket", &lab]).unwrap());
    let (code, log) = ended(child, &log);
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("died") && !log.contains("panicked"), "{log}");
    assert!(place.trials() >= 1);
    place.assert_nothing_left();
}

/// A switch outside the lab, killed with this value.
struct Switch(KillOnDrop);

impl Switch {
    fn start(place: &Workplace, arguments: &[&str]) -> Self {
        let mut command = place.quietwire(&["switch", "run", "--control-socket", "c.sock"]);
        for name in ["a", "b"] {
            let socket = place.path(&format!("{name}.sock"));
            let port = format!("{name}=memif:{}?role=server", socket.display());
            command.args(["--port", &port]);
        }
        command.args(arguments);
        command.args([
            "--forwarding-cpus",
            "1",
            "--service-cpus",
            "0",
            "--control-cpus",
            "0",
        ]);
        command.args(["--memory-mib", "64", "--huge-pages", "never"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut switch = Self(KillOnDrop(child.unwrap()));
        let began = Instant::now();
        let sockets = ["a.sock", "b.sock", "c.sock"].map(|name| place.path(name));
        while !sockets.iter().all(|socket| socket.exists()) {
            assert!(began.elapsed() < DEADLINE, "the switch does not start");
            assert!(switch.0.try_wait().unwrap().is_none(), "the switch ended");
            sleep(Duration::from_millis(5));
        }
        switch
    }
}

/// Returns `quietwire measure` over both ports of the switch.
fn measure(place: &Workplace, arguments: &[&str]) -> Command {
    let mut command = place.quietwire(&["measure"]);
    command.args(arguments);
    for name in ["a.sock", "b.sock"] {
        let uri = format!("memif:{}?role=client", place.path(name).display());
        command.args(["--port", &uri]);
    }
    command.args(["--no-huge", "--memory-mib", "96", "--json"]);
    command.args(["--isolation", "none"]);
    command
}

#[test]
fn a_device_that_never_answers_gives_no_figures() {
    let place = Workplace::new();
    // Two bridges of one port each: no frame is forwarded.
    let _switch = Switch::start(&place, &["--bridge", "x=a", "--bridge", "y=b"]);
    let usual = ["--max-rate-pps", "20000", "--drain", "20ms"];
    let of = |method: &str, settings: &[&str]| {
        let mut command = measure(&place, &[&[method], &usual[..]].concat());
        command.args([
            "--set",
            "rate-percent=50",
            "--set",
            "trials.invalid-repeats=20",
        ]);
        for setting in settings {
            command.args(["--set", setting]);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", words(&output));
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        findings(&json, method).clone()
    };
    let bursts = of(
        "back-to-back",
        &["repeats=1", "longest-burst-s=0.1", "pause-s=0.02"],
    );
    assert_eq!(
        bursts["longest_frames"],
        serde_json::json!([0]),
        "{bursts:#}"
    );
    let recovery = of(
        "system-recovery",
        &["repeats=1", "overload-s=0.1", "reduced-s=0.1"],
    );
    assert_eq!(
        recovery["recoveries_s"],
        serde_json::json!([null]),
        "{recovery:#}"
    );
    assert_eq!(recovery["recovery_s"], Value::Null);
}

#[test]
fn a_link_that_goes_down_makes_a_trial_invalid() {
    let place = Workplace::new();
    let mut switch = Switch::start(&place, &["--cross-connect", "a,b"]);
    let log = place.path("said");
    let printed = place.path("printed");
    let repeats = ["--set", "trials.invalid-repeats=1"];
    let mut command = measure(&place, &["system-recovery", "--max-rate-pps", "20000"]);
    command.args([
        "--set",
        "rate-percent=50",
        "--set",
        "overload-s=1",
        "--set",
        "reduced-s=0.2",
    ]);
    let mut child = command
        .args(repeats)
        .stdout(fs::File::create(&printed).unwrap())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    // The tester's thread exists only during a trial.
    let began = Instant::now();
    let is_running = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
        tasks.flatten().any(|task| {
            fs::read_to_string(task.path().join("comm"))
                .is_ok_and(|name| name.starts_with("qw-tester"))
        })
    };
    while !is_running() {
        assert!(began.elapsed() < DEADLINE, "no trial begins");
        sleep(Duration::from_millis(5));
    }
    switch.0.kill().unwrap();
    switch.0.wait().unwrap();
    assert!(
        child.try_wait().unwrap().is_none(),
        "the command ended too early"
    );
    let (code, log) = ended(child, &log);
    let printed = fs::read_to_string(&printed).unwrap();
    assert_eq!(code, Some(0), "{log}");
    assert!(printed.contains("lost its link"), "{printed}");
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(
        findings(&json, "system-recovery")["recoveries_s"],
        serde_json::json!([])
    );
}
