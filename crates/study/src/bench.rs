// SPDX-License-Identifier: Apache-2.0
//! The interface between a study and the machine: [`Bench`] sets up devices and neighbours and runs trials.

use std::collections::BTreeMap;
use std::time::Duration;

use quietwire_search::procedure::{Action, Observation};
use quietwire_tester::{CitedCalibration, MissingCalibration, Trial, TrialResult};

use crate::activity::TrialActivity;
use crate::case_settings::{CaseLeftOut, CaseSettings, Environment};
use crate::file::{Case, FrameSize};
use crate::methods::ApplicationPlan;
use crate::pause;

pub use crate::methods::application::result::{ApplicationResult, TcpResult};

/// Error of a bench. Its text is shown to users unchanged.
pub type BenchError = Box<dyn std::error::Error + Send + Sync>;

/// Why a case is left out, if setting it up or a measurement in it shows that the machine cannot run it. The study continues
/// with the other cases.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaseSkipped {
    /// The machine lacks something; the reason as a clause.
    #[error("{0}")]
    Unavailable(String),
    /// The device did not start, or stopped; the event as a clause.
    #[error("{0}")]
    Failed(String),
}

impl From<&CaseSkipped> for CaseLeftOut {
    fn from(why: &CaseSkipped) -> Self {
        Self {
            unavailable: why.to_string(),
            failed: matches!(why, CaseSkipped::Failed(_)),
        }
    }
}

/// The bench stopped its current action because the study is interrupted. This is no failure, and nothing is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// A case to set up: its section of the study file, its position and its round.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseSpec {
    /// The case.
    pub case: Case,
    /// Position in the file, from 0.
    pub position: usize,
    /// Number of the round, from 0.
    pub round: u32,
}

/// Result of one trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Result of the tester.
    pub result: TrialResult,
    /// Activity of the machine during the trial.
    pub activity: TrialActivity,
}

/// Result of one action of a procedure.
#[derive(Clone, Debug, PartialEq)]
pub struct ActionOutcome {
    /// Observation of the tester.
    pub observation: Observation,
    /// Activity of the machine during the action.
    pub activity: TrialActivity,
}

/// Device, neighbours, monitor and tester: runs the trials of a study.
///
/// A case is entered before its trials and left after them, also after an error. No case is entered before the previous one
/// is left.
pub trait Bench {
    /// Returns the machine and the software.
    fn environment(&mut self) -> Environment;

    /// Returns why this machine cannot run a case, as a sentence; none if it can. It is called once for each case before the first is
    /// entered. An unavailable case is not run, and the reason is stored.
    fn unavailable(&mut self, _case: &CaseSpec) -> Option<String> {
        None
    }

    /// Starts device and neighbours. Returns every command and setting, for the record.
    ///
    /// # Errors
    /// The part that could not be set up. Everything set up before is undone.
    fn enter_case(&mut self, case: &CaseSpec) -> Result<CaseSettings, BenchError>;

    /// Returns the console output of the guests of the current case, by the names of their elements. It is called before the case is
    /// left, because leaving it removes the consoles.
    ///
    /// # Errors
    /// A console is not readable.
    fn consoles(&mut self) -> Result<BTreeMap<String, String>, BenchError> {
        Ok(BTreeMap::new())
    }

    /// Undoes [`Bench::enter_case`].
    ///
    /// # Errors
    /// The part that could not be undone.
    fn leave_case(&mut self) -> Result<(), BenchError>;

    /// Returns 100 % of the load for this frame size, frames per second summed over directions: the highest rate that the tester
    /// itself can send and receive. Called while a case is entered.
    ///
    /// # Errors
    /// Why the rate could not be measured.
    fn calibrate(&mut self, frame_size: FrameSize) -> Result<f64, BenchError>;

    /// Returns true if a search may go beyond the rate of [`Bench::calibrate`] when all of it held: the rate was measured with the device,
    /// which may have been slower at that moment.
    fn raises_max_rate(&self) -> bool {
        false
    }

    /// Returns the tester's calibration that a trial at this rate (frames per second) cites; none without a calibration for such
    /// frames. Called while a case is entered.
    fn cited(&self, _trial: &Trial, _rate_pps: f64) -> Option<CitedCalibration> {
        None
    }

    /// Returns the missing calibration, if the tester has calibrations but none for this tester or these frames; none if nothing is
    /// missing. Called while a case is entered.
    fn missing_calibration(&self, _trial: &Trial) -> Option<MissingCalibration> {
        None
    }

    /// Returns the pause before a trial that follows this number of invalid ones. Default: a pause that grows from
    /// 100 ms to 5 s, because a disturbance of the tester may end in this time.
    fn pause_after_invalid(&self, in_a_row: u32) -> Duration {
        pause::after_invalid(in_a_row)
    }

    /// Runs one trial. If the tester fails, the result is an invalid trial, not an error.
    ///
    /// # Errors
    /// Why the trial could not run.
    fn run(&mut self, trial: &Trial) -> Result<Measured, BenchError>;

    /// Runs one action of a procedure. `frames` gives the frames, the warm-up and the drain; its rate and duration
    /// are not used. If the tester fails, the result is [`Observation::Invalid`], not an error.
    ///
    /// # Errors
    /// Why the action could not run, for example because the bench does not support it.
    fn act(&mut self, action: &Action, frames: &Trial) -> Result<ActionOutcome, BenchError>;

    /// Runs the application measurements through the device. Called while a case is entered.
    ///
    /// # Errors
    /// Why they could not run, for example because the bench does not support them.
    fn apply(&mut self, _plan: &ApplicationPlan) -> Result<ApplicationResult, BenchError> {
        Err("[application] is supported in the lab only (remove the section, or run the study in the lab)".into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::results::CaseFacts;

    #[test]
    fn a_case_that_was_left_out_has_the_reason() {
        for (why, failed) in [
            (CaseSkipped::Unavailable("r".to_owned()), false),
            (CaseSkipped::Failed("r".to_owned()), true),
        ] {
            let settings = serde_json::to_value(CaseLeftOut::from(&why)).unwrap();
            assert_eq!(settings, json!({ "unavailable": "r", "failed": failed }));
            let facts = CaseFacts::of(&settings).unwrap();
            assert_eq!(
                (facts.unavailable.as_deref(), facts.failed),
                (Some("r"), failed)
            );
        }
    }
}
