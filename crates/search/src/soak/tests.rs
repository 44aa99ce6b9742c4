// SPDX-License-Identifier: Apache-2.0
//! Soaks of simulated devices with a known critical load.

use super::posterior::Moments;
use super::*;
use crate::LossRatio;
use crate::chance::chance;

fn config() -> SoakConfig {
    SoakConfig {
        loss_ratio: LossRatio::new(1e-7).unwrap(),
        min_rate_pps: 1e4,
        max_rate_pps: 20e6,
        first_trial_duration_s: 5.0,
        trial_growth_s: 0.1,
        duration_s: 600.0,
        max_invalid_repeats: 1,
    }
}

/// Runs a soak on a device of one of the shapes. Losses have the expected number, in clumps.
fn soaked(
    config: &SoakConfig,
    shape: Shape,
    capacity: f64,
    spread: f64,
    seed: u64,
) -> SearchResult {
    let mut soak = Soak::new(config.clone()).unwrap();
    for trial in 0..10_000 {
        match soak.step() {
            Step::Done(result) => return result,
            Step::Run(request) => {
                assert!((config.min_rate_pps..=config.max_rate_pps).contains(&request.rate_pps));
                let load = request.rate_pps / config.max_rate_pps;
                let frames = config.max_rate_pps * request.duration_s;
                let expected = shape.lost(load, capacity, spread) * frames;
                // A geometrically distributed number with this mean.
                let odds = expected / (1.0 + expected);
                let lost = (chance(seed, trial).max(1e-300).ln() / odds.ln()).floor();
                let offered = request.rate_pps * request.duration_s;
                soak.record(Outcome::lost((lost / offered).clamp(0.0, 1.0)))
                    .unwrap();
            }
        }
    }
    panic!("the soak did not end");
}

fn found(result: &SearchResult) -> &SoakFindings {
    match &result.findings {
        Findings::Soak(findings) => findings,
        other => panic!("findings of another method: {other:?}"),
    }
}

#[test]
fn the_critical_load_is_found_within_what_is_reported_of_it() {
    let config = config();
    let mut surprises: f64 = 0.0;
    let mut count = 0.0;
    for shape in [Shape::Stretch, Shape::Erf] {
        for (capacity, spread) in [(0.6, 0.004), (0.3, 0.01)] {
            let result = soaked(&config, shape, capacity, spread, 0);
            let found = found(&result);
            assert_eq!(found.end, SoakEnd::Finished);
            assert!(!found.is_over_range);
            let truth = config.max_rate_pps * shape.critical_load(1e-7, capacity, spread);
            let of_shape = match shape {
                Shape::Stretch => found.stretch.unwrap(),
                Shape::Erf => found.erf.unwrap(),
            };
            let critical = found.critical_load.unwrap();
            assert!(
                (critical.mean_pps / truth - 1.0).abs() < 0.1,
                "{shape:?} {capacity} {spread}: {found:?}, {truth}"
            );
            surprises += ((of_shape.mean_pps - truth) / of_shape.deviation_pps).powi(2);
            count += 1.0;
        }
    }
    // The reported deviations must match the observed ones: on average, the squared normalised deviation is one.
    assert!(surprises / count < 4.0, "{}", surprises / count);
}

#[test]
fn a_longer_soak_knows_more() {
    let of = |duration_s| {
        let config = SoakConfig {
            duration_s,
            ..config()
        };
        let result = soaked(&config, Shape::Stretch, 0.5, 0.005, 3);
        found(&result).stretch.unwrap().deviation_pps
    };
    assert!(of(600.0) < of(60.0));
}

#[test]
fn trials_grow_until_the_time_is_up() {
    let result = soaked(&config(), Shape::Stretch, 0.5, 0.005, 1);
    let durations: Vec<f64> = result
        .history
        .iter()
        .map(|a| a.request.duration_s)
        .collect();
    assert!(
        durations
            .windows(2)
            .all(|pair| (pair[1] - pair[0] - 0.1).abs() < 1e-9)
    );
    let sum: f64 = durations.iter().sum();
    assert!(sum >= 600.0 && sum - durations.last().unwrap() < 600.0);
    assert_eq!(found(&result).trials as usize, durations.len());
    assert_eq!(result.history[0].request.rate_pps, 20e6);
    let json = serde_json::to_string(&result).unwrap();
    assert!(json.contains(r#""method":"soak""#), "{json}");
}

#[test]
fn a_device_that_never_loses_is_over_the_range_and_one_that_loses_all_under_it() {
    let short = SoakConfig {
        duration_s: 60.0,
        ..config()
    };
    let all = |loss_ratio: f64| {
        let mut soak = Soak::new(short.clone()).unwrap();
        loop {
            match soak.step() {
                Step::Run(_) => soak.record(Outcome::lost(loss_ratio)).unwrap(),
                Step::Done(result) => return result,
            }
        }
    };
    let never = all(0.0);
    assert!(found(&never).is_over_range, "{:?}", found(&never));
    assert!(never.history.iter().all(|a| a.request.rate_pps <= 20e6));
    let always = all(1.0);
    let critical = found(&always).critical_load.unwrap();
    assert!(
        critical.mean_pps.is_finite() && critical.mean_pps < 1e6,
        "{critical:?}"
    );
}

#[test]
fn invalid_trials_and_bad_parameters_are_reported() {
    let mut soak = Soak::new(config()).unwrap();
    assert_eq!(
        soak.record(Outcome::lost(0.0)),
        Err(RecordError::NothingPending)
    );
    for _ in 0..2 {
        let Step::Run(request) = soak.step() else {
            panic!("ended too early")
        };
        assert_eq!((request.rate_pps, request.duration_s), (20e6, 5.0));
        let reason = "gap".to_owned();
        soak.record(Outcome::invalid(reason)).unwrap();
    }
    let Step::Done(result) = soak.step() else {
        panic!("continued after two invalid trials")
    };
    assert_eq!(found(&result).critical_load, None);
    assert!(matches!(found(&result).end, SoakEnd::InvalidTrials { .. }));
    let no_loss = SoakConfig {
        loss_ratio: LossRatio::ZERO,
        ..config()
    };
    assert!(matches!(
        Soak::new(no_loss).unwrap_err(),
        ConfigError::NotPositive {
            name: "loss_ratio",
            ..
        }
    ));
}

#[test]
fn trials_go_round_the_mean_of_both_shapes_as_it_is_known_so_far() {
    let config = config();
    let mut soak = Soak::new(config.clone()).unwrap();
    let near = |ours: f64, expected: f64| {
        assert!(
            (ours / expected - 1.0).abs() < 1e-12,
            "{ours} and {expected}"
        );
    };
    let mut others = 0;
    for trial in 0..10 {
        let Step::Run(request) = soak.step() else {
            panic!("ended too early")
        };
        near(request.duration_s, 5.0 + 0.1 * f64::from(trial));
        match trial {
            0 => assert_eq!(request.rate_pps, 20e6),
            // The forwarding rate of the first trial.
            1 => near(request.rate_pps, 11e6),
            _ => {
                let load = soak.critical_load();
                let offset = [0.0, 1.0, -1.0, 2.0][trial as usize % 4];
                near(
                    request.rate_pps,
                    load.mean_pps + offset * load.deviation_pps,
                );
                others += 1;
            }
        }
        // 11 million frames per second pass. Near that rate, a few are lost.
        let over = (1.0 - 11e6 / request.rate_pps).max(0.0);
        let loss_ratio = over.max(if request.rate_pps > 10.8e6 { 1e-5 } else { 0.0 });
        soak.record(Outcome::lost(loss_ratio)).unwrap();
        let observed = soak.observed.last().unwrap();
        near(observed.load, request.rate_pps / 20e6);
        near(observed.frames_of_max, 20e6 * request.duration_s);
        let offered = request.rate_pps * request.duration_s;
        assert!((observed.lost - loss_ratio * offered).abs() <= 1e-9 * observed.lost);
    }
    assert_eq!(others, 8);
    assert_eq!(soak.history().len(), 10);
}

/// A distribution that is one of two with equal probability has this mean and this mean square.
#[test]
fn both_shapes_count_alike_and_their_distance_adds_to_the_deviation() {
    let mut soak = Soak::new(config()).unwrap();
    for loss_ratio in [0.45, 1e-3] {
        soak.step();
        soak.record(Outcome::lost(loss_ratio)).unwrap();
    }
    let (one, other) = (soak.stretch.critical(), soak.erf.critical());
    assert!((one.mean - other.mean).abs() > 0.1 * one.deviation.max(other.deviation));
    let mean = f64::midpoint(one.mean, other.mean);
    let square = |load: Moments| load.mean.powi(2) + load.deviation.powi(2);
    let variance = f64::midpoint(square(one), square(other)) - mean.powi(2);
    let both = soak.critical_load();
    assert!((both.mean_pps / (20e6 * mean) - 1.0).abs() < 1e-12);
    assert!((both.deviation_pps / (20e6 * variance.sqrt()) - 1.0).abs() < 1e-9);
}

#[test]
fn a_soak_at_a_single_rate_is_one_too() {
    let single = SoakConfig {
        min_rate_pps: 20e6,
        ..config()
    };
    assert_eq!(single.validate(), Ok(()));
    let crossed = SoakConfig {
        min_rate_pps: 20.1e6,
        ..config()
    };
    assert!(matches!(
        crossed.validate(),
        Err(ConfigError::BoundsCrossed { .. })
    ));
}
