// SPDX-License-Identifier: Apache-2.0
//! State shared by all methods: the pending request, the trials so far, and invalid trials in a row.

use crate::{Attempt, Outcome, RecordError, TrialRequest};

/// Pending trial and recorded trials.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pending: Option<TrialRequest>,
    history: Vec<Attempt>,
    invalid_in_a_row: usize,
}

/// Meaning of a recorded trial for a method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// A valid trial with this loss ratio.
    Loss(f64),
    /// The trial was invalid and may be repeated.
    Repeat,
    /// The trial and all permitted repeats were invalid.
    GiveUp,
}

impl Ledger {
    /// Records `request` as pending. While a request is pending, another one has no effect.
    pub(crate) fn issue(&mut self, request: TrialRequest) -> TrialRequest {
        *self.pending.get_or_insert(request)
    }

    /// Records the outcome of the pending request. Returns that request with the verdict.
    pub(crate) fn settle(
        &mut self,
        outcome: Outcome,
        max_invalid_repeats: u32,
    ) -> Result<(TrialRequest, Verdict), RecordError> {
        let request = self.pending.ok_or(RecordError::NothingPending)?;
        if let Outcome::Valid {
            effective_duration_s: Some(duration_s),
            ..
        } = outcome
            && !(duration_s.is_finite() && duration_s > 0.0)
        {
            return Err(RecordError::EffectiveDuration(duration_s));
        }
        let verdict = match &outcome {
            Outcome::Valid { loss_ratio, .. } if (0.0..=1.0).contains(loss_ratio) => {
                self.invalid_in_a_row = 0;
                Verdict::Loss(*loss_ratio)
            }
            Outcome::Valid { loss_ratio, .. } => return Err(RecordError::LossRatio(*loss_ratio)),
            Outcome::Invalid { .. } => {
                self.invalid_in_a_row = self.invalid_in_a_row.saturating_add(1);
                if self.invalid_in_a_row > max_invalid_repeats as usize {
                    Verdict::GiveUp
                } else {
                    Verdict::Repeat
                }
            }
        };
        self.pending = None;
        self.history.push(Attempt { request, outcome });
        Ok((request, verdict))
    }

    /// Returns the reasons of the invalid trials since the last valid one or [`Ledger::discard_failure`], oldest first.
    pub(crate) fn invalid_reasons(&self) -> Vec<String> {
        let before = self.history.len().saturating_sub(self.invalid_in_a_row);
        self.history
            .iter()
            .skip(before)
            .filter_map(|attempt| match &attempt.outcome {
                Outcome::Invalid { reason, .. } => Some(reason.clone()),
                Outcome::Valid { .. } => None,
            })
            .collect()
    }

    /// Resets the count of invalid trials, for a method that continues at another rate.
    pub(crate) fn discard_failure(&mut self) {
        self.invalid_in_a_row = 0;
    }

    /// Returns all trials so far.
    pub(crate) fn history(&self) -> &[Attempt] {
        &self.history
    }
}
