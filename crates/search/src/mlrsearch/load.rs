// SPDX-License-Identifier: Apache-2.0
//! Class and conditional throughput of one load for one goal, by the pseudocode of RFC 9971 ("Load Classification Code", "Conditional
//! Throughput Code").

use serde::{Deserialize, Serialize};

use super::MlrGoal;
use crate::TrialRequest;

/// Class of a load for a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadClass {
    /// The load holds, and the remaining measurements cannot change that.
    LowerBound,
    /// The load does not hold, and the remaining measurements cannot change that.
    UpperBound,
    /// More measurements are required.
    Undecided,
}

/// Valid trial, reduced to the values that a goal uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    /// Intended duration, seconds. It distinguishes full-length from short trials.
    pub(super) intended_s: f64,
    /// Effective duration, which sums count, seconds.
    pub(super) effective_s: f64,
    pub(super) loss_ratio: f64,
}

impl Measured {
    /// Returns the trial as a goal uses it. Without an effective duration, the requested one counts.
    pub(super) fn of(request: &TrialRequest, loss_ratio: f64, effective_s: Option<f64>) -> Self {
        Self {
            intended_s: request.duration_s,
            effective_s: effective_s.unwrap_or(request.duration_s),
            loss_ratio,
        }
    }
}

/// Effective durations of the trials at one load, seconds, summed for one goal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DurationSums {
    /// Full-length trials with loss at or below the goal's.
    pub full_low_s: f64,
    /// Full-length trials with more loss.
    pub full_high_s: f64,
    /// Shorter trials with loss at or below the goal's.
    pub short_low_s: f64,
    /// Shorter trials with more loss.
    pub short_high_s: f64,
}

impl DurationSums {
    /// Adds a trial.
    pub(super) fn add(&mut self, goal: &MlrGoal, trial: Measured) {
        let is_full = trial.intended_s >= goal.final_trial_duration_s;
        let sum = match (is_full, goal.loss_ratio.allows(trial.loss_ratio)) {
            (true, true) => &mut self.full_low_s,
            (true, false) => &mut self.full_high_s,
            (false, true) => &mut self.short_low_s,
            (false, false) => &mut self.short_high_s,
        };
        *sum += trial.effective_s;
    }

    /// Returns the class of a load with these sums.
    #[must_use]
    pub fn class(&self, goal: &MlrGoal) -> LoadClass {
        let exceed = goal.exceed_ratio;
        // Short high-loss trials count against the load, unless short low-loss trials compensate for them.
        let balance_s = self.short_low_s * exceed / (1.0 - exceed);
        let high_s = self.full_high_s + (self.short_high_s - balance_s).max(0.0);
        let whole_s = (self.full_low_s + high_s).max(goal.duration_sum_s);
        let allowed_s = whole_s * exceed;
        // Optimistic: all missing trials hold. Pessimistic: all of them lose too much.
        let optimistic = high_s <= allowed_s;
        let pessimistic = whole_s - self.full_low_s <= allowed_s;
        match (optimistic, pessimistic) {
            (true, true) => LoadClass::LowerBound,
            (false, false) => LoadClass::UpperBound,
            _ => LoadClass::Undecided,
        }
    }

    /// Returns the distance of the load from the opposite apparent class: weighted seconds of one kind of trials.
    pub(super) fn margin_s(&self, goal: &MlrGoal) -> f64 {
        let low_s = self.full_low_s + self.short_low_s;
        let high_s = self.full_high_s + self.short_high_s;
        (high_s * (1.0 - goal.exceed_ratio) - low_s * goal.exceed_ratio).abs()
    }

    /// Returns true if the load appears to be a lower bound by the trials so far, however few they are.
    pub(super) fn leans_low(&self, goal: &MlrGoal) -> bool {
        match self.class(goal) {
            LoadClass::LowerBound => true,
            LoadClass::UpperBound => false,
            LoadClass::Undecided => {
                let high_s = self.full_high_s + self.short_high_s;
                let all_s = high_s + self.full_low_s + self.short_low_s;
                high_s <= all_s * goal.exceed_ratio
            }
        }
    }
}

/// Returns the conditional throughput at a lower bound, frames per second: the forwarding rate in the worst trial that the exceed ratio
/// does not exclude. At a lower bound, that trial lost no more than the goal permits.
pub(super) fn conditional_throughput(goal: &MlrGoal, rate_pps: f64, trials: &[Measured]) -> f64 {
    let mut full: Vec<&Measured> = trials
        .iter()
        .filter(|trial| trial.intended_s >= goal.final_trial_duration_s)
        .collect();
    full.sort_by(|a, b| a.loss_ratio.total_cmp(&b.loss_ratio));
    let measured_s: f64 = full.iter().map(|trial| trial.effective_s).sum();
    let mut remaining_s = goal.duration_sum_s.max(measured_s) * (1.0 - goal.exceed_ratio);
    // Missing time counts as lost, and a remainder requires one more trial, unless rounding alone causes it.
    let rounding_s = measured_s * 1e-9;
    let mut loss_ratio = None;
    for trial in full {
        if loss_ratio.is_some() && remaining_s <= rounding_s {
            break;
        }
        loss_ratio = Some(trial.loss_ratio);
        remaining_s -= trial.effective_s;
    }
    let is_enough = remaining_s <= rounding_s;
    let loss_ratio = loss_ratio.filter(|_| is_enough).unwrap_or(1.0);
    rate_pps * (1.0 - loss_ratio)
}
