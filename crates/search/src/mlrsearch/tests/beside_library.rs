// SPDX-License-Identifier: Apache-2.0
//! Comparison with the library of the document's authors (PyPI `MLRsearch`).

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::{Value, json};

use super::devices::{Device, OVERHEAD_S, Searched, search};
use super::{config, ratio};
use crate::chance::chance;
use crate::mlrsearch::load::{Measured, conditional_throughput};
use crate::{DurationSums, LoadClass, LossRatio, MlrGoal, MlrSearchConfig};

/// Returns the library's results.
fn printed(work: &Value) -> Answers {
    let python = std::env::var("QUIETWIRE_PYTHON")
        .expect("set QUIETWIRE_PYTHON to a Python with MLRsearch (`make test` installs one)");
    let mut child = Command::new(python)
        .args(["-c", include_str!("oracle.py")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(work.to_string().as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "the Python script failed");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[derive(Deserialize)]
struct Answers {
    searches: Vec<Theirs>,
    classes: Vec<(bool, bool, Option<f64>)>,
}

#[derive(Deserialize)]
struct Theirs {
    trials: u32,
    time_s: f64,
    goals: Vec<TheirGoal>,
}

#[derive(Deserialize)]
struct TheirGoal {
    lower: Option<f64>,
    upper: Option<f64>,
    conditional_throughput: Option<f64>,
}

fn fdio() -> Vec<MlrGoal> {
    vec![MlrGoal::fdio(LossRatio::ZERO), MlrGoal::fdio(ratio(0.005))]
}

/// Returns the capacity of the device with this seed: between 1 and 28 Mpps.
fn capacity(seed: u64) -> f64 {
    1e6 * 28f64.powf(chance(seed, 1 << 40))
}

/// One search of this crate and one of the library, on the same device.
struct Pair {
    device: Device,
    ours: Searched,
    theirs: Theirs,
}

type MakeDevice = fn(f64) -> Device;

fn devices() -> Vec<(&'static str, MakeDevice)> {
    vec![
        ("fixed", Device::of),
        ("noisy", |pps| Device {
            noise: 0.02,
            ..Device::of(pps)
        }),
        ("two-band", |pps| Device {
            band: 0.8,
            band_chance: 0.2,
            ..Device::of(pps)
        }),
        ("degrading", |pps| Device {
            degrades: 0.3,
            ..Device::of(pps)
        }),
        ("lossy at any load", |pps| Device {
            base_loss: 0.001,
            ..Device::of(pps)
        }),
        ("above the maximum", |_| Device::of(40e6)),
        ("below the minimum", |_| Device::of(5_000.0)),
        ("bursts", |pps| Device {
            bursts_per_s: 0.03,
            ..Device::of(pps)
        }),
    ]
}

fn job(config: &MlrSearchConfig, device: Device, seed: u64) -> Value {
    json!({
        "goals": config.goals,
        "min_rate_pps": config.min_rate_pps,
        "max_rate_pps": config.max_rate_pps,
        "overhead_s": OVERHEAD_S,
        "device": device,
        "seed": seed,
    })
}

/// Runs both searches on every device and with each seed.
fn both(config: &MlrSearchConfig, seeds: u64) -> Vec<(&'static str, Vec<Pair>)> {
    let mut ours = Vec::new();
    let mut jobs = Vec::new();
    for (name, make) in devices() {
        for seed in 0..seeds {
            let device = make(capacity(seed));
            jobs.push(job(config, device, seed));
            ours.push((name, device, search(config, device, seed)));
        }
    }
    let answers = printed(&json!({ "searches": jobs, "classes": [] }));
    let mut groups: Vec<(&'static str, Vec<Pair>)> = Vec::new();
    for ((name, device, ours), theirs) in ours.into_iter().zip(answers.searches) {
        let pair = Pair {
            device,
            ours,
            theirs,
        };
        match groups.last_mut() {
            Some((last, pairs)) if *last == name => pairs.push(pair),
            _ => groups.push((name, vec![pair])),
        }
    }
    groups
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

/// Returns one mean per goal over all seeds; `None` if any seed has no result.
fn means(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let values: Option<Vec<f64>> = values.collect();
    values.map(|values| mean(values.into_iter()))
}

/// Asserts that the results of one goal agree: seed by seed if the device is deterministic, otherwise on average.
fn check_goal(name: &str, pairs: &[Pair], goal: usize, width: f64) {
    let is_random = matches!(name, "noisy" | "two-band" | "bursts");
    let near = |ours: Option<f64>, theirs: Option<f64>, what: &str| match (ours, theirs) {
        (None, None) => {}
        (Some(ours), Some(theirs)) => {
            let difference = (ours / theirs - 1.0).abs();
            assert!(
                difference <= width,
                "{name}, goal {goal}, {what}: {ours} and {theirs}"
            );
        }
        other => panic!("{name}, goal {goal}, {what}: {other:?}"),
    };
    let part = |device: &Device, rate: Option<f64>| rate.map(|rate| rate / device.capacity_pps);
    let values = |pair: &Pair| {
        let (ours, theirs) = (&pair.ours.found.goals[goal], &pair.theirs.goals[goal]);
        [
            (
                "lower",
                ours.lower.map(|bound| bound.rate_pps),
                theirs.lower,
            ),
            (
                "upper",
                ours.upper.map(|bound| bound.rate_pps),
                theirs.upper,
            ),
            (
                "throughput",
                ours.conditional_throughput_pps,
                theirs.conditional_throughput,
            ),
        ]
        .map(|(what, ours, theirs)| (what, part(&pair.device, ours), part(&pair.device, theirs)))
    };
    let values: Vec<_> = pairs.iter().map(values).collect();
    if !is_random {
        for (what, ours, theirs) in values.into_iter().flatten() {
            near(ours, theirs, what);
        }
        return;
    }
    for at in 0..3 {
        let ours = means(values.iter().map(|three| three[at].1));
        let theirs = means(values.iter().map(|three| three[at].2));
        near(ours, theirs, values[0][at].0);
    }
}

fn check_time(name: &str, pairs: &[Pair]) {
    let ours = mean(pairs.iter().map(|pair| pair.ours.time_s));
    let theirs = mean(pairs.iter().map(|pair| pair.theirs.time_s));
    let trials = mean(pairs.iter().map(|pair| f64::from(pair.theirs.trials)));
    println!("{name}: {ours:.1} s, the library {theirs:.1} s in {trials:.1} trials");
    assert!(ours <= theirs, "{name}: {ours} s, the library {theirs} s");
}

#[test]
fn finds_what_the_library_finds_in_no_more_time() {
    for (name, pairs) in &both(&config(fdio()), 200) {
        check_time(name, pairs);
        for goal in 0..2 {
            check_goal(name, pairs, goal, 0.005);
        }
    }
}

#[test]
fn long_trials_take_no_more_time_than_the_library_either() {
    let two = vec![
        MlrGoal {
            duration_sum_s: 120.0,
            exceed_ratio: 0.5,
            ..MlrGoal::rfc2544()
        },
        MlrGoal {
            loss_ratio: ratio(0.005),
            ..MlrGoal::rfc2544()
        },
    ];
    for goals in [vec![MlrGoal::rfc2544()], two] {
        let count = goals.len();
        for (name, pairs) in &both(&config(goals), 100) {
            check_time(name, pairs);
            // If no trial may exceed the loss ratio, the result on a random device depends on chance.
            if !matches!(*name, "noisy" | "two-band" | "bursts") {
                (0..count).for_each(|goal| check_goal(name, pairs, goal, 0.005));
            }
        }
    }
}

/// Returns a trial set of any kind: full-length and short, low and high loss, loss equal to the goal's, ties.
fn trial_set(seed: u64) -> (MlrGoal, Vec<Measured>) {
    let dice = |throw| chance(seed, throw);
    let pick = |throw: u64, from: &[f64]| from[(dice(throw) * from.len() as f64) as usize];
    let final_s = pick(0, &[1.0, 60.0]);
    let goal = MlrGoal {
        final_trial_duration_s: final_s,
        duration_sum_s: final_s * pick(1, &[1.0, 2.0, 21.0]),
        loss_ratio: ratio(pick(2, &[0.0, 0.005])),
        exceed_ratio: pick(3, &[0.0, 0.2, 0.5, 0.75]),
        width: 0.005,
        initial_trial_duration_s: final_s,
    };
    let count = (dice(4) * 60.0) as u64;
    let shorts = dice(5);
    let highs = dice(6);
    let trial = |at: u64| {
        let throw = 10 + at * 4;
        let intended_s = if dice(throw) < shorts {
            final_s / 4.0
        } else {
            final_s
        };
        let loss_ratio = if dice(throw + 1) < highs {
            pick(throw + 2, &[0.005_000_1, 0.01, 0.5, 1.0])
        } else {
            pick(throw + 2, &[0.0, 0.0, 0.001, 0.005])
        };
        Measured {
            intended_s,
            effective_s: intended_s + pick(throw + 3, &[0.0, 0.25, 0.5]),
            loss_ratio,
        }
    };
    (goal, (0..count).map(trial).collect())
}

#[test]
fn classes_are_those_of_the_library_trial_set_by_trial_set() {
    let sets: Vec<_> = (0..4000).map(trial_set).collect();
    let classes: Vec<Value> = sets
        .iter()
        .map(|(goal, trials)| {
            let trials: Vec<_> = trials
                .iter()
                .map(|trial| (trial.intended_s, trial.effective_s, trial.loss_ratio))
                .collect();
            json!({ "goal": goal, "trials": trials })
        })
        .collect();
    let answers = printed(&json!({ "searches": [], "classes": classes }));
    let mut observed = [0; 3];
    for ((goal, trials), (optimistic, pessimistic, loss_ratio)) in sets.iter().zip(answers.classes)
    {
        let mut sums = DurationSums::default();
        trials.iter().for_each(|trial| sums.add(goal, *trial));
        let class = match (optimistic, pessimistic) {
            (true, true) => LoadClass::LowerBound,
            (false, false) => LoadClass::UpperBound,
            _ => LoadClass::Undecided,
        };
        assert_eq!(sums.class(goal), class, "{trials:?} for {goal:?}");
        observed[class as usize] += 1;
        let passed = conditional_throughput(goal, 1e6, trials);
        assert_eq!(
            passed,
            1e6 * (1.0 - loss_ratio.unwrap_or(1.0)),
            "{trials:?} for {goal:?}"
        );
    }
    assert!(observed.iter().all(|count| *count > 300), "{observed:?}");
}
