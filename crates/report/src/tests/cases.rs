// SPDX-License-Identifier: Apache-2.0
//! Cases of simulated studies: unavailable ones, comparisons, neighbours and tenants.

use quietwire_study::CaseSkipped;
use quietwire_study::simulated::SimulatedBench;

use super::limits::{count, element};
use super::{SHORT, STUDY, checked, checked_whole, results_of, whole};
use crate::{State, json, text_table};

#[test]
fn a_case_that_a_machine_cannot_have_is_shown_with_the_reason_and_compared_with_nothing() {
    // The first case is unavailable, so the next one is the baseline.
    let mut bench = SimulatedBench::new(11, 0);
    bench.unavailable = Some(("quiet".to_owned(), "there is no <such> CPU".to_owned()));
    let results = results_of(&SHORT, bench, usize::MAX);
    let (summary, page) = checked(&results);
    assert_eq!(summary.state, State::Finished);
    assert_eq!(summary.baseline, "noisy");
    let names: Vec<&str> = summary.sizes[0]
        .cases
        .iter()
        .map(|case| &*case.name)
        .collect();
    assert_eq!(names, ["noisy", "quiet-partitioned", "noisy-partitioned"]);
    assert_eq!(summary.unavailable.len(), 1);
    assert!(page.contains("Unavailable on this machine"));
    assert!(page.contains("there is no &lt;such&gt; CPU"));
    let reported = json(&results).unwrap();
    let left_out = &reported["summary"]["unavailable"][0];
    assert_eq!(left_out["name"], "quiet");
    assert_eq!(left_out["reason"], "there is no <such> CPU");
    let table = text_table(&summary, Some(100));
    assert!(table.contains("quiet: unavailable on this machine: there is no <such> CPU"));
    // The published figures are relative to a quiet case, which is missing here.
    let rows = &summary.sizes[0].published;
    assert!(rows.iter().all(|row| row.measured.is_none()));
    let why = rows[0].unanswered.as_deref().unwrap();
    assert!(
        why.starts_with("quiet is unavailable on this machine"),
        "{why}"
    );
}

#[test]
fn published_ratios_stand_beside_those_of_the_cases_that_answer_to_them() {
    let results = whole();
    let (summary, page) = checked_whole();
    let size = &summary.sizes[0];
    assert_eq!(size.published.len(), 3);
    let noisy = &size.published[0];
    assert_eq!(
        (noisy.throughput, noisy.round_trip),
        (Some([0.6; 2]), Some([1.6; 2]))
    );
    let measured = noisy.measured.as_ref().unwrap();
    assert_eq!((&*measured.case, &*measured.against), ("noisy", "quiet"));
    let pdr = |case: usize| size.cases[case].goals[1].rate_pps.as_ref().unwrap().median;
    assert_eq!(measured.goals[1], (pdr(1) > 0.0).then(|| pdr(1) / pdr(0)));
    let trip = |case: usize| size.cases[case].round_trip.as_ref().unwrap().mean_ns;
    assert_eq!(measured.round_trip, Some(trip(1) / trip(0)));
    assert!(size.published[2].measured.is_none());
    for words in [
        "KubeOVN",
        "<cite>Edge platform, noisy neighbours</cite>",
        "68 % of quiet's throughput, a loss",
        "configuration noisy, cores pinned",
        "noisy against quiet",
        "unavailable on this machine",
    ] {
        assert!(page.contains(words), "{words}");
    }
    let table = text_table(&summary, Some(120));
    assert!(
        table.contains("Comparison with published figures"),
        "{table}"
    );
    assert_eq!(
        json(&results).unwrap()["summary"]["sizes"][0]["published"][1]["throughput"][0],
        0.68
    );
    let rows = &json(&results).unwrap()["summary"]["sizes"][0]["published"];
    let place = rows[0]["place"].as_str().unwrap();
    assert!(place.starts_with("configuration noisy"), "{place}");
    assert!(rows[2]["quantity"].as_str().unwrap().contains("a gain"));
}

#[test]
fn the_page_begins_with_the_comparison_like_for_like_and_the_neighbours_share() {
    let mut results = whole();
    let (summary, page) = checked_whole();
    let size = &summary.sizes[0];
    let pair = size.like_for_like.as_ref().unwrap();
    assert_eq!(
        (&*pair.case, &*pair.against),
        ("noisy-partitioned", "quiet-partitioned")
    );
    let rate = |case: usize| size.cases[case].goals[0].rate_pps.as_ref().unwrap().median;
    let percent = pair.percent_of_goals[0].unwrap();
    assert!((percent - rate(3) / rate(2) * 100.0).abs() < 1e-9);
    let first = page.find("<b>noisy-partitioned</b> forwards").unwrap();
    assert!(first < page.find("<section").unwrap());
    let answer = &page[page.find("Result</h2>").unwrap()..];
    assert!(answer.starts_with("Result</h2><p><b>noisy-partitioned</b> forwards"));
    assert!(answer.contains("of <b>quiet-partitioned</b>'s NDR ("));
    assert!(
        answer.contains("Its neighbours got 8"),
        "{}",
        &answer[..600]
    );
    let trials = results.steps.iter_mut().flat_map(|step| &mut step.trials);
    for neighbours in trials.filter_map(|trial| trial.activity.neighbours.as_mut()) {
        neighbours.share = 0.042;
    }
    let (_, page) = checked(&results);
    let reported = "got only 4.20\u{202f}% of their CPUs, so this machine cannot show";
    assert!(page.contains(reported));
    // Without the quiet counterpart there is no like-for-like comparison.
    results
        .file
        .cases
        .retain(|case| case.name != "quiet-partitioned");
    assert_eq!(checked(&results).0.sizes[0].like_for_like, None);
}

#[test]
fn how_hard_neighbours_worked_is_reported_and_starved_ones_are_named() {
    let mut results = whole();
    let (summary, page) = checked_whole();
    let shares: Vec<_> = summary.sizes[0]
        .cases
        .iter()
        .map(|case| case.neighbours.as_ref())
        .collect();
    assert!(shares[0].is_none() && shares[2].is_none());
    for reported in [&shares[1], &shares[3]] {
        let share = &reported.unwrap().share;
        assert!(share.min > 0.7 && share.max <= 0.9, "{share:?}");
    }
    assert!(page.contains("Load by neighbours"));
    let reported = json(&results).unwrap();
    let case = &reported["summary"]["sizes"][0]["cases"][1];
    assert!(case["neighbours"]["share"]["median"].as_f64().unwrap() > 0.7);
    assert!(!page.contains("the neighbours got only"));
    for step in &mut results.steps {
        for trial in &mut step.trials {
            if step.case_name == "noisy"
                && let Some(observed) = &mut trial.activity.neighbours
            {
                observed.share = 0.01;
            }
        }
    }
    let (_, page) = checked(&results);
    assert!(page.contains("<b>noisy</b>: the neighbours got only 1.00"));
}

#[test]
fn many_cases_are_reported_in_a_table_and_few_in_sentences() {
    let begin = STUDY.find("\n[neighbours]").unwrap() + 1;
    let of = |count: usize| {
        let cases = (0..count)
            .map(|case| format!("[[case]]\nname = \"case-{case}\"\nisolation = \"none\"\n"));
        let text = format!("{}{}", &STUDY[..begin], cases.collect::<String>());
        let text = text
            .replace("rounds = 3", "rounds = 1")
            .replace("[5, 15, 30, 45, 60, 75, 90, 100]", "[30, 100]")
            .replace("\nrepeats = 5", "\nrepeats = 1");
        checked(&results_of(&text, SimulatedBench::new(11, 0), usize::MAX)).1
    };
    let (few, many) = (of(6), of(7));
    assert!(few.contains("of case-0's") && !few.contains("table class=\"glance\""));
    assert!(!many.contains("of case-0's") && many.contains("table class=\"glance\""));
    let table = &many[many.find("table class=\"glance\"").unwrap()..];
    let table = &table[..table.find("</table>").unwrap()];
    assert!(table.contains("NDR") && table.contains("Mean round trip"));
    assert_eq!(table.matches("<tr>").count(), 1 + 7);
}

#[test]
fn tenants_are_reported_with_what_they_cost() {
    let text = include_str!("../../../study/src/tests/tenants.toml");
    let bench = || {
        let mut bench = SimulatedBench::new(7, 0);
        bench.invalid_ratio = 0.0;
        bench
    };
    let mut results = results_of(text, bench(), usize::MAX);
    for step in &mut results.steps {
        for trial in &mut step.trials {
            let counted = count(6_000_000_000, 20_000_000);
            trial.activity.elements = vec![element(Some(counted))];
        }
    }
    let (summary, page) = checked(&results);
    assert_eq!(summary.state, State::Finished);
    let tenants = summary.sizes[0].tenants.as_ref().unwrap();
    let found = &tenants.found[0];
    assert_eq!(
        (found.held, found.failed_at, &found.bound),
        (6, Some(7), &None)
    );
    let rows: Vec<_> = tenants
        .rows
        .iter()
        .map(|row| (row.tenants, row.holds))
        .collect();
    let all = [
        (1, true),
        (2, true),
        (4, true),
        (6, true),
        (7, false),
        (8, false),
    ];
    assert_eq!(rows, all);
    let cycles = tenants.rows[1].cycles.as_ref().unwrap();
    assert_eq!(cycles.cycles.median, 300.0);
    // 1.2 s with the warm-up, two tenants.
    let each = tenants.rows[1].cycles_per_tenant_hz.as_ref().unwrap();
    assert!((each.median / 2.5e9 - 1.0).abs() < 1e-9, "{each:?}");
    assert!(page.contains("6 tenants hold at") && page.contains("and 7 do not"));
    // The page of a study without trials at a low load has no section about round trips.
    assert!(!page.contains("Round trip"));
    assert!(text_table(&summary, None).contains("million cycles per second and tenant"));

    // An unfinished search reports no maximum. If something else than loss limits it, the page states it.
    let (summary, page) = checked(&results_of(text, bench(), 3));
    assert_ne!(summary.state, State::Finished);
    assert!(!page.contains("tenants hold at"));
    let mut bench = bench();
    let why = CaseSkipped::Failed("no memory".to_owned());
    bench.left_out = Some(("tenants-4".to_owned(), why));
    let (summary, page) = checked(&results_of(text, bench, usize::MAX));
    assert!(page.contains("3 tenants hold at") && page.contains("no memory"));
    assert!(summary.unavailable[0].has_failed && page.contains("Failed: "));
}
