// SPDX-License-Identifier: Apache-2.0
//! Keys of `[search]`.

use quietwire_search::{ConfigError, LossRatio, MlrGoal};
use serde::{Deserialize, Serialize};

use crate::file::{Percent, SearchMethod, Trials};

/// Multiple of the full trial duration that is measured at a load (FD.io's value).
const DURATION_SUM_TRIALS: f64 = 21.0;

/// Search for the throughput (`[search]`). Percentages are of the maximum rate. The check rejects keys that the method does not support
/// and reports those that it requires.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Search {
    /// Search method.
    #[serde(default)]
    pub method: SearchMethod,
    /// First rate to try. Required by all methods but `mlrsearch`, which does not support it.
    pub start_rate_percent: Option<Percent>,
    /// Step of the linear phase, halved in the binary phase. Required by all methods but `mlrsearch`, which does not support it.
    pub start_step_percent: Option<Percent>,
    /// Resolution: the search ends once its step is below it. Required by all methods but `mlrsearch`, which does not support it.
    pub resolution_percent: Option<Percent>,
    /// `single-run` only: maximum number of trials at one visit of a rate. The rate fails only if this number of consecutive trials
    /// has too much loss. Default: 1.
    pub best_of: Option<u32>,
    /// `best-of-n`, `worst-of-n` and `best-and-worst-of-n` only: N, the maximum number of trials at each rate. Default: 5.
    pub trials_per_rate: Option<u32>,
    /// `mlrsearch` only: lowest rate to offer. Default: 0.1 %.
    pub min_rate_percent: Option<Percent>,
    /// Number of repeats of the whole search, for mean, deviation and confidence interval. Default: 1.
    pub repeats: Option<u32>,
    /// With `repeats`: level of the confidence interval. Default: 95.
    pub confidence_percent: Option<Percent>,
    /// Goals of the search.
    #[serde(rename = "goal")]
    pub goals: Vec<Goal>,
}

/// A goal (`[[search.goal]]`): a name and the allowed loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Goal {
    /// Name, such as `NDR` or `PDR`.
    pub name: String,
    /// Loss ratio, 0 or more and below 1.
    pub loss_ratio: f64,
    /// `mlrsearch` only: share of the duration sum in which the loss may be higher, 0 or more and below 1. Default: 0.5.
    pub exceed_ratio: Option<f64>,
    /// `mlrsearch` only: distance of the bounds, in percent of the upper one. Default: 0.5.
    pub width_percent: Option<Percent>,
    /// `mlrsearch` only: duration of a full trial, seconds. Default: `duration-s` of `[trials]`.
    pub final_trial_duration_s: Option<f64>,
    /// `mlrsearch` only: duration of the first trial at a load, seconds. Default: that of a full trial.
    pub initial_trial_duration_s: Option<f64>,
    /// `mlrsearch` only: duration sum at a load before it is classified, seconds, warm-up and drain included.
    /// Default: 21 times the duration of a full trial.
    pub duration_sum_s: Option<f64>,
}

impl Goal {
    /// Returns the goal for MLRsearch, with defaults filled in: FD.io's values, and the trial duration of the study.
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
