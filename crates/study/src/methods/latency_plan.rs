// SPDX-License-Identifier: Apache-2.0
//! `[latency-plan]`: latency at the rates that the search found.

use quietwire_search::{ConfigError, LatencyTrials, PartsOf, latency_plan};
use serde::{Deserialize, Serialize};

use super::checks::{known_goal, not_repeated, optional_duration};
use super::estimate::Estimate;
use super::found::rate_of;
use super::machine::Machine;
use super::method::{
    Common, FoundBefore, MeasuredMethod, Method, Offered, Planned, RateSearch, StudyContext, Work,
};
use super::step_kind::StepKind;
use crate::file::limits::{Checked, fault};
use crate::file::locate::At::Key;
use crate::file::{Percent, SearchMethod};

/// Maximum number of loads: NDR, PDR, a step below each, three percentages of one of them.
const LOADS: u32 = 7;

/// Latency at NDR, at PDR, at the last linear step below each, and at 10, 50 and 90 % of one of them (`[latency-plan]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LatencyPlanSection {
    /// Name of the goal for NDR.
    #[serde(default = "ndr")]
    pub ndr: String,
    /// Name of the goal for PDR.
    #[serde(default = "pdr")]
    pub pdr: String,
    /// Base of 10, 50 and 90 %. Default: PDR.
    #[serde(default)]
    pub parts_of: PartsOf,
    /// First linear step. Default: the value of `[search]`.
    pub start_rate_percent: Option<Percent>,
    /// Distance of linear steps. Default: the value of `[search]`.
    pub start_step_percent: Option<Percent>,
    /// Duration of each trial, seconds. Default: `duration-s` of `[trials]`. RFC 2544 requires 120.
    pub duration_s: Option<f64>,
}

fn ndr() -> String {
    "NDR".to_owned()
}

fn pdr() -> String {
    "PDR".to_owned()
}

impl LatencyPlanSection {
    /// Returns the section with the steps of `[search]` filled in.
    fn with_steps(&self, around: &StudyContext<'_>) -> Self {
        let search = around.search;
        let start = || search.and_then(|search| search.start_rate_percent);
        let step = || search.and_then(|search| search.start_step_percent);
        Self {
            start_rate_percent: self.start_rate_percent.or_else(start),
            start_step_percent: self.start_step_percent.or_else(step),
            ..self.clone()
        }
    }
}

impl Method for LatencyPlanSection {
    fn section(&self) -> &'static str {
        "latency-plan"
    }

    fn check(&self, around: &StudyContext<'_>) -> Checked {
        let at = |key| [Key("latency-plan"), Key(key)];
        let ndr = known_goal(around, &self.ndr, &at("ndr"))?;
        known_goal(around, &self.pdr, &at("pdr"))?;
        not_repeated(ndr, &[Key("latency-plan")])?;
        optional_duration(self.duration_s, &at("duration-s"))?;
        let whole = self.with_steps(around);
        for (key, percent) in [
            ("start-rate-percent", whole.start_rate_percent),
            ("start-step-percent", whole.start_step_percent),
        ] {
            if percent.is_none() {
                return fault(
                    &[Key("latency-plan")],
                    format!(
                        "{key} is missing here and in [search] (set it here: the linear steps require it)"
                    ),
                );
            }
        }
        Ok(())
    }

    fn steps(&self, around: &StudyContext<'_>) -> Vec<Planned> {
        let duration_s = self.duration_s.unwrap_or(around.trials.duration_s);
        let loads = Loads {
            plan: self.with_steps(around),
            goals: around.goals(),
        };
        Planned::new(StepKind::LatencyPlan, duration_s, loads)
    }

    fn shorten(&mut self) {}
}

/// Plan with its steps; `goals` are the names of all goals, in order.
#[derive(Debug)]
struct Loads {
    plan: LatencyPlanSection,
    goals: Vec<String>,
}

impl Work for Loads {
    fn machine(&self, common: &Common, found: FoundBefore<'_>) -> Result<Machine, ConfigError> {
        // The check of the file reports missing keys; the plan rejects a rate of zero.
        let of_max =
            |percent: Option<Percent>| percent.map_or(0.0, |it| it.of(common.max_rate_pps));
        let plan = latency_plan(
            rate_of(&self.plan.ndr, &self.goals, found),
            rate_of(&self.plan.pdr, &self.goals, found),
            of_max(self.plan.start_rate_percent),
            of_max(self.plan.start_step_percent),
            self.plan.parts_of,
        )?;
        let trials = LatencyTrials::new(plan, common.duration_s, common.invalid_repeats)?;
        Ok(Machine::Method(Box::new(trials)))
    }

    fn bound(&self, common: &Common) -> Estimate {
        common.trials(LOADS)
    }
}

impl Offered for LatencyPlanSection {
    const MEASURED: &'static [MeasuredMethod] = &[MeasuredMethod {
        name: "latency",
        section: "latency-plan",
        defaults: &[("parts-of", "\"ndr\"")],
        // The loads are percentages of a rate, so a single trial with loss must not lower them.
        search: RateSearch::Always(SearchMethod::BestOfN),
    }];
}
