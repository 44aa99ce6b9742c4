// SPDX-License-Identifier: Apache-2.0
//! Address learning rate (RFC 2889, section 5.8): how fast new addresses may come and all be learned.

use serde::{Deserialize, Serialize};

use super::address_caching::{Stage, advance};
use super::bisection::Bisection;
use super::desk::Desk;
use super::{Observation, Procedure, ProcedureFindings, ProcedureStep};
use crate::error::positive;
use crate::{ConfigError, RecordError};

/// Parameters of an [`AddressLearningRate`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddressLearningRateConfig {
    /// Addresses to learn: no more than the caching capacity that [`super::AddressCaching`] found.
    pub addresses: u32,
    /// Highest rate of learning frames, frames per second, and the first one tried.
    pub max_rate_pps: u32,
    /// The search stops when the highest rate that was learned at and the lowest that was not are so near, frames per
    /// second.
    pub resolution_pps: u32,
    /// Rate of the frames to learned addresses, frames per second: one that the switch is sure to forward.
    pub probe_rate_pps: f64,
    /// How often one action is repeated because it was invalid, before all is given up.
    pub max_invalid_repeats: u32,
}

impl AddressLearningRateConfig {
    /// Checks every parameter.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        positive("probe_rate_pps", self.probe_rate_pps)?;
        for (name, count) in [
            ("addresses", self.addresses),
            ("max_rate_pps", self.max_rate_pps),
            ("resolution_pps", self.resolution_pps),
        ] {
            if count == 0 {
                return Err(ConfigError::Zero { name });
            }
        }
        Ok(())
    }
}

/// What an [`AddressLearningRate`] found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddressLearningRateFindings {
    /// The parameters it ran with.
    pub config: AddressLearningRateConfig,
    /// Highest rate at which all addresses were learned, frames per second; none when they were at no rate tried.
    pub learning_rate_pps: Option<u32>,
    /// True when that is the highest that was allowed to be tried: the switch may learn faster.
    pub is_limit: bool,
}

/// Address learning rate: forget, learn, probe, at rates that close in.
#[derive(Clone, Debug)]
pub struct AddressLearningRate {
    config: AddressLearningRateConfig,
    desk: Desk,
    search: Bisection,
    stage: Stage,
}

impl AddressLearningRate {
    /// A procedure that has not begun.
    ///
    /// # Errors
    /// What [`AddressLearningRateConfig::validate`] finds.
    pub fn new(config: AddressLearningRateConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let (max, resolution) = (config.max_rate_pps, config.resolution_pps);
        Ok(Self {
            desk: Desk::new(config.max_invalid_repeats),
            search: Bisection::new(u64::from(max), u64::from(resolution)).with_second_look(),
            stage: Stage::Forget,
            config,
        })
    }

    fn findings(&self) -> ProcedureFindings {
        let found = self.search.found();
        ProcedureFindings::AddressLearningRate(AddressLearningRateFindings {
            config: self.config.clone(),
            learning_rate_pps: found.and_then(|(rate_pps, _)| u32::try_from(rate_pps).ok()),
            is_limit: found.is_some_and(|(_, is_limit)| is_limit),
        })
    }
}

impl Procedure for AddressLearningRate {
    fn name(&self) -> &'static str {
        "address-learning-rate"
    }

    fn step(&mut self) -> ProcedureStep {
        let config = &self.config;
        let (addresses, probe) = (config.addresses, config.probe_rate_pps);
        let next = self.search.next();
        let action = next.map(|rate| self.stage.action(addresses, rate as f64, probe));
        let findings = self.findings();
        self.desk.step(action, || findings)
    }

    fn record(&mut self, observation: Observation) -> Result<(), RecordError> {
        let settled = self.desk.settle(observation)?;
        if let Some(passed) = advance(&mut self.stage, settled) {
            self.search.record(passed);
        }
        Ok(())
    }
}
