// SPDX-License-Identifier: Apache-2.0
//! Address learning rate (RFC 2889, section 5.8): the highest rate of new addresses at which a switch learns all of them.

mod findings;

use super::action::Observation;
use super::address_caching::{Stage, advance};
use super::bisection::Bisection;
use super::progress::Progress;
use super::result::ProcedureFindings;
use super::step::{Procedure, ProcedureStep};
use crate::{ConfigError, RecordError};

pub use findings::{AddressLearningRateConfig, AddressLearningRateFindings};

/// Address learning rate: clears, learns and probes at rates chosen by bisection.
#[derive(Clone, Debug)]
pub struct AddressLearningRate {
    config: AddressLearningRateConfig,
    progress: Progress,
    search: Bisection,
    stage: Stage,
}

impl AddressLearningRate {
    /// Creates a procedure.
    ///
    /// # Errors
    /// The error of [`AddressLearningRateConfig::validate`].
    pub fn new(config: AddressLearningRateConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let (max, resolution) = (config.max_rate_pps, config.resolution_pps);
        Ok(Self {
            progress: Progress::new(config.max_invalid_repeats),
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
        self.progress.step(action, || findings)
    }

    fn record(&mut self, observation: Observation) -> Result<(), RecordError> {
        let settled = self.progress.settle(observation)?;
        if let Some(passed) = advance(&mut self.stage, settled) {
            self.search.record(passed);
        }
        Ok(())
    }
}
