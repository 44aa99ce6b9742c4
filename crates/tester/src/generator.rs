// SPDX-License-Identifier: Apache-2.0
//! Traffic generator interface that searches use: the built-in tester, a simulated device or an external generator.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use crate::calibration::{CitedCalibration, MissingCalibration};
use crate::connections::{ConversationOutcome, ConversationRun};
use crate::error::TesterError;
use crate::tester::Tester;
use crate::trial::{Trial, TrialResult};
use crate::validity::Validity;

/// Identity of the generator that produced a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GeneratorIdentity {
    /// Name: `quietwire`, `sim` or `trex`.
    pub name: String,
    /// Version of the generator.
    pub version: String,
    /// Human-readable setup: parameters, address.
    pub details: String,
    /// True if results are computed by a model instead of measured.
    pub is_simulated: bool,
}

/// Result of a step from overload to a reduced load (RFC 2544, section 26.5).
#[derive(Clone, Debug, PartialEq)]
pub struct SteppedDown {
    /// Time from the reduction to the transmission of the last lost frame, seconds. 0 if no frame was lost after the reduction; `None` if
    /// frames were lost until the end.
    pub recovered_after_s: Option<f64>,
    /// Whether the generator worked correctly.
    pub validity: Validity,
}

/// An overload followed by a reduced load, without a gap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepDown {
    /// Rate of the overload, frames per second over all sending ports.
    pub overload_pps: f64,
    /// Duration of the overload, seconds.
    pub overload_s: f64,
    /// Rate of the reduced load, frames per second over all sending ports.
    pub reduced_pps: f64,
    /// Duration of the reduced load, seconds.
    pub reduced_s: f64,
}

/// Observations during a restart of the device (RFC 6201).
#[derive(Clone, Debug, PartialEq)]
pub struct Outage {
    /// Frames lost while load was offered, from before the restart until after it; `None` if frames did not return in time.
    pub lost_frames: Option<u64>,
    /// Time from the last frame before to the first frame after the restart, seconds; `None` if unknown. With several receiving ports,
    /// the longest time counts.
    pub gap_s: Option<f64>,
    /// Whether the generator worked correctly.
    pub validity: Validity,
}

/// Outcome of frames sent to learned addresses (RFC 2889, section 5.7).
#[derive(Clone, Debug, PartialEq)]
pub struct Probed {
    /// Frames that came out of a port other than that of their destination.
    pub flooded_frames: u64,
    /// Frames that did not come out of the port of their destination.
    pub lost_frames: u64,
    /// Whether the generator worked correctly.
    pub validity: Validity,
}

/// Callback that restarts the device while load is offered. An error is one sentence.
pub type Restart<'a> = dyn FnMut() -> Result<(), String> + 'a;

/// Traffic generator: offers frames to a device and counts the frames received.
///
/// In every method, `trial` specifies the frames (sizes, directions, flows) and the time before and after the counted part. Methods that
/// a generator does not support return [`TesterError::CannotDo`].
pub trait TrafficGenerator {
    /// Returns the generator's identity. An external generator is queried, and refused if its version is not supported.
    ///
    /// # Errors
    /// [`TesterError`] if the generator does not reply or is not supported.
    fn identity(&mut self) -> Result<GeneratorIdentity, TesterError>;

    /// Returns the abort flag. Any thread can set it to end a running trial early with [`TesterError::Aborted`].
    fn abort_flag(&self) -> Arc<AtomicBool>;

    /// Returns the calibration that a trial at `rate_pps` frames per second cites. Returns `None` if no calibration covers its frames.
    fn cited(&self, _trial: &Trial, _rate_pps: f64) -> Option<CitedCalibration> {
        None
    }

    /// Returns the calibration that a trial cannot cite because it is missing; `None` if nothing is missing.
    fn missing_calibration(&self, _trial: &Trial) -> Option<MissingCalibration> {
        None
    }

    /// Runs one trial. A failure of the generator during the trial makes the result invalid and is not an error.
    ///
    /// # Errors
    /// [`TesterError`] if the trial cannot be run.
    fn run(&mut self, trial: &Trial) -> Result<TrialResult, TesterError>;

    /// Runs one trial as fast as the generator can send. The result contains the rate.
    ///
    /// # Errors
    /// Errors of [`Self::run`].
    fn run_unpaced(&mut self, trial: &Trial) -> Result<TrialResult, TesterError>;

    /// Sends `frames` frames with the smallest possible gap, distributed over the sending ports, and then receives for the trial's drain
    /// time. The trial's rate, duration and warm-up are not used.
    ///
    /// # Errors
    /// Errors of [`Self::run`].
    fn burst(&mut self, _trial: &Trial, _frames: u64) -> Result<TrialResult, TesterError> {
        Err(cannot("send bursts"))
    }

    /// Offers an overload, followed by a reduced load.
    ///
    /// # Errors
    /// Errors of [`Self::run`].
    fn step_down(&mut self, _trial: &Trial, _step: StepDown) -> Result<SteppedDown, TesterError> {
        Err(cannot("lower the load without a gap"))
    }

    /// Offers a load, restarts the device, and waits at most `limit_s` for frames to return.
    ///
    /// # Errors
    /// [`TesterError`] as in [`Self::run`]; [`TesterError::Restart`] with the error of `restart`.
    fn outage(
        &mut self,
        _trial: &Trial,
        _limit_s: f64,
        _restart: &mut Restart<'_>,
    ) -> Result<Outage, TesterError> {
        Err(cannot("measure a restart"))
    }

    /// Clears the device's address table. Only a simulated device supports it.
    ///
    /// # Errors
    /// Errors of [`Self::run`].
    fn forget(&mut self) -> Result<(), TesterError> {
        Err(cannot("clear the device's address table"))
    }

    /// Sends a frame from each of `addresses` addresses into the learning port, at the trial's rate. Returns whether the generator worked
    /// correctly.
    ///
    /// # Errors
    /// Errors of [`Self::run`].
    fn learn(&mut self, _trial: &Trial, _addresses: u32) -> Result<Validity, TesterError> {
        Err(cannot("send from many addresses"))
    }

    /// Sends a frame to each of `addresses` addresses and counts where they come out.
    ///
    /// # Errors
    /// Errors of [`Self::run`].
    fn probe(&mut self, _trial: &Trial, _addresses: u32) -> Result<Probed, TesterError> {
        Err(cannot("observe at which port frames arrive"))
    }

    /// Opens connections for a method after RFC 9411, section 7, and waits for the run's pause afterwards.
    ///
    /// # Errors
    /// Errors of [`Self::run`].
    fn converse(&mut self, _run: &ConversationRun) -> Result<ConversationOutcome, TesterError> {
        Err(cannot("open connections"))
    }
}

fn cannot(what: &'static str) -> TesterError {
    TesterError::CannotDo { what }
}

impl TrafficGenerator for Tester {
    fn identity(&mut self) -> Result<GeneratorIdentity, TesterError> {
        Ok(GeneratorIdentity {
            name: "quietwire".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            details: format!("built in, {} ports", self.port_count()),
            is_simulated: false,
        })
    }

    fn abort_flag(&self) -> Arc<AtomicBool> {
        Self::abort_flag(self)
    }

    fn cited(&self, trial: &Trial, rate_pps: f64) -> Option<CitedCalibration> {
        Self::cited(self, trial, rate_pps)
    }

    fn missing_calibration(&self, trial: &Trial) -> Option<MissingCalibration> {
        Self::missing_calibration(self, trial)
    }

    fn run(&mut self, trial: &Trial) -> Result<TrialResult, TesterError> {
        Self::run(self, trial)
    }

    fn run_unpaced(&mut self, trial: &Trial) -> Result<TrialResult, TesterError> {
        Self::run_unpaced(self, trial)
    }

    fn burst(&mut self, trial: &Trial, frames: u64) -> Result<TrialResult, TesterError> {
        Self::burst(self, trial, frames)
    }

    fn step_down(&mut self, trial: &Trial, step: StepDown) -> Result<SteppedDown, TesterError> {
        Self::step_down(self, trial, step)
    }

    fn outage(
        &mut self,
        trial: &Trial,
        limit_s: f64,
        restart: &mut Restart<'_>,
    ) -> Result<Outage, TesterError> {
        Self::outage(self, trial, limit_s, restart)
    }

    fn learn(&mut self, trial: &Trial, addresses: u32) -> Result<Validity, TesterError> {
        Self::learn(self, trial, addresses)
    }

    fn probe(&mut self, trial: &Trial, addresses: u32) -> Result<Probed, TesterError> {
        Self::probe(self, trial, addresses)
    }

    fn converse(&mut self, run: &ConversationRun) -> Result<ConversationOutcome, TesterError> {
        Self::converse(self, run)
    }
}
