// SPDX-License-Identifier: Apache-2.0
//! State machine of methods and procedures, and repeats of invalid trials.

use quietwire_search::procedure::{Action, Observation, Procedure, ProcedureResult, ProcedureStep};
use quietwire_search::{Findings, Method, Outcome, RecordError, Step, TrialRequest};

use super::application::ApplicationPlan;
use super::application::result::ApplicationResult;

/// A running step: requests a trial, receives its outcome, and so on until it is finished.
pub(crate) enum Machine {
    Method(Box<dyn Method>),
    Repeats(Repeats),
    Procedure(Box<dyn Procedure>),
    /// Application measurements, with their results once available.
    Application(ApplicationPlan, Option<Box<ApplicationResult>>),
    /// No trial is possible, because the search found no rate to start from.
    Nothing,
}

/// A trial requested by a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepRequest {
    pub(crate) request: TrialRequest,
    /// Allowed error of the achieved rate, frames per second: half of the width of a search.
    pub(crate) tolerance_pps: Option<f64>,
}

/// Next request of a step.
pub(crate) enum Next {
    Run(StepRequest),
    Do(Action),
    Apply(ApplicationPlan),
    /// Finished.
    Done(Found),
}

/// Result of a step.
pub(crate) enum Found {
    Nothing,
    Search(Findings),
    Procedure(Box<ProcedureResult>),
    Application(Box<ApplicationResult>),
}

impl Machine {
    pub(crate) fn next(&mut self) -> Next {
        match self {
            Self::Method(method) => match method.step() {
                Step::Run(request) => Next::Run(StepRequest {
                    request,
                    tolerance_pps: method.width_pps(request.rate_pps).map(|width| width / 2.0),
                }),
                Step::Done(result) => Next::Done(Found::Search(result.findings)),
            },
            Self::Procedure(procedure) => match procedure.step() {
                ProcedureStep::Do(action) => Next::Do(action),
                ProcedureStep::Done(result) => Next::Done(Found::Procedure(result)),
            },
            Self::Application(plan, None) => Next::Apply(*plan),
            Self::Application(_, Some(observed)) => {
                Next::Done(Found::Application(observed.clone()))
            }
            Self::Nothing => Next::Done(Found::Nothing),
            Self::Repeats(repeats) if repeats.left == 0 => Next::Done(Found::Nothing),
            Self::Repeats(repeats) => Next::Run(StepRequest {
                request: repeats.request,
                tolerance_pps: None,
            }),
        }
    }

    pub(crate) fn record(&mut self, outcome: Outcome) -> Result<(), RecordError> {
        match self {
            Self::Method(method) => method.record(outcome),
            Self::Repeats(repeats) => {
                repeats.record(&outcome);
                Ok(())
            }
            Self::Nothing | Self::Procedure(_) | Self::Application(..) => {
                Err(RecordError::NothingPending)
            }
        }
    }

    /// Records the results of the application measurements.
    pub(crate) fn applied(&mut self, observed: ApplicationResult) {
        if let Self::Application(_, into) = self {
            *into = Some(Box::new(observed));
        }
    }

    /// Records the observation of an action.
    pub(crate) fn observe(&mut self, observation: Observation) -> Result<(), RecordError> {
        match self {
            Self::Procedure(procedure) => procedure.record(observation),
            _ => Err(RecordError::NothingPending),
        }
    }
}

/// Repetition of one trial: a number of times, or until the loss is small enough. An invalid trial is repeated up to a limit.
pub(crate) struct Repeats {
    pub(crate) request: TrialRequest,
    pub(crate) left: u32,
    /// Loss ratio at or below which no further trial is needed; none if all are needed.
    pub(crate) enough: Option<f64>,
    pub(crate) invalid_in_a_row: u32,
    pub(crate) max_invalid_repeats: u32,
}

impl Repeats {
    pub(crate) fn record(&mut self, outcome: &Outcome) {
        if matches!(outcome, Outcome::Invalid { .. })
            && self.invalid_in_a_row < self.max_invalid_repeats
        {
            self.invalid_in_a_row = self.invalid_in_a_row.saturating_add(1);
        } else {
            self.invalid_in_a_row = 0;
            self.left = self.left.saturating_sub(1);
        }
        let is_enough = |loss: f64| self.enough.is_some_and(|enough| loss <= enough);
        if matches!(outcome, Outcome::Valid { loss_ratio, .. } if is_enough(*loss_ratio)) {
            self.left = 0;
        }
    }
}
