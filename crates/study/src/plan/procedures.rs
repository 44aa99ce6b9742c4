// SPDX-License-Identifier: Apache-2.0
//! Methods that take more than trials: what their state machines are made from.

use quietwire_search::procedure::{
    AddressCaching, AddressCachingConfig, AddressLearningRate, AddressLearningRateConfig,
    BackToBack, BackToBackConfig, Procedure, Reset, ResetConfig, SystemRecovery,
    SystemRecoveryConfig,
};
use quietwire_search::{ConfigError, Findings};

use super::estimate::{CONFIDENCE, Estimate};
use super::machine::Machine;
use super::methods::{Common, rate_of};
use super::step_kind::StepKind;
use crate::file::{
    AddressCachingPlan, AddressLearningRatePlan, BackToBackPlan, ResetPlan, StudyFile,
    SystemRecoveryPlan, Throughput,
};

/// What the file asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Asked {
    BackToBack(BackToBackPlan),
    SystemRecovery(SystemRecoveryPlan),
    Reset(ResetPlan),
    AddressCaching(AddressCachingPlan),
    AddressLearningRate(AddressLearningRatePlan),
}

/// Each with its kind, in the order in which they are made: the one after which the device is another comes last.
pub(super) fn of(file: &StudyFile) -> Vec<(StepKind, Asked)> {
    let caching = file.address_caching.clone().map(Asked::AddressCaching);
    let learning = file.address_learning_rate.clone();
    let learning = learning.map(Asked::AddressLearningRate);
    [
        file.back_to_back.clone().map(Asked::BackToBack),
        file.system_recovery.clone().map(Asked::SystemRecovery),
        caching,
        learning,
        file.reset.clone().map(Asked::Reset),
    ]
    .into_iter()
    .flatten()
    .map(|asked| (asked.kind(), asked))
    .collect()
}

impl Asked {
    fn kind(&self) -> StepKind {
        match self {
            Self::BackToBack(_) => StepKind::BackToBack,
            Self::SystemRecovery(_) => StepKind::SystemRecovery,
            Self::Reset(_) => StepKind::Reset,
            Self::AddressCaching(_) => StepKind::AddressCaching,
            Self::AddressLearningRate(_) => StepKind::AddressLearningRate,
        }
    }

    /// The state machine; nothing where the throughput that it starts from was not found, or tells nothing.
    pub(super) fn machine(
        &self,
        common: &Common,
        goals: &[String],
        found: &[(StepKind, Findings)],
    ) -> Result<Machine, ConfigError> {
        let pps = |throughput: Throughput<'_>| match throughput {
            Throughput::Of(percent) => Some(percent.of(common.max_rate_pps)),
            Throughput::OfGoal(goal) => rate_of(goal, goals, found),
        };
        let procedure = match self {
            Self::BackToBack(plan) => pps(plan.throughput())
                // A device that takes every rate never has to store frames (RFC 9004, section 4).
                .filter(|rate_pps| *rate_pps < common.max_rate_pps)
                .map(|rate_pps| back_to_back(plan, common, rate_pps)),
            Self::SystemRecovery(plan) => {
                pps(plan.throughput()).map(|rate_pps| system_recovery(plan, common, rate_pps))
            }
            Self::Reset(plan) => {
                pps(plan.throughput()).map(|rate_pps| reset(plan, common, rate_pps))
            }
            Self::AddressCaching(plan) => Some(address_caching(plan, common)),
            Self::AddressLearningRate(plan) => Some(address_learning_rate(plan, common)),
        };
        match procedure {
            None => Ok(Machine::Nothing),
            Some(procedure) => Ok(Machine::Procedure(procedure?)),
        }
    }

    /// Actions at most when none is invalid, and how long they take.
    pub(super) fn bound(&self, max_rate_pps: f64, drain_s: f64) -> Estimate {
        let halvings = |from: f64, to: u32| (from / f64::from(to)).log2().ceil().max(0.0) + 1.0;
        let (actions, each_s) = match self {
            Self::BackToBack(plan) => {
                let frames = max_rate_pps * plan.longest_burst_s;
                let bursts = halvings(frames, plan.resolution_frames) * f64::from(plan.repeats);
                (bursts, plan.longest_burst_s / 2.0 + plan.pause_s(drain_s))
            }
            Self::SystemRecovery(plan) => {
                (f64::from(plan.repeats), plan.overload_s + plan.reduced_s)
            }
            Self::Reset(plan) => (f64::from(plan.repeats), plan.limit_s),
            Self::AddressCaching(plan) => {
                let numbers = halvings(f64::from(plan.max_addresses), plan.resolution_addresses);
                let each = 1.0 / plan.learning_rate_pps + 1.0 / plan.probe_rate_pps;
                (3.0 * numbers, f64::from(plan.max_addresses) * each / 3.0)
            }
            Self::AddressLearningRate(plan) => {
                let rates = halvings(f64::from(plan.max_rate_pps), plan.resolution_pps);
                let slowest = 1.0 / f64::from(plan.resolution_pps) + 1.0 / plan.probe_rate_pps;
                (3.0 * rates, f64::from(plan.addresses) * slowest / 3.0)
            }
        };
        Estimate {
            trials: actions as u32,
            duration_s: actions * each_s,
        }
    }
}

type Made = Result<Box<dyn Procedure>, ConfigError>;

fn back_to_back(plan: &BackToBackPlan, common: &Common, throughput_pps: f64) -> Made {
    Ok(Box::new(BackToBack::new(BackToBackConfig {
        max_rate_pps: common.max_rate_pps,
        throughput_pps,
        max_burst_frames: (common.max_rate_pps * plan.longest_burst_s).ceil() as u64,
        resolution_frames: u64::from(plan.resolution_frames),
        repeats: plan.repeats,
        pause_s: plan.pause_s(common.drain_s),
        confidence: CONFIDENCE,
        max_invalid_repeats: common.invalid_repeats,
    })?))
}

fn system_recovery(plan: &SystemRecoveryPlan, common: &Common, throughput_pps: f64) -> Made {
    Ok(Box::new(SystemRecovery::new(SystemRecoveryConfig {
        throughput_pps,
        max_rate_pps: common.max_rate_pps,
        overload_s: plan.overload_s,
        reduced_s: plan.reduced_s,
        repeats: plan.repeats,
        confidence: CONFIDENCE,
        max_invalid_repeats: common.invalid_repeats,
    })?))
}

fn reset(plan: &ResetPlan, common: &Common, rate_pps: f64) -> Made {
    Ok(Box::new(Reset::new(ResetConfig {
        kind: plan.kind,
        rate_pps,
        limit_s: plan.limit_s,
        repeats: plan.repeats,
        confidence: CONFIDENCE,
        max_invalid_repeats: common.invalid_repeats,
    })?))
}

fn address_caching(plan: &AddressCachingPlan, common: &Common) -> Made {
    Ok(Box::new(AddressCaching::new(AddressCachingConfig {
        max_addresses: plan.max_addresses,
        resolution_addresses: plan.resolution_addresses,
        learning_rate_pps: plan.learning_rate_pps,
        probe_rate_pps: plan.probe_rate_pps,
        max_invalid_repeats: common.invalid_repeats,
    })?))
}

fn address_learning_rate(plan: &AddressLearningRatePlan, common: &Common) -> Made {
    Ok(Box::new(AddressLearningRate::new(
        AddressLearningRateConfig {
            addresses: plan.addresses,
            max_rate_pps: plan.max_rate_pps,
            resolution_pps: plan.resolution_pps,
            probe_rate_pps: plan.probe_rate_pps,
            max_invalid_repeats: common.invalid_repeats,
        },
    )?))
}
