// SPDX-License-Identifier: Apache-2.0
//! Invalid trials, and results that are upper bounds or damaged.

use quietwire_study::simulated::SimulatedBench;
use quietwire_study::{StepKind, StepRecord, TrialRecord};
use quietwire_tester::{CitedCalibration, DamageCheck, InvalidCause, LatencySummary};

use super::{SHORT, checked, checked_whole, results_of, whole};
use crate::{SearchOutcome, html, json, text_table};

#[test]
fn invalid_trials_are_counted_and_their_reasons_reported_once() {
    let results = whole();
    let (summary, page) = checked_whole();
    let invalid = results
        .trials()
        .filter(|(_, trial)| !trial.result.is_valid());
    let invalid = invalid.count();
    assert!(invalid > 0);
    assert_eq!(summary.invalid_trials, invalid);
    let by_case: usize = summary.sizes[0]
        .cases
        .iter()
        .map(|c| c.health.invalid)
        .sum();
    assert_eq!(by_case, invalid);
    for case in &summary.sizes[0].cases {
        assert!(case.health.reasons.len() <= 1, "{:?}", case.health.reasons);
    }
    let by_cause: usize = summary.invalid_causes.iter().map(|(_, count)| count).sum();
    assert_eq!(by_cause, invalid);
    assert_eq!(summary.invalid_causes[0].0, InvalidCause::RateMissed);
    let reported = format!(
        "{invalid} of {} trials are invalid because the tester failed ({invalid}: the tester missed the rate)",
        summary.trials
    );
    assert!(page.contains(&reported), "{reported}");
}

#[test]
fn a_latency_that_is_mostly_the_testers_own_is_an_upper_bound() {
    let mut results = whole();
    let (summary, page) = checked_whole();
    let trip = summary.sizes[0].cases[0].round_trip.as_ref().unwrap();
    assert_eq!(trip.own, None);
    assert!(page.contains("the tester is not calibrated"));
    // More than a tenth of the minimum and the mean, less than a tenth of the maximum.
    let own = LatencySummary {
        samples: 100_000,
        min_ns: trip.min_ns / 10 + 1,
        mean_ns: trip.mean_ns / 10.0 + 1.0,
        max_ns: trip.max_ns / 10 - 1,
        ..LatencySummary::default()
    };
    let name = summary.sizes[0].cases[0].name.clone();
    let steps = results
        .steps
        .iter_mut()
        .filter(|step| step.case_name == name);
    for trial in steps.flat_map(|step| &mut step.trials) {
        trial.result.calibration = Some(CitedCalibration {
            measured_unix_ns: 1,
            clean_rate_pps: 1e9,
            latency_floor_ns: own.min_ns,
            own: Some(own.clone()),
            is_exceeded: false,
        });
    }
    let (summary, page) = checked(&results);
    let trip = summary.sizes[0].cases[0].round_trip.as_ref().unwrap();
    assert!(trip.min_text().starts_with('<') && trip.mean_text().starts_with('<'));
    assert!(!trip.max_text().starts_with('<'));
    // Percentiles for which the calibration has too few frames use its maximum.
    let percentile = trip.percentiles[0];
    assert_eq!(percentile.own_ns, Some(own.max_ns));
    assert!(percentile.text().starts_with('<'));
    assert!(page.contains("Its calibration measured"));
    let shown = page.replace("&lt;", "<");
    assert!(shown.contains(&trip.mean_text()));
    // Nothing is computed from a figure that is withheld.
    assert_eq!(trip.percent_of_baseline, [None, None, Some(100.0)]);
    let other = summary.sizes[0].cases[1].round_trip.as_ref().unwrap();
    assert_eq!(other.percent_of_baseline[1], None);
    let noisy = summary.sizes[0].published[0].measured.as_ref().unwrap();
    assert_eq!(noisy.round_trip, None);
    let document = json(&results).unwrap();
    let written = &document["summary"]["sizes"][0]["cases"][0]["round_trip"];
    assert!(written["mean_ns"].is_null() && written["min_ns"].is_null());
    assert_eq!(written["mean_upper_bound_ns"], trip.mean_ns);
    assert_eq!(written["max_ns"], trip.max_ns);
    let written = &written["percentiles"][0];
    assert!(written["latency_ns"].is_null(), "{written}");
    assert_eq!(written["latency_upper_bound_ns"], percentile.latency_ns);
}

#[test]
fn the_scope_of_the_check_for_damage_is_reported() {
    let mut results = whole();
    let (_, page) = checked_whole();
    assert!(!page.contains("Checked for damage"));
    for trial in results.steps.iter_mut().flat_map(|step| &mut step.trials) {
        trial.result.damage_check = Some(DamageCheck::AfterEthernetHeader);
    }
    let (_, page) = checked(&results);
    assert!(page.contains("Checked for damage: all octets after the Ethernet header"));
    let health = &json(&results).unwrap()["summary"]["sizes"][0]["cases"][0]["health"];
    assert_eq!(health["damage_checks"][0], "after-ethernet-header");
    // Cases may differ.
    let first = results.steps[0].case_name.clone();
    let of_first = |step: &&mut StepRecord| step.case_name == first;
    for step in results.steps.iter_mut().filter(of_first) {
        for trial in &mut step.trials {
            trial.result.damage_check = Some(DamageCheck::Checksums);
        }
    }
    let (_, page) = checked(&results);
    let words = format!("Checked for damage in {first}: octets covered by");
    assert!(page.contains(&words), "{words}");
}

#[test]
fn what_invalid_trials_may_have_changed_is_reported() {
    let (summary, _) = checked_whole();
    let mut reported = 0;
    for case in &summary.sizes[0].cases {
        for goal in &case.goals {
            for (outcome, readings) in goal.outcomes.iter().zip(&goal.readings) {
                let readings = readings.unwrap();
                assert!(
                    readings.all_lost_pps <= readings.all_held_pps,
                    "{readings:?}"
                );
                let (SearchOutcome::Held { rate_pps, .. } | SearchOutcome::AtLeast { rate_pps }) =
                    *outcome
                else {
                    continue;
                };
                // The readings are intended rates, the outcome is the achieved one.
                let half = readings.width_pps / 2.0;
                assert!(
                    readings.all_held_pps.unwrap() >= rate_pps - half,
                    "{readings:?}"
                );
                assert!(
                    readings.all_lost_pps.unwrap_or(0.0) <= rate_pps + half,
                    "{readings:?}"
                );
                if readings.invalid_trials == 0 {
                    assert_eq!(readings.all_lost_pps, readings.all_held_pps);
                }
                reported += usize::from(readings.differ());
            }
        }
    }
    assert!(
        reported > 0,
        "no invalid trial of the simulated tester matters"
    );
    let text = text_table(&summary, Some(200));
    let sentence = "if all invalid trials counted as failed, or all as passed, ";
    assert!(text.contains(sentence), "{text}");
}

#[test]
fn a_study_in_which_the_tester_always_failed_gives_no_figure() {
    let mut bench = SimulatedBench::new(5, 0);
    bench.invalid_ratio = 1.0;
    let (summary, page) = checked(&results_of(&SHORT, bench, usize::MAX));
    assert_eq!(summary.trials, summary.invalid_trials);
    for case in &summary.sizes[0].cases {
        assert!(case.round_trip.is_none() && case.highest_load.is_none());
        assert!(case.points.is_empty());
        for goal in &case.goals {
            assert_eq!(goal.rate_pps, None);
            assert!(
                goal.outcomes
                    .iter()
                    .all(|outcome| *outcome == SearchOutcome::TesterFailed)
            );
        }
    }
    assert!(page.contains("no result: the tester failed"));
    assert!(page.contains("No valid latency trial received a frame."));
}

#[test]
fn a_damaged_histogram_is_reported() {
    let mut results = whole();
    let trial = results
        .steps
        .iter_mut()
        .filter(|step| step.kind == StepKind::Latency)
        .flat_map(|step| &mut step.trials)
        .find(|trial| trial.result.is_valid())
        .unwrap();
    let former = std::mem::replace(
        &mut trial.result.latency.histogram_v2_base64,
        "AAAA".to_owned(),
    );
    let error = html(&results).unwrap_err().to_string();
    assert!(error.contains("histogram"), "{error}");

    // One that is merged with those of other trials: the message names the trial, not the first one.
    let of_latency = |step: &&mut StepRecord| step.kind == StepKind::Latency;
    let mut steps = results.steps.iter_mut().filter(of_latency);
    for trial in steps.by_ref().flat_map(|step| &mut step.trials) {
        if trial.result.latency.histogram_v2_base64 == "AAAA" {
            trial.result.latency.histogram_v2_base64.clone_from(&former);
        }
    }
    let steps = results.steps.iter_mut().filter(of_latency);
    let last = steps.filter(|step| step.trials.iter().any(|one| one.result.is_valid()));
    let step = last.last().unwrap();
    let is_valid = |one: &&mut TrialRecord| one.result.is_valid();
    let trial = step.trials.iter_mut().rfind(is_valid).unwrap();
    // 4 GiB of counts.
    trial.result.variation.pdv.histogram_v2_base64 =
        "HISTE/////8AAAAAAAAAAwAAAAAAAAAB//////////8/8AAAAAAAAAI=".to_owned();
    let place = format!("trial {} of step {}", trial.sequence, step.id);
    let error = html(&results).unwrap_err().to_string();
    assert!(
        error.contains(&place) && error.contains("says 4294967295"),
        "{error}"
    );
}
