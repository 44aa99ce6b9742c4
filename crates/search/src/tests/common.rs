// SPDX-License-Identifier: Apache-2.0
//! Common properties of all methods.

use super::{drive, loss_of, small};
use crate::{
    BestWorst, BestWorstConfig, ForwardingRate, ForwardingRateConfig, LatencyTrials,
    LossDistribution, LossDistributionConfig, LossRatio, LossSweep, LossSweepConfig, Method,
    MlrGoal, MlrSearch, MlrSearchConfig, PartsOf, Repeat, RepeatConfig, Sides, SingleRun, Soak,
    SoakConfig, ThroughputSearch, latency_plan,
};

fn mlrsearch() -> MlrSearchConfig {
    let goal = |width| MlrGoal {
        width,
        ..MlrGoal::rfc2544()
    };
    MlrSearchConfig {
        goals: vec![goal(0.25), goal(0.125), goal(0.5)],
        min_rate_pps: 1.0,
        max_rate_pps: 100.0,
        max_invalid_repeats: 0,
        max_trials: 1_000,
    }
}

/// Returns one instance of each method with its name, and its resolution at a rate of 40 frames per second.
fn all() -> Vec<(Box<dyn Method>, &'static str, Option<f64>)> {
    let of_n = BestWorstConfig {
        search: small(),
        trials: 2,
        sides: Sides::Both,
    };
    let forwarding = ForwardingRateConfig {
        max_rate_pps: 100.0,
        lower_rates_pps: vec![50.0],
        trial_duration_s: 1.0,
        max_invalid_repeats: 0,
    };
    let sweep = LossSweepConfig {
        rates_pps: vec![10.0, 20.0],
        trial_duration_s: 1.0,
        max_invalid_repeats: 0,
    };
    let soak = SoakConfig {
        loss_ratio: LossRatio::new(1e-3).unwrap(),
        min_rate_pps: 1.0,
        max_rate_pps: 100.0,
        first_trial_duration_s: 1.0,
        trial_growth_s: 1.0,
        duration_s: 10.0,
        max_invalid_repeats: 0,
    };
    let repeat = |search| {
        let config = RepeatConfig {
            search,
            runs: 2,
            confidence: 0.95,
        };
        Box::new(Repeat::new(config).unwrap())
    };
    let plan = latency_plan(Some(19.0), Some(22.0), 10.0, 4.0, PartsOf::Pdr).unwrap();
    let between = LossDistributionConfig::between((10.0, 30.0), 3, 2, 1.0, 0).unwrap();
    vec![
        (
            Box::new(SingleRun::new(small()).unwrap()),
            "single-run",
            Some(1.0),
        ),
        (
            Box::new(BestWorst::new(of_n.clone()).unwrap()),
            "best-worst-of-n",
            Some(1.0),
        ),
        (
            Box::new(MlrSearch::new(mlrsearch()).unwrap()),
            "mlrsearch",
            Some(5.0),
        ),
        (
            repeat(ThroughputSearch::MlrSearch(mlrsearch())),
            "repeat",
            Some(5.0),
        ),
        (
            repeat(ThroughputSearch::SingleRun(small())),
            "repeat",
            Some(1.0),
        ),
        (
            repeat(ThroughputSearch::BestWorstOfN(of_n)),
            "repeat",
            Some(1.0),
        ),
        (
            Box::new(LossDistribution::new(between).unwrap()),
            "loss-distribution",
            None,
        ),
        (
            Box::new(ForwardingRate::new(forwarding).unwrap()),
            "forwarding-rate-at-max-load",
            None,
        ),
        (
            Box::new(LatencyTrials::new(plan, 1.0, 0).unwrap()),
            "latency-plan",
            None,
        ),
        (Box::new(LossSweep::new(sweep).unwrap()), "loss-sweep", None),
        (Box::new(Soak::new(soak).unwrap()), "soak", None),
    ]
}

#[test]
fn findings_are_stored_by_the_name_of_their_method() {
    for (mut method, name, _) in all() {
        assert_eq!(method.name(), name);
        let result = drive(&mut *method, 1_000, |_, rate| loss_of(19.0, rate));
        let json = serde_json::to_value(&result.findings).unwrap();
        assert_eq!(json["method"], name);
    }
}

#[test]
fn only_methods_that_search_for_a_rate_have_a_width() {
    for (method, name, width_pps) in all() {
        assert_eq!(method.width_pps(40.0), width_pps, "{name}");
    }
}

#[test]
fn the_width_of_a_search_by_steps_is_its_resolution() {
    let mut search = small();
    search.resolution_pps = 0.5;
    let of_n = BestWorstConfig {
        search: search.clone(),
        trials: 2,
        sides: Sides::Both,
    };
    let best_worst = BestWorst::new(of_n).unwrap();
    assert_eq!(best_worst.width_pps(40.0), Some(0.5));
    let single = SingleRun::new(search).unwrap();
    assert_eq!(single.width_pps(40.0), Some(0.5));
}

#[test]
fn the_history_grows_trial_by_trial_and_is_that_of_the_result() {
    for (mut method, name, _) in all() {
        assert!(method.history().is_empty(), "{name}");
        let mut asked = Vec::new();
        let result = drive(&mut *method, 1_000, |trial, rate| {
            assert_eq!(trial, asked.len());
            asked.push(rate);
            loss_of(19.0, rate)
        });
        assert_eq!(method.history(), result.history, "{name}");
        assert_eq!(super::rates(&result), asked, "{name}");
        assert!(!asked.is_empty());
    }
}

#[test]
fn bounds_of_trials_are_products() {
    let config = LossDistributionConfig::between((10.0, 30.0), 3, 5, 1.0, 1).unwrap();
    assert_eq!(config.trial_bound(), 3 * 5 * 2);
}
