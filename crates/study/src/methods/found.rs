// SPDX-License-Identifier: Apache-2.0
//! Rates found by a search.

use quietwire_search::Findings;

use super::method::FoundBefore;
use super::step_kind::StepKind;

/// Returns the rate of a goal, as shown on the page of a study. `goals` are the names of all goals, in order.
pub(super) fn rate_of(goal: &str, goals: &[String], found: FoundBefore<'_>) -> Option<f64> {
    found.iter().find_map(|(kind, findings)| match kind {
        StepKind::Search(name) if name == goal => match findings {
            Findings::SingleRun(findings) => findings.highest_held_pps,
            Findings::BestWorst(findings) => findings
                .worst
                .as_ref()
                .or(findings.best.as_ref())
                .and_then(|side| side.highest_held_pps),
            _ => None,
        },
        StepKind::Goals => {
            let index = goals.iter().position(|known| known == goal)?;
            let Findings::MlrSearch(findings) = findings else {
                return None;
            };
            Some(findings.goals.get(index)?.lower?.rate_pps)
        }
        _ => None,
    })
}
