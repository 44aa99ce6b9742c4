// SPDX-License-Identifier: Apache-2.0
//! Methods beside the search, the sweep and the latency at a low load. Some take their rates from what a search found.

use quietwire_search::{
    ConfigError, Findings, ForwardingRate, ForwardingRateConfig, LatencyTrials, LossDistribution,
    LossDistributionConfig, LossRatio, Soak, SoakConfig, latency_plan,
};

use super::estimate::{Estimate, MIN_RATE};
use super::machine::Machine;
use super::step_kind::StepKind;
use crate::file::{
    ForwardingRatePlan, LatencyPlanSection, LossDistributionPlan, Percent, SoakPlan, StudyFile,
};

/// Rates of a loss distribution between worst and best, where the file says nothing.
const DISTRIBUTION_RATES: u32 = 5;
/// Loads of a latency plan, at most: NDR, PDR, a step under each, three parts of one of them.
const LATENCY_LOADS: u32 = 7;

/// What the file asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Further {
    LossDistribution(LossDistributionPlan),
    ForwardingRate(ForwardingRatePlan),
    LatencyPlan(LatencyRates),
    Soak(SoakPlan),
}

/// Where the rates of a latency plan come from.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LatencyRates {
    plan: LatencyPlanSection,
    /// The search's, for where the plan has none.
    start_rate: Option<Percent>,
    start_step: Option<Percent>,
    /// Names of all goals, in order.
    goals: Vec<String>,
}

/// What all of them take.
pub(super) struct Common {
    pub(super) duration_s: f64,
    pub(super) invalid_repeats: u32,
    pub(super) max_rate_pps: f64,
    pub(super) drain_s: f64,
}

/// Each with its kind and the length of its (first) trial, in the order in which they are made.
pub(super) fn of(file: &StudyFile) -> Vec<(StepKind, f64, Further)> {
    let or_usual = |duration_s: Option<f64>| duration_s.unwrap_or(file.trials.duration_s);
    let mut further = Vec::new();
    if let Some(plan) = &file.loss_distribution {
        let duration_s = or_usual(plan.duration_s);
        let source = Further::LossDistribution(plan.clone());
        further.push((StepKind::LossDistribution, duration_s, source));
    }
    if let Some(plan) = &file.forwarding_rate {
        let duration_s = or_usual(plan.duration_s);
        let source = Further::ForwardingRate(plan.clone());
        further.push((StepKind::ForwardingRate, duration_s, source));
    }
    if let Some(plan) = &file.latency_plan {
        let search = file.search.as_ref();
        let source = Further::LatencyPlan(LatencyRates {
            plan: plan.clone(),
            start_rate: search.and_then(|search| search.start_rate_percent),
            start_step: search.and_then(|search| search.start_step_percent),
            goals: goals(file),
        });
        further.push((StepKind::LatencyPlan, or_usual(plan.duration_s), source));
    }
    if let Some(plan) = &file.soak {
        let duration_s = or_usual(plan.first_trial_duration_s);
        further.push((StepKind::Soak, duration_s, Further::Soak(plan.clone())));
    }
    further
}

/// Names of all goals, in order.
pub(super) fn goals(file: &StudyFile) -> Vec<String> {
    file.search
        .iter()
        .flat_map(|search| &search.goals)
        .map(|goal| goal.name.clone())
        .collect()
}

impl Further {
    pub(super) fn machine(
        &self,
        common: &Common,
        found: &[(StepKind, Findings)],
    ) -> Result<Machine, ConfigError> {
        match self {
            Self::LossDistribution(plan) => loss_distribution(plan, common, found),
            Self::ForwardingRate(plan) => forwarding_rate(plan, common),
            Self::LatencyPlan(rates) => rates.machine(common, found),
            Self::Soak(plan) => soak(plan, common),
        }
    }

    /// Trials at most, and how long they take.
    pub(super) fn bound(&self, duration_s: f64, around_s: f64) -> Estimate {
        let count = |rates: usize| u32::try_from(rates).unwrap_or(u32::MAX);
        let trials = match self {
            Self::LossDistribution(plan) => plan
                .loads_percent
                .as_ref()
                .map_or(plan.rates.unwrap_or(DISTRIBUTION_RATES), |loads| {
                    count(loads.len())
                })
                .saturating_mul(plan.trials),
            Self::ForwardingRate(plan) => count(plan.lower_loads_percent.len()).saturating_add(1),
            Self::LatencyPlan(_) => LATENCY_LOADS,
            Self::Soak(plan) => return soak_bound(plan, duration_s, around_s),
        };
        Estimate {
            trials,
            duration_s: f64::from(trials) * (duration_s + around_s),
        }
    }
}

fn loss_distribution(
    plan: &LossDistributionPlan,
    common: &Common,
    found: &[(StepKind, Findings)],
) -> Result<Machine, ConfigError> {
    let config = match (&plan.loads_percent, &plan.between) {
        (Some(loads), _) => LossDistributionConfig {
            rates_pps: loads
                .iter()
                .map(|load| load.of(common.max_rate_pps))
                .collect(),
            trials: plan.trials,
            trial_duration_s: common.duration_s,
            max_invalid_repeats: common.invalid_repeats,
        },
        (None, goal) => {
            let Some(ends_pps) = goal.as_ref().and_then(|goal| worst_and_best(goal, found)) else {
                return Ok(Machine::Nothing);
            };
            LossDistributionConfig::between(
                ends_pps,
                plan.rates.unwrap_or(DISTRIBUTION_RATES),
                plan.trials,
                common.duration_s,
                common.invalid_repeats,
            )?
        }
    };
    Ok(Machine::Method(Box::new(LossDistribution::new(config)?)))
}

/// What worst-of-N and best-of-N found for a goal; where only one held anywhere, that one twice.
fn worst_and_best(goal: &str, found: &[(StepKind, Findings)]) -> Option<(f64, f64)> {
    let (_, findings) = found
        .iter()
        .find(|(kind, _)| matches!(kind, StepKind::Search(name) if name == goal))?;
    let Findings::BestWorst(findings) = findings else {
        return None;
    };
    let best = findings.best.as_ref().and_then(|it| it.highest_held_pps);
    let worst = findings.worst.as_ref().and_then(|it| it.highest_held_pps);
    Some((worst.or(best)?, best.or(worst)?))
}

fn forwarding_rate(plan: &ForwardingRatePlan, common: &Common) -> Result<Machine, ConfigError> {
    let config = ForwardingRateConfig {
        max_rate_pps: common.max_rate_pps,
        lower_rates_pps: plan
            .lower_loads_percent
            .iter()
            .map(|load| load.of(common.max_rate_pps))
            .collect(),
        trial_duration_s: common.duration_s,
        max_invalid_repeats: common.invalid_repeats,
    };
    Ok(Machine::Method(Box::new(ForwardingRate::new(config)?)))
}

fn soak(plan: &SoakPlan, common: &Common) -> Result<Machine, ConfigError> {
    let config = SoakConfig {
        loss_ratio: LossRatio::new(plan.loss_ratio)?,
        min_rate_pps: plan
            .min_rate_percent
            .map_or(MIN_RATE * common.max_rate_pps, |percent| {
                percent.of(common.max_rate_pps)
            }),
        max_rate_pps: common.max_rate_pps,
        first_trial_duration_s: common.duration_s,
        trial_growth_s: plan.trial_growth_s,
        duration_s: plan.duration_s,
        max_invalid_repeats: common.invalid_repeats,
    };
    Ok(Machine::Method(Box::new(Soak::new(config)?)))
}

/// Trials grow until they are as long together as the soak: n of them are n·first + growth·n(n-1)/2.
fn soak_bound(plan: &SoakPlan, first_s: f64, around_s: f64) -> Estimate {
    let half = plan.trial_growth_s / 2.0;
    let linear = first_s - half;
    let trials = ((linear * linear + 4.0 * half * plan.duration_s).sqrt() - linear) / (2.0 * half);
    let trials = trials.ceil().max(1.0);
    Estimate {
        trials: trials as u32,
        duration_s: trials * (first_s + around_s) + half * trials * (trials - 1.0),
    }
}

impl LatencyRates {
    fn machine(
        &self,
        common: &Common,
        found: &[(StepKind, Findings)],
    ) -> Result<Machine, ConfigError> {
        // What is missing was told when the file was checked; the plan refuses a rate of zero too.
        let of_max =
            |percent: Option<Percent>| percent.map_or(0.0, |it| it.of(common.max_rate_pps));
        let plan = latency_plan(
            rate_of(&self.plan.ndr, &self.goals, found),
            rate_of(&self.plan.pdr, &self.goals, found),
            of_max(self.plan.start_rate_percent.or(self.start_rate)),
            of_max(self.plan.start_step_percent.or(self.start_step)),
            self.plan.parts_of,
        )?;
        let trials = LatencyTrials::new(plan, common.duration_s, common.invalid_repeats)?;
        Ok(Machine::Method(Box::new(trials)))
    }
}

/// The rate that was found for a goal: what the page of a study shows. `goals` are the names of all, in order.
pub(super) fn rate_of(goal: &str, goals: &[String], found: &[(StepKind, Findings)]) -> Option<f64> {
    found.iter().find_map(|(kind, findings)| match kind {
        StepKind::Search(name) if name == goal => match findings {
            Findings::SingleRun(findings) => findings.highest_held_pps,
            Findings::BestWorst(findings) => findings
                .worst
                .as_ref()
                .or(findings.best.as_ref())
                .and_then(|side| side.highest_held_pps),
            _ => None,
        },
        StepKind::Goals => {
            let index = goals.iter().position(|known| known == goal)?;
            let Findings::MlrSearch(findings) = findings else {
                return None;
            };
            Some(findings.goals.get(index)?.lower?.rate_pps)
        }
        _ => None,
    })
}
