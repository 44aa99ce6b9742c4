// SPDX-License-Identifier: Apache-2.0
//! Conditions of two stores that differ: study file, machine and software.

use std::collections::BTreeMap;

use quietwire_study::{Case, StudyResults};
use serde::Serialize;
use serde_json::Value;

/// A setting that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Its place: `study`, `machine` or `versions`, and its key.
    pub setting: String,
    /// Value in the first store; none if it has no such key.
    pub first: Option<String>,
    /// Value in the second store; none if it has no such key.
    pub second: Option<String>,
}

/// Keys of a study file that do not affect a result.
const WITHOUT_EFFECT: [&str; 5] = ["name", "title", "rounds", "objective", "published"];

/// Returns the settings of the last runs that differ, in the order of their names.
pub(super) fn differences(first: &StudyResults, second: &StudyResults) -> Vec<Difference> {
    differing(&settings(first), &settings(second))
}

/// Key of the cases of a study file.
const CASES: &str = "study.case[";

/// Returns the settings of two cases and of the last runs that differ, in the order of their names. Other cases are left out.
pub(super) fn differences_of_cases(
    results: [&StudyResults; 2],
    cases: [&Case; 2],
) -> Vec<Difference> {
    let of = |results: &StudyResults, case: &Case| {
        let mut all = settings(results);
        all.retain(|name, _| !name.starts_with(CASES));
        if let Ok(Value::Object(mut case)) = serde_json::to_value(case) {
            case.remove("name");
            flatten("case", &Value::Object(case), &mut all);
        }
        all
    };
    let ([first, second], [case, other]) = (results, cases);
    differing(&of(first, case), &of(second, other))
}

/// Returns the settings that differ, in the order of their names.
pub(crate) fn differing(
    one: &BTreeMap<String, String>,
    other: &BTreeMap<String, String>,
) -> Vec<Difference> {
    let names = one.keys().chain(other.keys());
    let mut names: Vec<&String> = names.collect();
    names.sort();
    names.dedup();
    let differing = names
        .into_iter()
        .filter(|name| one.get(*name) != other.get(*name));
    differing
        .map(|name| Difference {
            setting: name.clone(),
            first: one.get(name).cloned(),
            second: other.get(name).cloned(),
        })
        .collect()
}

/// Returns the settings of the last run: those of the study that affect a result, of the machine and of the software.
pub(crate) fn settings(results: &StudyResults) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    if let Ok(Value::Object(mut file)) = serde_json::to_value(&results.file) {
        file.retain(|key, _| !WITHOUT_EFFECT.contains(&key.as_str()));
        flatten("study", &Value::Object(file), &mut all);
    }
    if let Some(run) = results.runs.last() {
        flatten("machine", &run.machine, &mut all);
        flatten("versions", &run.versions, &mut all);
    }
    all
}

/// Adds every value with the path of its keys.
fn flatten(path: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(keys) => {
            for (key, value) in keys {
                flatten(&format!("{path}.{key}"), value, into);
            }
        }
        Value::Array(values) if values.iter().any(Value::is_object) => {
            for (index, value) in values.iter().enumerate() {
                flatten(&format!("{path}[{index}]"), value, into);
            }
        }
        // An absent key and null are the same.
        Value::Null => {}
        Value::String(text) => {
            into.insert(path.to_owned(), text.clone());
        }
        other => {
            into.insert(path.to_owned(), other.to_string());
        }
    }
}
