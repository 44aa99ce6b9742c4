// SPDX-License-Identifier: Apache-2.0
//! What the sections of the methods beside the search and the sweep may get wrong.

use super::super::locate::At::{Index, Key};
use super::super::study_file::{Search, StudyFile};
use super::super::{Percent, SearchMethod};
use super::At;
use super::limits::{Checked, REPEATS_MAX, between, duration, fault};

/// Most rates of a loss distribution.
const RATES_MAX: u32 = 1_000;
/// Longest soak, seconds: a month.
const SOAK_S_MAX: f64 = 31.0 * 86_400.0;

/// All of them.
pub(super) fn methods(file: &StudyFile) -> Checked {
    repeats(file)?;
    loss_distribution(file)?;
    soak(file)?;
    forwarding_rate(file)?;
    latency_plan(file)
}

fn repeats(file: &StudyFile) -> Checked {
    let Some(search) = &file.search else {
        return Ok(());
    };
    match (search.repeats, search.confidence_percent) {
        (Some(repeats), confidence) => {
            between(repeats, 2, REPEATS_MAX, &[Key("search"), Key("repeats")])?;
            match confidence.map(Percent::get) {
                Some(percent) if percent >= 100.0 => fault(
                    &[Key("search"), Key("confidence-percent")],
                    "nothing is certain: write a level under 100, such as 95",
                ),
                _ => Ok(()),
            }
        }
        (None, Some(_)) => fault(
            &[Key("search"), Key("confidence-percent")],
            "a single search has no confidence interval; add repeats = 10, or leave this out",
        ),
        (None, None) => Ok(()),
    }
}

fn loss_distribution(file: &StudyFile) -> Checked {
    let Some(plan) = &file.loss_distribution else {
        return Ok(());
    };
    let at = |key| [Key("loss-distribution"), Key(key)];
    between(plan.trials, 1, REPEATS_MAX, &at("trials"))?;
    optional_duration(plan.duration_s, &at("duration-s"))?;
    match (&plan.loads_percent, &plan.between) {
        (Some(loads), None) => {
            if plan.rates.is_some() {
                return fault(
                    &at("rates"),
                    "it goes with between; with loads-percent leave it out",
                );
            }
            distinct(loads, "loss-distribution", "loads-percent")
        }
        (None, Some(goal)) => {
            between(plan.rates.unwrap_or(5), 1, RATES_MAX, &at("rates"))?;
            let search = known_goal(file, goal, &at("between"))?;
            if search.is_some_and(|search| search.method != SearchMethod::BestAndWorstOfN) {
                return fault(
                    &at("between"),
                    "the rates are between worst-of-N and best-of-N, which takes method = \"best-and-worst-of-n\" in [search]; or give loads-percent",
                );
            }
            not_repeated(search, &at("between"))
        }
        _ => fault(
            &[Key("loss-distribution")],
            "give exactly one of loads-percent and between",
        ),
    }
}

fn soak(file: &StudyFile) -> Checked {
    let Some(soak) = &file.soak else {
        return Ok(());
    };
    let at = |key| [Key("soak"), Key(key)];
    if !(soak.loss_ratio > 0.0 && soak.loss_ratio < 1.0) {
        return fault(
            &at("loss-ratio"),
            format!(
                "{} is not above 0 and under 1; a soak looks for a tiny part, such as 1e-7",
                soak.loss_ratio
            ),
        );
    }
    optional_duration(soak.first_trial_duration_s, &at("first-trial-duration-s"))?;
    duration(soak.trial_growth_s, &at("trial-growth-s"))?;
    if !(soak.duration_s > 0.0 && soak.duration_s <= SOAK_S_MAX) {
        return fault(
            &at("duration-s"),
            format!(
                "{} has to be above 0 and at most {SOAK_S_MAX} seconds",
                soak.duration_s
            ),
        );
    }
    Ok(())
}

fn forwarding_rate(file: &StudyFile) -> Checked {
    let Some(plan) = &file.forwarding_rate else {
        return Ok(());
    };
    optional_duration(
        plan.duration_s,
        &[Key("forwarding-rate"), Key("duration-s")],
    )?;
    let loads = &plan.lower_loads_percent;
    if let Some(index) = loads.iter().position(|load| load.get() >= 100.0) {
        return fault(
            &[
                Key("forwarding-rate"),
                Key("lower-loads-percent"),
                Index(index),
            ],
            "the maximum is tried anyway; write loads under 100",
        );
    }
    if loads.is_empty() {
        return Ok(());
    }
    distinct(loads, "forwarding-rate", "lower-loads-percent")
}

fn latency_plan(file: &StudyFile) -> Checked {
    let Some(plan) = &file.latency_plan else {
        return Ok(());
    };
    let at = |key| [Key("latency-plan"), Key(key)];
    let ndr = known_goal(file, &plan.ndr, &at("ndr"))?;
    known_goal(file, &plan.pdr, &at("pdr"))?;
    not_repeated(ndr, &[Key("latency-plan")])?;
    optional_duration(plan.duration_s, &at("duration-s"))?;
    let of_search = |key: fn(&Search) -> Option<Percent>| ndr.and_then(key);
    for (key, is_there) in [
        (
            "start-rate-percent",
            plan.start_rate_percent
                .or_else(|| of_search(|search| search.start_rate_percent))
                .is_some(),
        ),
        (
            "start-step-percent",
            plan.start_step_percent
                .or_else(|| of_search(|search| search.start_step_percent))
                .is_some(),
        ),
    ] {
        if !is_there {
            return fault(
                &[Key("latency-plan")],
                format!(
                    "{key} is missing, and [search] has none to take: the plan needs it for the linear steps"
                ),
            );
        }
    }
    Ok(())
}

/// The search that has the goal.
pub(super) fn known_goal<'a>(
    file: &'a StudyFile,
    goal: &str,
    path: &[At],
) -> Result<Option<&'a Search>, super::Fault> {
    let search = file.search.as_ref();
    let has_it = search.is_some_and(|search| search.goals.iter().any(|known| known.name == goal));
    if !has_it {
        fault(
            path,
            format!("there is no goal '{goal}' in [search]; name one of its goals"),
        )?;
    }
    Ok(search)
}

/// Rates are taken from one search, not from many.
pub(super) fn not_repeated(search: Option<&Search>, path: &[At]) -> Checked {
    if search.is_some_and(|search| search.repeats.is_some()) {
        return fault(
            path,
            "[search] has repeats, which give many rates for a goal; leave repeats out, or make a study of its own of this",
        );
    }
    Ok(())
}

fn optional_duration(seconds: Option<f64>, path: &[At]) -> Checked {
    seconds.map_or(Ok(()), |seconds| duration(seconds, path))
}

fn distinct(loads: &[Percent], section: &'static str, key: &'static str) -> Checked {
    if loads.is_empty() {
        return fault(
            &[Key(section), Key(key)],
            "no load is given; write [10, 50, 100]",
        );
    }
    for (index, load) in loads.iter().enumerate() {
        if loads[..index].contains(load) {
            return fault(
                &[Key(section), Key(key), Index(index)],
                format!(
                    "{} is given twice; each load is tried by itself",
                    load.get()
                ),
            );
        }
    }
    Ok(())
}
