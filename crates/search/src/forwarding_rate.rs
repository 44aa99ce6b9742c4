// SPDX-License-Identifier: Apache-2.0
//! Forwarding rate at maximum offered load, and maximum forwarding rate (RFC 2285, sections 3.6.2 and 3.6.3). RFC 2889 reports both.

mod findings;

use crate::error::{ordered, positive};
use crate::{
    Attempt, ConfigError, Findings, LossSweep, LossSweepConfig, Method, Outcome, RecordError,
    SearchResult, Step, SweepValue,
};

pub use findings::{Forwarded, ForwardingRateConfig, ForwardingRateFindings};

impl ForwardingRateConfig {
    fn sweep(&self) -> Result<LossSweep, ConfigError> {
        let max_rate_pps = positive("max_rate_pps", self.max_rate_pps)?;
        for rate_pps in &self.lower_rates_pps {
            ordered(*rate_pps, max_rate_pps)?;
        }
        let lower = self.lower_rates_pps.iter().copied();
        LossSweep::new(LossSweepConfig {
            rates_pps: std::iter::once(max_rate_pps).chain(lower).collect(),
            trial_duration_s: self.trial_duration_s,
            max_invalid_repeats: self.max_invalid_repeats,
        })
    }
}

/// Forwarding rates: one trial at the maximum offered load, then one at each lower load. If a device forwards less when more is offered,
/// the maximum exceeds the rate at maximum load.
#[derive(Clone, Debug)]
pub struct ForwardingRate {
    config: ForwardingRateConfig,
    sweep: LossSweep,
}

impl ForwardingRate {
    /// Creates the method.
    ///
    /// # Errors
    /// [`ConfigError`] if a rate or duration is not above zero, or if a rate occurs twice or exceeds the maximum.
    pub fn new(config: ForwardingRateConfig) -> Result<Self, ConfigError> {
        Ok(Self {
            sweep: config.sweep()?,
            config,
        })
    }

    fn findings(&self, swept: &SearchResult) -> ForwardingRateFindings {
        let points = match &swept.findings {
            Findings::LossSweep(found) => found.points.as_slice(),
            _ => &[],
        };
        let loads: Vec<Forwarded> = points
            .iter()
            .filter_map(|point| match point.value {
                SweepValue::Measured { loss_ratio } => Some(Forwarded {
                    offered_pps: point.rate_pps,
                    forwarded_pps: point.rate_pps * (1.0 - loss_ratio),
                }),
                SweepValue::Invalid { .. } => None,
            })
            .collect();
        let order = |a: &&Forwarded, b: &&Forwarded| {
            a.forwarded_pps
                .total_cmp(&b.forwarded_pps)
                .then(b.offered_pps.total_cmp(&a.offered_pps))
        };
        ForwardingRateFindings {
            at_max_load_pps: loads
                .iter()
                .find(|load| load.offered_pps == self.config.max_rate_pps)
                .map(|load| load.forwarded_pps),
            maximum: loads.iter().max_by(order).copied(),
            config: self.config.clone(),
            loads,
        }
    }
}

impl Method for ForwardingRate {
    fn name(&self) -> &'static str {
        "forwarding-rate-at-max-load"
    }

    fn step(&mut self) -> Step {
        match self.sweep.step() {
            Step::Run(request) => Step::Run(request),
            Step::Done(swept) => Step::Done(SearchResult {
                findings: Findings::ForwardingRate(Box::new(self.findings(&swept))),
                history: swept.history,
            }),
        }
    }

    fn record(&mut self, outcome: Outcome) -> Result<(), RecordError> {
        self.sweep.record(outcome)
    }

    fn history(&self) -> &[Attempt] {
        self.sweep.history()
    }
}
