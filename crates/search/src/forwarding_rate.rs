// SPDX-License-Identifier: Apache-2.0
//! Forwarding rate at maximum offered load, and maximum forwarding rate (RFC 2285, sections 3.6.2 and 3.6.3; RFC 2889
//! reports both): what comes through of too much.

use serde::{Deserialize, Serialize};

use crate::error::{ordered, positive};
use crate::{
    Attempt, ConfigError, Findings, LossSweep, LossSweepConfig, Method, Outcome, RecordError,
    SearchResult, Step, SweepValue,
};

/// Parameters of a [`ForwardingRate`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForwardingRateConfig {
    /// Maximum offered load, frames per second: line rate, or what the tester itself can send.
    pub max_rate_pps: f64,
    /// Further loads under it, frames per second, each once: among all of them is the maximum forwarding rate.
    pub lower_rates_pps: Vec<f64>,
    /// Length of every trial, seconds. RFC 2889 asks for 30.
    pub trial_duration_s: f64,
    /// How often one trial is repeated because it was invalid, before its load is left out.
    pub max_invalid_repeats: u32,
}

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

/// What came through at one load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forwarded {
    /// The load, frames per second.
    pub offered_pps: f64,
    /// What came through, frames per second.
    pub forwarded_pps: f64,
}

/// What a [`ForwardingRate`] found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForwardingRateFindings {
    /// The parameters it ran with.
    pub config: ForwardingRateConfig,
    /// Forwarding rate at maximum offered load, frames per second; none when the tester failed there.
    pub at_max_load_pps: Option<f64>,
    /// The highest forwarding rate at any load, with that load (the lowest of equals): the maximum forwarding rate.
    pub maximum: Option<Forwarded>,
    /// Every load whose trial was valid, in the order of the trials.
    pub loads: Vec<Forwarded>,
}

/// Forwarding rates: one trial at the maximum offered load, then one at each lower load. A device that forwards less when
/// more is offered shows it as a maximum above the rate at maximum load.
#[derive(Clone, Debug)]
pub struct ForwardingRate {
    config: ForwardingRateConfig,
    sweep: LossSweep,
}

impl ForwardingRate {
    /// A method that has not begun.
    ///
    /// # Errors
    /// [`ConfigError`] for rates and durations that are not above zero, for a rate twice or above the maximum.
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
