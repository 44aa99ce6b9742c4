// SPDX-License-Identifier: Apache-2.0
//! What the tables of all methods have in common.

use crate::summary::{CaseSummary, MethodFigures, MethodResult};

/// How the results of a method are shown.
pub(super) struct MethodTable {
    /// Heading.
    pub(super) title: &'static str,
    /// What the figures mean, one or two sentences.
    pub(super) lead: &'static str,
    /// Heads of the first columns, which say what a row is of.
    pub(super) labels: &'static [&'static str],
    /// Heads of the columns behind them.
    pub(super) head: &'static [&'static str],
    /// A text for each column, row by row.
    pub(super) rows: fn(&CaseSummary) -> Vec<Vec<String>>,
}

/// Labels of a method that has a result in each round.
pub(super) const LABELS: &[&str] = &["case", "round"];

/// Stands for a figure that is not known.
pub(super) const NONE: &str = "–";

/// Rows of a case with its name and the number of the round in front.
pub(super) fn by_round(
    case: &CaseSummary,
    rows: fn(&MethodFigures) -> Vec<Vec<String>>,
) -> Vec<Vec<String>> {
    let of_result = |result: &MethodResult| {
        let place = [case.name.clone(), (result.round + 1).to_string()];
        let rows = rows(&result.figures).into_iter();
        rows.map(|row| place.iter().cloned().chain(row).collect())
            .collect::<Vec<_>>()
    };
    case.methods.iter().flat_map(of_result).collect()
}

pub(super) fn or_none(value: Option<f64>, shown: fn(f64) -> String) -> String {
    value.map_or_else(|| NONE.to_owned(), shown)
}
