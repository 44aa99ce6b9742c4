// SPDX-License-Identifier: Apache-2.0
//! The keys of `[search]`.

use quietwire_search::{ConfigError, LossRatio, MlrGoal};
use serde::{Deserialize, Serialize};

use crate::file::{Percent, SearchMethod, Trials};

/// FD.io's: so many full trials' lengths are measured at a load.
const DURATION_SUM_TRIALS: f64 = 21.0;

/// `[search]`: the search, by one of several methods. Percentages are of the maximum rate. Which keys a method takes,
/// and which it needs, is checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Search {
    /// How to search.
    #[serde(default)]
    pub method: SearchMethod,
    /// First rate to try. Not for `mlrsearch`; the others need it.
    pub start_rate_percent: Option<Percent>,
    /// Step of the linear phase, halved in the binary phase. Not for `mlrsearch`; the others need it.
    pub start_step_percent: Option<Percent>,
    /// The search stops once its step is under this. Not for `mlrsearch`; the others need it.
    pub resolution_percent: Option<Percent>,
    /// `single-run` only: most trials at one visit of a rate; it is taken as lost only once so many in a row have lost
    /// too much. Without it one.
    pub best_of: Option<u32>,
    /// `best-of-n`, `worst-of-n` and `best-and-worst-of-n` only: N, most trials at each rate. Without it five.
    pub trials_per_rate: Option<u32>,
    /// `mlrsearch` only: rate under which nothing is offered. Without it 0.1 %.
    pub min_rate_percent: Option<Percent>,
    /// How often the whole search is made over, for mean, deviation and confidence interval. Without it once.
    pub repeats: Option<u32>,
    /// With `repeats`: level of the confidence interval. Without it 95.
    pub confidence_percent: Option<Percent>,
    /// What to search for.
    #[serde(rename = "goal")]
    pub goals: Vec<Goal>,
}

/// `[[search.goal]]`: a name and the loss that it allows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Goal {
    /// `NDR`, `PDR`.
    pub name: String,
    /// Lost over offered frames, 0 or more and under 1.
    pub loss_ratio: f64,
    /// `mlrsearch` only: part of the duration sum in which more may be lost, 0 or more and under 1. Without it 0.5.
    pub exceed_ratio: Option<f64>,
    /// `mlrsearch` only: how far apart the bounds may be, in percent of the upper one. Without it 0.5.
    pub width_percent: Option<Percent>,
    /// `mlrsearch` only: length of a full trial, seconds. Without it `duration-s` of `[trials]`.
    pub final_trial_duration_s: Option<f64>,
    /// `mlrsearch` only: length of the first trial at a load, seconds. Without it that of a full one.
    pub initial_trial_duration_s: Option<f64>,
    /// `mlrsearch` only: so much is measured at a load before it is judged, seconds, warm-up and drain included.
    /// Without it 21 full trials' lengths.
    pub duration_sum_s: Option<f64>,
}

impl Goal {
    /// The goal as MLRsearch takes it, with what is left out filled in: FD.io's values, and trials as long as others.
    pub(crate) fn mlr(&self, trials: &Trials) -> Result<MlrGoal, ConfigError> {
        let final_trial_duration_s = self.final_trial_duration_s.unwrap_or(trials.duration_s);
        Ok(MlrGoal {
            final_trial_duration_s,
            duration_sum_s: self
                .duration_sum_s
                .unwrap_or(DURATION_SUM_TRIALS * final_trial_duration_s),
            loss_ratio: LossRatio::new(self.loss_ratio)?,
            exceed_ratio: self.exceed_ratio.unwrap_or(0.5),
            width: self.width_percent.map_or(0.005, |width| width.of(1.0)),
            initial_trial_duration_s: self
                .initial_trial_duration_s
                .unwrap_or(final_trial_duration_s),
        })
    }
}
