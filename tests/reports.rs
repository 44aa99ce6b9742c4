// SPDX-License-Identifier: Apache-2.0
//! Tests of what `quietwire` makes of stores, with the real binary and a simulated device: files for other programs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
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
            &tester,
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
    let charts = fs::read_dir(workspace.path("out/charts")).unwrap();
    assert!(charts.count() > 0);
    // No store is read if a file cannot be written.
    fs::write(workspace.path("file"), "").unwrap();
    for (option, path) in [
        ("--markdown", "out"),
        ("--csv", "file/r.csv"),
        ("--svg", "file"),
    ] {
        let report = ["study", "report", "missing.sqlite", option, path];
        workspace.refused(&report, &[option, path]);
    }
}
