// SPDX-License-Identifier: Apache-2.0
//! Findings: what the data of the monitors says about causes.

use maud::{Markup, html};

use crate::summary::{MachineFinding, Summary};

/// Renders the findings of every case. Returns nothing if there are none.
pub(super) fn findings(summary: &Summary) -> Markup {
    if summary.findings.is_empty() {
        return html! {};
    }
    html! {
        section.findings {
            h2 { "Findings" }
            p.lead { "Causes that the data of the monitors shows, by case. The guide has a section about each." }
            div.scroll role="region" tabindex="0" aria-label="Findings" {
                table {
                    thead {
                        tr {
                            th scope="col" { "Case" }
                            th scope="col" { "Finding" }
                            th scope="col" { "Cure" }
                            th scope="col" { "Guide" }
                        }
                    }
                    tbody {
                        @for finding in &summary.findings { (row(finding)) }
                    }
                }
            }
        }
    }
}

fn row(finding: &MachineFinding) -> Markup {
    html! {
        tr {
            th scope="row" { (finding.case) }
            td.wide { (finding.text) }
            td.wide { (finding.cure) }
            td { code { (finding.page) } }
        }
    }
}
