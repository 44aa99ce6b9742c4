// SPDX-License-Identifier: Apache-2.0
//! Results of each method as a table of texts, for page and terminal. Each method has its file; [`ALL`] lists them.

mod connections;
mod forwarding_rate;
mod functions;
mod latency_plan;
pub(crate) mod loss_distribution;
mod of_n;
mod procedure;
mod repeat;
mod soak;
mod sweep;
mod table;

use crate::method_table::ResultTable;
use crate::summary::SizeSummary;
use crate::tenants;
use table::MethodTable;

const ALL: &[MethodTable] = &[
    of_n::TABLE,
    sweep::TABLE,
    repeat::TABLE,
    loss_distribution::TABLE,
    forwarding_rate::TABLE,
    latency_plan::TABLE,
    latency_plan::VARIATION,
    soak::TABLE,
    procedure::TABLE,
    connections::TABLE,
    connections::TIMES,
    functions::TABLE,
];

/// Returns one table for each method that has results.
pub(crate) fn tables(size: &SizeSummary) -> Vec<ResultTable> {
    let of = |table: &MethodTable| ResultTable {
        title: table.title,
        lead: table.lead,
        labels: table.labels,
        head: table.head,
        rows: size.cases.iter().flat_map(table.rows).collect(),
    };
    let tables = ALL.iter().map(of);
    let tables = tables.filter(|table| !table.rows.is_empty());
    size.tenants
        .as_ref()
        .and_then(tenants::table)
        .into_iter()
        .chain(tables)
        .collect()
}
