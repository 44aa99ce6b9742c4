// SPDX-License-Identifier: Apache-2.0
//! `[latency]`: round trips at a low load.

use quietwire_search::ConfigError;
use serde::{Deserialize, Serialize};

use super::checks;
use super::estimate::{Estimate, QUICK_DURATION_S};
use super::machine::Machine;
use super::method::{Common, FoundBefore, Method, Offered, Planned, StudyContext, Work};
use super::step_kind::StepKind;
use crate::file::Percent;
use crate::file::limits::{Checked, REPEATS_MAX, between, duration, fault};
use crate::file::locate::At::Key;

/// Trials at a low load (`[latency]`). Exactly one of the two rates is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LatencyProbe {
    /// Offered load, percent of the maximum rate.
    pub rate_percent: Option<Percent>,
    /// Offered load, frames per second.
    pub rate_pps: Option<f64>,
    /// Measurement time, seconds.
    pub duration_s: f64,
    /// Number of trials.
    pub repeats: u32,
}

impl LatencyProbe {
    fn pps(&self, max_rate_pps: f64) -> f64 {
        match (self.rate_pps, self.rate_percent) {
            (Some(rate), _) => rate,
            (None, Some(percent)) => percent.of(max_rate_pps),
            // The check of the file reports missing rates; the method rejects a rate of zero.
            (None, None) => 0.0,
        }
    }
}

impl Method for LatencyProbe {
    fn section(&self) -> &'static str {
        "latency"
    }

    fn check(&self, _around: &StudyContext<'_>) -> Checked {
        match (self.rate_percent, self.rate_pps) {
            (None, None) | (Some(_), Some(_)) => {
                return fault(
                    &[Key("latency")],
                    "set exactly one of rate-percent and rate-pps",
                );
            }
            (None, Some(rate)) => checks::rate(rate, "latency", "rate-pps")?,
            (Some(_), None) => {}
        }
        duration(self.duration_s, &[Key("latency"), Key("duration-s")])?;
        between(
            self.repeats,
            1,
            REPEATS_MAX,
            &[Key("latency"), Key("repeats")],
        )
    }

    fn steps(&self, _around: &StudyContext<'_>) -> Vec<Planned> {
        Planned::new(StepKind::Latency, self.duration_s, self.clone())
    }

    fn shorten(&mut self) {
        self.duration_s = self.duration_s.min(QUICK_DURATION_S);
        self.repeats = 1;
    }
}

impl Work for LatencyProbe {
    fn machine(&self, common: &Common, _found: FoundBefore<'_>) -> Result<Machine, ConfigError> {
        let rate_pps = self.pps(common.max_rate_pps);
        Ok(common.repeats(rate_pps, self.repeats, None))
    }

    fn bound(&self, common: &Common) -> Estimate {
        common.trials(self.repeats)
    }

    fn uses_max_rate(&self) -> bool {
        self.rate_pps.is_none()
    }
}

impl Offered for LatencyProbe {}
