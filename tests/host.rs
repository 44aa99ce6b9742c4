// SPDX-License-Identifier: Apache-2.0
//! Tests of the real binary: shows the hardware of this machine and of a recording, draws it, and measures its jitter.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn quietwire(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quietwire"));
    command.args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    let (out, error) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(error)
    )
}

fn done(arguments: &[&str]) -> String {
    let output = quietwire(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&done(arguments)).unwrap()
}

/// Returns a recorded virtual machine, in the repository.
fn recording() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/recordings/virtual-machine.tar.zst")
}

#[test]
fn a_machine_that_was_recorded_here_is_shown_as_this_one() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("machine.tar.zst");
    let file = file.to_str().unwrap();
    done(&["host", "record", file]);
    let (here, recorded) = (
        json(&["host", "show", "--json"]),
        json(&["host", "show", "--json", "--root", file]),
    );
    for key in [
        "cpu_model",
        "cpus_online",
        "cpus",
        "caches",
        "cgroup_version",
        "nics",
        "rdt",
    ] {
        assert_eq!(here[key], recorded[key], "{key}");
    }
    let reported = done(&["host", "show", "--root", file]);
    assert!(reported.contains("CPUs online"), "{reported}");
}

#[test]
fn a_recording_is_planned_for_drawn_and_verified() {
    let recording = recording();
    let recording = recording.to_str().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    fs::write(
        at("request.toml"),
        done(&["partition", "derive", "--root", recording]),
    )
    .unwrap();
    let config = at("request.toml");
    let input = ["--root", recording, "--config", &config];
    let with = |command: &[&str], more: &[&str]| -> Vec<String> {
        let words = command.iter().chain(&input).chain(more);
        words.map(|word| (*word).to_owned()).collect()
    };
    let run = |command: &[&str], more: &[&str]| {
        let words = with(command, more);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        quietwire(&words)
    };
    let planned = run(&["partition", "plan"], &[]);
    assert!(
        text(&planned).contains("forwarding       CPUs 1"),
        "{}",
        text(&planned)
    );
    let picture = at("machine.svg");
    let drawn = run(&["host", "show"], &["--svg", &picture]);
    assert!(drawn.status.success(), "{}", text(&drawn));
    let picture = fs::read_to_string(&picture).unwrap();
    assert!(picture.contains("CPU 1: forwarding"), "{picture}");

    // It was not started with the plan's parameters, and has no processes to judge.
    let verified = run(&["partition", "verify"], &["--json"]);
    assert_eq!(verified.status.code(), Some(1), "{}", text(&verified));
    let checks: Value = serde_json::from_slice(&verified.stdout).unwrap();
    let verdict = |name: &str| {
        let mut checks = checks.as_array().unwrap().iter();
        let check = checks.find(|check| check["name"] == name);
        check.map_or("none", |check| check["verdict"].as_str().unwrap())
    };
    assert_eq!(
        ["online", "command-line", "affinity", "cpu-sets"].map(verdict),
        ["pass", "fail", "unknown", "unknown"]
    );
    let text_of = text(&verified);
    assert!(
        !text_of.contains("/tmp/"),
        "the paths of files are those of the machine: {text_of}"
    );
    let dry = run(&["partition", "apply", "--dry-run"], &[]);
    assert!(dry.status.success(), "{}", text(&dry));
    for change in [
        "/hugepages-2048kB/nr_hugepages: 0 -> 512\n",
        "/proc/irq/24/smp_affinity_list: 0-1 -> 0\n",
    ] {
        assert!(text(&dry).contains(change), "{}", text(&dry));
    }
    // Commands that would change the recording are refused.
    for command in [
        &["partition", "apply"][..],
        &["partition", "status"],
        &["partition", "rollback"],
    ] {
        let output = if command[1] == "apply" {
            run(command, &[])
        } else {
            quietwire(&[command, &["--root", recording]].concat())
        };
        assert_eq!(
            output.status.code(),
            Some(2),
            "{command:?}: {}",
            text(&output)
        );
        assert!(
            text(&output).contains("is a recording"),
            "{}",
            text(&output)
        );
    }
    let live = run(&["partition", "verify"], &["--for", "1s"]);
    assert_eq!(live.status.code(), Some(2), "{}", text(&live));
}

/// The nearest request is printed as a file that can be planned.
#[test]
fn an_impossible_request_is_refused_with_the_nearest_one() {
    const BAD_INPUT: i32 = 2;
    let recording = recording();
    let recording = recording.to_str().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("request.toml");
    let plan = |request: &str| {
        fs::write(&config, request).unwrap();
        let config = config.to_str().unwrap();
        quietwire(&["partition", "plan", "--root", recording, "--config", config])
    };
    let refused = plan("[forwarding]\ncpus = 99\n");
    let printed = text(&refused);
    assert_eq!(refused.status.code(), Some(BAD_INPUT), "{printed}");
    assert!(printed.contains("99 CPUs are requested"), "{printed}");
    let (_, nearest) = printed
        .split_once("Nearest feasible request:\n")
        .unwrap_or_else(|| panic!("{printed}"));
    let planned = plan(nearest);
    assert!(planned.status.success(), "{}", text(&planned));
}

#[test]
fn a_root_without_a_machine_is_bad_input() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "no archive").unwrap();
    let (directory, file) = (directory.path().to_str().unwrap(), file.to_str().unwrap());
    let recording = format!("{directory}/machine.tar.zst");
    for arguments in [
        &["host", "show", "--root", "/nowhere"][..],
        &["host", "show", "--root", directory],
        &["host", "show", "--root", file],
        &["host", "show", "--config", file],
        &["partition", "verify", "--root", file],
        &["partition", "status", "--root", "/nowhere"],
        &["partition", "plan", "--root", directory],
        &["partition", "derive", "--root", directory],
        &["host", "record", recording.as_str(), "--root", directory],
        &["host", "record", recording.as_str(), "--root", "/nowhere"],
        &["host", "jitter", "--cpus", "4095", "--for", "10ms"],
        &["host", "jitter", "--cpus", "x"],
        &["host", "jitter", "--cpus", "0", "--for", "0s"],
    ] {
        let output = quietwire(arguments);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            text(&output)
        );
        assert!(!output.stderr.is_empty());
    }
    assert!(!Path::new(&recording).exists());
}

/// Measures in a private mount namespace without tracefs, on any machine.
#[test]
fn jitter_has_gaps_of_each_cpu_and_says_why_the_kernel_names_no_source() {
    // The kernel also shows tracefs in debugfs, if that is mounted.
    const SCRIPT: &str = r#"for place in /sys/kernel/tracing /sys/kernel/debug; do
        mount -t tmpfs none "$place" || exit
    done; exec "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c", SCRIPT, "sh"]);
    command.arg(env!("CARGO_BIN_EXE_quietwire"));
    command.args(["host", "jitter", "--cpus", "0", "--for", "300ms", "--json"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let cpu = &report["cpus"][0];
    assert_eq!(cpu["cpu"], 0);
    assert!(cpu["duration_ns"].as_u64().unwrap() >= 290_000_000, "{cpu}");
    assert!(!cpu["histogram"].as_array().unwrap().is_empty(), "{cpu}");
    let why = report["untraced"].as_str().unwrap();
    assert!(why.contains("tracefs is not mounted"), "{why}");
    assert_eq!(cpu["sources"], serde_json::json!([]), "{cpu}");
    let reported = done(&["host", "jitter", "--cpus", "0", "--for", "50ms"]);
    assert!(reported.contains("gaps of 1 us and more"), "{reported}");
}

/// Measures with the tracer, if the kernel has it: gaps have names, and the tracer is switched off afterwards.
#[test]
#[ignore = "needs a kernel with the osnoise tracer (CONFIG_OSNOISE_TRACER, Linux 6.1 and later), tracefs mounted, and root; make test-hardware runs it"]
fn jitter_is_traced_by_the_kernel() {
    let tracing = Path::new("/sys/kernel/tracing");
    let state = || {
        let read = |file: &str| fs::read_to_string(tracing.join(file)).unwrap();
        (
            read("osnoise/options"),
            read("osnoise/cpus"),
            read("current_tracer"),
        )
    };
    let before = state();
    let report = json(&["host", "jitter", "--cpus", "0", "--for", "2s", "--json"]);
    assert!(report["untraced"].is_null(), "{report}");
    let sources = report["cpus"][0]["sources"].as_array().unwrap();
    assert!(
        !sources.is_empty(),
        "two seconds without a timer's interrupt: {report}"
    );
    assert_eq!(state(), before);
    assert!(!tracing.join("instances/quietwire-jitter").exists());
}
