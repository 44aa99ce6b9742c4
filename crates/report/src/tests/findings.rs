// SPDX-License-Identifier: Apache-2.0
//! Findings of simulated studies: in the summary, on the page, in the table and in the document.

use quietwire_monitor::{Owner, ThreadActivity};

use super::{StudyResults, checked, checked_whole, whole};
use crate::{MachineFinding, json, text_table};

/// Returns the whole study with a device whose forwarding thread was preempted by a neighbour in the case 'noisy'.
fn preempted() -> StudyResults {
    let mut results = whole();
    for step in &mut results.steps {
        for trial in &mut step.trials {
            let Some(machine) = &mut trial.activity.machine else {
                continue;
            };
            for thread in &mut machine.threads {
                thread.is_forwarding = thread.name == "forwarding-0";
                // The scheduler of the simulated device moves its thread.
                thread.migrations = Some(0);
                let is_it = thread.is_forwarding && step.case_name == "noisy";
                thread.nonvoluntary_switches = if is_it { 900 } else { 0 };
                thread.run_delay_s = is_it.then_some(0.65);
            }
            machine.threads.push(ThreadActivity {
                pid: 900,
                tid: 901,
                name: "<stress> & co".to_owned(),
                owner: Some(Owner::Neighbour),
                cpu: 1,
                cpu_time_s: 0.7,
                ..ThreadActivity::default()
            });
        }
    }
    results
}

fn of_rule<'a>(findings: &'a [MachineFinding], rule: &str) -> Vec<&'a MachineFinding> {
    findings.iter().filter(|one| one.rule == rule).collect()
}

#[test]
fn findings_are_on_page_and_table_before_the_results_and_in_the_document() {
    let results = preempted();
    let (summary, page) = checked(&results);
    let found = of_rule(&summary.findings, "preempted");
    assert_eq!(found.len(), 1, "{:?}", summary.findings);
    assert_eq!(found[0].case, "noisy");
    assert!(
        found[0].text.contains("mostly by <stress> & co"),
        "{}",
        found[0].text
    );
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("no '{text}'"));
    assert!(at("<h2>Verdicts</h2>") < at("<h2>Findings</h2>"));
    assert!(at("<h2>Findings</h2>") < at("<h2>Result</h2>"));
    assert!(page.contains("mostly by &lt;stress&gt; &amp; co"));
    assert!(page.contains("docs/findings.md#preempted"));
    let table = text_table(&summary, None);
    assert!(
        table.contains("FINDING  noisy: Forwarding thread forwarding-0 was preempted"),
        "{table}"
    );
    let document = json(&results).unwrap();
    let findings = document["summary"]["findings"].as_array().unwrap();
    assert!(
        findings
            .iter()
            .any(|one| one["rule"] == "preempted" && one["case"] == "noisy")
    );
    // 0.65 of 1.3 seconds.
    let threads = &summary.sizes[0].cases[1].threads;
    let forwarding = threads.iter().find(|one| one.name == "forwarding-0");
    assert!((forwarding.unwrap().run_delay_ratio.unwrap() - 0.5).abs() < 1e-9);
    assert!(page.contains("Waiting for a CPU"));
    // Neighbours are not threads of switch and tester.
    assert!(
        summary.sizes[0].cases[1]
            .threads
            .iter()
            .all(|thread| thread.name != "<stress> & co")
    );
}

#[test]
fn a_study_without_forwarding_threads_has_no_findings_about_them() {
    let (summary, _) = checked_whole();
    assert!(of_rule(&summary.findings, "preempted").is_empty());
    assert!(of_rule(&summary.findings, "neighbours-starved").is_empty());
}

#[test]
fn starved_neighbours_are_a_finding_of_their_case() {
    let mut results = whole();
    for step in &mut results.steps {
        for trial in &mut step.trials {
            if let Some(observed) = &mut trial.activity.neighbours {
                observed.share = 0.01;
            }
        }
    }
    let (summary, page) = checked(&results);
    let cases: Vec<&str> = of_rule(&summary.findings, "neighbours-starved")
        .iter()
        .map(|one| one.case.as_str())
        .collect();
    assert!(
        cases.contains(&"noisy") && !cases.contains(&"quiet"),
        "{cases:?}"
    );
    assert!(page.contains("docs/findings.md#neighbours-starved"));
}
