// SPDX-License-Identifier: Apache-2.0
//! Output of measurements: files, views, tables and pages, also after an interruption.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{FAILED, Workspace, text};

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
fn results_are_printed_even_if_the_page_cannot_be_written() {
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
fn a_page_omits_unknown_facts_about_the_machine_of_the_device() {
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
