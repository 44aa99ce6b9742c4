// SPDX-License-Identifier: Apache-2.0
//! Methods that take more than plain trials: bursts, restarts, addresses to learn. State machines as the searches are,
//! that ask for an [`Action`] and are told an [`Observation`].

mod address_caching;
mod address_learning_rate;
mod back_to_back;
mod bisection;
#[cfg(test)]
mod buffer_time;
mod desk;
mod reset;
mod system_recovery;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::RecordError;

pub use address_caching::{AddressCaching, AddressCachingConfig, AddressCachingFindings};
pub use address_learning_rate::{
    AddressLearningRate, AddressLearningRateConfig, AddressLearningRateFindings,
};
pub use back_to_back::{BackToBack, BackToBackConfig, BackToBackFindings};
pub use reset::{Outage, Reset, ResetConfig, ResetFindings};
pub use system_recovery::{SystemRecovery, SystemRecoveryConfig, SystemRecoveryFindings};

/// How a device is restarted (RFC 6201, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartKind {
    /// The machine or card that forwards.
    Hardware,
    /// The process that forwards, killed and started again.
    Software,
    /// The power is taken away and comes back.
    PowerInterruption,
}

/// One thing to do on the bench. Rates are frames per second, what they sum over is the caller's to define.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "action")]
pub enum Action {
    /// Send so many frames with the shortest gap there is, then wait. Answered by [`Observation::Passed`].
    Burst {
        /// Frames in the burst, summed over whatever rates sum over.
        frames: u64,
        /// How long to wait and go on receiving, seconds.
        pause_s: f64,
    },
    /// Offer too much, then without a gap a load that the device can take, until frames stop being lost. Answered by
    /// [`Observation::Recovered`].
    StepDown {
        /// The load that is too much.
        overload_pps: f64,
        /// How long that is offered, seconds.
        overload_s: f64,
        /// The load after it.
        reduced_pps: f64,
        /// How long that is offered, seconds.
        reduced_s: f64,
    },
    /// Offer a load and restart the device meanwhile. Answered by [`Observation::CameBack`].
    Restart {
        /// How.
        kind: RestartKind,
        /// The load.
        rate_pps: f64,
        /// How long to wait for frames to come again, seconds.
        limit_s: f64,
    },
    /// Make the device forget all addresses: flush its table, or wait until they have aged. Answered by
    /// [`Observation::Done`].
    Forget,
    /// Send frames from so many source addresses, one each, into the learning port. Answered by [`Observation::Done`].
    Learn {
        /// How many addresses, always the same ones.
        addresses: u32,
        /// Frames per second.
        rate_pps: f64,
    },
    /// Send a frame to each of these addresses, and look for it at the learning port and at a port that it is not for.
    /// Answered by [`Observation::Probed`].
    Probe {
        /// How many addresses, the ones that were learned.
        addresses: u32,
        /// Frames per second.
        rate_pps: f64,
    },
}

/// What was seen of an [`Action`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "seen")]
pub enum Observation {
    /// So many frames of a burst did not come through.
    Passed {
        /// Frames lost.
        lost_frames: u64,
        /// Rate at which the burst went out, frames per second, where that is known better than beforehand.
        #[serde(default)]
        rate_pps: Option<f64>,
    },
    /// The last frame that was lost was sent so long after the load was reduced.
    Recovered {
        /// Seconds, 0 when none was lost after that; none when frames were lost to the very end.
        after_s: Option<f64>,
    },
    /// Frames came again after a restart.
    CameBack {
        /// Frames lost, of a load that is lost at no other time; none when none came again within the limit.
        lost_frames: Option<u64>,
        /// Time from the last frame before to the first after, seconds, where the tester has it.
        gap_s: Option<f64>,
    },
    /// It was done.
    Done,
    /// What became of the frames to learned addresses.
    Probed {
        /// Frames that came out of a port that they were not for.
        flooded_frames: u64,
        /// Frames that did not come out of the port that they were for.
        lost_frames: u64,
    },
    /// The tester or the lab failed: says nothing about the device.
    Invalid {
        /// What went wrong, one sentence.
        reason: String,
    },
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum ProcedureStep {
    /// Do this, then [`Procedure::record`] what was seen.
    Do(Action),
    /// The procedure is over.
    Done(Box<ProcedureResult>),
}

/// How a procedure ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "end")]
pub enum ProcedureEnd {
    /// Everything was done.
    Finished,
    /// An action and all its repeats were invalid: the tester failed, not the device.
    Invalid {
        /// The action.
        action: Action,
        /// Reason of each failure, oldest first.
        reasons: Vec<String>,
    },
}

/// An action and what was seen of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deed {
    /// What was asked.
    pub action: Action,
    /// What was seen.
    pub observation: Observation,
}

/// What a procedure found, with everything that was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcedureResult {
    /// How it ended.
    pub end: ProcedureEnd,
    /// The findings, tagged with the method's name.
    pub findings: ProcedureFindings,
    /// Everything that was done, in order.
    pub history: Vec<Deed>,
}

/// Findings by method. The tag is [`Procedure::name`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "method")]
#[non_exhaustive]
pub enum ProcedureFindings {
    /// Of [`BackToBack`].
    BackToBack(BackToBackFindings),
    /// Of [`SystemRecovery`].
    SystemRecovery(SystemRecoveryFindings),
    /// Of [`Reset`].
    Reset(ResetFindings),
    /// Of [`AddressCaching`].
    AddressCaching(AddressCachingFindings),
    /// Of [`AddressLearningRate`].
    AddressLearningRate(AddressLearningRateFindings),
}

/// A method that asks for actions until it is done; the rhythm is that of [`crate::Method`].
pub trait Procedure {
    /// The method's name in kebab case: `back-to-back`.
    fn name(&self) -> &'static str;

    /// What to do now, or the result. May be asked again before the observation is known, and gives the same.
    fn step(&mut self) -> ProcedureStep;

    /// Takes what was seen of the action that [`Procedure::step`] asked for last.
    ///
    /// # Errors
    /// [`RecordError::NothingPending`] when nothing was asked for, [`RecordError::WrongObservation`] for one that does
    /// not belong to the action or has a number that cannot be. Either leaves the procedure as it was.
    fn record(&mut self, observation: Observation) -> Result<(), RecordError>;
}
