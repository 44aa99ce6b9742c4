// SPDX-License-Identifier: Apache-2.0
//! Interface of methods that request actions.

use super::action::{Action, Observation};
use super::result::ProcedureResult;
use crate::RecordError;

/// Next step of a procedure.
#[derive(Clone, Debug, PartialEq)]
pub enum ProcedureStep {
    /// Perform this action, then call [`Procedure::record`] with its observation.
    Do(Action),
    /// The procedure has ended.
    Done(Box<ProcedureResult>),
}

/// Method that requests actions until it ends. The call sequence is that of [`crate::Method`].
pub trait Procedure {
    /// Returns the method's name in kebab case, such as `back-to-back`.
    fn name(&self) -> &'static str;

    /// Returns the next action, or the result. Until the observation is recorded, it returns the same action again.
    fn step(&mut self) -> ProcedureStep;

    /// Records the observation of the action that [`Procedure::step`] returned last.
    ///
    /// # Errors
    /// [`RecordError::NothingPending`] if no action is pending; [`RecordError::WrongObservation`] if the observation does not belong to
    /// the action or has an impossible number. In both cases the procedure is unchanged.
    fn record(&mut self, observation: Observation) -> Result<(), RecordError>;
}
