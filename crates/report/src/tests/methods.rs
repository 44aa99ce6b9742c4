// SPDX-License-Identifier: Apache-2.0
//! Results of the other methods.

use quietwire_study::simulated::SimulatedBench;

use super::{STUDY, checked, results_of};
use crate::{SearchOutcome, State, json, markdown, text_table};

#[test]
fn other_methods_have_their_results_on_the_page() {
    let steps = "start-rate-percent = 20\nstart-step-percent = 20\nresolution-percent = 2.5\n";
    for (old_steps, method) in [
        ("", "method = \"mlrsearch\"\n"),
        (
            steps,
            "method = \"best-and-worst-of-n\"\ntrials-per-rate = 3\n",
        ),
        (steps, "method = \"best-of-n\"\n"),
    ] {
        assert!(STUDY.contains(steps));
        let text = STUDY
            .replace(steps, &format!("{method}{old_steps}"))
            .replace("\nbest-of = 3\n", "\n")
            .replace("rounds = 3\n", "rounds = 1\n")
            .replace("[5, 15, 30, 45, 60, 75, 90, 100]", "[60, 100]")
            .replace("\nrepeats = 5", "\nrepeats = 1");
        let (summary, _) = checked(&results_of(&text, SimulatedBench::new(3, 0), usize::MAX));
        assert_eq!(summary.state, State::Finished);
        // The simulated device forwards 6.4 Mpps ± 3 %. Sometimes it loses a few frames below that rate, which exceeds
        // either goal and affects worst-of-N.
        for goal in &summary.sizes[0].cases[0].goals {
            let rate_pps = goal.rate_pps.as_ref().unwrap().median;
            assert!((1e6..6.7e6).contains(&rate_pps), "{method}: {goal:?}");
            for outcome in &goal.outcomes {
                assert!(
                    matches!(outcome, SearchOutcome::Held { .. }),
                    "{method}: {outcome:?}"
                );
            }
        }
    }
}

/// A simulated study with all further methods.
const METHODS: &str = concat!(
    r#"
name = "further"
title = "Further methods"
"#,
    include_str!("../../../study/src/tests/device.toml"),
    r#"
[trials]
duration-s = 1
[search]
method = "best-and-worst-of-n"
trials-per-rate = 2
start-rate-percent = 20
start-step-percent = 20
resolution-percent = 5
goal = [{ name = "NDR", loss-ratio = 0.0 }, { name = "PDR", loss-ratio = 0.005 }]
[loss-distribution]
between = "PDR"
rates = 3
trials = 20
[forwarding-rate]
lower-loads-percent = [60]
[latency-plan]
[soak]
loss-ratio = 0.001
duration-s = 20
[[case]]
name = "quiet"
neighbours = "none"
isolation = "none"
"#
);

#[test]
fn further_methods_have_a_table_each_and_figures_for_programs() {
    let results = results_of(METHODS, SimulatedBench::new(3, 0), usize::MAX);
    let (summary, page) = checked(&results);
    let text = text_table(&summary, Some(200));
    for title in [
        "Single, best and worst of N",
        "Loss distribution",
        "Forwarding rate at maximum load",
        "Latency at the rates found",
        "Delay variation at the rates found",
        "Soak",
    ] {
        assert!(page.contains(&format!("<h2>{title}</h2>")), "{title}");
        assert!(text.contains(title), "{title}");
    }
    assert!(page.contains("Loss by percentile of trials"));
    let plan = &summary.sizes[0].cases[0].methods[2].figures;
    let crate::MethodFigures::LatencyPlan { loads } = plan else {
        panic!("{plan:?}");
    };
    let trips = loads.iter().filter_map(|load| load.round_trip.as_ref());
    assert!(trips.clone().count() > 1);
    for trip in trips {
        let (ipdv, pdv) = (trip.variation.ipdv.max_ns, trip.variation.pdv.max_ns);
        for shown in [
            crate::format::signed_time_ns(ipdv),
            crate::format::time_ns(pdv as f64),
        ] {
            assert!(page.contains(&format!(">{shown}<")), "{shown}");
        }
    }
    let document = json(&results).unwrap();
    // Single, best and worst of each goal are the same on page, in Markdown and in the document.
    let written = markdown(&summary);
    let case = &document["summary"]["sizes"][0]["cases"][0];
    let known = case["goals"].as_array().unwrap().iter();
    for (goal, known) in summary.sizes[0].cases[0].goals.iter().zip(known) {
        let median = |rate: &Option<crate::Spread>| rate.as_ref().unwrap().median;
        let rates = [&goal.single_pps, &goal.best_pps, &goal.rate_pps].map(median);
        assert_eq!(known["single_pps"]["median"], rates[0]);
        assert_eq!(known["best_pps"]["median"], rates[1]);
        let shown = rates.map(crate::format::mpps).join(" | ");
        let line = format!("| quiet | {} | {shown} |", goal.name);
        assert!(written.contains(&line), "{line}\n{written}");
        assert!(page.contains(&format!("{}, single: ", goal.name)));
    }
    let methods = &document["summary"]["sizes"][0]["cases"][0]["methods"];
    let names: Vec<&str> = methods
        .as_array()
        .unwrap()
        .iter()
        .map(|method| method["method"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "loss-distribution",
            "forwarding-rate-at-max-load",
            "latency-plan",
            "soak"
        ]
    );
    // Twenty trials are enough for the 95th percentile, not for the 99th.
    let trials = methods[0]["rates"][0]["loss_ratios"].as_array().unwrap();
    let percentiles = methods[0]["rates"][0]["percentiles"].as_array().unwrap();
    assert_eq!((trials.len(), percentiles.len()), (20, 4));
    assert!(methods[2]["loads"][0]["round_trip"]["mean_ns"].as_f64() > Some(0.0));
    assert!(methods[3]["critical_load"]["mean_pps"].as_f64() > Some(1e6));
}

#[test]
fn a_repeated_search_reports_mean_and_deviation_and_counts_every_result() {
    let begin = METHODS.find("[loss-distribution]").unwrap();
    let end = METHODS.find("[[case]]").unwrap();
    let text = format!("{}{}", &METHODS[..begin], &METHODS[end..]).replace(
        "method = \"best-and-worst-of-n\"\ntrials-per-rate = 2",
        "repeats = 4",
    );
    let results = results_of(&text, SimulatedBench::new(3, 0), usize::MAX);
    let (summary, page) = checked(&results);
    assert!(page.contains("<h2>Repeated searches</h2>"));
    let case = &summary.sizes[0].cases[0];
    assert_eq!((case.methods.len(), case.goals.len()), (2, 2));
    for (goal, method) in case.goals.iter().zip(&case.methods) {
        let crate::MethodFigures::Repeat(found) = &method.figures else {
            panic!("{method:?}")
        };
        assert_eq!(found.name, goal.name);
        assert_eq!(goal.outcomes.len(), 4);
        let rates = goal.rate_pps.as_ref().unwrap();
        let mean = rates.values.iter().sum::<f64>() / 4.0;
        assert!((found.statistics.unwrap().mean / mean - 1.0).abs() < 1e-12);
    }
}
