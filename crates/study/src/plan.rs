// SPDX-License-Identifier: Apache-2.0
//! What a study does in each case and at each frame size, step by step; pure, like the methods it drives.

use quietwire_search::{
    ConfigError, Findings, LossRatio, LossSweep, LossSweepConfig, Method, Outcome, RecordError,
    SingleRun, SingleRunConfig, Step, TrialRequest,
};
use serde::{Deserialize, Serialize};

use crate::file::{Goal, LatencyProbe, Percent, Search, StudyFile, Sweep};

/// Most trials of one search: far over what any sensible one takes.
const SEARCH_TRIALS_MAX: u32 = 10_000;

/// What a step is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "goal")]
pub enum StepKind {
    /// The search for one goal, by its name.
    Search(String),
    /// The frame loss rate sweep.
    Sweep,
    /// Trials at a low load.
    Latency,
}

impl std::fmt::Display for StepKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Search(goal) => write!(f, "search {goal}"),
            Self::Sweep => f.write_str("loss sweep"),
            Self::Latency => f.write_str("latency"),
        }
    }
}

/// A step before its maximum rate is known.
#[derive(Clone, Debug, PartialEq)]
pub struct StepPlan {
    /// What it is for.
    pub kind: StepKind,
    source: Source,
    duration_s: f64,
    invalid_repeats: u32,
}

#[derive(Clone, Debug, PartialEq)]
enum Source {
    Search(Search, Goal),
    Sweep(Sweep),
    Latency(LatencyProbe),
}

/// At most so much is to be done; a study is usually through earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Trials, when none is invalid.
    pub trials: u32,
    /// Time that they take, seconds; setting up cases not included.
    pub duration_s: f64,
}

impl StepPlan {
    /// The steps of every case at every frame size, in order: each goal's search, the sweep, the latency trials.
    #[must_use]
    pub fn of(file: &StudyFile) -> Vec<Self> {
        let step = |kind, duration_s, source| Self {
            kind,
            source,
            duration_s,
            invalid_repeats: file.trials.invalid_repeats,
        };
        let mut steps = Vec::new();
        if let Some(search) = &file.search {
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
        steps
    }

    /// The state machine of this step.
    ///
    /// # Errors
    /// A rate that a method cannot work with.
    pub(crate) fn machine(&self, max_rate_pps: f64) -> Result<Machine, ConfigError> {
        match &self.source {
            Source::Search(search, goal) => {
                let config = self.search_config(search, goal, max_rate_pps)?;
                Ok(Machine::Method(Box::new(SingleRun::new(config)?)))
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
            Source::Latency(latency) => Ok(Machine::Repeats(Repeats {
                request: TrialRequest {
                    rate_pps: latency_rate(latency, max_rate_pps),
                    duration_s: self.duration_s,
                },
                left: latency.repeats,
                invalid_in_a_row: 0,
                max_invalid_repeats: self.invalid_repeats,
            })),
        }
    }

    fn search_config(
        &self,
        search: &Search,
        goal: &Goal,
        max_rate_pps: f64,
    ) -> Result<SingleRunConfig, ConfigError> {
        let of_max = |percent: Percent| percent.of(max_rate_pps);
        Ok(SingleRunConfig {
            start_rate_pps: of_max(search.start_rate_percent),
            start_step_pps: of_max(search.start_step_percent),
            resolution_pps: of_max(search.resolution_percent),
            loss_tolerance: LossRatio::new(goal.loss_ratio)?,
            trial_duration_s: self.duration_s,
            min_rate_pps: of_max(search.resolution_percent),
            max_rate_pps,
            best_of: search.best_of,
            max_invalid_repeats: self.invalid_repeats,
            max_trials: SEARCH_TRIALS_MAX,
        })
    }

    /// Trials that this step takes at most when none is invalid.
    fn trial_bound(&self) -> u32 {
        match &self.source {
            Source::Search(search, goal) => {
                self.search_config(search, goal, 100.0).map_or(0, |config| {
                    SingleRunConfig {
                        max_invalid_repeats: 0,
                        ..config
                    }
                    .trial_bound()
                })
            }
            Source::Sweep(sweep) => u32::try_from(sweep.loads_percent.len()).unwrap_or(u32::MAX),
            Source::Latency(latency) => latency.repeats,
        }
    }
}

fn latency_rate(latency: &LatencyProbe, max_rate_pps: f64) -> f64 {
    match (latency.rate_pps, latency.rate_percent) {
        (Some(rate), _) => rate,
        (None, Some(percent)) => percent.of(max_rate_pps),
        // Refused when the file was checked; the method refuses a rate of zero too.
        (None, None) => 0.0,
    }
}

impl Estimate {
    /// Of a whole study.
    #[must_use]
    pub fn of(file: &StudyFile) -> Self {
        let around_s = file.trials.warm_up_s + file.trials.drain_s;
        let sizes = u32::try_from(file.traffic.frame_sizes.len()).unwrap_or(u32::MAX);
        let cases = u32::try_from(file.cases.len()).unwrap_or(u32::MAX);
        let times = sizes.saturating_mul(cases).saturating_mul(file.rounds);
        StepPlan::of(file)
            .iter()
            .map(|step| (step.trial_bound().saturating_mul(times), step.duration_s))
            .fold(Self::default(), |sum, (trials, duration_s)| Self {
                trials: sum.trials.saturating_add(trials),
                duration_s: sum.duration_s + f64::from(trials) * (duration_s + around_s),
            })
    }
}

/// A step at work: asks for a trial, is told the outcome, until it is done.
pub(crate) enum Machine {
    Method(Box<dyn Method>),
    Repeats(Repeats),
}

/// What a step wants next.
pub(crate) enum Next {
    Run(TrialRequest),
    /// Nothing more; a search's findings.
    Done(Option<Findings>),
}

impl Machine {
    pub(crate) fn next(&mut self) -> Next {
        match self {
            Self::Method(method) => match method.step() {
                Step::Run(request) => Next::Run(request),
                Step::Done(result) => Next::Done(Some(result.findings)),
            },
            Self::Repeats(repeats) if repeats.left == 0 => Next::Done(None),
            Self::Repeats(repeats) => Next::Run(repeats.request),
        }
    }

    pub(crate) fn record(&mut self, outcome: Outcome) -> Result<(), RecordError> {
        match self {
            Self::Method(method) => method.record(outcome),
            Self::Repeats(repeats) => {
                repeats.record(&outcome);
                Ok(())
            }
        }
    }
}

/// The same trial, a number of times; an invalid one is made again so many times, then given up.
pub(crate) struct Repeats {
    request: TrialRequest,
    left: u32,
    invalid_in_a_row: u32,
    max_invalid_repeats: u32,
}

impl Repeats {
    fn record(&mut self, outcome: &Outcome) {
        if matches!(outcome, Outcome::Invalid { .. })
            && self.invalid_in_a_row < self.max_invalid_repeats
        {
            self.invalid_in_a_row += 1;
        } else {
            self.invalid_in_a_row = 0;
            self.left = self.left.saturating_sub(1);
        }
    }
}
