// SPDX-License-Identifier: Apache-2.0
//! Comparison of a case with neighbours and the same case without.

use quietwire_study::{Case, NeighboursIn, StudyFile};
use serde::Serialize;

use super::case::CaseSummary;
use super::spread::percent_of;

/// A partitioned case with neighbours, compared with the same case without.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LikeForLike {
    /// The case with neighbours.
    pub case: String,
    /// The case without.
    pub against: String,
    /// Rates of the goals in percent of those of the other case, in the order of the goals; none if one of the two has no rate.
    pub percent_of_goals: Vec<Option<f64>>,
}

/// Returns the first partitioned case with neighbours whose counterpart without neighbours was measured as well.
pub(super) fn of_cases(file: &StudyFile, cases: &[CaseSummary]) -> Option<LikeForLike> {
    let measured = |case: &Case| cases.iter().find(|known| known.name == case.name);
    file.cases.iter().find_map(|noisy| {
        let is_one = noisy.neighbours != NeighboursIn::None && noisy.keeps_others_off();
        let quiet = file.cases.iter().filter(|_| is_one);
        let (case, against) = quiet
            .filter(|quiet| is_same_without(file, quiet, noisy))
            .find_map(|quiet| measured(noisy).zip(measured(quiet)))?;
        let goals = case.goals.iter().zip(&against.goals);
        Some(LikeForLike {
            case: case.name.clone(),
            against: against.name.clone(),
            percent_of_goals: goals
                .map(|(goal, base)| {
                    let (rate, base) = (goal.rate_pps.as_ref()?, base.rate_pps.as_ref()?);
                    percent_of(rate.median, base.median)
                })
                .collect(),
        })
    })
}

/// Returns true if two cases differ only in the neighbours, and the first has none.
fn is_same_without(file: &StudyFile, quiet: &Case, noisy: &Case) -> bool {
    quiet.neighbours == NeighboursIn::None
        && quiet.isolation() == noisy.isolation()
        && quiet.is_pinned() == noisy.is_pinned()
        && quiet.keeps_others_off() == noisy.keeps_others_off()
        && file.device_of(quiet) == file.device_of(noisy)
        && file.traffic_of(quiet) == file.traffic_of(noisy)
}
