// SPDX-License-Identifier: Apache-2.0
//! Methods that ask for actions until they are done.

use super::action::{Action, Observation};
use super::result::ProcedureResult;
use crate::RecordError;

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum ProcedureStep {
    /// Do this, then [`Procedure::record`] what was seen.
    Do(Action),
    /// The procedure is over.
    Done(Box<ProcedureResult>),
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
