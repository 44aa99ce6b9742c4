// SPDX-License-Identifier: Apache-2.0
//! Checks of `[search]`: keys that its method does not support or requires, and numbers out of range.

use std::collections::HashSet;

use quietwire_search::{ConfigError, MlrGoal};

use super::section::{Goal, Search};
use crate::file::limits::{Checked, REPEATS_MAX, between, duration, fault, name};
use crate::file::locate::At::{Index, Key};
use crate::file::{Percent, SearchMethod, Trials};

/// Minimum resolution, percent. Below it, rates of trials cannot be distinguished.
const RESOLUTION_PERCENT_MIN: f64 = 0.001;

/// Maximum number of trials at one rate. More trials belong in a loss distribution.
const TRIALS_AT_RATE_MAX: u32 = 100;

/// Checks the whole section.
pub(super) fn search(trials: &Trials, search: &Search) -> Checked {
    goals(search)?;
    keys(search)?;
    steps(search)?;
    mlr_goals(trials, search)?;
    repeats(search)
}

fn goals(search: &Search) -> Checked {
    if search.goals.is_empty() {
        return fault(
            &[Key("search")],
            "no goal is given (add a [[search.goal]] with a name and a loss-ratio)",
        );
    }
    let mut names = HashSet::new();
    for (index, goal) in search.goals.iter().enumerate() {
        let at = |key| [Key("search"), Key("goal"), Index(index), Key(key)];
        name(&goal.name, &at("name"))?;
        if !names.insert(&goal.name) {
            return fault(
                &at("name"),
                format!("two goals have the name '{}' (rename one)", goal.name),
            );
        }
        if !(0.0..1.0).contains(&goal.loss_ratio) {
            return fault(
                &at("loss-ratio"),
                format!(
                    "{} is not in [0, 1) (0 means no loss, 0.0001 means 0.01 %)",
                    goal.loss_ratio
                ),
            );
        }
    }
    Ok(())
}

/// Checks that the method supports every given key.
fn keys(search: &Search) -> Checked {
    use SearchMethod::{BestAndWorstOfN, BestOfN, MlrSearch, SingleRun, WorstOfN};
    let method = search.method;
    let of_n = [BestOfN, WorstOfN, BestAndWorstOfN];
    let stepping = [SingleRun, BestOfN, WorstOfN, BestAndWorstOfN];
    let keys: [(&'static str, bool, &[SearchMethod]); 6] = [
        (
            "start-rate-percent",
            search.start_rate_percent.is_some(),
            &stepping,
        ),
        (
            "start-step-percent",
            search.start_step_percent.is_some(),
            &stepping,
        ),
        (
            "resolution-percent",
            search.resolution_percent.is_some(),
            &stepping,
        ),
        ("best-of", search.best_of.is_some(), &[SingleRun]),
        ("trials-per-rate", search.trials_per_rate.is_some(), &of_n),
        (
            "min-rate-percent",
            search.min_rate_percent.is_some(),
            &[MlrSearch],
        ),
    ];
    for (key, is_there, methods) in keys {
        if is_there && !methods.contains(&method) {
            return fault(&[Key("search"), Key(key)], not_taken(method));
        }
        if !is_there && methods == stepping && stepping.contains(&method) {
            return fault(
                &[Key("search")],
                format!("{key} is missing ({method} requires it)"),
            );
        }
    }
    if method == MlrSearch {
        return Ok(());
    }
    for (index, goal) in search.goals.iter().enumerate() {
        if let Some(key) = mlr_key(goal) {
            let path = [Key("search"), Key("goal"), Index(index), Key(key)];
            return fault(&path, not_taken(method));
        }
    }
    Ok(())
}

fn not_taken(method: SearchMethod) -> String {
    format!("{method} does not support this key (remove it, or use another method)")
}

/// Returns the first key of a goal that only MLRsearch supports.
fn mlr_key(goal: &Goal) -> Option<&'static str> {
    let keys = [
        ("exceed-ratio", goal.exceed_ratio.is_some()),
        ("width-percent", goal.width_percent.is_some()),
        (
            "final-trial-duration-s",
            goal.final_trial_duration_s.is_some(),
        ),
        (
            "initial-trial-duration-s",
            goal.initial_trial_duration_s.is_some(),
        ),
        ("duration-sum-s", goal.duration_sum_s.is_some()),
    ];
    keys.into_iter()
        .find(|(_, is_there)| *is_there)
        .map(|(key, _)| key)
}

/// Checks the steps of step searches.
fn steps(search: &Search) -> Checked {
    for (key, trials) in [
        ("best-of", search.best_of),
        ("trials-per-rate", search.trials_per_rate),
    ] {
        if let Some(trials) = trials.filter(|trials| !(1..=TRIALS_AT_RATE_MAX).contains(trials)) {
            return fault(
                &[Key("search"), Key(key)],
                format!(
                    "{trials} trials at one rate are not supported (write 1 to {TRIALS_AT_RATE_MAX})"
                ),
            );
        }
    }
    let percent = |percent: Option<Percent>| percent.map(Percent::get);
    let (Some(start), Some(step), Some(resolution)) = (
        percent(search.start_rate_percent),
        percent(search.start_step_percent),
        percent(search.resolution_percent),
    ) else {
        return Ok(());
    };
    let path = [Key("search"), Key("resolution-percent")];
    if resolution > step {
        return fault(
            &path,
            format!(
                "{resolution} is above start-step-percent, {step} (write a smaller resolution: the search halves the step until it is below the resolution)"
            ),
        );
    }
    if resolution < RESOLUTION_PERCENT_MIN {
        return fault(
            &path,
            format!(
                "{resolution} is finer than trials can resolve (write {RESOLUTION_PERCENT_MIN} or more)"
            ),
        );
    }
    if start < resolution {
        return fault(
            &[Key("search"), Key("start-rate-percent")],
            format!(
                "{start} is below resolution-percent, {resolution}, the lowest rate of a search (start higher)"
            ),
        );
    }
    Ok(())
}

/// Checks the goals of an MLRsearch, with their defaults filled in.
fn mlr_goals(trials: &Trials, search: &Search) -> Checked {
    if search.method != SearchMethod::MlrSearch {
        return Ok(());
    }
    for (index, goal) in search.goals.iter().enumerate() {
        let at = |key| [Key("search"), Key("goal"), Index(index), Key(key)];
        for (key, seconds) in [
            ("final-trial-duration-s", goal.final_trial_duration_s),
            ("initial-trial-duration-s", goal.initial_trial_duration_s),
        ] {
            if let Some(seconds) = seconds {
                duration(seconds, &at(key))?;
            }
        }
        let Err(error) = goal.mlr(trials).and_then(|goal| MlrGoal::validate(&goal)) else {
            continue;
        };
        let key = match error {
            ConfigError::ExceedRatio(_) => "exceed-ratio",
            ConfigError::Width(_) => "width-percent",
            ConfigError::InitialOverFinal { .. } => "initial-trial-duration-s",
            ConfigError::NotPositive { .. } => "duration-sum-s",
            _ => "loss-ratio",
        };
        return fault(&at(key), error.to_string());
    }
    Ok(())
}

fn repeats(search: &Search) -> Checked {
    match (search.repeats, search.confidence_percent) {
        (Some(repeats), confidence) => {
            between(repeats, 2, REPEATS_MAX, &[Key("search"), Key("repeats")])?;
            match confidence.map(Percent::get) {
                Some(percent) if percent >= 100.0 => fault(
                    &[Key("search"), Key("confidence-percent")],
                    "a confidence level must be below 100 (write 95, for example)",
                ),
                _ => Ok(()),
            }
        }
        (None, Some(_)) => fault(
            &[Key("search"), Key("confidence-percent")],
            "a single search has no confidence interval (add repeats = 10, or remove this key)",
        ),
        (None, None) => Ok(()),
    }
}
