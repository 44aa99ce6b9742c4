// SPDX-License-Identifier: Apache-2.0
//! Verdicts about the objectives: the first section of the page.

use maud::{Markup, html};

use crate::summary::{ObjectiveVerdict, Summary};

/// Renders the verdicts. Returns nothing if the study has no objectives.
pub(super) fn verdicts(summary: &Summary) -> Markup {
    if summary.verdicts.is_empty() {
        return html! {};
    }
    let has_sizes = summary.sizes.len() > 1;
    html! {
        section.verdicts {
            h2 { "Verdicts" }
            div.scroll role="region" tabindex="0" aria-label="Verdicts" {
                table {
                    thead {
                        tr {
                            th scope="col" { "Verdict" }
                            th scope="col" { "Objective" }
                            @if has_sizes { th scope="col" { "Frame size" } }
                            th scope="col" { "Bound" }
                            th scope="col" { "Median (confidence interval)" }
                            th.num scope="col" { "Values that meet it" }
                        }
                    }
                    tbody {
                        @for verdict in &summary.verdicts { (row(verdict, has_sizes)) }
                    }
                }
            }
            p.note {
                "Pass and fail are each wrong with a probability of at most "
                (error_rate(summary))
                ", whatever the distribution of the values. The values are those of independent rounds."
            }
        }
    }
}

fn row(verdict: &ObjectiveVerdict, has_sizes: bool) -> Markup {
    let judgement = &verdict.judgement;
    html! {
        tr {
            td { b class=(class(verdict)) { (judgement.verdict.name()) } }
            th scope="row" {
                (verdict.name)
                @if let Some(reason) = &judgement.reason { div.dim { (reason) } }
            }
            @if has_sizes { td { (verdict.frame_size) } }
            td { (verdict.bound_text()) }
            td { (verdict.found_text()) }
            td.num { (verdict.count_text()) }
        }
    }
}

fn class(verdict: &ObjectiveVerdict) -> &'static str {
    match verdict.judgement.verdict {
        quietwire_study::Verdict::Pass => "verdict pass",
        quietwire_study::Verdict::Fail => "verdict fail",
        quietwire_study::Verdict::Unknown => "verdict unknown",
    }
}

/// Returns the largest error rate of all rules.
fn error_rate(summary: &Summary) -> String {
    let rules = summary.verdicts.iter().filter_map(|verdict| verdict.rule);
    let largest = rules.map(|rule| rule.error_rate).fold(0.0, f64::max);
    crate::format::percent(largest * 100.0)
}
