// SPDX-License-Identifier: Apache-2.0
//! What a study does in each case and at each frame size, step by step; pure, like the methods it drives.

mod estimate;
mod machine;
mod methods;
mod procedures;
mod step_kind;

use quietwire_search::{
    BestWorstConfig, ConfigError, Findings, LossRatio, LossSweep, LossSweepConfig, MlrGoal,
    MlrSearchConfig, Reachable, Repeat, RepeatConfig, Repeated, Sides, SingleRunConfig,
    TrialRequest,
};

use crate::file::{
    ApplicationPlan, Case, Goal, LatencyProbe, Percent, Search, SearchMethod, StudyFile, Sweep,
    TenantsPlan,
};
use estimate::{CONFIDENCE, MIN_RATE};

pub use estimate::Estimate;
pub(crate) use machine::{Asked, Found, Machine, Next, Repeats};
pub use step_kind::StepKind;

/// Most trials of one search: far over what any sensible one takes.
const SEARCH_TRIALS_MAX: u32 = 10_000;
/// Trials at each rate of best-of-N and worst-of-N, where the file says nothing.
const TRIALS_PER_RATE: u32 = 5;
/// Maximum rate that estimates count with before it is known, frames per second: 10-Gbit/s Ethernet.
const RATE_GUESS_PPS: f64 = 14.88e6;
/// Short trials that an MLRsearch takes for a goal before it measures in full, at most, on a quiet device.
const GOAL_SHORT_TRIALS: f64 = 20.0;

/// A step before its maximum rate is known.
#[derive(Clone, Debug, PartialEq)]
pub struct StepPlan {
    /// What it is for.
    pub kind: StepKind,
    source: Source,
    duration_s: f64,
    invalid_repeats: u32,
    drain_s: f64,
}

#[derive(Clone, Debug, PartialEq)]
enum Source {
    Search(Search, Goal),
    Goals(Search, Vec<MlrGoal>),
    Sweep(Sweep),
    Latency(LatencyProbe),
    Further(methods::Further),
    /// With the names of all goals.
    Procedure(procedures::Asked, Vec<String>),
    Application(ApplicationPlan),
    /// With how many there are.
    Tenants(TenantsPlan, u32),
}

impl Estimate {
    /// Of a whole study.
    #[must_use]
    pub fn of(file: &StudyFile) -> Self {
        Self::of_cases(file, file.plain_cases().count(), file.tenants_tried())
    }

    /// Of so many of a study's cases, and of so many numbers of tenants.
    #[must_use]
    pub fn of_cases(file: &StudyFile, cases: usize, tenants: usize) -> Self {
        let around_s = file.trials.warm_up_s + file.trials.drain_s;
        let sizes = u32::try_from(file.traffic.frame_sizes.len()).unwrap_or(u32::MAX);
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let rounds = sizes.saturating_mul(file.rounds);
        let all = |steps: Vec<StepPlan>| {
            let bounds = steps.iter().map(|step| step.bound(around_s));
            bounds.fold(Self::default(), Self::plus).times(rounds)
        };
        let plain = all(StepPlan::of(file)).times(number(cases));
        match file.tenants_case(1) {
            Some((_, case)) => {
                plain.plus(all(StepPlan::of_case(file, case)).times(number(tenants)))
            }
            None => plain,
        }
    }
}

impl StepPlan {
    /// The steps of a case at every frame size, in order: where it is one of `[tenants]`, whether the loss goal holds; then those of
    /// all cases.
    #[must_use]
    pub fn of_case(file: &StudyFile, case: &Case) -> Vec<Self> {
        let tenants = file.tenants.zip(case.tenants);
        let own = tenants.map(|(plan, count)| {
            Self::new(
                file,
                StepKind::Tenants,
                file.trials.duration_s,
                Source::Tenants(plan, count),
            )
        });
        own.into_iter().chain(Self::of(file)).collect()
    }

    fn new(file: &StudyFile, kind: StepKind, duration_s: f64, source: Source) -> Self {
        Self {
            kind,
            source,
            duration_s,
            invalid_repeats: file.trials.invalid_repeats,
            drain_s: file.trials.drain_s,
        }
    }

    /// The steps that all cases have at every frame size, in order: each goal's search, the sweep, the latency trials, and the
    /// further methods, some of which take their rates from what was found before.
    #[must_use]
    pub fn of(file: &StudyFile) -> Vec<Self> {
        let step = |kind, duration_s, source| Self::new(file, kind, duration_s, source);
        let mut steps = Vec::new();
        if let Some(search) = &file.search
            && search.method == SearchMethod::MlrSearch
        {
            // What is no goal was refused when the file was checked.
            let goals = search
                .goals
                .iter()
                .filter_map(|goal| goal.mlr(&file.trials).ok());
            let source = Source::Goals(search.clone(), goals.collect());
            steps.push(step(StepKind::Goals, file.trials.duration_s, source));
        } else if let Some(search) = &file.search {
            for goal in &search.goals {
                let source = Source::Search(search.clone(), goal.clone());
                let kind = StepKind::Search(goal.name.clone());
                steps.push(step(kind, file.trials.duration_s, source));
            }
        }
        if let Some(sweep) = &file.sweep {
            let source = Source::Sweep(sweep.clone());
            steps.push(step(StepKind::Sweep, file.trials.duration_s, source));
        }
        if let Some(latency) = &file.latency {
            let source = Source::Latency(latency.clone());
            steps.push(step(StepKind::Latency, latency.duration_s, source));
        }
        for (kind, duration_s, further) in methods::of(file) {
            steps.push(step(kind, duration_s, Source::Further(further)));
        }
        for (kind, asked) in procedures::of(file) {
            let source = Source::Procedure(asked, methods::goals(file));
            steps.push(step(kind, file.trials.duration_s, source));
        }
        if let Some(plan) = file.application {
            let duration_s = f64::from(2 * plan.tcp_s + plan.echo_s);
            let source = Source::Application(plan);
            steps.push(step(StepKind::Application, duration_s, source));
        }
        steps
    }

    /// The state machine of this step, where `found` is what the steps before it found in the same case, round and frame
    /// size.
    ///
    /// # Errors
    /// A rate that a method cannot work with.
    pub(crate) fn machine(
        &self,
        max_rate_pps: f64,
        found: &[(StepKind, Findings)],
    ) -> Result<Machine, ConfigError> {
        match &self.source {
            Source::Search(search, goal) => {
                let config = self.search_config(search, goal, max_rate_pps)?;
                let repeated = match sides(search.method) {
                    None => Repeated::SingleRun(config),
                    Some(sides) => Repeated::BestWorstOfN(of_n(search, config, sides)),
                };
                search_method(search, repeated)
            }
            Source::Application(plan) => Ok(Machine::Application(*plan, None)),
            Source::Further(further) => further.machine(&self.common(max_rate_pps), found),
            Source::Procedure(asked, goals) => {
                asked.machine(&self.common(max_rate_pps), goals, found)
            }
            Source::Goals(search, goals) => {
                let config = MlrSearchConfig {
                    goals: goals.clone(),
                    min_rate_pps: search
                        .min_rate_percent
                        .map_or(MIN_RATE * max_rate_pps, |percent| percent.of(max_rate_pps)),
                    max_rate_pps,
                    max_invalid_repeats: self.invalid_repeats,
                    max_trials: SEARCH_TRIALS_MAX,
                };
                search_method(search, Repeated::MlrSearch(config))
            }
            Source::Sweep(sweep) => {
                let config = LossSweepConfig {
                    rates_pps: sweep
                        .loads_percent
                        .iter()
                        .map(|load| load.of(max_rate_pps))
                        .collect(),
                    trial_duration_s: self.duration_s,
                    max_invalid_repeats: self.invalid_repeats,
                };
                Ok(Machine::Method(Box::new(LossSweep::new(config)?)))
            }
            Source::Latency(latency) => {
                let rate_pps = latency_rate(latency, max_rate_pps);
                Ok(self.repeats(rate_pps, latency.repeats, None))
            }
            Source::Tenants(plan, count) => {
                let rate_pps = plan.offered_pps(*count);
                Ok(self.repeats(rate_pps, plan.trials, Some(plan.loss_ratio)))
            }
        }
    }

    /// The same trial a number of times, or until it is enough.
    fn repeats(&self, rate_pps: f64, repeats: u32, enough: Option<f64>) -> Machine {
        Machine::Repeats(Repeats {
            request: TrialRequest {
                rate_pps,
                duration_s: self.duration_s,
            },
            left: repeats,
            enough,
            invalid_in_a_row: 0,
            max_invalid_repeats: self.invalid_repeats,
        })
    }

    fn common(&self, max_rate_pps: f64) -> methods::Common {
        methods::Common {
            duration_s: self.duration_s,
            invalid_repeats: self.invalid_repeats,
            max_rate_pps,
            drain_s: self.drain_s,
        }
    }

    fn search_config(
        &self,
        search: &Search,
        goal: &Goal,
        max_rate_pps: f64,
    ) -> Result<SingleRunConfig, ConfigError> {
        // What is missing was told when the file was checked; the method refuses a rate of zero too.
        let of_max = |percent: Option<Percent>| percent.map_or(0.0, |it| it.of(max_rate_pps));
        Ok(SingleRunConfig {
            start_rate_pps: of_max(search.start_rate_percent),
            start_step_pps: of_max(search.start_step_percent),
            resolution_pps: of_max(search.resolution_percent),
            loss_tolerance: LossRatio::new(goal.loss_ratio)?,
            trial_duration_s: self.duration_s,
            min_rate_pps: of_max(search.resolution_percent),
            max_rate_pps,
            best_of: search.best_of.unwrap_or(1),
            max_invalid_repeats: self.invalid_repeats,
            max_trials: SEARCH_TRIALS_MAX,
        })
    }

    /// What this step takes at most when no trial is invalid.
    fn bound(&self, around_s: f64) -> Estimate {
        let trials = match &self.source {
            Source::Search(search, goal) => self
                .search_config(search, goal, 100.0)
                .map_or(0, |config| search_bound(search, config))
                .saturating_mul(repeats(search)),
            Source::Goals(search, goals) => {
                return goals_bound(goals, around_s).times(repeats(search));
            }
            Source::Further(further) => return further.bound(self.duration_s, around_s),
            Source::Procedure(asked, _) => return asked.bound(RATE_GUESS_PPS, self.drain_s),
            Source::Sweep(sweep) => u32::try_from(sweep.loads_percent.len()).unwrap_or(u32::MAX),
            Source::Latency(latency) => latency.repeats,
            Source::Tenants(plan, _) => plan.trials,
            Source::Application(_) => {
                return Estimate {
                    trials: 0,
                    duration_s: self.duration_s,
                };
            }
        };
        Estimate {
            trials,
            duration_s: f64::from(trials) * (self.duration_s + around_s),
        }
    }
}

/// How often a search is made over.
fn repeats(search: &Search) -> u32 {
    search.repeats.unwrap_or(1)
}

/// The search once, or many times over.
fn search_method(search: &Search, repeated: Repeated) -> Result<Machine, ConfigError> {
    Ok(Machine::Method(match (search.repeats, repeated) {
        (Some(runs), repeated) => Box::new(Repeat::new(RepeatConfig {
            search: repeated,
            runs,
            confidence: search
                .confidence_percent
                .map_or(CONFIDENCE, |level| level.of(1.0)),
        })?),
        (None, search) => Box::new(Reachable::new(search)?),
    }))
}

/// Which searches with several trials at a rate a method makes; none for another method.
fn sides(method: SearchMethod) -> Option<Sides> {
    match method {
        SearchMethod::BestOfN => Some(Sides::Best),
        SearchMethod::WorstOfN => Some(Sides::Worst),
        SearchMethod::BestAndWorstOfN => Some(Sides::Both),
        SearchMethod::SingleRun | SearchMethod::MlrSearch => None,
    }
}

fn of_n(search: &Search, config: SingleRunConfig, sides: Sides) -> BestWorstConfig {
    BestWorstConfig {
        search: config,
        trials: search.trials_per_rate.unwrap_or(TRIALS_PER_RATE),
        sides,
    }
}

/// Trials of one search at most, when none is invalid.
fn search_bound(search: &Search, config: SingleRunConfig) -> u32 {
    let config = SingleRunConfig {
        max_invalid_repeats: 0,
        ..config
    };
    match sides(search.method) {
        None => config.trial_bound(),
        Some(sides) => of_n(search, config, sides).trial_bound(),
    }
}

/// Two loads measured in full for each goal and as many given up on the way, with the short trials before them: what a
/// quiet device stays under. Noise has no bound.
fn goals_bound(goals: &[MlrGoal], around_s: f64) -> Estimate {
    let of_goal = |goal: &MlrGoal| {
        let full_s = goal.final_trial_duration_s + around_s;
        let full = 4.0 * (goal.duration_sum_s / full_s).ceil();
        let short_s = goal.initial_trial_duration_s + around_s;
        Estimate {
            trials: (full + GOAL_SHORT_TRIALS) as u32,
            duration_s: full * full_s + GOAL_SHORT_TRIALS * short_s,
        }
    };
    goals
        .iter()
        .map(of_goal)
        .fold(Estimate::default(), Estimate::plus)
}

fn latency_rate(latency: &LatencyProbe, max_rate_pps: f64) -> f64 {
    match (latency.rate_pps, latency.rate_percent) {
        (Some(rate), _) => rate,
        (None, Some(percent)) => percent.of(max_rate_pps),
        // Refused when the file was checked; the method refuses a rate of zero too.
        (None, None) => 0.0,
    }
}
