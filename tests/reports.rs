// SPDX-License-Identifier: Apache-2.0
//! Tests of what `quietwire` makes of stores, with the real binary and a simulated device: files for other programs, and trends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "reports/bisection.rs"]
mod bisection;
#[path = "reports/serving.rs"]
mod serving;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const BAD_INPUT: i32 = 2;

/// A directory without any calibration.
struct Workspace(tempfile::TempDir);

impl Workspace {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn ended(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quietwire"));
        command
            .args(arguments)
            .current_dir(self.0.path())
            .env("XDG_STATE_HOME", self.path("state"))
            .stdin(Stdio::null());
        command.output().unwrap()
    }

    /// Runs a command that must end with this code; returns its standard output.
    fn output(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.ended(arguments);
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {printed}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that must be refused with a message that contains all of `parts`.
    fn refused(&self, arguments: &[&str], parts: &[&str]) {
        let output = self.ended(arguments);
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            output.status.code(),
            Some(BAD_INPUT),
            "{arguments:?}: {printed}"
        );
        for part in parts {
            assert!(printed.contains(part), "no '{part}' in: {printed}");
        }
    }

    /// Runs a study of one round on a simulated device.
    fn study(&self, capacity: &str, store: &str) {
        fs::write(self.path("study.toml"), STUDY).unwrap();
        let tester = format!("sim:capacity={capacity}");
        let run = [
            "study",
            "run",
            "study.toml",
            "--tester",
            tester.as_str(),
            "--store",
            store,
        ];
        self.output(0, &run);
    }
}

const STUDY: &str = r#"
name = "reported"
title = "T"
rounds = 1
[device]
switch = "other"
topology = "vNet1"
link = "other"
[tester]
cpu = "0"
[trials]
duration-s = 1
max-rate-pps = 9_000_000
[search]
start-rate-percent = 20
start-step-percent = 20
resolution-percent = 5
goal = [{ name = "NDR", loss-ratio = 0.0 }]
[[case]]
name = "c"
neighbours = "none"
isolation = "none"
"#;

#[test]
fn results_are_exported_and_bad_paths_are_refused_first() {
    let workspace = Workspace::new();
    workspace.study("5M", "s.sqlite");
    let report = ["study", "report", "s.sqlite"];
    let files = [
        "--markdown",
        "out/r.md",
        "--csv",
        "out/r.csv",
        "--series",
        "out/s.csv",
        "--svg",
        "out/charts",
    ];
    workspace.output(0, &[&report[..], &files].concat());
    let markdown = fs::read_to_string(workspace.path("out/r.md")).unwrap();
    assert!(
        markdown.starts_with("# T\n") && markdown.contains("| case |"),
        "{markdown}"
    );
    let csv = fs::read_to_string(workspace.path("out/r.csv")).unwrap();
    assert!(
        csv.starts_with("trial,round,case,") && csv.lines().count() > 2,
        "{csv}"
    );
    let series = fs::read_to_string(workspace.path("out/s.csv")).unwrap();
    assert!(
        series.starts_with("trial,round,case,frame_size,step,part,end_s,"),
        "{series}"
    );
    // The simulated tester has ten intervals in each trial.
    let trials = csv.lines().count() - 1;
    assert_eq!(series.lines().count(), 1 + 10 * trials);
    let charts = fs::read_dir(workspace.path("out/charts")).unwrap();
    assert!(charts.count() > 0);
    // No store is read if a file cannot be written.
    fs::write(workspace.path("file"), "").unwrap();
    for (option, path) in [
        ("--markdown", "out"),
        ("--csv", "file/r.csv"),
        ("--series", "file/s.csv"),
        ("--svg", "file"),
        ("--csit", "file"),
        ("--html", "out"),
        ("--html", "/dev/full"),
        ("--junit", "file/verdicts.xml"),
        ("--badge", "out"),
        ("--consoles", "file"),
    ] {
        let report = ["study", "report", "missing.sqlite", option, path];
        workspace.refused(&report, &[option, path]);
    }
}

const FAILED: i32 = 1;
const LACKS: i32 = 3;

/// A program that answers like Chromium's debugging pipe. Each picture is the signature of a PNG.
const CHROMIUM: &str = r#"#!/bin/bash
while IFS= read -r -d '' message <&3; do
    [[ $message =~ \"id\":([0-9]+) ]] || exit 1
    id=${BASH_REMATCH[1]}
    case $message in
    *Target.createTarget*) result='{"targetId":"t"}' ;;
    *Target.attachToTarget*) result='{"sessionId":"s"}' ;;
    *Page.navigate*)
        printf '{"method":"Page.loadEventFired","params":{}}\0' >&4
        result='{"frameId":"f"}'
        ;;
    *Page.captureScreenshot*) result='{"data":"iVBORw0KGgo="}' ;;
    *) result='{}' ;;
    esac
    printf '{"id":%s,"result":%s}\0' "$id" "$result" >&4
done
"#;

#[test]
fn charts_are_pictures_if_a_browser_is_there() {
    let workspace = Workspace::new();
    workspace.study("5M", "s.sqlite");
    let programs = workspace.path("programs");
    fs::create_dir(&programs).unwrap();
    let report = |path: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quietwire"));
        command
            .args([
                "study", "report", "s.sqlite", "--svg", "svg", "--png", "png",
            ])
            .current_dir(workspace.path(""))
            .env("PATH", path)
            .stdin(Stdio::null());
        command.output().unwrap()
    };
    let missing = report(programs.to_str().unwrap());
    let printed = String::from_utf8(missing.stderr).unwrap();
    assert_eq!(missing.status.code(), Some(LACKS), "{printed}");
    assert!(printed.contains("apt install chromium"), "{printed}");
    assert!(!workspace.path("svg").exists() && !workspace.path("png").exists());
    let program = programs.join("chromium");
    fs::write(&program, CHROMIUM).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", programs.display());
    let output = report(&path);
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{printed}");
    let names = |directory: &str, ending: &str| {
        let entries = fs::read_dir(workspace.path(directory)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names
            .map(|name| name.strip_suffix(ending).unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    let pictures = names("png", ".png");
    assert!(!pictures.is_empty());
    assert_eq!(pictures, names("svg", ".svg"));
    let first = fs::read(workspace.path(&format!("png/{}.png", pictures[0]))).unwrap();
    assert_eq!(first, b"\x89PNG\r\n\x1a\n");
}

#[test]
fn a_regression_over_stores_ends_with_code_1_and_a_page() {
    let workspace = Workspace::new();
    for number in 1..=10 {
        let capacity = if number <= 5 { "5M" } else { "2M" };
        workspace.study(capacity, &format!("stores/{number:02}.sqlite"));
    }
    fs::write(workspace.path("stores/other.sqlite"), "no store").unwrap();
    let table = workspace.output(FAILED, &["trend", "stores", "--html", "out/trend.html"]);
    assert!(
        table.contains("REGRESSION: NDR of c") && table.contains("06.sqlite"),
        "{table}"
    );
    assert!(table.contains("skipped: other.sqlite"), "{table}");
    let page = fs::read_to_string(workspace.path("out/trend.html")).unwrap();
    assert!(page.contains("Trend of 10 stores"), "{page}");
    let json = workspace.output(FAILED, &["trend", "stores", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(document["series"][0]["changes"][0]["is_regression"], true);
    assert_eq!(document["stores"].as_array().unwrap().len(), 10);
    // A large margin accepts the change.
    workspace.output(0, &["trend", "stores", "--margin", "90"]);
}

#[test]
fn a_trend_without_stores_or_with_bad_options_is_refused() {
    let workspace = Workspace::new();
    fs::create_dir(workspace.path("empty")).unwrap();
    workspace.refused(&["trend", "empty"], &["empty", "no readable store"]);
    workspace.refused(&["trend", "missing"], &["missing"]);
    workspace.refused(
        &["trend", "empty", "--error-rate", "0.9"],
        &["--error-rate", "0.001 to 0.5"],
    );
    workspace.refused(
        &["trend", "empty", "--margin", "100"],
        &["--margin", "0 to 99"],
    );
    workspace.refused(&["trend", "empty", "--html", "empty"], &["--html", "empty"]);
}
