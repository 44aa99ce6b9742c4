// SPDX-License-Identifier: Apache-2.0
//! Studies on a simulated device: verdicts, baselines, comparison and resumption.

use std::fs::{self, File};

use serde_json::Value;

use super::{BAD_INPUT, FAILED, Workspace, text};

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
fn losses_are_judged_by_those_of_earlier_stores() {
    let workspace = Workspace::new();
    let run = |device: &str, store: &str, objectives: &str| {
        let study = format!(
            "name = \"lossy\"\ntitle = \"T\"\nrounds = 6\n[device]\nswitch = \"other\"\ntopology = \"vNet1\"\nlink = \"other\"\n\
             [tester]\ncpu = \"0\"\n[trials]\nduration-s = 1\nmax-rate-pps = 9_000_000\n\
             [search]\nstart-rate-percent = 20\nstart-step-percent = 20\nresolution-percent = 5\n\
             goal = [{{ name = \"NDR\", loss-ratio = 0.0 }}]\n[sweep]\nloads-percent = [10, 100]\n{objectives}\
             [[case]]\nname = \"c\"\nneighbours = \"none\"\nisolation = \"none\"\n"
        );
        fs::write(workspace.path("study.toml"), study).unwrap();
        let arguments = ["study", "run", "study.toml", "--tester", device];
        workspace.ended(&[&arguments[..], &["--store", store]].concat())
    };
    for (device, store) in [
        ("sim:capacity=5M", "slow.sqlite"),
        ("sim:capacity=12M", "clean.sqlite"),
    ] {
        let output = run(device, store, "");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    // The loss is that of the slow device. The clean one loses nothing, so that only a loss of 0 is at most a multiple of it.
    let against = |load: u32, store: &str, ratio: f64| {
        format!(
            "[[objective]]\nquantity = \"loss\"\nload-percent = {load}\ncase = \"c\"\nbaseline = \"{store}\"\nat-most-ratio = {ratio}\n"
        )
    };
    let objectives = [
        against(100, "slow.sqlite", 1.1),
        against(100, "clean.sqlite", 10.0),
        against(10, "clean.sqlite", 1.0),
    ];
    let output = run("sim:capacity=5M", "judged.sqlite", &objectives.concat());
    assert_eq!(output.status.code(), Some(FAILED));
    let printed = text(&output.stderr);
    let unmet = "objectives not met: loss at 100 % load of c at most 10.000 of clean.sqlite";
    assert!(printed.contains(unmet), "{printed}");
    assert!(text(&output.stdout).contains("above a reference of 0"));
    let report = workspace.ended(&["study", "report", "judged.sqlite", "--json"]);
    let document: Value = serde_json::from_slice(&report.stdout).unwrap();
    let verdicts = document["summary"]["verdicts"].as_array().unwrap();
    let found: Vec<_> = verdicts.iter().map(|one| &one["verdict"]).collect();
    assert_eq!(found, ["pass", "fail", "pass"], "{verdicts:?}");
    assert_eq!(verdicts[1]["infinite"], 1);
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
    let cases = ["compare", "fast.sqlite", "slow.sqlite", "--case", "c=c"];
    assert_eq!(workspace.ended(&cases).status.code(), Some(FAILED));
    let (same, _) = workspace.json(&["compare", "fast.sqlite", "--case", "c=c"]);
    assert_eq!(same["quantities"][0]["finding"], "same");
    refused_beside_files(
        &workspace,
        &["compare", "fast.sqlite", "--case", "c=d"],
        &["--case", "no case 'd' (available: c)"],
    );
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
    // A store that a run has open keeps its name.
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
