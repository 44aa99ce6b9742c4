// SPDX-License-Identifier: Apache-2.0
//! What every search method has in common: the questions it asks, the answers it takes, the result it gives.

mod findings;
mod trial;

use crate::RecordError;

pub use findings::{Findings, RepeatFindings, RepeatedRun, SearchResult};
pub use trial::{Attempt, Outcome, TrialRequest};

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Run this trial, then [`Method::record`] its outcome.
    Run(TrialRequest),
    /// The search is over.
    Done(SearchResult),
}

/// A search: asks for a trial, is told the outcome, until it is done.
///
/// The rhythm is `step`, run, `record`, `step`, … . [`Method::step`] may be called again before the outcome is
/// known and gives the same request. No method takes a decision from anything but its parameters and the recorded
/// outcomes, so the same outcomes always give the same search.
pub trait Method {
    /// The method's name in kebab case, as in stored results: `single-run`.
    fn name(&self) -> &'static str;

    /// The trial to run now, or the result. After [`Step::Done`] it stays done.
    fn step(&mut self) -> Step;

    /// Takes the outcome of the trial that [`Method::step`] asked for last.
    ///
    /// # Errors
    /// [`RecordError::NothingPending`] when no trial was asked for since the last outcome, and
    /// [`RecordError::LossRatio`] for a loss ratio outside \[0, 1], [`RecordError::EffectiveDuration`] for an
    /// effective duration that is not above zero. Each leaves the search as it was, with the
    /// request (if any) still pending.
    fn record(&mut self, outcome: Outcome) -> Result<(), RecordError>;

    /// Returns the width to which the search finds a rate near this one, frames per second. None if it does not search for one.
    fn width_pps(&self, _rate_pps: f64) -> Option<f64> {
        None
    }

    /// Trials recorded so far.
    fn history(&self) -> &[Attempt];
}
