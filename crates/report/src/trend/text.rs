// SPDX-License-Identifier: Apache-2.0
//! A trend as a table for a terminal.

use super::{Trend, TrendChange, TrendSeries};
use crate::format;
use crate::summary::value_text;
use crate::terminal_table::TerminalTable;

/// Maximum number of differing settings that the text names for a change. The document for programs has all.
const DIFFERENCES_MAX: usize = 8;

impl Trend {
    /// Returns the trend as text. `width` is the terminal's, in columns; none if the output is not a terminal.
    #[must_use]
    pub fn text(&self, width: Option<u16>) -> String {
        let header = [
            "study", "case", "frames", "quantity", "values", "first", "last", "changes",
        ];
        let mut table = TerminalTable::new(header, width).ruled().labels(4);
        for series in &self.series {
            table.add_row(self.row(series));
        }
        let mut text = format!(
            "{} stores, error rate {}, margin {}\n{table}\n",
            self.stores.len(),
            self.config.error_rate,
            format::percent(self.config.margin * 100.0)
        );
        for series in &self.series {
            for change in &series.changes {
                text.push_str(&format!("{}\n", self.change_text(series, change)));
            }
        }
        for skipped in &self.skipped {
            text.push_str(&format!("skipped: {skipped}\n"));
        }
        text.replace(format::THIN, " ")
    }

    fn row(&self, series: &TrendSeries) -> [String; 8] {
        let known: Vec<f64> = series
            .points
            .iter()
            .filter_map(|point| point.value)
            .collect();
        let value = |value: Option<&f64>| {
            value.map_or_else(|| "–".to_owned(), |value| value_text(series.unit, *value))
        };
        let changes = series
            .changes
            .iter()
            .map(|change| self.store_name(change.store));
        let changes: Vec<&str> = changes.collect();
        [
            series.study.clone(),
            series.case.clone(),
            series.frame_size.clone(),
            series.quantity.clone(),
            known.len().to_string(),
            value(known.first()),
            value(known.last()),
            match (&series.reason, changes.is_empty()) {
                (_, false) => changes.join(", "),
                (Some(_), true) => "too few values".to_owned(),
                (None, true) => "none".to_owned(),
            },
        ]
    }

    /// Returns the name of a store.
    pub(super) fn store_name(&self, index: usize) -> &str {
        self.stores
            .get(index)
            .map_or("", |store| store.name.as_str())
    }

    /// Returns a change as a sentence, with the settings that differ.
    pub(super) fn change_text(&self, series: &TrendSeries, change: &TrendChange) -> String {
        let mut text = format!(
            "{}{} of {} ({}, {}) changes from {} to {} at {} (p = {:.4})",
            if change.is_regression {
                "REGRESSION: "
            } else {
                ""
            },
            series.quantity,
            series.case,
            series.study,
            series.frame_size,
            value_text(series.unit, change.before),
            value_text(series.unit, change.after),
            self.store_name(change.store),
            change.p_value,
        );
        let names: Vec<&str> = change
            .differences
            .iter()
            .take(DIFFERENCES_MAX)
            .map(|difference| difference.setting.as_str())
            .collect();
        let others = change.differences.len().saturating_sub(names.len());
        if names.is_empty() {
            text.push_str("; no setting differs there");
        } else {
            text.push_str(&format!("; there differ {}", names.join(", ")));
        }
        if others > 0 {
            text.push_str(&format!(" and {others} more"));
        }
        text
    }
}
