// SPDX-License-Identifier: Apache-2.0
//! Verdicts of simulated studies: in the summary, on the page, in the table and in the files.

use std::path::PathBuf;
use std::sync::LazyLock;

use quietwire_search::{Findings, LatencyLoad};
use quietwire_study::{StepKind, Verdict};

use super::{SimulatedBench, StudyResults, assert_well_formed, results_of};
use crate::{Baselines, ObjectiveVerdict, Report, Summary, badge, html, json, junit, text_table};

/// Returns a study of this number of rounds with objectives.
fn study(rounds: u32, objectives: &str) -> String {
    format!(
        r#"
name = "judged"
title = "A judged study"
rounds = {rounds}
{}
[trials]
duration-s = 1
invalid-repeats = 5
[search]
start-rate-percent = 20
start-step-percent = 20
resolution-percent = 5
best-of = 2
goal = [{{ name = "NDR", loss-ratio = 0.0 }}, {{ name = "PDR", loss-ratio = 0.005 }}]
[sweep]
loads-percent = [10, 100]
[latency]
rate-percent = 1
duration-s = 1
repeats = 5
[neighbours]
stressors = ["--cpu 4"]
{objectives}
[[case]]
name = "quiet"
neighbours = "none"
isolation = "none"
[[case]]
name = "noisy"
neighbours = "everywhere"
isolation = "none"
[[case]]
name = "protected"
neighbours = "off-forwarding-cpus"
isolation = "isolated"
"#,
        include_str!("../../../study/src/tests/device.toml")
    )
}

fn run(rounds: u32, objectives: &str) -> StudyResults {
    let mut bench = SimulatedBench::new(3, 0);
    bench.invalid_ratio = 0.0;
    results_of(&study(rounds, objectives), bench, usize::MAX)
}

/// Returns a study of this number of rounds that searches for the PDR only.
fn searched(rounds: u32, objectives: &str) -> StudyResults {
    const OTHER_GOAL: &str = "{ name = \"NDR\", loss-ratio = 0.0 }, ";
    let text = study(rounds, objectives);
    let begin = text.find("[sweep]").unwrap();
    let end = text.find("[neighbours]").unwrap();
    assert!(text[..begin].contains(OTHER_GOAL));
    let text = format!("{}{}", &text[..begin], &text[end..]).replace(OTHER_GOAL, "");
    let mut bench = SimulatedBench::new(3, 0);
    bench.invalid_ratio = 0.0;
    results_of(&text, bench, usize::MAX)
}

/// Returns a study of five rounds with all objectives, run once for all tests.
fn five_rounds() -> StudyResults {
    static FIVE: LazyLock<StudyResults> = LazyLock::new(|| run(5, OBJECTIVES));
    FIVE.clone()
}

fn verdicts(results: &StudyResults) -> Vec<ObjectiveVerdict> {
    Summary::of(results).unwrap().verdicts
}

fn names(results: &StudyResults) -> Vec<Verdict> {
    let all = verdicts(results).into_iter();
    all.map(|one| one.judgement.verdict).collect()
}

/// One objective of each quantity that the simulated bench measures, met and not met.
const OBJECTIVES: &str = r#"
[[objective]]
quantity = "NDR"
case = "quiet"
at-least-pps = 4_000_000
[[objective]]
quantity = "PDR"
case = "noisy"
against = "quiet"
at-least-ratio = 0.98
[[objective]]
quantity = "PDR"
case = "protected"
against = "quiet"
at-least-ratio = 0.7
[[objective]]
quantity = "loss"
case = "noisy"
load-percent = 100
at-most-loss-ratio = 0.5
[[objective]]
quantity = "loss"
case = "quiet"
load-percent = 10
at-most-loss-ratio = 0.01
[[objective]]
name = "noisy <latency> & \"more\""
quantity = "latency"
percentile = 99
case = "noisy"
at-most-us = 20
[[objective]]
quantity = "latency"
case = "protected"
against = "quiet"
at-most-ratio = 1.5
[[objective]]
quantity = "pdv"
percentile = 99
case = "quiet"
at-most-us = 100
[[objective]]
quantity = "ipdv"
percentile = 100
case = "quiet"
at-most-us = 1000
"#;

#[test]
fn a_failed_verdict_has_the_profile_of_the_worst_trial() {
    let results = five_rounds();
    let found = verdicts(&results);
    for one in &found {
        let is_failed = one.judgement.verdict == Verdict::Fail;
        assert_eq!(one.profile.is_some(), is_failed, "{}", one.name);
    }
    let profile = |index: usize| found[index].profile.as_ref().unwrap();
    for index in [1, 3, 5] {
        let profile = profile(index);
        let (step, trial) = results.trials().nth(profile.trial - 1).unwrap();
        assert_eq!(step.case_name, "noisy");
        assert_eq!(step.round, profile.round);
        assert_eq!(trial.result.loss_ratio, profile.loss_ratio);
        assert!(!profile.cpus.is_empty() && !profile.threads.is_empty());
    }
    let of_noisy = || {
        results
            .trials()
            .filter(|(step, trial)| step.case_name == "noisy" && trial.result.is_valid())
    };
    // The lowest rate that lost too much for the PDR.
    let lowest = of_noisy()
        .filter(|(step, _)| step.kind.searches_for("PDR"))
        .filter(|(_, trial)| trial.result.loss_ratio > 0.005)
        .map(|(_, trial)| trial.result.achieved_rate_pps)
        .reduce(f64::min);
    assert_eq!(Some(profile(1).achieved_rate_pps), lowest);
    // The largest loss at the highest load of the sweep.
    let largest = of_noisy()
        .filter(|(step, _)| step.kind == StepKind::Sweep)
        .map(|(_, trial)| trial.result.loss_ratio)
        .reduce(f64::max);
    assert_eq!(Some(profile(3).loss_ratio), largest);
    let page = html(&results).unwrap();
    assert_well_formed(&page);
    assert!(page.contains(
        "<summary>Worst trial: PDR of noisy at least 0.980 of quiet, 64 octets</summary>"
    ));
    assert!(page.contains(
        "<summary>Worst trial: noisy &lt;latency&gt; &amp; &quot;more&quot;, 64 octets</summary>"
    ));
    let document = json(&results).unwrap();
    let listed = document["summary"]["verdicts"][1]["profile"]["trial"].as_u64();
    assert_eq!(listed, Some(profile(1).trial as u64));
    assert!(document["summary"]["verdicts"][0].get("profile").is_none());
}

#[test]
fn the_worst_trial_of_a_named_load_is_at_this_load() {
    const OBJECTIVE: &str = "[latency-plan]\n[[objective]]\nquantity = \"latency\"\nload = \"PDR\"\npercentile = 99\n\
                             case = \"quiet\"\nat-most-us = 0.001\n";
    let results = run(5, OBJECTIVE);
    let found = verdicts(&results);
    let judgement = &found[0].judgement;
    assert_eq!(judgement.verdict, Verdict::Fail, "{judgement:?}");
    let profile = found[0].profile.as_ref().unwrap();
    let (step, trial) = results.trials().nth(profile.trial - 1).unwrap();
    assert_eq!(step.case_name, "quiet");
    let Some(Findings::LatencyPlan(plan)) = &step.findings else {
        panic!("{:?}", step.findings);
    };
    let rate_pps = trial.request.offered_rate_pps;
    let mut points = plan.points.iter();
    let planned = points.find(|planned| planned.point.rate_pps == rate_pps);
    let stands_for = &planned.unwrap().point.stands_for;
    assert!(stands_for.contains(&LatencyLoad::Pdr), "{stands_for:?}");
}

#[test]
fn each_quantity_is_judged_from_the_store_alone() {
    use Verdict::{Fail, Pass};
    let results = five_rounds();
    let found = verdicts(&results);
    let reasons: Vec<_> = found.iter().map(|one| &one.judgement).collect();
    assert_eq!(
        names(&results),
        [Pass, Fail, Pass, Fail, Pass, Fail, Pass, Pass, Pass],
        "{reasons:#?}"
    );
    assert_eq!(found[1].name, "PDR of noisy at least 0.980 of quiet");
    assert_eq!(found[1].count_text(), "0 of 5");
    assert_eq!(found[0].judgement.values, 5);
    // Computed again, it is the same.
    assert_eq!(found, verdicts(&results));
}

#[test]
fn verdicts_come_first_on_page_and_table_and_are_in_the_document() {
    let results = five_rounds();
    let page = html(&results).unwrap();
    assert_well_formed(&page);
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("no '{text}'"));
    assert!(at("<h2>Verdicts</h2>") < at("<h2>Result</h2>"));
    assert!(page.contains("noisy &lt;latency&gt; &amp; &quot;more&quot;"));
    let summary = Summary::of(&results).unwrap();
    let table = text_table(&summary, None);
    assert!(table.find("PDR of noisy at least").unwrap() < table.find("frames of 64").unwrap());
    let document = json(&results).unwrap();
    let verdicts = document["summary"]["verdicts"].as_array().unwrap();
    assert_eq!(verdicts.len(), 9);
    assert_eq!(verdicts[1]["verdict"], "fail");
    assert_eq!(verdicts[1]["against"], "quiet");
    assert_eq!(verdicts[1]["unit"], "ratio");
    assert_eq!(verdicts[1]["rule"]["bound"], 0.98);
}

#[test]
fn files_for_other_programs_have_every_verdict() {
    let summary = Summary::of(&five_rounds()).unwrap();
    let xml = junit(&summary, false);
    assert_eq!(xml.matches("<testcase ").count(), 9);
    assert_eq!(xml.matches("<failure ").count(), 3);
    assert!(xml.contains("name=\"noisy &lt;latency&gt; &amp; &quot;more&quot; (64 octets)\""));
    assert!(xml.contains("tests=\"9\" failures=\"3\""));
    let badge = badge(&summary);
    assert!(badge.contains("judged: fail 3 of 9"));
    assert!(badge.starts_with("<svg ") && badge.ends_with("</svg>\n"));
}

#[test]
fn a_study_without_objectives_has_no_verdicts() {
    let results = run(1, "");
    let summary = Summary::of(&results).unwrap();
    assert!(summary.verdicts.is_empty());
    assert!(!html(&results).unwrap().contains("<h2>Verdicts"));
    assert!(json(&results).unwrap()["summary"].get("verdicts").is_none());
    assert!(badge(&summary).contains("no objectives"));
    assert!(junit(&summary, false).contains("tests=\"0\""));
}

#[test]
fn too_few_rounds_do_not_decide_but_repeats_of_a_single_round_do() {
    let results = run(3, OBJECTIVES);
    assert!(names(&results).iter().all(|one| *one == Verdict::Unknown));
    let reason = verdicts(&results)[0].judgement.reason.clone().unwrap();
    assert!(reason.contains("requires at least 5"), "{reason}");

    let single = run(1, OBJECTIVES);
    let found = verdicts(&single);
    // Five trials of [latency], and one search.
    assert_eq!(found[5].judgement.verdict, Verdict::Fail);
    assert_eq!(found[5].judgement.values, 5);
    assert_eq!(found[0].judgement.values, 1);
    let xml = junit(&Summary::of(&single).unwrap(), true);
    assert!(xml.contains("<skipped ") && !xml.contains("<error "));
}

#[test]
fn rounds_that_are_missing_are_no_evidence() {
    let whole = five_rounds();
    let trials = whole.trials().count();
    let mut bench = SimulatedBench::new(3, 0);
    bench.invalid_ratio = 0.0;
    let part = results_of(&study(5, OBJECTIVES), bench, trials * 3 / 4);
    assert!(names(&part).iter().all(|one| *one == Verdict::Unknown));

    let mut bench = SimulatedBench::new(3, 0);
    bench.unavailable = Some(("noisy".to_owned(), "no CPU is left".to_owned()));
    let without = results_of(&study(5, OBJECTIVES), bench, usize::MAX);
    let found = verdicts(&without);
    assert_eq!(found[1].judgement.verdict, Verdict::Unknown);
    let reason = found[1].judgement.reason.clone().unwrap();
    assert!(reason.contains("no CPU is left"), "{reason}");
}

#[test]
fn a_tester_that_fails_leaves_the_verdict_open() {
    let mut bench = SimulatedBench::new(3, 0);
    bench.invalid_ratio = 1.0;
    let text = study(5, OBJECTIVES).replace("invalid-repeats = 5", "invalid-repeats = 0");
    let results = results_of(&text, bench, usize::MAX);
    for verdict in verdicts(&results) {
        assert_eq!(verdict.judgement.verdict, Verdict::Unknown);
        let reason = verdict.judgement.reason.unwrap();
        assert!(reason.contains("tester failed"), "{reason}");
    }
}

#[test]
fn starved_neighbours_remove_a_pass_of_their_case_and_a_fail_against_it() {
    let mut results = searched(
        5,
        r#"
[[objective]]
quantity = "PDR"
case = "protected"
at-least-pps = 1_000_000
[[objective]]
quantity = "PDR"
case = "noisy"
at-least-pps = 1_000_000
[[objective]]
quantity = "PDR"
case = "quiet"
against = "protected"
at-least-ratio = 1.5
"#,
    );
    assert_eq!(
        names(&results),
        [Verdict::Pass, Verdict::Fail, Verdict::Fail]
    );
    for step in &mut results.steps {
        for trial in &mut step.trials {
            if let Some(observed) = &mut trial.activity.neighbours {
                observed.share = 0.01;
            }
        }
    }
    let found = verdicts(&results);
    assert_eq!(found[0].judgement.verdict, Verdict::Unknown);
    let reason = found[0].judgement.reason.clone().unwrap();
    assert!(reason.contains("got only"), "{reason}");
    // Loss beside neighbours that hardly run is loss all the same.
    assert_eq!(found[1].judgement.verdict, Verdict::Fail);
    assert_eq!(found[2].judgement.verdict, Verdict::Unknown);
}

#[test]
fn a_baseline_is_another_store() {
    const WITH_BASELINE: &str = r#"
[[objective]]
quantity = "PDR"
case = "noisy"
baseline = "before.sqlite"
against = "quiet"
at-least-ratio = 0.9
[[objective]]
quantity = "PDR"
case = "quiet"
baseline = "before.sqlite"
at-least-ratio = 0.5
"#;
    let now = searched(7, WITH_BASELINE);
    let unread = verdicts(&now);
    assert_eq!(unread[0].judgement.verdict, Verdict::Unknown);
    let before = searched(6, "");
    let path = PathBuf::from("before.sqlite");
    let baselines = Baselines::from([(path.clone(), Ok(before))]);
    let report = Report::new(&now, &baselines).unwrap();
    let found = &report.summary().verdicts;
    assert_eq!(found[0].judgement.verdict, Verdict::Fail, "{found:#?}");
    assert_eq!(found[1].judgement.verdict, Verdict::Pass, "{found:#?}");
    assert_eq!(found[0].against.as_deref(), Some("quiet in before.sqlite"));
    assert!(report.html().contains("quiet in before.sqlite"));

    let unreadable = Baselines::from([(path, Err("it is gone".to_owned()))]);
    let report = Report::new(&now, &unreadable).unwrap();
    let reason = report.summary().verdicts[0].judgement.reason.clone();
    assert_eq!(reason.as_deref(), Some("it is gone"));
}

/// Losses against another case and against a store, at a load with loss and at one without.
const RELATIVE_LOSSES: &str = r#"
[[objective]]
quantity = "loss"
load-percent = 100
case = "noisy"
against = "quiet"
at-most-ratio = 2
[[objective]]
quantity = "loss"
load-percent = 100
case = "quiet"
against = "noisy"
at-most-ratio = 0.5
[[objective]]
quantity = "loss"
load-percent = 10
case = "noisy"
against = "quiet"
at-most-ratio = 2
[[objective]]
quantity = "loss"
load-percent = 10
case = "protected"
against = "quiet"
at-most-ratio = 2
[[objective]]
quantity = "loss"
load-percent = 100
case = "noisy"
baseline = "before.sqlite"
at-most-ratio = 1.5
[[objective]]
quantity = "loss"
load-percent = 10
case = "noisy"
baseline = "before.sqlite"
against = "quiet"
at-most-ratio = 2
"#;

#[test]
fn a_loss_is_judged_by_that_of_another_case_and_of_a_baseline() {
    use Verdict::{Fail, Pass};
    // Only the noisy case loses frames at a load of 10 %.
    let run = |objectives: &str| {
        let mut results = run(6, objectives);
        let sweeps = results.steps.iter_mut();
        let sweeps =
            sweeps.filter(|step| step.kind == StepKind::Sweep && step.case_name != "noisy");
        let trials = sweeps.flat_map(|step| &mut step.trials);
        for trial in trials.filter(|trial| trial.request.offered_rate_pps < 2e6) {
            trial.result.loss_ratio = 0.0;
        }
        results
    };
    let now = run(RELATIVE_LOSSES);
    let baselines = Baselines::from([(PathBuf::from("before.sqlite"), Ok(run("")))]);
    let report = Report::new(&now, &baselines).unwrap();
    let found = &report.summary().verdicts;
    let judged: Vec<Verdict> = found.iter().map(|one| one.judgement.verdict).collect();
    assert_eq!(judged, [Fail, Pass, Fail, Pass, Pass, Fail], "{found:#?}");
    let infinite: Vec<usize> = found.iter().map(|one| one.judgement.infinite).collect();
    assert_eq!(infinite, [0, 0, 6, 0, 0, 1]);
    assert_eq!(
        found[0].name,
        "loss at 100 % load of noisy at most 2.000 of quiet"
    );
    assert_eq!(found[2].found_text(), "above a reference of 0");
    assert_eq!(found[2].count_text(), "0 of 6");
    assert_eq!(found[3].judgement.median, Some(0.0));
    assert!(report.html().contains("<td>above a reference of 0</td>"));
}

#[test]
fn quick_studies_are_not_judged() {
    let file = quietwire_study::StudyFile::parse(
        &study(5, OBJECTIVES),
        std::path::Path::new("study.toml"),
    )
    .unwrap();
    let results = results_of(
        &file.quick().unwrap(),
        SimulatedBench::new(3, 0),
        usize::MAX,
    );
    let found = verdicts(&results);
    assert_eq!(found.len(), 9);
    let is_open = |one: &ObjectiveVerdict| one.judgement.verdict == Verdict::Unknown;
    assert!(found.iter().all(is_open));
}
