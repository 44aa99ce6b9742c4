// SPDX-License-Identifier: Apache-2.0
//! Loss, latency and cycles within trials.

use maud::{Markup, html};
use quietwire_study::StudyResults;
use quietwire_tester::SERIES_POINTS_MAX;

use crate::chart::course;
use crate::courses::{CourseRecord, shown};
use crate::format;
use crate::summary::SizeSummary;

/// Renders the courses of at most two trials of each case. Returns nothing if no trial has one.
pub(super) fn courses(results: &StudyResults, size: &SizeSummary) -> Markup {
    let of_cases: Vec<Vec<CourseRecord<'_>>> = size
        .cases
        .iter()
        .map(|case| shown(results, &case.name, &size.frame_size))
        .collect();
    html! {
        @if of_cases.iter().any(|shown| !shown.is_empty()) {
            details {
                summary { "Loss, latency and cycles within trials" }
                p.note {
                    "Of each case, the valid trial with the most loss, and the one at a low load with the largest latency, in at most "
                    (SERIES_POINTS_MAX) " intervals. Frames on their way at the end of an interval count as lost in it. The last interval "
                    "contains the drain. " code { "quietwire study report STORE --series FILE" } " writes the intervals of every trial."
                }
                @for (index, (case, shown)) in size.cases.iter().zip(&of_cases).enumerate() {
                    @for one in shown { (of_trial(index, &case.name, one)) }
                }
            }
        }
    }
}

fn of_trial(case: usize, name: &str, shown: &CourseRecord<'_>) -> Markup {
    let words = shown.reason.words();
    let title = format!("{name}: loss, latency and cycles in {words}");
    let result = &shown.trial.result;
    html! {
        h3 { (name) ", " (words) }
        p.note {
            "Round " (shown.step.round.saturating_add(1)) ", " (shown.step.kind) ", " (format::rate(result.achieved_rate_pps)) " offered, "
            (format::loss(result.loss_ratio)) " lost."
        }
        figure { (course(&title, case, &result.series)) }
    }
}
