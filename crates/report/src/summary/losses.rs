// SPDX-License-Identifier: Apache-2.0
//! Lost frames by place, over all valid trials of a case.

use quietwire_study::TrialRecord;
use quietwire_tester::account::{Accounted, LossAccount};
use serde::Serialize;

/// Sum of the loss accounts of a case's valid trials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LossPlaces {
    /// Valid trials with a loss account.
    pub trials: usize,
    /// Valid trials whose device provided no counters.
    pub trials_without: usize,
    /// The reason of the last of those.
    pub unavailable_reason: Option<String>,
    /// Frames of all trials with a loss account.
    #[serde(flatten)]
    pub account: LossAccount,
}

/// Returns none if no trial has a loss account, as in stores of earlier versions.
pub(super) fn of_trials(trials: &[&TrialRecord]) -> Option<LossPlaces> {
    let mut places = LossPlaces {
        trials: 0,
        trials_without: 0,
        unavailable_reason: None,
        account: LossAccount::default(),
    };
    for trial in trials.iter().filter(|trial| trial.result.is_valid()) {
        match &trial.result.loss_account {
            None => {}
            Some(Accounted::Account(account)) => {
                places.trials = places.trials.saturating_add(1);
                places.account.add(account);
            }
            Some(Accounted::Unavailable(why)) => {
                places.trials_without = places.trials_without.saturating_add(1);
                places.unavailable_reason = Some(why.clone());
            }
        }
    }
    (places.trials > 0 || places.trials_without > 0).then_some(places)
}
