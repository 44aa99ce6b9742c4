// SPDX-License-Identifier: Apache-2.0
//! Figures of a simulated study are those recomputed from its trials.

use quietwire_study::StepKind;
use quietwire_study::simulated::SimulatedBench;
use quietwire_tester::LatencySummary;

use super::{STUDY, checked, checked_whole, results_of, whole};
use crate::{Summary, json, text_table};

fn median_of(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    f64::midpoint(values[(count - 1) / 2], values[count / 2])
}

#[test]
fn rates_are_those_recomputed_from_the_trials() {
    let results = whole();
    let (summary, page) = checked_whole();
    for (case, spec) in summary.sizes[0].cases.iter().zip(&results.file.cases) {
        for goal in &case.goals {
            assert_eq!(goal.readings.len(), goal.outcomes.len());
            let of_search = |name: &str, round: u32| {
                let goals = &results.file.search.as_ref().unwrap().goals;
                let limit = goals.iter().find(|it| it.name == name).unwrap().loss_ratio;
                let steps = results.steps.iter().filter(move |step| {
                    (step.case_name.as_str(), step.round) == (spec.name.as_str(), round)
                });
                let kind = StepKind::Search(name.to_owned());
                let steps = steps.filter(move |step| step.kind == kind);
                let trials = steps.flat_map(|step| &step.trials);
                trials
                    .filter(move |trial| {
                        trial.result.is_valid() && trial.result.loss_ratio <= limit
                    })
                    .map(|trial| trial.result.achieved_rate_pps)
                    .fold(0.0, f64::max)
            };
            // A rate that held for a stricter goal holds for this one.
            let proving = case
                .goals
                .iter()
                .filter(|other| other.loss_ratio <= goal.loss_ratio);
            let names: Vec<&str> = proving.map(|other| other.name.as_str()).collect();
            let held: Vec<f64> = (0..3)
                .map(|round| {
                    let rates = names.iter().map(|name| of_search(name, round));
                    rates.fold(0.0, f64::max)
                })
                .collect();
            assert_eq!(held.len(), 3);
            let rate = goal.rate_pps.as_ref().unwrap();
            assert_eq!(rate.values, held);
            assert_eq!(rate.median, median_of(held));
            if rate.median > 1e6 {
                assert!(page.contains(&format!(">{:.2}</td>", rate.median / 1e6)));
            }
            let base = summary.sizes[0].cases[0]
                .goals
                .iter()
                .find(|base| base.name == goal.name);
            let base = base.unwrap().rate_pps.as_ref().unwrap().median;
            let share = (rate.median > 0.0).then(|| rate.median / base * 100.0);
            assert_eq!(goal.percent_of_baseline, share);
        }
    }
}

#[test]
fn the_highest_load_and_the_sweep_are_those_recomputed_from_the_trials() {
    let results = whole();
    let (summary, _) = checked_whole();
    let loads = results.file.sweep.as_ref().unwrap().loads_percent.len();
    for case in &summary.sizes[0].cases {
        let sweep = || {
            results.trials().filter(|(step, trial)| {
                step.case_name == case.name
                    && step.kind == StepKind::Sweep
                    && trial.result.is_valid()
            })
        };
        let top = sweep()
            .map(|(_, trial)| trial.request.offered_rate_pps)
            .fold(0.0, f64::max);
        let forwarded: Vec<f64> = sweep()
            .filter(|(_, trial)| trial.request.offered_rate_pps == top)
            .map(|(_, trial)| trial.result.forwarding_rate_pps)
            .collect();
        let observed = case.highest_load.as_ref().unwrap();
        let achieved = sweep().map(|(_, trial)| trial.result.achieved_rate_pps);
        assert_eq!(observed.offered_pps, achieved.fold(0.0, f64::max));
        assert_eq!(observed.forwarding_pps.median, median_of(forwarded));
        assert_eq!(case.sweep.len(), loads);
        for point in &case.sweep {
            let losses: Vec<f64> = sweep()
                .filter(|(_, trial)| trial.request.offered_rate_pps == point.load_pps)
                .map(|(_, trial)| trial.result.loss_ratio)
                .collect();
            let median = point.loss_ratio.as_ref().unwrap().median;
            assert_eq!(median, median_of(losses));
            let latencies: Vec<f64> = sweep()
                .filter(|(_, trial)| trial.request.offered_rate_pps == point.load_pps)
                .filter_map(|(_, trial)| Some(trial.result.latency.p99_ns? as f64))
                .collect();
            let median = point.latency_p99_ns.as_ref().map(|p99| p99.median);
            assert_eq!(
                median,
                (!latencies.is_empty()).then(|| median_of(latencies))
            );
        }
    }
}

#[test]
fn a_latency_trial_that_lost_every_frame_counts_as_loss() {
    let mut results = whole();
    let name = results.file.cases[0].name.clone();
    let is_meant = |case: &str, kind: &StepKind| case == name && *kind == StepKind::Latency;
    let steps = results.steps.iter_mut();
    let trial = steps
        .filter(|step| is_meant(&step.case_name, &step.kind))
        .flat_map(|step| &mut step.trials)
        .find(|trial| trial.result.is_valid())
        .unwrap();
    trial.result.received_frames = 0;
    trial.result.lost_frames = trial.result.offered_frames;
    trial.result.loss_ratio = 1.0;
    trial.result.latency = LatencySummary::default();
    let (mut valid, mut lost, mut offered) = (0, 0, 0);
    for (step, trial) in results.trials() {
        if is_meant(&step.case_name, &step.kind) && trial.result.is_valid() {
            valid += 1;
            lost += trial.result.lost_frames;
            offered += trial.result.offered_frames;
        }
    }
    let (summary, _) = checked(&results);
    let trip = summary.sizes[0].cases[0].round_trip.as_ref().unwrap();
    assert_eq!(trip.trials, valid);
    let ratio = lost as f64 / offered as f64;
    assert!(ratio > 0.5 / valid as f64, "{ratio}");
    assert!((trip.loss_ratio - ratio).abs() < 1e-9);
}

#[test]
fn latency_trials_that_all_lost_every_frame_are_not_called_invalid() {
    let mut results = whole();
    let steps = results.steps.iter_mut();
    let trials = steps
        .filter(|step| step.kind == StepKind::Latency)
        .flat_map(|step| &mut step.trials);
    for trial in trials {
        trial.result.received_frames = 0;
        trial.result.lost_frames = trial.result.offered_frames;
        trial.result.loss_ratio = 1.0;
        trial.result.latency = LatencySummary::default();
    }
    let (summary, page) = checked(&results);
    assert!(summary.sizes[0].cases[0].round_trip.is_none());
    assert!(page.contains("No valid latency trial received a frame."));
}

#[test]
fn round_trips_are_those_recomputed_from_the_trials() {
    let results = whole();
    let (summary, _) = checked_whole();
    for case in &summary.sizes[0].cases {
        let latencies: Vec<_> = results
            .trials()
            .filter(|(step, trial)| {
                step.case_name == case.name
                    && step.kind == StepKind::Latency
                    && trial.result.is_valid()
            })
            .map(|(_, trial)| &trial.result.latency)
            .collect();
        let trip = case.round_trip.as_ref().unwrap();
        assert_eq!(trip.trials, latencies.len());
        assert_eq!(
            trip.max_ns,
            latencies.iter().map(|l| l.max_ns).max().unwrap()
        );
        assert_eq!(
            trip.min_ns,
            latencies.iter().map(|l| l.min_ns).min().unwrap()
        );
        let frames: u64 = latencies.iter().map(|l| l.samples).sum();
        assert_eq!(trip.frames, frames);
        let sum: f64 = latencies.iter().map(|l| l.mean_ns * l.samples as f64).sum();
        assert!((trip.mean_ns - sum / frames as f64).abs() < 1e-6 * trip.mean_ns);
        // Percentiles of all frames lie between those of the single trials.
        let median = trip.percentiles[0].latency_ns;
        assert!(
            latencies
                .iter()
                .any(|l| l.p50_ns.is_some_and(|ns| ns <= median))
        );
        assert!(
            latencies
                .iter()
                .any(|l| l.p50_ns.is_some_and(|ns| ns >= median))
        );
        assert!(trip.percentiles.iter().all(|p| p.latency_ns <= trip.max_ns));
        let last = trip.percentiles.last().unwrap().percentile;
        assert!(frames as f64 * (1.0 - last / 100.0) >= 9.999);
        assert!(
            frames as f64 * (1.0 - 0.99999) < 10.0 && last < 99.999,
            "240 000 frames bear no p99.999"
        );
    }
}

#[test]
fn shares_of_cpus_sum_up() {
    let (summary, page) = checked_whole();
    for case in &summary.sizes[0].cases {
        assert_eq!(case.cpus.len(), 2);
        for cpu in &case.cpus {
            let sum: f64 = cpu.states.iter().map(|(_, share)| share).sum();
            assert!((sum - 1.0).abs() < 1e-9);
        }
        let names: Vec<_> = case.threads.iter().map(|t| t.name.as_str()).collect();
        assert!(
            names.contains(&"tester") && !names.contains(&"control"),
            "{names:?}"
        );
    }
    assert!(page.contains("tester, service, control"));
}

#[test]
fn a_rate_that_the_tester_limits_is_reported_as_at_least() {
    let text = STUDY
        .replacen("max-rate-pps = \"auto\"", "max-rate-pps = 3e6", 1)
        .replacen("rounds = 3\n", "rounds = 1\n", 1);
    let mut bench = SimulatedBench::new(5, 0);
    bench.invalid_ratio = 0.0;
    let (summary, page) = checked(&results_of(&text, bench, usize::MAX));
    let pdr = &summary.sizes[0].cases[0].goals[1];
    assert!(pdr.is_lower_limit_only, "{pdr:?}");
    assert_eq!(pdr.rate_pps.as_ref().unwrap().median, 3e6);
    assert!(page.contains("≥\u{202f}3.00"));
}

#[test]
fn table_and_json_hold_the_same_figures() {
    let results = whole();
    let summary = Summary::of(&results).unwrap();
    let table = text_table(&summary, Some(120));
    let document = json(&results).unwrap();
    assert_eq!(document["schema"], 1);
    let cases = document["summary"]["sizes"][0]["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 4);
    for (case, shown) in summary.sizes[0].cases.iter().zip(cases) {
        assert_eq!(shown["name"], case.name.as_str());
        let rate = shown["goals"][1]["rate_pps"]["median"].as_f64().unwrap();
        assert_eq!(rate, case.goals[1].rate_pps.as_ref().unwrap().median);
        assert!(table.contains(&case.name));
        if rate > 1e6 {
            assert!(table.contains(&format!("{:.2}", rate / 1e6)));
        }
    }
    assert!(!table.contains('\u{202f}') && !table.contains('\u{e000}'));
    // Sentences have the length that they have.
    let is_sentence = |line: &&str| line.starts_with("unknown: ");
    assert!(
        table
            .lines()
            .filter(|line| !is_sentence(line))
            .take(20)
            .all(|line| line.chars().count() <= 120)
    );
}
