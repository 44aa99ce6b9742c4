// SPDX-License-Identifier: Apache-2.0
//! Causes that are provoked on a running switch are named by findings.

use serde_json::Value;

use super::*;

/// A study of one search at a rate that tester and switch reach on any machine. `device` is more of `[device]`.
fn study(device: &str, case: &str) -> String {
    format!(
        "name = \"test\"\ntitle = \"A test\"\n{}{device}\n{REST}{case}",
        include_str!("../../crates/study/src/tests/device.toml")
    )
}

const REST: &str = r#"
[trials]
duration-s = 1
warm-up-s = 0.1
drain-s = 0.1
max-rate-pps = 20_000
invalid-repeats = 20
[search]
start-rate-percent = 100
start-step-percent = 50
resolution-percent = 25
[[search.goal]]
name = "PDR"
loss-ratio = 0.5
[neighbours]
stressors = ["--cpu 2"]
"#;

/// Runs a study; returns rule and text of each finding.
fn findings(study: &str) -> Vec<(String, String)> {
    let place = Workplace::new();
    fs::write(place.path("study.toml"), study).unwrap();
    let output = place.study(&["--json"]).output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = document["summary"]["findings"].as_array().unwrap();
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
    let found = all.iter().map(|one| (text(one, "rule"), text(one, "text")));
    let found: Vec<(String, String)> = found.collect();
    let page = fs::read_to_string(place.path("s.html")).unwrap();
    assert!(page.contains("<h2>Findings</h2>"), "{found:?}");
    let machine = &document["runs"][0]["machine"];
    assert_eq!(machine["monitors"]["threads"], "available");
    assert!(
        machine["settings"]["kernel"]["value"].is_string(),
        "{machine}"
    );
    place.assert_nothing_left();
    found
}

fn of_rule<'a>(found: &'a [(String, String)], rule: &str) -> &'a str {
    let one = found.iter().find(|(name, _)| name == rule);
    &one.unwrap_or_else(|| panic!("no '{rule}' in {found:?}")).1
}

#[test]
fn a_thread_that_sleeps_and_a_device_that_is_idle_are_found() {
    let case = "[[case]]\nname = \"a\"\nneighbours = \"none\"\nisolation = \"pinned\"\n";
    let found = findings(&study("idle = \"sleep\"", case));
    let slept = of_rule(&found, "system-calls");
    assert!(
        slept.contains("qw-fwd-") && slept.contains("gave up its CPU"),
        "{slept}"
    );
    assert!(of_rule(&found, "tester-limit").contains("PDR"), "{found:?}");
    assert!(
        of_rule(&found, "device-idle").contains("frames a burst"),
        "{found:?}"
    );
}

#[test]
fn a_thread_that_shares_its_cpu_is_found_preempted_by_its_neighbour() {
    let case = "[[case]]\nname = \"a\"\nneighbours = \"everywhere\"\nisolation = \"pinned\"\n";
    let found = findings(&study("", case));
    let preempted = of_rule(&found, "preempted");
    assert!(
        preempted.contains("qw-fwd-") && preempted.contains("stress-ng"),
        "{preempted}"
    );
    assert!(
        found.iter().all(|(rule, _)| rule != "system-calls"),
        "{found:?}"
    );
}
