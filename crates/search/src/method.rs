// SPDX-License-Identifier: Apache-2.0
//! Interface of all search methods: requests, outcomes and results.

mod findings;
mod trial;

use crate::RecordError;

pub use findings::{Findings, RepeatFindings, RepeatedRun, SearchResult};
pub use trial::{Attempt, Outcome, TrialRequest};

/// Next step of a search.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Run this trial, then call [`Method::record`] with its outcome.
    Run(TrialRequest),
    /// The search has ended.
    Done(SearchResult),
}

/// Search method: requests trials and receives their outcomes until it ends.
///
/// The call sequence is `step`, run the trial, `record`, `step`, and so on. Until the outcome is recorded, [`Method::step`] returns the
/// same request again. A method decides only by its parameters and the recorded outcomes, so the same outcomes always give the same
/// search.
pub trait Method {
    /// Returns the method's name in kebab case, as stored in results, such as `single-run`.
    fn name(&self) -> &'static str;

    /// Returns the next trial, or the result. After [`Step::Done`], it always returns the result.
    fn step(&mut self) -> Step;

    /// Records the outcome of the trial that [`Method::step`] returned last.
    ///
    /// # Errors
    /// [`RecordError::NothingPending`] if no trial is pending, [`RecordError::LossRatio`] if the loss ratio is outside \[0, 1],
    /// [`RecordError::EffectiveDuration`] if the effective duration is not above zero. In each case the search is unchanged, and the
    /// request (if any) stays pending.
    fn record(&mut self, outcome: Outcome) -> Result<(), RecordError>;

    /// Returns the resolution of the search near this rate, frames per second; `None` if the method does not search for a rate.
    fn width_pps(&self, _rate_pps: f64) -> Option<f64> {
        None
    }

    /// Returns the trials recorded so far.
    fn history(&self) -> &[Attempt];
}
