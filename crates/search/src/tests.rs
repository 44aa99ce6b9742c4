// SPDX-License-Identifier: Apache-2.0
//! Tests of the methods through their public interface, on simulated devices.

mod by_hand;
mod common;
mod forwarding;
mod of_n;
mod properties;
mod reachable;
mod readings;
mod reference;
mod sweep;

use crate::{Findings, LossRatio, Method, Outcome, SearchResult, SingleRunConfig, Step};

/// Returns the loss of a device that forwards up to `capacity_pps` and drops the rest.
fn loss_of(capacity_pps: f64, rate_pps: f64) -> Outcome {
    Outcome::lost((1.0 - capacity_pps / rate_pps).clamp(0.0, 1.0))
}

fn invalid(reason: &str) -> Outcome {
    Outcome::invalid(reason)
}

/// Runs `search` to its end. `device` receives the number of the trial and the rate. A search with more than `limit` trials fails the
/// test.
fn drive(
    search: &mut dyn Method,
    limit: usize,
    mut device: impl FnMut(usize, f64) -> Outcome,
) -> SearchResult {
    for trial in 0..=limit {
        match search.step() {
            Step::Done(result) => return result,
            Step::Run(request) => search.record(device(trial, request.rate_pps)).unwrap(),
        }
    }
    panic!("{} did not end within {limit} trials", search.name());
}

/// Returns the small search of the tests computed by hand.
fn small() -> SingleRunConfig {
    SingleRunConfig {
        start_rate_pps: 10.0,
        start_step_pps: 4.0,
        resolution_pps: 1.0,
        loss_tolerance: LossRatio::ZERO,
        trial_duration_s: 2.0,
        min_rate_pps: 0.1,
        max_rate_pps: 100.0,
        best_of: 1,
        max_invalid_repeats: 2,
        max_trials: 100,
    }
}

fn rates(result: &SearchResult) -> Vec<f64> {
    result
        .history
        .iter()
        .map(|attempt| attempt.request.rate_pps)
        .collect()
}

fn single(result: &SearchResult) -> &crate::SingleRunFindings {
    match &result.findings {
        Findings::SingleRun(findings) => findings,
        other => panic!("findings of another method: {other:?}"),
    }
}
