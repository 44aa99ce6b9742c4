// SPDX-License-Identifier: Apache-2.0
//! Studies with the further methods: their findings, and that they can be interrupted anywhere.

use quietwire_search::{Findings, LatencyLoad};

use super::{SMALL, essence, in_pieces};
use crate::{Estimate, StepKind, StepRecord, StudyFile, StudyResults};

const OF_N: &str = "method = \"best-and-worst-of-n\"\ntrials-per-rate = 2\nstart-rate-percent = 20\n\
                    start-step-percent = 20\nresolution-percent = 5\n";

/// Returns the small study in one round, with these additional sections and keys of its search.
fn text(search: &str, sections: &str) -> String {
    let small = SMALL.replace("rounds = 2", "rounds = 1").replace(
        "start-rate-percent = 20\nstart-step-percent = 20\nresolution-percent = 5\n",
        search,
    );
    small.replace("[neighbours]", &format!("{sections}\n[neighbours]"))
}

const STEPS: &str = "start-rate-percent = 20\nstart-step-percent = 20\nresolution-percent = 5\n";

fn of_kind<'a>(results: &'a StudyResults, kind: &StepKind) -> Vec<&'a StepRecord> {
    let steps: Vec<_> = results.steps.iter().filter(|it| it.kind == *kind).collect();
    assert_eq!(steps.len(), 2, "one for each case");
    steps
}

/// Runs it at once and in pieces. Both must have the same results, within the estimate if no trial is invalid.
fn run(text: &str) -> StudyResults {
    let whole = in_pieces(text, u32::MAX);
    assert_eq!(essence(&in_pieces(text, 29)), essence(&whole));
    let file = StudyFile::parse(text, std::path::Path::new("m.toml")).unwrap();
    let valid = whole.trials().filter(|(_, trial)| trial.result.is_valid());
    let bound = Estimate::of(&file).trials as usize;
    assert!(valid.count() <= bound);
    whole
}

#[test]
fn a_search_can_be_repeated() {
    for (keys, method, results) in [
        (STEPS, "", 1),
        (OF_N, "", 2),
        ("method = \"mlrsearch\"\n", "duration-sum-s = 4\n", 2),
    ] {
        let text = text(&format!("{keys}repeats = 3\nconfidence-percent = 90\n"), "");
        // The goals of the small study are on one line.
        let text = match method {
            "" => text,
            _ => text.replace(
                "loss-ratio = 0.005",
                "loss-ratio = 0.005, duration-sum-s = 4.0",
            ),
        };
        let whole = run(&text);
        let searches = whole
            .steps
            .iter()
            .filter(|step| matches!(step.kind, StepKind::Search(_) | StepKind::Goals));
        for step in searches {
            let Some(Findings::Repeat(found)) = &step.findings else {
                panic!("{:?}", step.findings)
            };
            assert_eq!((found.runs.len(), found.statistics.len()), (3, results));
            let trials: u32 = found.runs.iter().map(|run| run.trials).sum();
            assert_eq!(trials as usize, step.trials.len());
            // With neighbours the capacity is below the lowest rate of the step searches.
            if step.case_name == "quiet" {
                assert_eq!(found.statistics[0].map(|it| it.confidence), Some(0.9));
            }
        }
    }
}

#[test]
fn losses_are_looked_at_at_given_loads_and_between_worst_and_best() {
    let given = text(
        STEPS,
        "[loss-distribution]\nloads-percent = [50, 60, 70]\ntrials = 10",
    );
    for step in of_kind(&run(&given), &StepKind::LossDistribution) {
        let Some(Findings::LossDistribution(found)) = &step.findings else {
            panic!("{:?}", step.findings)
        };
        assert_eq!(found.rates.len(), 3);
        for rate in &found.rates {
            assert_eq!(rate.loss_ratios.len() + rate.invalid as usize, 10);
        }
    }
    let between = text(
        OF_N,
        "[loss-distribution]\nbetween = \"PDR\"\nrates = 4\ntrials = 3",
    );
    let whole = run(&between);
    let searches = of_kind(&whole, &StepKind::Search("PDR".to_owned()));
    let distributions = of_kind(&whole, &StepKind::LossDistribution);
    for (search, step) in searches.iter().zip(distributions) {
        let Some(Findings::BestWorst(ends)) = &search.findings else {
            panic!("{:?}", search.findings)
        };
        let end = |side: &Option<quietwire_search::SideFindings>| {
            side.as_ref().and_then(|side| side.highest_held_pps)
        };
        let Some(Findings::LossDistribution(found)) = &step.findings else {
            // No rate held, so there is no range between.
            assert_eq!((end(&ends.worst), end(&ends.best)), (None, None));
            continue;
        };
        let rates: Vec<f64> = found.rates.iter().map(|rate| rate.rate_pps).collect();
        assert_eq!(rates.first().copied(), end(&ends.worst).or(end(&ends.best)));
        assert_eq!(rates.last().copied(), end(&ends.best));
    }
}

#[test]
fn forwarding_rates_begin_at_the_maximum_load() {
    let text = text(
        STEPS,
        "[forwarding-rate]\nlower-loads-percent = [80, 60]\nduration-s = 2",
    );
    for step in of_kind(&run(&text), &StepKind::ForwardingRate) {
        let Some(Findings::ForwardingRate(found)) = &step.findings else {
            panic!("{:?}", step.findings)
        };
        assert_eq!(found.config.max_rate_pps, crate::simulated::MAX_RATE_PPS);
        assert!(
            step.trials
                .iter()
                .all(|trial| trial.request.duration_s == 2.0)
        );
        let capacity = if step.case_name == "quiet" {
            6.4e6
        } else {
            0.23e6
        };
        let most = found.maximum.unwrap().forwarded_pps;
        assert!((most / capacity - 1.0).abs() < 0.1, "{most}");
    }
}

#[test]
fn latency_is_measured_at_the_rates_found_by_any_method() {
    let steps_of_its_own = "start-rate-percent = 20\nstart-step-percent = 20\n";
    for (search, own) in [
        (STEPS, ""),
        (OF_N, ""),
        ("method = \"mlrsearch\"\n", steps_of_its_own),
    ] {
        let whole = run(&text(
            search,
            &format!("[latency-plan]\nduration-s = 2\n{own}"),
        ));
        for step in of_kind(&whole, &StepKind::LatencyPlan) {
            let Some(Findings::LatencyPlan(found)) = &step.findings else {
                panic!("{:?}", step.findings)
            };
            let stands_for = || found.points.iter().flat_map(|it| &it.point.stands_for);
            assert!(found.points.len() <= 7);
            assert!(
                step.trials
                    .iter()
                    .all(|trial| trial.request.duration_s == 2.0)
            );
            if step.case_name == "quiet" {
                let half = LatencyLoad::PartOfPdr { percent: 50 };
                for load in [LatencyLoad::Ndr, LatencyLoad::Pdr, half] {
                    assert!(stands_for().any(|known| *known == load), "{load:?}");
                }
                assert!(stands_for().any(|load| *load == LatencyLoad::StepUnderPdr));
            }
        }
    }
}

#[test]
fn a_soak_goes_on_for_its_time_and_comes_near_the_capacity() {
    let text = text(
        STEPS,
        "[soak]\nloss-ratio = 0.001\nduration-s = 60\ntrial-growth-s = 0.5",
    );
    for step in of_kind(&run(&text), &StepKind::Soak) {
        let Some(Findings::Soak(found)) = &step.findings else {
            panic!("{:?}", step.findings)
        };
        assert!(found.trials_s >= 60.0);
        let first = step.trials.first().unwrap();
        assert_eq!(
            first.request.offered_rate_pps,
            crate::simulated::MAX_RATE_PPS
        );
        if step.case_name == "quiet" {
            let load = found.critical_load.unwrap().mean_pps;
            assert!((load / 6.2e6 - 1.0).abs() < 0.1, "{load}");
        }
    }
}
