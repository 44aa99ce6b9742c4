// SPDX-License-Identifier: Apache-2.0
//! Isolation cases and neighbours' CPUs on this machine: supported ones are applied and rolled back, unsupported ones are
//! left out with the reason from `lab list`.

use quietwire_host::apply::{STATE_DIRECTORY, Target, status};
use quietwire_host::files::Disk;
use quietwire_host::{CpuId, CpuList};
use serde_json::Value;

use super::*;

const HEAD: &str = concat!(
    r#"
name = "test"
title = "A test"
"#,
    include_str!("../../crates/study/src/tests/device.toml"),
    r#"
[trials]
duration-s = 0.2
warm-up-s = 0.05
drain-s = 0.05
max-rate-pps = 200_000
invalid-repeats = 20
[latency]
rate-pps = 2000
duration-s = 0.1
repeats = 2
"#
);

/// Returns the number of applied changes, from the partition's journal.
fn changes() -> usize {
    let target = Target {
        files: &Disk,
        storage: &Disk,
        root: "/".into(),
        state_directory: STATE_DIRECTORY.into(),
    };
    status(&target).unwrap().changes.len()
}

/// Returns the settings that an isolation changes.
fn settings() -> Vec<String> {
    [
        "/proc/irq/default_smp_affinity",
        "/sys/devices/virtual/workqueue/cpumask",
        "/sys/fs/cgroup/cpuset/cpuset.sched_load_balance",
    ]
    .iter()
    .map(|path| fs::read_to_string(path).unwrap_or_default())
    .collect()
}

fn case(name: &str, neighbours: &str, isolation: &str) -> String {
    format!(
        "[[case]]\nname = \"{name}\"\nneighbours = \"{neighbours}\"\nisolation = \"{isolation}\"\n"
    )
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", words(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the settings of each case from the store.
fn entries(place: &Workplace) -> Vec<(String, Value)> {
    const QUERY: &str = "import sqlite3,json,sys; print(json.dumps([[n, json.loads(s)] for n, s in sqlite3.connect(sys.argv[1]).execute('select case_name, settings_json from case_entry order by id')]))";
    let output = Command::new("python3")
        .args(["-c", QUERY])
        .arg(place.path("s.sqlite"))
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_isolation_case_is_run_or_unavailable_with_the_reason() {
    let place = Workplace::new();
    let before = settings();
    let listed = json(
        &place
            .quietwire(&["lab", "list", "--json"])
            .output()
            .unwrap(),
    );
    let listed = listed["isolation"].as_array().unwrap();
    let names: Vec<&str> = listed
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    let cases: String = names
        .iter()
        .map(|name| case(name, "everywhere", name))
        .collect();
    let text = format!("{HEAD}[neighbours]\nkinds = [\"cpu\"]\n{cases}");
    fs::write(place.path("study.toml"), text).unwrap();
    let reported = json(&place.study(&["--json"]).output().unwrap());
    place.assert_nothing_left();
    assert_eq!(changes(), 0);
    assert_eq!(settings(), before);

    let summary = &reported["summary"];
    assert_eq!(summary["state"]["state"], "finished");
    let left_out = summary["unavailable"].as_array().unwrap();
    for one in listed.iter().filter(|one| one["unavailable"].is_string()) {
        let found = left_out.iter().find(|case| case["name"] == one["name"]);
        assert_eq!(found.unwrap()["reason"], one["unavailable"], "{left_out:?}");
    }
    let page = fs::read_to_string(place.path("s.html")).unwrap();
    for case in left_out {
        assert!(page.contains(&format!("<dt>{}</dt>", case["name"].as_str().unwrap())));
    }
    let run: Vec<&Value> = summary["sizes"][0]["cases"]
        .as_array()
        .unwrap()
        .iter()
        .collect();
    assert_eq!(run.len() + left_out.len(), names.len());
    let entries = entries(&place);
    for case in run {
        let name = case["name"].as_str().unwrap();
        let neighbours = &case["neighbours"];
        assert!(
            neighbours["share"]["max"].as_f64().unwrap() > 0.0,
            "{neighbours}"
        );
        let (_, settings) = entries.iter().find(|(of, _)| of == name).unwrap();
        let commands = settings["commands"].to_string();
        let is_isolated = name != "none" && name != "pinned";
        // Interrupts are moved, and neighbours do not run on the forwarding CPU.
        assert_eq!(
            commands.contains("/proc/irq/"),
            is_isolated,
            "{name}: {commands}"
        );
        let cpus: CpuList = settings["neighbours_cpus"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(cpus.contains(CpuId(1)), !is_isolated, "{name}: {cpus}");
    }
}

#[test]
fn an_isolation_is_applied_around_whatever_topology_a_case_has() {
    let place = Workplace::new();
    let before = settings();
    let cases = [
        ("pinned", "off-forwarding-cpus"),
        ("isolated", "everywhere"),
    ]
    .map(|(isolation, neighbours)| case(isolation, neighbours, isolation))
    .concat();
    let text = format!("{HEAD}[neighbours]\nkinds = [\"cpu\"]\n{cases}");
    let text = text.replace("link = \"memif\"", "link = \"vhost-user\"");
    fs::write(place.path("study.toml"), text).unwrap();
    let reported = json(&place.study(&["--json"]).output().unwrap());
    place.assert_nothing_left();
    assert_eq!(changes(), 0);
    assert_eq!(settings(), before);
    let summary = &reported["summary"];
    assert_eq!(
        summary["unavailable"],
        serde_json::json!([]),
        "isolation requires CPU sets"
    );
    let entries = entries(&place);
    assert_eq!(entries.len(), 2);
    for (name, settings) in entries {
        let commands = settings["commands"].to_string();
        let is_isolated = name == "isolated";
        assert_eq!(commands.contains("/proc/irq/"), is_isolated, "{commands}");
        let parts = settings["isolation_parts"].to_string();
        assert_eq!(parts.contains("isolated"), is_isolated, "{parts}");
        assert!(settings["lab"]["elements"].is_array());
    }
}

#[test]
fn an_isolation_of_a_killed_study_is_undone() {
    let place = Workplace::new();
    let before = settings();
    let text = format!("{HEAD}{}", case("only", "none", "isolated"));
    let text = text.replace("\nrepeats = 2\n", "\nrepeats = 2000\n");
    fs::write(place.path("study.toml"), text).unwrap();
    let mut child = place.start_and_wait_for_trials(1);
    assert!(changes() > 0);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(changes() > 0);
    place.clean();
    assert_eq!(changes(), 0);
    assert_eq!(settings(), before);
    place.assert_nothing_left();
    assert!(place.clean().contains("nothing"));
}

#[test]
fn neighbours_in_a_container_and_on_the_network_are_measured() {
    let place = Workplace::new();
    let cases = case("beside", "everywhere", "pinned");
    let neighbours = "[neighbours]\nkinds = [\"cpu\", \"socket\"]\ncount = 1\nin = \"container\"\nnetwork-pps = 5000\n";
    let text = format!("{HEAD}{neighbours}{cases}");
    // Here the tester and the neighbour's sender share one CPU.
    let text = text.replace("\ncpu = \"0\"\n", "\ncpu = \"0\"\nrealtime = false\n");
    fs::write(place.path("study.toml"), text).unwrap();
    let reported = json(&place.study(&["--json"]).output().unwrap());
    place.assert_nothing_left();
    let neighbours = &reported["summary"]["sizes"][0]["cases"][0]["neighbours"];
    assert!(
        neighbours["share"]["max"].as_f64().unwrap() > 0.0,
        "{reported}"
    );
    assert!(
        neighbours["network_pps"]["max"].as_f64().unwrap() > 0.0,
        "{reported}"
    );
    let (_, settings) = entries(&place).remove(0);
    let commands = settings["commands"].to_string();
    for part in ["unshare --mount", "generate", "n0=memif"] {
        assert!(commands.contains(part), "no {part}: {commands}");
    }
}
