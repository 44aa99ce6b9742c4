// SPDX-License-Identifier: Apache-2.0
//! Pages of simulated studies: complete, interrupted and empty ones.

mod accessible;
mod cases;
mod csit;
mod exports;
mod figures;
mod findings;
mod limits;
mod methods;
mod validity;
mod verdicts;

use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Applications, CaseSummary, Spread, State, Summary, html, json, text_table};
use quietwire_study::simulated::SimulatedBench;
use quietwire_study::{
    OpenMode, Progress, StepKind, Store, StudyFile, StudyResults, TrialEvent, run_study,
};

/// The built-in study, at the highest rate of the simulated tester and with more trials.
static STUDY: LazyLock<String> = LazyLock::new(|| {
    let mut text = include_str!("../../../studies/noisy-neighbours.toml").to_owned();
    for (quick, thorough) in [
        ("max-rate-pps = 2_000_000", "max-rate-pps = \"auto\""),
        ("resolution-percent = 5\n", "resolution-percent = 2.5\n"),
        ("rounds = 5\n", "rounds = 3\n"),
        ("load-percent = 50\n", "load-percent = 60\n"),
        ("best-of = 2", "best-of = 3"),
        ("[10, 25, 50, 75, 100]", "[5, 15, 30, 45, 60, 75, 90, 100]"),
        ("\nrepeats = 3", "\nrepeats = 5"),
    ] {
        assert_eq!(text.matches(quick).count(), 1, "{quick}");
        text = text.replace(quick, thorough);
    }
    text
});

/// The same with few trials: one round, no repeats of searches and coarse ones. They may find less than the device forwards.
static SHORT: LazyLock<String> = LazyLock::new(|| {
    let mut text = STUDY.clone();
    for (thorough, quick) in [
        ("rounds = 3\n", "rounds = 1\n"),
        ("resolution-percent = 2.5\n", "resolution-percent = 10\n"),
        ("\nbest-of = 3\n", "\n"),
    ] {
        assert_eq!(text.matches(thorough).count(), 1, "{thorough}");
        text = text.replace(thorough, quick);
    }
    text
});

/// Stops a study after this number of trials.
struct StopAfter<'a>(usize, &'a AtomicBool);

impl Progress for StopAfter<'_> {
    fn trial(&mut self, _event: &TrialEvent<'_>) {
        self.0 = self.0.saturating_sub(1);
        if self.0 == 0 {
            self.1.store(true, Ordering::Relaxed);
        }
    }
}

/// Returns the results of a study text on this bench, of at most `trials` trials.
pub(crate) fn results_of(text: &str, mut bench: SimulatedBench, trials: usize) -> StudyResults {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.sqlite");
    let file = StudyFile::parse(text, Path::new("study.toml")).unwrap();
    let mut store = Store::open(&path, &file, text, OpenMode::New).unwrap();
    let stop = AtomicBool::new(trials == 0);
    let mut progress = StopAfter(trials, &stop);
    // A test may let the bench fail. The tests check what the store holds then.
    drop(run_study(
        &file,
        &mut store,
        &mut bench,
        &mut progress,
        &stop,
    ));
    store.results().unwrap()
}

/// Returns a complete study, run once for all tests.
fn whole() -> StudyResults {
    static WHOLE: LazyLock<StudyResults> =
        LazyLock::new(|| results_of(&STUDY, SimulatedBench::new(11, 0), usize::MAX));
    WHOLE.clone()
}

/// Returns the page without the content of its first element of a name.
fn without(page: &str, name: &str) -> String {
    let (before, after) = page.split_once(&format!("<{name}>")).unwrap();
    let (_, after) = after.split_once(&format!("</{name}>")).unwrap();
    format!("{before}<{name}></{name}>{after}")
}

/// Checks every tag of the page: each opened tag is closed, in order.
fn assert_well_formed(page: &str) {
    const VOID: [&str; 1] = ["meta"];
    let mut open: Vec<String> = Vec::new();
    let page = without(&without(page, "style"), "script");
    let mut rest = page.strip_prefix("<!DOCTYPE html>").unwrap();
    while let Some(start) = rest.find('<') {
        assert!(
            !rest[..start].contains('>'),
            "a stray '>': {}",
            &rest[..start]
        );
        let end = start + rest[start..].find('>').expect("a tag that never ends");
        let tag = &rest[start + 1..end];
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes in <{tag}>");
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop().as_deref(), Some(name), "at </{name}>"),
            None => {
                let name = tag.split_whitespace().next().unwrap().to_owned();
                if !VOID.contains(&name.as_str()) {
                    open.push(name);
                }
            }
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "left open: {open:?}");
}

/// Checks that the page loads nothing and runs no script but its own, which its policy allows.
fn assert_self_contained(page: &str) {
    for forbidden in [
        "http://",
        "https://",
        "<link",
        "<img",
        "<iframe",
        "src=",
        "@import",
        "javascript:",
    ] {
        assert!(!page.contains(forbidden), "the page has {forbidden}");
    }
    assert_eq!(page.matches("<script").count(), 1);
    assert!(page.contains(&format!("<script>{}</script>", crate::page::SCRIPT)));
    let policy = format!("script-src {};", crate::script_source());
    assert!(page.contains(&policy), "{policy}");
    for (at, _) in page.match_indices("url(") {
        assert!(page[at..].starts_with("url(#"), "{}", &page[at..at + 30]);
    }
}

fn checked(results: &StudyResults) -> (Summary, String) {
    let page = html(results).unwrap();
    assert_well_formed(&page);
    assert_self_contained(&page);
    assert!(
        !page.contains("NaN") && !page.contains("inf\""),
        "a figure is no number"
    );
    (Summary::of(results).unwrap(), page)
}

/// Returns summary and page of the complete study, checked once for all tests.
fn checked_whole() -> (Summary, String) {
    static CHECKED: LazyLock<(Summary, String)> = LazyLock::new(|| checked(&whole()));
    CHECKED.clone()
}

#[test]
fn a_whole_study_has_every_section_and_fits() {
    let results = whole();
    let (summary, page) = checked_whole();
    assert_eq!(summary.state, State::Finished);
    for section in [
        "<h2>Result</h2>",
        "Throughput",
        "Round trip",
        "Loss against offered load",
        "Latency percentiles",
        "CPU usage",
        "CPU usage over time",
        "aria-label=\"Use of CPUs over time\"",
        "aria-label=\"CPUs of quiet-partitioned\"",
        "Comparison with published figures",
        "Losses and delays of the tester",
        "Every trial",
        "Every command and setting",
        "The study file",
        "unavailable on this machine",
    ] {
        assert!(page.contains(section), "no '{section}'");
    }
    assert!(page.len() < 1_000_000, "{} octets", page.len());
    let rows = page.matches("<td>search NDR</td>").count();
    let searched = results
        .trials()
        .filter(|(step, _)| step.kind == StepKind::Search("NDR".to_owned()));
    assert_eq!(rows, searched.count());
    assert!(page.contains("quietwire study run studies/noisy-neighbours.toml"));
    assert!(page.contains(&results.file_sha256));
}

#[test]
fn everything_from_the_store_is_escaped() {
    let text = STUDY
        .replacen(
            "title = \"",
            "title = \"</title><script>alert('1')</script>&amp; ",
            1,
        )
        .replacen("--malloc 2", "--x <b onload='y'>", 1);
    let results = results_of(&text, SimulatedBench::new(3, 0), 30);
    let (_, page) = checked(&results);
    assert!(page.contains("&lt;script&gt;alert"));
    assert!(page.contains("&amp;amp;"));
    assert!(page.contains("none &lt;simulated&gt; &amp; \\&quot;quoted"));
}

#[test]
fn a_study_without_a_trial_is_an_honest_page() {
    let results = results_of(&STUDY, SimulatedBench::new(1, 0), 0);
    let (summary, page) = checked(&results);
    assert_eq!(summary.state, State::Interrupted);
    assert!(page.contains("This study was interrupted"));
    assert!(page.contains("No trial has been made yet."));
    assert!(page.contains("not measured"));
    assert!(text_table(&summary, Some(100)).contains("not measured"));
}

#[test]
fn results_without_trials_are_not_reported_as_missing() {
    let results = results_of(&STUDY, SimulatedBench::new(1, 0), 0);
    let (mut summary, _) = checked(&results);
    let value = || Spread::of(vec![1e9]).unwrap();
    for case in summary.sizes.iter_mut().flat_map(|size| &mut size.cases) {
        case.applications = Some(Applications {
            tcp_up_bps: value(),
            tcp_down_bps: value(),
            echo_mean_ns: value(),
            echo_min_ns: 1,
            echo_max_ns: 2,
            echo_p99_ns: None,
        });
    }
    let table = text_table(&summary, Some(100));
    for missing in ["No trial", "0 of 0"] {
        assert!(!table.contains(missing), "{missing}: {table}");
    }
}

#[test]
fn a_study_cut_anywhere_is_an_honest_page() {
    for trials in [1, 7, 33, 60] {
        let results = results_of(&STUDY, SimulatedBench::new(5, 0), trials);
        let (summary, page) = checked(&results);
        assert_eq!(summary.trials, trials);
        assert!(page.contains("This study was interrupted"));
        let measured = |case: &CaseSummary| case.health.trials > case.health.invalid;
        for case in &summary.sizes[0].cases {
            let is_reported_missing = page.contains("No trial is valid in:")
                && page
                    .split("No trial is valid in:")
                    .nth(1)
                    .and_then(|rest| rest.split('.').next())
                    .is_some_and(|names| names.split(',').any(|name| name.trim() == case.name));
            assert_eq!(
                is_reported_missing,
                !measured(case),
                "{} at {trials}",
                case.name
            );
        }
        drop(json(&results).unwrap());
        drop(text_table(&summary, Some(80)));
    }
}

#[test]
fn a_study_that_failed_reports_why() {
    let mut bench = SimulatedBench::new(5, 0);
    bench.fails_at = Some(12);
    let (summary, page) = checked(&results_of(&STUDY, bench, usize::MAX));
    assert!(matches!(&summary.state, State::Failed(reason) if reason.contains("died")));
    assert!(page.contains("the simulated device died"));
}

#[test]
fn several_frame_sizes_have_a_part_each() {
    let text = SHORT.replacen(
        "frame-sizes = [64]",
        "frame-sizes = [64, 1518, \"imix\"]",
        1,
    );
    let (summary, page) = checked(&results_of(&text, SimulatedBench::new(2, 0), usize::MAX));
    assert_eq!(summary.sizes.len(), 3);
    assert_eq!(page.matches("<h2>Throughput</h2>").count(), 3);
    let mix = "a mix of 64, 594, 1518 octets in the ratio 7:4:1 (IMIX; RFC 6985: CUSTOM IMIX - aAaaAagaAaAa, A = 594)";
    assert!(page.contains("frames of 1518 octets") && page.contains(mix));
    let json = serde_json::to_value(&summary.sizes[2]).unwrap();
    assert_eq!(json["mix"]["shares"][1]["octets"], 594);
    assert_eq!(json["mix"]["shares"][1]["frames"], 4);
    assert_eq!(summary.sizes[0].mix, None);
    let wire_bits: Vec<_> = summary.sizes.iter().map(|size| size.wire_bits()).collect();
    let of_mix = ((7.0 * 64.0 + 4.0 * 594.0 + 1518.0) / 12.0 + 20.0) * 8.0;
    assert_eq!(wire_bits, [Some(672.0), Some(12304.0), Some(of_mix)]);
    assert!(page.contains("Gbit/s on the wire"));
    let ids: Vec<_> = page
        .match_indices("clipPath id=\"")
        .map(|(at, lead)| page[at + lead.len()..].split('"').next().unwrap())
        .collect();
    let distinct: std::collections::HashSet<_> = ids.iter().collect();
    assert_eq!(ids.len(), 6);
    assert_eq!(distinct.len(), ids.len());
}

#[test]
fn the_page_is_the_same_each_time_it_is_made() {
    let results = whole();
    assert_eq!(html(&results).unwrap(), html(&results).unwrap());
}

#[test]
fn a_page_that_cannot_be_written_is_reported() {
    let results = results_of(&STUDY, SimulatedBench::new(2, 0), 1);
    let error = crate::write_html(&results, Path::new("/no/such/page.html"));
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("/no/such/page.html")
    );
}

#[test]
fn consoles_are_on_the_page_and_in_the_document() {
    let mut bench = SimulatedBench::new(11, 0);
    bench.console = Some("one\n".repeat(200) + "the <last> line\n");
    let results = results_of(&SHORT, bench, usize::MAX);
    let (_, page) = checked(&results);
    assert!(page.contains("Console output of guests") && page.contains("the &lt;last&gt; line"));
    let reported = json(&results).unwrap();
    let printed = reported["consoles"][0]["output"].as_str().unwrap();
    assert_eq!(printed.lines().count(), 201);
    assert!(!checked_whole().1.contains("Console output of guests"));
}
