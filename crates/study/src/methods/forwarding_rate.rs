// SPDX-License-Identifier: Apache-2.0
//! `[forwarding-rate]`: forwarding rate at the maximum offered load (RFC 2285, RFC 2889).

use quietwire_search::{ConfigError, ForwardingRate, ForwardingRateConfig};
use serde::{Deserialize, Serialize};

use super::checks::{distinct, optional_duration};
use super::estimate::Estimate;
use super::machine::Machine;
use super::method::{
    Common, FoundBefore, MeasuredMethod, Method, Offered, Planned, RateSearch, StudyContext, Work,
};
use super::step_kind::StepKind;
use crate::file::Percent;
use crate::file::limits::{Checked, fault};
use crate::file::locate::At::{Index, Key};

/// Measurement of the forwarding rate at the maximum offered load, and at lower loads (`[forwarding-rate]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ForwardingRatePlan {
    /// Lower loads, percent of the maximum rate, each below 100.
    #[serde(default)]
    pub lower_loads_percent: Vec<Percent>,
    /// Duration of each trial, seconds. Default: `duration-s` of `[trials]`. RFC 2889 requires 30.
    pub duration_s: Option<f64>,
}

impl Method for ForwardingRatePlan {
    fn section(&self) -> &'static str {
        "forwarding-rate"
    }

    fn check(&self, _around: &StudyContext<'_>) -> Checked {
        optional_duration(
            self.duration_s,
            &[Key("forwarding-rate"), Key("duration-s")],
        )?;
        let loads = &self.lower_loads_percent;
        if let Some(index) = loads.iter().position(|load| load.get() >= 100.0) {
            return fault(
                &[
                    Key("forwarding-rate"),
                    Key("lower-loads-percent"),
                    Index(index),
                ],
                "the maximum is always tried (write loads below 100 only)",
            );
        }
        if loads.is_empty() {
            return Ok(());
        }
        distinct(loads, "forwarding-rate", "lower-loads-percent")
    }

    fn steps(&self, around: &StudyContext<'_>) -> Vec<Planned> {
        let duration_s = self.duration_s.unwrap_or(around.trials.duration_s);
        Planned::new(StepKind::ForwardingRate, duration_s, self.clone())
    }

    fn shorten(&mut self) {}
}

impl Work for ForwardingRatePlan {
    fn machine(&self, common: &Common, _found: FoundBefore<'_>) -> Result<Machine, ConfigError> {
        let lower = self.lower_loads_percent.iter();
        let config = ForwardingRateConfig {
            max_rate_pps: common.max_rate_pps,
            lower_rates_pps: lower.map(|load| load.of(common.max_rate_pps)).collect(),
            trial_duration_s: common.duration_s,
            max_invalid_repeats: common.invalid_repeats,
        };
        Ok(Machine::Method(Box::new(ForwardingRate::new(config)?)))
    }

    fn bound(&self, common: &Common) -> Estimate {
        let lower = u32::try_from(self.lower_loads_percent.len()).unwrap_or(u32::MAX);
        common.trials(lower.saturating_add(1))
    }
}

impl Offered for ForwardingRatePlan {
    const MEASURED: &'static [MeasuredMethod] = &[MeasuredMethod {
        name: "forwarding-rate-at-max-load",
        section: "forwarding-rate",
        defaults: &[],
        search: RateSearch::No,
    }];
}
