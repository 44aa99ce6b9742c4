// SPDX-License-Identifier: Apache-2.0
//! Tests of FD.io CSIT: figures of simulated studies, and each key against the published schema of the test model
//! (resources/model_schema/test_case.schema.yaml of FD.io CSIT, version 1.5.1). The schema itself is not part of this tree.

use quietwire_study::simulated::SimulatedBench;
use quietwire_tester::read_histogram;
use serde_json::{Map, Value};

use super::{results_of, whole};
use crate::{Baselines, CsitTest, Report, SearchOutcome};

/// A simulated study with all loads of the model's latency.
const LATENCIES: &str = concat!(
    r#"
name = "latencies"
title = "Latency at parts of the PDR"
"#,
    include_str!("../../../study/src/tests/device.toml"),
    r#"
[trials]
duration-s = 1
[search]
start-rate-percent = 20
start-step-percent = 20
resolution-percent = 5
goal = [{ name = "NDR", loss-ratio = 0.0 }, { name = "PDR", loss-ratio = 0.005 }]
[latency]
rate-pps = 18_000
duration-s = 1
repeats = 1
[latency-plan]
parts-of = "pdr"
[[case]]
name = "quiet"
neighbours = "none"
isolation = "none"
"#
);

/// Values of `test_type`.
const TYPES: [&str; 7] = [
    "device",
    "gso",
    "hoststack",
    "mrr",
    "ndrpdr",
    "reconf",
    "soak",
];

/// Returns an object that has all of these keys, perhaps some of the optional ones, and no other.
fn object<'a>(value: &'a Value, required: &[&str], optional: &[&str]) -> &'a Map<String, Value> {
    let object = value
        .as_object()
        .unwrap_or_else(|| panic!("no object: {value}"));
    for key in required {
        assert!(object.contains_key(*key), "no '{key}' in {value}");
    }
    for key in object.keys() {
        let is_known = |known: &&str| *known == key;
        assert!(
            required.iter().chain(optional).any(is_known),
            "'{key}' in {value}"
        );
    }
    object
}

/// Checks a string of at least so many characters.
fn check_text(value: &Value, length_min: usize) {
    let text = value
        .as_str()
        .unwrap_or_else(|| panic!("no string: {value}"));
    assert!(text.chars().count() >= length_min, "'{text}' is too short");
}

/// Checks date and time by RFC 3339, section 5.6, in UTC.
fn check_time(value: &Value) {
    let text = value.as_str().unwrap();
    let shape: String = text
        .chars()
        .map(|one| if one.is_ascii_digit() { '0' } else { one })
        .collect();
    assert_eq!(shape, "0000-00-00T00:00:00.000000Z", "{text}");
}

/// Checks a number that is not negative, with this unit.
fn check_quantity(value: &Value, unit: &str) {
    let quantity = object(value, &["value", "unit"], &[]);
    assert!(quantity["value"].as_f64().unwrap() >= 0.0);
    assert_eq!(quantity["unit"], unit);
}

fn check_bounds(value: &Value) {
    for bound in object(value, &["lower", "upper"], &[]).values() {
        let rates = object(bound, &["rate"], &["bandwidth"]);
        check_quantity(&rates["rate"], "pps");
        check_quantity(&rates["bandwidth"], "bps");
    }
}

fn check_latency(value: &Value) {
    let loads = ["pdr_0", "pdr_10", "pdr_50", "pdr_90"];
    for load in object(value, &loads, &[]).values() {
        let numbers = object(load, &["avg", "hdrh", "max", "min", "unit"], &[]);
        // Whole numbers, the largest of them above zero.
        assert!(numbers["min"].is_u64() && numbers["avg"].is_u64(), "{load}");
        assert!(numbers["max"].as_u64().unwrap() >= 1, "{load}");
        check_text(&numbers["hdrh"], 1);
        assert_eq!(numbers["unit"], "us");
    }
}

fn check_result(value: &Value) {
    match value["type"].as_str().unwrap() {
        "ndrpdr" => {
            let latency = ["latency_forward", "latency_reverse"];
            let result = object(value, &["type", "ndr", "pdr"], &latency);
            check_bounds(&result["ndr"]);
            check_bounds(&result["pdr"]);
            if let Some(latency) = result.get("latency_forward") {
                check_latency(latency);
            }
        }
        "unknown" => {
            object(value, &["type"], &[]);
        }
        other => panic!("a result of type '{other}'"),
    }
}

/// Checks a document key by key.
fn check_document(document: &Value) {
    let keys = [
        "duration",
        "dut_type",
        "dut_version",
        "end_time",
        "hosts",
        "telemetry",
        "message",
        "passed",
        "result",
        "start_time",
        "tags",
        "test_documentation",
        "test_id",
        "test_name_long",
        "test_name_short",
        "test_type",
        "tg_type",
        "tg_version",
        "version",
    ];
    let test = object(document, &keys, &[]);
    assert!(test["duration"].as_f64().unwrap() >= 0.0);
    for key in ["dut_type", "dut_version", "tg_type", "tg_version"] {
        check_text(&test[key], 1);
    }
    check_time(&test["start_time"]);
    check_time(&test["end_time"]);
    let hosts = test["hosts"].as_array().unwrap();
    assert!(!hosts.is_empty());
    for list in ["hosts", "telemetry", "tags"] {
        let texts = test[list].as_array().unwrap();
        texts.iter().for_each(|text| check_text(text, 0));
    }
    check_text(&test["message"], 0);
    check_text(&test["test_documentation"], 0);
    for key in ["test_id", "test_name_long", "test_name_short"] {
        check_text(&test[key], 3);
    }
    assert!(TYPES.contains(&test["test_type"].as_str().unwrap()));
    assert_eq!(test["version"], "1.5.1");
    check_result(&test["result"]);
    // A passed test has no message, and a failed one has one.
    let is_passed = test["passed"].as_bool().unwrap();
    assert_eq!(is_passed, test["message"] == "", "{document}");
    assert_eq!(is_passed, test["result"]["type"] == "ndrpdr", "{document}");
}

/// Returns the tests of a study with this text.
fn tests_of(text: &str) -> Vec<CsitTest> {
    let results = results_of(text, SimulatedBench::new(3, 0), usize::MAX);
    let report = Report::new(&results, &Baselines::new()).unwrap();
    report.csit().unwrap()
}

#[test]
fn every_search_is_a_test_of_csit() {
    let results = whole();
    let report = Report::new(&results, &Baselines::new()).unwrap();
    let tests = report.csit().unwrap();
    let cases = &report.summary().sizes[0].cases;
    let searches: usize = cases.iter().map(|case| case.goals[0].outcomes.len()).sum();
    assert_eq!(tests.len(), searches);
    let mut names: Vec<&str> = tests.iter().map(|test| test.file_name.as_str()).collect();
    names.dedup();
    assert_eq!(names.len(), searches, "{names:?}");
    let mut tests = tests.iter();
    for case in cases {
        for search in 0..case.goals[0].outcomes.len() {
            let document = &tests.next().unwrap().document;
            check_document(document);
            let held: Vec<Option<f64>> =
                case.goals
                    .iter()
                    .map(|goal| match goal.outcomes[search] {
                        SearchOutcome::Held { rate_pps, .. }
                        | SearchOutcome::AtLeast { rate_pps } => Some(rate_pps),
                        _ => None,
                    })
                    .collect();
            assert_eq!(document["passed"], held.iter().all(Option::is_some));
            let ndr = case.goals.iter().position(|goal| goal.loss_ratio == 0.0);
            if let (Some(rate_pps), true) = (held[ndr.unwrap()], document["passed"] == true) {
                let bounds = &document["result"]["ndr"];
                let lower = &bounds["lower"];
                assert_eq!(
                    lower["rate"]["value"].as_f64(),
                    Some(rate_pps),
                    "{document}"
                );
                // 64 octets and 20 octets around them.
                let bandwidth = lower["bandwidth"]["value"].as_f64().unwrap();
                assert!((bandwidth - rate_pps * 84.0 * 8.0).abs() < 1.0);
                assert!(bounds["upper"]["rate"]["value"].as_f64().unwrap() >= rate_pps);
            }
            // The study measures one of the four loads.
            assert_eq!(document["result"].get("latency_forward"), None);
            let allowed = document["test_documentation"].as_str().unwrap();
            assert!(
                allowed.contains("(allowed loss ratio: NDR 0, PDR "),
                "{allowed}"
            );
            assert_eq!(document["tags"][2], "P2P", "{document}");
        }
    }
}

#[test]
fn latency_at_all_loads_of_the_model_is_in_whole_microseconds() {
    let tests = tests_of(LATENCIES);
    assert_eq!(tests.len(), 1);
    let document = &tests[0].document;
    check_document(document);
    let latency = document["result"]["latency_forward"].as_object();
    let latency = latency.unwrap_or_else(|| panic!("no latency: {document}"));
    for numbers in latency.values() {
        let histogram = read_histogram(numbers["hdrh"].as_str().unwrap()).unwrap();
        let max = numbers["max"].as_f64().unwrap();
        assert!((histogram.max() as f64 - max).abs() <= max / 500.0 + 1.0);
    }
}

#[test]
fn a_search_without_a_rate_is_a_failed_test_with_a_reason() {
    let ndr_alone = LATENCIES.replace(", { name = \"PDR\", loss-ratio = 0.005 }", "");
    let ndr_alone = ndr_alone.replace("[latency-plan]\nparts-of = \"pdr\"\n", "");
    let tests = tests_of(&ndr_alone);
    let document = &tests[0].document;
    check_document(document);
    let message = document["message"].as_str().unwrap();
    assert!(
        message.contains("PDR: the study has no such goal"),
        "{message}"
    );
    assert!(message.contains("NDR: "), "{message}");
}

#[test]
fn without_a_goal_of_its_name_the_pdr_is_that_with_the_smallest_allowed_loss() {
    let goals = "{ name = \"NDR\", loss-ratio = 0.0 }, { name = \"PDR\", loss-ratio = 0.005 }";
    assert_eq!(LATENCIES.matches(goals).count(), 1);
    let others = [
        ("coarse", 0.01),
        ("fine", 0.001),
        ("none", 0.0),
        ("middle", 0.005),
    ];
    let others = others.map(|(name, loss)| format!("{{ name = {name:?}, loss-ratio = {loss:?} }}"));
    let text = LATENCIES.replace(goals, &others.join(", "));
    let text = text.replace("[latency-plan]\nparts-of = \"pdr\"\n", "");
    let tests = tests_of(&text);
    assert_eq!(tests.len(), 1);
    let document = &tests[0].document;
    check_document(document);
    let allowed = document["test_documentation"].as_str().unwrap();
    assert!(
        allowed.ends_with("(allowed loss ratio: NDR 0, PDR 0.001)"),
        "{allowed}"
    );
}
