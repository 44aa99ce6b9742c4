// SPDX-License-Identifier: Apache-2.0
//! Common parts of the tables of all methods.

use crate::summary::{CaseSummary, MethodFigures, MethodResult};

/// Presentation of the results of a method.
pub(super) struct MethodTable {
    /// Title.
    pub(super) title: &'static str,
    /// Meaning of the figures, in one or two sentences.
    pub(super) lead: &'static str,
    /// Headers of the first columns, which identify a row.
    pub(super) labels: &'static [&'static str],
    /// Headers of the other columns.
    pub(super) head: &'static [&'static str],
    /// Cells: a text for each column, row by row.
    pub(super) rows: fn(&CaseSummary) -> Vec<Vec<String>>,
}

/// Labels of a method with one result for each round.
pub(super) const LABELS: &[&str] = &["case", "round"];

/// Placeholder for an unknown figure.
pub(super) const NONE: &str = "–";

/// Returns the rows of a case, each preceded by its name and the number of the round.
pub(super) fn by_round(
    case: &CaseSummary,
    rows: fn(&MethodFigures) -> Vec<Vec<String>>,
) -> Vec<Vec<String>> {
    let of_result = |result: &MethodResult| {
        let place = [
            case.name.clone(),
            result.round.saturating_add(1).to_string(),
        ];
        let rows = rows(&result.figures).into_iter();
        rows.map(|row| place.iter().cloned().chain(row).collect())
            .collect::<Vec<_>>()
    };
    case.methods.iter().flat_map(of_result).collect()
}

pub(super) fn or_none(value: Option<f64>, shown: fn(f64) -> String) -> String {
    value.map_or_else(|| NONE.to_owned(), shown)
}
