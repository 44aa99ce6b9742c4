// SPDX-License-Identifier: Apache-2.0
//! What a study is run on: whoever has the device, the neighbours and the tester implements [`Bench`].

use std::collections::BTreeMap;
use std::time::Duration;

use quietwire_search::procedure::{Action, Observation};
use quietwire_tester::{CitedCalibration, MissingCalibration, Trial, TrialResult};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::activity::TrialActivity;
use crate::file::{Case, FrameSize};
use crate::methods::ApplicationPlan;
use crate::pause;

pub use crate::methods::application::seen::{ApplicationSeen, TcpSeen};

/// What can go wrong on a bench; told to people as it is.
pub type BenchError = Box<dyn std::error::Error + Send + Sync>;

/// Why a case could not be had after all, as was found out when it was set up or while something was measured in it. Others may
/// still be had: the study goes on with those.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaseLeftOut {
    /// The machine lacks something; why, in a clause.
    #[error("{0}")]
    Unavailable(String),
    /// The device did not come up, or did not stay up; what happened, in a clause.
    #[error("{0}")]
    Failed(String),
}

/// What was under way on the bench was given up, since the study is to end: no failure, and nothing to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// A case to set up: what the study file says of it, and for which frame size.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseSpec {
    /// The case.
    pub case: Case,
    /// Position in the file, from 0.
    pub position: usize,
    /// Which round, from 0.
    pub round: u32,
}

/// On what, and with what, a run is made. Stored once a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// The machine's inventory.
    pub machine: Value,
    /// Versions of the software taking part.
    pub versions: Value,
}

impl Environment {
    /// True if the device is arithmetic, and nothing is measured.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.machine["simulated"] == true
    }
}

/// What came of one trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// What the tester saw.
    pub result: TrialResult,
    /// What the machine did meanwhile.
    pub activity: TrialActivity,
}

/// What came of one action of a procedure.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// What the tester saw.
    pub observation: Observation,
    /// What the machine did meanwhile.
    pub activity: TrialActivity,
}

/// Device, neighbours, monitor and tester, as one thing that trials are run on.
///
/// A case is entered before its trials and left after them, also when something failed between. No case is entered
/// before the last one is left.
pub trait Bench {
    /// The machine and the software.
    fn environment(&mut self) -> Environment;

    /// Why this machine cannot have a case, in a sentence; none where it can. Asked once for each case, before the first is
    /// entered: one that cannot be had is not run, and the reason is stored.
    fn unavailable(&mut self, _case: &CaseSpec) -> Option<String> {
        None
    }

    /// Brings up device and neighbours; what comes back is every command and setting, for the record.
    ///
    /// # Errors
    /// What could not be set up. Whatever was, is undone then.
    fn enter_case(&mut self, case: &CaseSpec) -> Result<Value, BenchError>;

    /// What the consoles of the guests of the case that is set up said so far, by the names of their elements. Asked before it is
    /// left: they go with it.
    ///
    /// # Errors
    /// A console that cannot be read.
    fn consoles(&mut self) -> Result<BTreeMap<String, String>, BenchError> {
        Ok(BTreeMap::new())
    }

    /// Undoes what [`Bench::enter_case`] did.
    ///
    /// # Errors
    /// What could not be undone.
    fn leave_case(&mut self) -> Result<(), BenchError>;

    /// What 100 % of the load is for this frame size, frames per second summed over directions: what the tester
    /// itself can send and receive. Called in a case.
    ///
    /// # Errors
    /// Why that could not be found.
    fn calibrate(&mut self, frame_size: FrameSize) -> Result<f64, BenchError>;

    /// The tester's calibration, as a trial that offers so many frames per second cites it; none where there is none of such
    /// frames. Called in a case.
    fn cited(&self, _trial: &Trial, _rate_pps: f64) -> Option<CitedCalibration> {
        None
    }

    /// The tester's calibration that a trial cannot cite, as there is none of this tester or of these frames; none if nothing is
    /// missing. Called in a case.
    fn missing_calibration(&self, _trial: &Trial) -> Option<MissingCalibration> {
        None
    }

    /// How long to leave the machine alone before a trial that follows so many invalid ones. Default: a pause that grows from
    /// 100 ms to 5 s, in which what disturbed the tester may pass.
    fn pause_after_invalid(&self, in_a_row: u32) -> Duration {
        pause::after_invalid(in_a_row)
    }

    /// Runs one trial. One in which the tester failed is a result that says so, not an error.
    ///
    /// # Errors
    /// Why the trial could not be run at all.
    fn run(&mut self, trial: &Trial) -> Result<Measured, BenchError>;

    /// Does one thing for a procedure. `frames` says which frames, and how long before and after; what it says of rate and
    /// duration is not used. Something in which the tester failed is [`Observation::Invalid`], not an error.
    ///
    /// # Errors
    /// Why it could not be done at all, as where a bench has no such ability.
    fn act(&mut self, action: &Action, frames: &Trial) -> Result<Seen, BenchError>;

    /// Has applications talk through the device. Called in a case.
    ///
    /// # Errors
    /// Why they could not, as where a bench has none.
    fn apply(&mut self, _plan: &ApplicationPlan) -> Result<ApplicationSeen, BenchError> {
        Err("applications talk through devices of the lab's only; leave [application] out, or run it in the lab".into())
    }
}
