// SPDX-License-Identifier: Apache-2.0
//! Simple reference model for the soak. The loss probability is integrated step by step, and the posterior is summed over one fixed grid
//! of the whole range. The model uses only the soak's trials and results.

use super::*;
use crate::LossRatio;
use crate::chance::chance;

/// Limits of the integrals in spreads, and their step.
const ENDS: f64 = 60.0;
const STEP: f64 = 0.002;
/// The grid: capacity as a part of the maximum rate, and the natural logarithm of the spread.
const CAPACITY: (f64, f64, f64) = (1e-4, 2.0, 4e-4);
const LOG_SPREAD: (f64, f64, f64) = (-13.8, 0.0, 0.15);

/// Integral of the probability that one more frame is lost, starting far below the capacity.
struct Model {
    integral: Vec<f64>,
}

impl Model {
    fn of(shape: Shape) -> Self {
        let count = (2.0 * ENDS / STEP) as usize + 1;
        let at = |index: usize| -ENDS + index as f64 * STEP;
        // Either probability is the integral of a bell curve.
        let bell = |x: f64| match shape {
            Shape::Stretch => (-x.abs()).exp() / (1.0 + (-x.abs()).exp()).powi(2),
            Shape::Erf => (-x * x).exp() / std::f64::consts::PI.sqrt(),
        };
        let mut integral = vec![0.0];
        let mut chance = 0.0;
        for index in 1..count {
            let before = chance;
            chance += (bell(at(index - 1)) + bell(at(index))) / 2.0 * STEP;
            let last = integral[index - 1];
            integral.push(last + (before + chance) / 2.0 * STEP);
        }
        Self { integral }
    }

    fn up_to(&self, x: f64) -> f64 {
        let place = (x + ENDS) / STEP;
        if place <= 0.0 {
            return 0.0;
        }
        let index = place as usize;
        match (self.integral.get(index), self.integral.get(index + 1)) {
            (Some(low), Some(high)) => low + (high - low) * (place - index as f64),
            // Beyond the end, every additional frame is lost.
            _ => self.integral.last().unwrap() + x - ENDS,
        }
    }

    /// Returns the loss at a load. All values are parts of the maximum rate.
    fn lost(&self, load: f64, capacity: f64, spread: f64) -> f64 {
        let whole = self.up_to((load - capacity) / spread) - self.up_to(-capacity / spread);
        (spread * whole).clamp(0.0, load)
    }

    /// Returns the load with loss ratio `ratio`.
    fn critical_load(&self, ratio: f64, capacity: f64, spread: f64) -> f64 {
        let (mut low, mut high) = (0.0, (capacity + spread) / (1.0 - ratio));
        while high - low > 1e-9 {
            let middle = f64::midpoint(low, high);
            if self.lost(middle, capacity, spread) / middle > ratio {
                high = middle;
            } else {
                low = middle;
            }
        }
        low
    }

    /// Returns the logarithm of the probability of these trials. Each loses a geometrically distributed number with the expected mean.
    fn log_chance(&self, trials: &[(f64, f64, f64)], capacity: f64, spread: f64) -> f64 {
        let of_trial = |(load, frames_of_max, lost): &(f64, f64, f64)| {
            let mean = (self.lost(*load, capacity, spread) * frames_of_max).max(1e-300);
            lost * mean.ln() - (lost + 1.0) * (1.0 + mean).ln()
        };
        trials.iter().map(of_trial).sum()
    }

    /// Returns mean and deviation of the critical load. All cells of the grid have the same prior probability.
    fn critical(&self, trials: &[(f64, f64, f64)], ratio: f64) -> (f64, f64) {
        let cells = |(from, to, step): (f64, f64, f64)| {
            let count = ((to - from) / step) as usize;
            (0..count).map(move |index| from + (index as f64 + 0.5) * step)
        };
        let mut weighed = Vec::new();
        for log_spread in cells(LOG_SPREAD) {
            let spread = log_spread.exp();
            for capacity in cells(CAPACITY) {
                let weight = self.log_chance(trials, capacity, spread);
                weighed.push((weight, capacity, spread));
            }
        }
        let most = weighed
            .iter()
            .map(|it| it.0)
            .fold(f64::NEG_INFINITY, f64::max);
        let (mut sum, mut first, mut second) = (0.0, 0.0, 0.0);
        for (weight, capacity, spread) in weighed {
            // Cells with negligible weight need no search for their load.
            if weight < most - 30.0 {
                continue;
            }
            let weight = (weight - most).exp();
            let load = self.critical_load(ratio, capacity, spread);
            sum += weight;
            first += weight * load;
            second += weight * load * load;
        }
        let mean = first / sum;
        (mean, (second / sum - mean * mean).max(0.0).sqrt())
    }
}

fn config(duration_s: f64) -> SoakConfig {
    SoakConfig {
        loss_ratio: LossRatio::new(1e-7).unwrap(),
        min_rate_pps: 1e4,
        max_rate_pps: 20e6,
        first_trial_duration_s: 5.0,
        trial_growth_s: 0.5,
        duration_s,
        max_invalid_repeats: 0,
    }
}

/// Runs a soak on a device that loses by the model, in clumps.
fn soaked(model: &Model, config: &SoakConfig, device: (f64, f64), seed: u64) -> SearchResult {
    let mut soak = Soak::new(config.clone()).unwrap();
    for trial in 0..10_000 {
        match soak.step() {
            Step::Done(result) => return result,
            Step::Run(request) => {
                let load = request.rate_pps / config.max_rate_pps;
                let frames = config.max_rate_pps * request.duration_s;
                let mean = model.lost(load, device.0, device.1) * frames;
                let odds = mean / (1.0 + mean);
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

/// Returns load, frames at the maximum rate and frames lost of each trial.
fn trials(result: &SearchResult, max_rate_pps: f64) -> Vec<(f64, f64, f64)> {
    let of = |attempt: &Attempt| {
        let request = attempt.request;
        let Outcome::Valid { loss_ratio, .. } = attempt.outcome else {
            panic!("no trial was invalid")
        };
        (
            request.rate_pps / max_rate_pps,
            max_rate_pps * request.duration_s,
            loss_ratio * request.rate_pps * request.duration_s,
        )
    };
    result.history.iter().map(of).collect()
}

#[test]
fn estimates_are_those_of_a_sum_over_the_whole_range() {
    let config = config(60.0);
    let models = [Shape::Stretch, Shape::Erf].map(Model::of);
    for (device, seed) in [((0.6, 0.02), 1), ((0.35, 0.01), 2)] {
        let result = soaked(&models[seed as usize % 2], &config, device, seed);
        let found = found(&result);
        let observed = trials(&result, config.max_rate_pps);
        for (model, ours) in models.iter().zip([found.stretch, found.erf]) {
            let (mean, deviation) = model.critical(&observed, 1e-7);
            let (mean, deviation) = (mean * config.max_rate_pps, deviation * config.max_rate_pps);
            let ours = ours.unwrap();
            assert!(
                (ours.mean_pps - mean).abs() < 0.25 * deviation
                    && (ours.deviation_pps / deviation - 1.0).abs() < 0.2,
                "{device:?}: {ours:?}, and {mean} with {deviation}"
            );
        }
    }
}

#[test]
fn over_many_devices_what_is_reported_of_the_estimate_is_true() {
    const DEVICES: u64 = 80;
    let config = config(45.0);
    let models = [Shape::Stretch, Shape::Erf].map(Model::of);
    // Distances of the estimate of the device's shape and of the combined one from the truth, in their deviations.
    let distances = |seed: u64| {
        let model = &models[seed as usize % 2];
        let capacity = 0.2 + 0.7 * chance(seed, 1 << 40);
        let device = (
            capacity,
            capacity * 0.002 * 10f64.powf(chance(seed, 1 << 41)),
        );
        let result = soaked(model, &config, device, seed);
        let found = found(&result);
        let truth = config.max_rate_pps * model.critical_load(1e-7, device.0, device.1);
        let of_shape = if seed.is_multiple_of(2) {
            found.stretch
        } else {
            found.erf
        };
        let off = |load: CriticalLoad| (load.mean_pps - truth) / load.deviation_pps;
        [of_shape, found.critical_load].map(|load| off(load.unwrap()))
    };
    let (mut squares, mut within, mut held) = (0.0, 0, 0);
    // On two CPUs: this takes longer than all other tests of the crate together.
    let found = std::thread::scope(|scope| {
        let half = DEVICES / 2;
        let more = scope.spawn(move || (half..DEVICES).map(distances).collect::<Vec<_>>());
        let mut found: Vec<[f64; 2]> = (0..half).map(distances).collect();
        found.extend(more.join().unwrap());
        found
    });
    for [of_shape, combined] in found {
        squares += of_shape * of_shape;
        within += u32::from(of_shape.abs() < 2.0);
        // One of the two shapes is wrong, and the combined deviation must cover that.
        held += u32::from(combined.abs() < 3.0);
    }
    let count = DEVICES as f64;
    let spread = squares / count;
    println!("{spread:.2} squared deviations on average, {within} and {held} of {DEVICES}");
    assert!((0.3..2.5).contains(&spread), "{spread}");
    assert!(f64::from(within) > 0.85 * count, "{within} of {DEVICES}");
    assert!(f64::from(held) > 0.9 * count, "{held} of {DEVICES}");
}
