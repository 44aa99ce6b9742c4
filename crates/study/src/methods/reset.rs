// SPDX-License-Identifier: Apache-2.0
//! `[reset]`: outage of the device during a restart (RFC 6201).

use quietwire_search::ConfigError;
use quietwire_search::procedure::{Reset, ResetConfig, RestartKind};
use serde::{Deserialize, Serialize};

use super::estimate::{CONFIDENCE, Estimate, actions};
use super::machine::Machine;
use super::method::{
    Common, FoundBefore, MeasuredMethod, Method, Offered, Planned, RateSearch, StudyContext, Work,
};
use super::step_kind::StepKind;
use super::throughput::{self, Throughput};
use crate::file::limits::{Checked, REPEATS_MAX, between, duration, fault};
use crate::file::locate::At::Key;
use crate::file::{Percent, SearchMethod};

/// Measurement of the outage during a restart (`[reset]`; RFC 6201).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ResetPlan {
    /// Name of the goal whose rate is offered during the restart. Default: `NDR`.
    pub goal: Option<String>,
    /// Offered rate during the restart, in percent of the maximum rate. It replaces a goal.
    pub rate_percent: Option<Percent>,
    /// Kind of restart. Default: `software`, the only kind that the lab supports.
    #[serde(default = "kind")]
    pub kind: RestartKind,
    /// Maximum wait for frames after the restart, seconds. Default: 60.
    #[serde(default = "limit_s")]
    pub limit_s: f64,
    /// Number of restarts. Default: 5.
    #[serde(default = "repeats")]
    pub repeats: u32,
}

fn kind() -> RestartKind {
    RestartKind::Software
}

fn limit_s() -> f64 {
    60.0
}

fn repeats() -> u32 {
    5
}

impl Method for ResetPlan {
    fn section(&self) -> &'static str {
        "reset"
    }

    fn check(&self, around: &StudyContext<'_>) -> Checked {
        let at = |key| [Key("reset"), Key(key)];
        throughput::check(around, "reset", self.goal.as_ref(), self.rate_percent)?;
        if self.kind != RestartKind::Software {
            return fault(
                &at("kind"),
                "only \"software\" is supported (hardware and power would require switchable power)",
            );
        }
        duration(self.limit_s, &at("limit-s"))?;
        between(self.repeats, 1, REPEATS_MAX, &at("repeats"))
    }

    fn steps(&self, around: &StudyContext<'_>) -> Vec<Planned> {
        let restarts = Restarts {
            plan: self.clone(),
            goals: around.goals(),
        };
        Planned::new(StepKind::Reset, around.trials.duration_s, restarts)
    }

    fn shorten(&mut self) {}

    fn requires_standalone_switch(&self) -> bool {
        true
    }

    fn needs_lab(&self) -> Option<&'static str> {
        Some("quietwire cannot restart a device that it did not start (run the study in the lab)")
    }
}

/// Plan of the work; `goals` are the names of all goals, in order.
#[derive(Debug)]
struct Restarts {
    plan: ResetPlan,
    goals: Vec<String>,
}

impl Work for Restarts {
    fn machine(&self, common: &Common, found: FoundBefore<'_>) -> Result<Machine, ConfigError> {
        let plan = &self.plan;
        let throughput = Throughput::new(plan.goal.as_ref(), plan.rate_percent);
        let Some(rate_pps) = throughput.pps(common, &self.goals, found) else {
            return Ok(Machine::Nothing);
        };
        let reset = Reset::new(ResetConfig {
            kind: plan.kind,
            rate_pps,
            limit_s: plan.limit_s,
            repeats: plan.repeats,
            confidence: CONFIDENCE,
            max_invalid_repeats: common.invalid_repeats,
        })?;
        Ok(Machine::Procedure(Box::new(reset)))
    }

    fn bound(&self, _common: &Common) -> Estimate {
        actions(f64::from(self.plan.repeats), self.plan.limit_s)
    }
}

impl Offered for ResetPlan {
    const MEASURED: &'static [MeasuredMethod] = &[MeasuredMethod {
        name: "reset",
        section: "reset",
        defaults: &[],
        search: RateSearch::UnlessRates(SearchMethod::SingleRun),
    }];
}
