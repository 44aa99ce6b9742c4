// SPDX-License-Identifier: Apache-2.0
//! Work of searches.

use quietwire_search::{
    BestWorstConfig, ConfigError, LossRatio, MlrGoal, MlrSearchConfig, Reachable, Repeat,
    RepeatConfig, Sides, SingleRunConfig, ThroughputSearch,
};

use super::super::estimate::{CONFIDENCE, Estimate, MIN_RATE};
use super::super::machine::Machine;
use super::super::method::{Common, FoundBefore, Work};
use super::section::{Goal, Search};
use crate::file::{Percent, SearchMethod};

/// Maximum number of trials of one search, far above that of a sensible one.
const TRIALS_MAX: u32 = 10_000;
/// Trials at each rate of best-of-N and worst-of-N, if the file sets none.
const TRIALS_PER_RATE: u32 = 5;
/// Maximum number of short trials of an MLRsearch for a goal before the full ones, on a quiet device.
const GOAL_SHORT_TRIALS: f64 = 20.0;

/// Search for one goal.
#[derive(Debug)]
pub(super) struct ForOne {
    search: Search,
    goal: Goal,
}

/// Search for all goals.
#[derive(Debug)]
pub(super) struct ForAll {
    search: Search,
    goals: Vec<MlrGoal>,
}

impl ForOne {
    pub(super) fn new(search: &Search, goal: &Goal) -> Self {
        Self {
            search: search.clone(),
            goal: goal.clone(),
        }
    }

    fn config(&self, common: &Common) -> Result<SingleRunConfig, ConfigError> {
        let search = &self.search;
        // The check of the file reports missing keys; the method rejects a rate of zero.
        let of_max =
            |percent: Option<Percent>| percent.map_or(0.0, |it| it.of(common.max_rate_pps));
        Ok(SingleRunConfig {
            start_rate_pps: of_max(search.start_rate_percent),
            start_step_pps: of_max(search.start_step_percent),
            resolution_pps: of_max(search.resolution_percent),
            loss_tolerance: LossRatio::new(self.goal.loss_ratio)?,
            trial_duration_s: common.duration_s,
            min_rate_pps: of_max(search.resolution_percent),
            max_rate_pps: common.max_rate_pps,
            best_of: search.best_of.unwrap_or(1),
            max_invalid_repeats: common.invalid_repeats,
            max_trials: TRIALS_MAX,
        })
    }

    fn of_n(&self, config: SingleRunConfig, sides: Sides) -> BestWorstConfig {
        BestWorstConfig {
            search: config,
            trials: self.search.trials_per_rate.unwrap_or(TRIALS_PER_RATE),
            sides,
        }
    }
}

impl Work for ForOne {
    fn machine(&self, common: &Common, _found: FoundBefore<'_>) -> Result<Machine, ConfigError> {
        let config = self.config(common)?;
        let repeated = match sides(self.search.method) {
            None => ThroughputSearch::SingleRun(config),
            Some(sides) => ThroughputSearch::BestWorstOfN(self.of_n(config, sides)),
        };
        machine(common, &self.search, repeated)
    }

    fn bound(&self, common: &Common) -> Estimate {
        let hundred = Common {
            max_rate_pps: 100.0,
            invalid_repeats: 0,
            ..*common
        };
        let trials = self
            .config(&hundred)
            .map_or(0, |config| match sides(self.search.method) {
                None => config.trial_bound(),
                Some(sides) => self.of_n(config, sides).trial_bound(),
            });
        common.trials(trials.saturating_mul(repeats(&self.search)))
    }
}

impl ForAll {
    pub(super) fn new(search: &Search, goals: Vec<MlrGoal>) -> Self {
        Self {
            search: search.clone(),
            goals,
        }
    }
}

impl Work for ForAll {
    fn machine(&self, common: &Common, _found: FoundBefore<'_>) -> Result<Machine, ConfigError> {
        let config = MlrSearchConfig {
            goals: self.goals.clone(),
            min_rate_pps: self
                .search
                .min_rate_percent
                .map_or(MIN_RATE * common.max_rate_pps, |percent| {
                    percent.of(common.max_rate_pps)
                }),
            max_rate_pps: common.max_rate_pps,
            max_invalid_repeats: common.invalid_repeats,
            max_trials: TRIALS_MAX,
        };
        machine(common, &self.search, ThroughputSearch::MlrSearch(config))
    }

    /// Returns an upper bound for a quiet device: for each goal two fully measured loads, as many abandoned ones, and the short trials
    /// before them. There is no bound for noise.
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
    fn bound(&self, common: &Common) -> Estimate {
        let of_goal = |goal: &MlrGoal| {
            let full_s = goal.final_trial_duration_s + common.around_s;
            let full = 4.0 * (goal.duration_sum_s / full_s).ceil();
            let short_s = goal.initial_trial_duration_s + common.around_s;
            Estimate {
                trials: (full + GOAL_SHORT_TRIALS) as u32,
                duration_s: full * full_s + GOAL_SHORT_TRIALS * short_s,
            }
        };
        let goals = self.goals.iter().map(of_goal);
        goals
            .fold(Estimate::default(), Estimate::plus)
            .times(repeats(&self.search))
    }
}

/// Returns the number of repeats of a search.
fn repeats(search: &Search) -> u32 {
    search.repeats.unwrap_or(1)
}

/// Returns the search, repeated if requested.
fn machine(
    common: &Common,
    search: &Search,
    repeated: ThroughputSearch,
) -> Result<Machine, ConfigError> {
    let is_raising = common.is_raising;
    Ok(Machine::Method(match search.repeats {
        Some(runs) => {
            let repeat = Repeat::new(RepeatConfig {
                search: repeated,
                runs,
                confidence: search
                    .confidence_percent
                    .map_or(CONFIDENCE, |level| level.of(1.0)),
            })?;
            Box::new(if is_raising { repeat.raising() } else { repeat })
        }
        None => {
            let single = Reachable::new(repeated)?;
            Box::new(if is_raising { single.raising() } else { single })
        }
    }))
}

/// Returns which searches with several trials at a rate a method runs; none for another method.
fn sides(method: SearchMethod) -> Option<Sides> {
    match method {
        SearchMethod::BestOfN => Some(Sides::Best),
        SearchMethod::WorstOfN => Some(Sides::Worst),
        SearchMethod::BestAndWorstOfN => Some(Sides::Both),
        SearchMethod::SingleRun | SearchMethod::MlrSearch => None,
    }
}
