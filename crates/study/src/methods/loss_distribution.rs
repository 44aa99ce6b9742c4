// SPDX-License-Identifier: Apache-2.0
//! `[loss-distribution]`: many trials at each of a few rates.

use quietwire_search::{ConfigError, Findings, LossDistribution, LossDistributionConfig};
use serde::{Deserialize, Serialize};

use super::checks::{distinct, known_goal, not_repeated, optional_duration};
use super::estimate::Estimate;
use super::machine::Machine;
use super::method::{
    Common, FoundBefore, MeasuredMethod, Method, Offered, Planned, RateSearch, StudyContext, Work,
};
use super::step_kind::StepKind;
use crate::file::limits::{Checked, REPEATS_MAX, between, fault};
use crate::file::locate::At::Key;
use crate::file::{Percent, SearchMethod};

/// Maximum number of rates.
const RATES_MAX: u32 = 1_000;
/// Number of rates between worst and best, if the file sets none.
const RATES: u32 = 5;

/// Many trials at each of a few rates (`[loss-distribution]`). Exactly one of `loads-percent` and `between` is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LossDistributionPlan {
    /// Offered loads, percent of the maximum rate.
    pub loads_percent: Option<Vec<Percent>>,
    /// Name of a goal. The rates are between its results of worst-of-N and best-of-N.
    pub between: Option<String>,
    /// With `between`: number of rates, evenly spaced. Default: 5.
    pub rates: Option<u32>,
    /// Number of trials at each rate.
    pub trials: u32,
    /// Duration of each trial, seconds. Default: `duration-s` of `[trials]`.
    pub duration_s: Option<f64>,
}

impl Method for LossDistributionPlan {
    fn section(&self) -> &'static str {
        "loss-distribution"
    }

    fn check(&self, around: &StudyContext<'_>) -> Checked {
        let at = |key| [Key("loss-distribution"), Key(key)];
        between(self.trials, 1, REPEATS_MAX, &at("trials"))?;
        optional_duration(self.duration_s, &at("duration-s"))?;
        match (&self.loads_percent, &self.between) {
            (Some(loads), None) => {
                if self.rates.is_some() {
                    return fault(
                        &at("rates"),
                        "this key requires between (with loads-percent, remove it)",
                    );
                }
                distinct(loads, "loss-distribution", "loads-percent")
            }
            (None, Some(goal)) => {
                between(self.rates.unwrap_or(RATES), 1, RATES_MAX, &at("rates"))?;
                let search = known_goal(around, goal, &at("between"))?;
                if search.is_some_and(|search| search.method != SearchMethod::BestAndWorstOfN) {
                    return fault(
                        &at("between"),
                        "between requires method = \"best-and-worst-of-n\" in [search] (set it, or use loads-percent)",
                    );
                }
                not_repeated(search, &at("between"))
            }
            _ => fault(
                &[Key("loss-distribution")],
                "set exactly one of loads-percent and between",
            ),
        }
    }

    fn steps(&self, around: &StudyContext<'_>) -> Vec<Planned> {
        let duration_s = self.duration_s.unwrap_or(around.trials.duration_s);
        Planned::new(StepKind::LossDistribution, duration_s, self.clone())
    }

    fn shorten(&mut self) {
        self.trials = self.trials.min(2);
    }
}

impl Work for LossDistributionPlan {
    fn machine(&self, common: &Common, found: FoundBefore<'_>) -> Result<Machine, ConfigError> {
        let config = match (&self.loads_percent, &self.between) {
            (Some(loads), _) => LossDistributionConfig {
                rates_pps: loads
                    .iter()
                    .map(|load| load.of(common.max_rate_pps))
                    .collect(),
                trials: self.trials,
                trial_duration_s: common.duration_s,
                max_invalid_repeats: common.invalid_repeats,
            },
            (None, goal) => {
                let ends_pps = goal.as_ref().and_then(|goal| worst_and_best(goal, found));
                let Some(ends_pps) = ends_pps else {
                    return Ok(Machine::Nothing);
                };
                LossDistributionConfig::between(
                    ends_pps,
                    self.rates.unwrap_or(RATES),
                    self.trials,
                    common.duration_s,
                    common.invalid_repeats,
                )?
            }
        };
        Ok(Machine::Method(Box::new(LossDistribution::new(config)?)))
    }

    fn bound(&self, common: &Common) -> Estimate {
        let rates = match &self.loads_percent {
            Some(loads) => u32::try_from(loads.len()).unwrap_or(u32::MAX),
            None => self.rates.unwrap_or(RATES),
        };
        common.trials(rates.saturating_mul(self.trials))
    }
}

/// Returns the results of worst-of-N and best-of-N for a goal. If only one of them has a result, it is returned twice.
fn worst_and_best(goal: &str, found: FoundBefore<'_>) -> Option<(f64, f64)> {
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

impl Offered for LossDistributionPlan {
    const MEASURED: &'static [MeasuredMethod] = &[MeasuredMethod {
        name: "loss-distribution",
        section: "loss-distribution",
        defaults: &[("trials", "20"), ("between", "\"PDR\"")],
        search: RateSearch::UnlessRates(SearchMethod::BestAndWorstOfN),
    }];
}
