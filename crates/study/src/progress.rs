// SPDX-License-Identifier: Apache-2.0
//! Who is told what goes on in a study, and what they are told.

use quietwire_search::procedure::{Action, Observation};
use quietwire_tester::{CitedCalibration, MissingCalibration, TrialResult};

use crate::bench::CaseSpec;
use crate::file::FrameSize;
use crate::methods::StepKind;

/// One trial, when it is through.
#[derive(Debug)]
pub struct TrialEvent<'a> {
    /// Name of its case.
    pub case: &'a str,
    /// Its frame size.
    pub frame_size: FrameSize,
    /// Its step.
    pub kind: &'a StepKind,
    /// Its place in the step, from 0.
    pub sequence: u32,
    /// What was seen.
    pub result: &'a TrialResult,
    /// True when it comes from the store and was not made now.
    pub is_replayed: bool,
}

/// One thing done for a procedure.
#[derive(Debug)]
pub struct DeedEvent<'a> {
    /// Name of its case.
    pub case: &'a str,
    /// Its frame size.
    pub frame_size: FrameSize,
    /// Its step.
    pub kind: &'a StepKind,
    /// Its place in the step, from 0.
    pub sequence: u32,
    /// What was asked.
    pub action: &'a Action,
    /// What was seen.
    pub observation: &'a Observation,
    /// True when it comes from the store and was not done now.
    pub is_replayed: bool,
}

/// Told what goes on; does nothing unless told what to do.
pub trait Progress {
    /// This machine cannot have a case, which is left out. Told before anything is set up.
    fn unavailable(&mut self, _case: &CaseSpec, _reason: &str) {}
    /// A case is about to be set up.
    fn entering(&mut self, _case: &CaseSpec) {}
    /// A case is being undone.
    fn leaving(&mut self, _case: &CaseSpec) {}
    /// 100 % of the load is this.
    fn max_rate(&mut self, _frame_size: FrameSize, _max_rate_pps: f64) {}
    /// 100 % of the load is more than the tester was found clean at: what is lost above that may be the tester's. Told once
    /// for each frame size, before anything is offered.
    fn exceeds_calibration(
        &mut self,
        _frame_size: FrameSize,
        _max_rate_pps: f64,
        _cited: &CitedCalibration,
    ) {
    }
    /// Trials cite no calibration of the tester, though there are calibrations. Told once.
    fn uncalibrated(&mut self, _missing: &MissingCalibration) {}
    /// A trial is through.
    fn trial(&mut self, _event: &TrialEvent<'_>) {}
    /// Something was done for a procedure.
    fn deed(&mut self, _event: &DeedEvent<'_>) {}
    /// A step is through.
    fn step_done(&mut self, _case: &str, _frame_size: FrameSize, _kind: &StepKind) {}
}

/// Tells nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {}
