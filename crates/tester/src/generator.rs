// SPDX-License-Identifier: Apache-2.0
//! What a search needs of a tester, whichever it is: the built-in one, a simulated device, an external one.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use crate::calibration::{CitedCalibration, MissingCalibration};
use crate::error::TesterError;
use crate::tester::Tester;
use crate::trial::{Trial, TrialResult};
use crate::validity::Validity;

/// Which generator made a result, for the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GeneratorIdentity {
    /// `quietwire`, `sim`, `trex`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// How it is set up, for people: parameters, address.
    pub details: String,
    /// True when nothing is measured: results are arithmetic.
    pub is_simulated: bool,
}

/// What followed when the load went from too much to little (RFC 2544, section 26.5).
#[derive(Clone, Debug, PartialEq)]
pub struct SteppedDown {
    /// From the reduction to the sending of the last frame that was lost, seconds; 0 when none was lost after it, none
    /// when frames were lost to the very end.
    pub recovered_after_s: Option<f64>,
    /// Whether the generator did what it was asked to do.
    pub validity: Validity,
}

/// An overload and the load after it, without a gap between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepDown {
    /// The load that is too much, frames per second over all ports that send.
    pub overload_pps: f64,
    /// How long, seconds.
    pub overload_s: f64,
    /// The load after it.
    pub reduced_pps: f64,
    /// How long, seconds.
    pub reduced_s: f64,
}

/// What was seen while a device was restarted (RFC 6201).
#[derive(Clone, Debug, PartialEq)]
pub struct Outage {
    /// Frames lost while the load was offered, from before the restart to after it; none when none came again in time.
    pub lost_frames: Option<u64>,
    /// Time from the last frame that came before to the first after, seconds, where it is known; of ports in several
    /// directions the longest.
    pub gap_s: Option<f64>,
    /// Whether the generator did what it was asked to do.
    pub validity: Validity,
}

/// What became of frames to learned addresses (RFC 2889, section 5.7).
#[derive(Clone, Debug, PartialEq)]
pub struct Probed {
    /// Frames that came out of a port that they were not for.
    pub flooded_frames: u64,
    /// Frames that did not come out of the port that they were for.
    pub lost_frames: u64,
    /// Whether the generator did what it was asked to do.
    pub validity: Validity,
}

/// A restart, called while the load is offered; what went wrong, as one sentence.
pub type Restart<'a> = dyn FnMut() -> Result<(), String> + 'a;

/// Offers frames to a device and counts what comes back.
///
/// `trial` says in every method which frames: sizes, directions, flows, and the time before and after what counts.
/// Methods that a generator does not have answer [`TesterError::CannotDo`].
pub trait TrafficGenerator {
    /// Which generator this is. An external one is asked, and refused when its version is not one that was tried.
    ///
    /// # Errors
    /// [`TesterError`] when it does not answer or is not fit.
    fn identity(&mut self) -> Result<GeneratorIdentity, TesterError>;

    /// Set it, from any thread, to end a running trial early with [`TesterError::Aborted`].
    fn abort_flag(&self) -> Arc<AtomicBool>;

    /// The generator's calibration, as a trial that offers so many frames per second cites it; none where there is none of
    /// such frames.
    fn cited(&self, _trial: &Trial, _rate_pps: f64) -> Option<CitedCalibration> {
        None
    }

    /// The calibration that a trial cannot cite; none if nothing is missing.
    fn missing_calibration(&self, _trial: &Trial) -> Option<MissingCalibration> {
        None
    }

    /// Runs one trial. One in which the generator failed is an invalid result, not an error.
    ///
    /// # Errors
    /// [`TesterError`] when it could not be run at all.
    fn run(&mut self, trial: &Trial) -> Result<TrialResult, TesterError>;

    /// Runs one trial as fast as the generator can; the result has the rate.
    ///
    /// # Errors
    /// As [`Self::run`].
    fn run_unpaced(&mut self, trial: &Trial) -> Result<TrialResult, TesterError>;

    /// Sends so many frames, shared out among the ports that send, with the shortest gap there is, and goes on receiving
    /// for the drain time of the trial. Its rate, duration and warm-up are not used.
    ///
    /// # Errors
    /// As [`Self::run`].
    fn burst(&mut self, _trial: &Trial, _frames: u64) -> Result<TrialResult, TesterError> {
        Err(cannot("send bursts of a number of frames"))
    }

    /// Offers too much, then little.
    ///
    /// # Errors
    /// As [`Self::run`].
    fn step_down(&mut self, _trial: &Trial, _step: StepDown) -> Result<SteppedDown, TesterError> {
        Err(cannot("lower the load without a gap"))
    }

    /// Offers a load, restarts the device meanwhile, and waits at most `limit_s` for frames to come again.
    ///
    /// # Errors
    /// As [`Self::run`], and [`TesterError::Restart`] with what the restart says.
    fn outage(
        &mut self,
        _trial: &Trial,
        _limit_s: f64,
        _restart: &mut Restart<'_>,
    ) -> Result<Outage, TesterError> {
        Err(cannot("measure a restart"))
    }

    /// Makes the device forget its addresses, where that is the generator's to do: only a simulated device's is.
    ///
    /// # Errors
    /// As [`Self::run`].
    fn forget(&mut self) -> Result<(), TesterError> {
        Err(cannot("make the device forget its addresses"))
    }

    /// Sends a frame from each of so many addresses into the learning port, at the trial's rate. What comes back says
    /// whether the generator did.
    ///
    /// # Errors
    /// As [`Self::run`].
    fn learn(&mut self, _trial: &Trial, _addresses: u32) -> Result<Validity, TesterError> {
        Err(cannot("send from many addresses"))
    }

    /// Sends a frame to each of these addresses and looks where it comes out.
    ///
    /// # Errors
    /// As [`Self::run`].
    fn probe(&mut self, _trial: &Trial, _addresses: u32) -> Result<Probed, TesterError> {
        Err(cannot("look where frames come out"))
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
}
