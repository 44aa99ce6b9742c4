// SPDX-License-Identifier: Apache-2.0
//! Reset (RFC 2544, section 26.6, as updated by RFC 6201): how long a device forwards nothing when it is restarted.

use serde::{Deserialize, Serialize};

use super::desk::{Desk, Settled};
use super::{Action, Observation, Procedure, ProcedureFindings, ProcedureStep, RestartKind};
use crate::error::{confidence, positive};
use crate::{ConfigError, RecordError, Statistics};

/// Parameters of a [`Reset`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResetConfig {
    /// How the device is restarted.
    pub kind: RestartKind,
    /// Load meanwhile, frames per second: the throughput of the smallest frames.
    pub rate_pps: f64,
    /// How long to wait for frames to come again, seconds.
    pub limit_s: f64,
    /// How often.
    pub repeats: u32,
    /// Level of the confidence interval of the mean, between 0 and 1.
    pub confidence: f64,
    /// How often one restart is made again because it was invalid, before all is given up.
    pub max_invalid_repeats: u32,
}

impl ResetConfig {
    /// Checks every parameter.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        positive("rate_pps", self.rate_pps)?;
        positive("limit_s", self.limit_s)?;
        confidence(self.confidence)?;
        if self.repeats == 0 {
            return Err(ConfigError::Zero { name: "repeats" });
        }
        Ok(())
    }
}

/// One restart after which frames came again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outage {
    /// Lost frames over the load, seconds (RFC 6201, "frame-loss method").
    pub by_loss_s: f64,
    /// From the last frame before to the first one after, seconds, where the tester has it ("timestamp method").
    pub by_time_s: Option<f64>,
}

/// What a [`Reset`] found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResetFindings {
    /// The parameters it ran with.
    pub config: ResetConfig,
    /// Each restart; none where no frame came within the limit.
    pub outages: Vec<Option<Outage>>,
    /// By the frame-loss method, of the restarts after which frames came again, seconds: the mean is the result.
    pub reset_s: Option<Statistics>,
}

/// Reset: a load, a restart, and the time without frames, a number of times.
#[derive(Clone, Debug)]
pub struct Reset {
    config: ResetConfig,
    desk: Desk,
    outages: Vec<Option<Outage>>,
}

impl Reset {
    /// A procedure that has not begun.
    ///
    /// # Errors
    /// What [`ResetConfig::validate`] finds.
    pub fn new(config: ResetConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            desk: Desk::new(config.max_invalid_repeats),
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
        self.desk.step(next, || findings)
    }

    fn record(&mut self, observation: Observation) -> Result<(), RecordError> {
        let settled = self.desk.settle(observation)?;
        if let Settled::Seen(Observation::CameBack { lost_frames, gap_s }) = settled {
            self.outages.push(lost_frames.map(|lost_frames| Outage {
                by_loss_s: lost_frames as f64 / self.config.rate_pps,
                by_time_s: gap_s,
            }));
        }
        Ok(())
    }
}
