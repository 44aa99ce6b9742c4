// SPDX-License-Identifier: Apache-2.0
//! Back-to-back frames (RFC 2544, section 26.4, as updated by RFC 9004): the longest burst without loss.

use serde::{Deserialize, Serialize};

use super::bisection::Bisection;
use super::desk::{Desk, Settled};
use super::{Action, Observation, Procedure, ProcedureFindings, ProcedureStep};
use crate::error::{confidence, positive};
use crate::{ConfigError, RecordError, Statistics};

/// Parameters of a [`BackToBack`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackToBackConfig {
    /// Rate of a burst, unless its tester tells it: the highest that the medium allows, frames per second ("Max Theoretical
    /// Frame Rate").
    pub max_rate_pps: f64,
    /// Throughput of this frame size, found before, frames per second. Where it is not under `max_rate_pps`, the test
    /// tells nothing, since the device never has to store frames (RFC 9004, section 4).
    pub throughput_pps: f64,
    /// Longest burst, frames. RFC 2544 asks for at least 2 s of them.
    pub max_burst_frames: u64,
    /// The search stops when the longest burst that passed and the shortest that did not are so near, frames.
    pub resolution_frames: u64,
    /// How often the search is made. RFC 2544 recommends 50.
    pub repeats: u32,
    /// How long to wait after each burst, seconds.
    pub pause_s: f64,
    /// Level of the confidence interval of the mean, between 0 and 1.
    pub confidence: f64,
    /// How often one burst is repeated because it was invalid, before all is given up.
    pub max_invalid_repeats: u32,
}

impl BackToBackConfig {
    /// Checks every parameter.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        positive("max_rate_pps", self.max_rate_pps)?;
        positive("throughput_pps", self.throughput_pps)?;
        positive("pause_s", self.pause_s)?;
        if self.throughput_pps >= self.max_rate_pps {
            return Err(ConfigError::NothingToStore {
                throughput_pps: self.throughput_pps,
                max_rate_pps: self.max_rate_pps,
            });
        }
        confidence(self.confidence)?;
        for (name, is_zero) in [
            ("max_burst_frames", self.max_burst_frames == 0),
            ("resolution_frames", self.resolution_frames == 0),
            ("repeats", self.repeats == 0),
        ] {
            if is_zero {
                return Err(ConfigError::Zero { name });
            }
        }
        Ok(())
    }
}

/// What a [`BackToBack`] found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackToBackFindings {
    /// The parameters it ran with.
    pub config: BackToBackConfig,
    /// The longest burst without loss of each repetition, frames; 0 where none passed.
    pub longest_frames: Vec<u64>,
    /// Repetitions in which the longest burst allowed passed: there the true value may be higher.
    pub at_limit: u32,
    /// Mean (the result), smallest, largest, deviation; none before the first repetition.
    pub frames: Option<Statistics>,
    /// Rate at which the longest bursts went out, frames per second, where the tester told it.
    #[serde(default)]
    pub burst_rate_pps: Option<Statistics>,
    /// How long the mean burst is, seconds ("Implied DUT Buffer Time").
    pub implied_buffer_s: Option<f64>,
    /// The same less what the device forwarded meanwhile, seconds ("Corrected DUT Buffer Time", RFC 9004, section 6.4); none
    /// where bursts went out no faster than that.
    pub corrected_buffer_s: Option<f64>,
}

/// Back-to-back frames. The search for the longest burst is made `repeats` times, each from the start.
#[derive(Clone, Debug)]
pub struct BackToBack {
    config: BackToBackConfig,
    desk: Desk,
    search: Bisection,
    /// Rate of the longest burst of this search that passed.
    rate_pps: Option<f64>,
    longest: Vec<u64>,
    /// Rates of those, where they are known.
    rates_pps: Vec<f64>,
    at_limit: u32,
}

impl BackToBack {
    /// A procedure that has not begun.
    ///
    /// # Errors
    /// What [`BackToBackConfig::validate`] finds.
    pub fn new(config: BackToBackConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            desk: Desk::new(config.max_invalid_repeats),
            search: Bisection::new(config.max_burst_frames, config.resolution_frames),
            rate_pps: None,
            longest: Vec::new(),
            rates_pps: Vec::new(),
            at_limit: 0,
            config,
        })
    }

    fn findings(&self) -> ProcedureFindings {
        let config = &self.config;
        let values: Vec<f64> = self.longest.iter().map(|frames| *frames as f64).collect();
        let frames = Statistics::of(&values, config.confidence);
        let burst_rate = Statistics::of(&self.rates_pps, config.confidence);
        let rate_pps = burst_rate.map_or(config.max_rate_pps, |rate| rate.mean);
        let implied = frames.map(|frames| frames.mean / rate_pps);
        let stored = 1.0 - config.throughput_pps / rate_pps;
        ProcedureFindings::BackToBack(BackToBackFindings {
            config: config.clone(),
            longest_frames: self.longest.clone(),
            at_limit: self.at_limit,
            frames,
            burst_rate_pps: burst_rate,
            implied_buffer_s: implied,
            corrected_buffer_s: implied
                .map(|implied| implied * stored)
                .filter(|buffer_s| *buffer_s >= 0.0),
        })
    }
}

impl Procedure for BackToBack {
    fn name(&self) -> &'static str {
        "back-to-back"
    }

    fn step(&mut self) -> ProcedureStep {
        let is_done = self.longest.len() >= self.config.repeats as usize;
        let next = self.search.next().filter(|_| !is_done);
        let findings = self.findings();
        let burst = next.map(|frames| Action::Burst {
            frames,
            pause_s: self.config.pause_s,
        });
        self.desk.step(burst, || findings)
    }

    fn record(&mut self, observation: Observation) -> Result<(), RecordError> {
        let settled = self.desk.settle(observation)?;
        let Settled::Seen(Observation::Passed {
            lost_frames,
            rate_pps,
        }) = settled
        else {
            return Ok(());
        };
        let passed = lost_frames == 0;
        self.search.record(passed);
        if passed {
            // Each burst that passes is longer than the one before.
            self.rate_pps = rate_pps;
        }
        if self.search.next().is_none() {
            let (frames, is_limit) = self.search.found().unwrap_or((0, false));
            self.longest.push(frames);
            self.rates_pps.extend(self.rate_pps.take());
            self.at_limit += u32::from(is_limit);
            let config = &self.config;
            self.search = Bisection::new(config.max_burst_frames, config.resolution_frames);
        }
        Ok(())
    }
}
