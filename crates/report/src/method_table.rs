// SPDX-License-Identifier: Apache-2.0
//! A table of the results of one method.

/// A table of one method, over all cases and rounds.
pub(crate) struct FurtherTable {
    /// Heading.
    pub(crate) title: &'static str,
    /// What the figures mean, one or two sentences.
    pub(crate) lead: &'static str,
    /// Heads of the first columns, which say what a row is of.
    pub(crate) labels: &'static [&'static str],
    /// Heads of the columns behind them.
    pub(crate) head: &'static [&'static str],
    /// A text for each column.
    pub(crate) rows: Vec<Vec<String>>,
}

impl FurtherTable {
    /// Returns the table without the columns of case and round if all rows are of one case and one round, which says nothing then.
    pub(crate) fn without_known_labels(mut self) -> Self {
        let known = ["case", "round"];
        let count = self
            .labels
            .iter()
            .take_while(|it| known.contains(*it))
            .count();
        let is_one = |column: usize| {
            let mut cells = self.rows.iter().map(|row| row.get(column));
            let first = cells.next();
            cells.all(|cell| Some(cell) == first)
        };
        if (0..count).all(is_one) {
            self.labels = self.labels.get(count..).unwrap_or_default();
            for row in &mut self.rows {
                row.drain(..count.min(row.len()));
            }
        }
        self
    }
}
