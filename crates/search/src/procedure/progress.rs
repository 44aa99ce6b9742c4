// SPDX-License-Identifier: Apache-2.0
//! State shared by all procedures: the pending action, the actions so far, and failures in a row.

use super::action::{Action, Observation};
use super::result::{PerformedAction, ProcedureEnd, ProcedureFindings, ProcedureResult};
use super::step::ProcedureStep;
use crate::RecordError;

#[derive(Clone, Debug)]
pub(super) struct Progress {
    pending: Option<Action>,
    history: Vec<PerformedAction>,
    reasons: Vec<String>,
    max_invalid_repeats: u32,
    end: Option<ProcedureEnd>,
}

/// Meaning of an observation for a procedure.
pub(super) enum ObservationVerdict {
    /// The observation is valid.
    Valid(Observation),
    /// The action failed and may be repeated.
    Again,
    /// The procedure has ended.
    Over,
}

impl Progress {
    pub(super) fn new(max_invalid_repeats: u32) -> Self {
        Self {
            pending: None,
            history: Vec::new(),
            reasons: Vec::new(),
            max_invalid_repeats,
            end: None,
        }
    }

    /// Returns the next step. `next` is the action that the procedure requires, if any.
    pub(super) fn step(
        &mut self,
        next: Option<Action>,
        findings: impl FnOnce() -> ProcedureFindings,
    ) -> ProcedureStep {
        match (&self.end, next) {
            (None, Some(action)) => ProcedureStep::Do(*self.pending.get_or_insert(action)),
            (end, _) => ProcedureStep::Done(Box::new(ProcedureResult {
                end: end.clone().unwrap_or(ProcedureEnd::Finished),
                findings: findings(),
                history: self.history.clone(),
            })),
        }
    }

    /// Returns the pending action.
    pub(super) fn pending(&self) -> Option<Action> {
        self.pending
    }

    /// Returns the actions so far.
    pub(super) fn history(&self) -> &[PerformedAction] {
        &self.history
    }

    /// Adds the actions of an earlier part of the procedure.
    pub(super) fn adopt(&mut self, earlier: Vec<PerformedAction>) {
        self.history.extend(earlier);
    }

    /// Ends the procedure, because an action and all its repeats were invalid.
    pub(super) fn give_up(&mut self, action: Action, reasons: Vec<String>) {
        self.end = Some(ProcedureEnd::Invalid { action, reasons });
    }

    pub(super) fn settle(
        &mut self,
        observation: Observation,
    ) -> Result<ObservationVerdict, RecordError> {
        let action = self.pending.ok_or(RecordError::NothingPending)?;
        if !fits(&action, &observation) {
            return Err(RecordError::WrongObservation {
                action: format!("{action:?}"),
                observation: format!("{observation:?}"),
            });
        }
        self.pending = None;
        self.history.push(PerformedAction {
            action,
            observation: observation.clone(),
        });
        let Observation::Invalid { reason, .. } = observation else {
            self.reasons.clear();
            return Ok(ObservationVerdict::Valid(observation));
        };
        self.reasons.push(reason);
        if self.reasons.len() <= self.max_invalid_repeats as usize {
            return Ok(ObservationVerdict::Again);
        }
        self.end = Some(ProcedureEnd::Invalid {
            action,
            reasons: std::mem::take(&mut self.reasons),
        });
        Ok(ObservationVerdict::Over)
    }
}

/// Returns true if the observation belongs to the action and its numbers are possible.
fn fits(action: &Action, observation: &Observation) -> bool {
    let is_time = |time: &Option<f64>| time.is_none_or(|time| time.is_finite() && time >= 0.0);
    match (action, observation) {
        (_, Observation::Invalid { .. })
        | (Action::FlushFdb | Action::Learn { .. }, Observation::Done) => true,
        (
            Action::Burst { frames, .. },
            Observation::Passed {
                lost_frames,
                rate_pps,
            },
        ) => lost_frames <= frames && rate_pps.is_none_or(|rate| rate.is_finite() && rate > 0.0),
        (Action::StepDown { reduced_s, .. }, Observation::Recovered { after_s }) => {
            is_time(after_s) && after_s.is_none_or(|after_s| after_s <= *reduced_s)
        }
        (Action::Restart { .. }, Observation::Restored { gap_s, .. }) => is_time(gap_s),
        (Action::Probe { addresses, .. }, Observation::Probed { lost_frames, .. }) => {
            *lost_frames <= u64::from(*addresses)
        }
        (Action::Converse(_), Observation::Conversed(counts)) => counts.is_possible(),
        _ => false,
    }
}
