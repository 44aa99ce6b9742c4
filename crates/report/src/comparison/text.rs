// SPDX-License-Identifier: Apache-2.0
//! A comparison as a table for a terminal.

use super::{ComparedQuantity, Comparison};
use crate::format;
use crate::summary::value_text;
use crate::terminal_table::TerminalTable;

/// Maximum number of differing settings in the text. The document for programs has all.
const DIFFERENCES_MAX: usize = 40;

impl Comparison {
    /// Returns the comparison as text. `width` is the terminal's, in columns; none if the output is not a terminal.
    #[must_use]
    pub fn text(&self, width: Option<u16>) -> String {
        let [first, second] = &self.studies;
        let header = [
            "case",
            "frames",
            "quantity",
            "first",
            "second",
            "ratio (interval)",
            "finding",
        ];
        let mut table = TerminalTable::new(header, width).ruled().labels(3);
        for quantity in &self.quantities {
            table.add_row(row(quantity));
        }
        let mut text = format!(
            "first: {first}, second: {second}. Ratios are second to first, with {} confidence intervals. Margin: {}\n{table}\n",
            format::percent(self.confidence * 100.0),
            format::percent(self.margin * 100.0)
        );
        for quantity in &self.quantities {
            if let Some(reason) = &quantity.reason {
                text.push_str(&format!(
                    "unknown: {} of {} ({}): {reason}\n",
                    quantity.quantity,
                    quantity.cases(),
                    quantity.frame_size
                ));
            }
        }
        for (place, cases) in ["first", "second"].iter().zip(&self.unmatched_cases) {
            if !cases.is_empty() {
                text.push_str(&format!("only in the {place}: {}\n", cases.join(", ")));
            }
        }
        if !self.differences.is_empty() {
            text.push_str("\nDiffering settings\n");
            text.push_str(&self.differences_text(width));
        }
        text.replace(format::THIN, " ")
    }

    fn differences_text(&self, width: Option<u16>) -> String {
        let mut table = TerminalTable::new(["setting", "first", "second"], width).ruled();
        for difference in self.differences.iter().take(DIFFERENCES_MAX) {
            let value = |value: Option<&str>| value.unwrap_or("–").to_owned();
            table.add_row([
                difference.setting.clone(),
                value(difference.first.as_deref()),
                value(difference.second.as_deref()),
            ]);
        }
        let others = self.differences.len().saturating_sub(DIFFERENCES_MAX);
        match others {
            0 => format!("{table}\n"),
            _ => format!("{table}\nand {others} more (--json prints all)\n"),
        }
    }
}

fn row(quantity: &ComparedQuantity) -> [String; 7] {
    let value = |value: Option<f64>| {
        value.map_or_else(|| "–".to_owned(), |value| value_text(quantity.unit, value))
    };
    let [low, high] = quantity.effect.limits;
    let limit = |limit: Option<f64>| limit.map_or_else(|| "?".to_owned(), |it| format!("{it:.3}"));
    let ratio = quantity
        .effect
        .ratio
        .map_or_else(|| "–".to_owned(), |it| format!("{it:.3}"));
    let interval = match (low, high) {
        (None, None) => String::new(),
        _ => format!(" ({} to {})", limit(low), limit(high)),
    };
    let finding = match quantity.is_regression {
        true => "REGRESSION",
        false => quantity.finding.name(),
    };
    [
        quantity.cases(),
        quantity.frame_size.clone(),
        quantity.quantity.clone(),
        value(quantity.medians[0]),
        value(quantity.medians[1]),
        format!("{ratio}{interval}"),
        finding.to_owned(),
    ]
}
