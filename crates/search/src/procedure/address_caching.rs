// SPDX-License-Identifier: Apache-2.0
//! Address caching capacity (RFC 2889, section 5.7): the number of addresses that a switch keeps without flooding.

mod findings;

use super::action::{Action, Observation};
use super::bisection::Bisection;
use super::progress::{ObservationVerdict, Progress};
use super::result::ProcedureFindings;
use super::step::{Procedure, ProcedureStep};
use crate::{ConfigError, RecordError};

pub use findings::{AddressCachingConfig, AddressCachingFindings};

/// Stage of the test of one number of addresses. An invalid action restarts the number, because the table may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Forget,
    Learn,
    Probe,
}

/// Address caching capacity: clears, learns and probes numbers of addresses chosen by bisection.
#[derive(Clone, Debug)]
pub struct AddressCaching {
    config: AddressCachingConfig,
    progress: Progress,
    search: Bisection,
    stage: Stage,
}

impl AddressCaching {
    /// Creates a procedure.
    ///
    /// # Errors
    /// The error of [`AddressCachingConfig::validate`].
    pub fn new(config: AddressCachingConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let (max, resolution) = (config.max_addresses, config.resolution_addresses);
        Ok(Self {
            progress: Progress::new(config.max_invalid_repeats),
            search: Bisection::new(u64::from(max), u64::from(resolution)).with_second_look(),
            stage: Stage::Forget,
            config,
        })
    }

    fn findings(&self) -> ProcedureFindings {
        let found = self.search.found();
        ProcedureFindings::AddressCaching(AddressCachingFindings {
            config: self.config.clone(),
            capacity_addresses: found.and_then(|(addresses, _)| u32::try_from(addresses).ok()),
            is_limit: found.is_some_and(|(_, is_limit)| is_limit),
        })
    }
}

impl Stage {
    /// Returns the action of the stage.
    pub(super) const fn action(self, addresses: u32, learning_pps: f64, probe_pps: f64) -> Action {
        match self {
            Self::Forget => Action::FlushFdb,
            Self::Learn => Action::Learn {
                addresses,
                rate_pps: learning_pps,
            },
            Self::Probe => Action::Probe {
                addresses,
                rate_pps: probe_pps,
            },
        }
    }
}

/// Advances to the next stage. After the last one, returns whether all addresses were known.
pub(super) fn advance(stage: &mut Stage, settled: ObservationVerdict) -> Option<bool> {
    let (next, verdict) = match settled {
        ObservationVerdict::Valid(Observation::Done) if *stage == Stage::Forget => {
            (Stage::Learn, None)
        }
        ObservationVerdict::Valid(Observation::Done) => (Stage::Probe, None),
        ObservationVerdict::Valid(Observation::Probed {
            flooded_frames,
            lost_frames,
        }) => (Stage::Forget, Some(flooded_frames == 0 && lost_frames == 0)),
        ObservationVerdict::Valid(_) | ObservationVerdict::Again | ObservationVerdict::Over => {
            (Stage::Forget, None)
        }
    };
    *stage = next;
    verdict
}

impl Procedure for AddressCaching {
    fn name(&self) -> &'static str {
        "address-caching"
    }

    fn step(&mut self) -> ProcedureStep {
        let config = &self.config;
        let next = self.search.next().and_then(|n| u32::try_from(n).ok());
        let (learning, probe) = (config.learning_rate_pps, config.probe_rate_pps);
        let action = next.map(|addresses| self.stage.action(addresses, learning, probe));
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
