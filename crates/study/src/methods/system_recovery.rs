// SPDX-License-Identifier: Apache-2.0
//! `[system-recovery]`: time until a device recovers from an overload (RFC 2544, section 26.5).

use quietwire_search::ConfigError;
use quietwire_search::procedure::{SystemRecovery, SystemRecoveryConfig};
use serde::{Deserialize, Serialize};

use super::estimate::{CONFIDENCE, Estimate, actions};
use super::machine::Machine;
use super::method::{
    Common, FoundBefore, MeasuredMethod, Method, Offered, Planned, RateSearch, StudyContext, Work,
};
use super::step_kind::StepKind;
use super::throughput::{self, Throughput};
use crate::file::limits::{Checked, REPEATS_MAX, between, duration};
use crate::file::locate::At::Key;
use crate::file::{Percent, SearchMethod};

/// Measurement of the recovery from an overload (`[system-recovery]`; RFC 2544, section 26.5).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SystemRecoveryPlan {
    /// Name of the goal whose rate is the throughput. Default: `NDR`.
    pub goal: Option<String>,
    /// Throughput in percent of the maximum rate. It replaces a goal.
    pub rate_percent: Option<Percent>,
    /// Duration of the overload at 110 % of the throughput, seconds. Default: 60 (RFC 2544).
    #[serde(default = "overload_s")]
    pub overload_s: f64,
    /// Duration at half of that rate afterwards, seconds. Default: 10.
    #[serde(default = "reduced_s")]
    pub reduced_s: f64,
    /// Number of overloads. Default: 5.
    #[serde(default = "repeats")]
    pub repeats: u32,
}

fn overload_s() -> f64 {
    60.0
}

fn reduced_s() -> f64 {
    10.0
}

fn repeats() -> u32 {
    5
}

impl Method for SystemRecoveryPlan {
    fn section(&self) -> &'static str {
        "system-recovery"
    }

    fn check(&self, around: &StudyContext<'_>) -> Checked {
        let at = |key| [Key("system-recovery"), Key(key)];
        throughput::check(
            around,
            "system-recovery",
            self.goal.as_ref(),
            self.rate_percent,
        )?;
        duration(self.overload_s, &at("overload-s"))?;
        duration(self.reduced_s, &at("reduced-s"))?;
        between(self.repeats, 1, REPEATS_MAX, &at("repeats"))
    }

    fn steps(&self, around: &StudyContext<'_>) -> Vec<Planned> {
        let overloads = Overloads {
            plan: self.clone(),
            goals: around.goals(),
        };
        Planned::new(
            StepKind::SystemRecovery,
            around.trials.duration_s,
            overloads,
        )
    }

    fn shorten(&mut self) {}
}

/// Plan of the work; `goals` are the names of all goals, in order.
#[derive(Debug)]
struct Overloads {
    plan: SystemRecoveryPlan,
    goals: Vec<String>,
}

impl Work for Overloads {
    fn machine(&self, common: &Common, found: FoundBefore<'_>) -> Result<Machine, ConfigError> {
        let plan = &self.plan;
        let throughput = Throughput::new(plan.goal.as_ref(), plan.rate_percent);
        let Some(throughput_pps) = throughput.pps(common, &self.goals, found) else {
            return Ok(Machine::Nothing);
        };
        let recovery = SystemRecovery::new(SystemRecoveryConfig {
            throughput_pps,
            max_rate_pps: common.max_rate_pps,
            overload_s: plan.overload_s,
            reduced_s: plan.reduced_s,
            repeats: plan.repeats,
            confidence: CONFIDENCE,
            max_invalid_repeats: common.invalid_repeats,
        })?;
        Ok(Machine::Procedure(Box::new(recovery)))
    }

    fn bound(&self, _common: &Common) -> Estimate {
        let plan = &self.plan;
        actions(f64::from(plan.repeats), plan.overload_s + plan.reduced_s)
    }
}

impl Offered for SystemRecoveryPlan {
    const MEASURED: &'static [MeasuredMethod] = &[MeasuredMethod {
        name: "system-recovery",
        section: "system-recovery",
        defaults: &[],
        search: RateSearch::UnlessRates(SearchMethod::SingleRun),
    }];
}
