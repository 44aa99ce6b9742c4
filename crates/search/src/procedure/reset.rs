// SPDX-License-Identifier: Apache-2.0
//! Reset (RFC 2544, section 26.6, as updated by RFC 6201): the time for which a device forwards nothing after a restart.

mod findings;

use super::action::{Action, Observation};
use super::progress::{ObservationVerdict, Progress};
use super::result::ProcedureFindings;
use super::step::{Procedure, ProcedureStep};
use crate::{ConfigError, RecordError, Statistics};

pub use findings::{Outage, ResetConfig, ResetFindings};

/// Reset: a load, a restart, and the time without frames, with repetitions.
#[derive(Clone, Debug)]
pub struct Reset {
    config: ResetConfig,
    progress: Progress,
    outages: Vec<Option<Outage>>,
}

impl Reset {
    /// Creates a procedure.
    ///
    /// # Errors
    /// The error of [`ResetConfig::validate`].
    pub fn new(config: ResetConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            progress: Progress::new(config.max_invalid_repeats),
            outages: Vec::new(),
            config,
        })
    }

    fn findings(&self) -> ProcedureFindings {
        let times = self.outages.iter().flatten().map(|outage| outage.by_loss_s);
        let times: Vec<f64> = times.collect();
        ProcedureFindings::Reset(ResetFindings {
            config: self.config.clone(),
            outages: self.outages.clone(),
            reset_s: Statistics::of(&times, self.config.confidence),
        })
    }
}

impl Procedure for Reset {
    fn name(&self) -> &'static str {
        "reset"
    }

    fn step(&mut self) -> ProcedureStep {
        let config = &self.config;
        let next = (self.outages.len() < config.repeats as usize).then_some(Action::Restart {
            kind: config.kind,
            rate_pps: config.rate_pps,
            limit_s: config.limit_s,
        });
        let findings = self.findings();
        self.progress.step(next, || findings)
    }

    fn record(&mut self, observation: Observation) -> Result<(), RecordError> {
        let settled = self.progress.settle(observation)?;
        if let ObservationVerdict::Valid(Observation::Restored { lost_frames, gap_s }) = settled {
            self.outages.push(lost_frames.map(|lost_frames| Outage {
                by_loss_s: lost_frames as f64 / self.config.rate_pps,
                by_time_s: gap_s,
            }));
        }
        Ok(())
    }
}
