// SPDX-License-Identifier: Apache-2.0
//! `[tenants]`: adds chains to a topology until the loss goal breaks.

use quietwire_lab::topology::CHAINS_MAX;
use quietwire_search::ConfigError;
use quietwire_tester::OFFERED_RATE_PPS_MAX;
use serde::{Deserialize, Serialize};

use super::estimate::Estimate;
use super::machine::Machine;
use super::method::{Common, FoundBefore, Method, Offered, Planned, StudyContext, Work};
use super::step_kind::StepKind;
use crate::file::limits::{Checked, TRIALS_AT_NUMBER_MAX, between, fault};
use crate::file::locate::At::Key;

/// Maximum number of tenants with `--quick`.
const QUICK_TENANTS: u32 = 4;

/// Search for the maximum number of tenants (`[tenants]`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TenantsPlan {
    /// Load offered to each tenant, frames per second, summed over directions.
    pub rate_pps: f64,
    /// Allowed loss ratio, 0 or more and below 1.
    pub loss_ratio: f64,
    /// Trials at each number of tenants: the loss goal breaks once this number of consecutive trials has too much loss.
    #[serde(default = "trials")]
    pub trials: u32,
    /// Maximum number of tenants.
    #[serde(default = "most")]
    pub most: u32,
}

fn trials() -> u32 {
    3
}

fn most() -> u32 {
    CHAINS_MAX
}

impl TenantsPlan {
    /// Returns the load offered to this number of tenants together, frames per second.
    #[must_use]
    pub fn offered_pps(&self, tenants: u32) -> f64 {
        self.rate_pps * f64::from(tenants)
    }
}

impl Method for TenantsPlan {
    fn section(&self) -> &'static str {
        "tenants"
    }

    fn check(&self, _around: &StudyContext<'_>) -> Checked {
        let at = |key| [Key("tenants"), Key(key)];
        if !(self.rate_pps > 0.0 && self.offered_pps(self.most.max(1)) <= OFFERED_RATE_PPS_MAX) {
            return fault(
                &at("rate-pps"),
                format!(
                    "{:e} must be above 0, and the total rate of all tenants at most {OFFERED_RATE_PPS_MAX:e}",
                    self.rate_pps
                ),
            );
        }
        if !(0.0..1.0).contains(&self.loss_ratio) {
            return fault(
                &at("loss-ratio"),
                format!(
                    "{} is not in [0, 1) (0 means no loss, 0.0001 means 0.01 %)",
                    self.loss_ratio
                ),
            );
        }
        between(self.trials, 1, TRIALS_AT_NUMBER_MAX, &at("trials"))?;
        between(self.most, 1, CHAINS_MAX, &at("most"))
    }

    /// Returns the trials that check the loss goal, in cases of `[tenants]` only.
    fn steps(&self, around: &StudyContext<'_>) -> Vec<Planned> {
        let Some(tenants) = around.tenants else {
            return Vec::new();
        };
        let held = TenantsCheck {
            plan: *self,
            tenants,
        };
        Planned::new(StepKind::Tenants, around.trials.duration_s, held)
    }

    fn shorten(&mut self) {
        self.trials = 1;
        self.most = self.most.min(QUICK_TENANTS);
    }
}

/// Work that checks the loss goal with this number of tenants.
#[derive(Debug)]
struct TenantsCheck {
    plan: TenantsPlan,
    tenants: u32,
}

impl Work for TenantsCheck {
    fn machine(&self, common: &Common, _found: FoundBefore<'_>) -> Result<Machine, ConfigError> {
        let rate_pps = self.plan.offered_pps(self.tenants);
        Ok(common.repeats(rate_pps, self.plan.trials, Some(self.plan.loss_ratio)))
    }

    fn bound(&self, common: &Common) -> Estimate {
        common.trials(self.plan.trials)
    }

    fn uses_max_rate(&self) -> bool {
        false
    }
}

impl Offered for TenantsPlan {}
