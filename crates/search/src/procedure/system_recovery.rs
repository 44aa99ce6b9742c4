// SPDX-License-Identifier: Apache-2.0
//! System recovery (RFC 2544, section 26.5): the time for which a device loses frames after an overload.

mod findings;

use super::action::{Action, Observation};
use super::progress::{ObservationVerdict, Progress};
use super::result::ProcedureFindings;
use super::step::{Procedure, ProcedureStep};
use crate::{ConfigError, RecordError, Statistics};

pub use findings::{SystemRecoveryConfig, SystemRecoveryFindings};

/// Load after the overload, as a part of it.
const REDUCED: f64 = 0.5;

/// System recovery: overload, half of it, and the time to the last lost frame, with repetitions.
#[derive(Clone, Debug)]
pub struct SystemRecovery {
    config: SystemRecoveryConfig,
    progress: Progress,
    recoveries: Vec<Option<f64>>,
}

impl SystemRecovery {
    /// Creates a procedure.
    ///
    /// # Errors
    /// The error of [`SystemRecoveryConfig::validate`].
    pub fn new(config: SystemRecoveryConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            progress: Progress::new(config.max_invalid_repeats),
            recoveries: Vec::new(),
            config,
        })
    }

    fn findings(&self) -> ProcedureFindings {
        let recovered: Vec<f64> = self.recoveries.iter().copied().flatten().collect();
        ProcedureFindings::SystemRecovery(SystemRecoveryFindings {
            config: self.config.clone(),
            recoveries_s: self.recoveries.clone(),
            recovery_s: Statistics::of(&recovered, self.config.confidence),
        })
    }
}

impl Procedure for SystemRecovery {
    fn name(&self) -> &'static str {
        "system-recovery"
    }

    fn step(&mut self) -> ProcedureStep {
        let config = &self.config;
        let overload_pps = config.overload_pps();
        let next = (self.recoveries.len() < config.repeats as usize).then_some(Action::StepDown {
            overload_pps,
            overload_s: config.overload_s,
            reduced_pps: REDUCED * overload_pps,
            reduced_s: config.reduced_s,
        });
        let findings = self.findings();
        self.progress.step(next, || findings)
    }

    fn record(&mut self, observation: Observation) -> Result<(), RecordError> {
        if let ObservationVerdict::Valid(Observation::Recovered { after_s }) =
            self.progress.settle(observation)?
        {
            self.recoveries.push(after_s);
        }
        Ok(())
    }
}
