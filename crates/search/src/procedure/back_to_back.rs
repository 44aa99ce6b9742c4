// SPDX-License-Identifier: Apache-2.0
//! Back-to-back frames (RFC 2544, section 26.4, as updated by RFC 9004): the longest burst without loss.

mod findings;

use super::action::{Action, Observation};
use super::bisection::Bisection;
use super::progress::{ObservationVerdict, Progress};
use super::result::ProcedureFindings;
use super::step::{Procedure, ProcedureStep};
use crate::{ConfigError, RecordError, Statistics};

pub use findings::{BackToBackConfig, BackToBackFindings};

/// Back-to-back frames. The search for the longest burst is made `repeats` times, independently.
#[derive(Clone, Debug)]
pub struct BackToBack {
    config: BackToBackConfig,
    progress: Progress,
    search: Bisection,
    /// Rate of the longest burst without loss in this search.
    rate_pps: Option<f64>,
    longest: Vec<u64>,
    /// Rates of the longest bursts, if the tester measured them.
    rates_pps: Vec<f64>,
    at_limit: u32,
}

impl BackToBack {
    /// Creates a procedure.
    ///
    /// # Errors
    /// The error of [`BackToBackConfig::validate`].
    pub fn new(config: BackToBackConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            progress: Progress::new(config.max_invalid_repeats),
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
        self.progress.step(burst, || findings)
    }

    fn record(&mut self, observation: Observation) -> Result<(), RecordError> {
        let settled = self.progress.settle(observation)?;
        let ObservationVerdict::Valid(Observation::Passed {
            lost_frames,
            rate_pps,
        }) = settled
        else {
            return Ok(());
        };
        let passed = lost_frames == 0;
        self.search.record(passed);
        if passed {
            // Each burst without loss is longer than the one before.
            self.rate_pps = rate_pps;
        }
        if self.search.next().is_none() {
            let (frames, is_limit) = self.search.found().unwrap_or((0, false));
            self.longest.push(frames);
            self.rates_pps.extend(self.rate_pps.take());
            self.at_limit = self.at_limit.saturating_add(u32::from(is_limit));
            let config = &self.config;
            self.search = Bisection::new(config.max_burst_frames, config.resolution_frames);
        }
        Ok(())
    }
}
