// SPDX-License-Identifier: Apache-2.0
//! Progress of a study: events and their receiver.

use quietwire_search::procedure::{Action, Observation};
use quietwire_tester::{CitedCalibration, MissingCalibration, TrialResult};

use crate::bench::CaseSpec;
use crate::file::FrameSize;
use crate::methods::StepKind;

/// A finished trial.
#[derive(Debug)]
pub struct TrialEvent<'a> {
    /// Name of its case.
    pub case: &'a str,
    /// Its frame size.
    pub frame_size: FrameSize,
    /// Its step.
    pub kind: &'a StepKind,
    /// Position in the step, from 0.
    pub sequence: u32,
    /// Result.
    pub result: &'a TrialResult,
    /// True if it comes from the store and was not run now.
    pub is_replayed: bool,
}

/// A finished action of a procedure.
#[derive(Debug)]
pub struct ActionEvent<'a> {
    /// Name of its case.
    pub case: &'a str,
    /// Its frame size.
    pub frame_size: FrameSize,
    /// Its step.
    pub kind: &'a StepKind,
    /// Position in the step, from 0.
    pub sequence: u32,
    /// Action.
    pub action: &'a Action,
    /// Observation.
    pub observation: &'a Observation,
    /// True if it comes from the store and was not run now.
    pub is_replayed: bool,
}

/// Receiver of the events of a study. By default each method does nothing.
pub trait Progress {
    /// Reports a case that is unavailable on this machine and left out. Called before anything is set up.
    fn unavailable(&mut self, _case: &CaseSpec, _reason: &str) {}
    /// Reports that a case is about to be set up.
    fn entering(&mut self, _case: &CaseSpec) {}
    /// Reports that a case is being undone.
    fn leaving(&mut self, _case: &CaseSpec) {}
    /// Reports 100 % of the load.
    fn max_rate(&mut self, _frame_size: FrameSize, _max_rate_pps: f64) {}
    /// Reports that 100 % of the load exceeds the calibrated rate of the tester: losses above that rate may be losses of the tester.
    /// Called once for each frame size, before any traffic.
    fn exceeds_calibration(
        &mut self,
        _frame_size: FrameSize,
        _max_rate_pps: f64,
        _cited: &CitedCalibration,
    ) {
    }
    /// Reports that trials cite no calibration of the tester, although calibrations exist. Called once.
    fn uncalibrated(&mut self, _missing: &MissingCalibration) {}
    /// Reports a finished trial.
    fn trial(&mut self, _event: &TrialEvent<'_>) {}
    /// Reports a finished action of a procedure.
    fn action(&mut self, _event: &ActionEvent<'_>) {}
    /// Reports a finished step.
    fn step_done(&mut self, _case: &str, _frame_size: FrameSize, _kind: &StepKind) {}
}

/// Ignores all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {}
