// SPDX-License-Identifier: Apache-2.0
//! Further methods: one table each, and loss by percentile of trials for loss distributions.

use maud::{Markup, html};

use crate::chart::distribution;
use crate::method_table::ResultTable;
use crate::methods::{loss_distribution, tables};
use crate::summary::{MethodFigures, SizeSummary};

pub(super) fn method_tables(size: &SizeSummary) -> Markup {
    html! {
        @for table in tables(size) {
            section {
                h2 { (table.title) }
                p.lead { (table.lead) }
                @if table.title == loss_distribution::TITLE { (plots(size)) }
                (rows(&table))
            }
        }
    }
}

fn rows(table: &ResultTable) -> Markup {
    html! {
        div.scroll role="region" tabindex="0" aria-label=(table.title) {
            table {
                thead {
                    tr {
                        @for head in table.labels.iter().chain(table.head) { th scope="col" { (head) } }
                    }
                }
                tbody {
                    @for row in &table.rows {
                        tr {
                            @for (index, text) in row.iter().enumerate() {
                                @if index == 0 { th scope="row" { (text) } } @else { td { (text) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn plots(size: &SizeSummary) -> Markup {
    html! {
        div.pair {
            @for case in &size.cases {
                @for result in &case.methods {
                    @if let MethodFigures::LossDistribution { rates } = &result.figures {
                        figure {
                            figcaption { (case.name) ", round " (result.round.saturating_add(1)) }
                            (distribution(rates))
                        }
                    }
                }
            }
        }
    }
}
