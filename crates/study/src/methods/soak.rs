// SPDX-License-Identifier: Apache-2.0
//! `[soak]`: the load at which a tiny share of the frames is lost over a long time (FD.io PLRsearch).

use quietwire_search::{ConfigError, LossRatio, Soak, SoakConfig};
use serde::{Deserialize, Serialize};

use super::checks::optional_duration;
use super::estimate::{Estimate, MIN_RATE};
use super::machine::Machine;
use super::method::{
    Common, FoundBefore, MeasuredMethod, Method, Offered, Planned, RateSearch, StudyContext, Work,
};
use super::step_kind::StepKind;
use crate::file::Percent;
use crate::file::limits::{Checked, duration, fault};
use crate::file::locate::At::Key;

/// Maximum duration of a soak, seconds: a month.
const DURATION_S_MAX: f64 = 31.0 * 86_400.0;

/// Search for the load at which a tiny share of the frames is lost over a long time (`[soak]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SoakPlan {
    /// Target loss ratio, above 0 and below 1. Default: 1e-7.
    #[serde(default = "loss_ratio")]
    pub loss_ratio: f64,
    /// Lowest rate to offer. Default: 0.1 %.
    pub min_rate_percent: Option<Percent>,
    /// Duration of the first trial, seconds. Default: `duration-s` of `[trials]`.
    pub first_trial_duration_s: Option<f64>,
    /// Increment of the duration from one valid trial to the next, seconds. Default: 0.1.
    #[serde(default = "trial_growth_s")]
    pub trial_growth_s: f64,
    /// Total duration of the valid trials, seconds.
    pub duration_s: f64,
}

fn loss_ratio() -> f64 {
    1e-7
}

fn trial_growth_s() -> f64 {
    0.1
}

impl Method for SoakPlan {
    fn section(&self) -> &'static str {
        "soak"
    }

    fn check(&self, _around: &StudyContext<'_>) -> Checked {
        let at = |key| [Key("soak"), Key(key)];
        if !(self.loss_ratio > 0.0 && self.loss_ratio < 1.0) {
            return fault(
                &at("loss-ratio"),
                format!(
                    "{} is not above 0 and below 1 (write a tiny ratio, such as 1e-7)",
                    self.loss_ratio
                ),
            );
        }
        optional_duration(self.first_trial_duration_s, &at("first-trial-duration-s"))?;
        duration(self.trial_growth_s, &at("trial-growth-s"))?;
        if !(self.duration_s > 0.0 && self.duration_s <= DURATION_S_MAX) {
            return fault(
                &at("duration-s"),
                format!(
                    "{} must be above 0 and at most {DURATION_S_MAX} seconds",
                    self.duration_s
                ),
            );
        }
        Ok(())
    }

    fn steps(&self, around: &StudyContext<'_>) -> Vec<Planned> {
        let first_s = self
            .first_trial_duration_s
            .unwrap_or(around.trials.duration_s);
        Planned::new(StepKind::Soak, first_s, self.clone())
    }

    fn shorten(&mut self) {}
}

impl Work for SoakPlan {
    fn machine(&self, common: &Common, _found: FoundBefore<'_>) -> Result<Machine, ConfigError> {
        let config = SoakConfig {
            loss_ratio: LossRatio::new(self.loss_ratio)?,
            min_rate_pps: self
                .min_rate_percent
                .map_or(MIN_RATE * common.max_rate_pps, |percent| {
                    percent.of(common.max_rate_pps)
                }),
            max_rate_pps: common.max_rate_pps,
            first_trial_duration_s: common.duration_s,
            trial_growth_s: self.trial_growth_s,
            duration_s: self.duration_s,
            max_invalid_repeats: common.invalid_repeats,
        };
        Ok(Machine::Method(Box::new(Soak::new(config)?)))
    }

    /// Trials grow until their total duration is that of the soak: n trials last n·first + growth·n(n-1)/2.
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
    fn bound(&self, common: &Common) -> Estimate {
        let (first_s, around_s) = (common.duration_s, common.around_s);
        let half = self.trial_growth_s / 2.0;
        let linear = first_s - half;
        let trials =
            ((linear * linear + 4.0 * half * self.duration_s).sqrt() - linear) / (2.0 * half);
        let trials = trials.ceil().max(1.0);
        Estimate {
            trials: trials as u32,
            duration_s: trials * (first_s + around_s) + half * trials * (trials - 1.0),
        }
    }
}

impl Offered for SoakPlan {
    const MEASURED: &'static [MeasuredMethod] = &[MeasuredMethod {
        name: "soak",
        section: "soak",
        defaults: &[("duration-s", "60")],
        search: RateSearch::No,
    }];
}
