// SPDX-License-Identifier: Apache-2.0
//! Table of the results of one method.

/// Table of one method, over all cases and rounds.
pub(crate) struct ResultTable {
    /// Heading.
    pub(crate) title: &'static str,
    /// Meaning of the figures, in one or two sentences.
    pub(crate) lead: &'static str,
    /// Headers of the first columns, which identify a row.
    pub(crate) labels: &'static [&'static str],
    /// Headers of the other columns.
    pub(crate) head: &'static [&'static str],
    /// Cells: a text for each column.
    pub(crate) rows: Vec<Vec<String>>,
}

impl ResultTable {
    /// Returns the table without the columns for case and round if all rows are of one case and one round.
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
