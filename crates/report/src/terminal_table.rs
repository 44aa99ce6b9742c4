// SPDX-License-Identifier: Apache-2.0
//! Tables for a terminal, within its width as long as words fit; words are not broken. Columns that do not fit next to the
//! others follow in another table below, with the first columns repeated.

use std::fmt::{self, Display, Formatter};

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};

/// Padding of each cell, both sides together, columns.
const PADDING: usize = 2;

/// A table of texts with the width of the terminal.
#[derive(Clone, Debug)]
pub struct TerminalTable {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    width: Option<u16>,
    labels: usize,
    numbers: Option<usize>,
    is_ruled: bool,
}

impl TerminalTable {
    /// Returns a table without lines. `width` is that of the terminal in columns; none if the output is not a terminal: the table is
    /// then as wide as its content.
    pub fn new<T: ToString>(header: impl IntoIterator<Item = T>, width: Option<u16>) -> Self {
        Self {
            header: header.into_iter().map(|cell| cell.to_string()).collect(),
            rows: Vec::new(),
            width,
            labels: 1,
            numbers: None,
            is_ruled: false,
        }
    }

    /// Draws lines around cells.
    #[must_use]
    pub fn ruled(self) -> Self {
        Self {
            is_ruled: true,
            ..self
        }
    }

    /// Repeats the first `labels` columns in each part of a table that is too wide. Default: 1.
    #[must_use]
    pub fn labels(self, labels: usize) -> Self {
        Self { labels, ..self }
    }

    /// Aligns the columns from `first` on to the right.
    #[must_use]
    pub fn numbers_from(self, first: usize) -> Self {
        Self {
            numbers: Some(first),
            ..self
        }
    }

    /// Appends a row. Missing cells are empty; cells beyond the header are dropped.
    pub fn add_row<T: ToString>(&mut self, cells: impl IntoIterator<Item = T>) {
        let mut row: Vec<String> = cells.into_iter().map(|cell| cell.to_string()).collect();
        row.resize(self.header.len(), String::new());
        self.rows.push(row);
    }

    /// Returns true if the table has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the width that a column needs for its longest word.
    fn longest_word(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        self.header
            .get(column)
            .into_iter()
            .chain(cells)
            // A narrow no-break space keeps a number with its unit: lines break only at these characters.
            .flat_map(|cell| cell.split([' ', '\n']))
            .map(|word| word.chars().count())
            .max()
            .unwrap_or_default()
    }

    /// Returns the indices of the columns of each part.
    fn parts(&self) -> Vec<Vec<usize>> {
        let all = 0..self.header.len();
        let Some(width) = self.width.map(usize::from) else {
            return vec![all.collect()];
        };
        let line = usize::from(self.is_ruled);
        let around = PADDING.saturating_add(line);
        let needed = |column: usize| self.longest_word(column).saturating_add(around);
        let labels: Vec<usize> = all.clone().take(self.labels).collect();
        let of_labels: usize = labels.iter().map(|label| needed(*label)).sum();
        let labels_width = line.saturating_add(of_labels);
        let mut parts = vec![labels.clone()];
        let mut used = labels_width;
        for column in all.skip(self.labels) {
            let has_columns = parts.last().is_some_and(|part| part.len() > labels.len());
            if has_columns && used.saturating_add(needed(column)) > width {
                parts.push(labels.clone());
                used = labels_width;
            }
            used = used.saturating_add(needed(column));
            if let Some(part) = parts.last_mut() {
                part.push(column);
            }
        }
        parts
    }

    fn part(&self, columns: &[usize]) -> Table {
        let of = |row: &[String]| -> Vec<String> {
            let cells = columns.iter().filter_map(|column| row.get(*column));
            cells.cloned().collect()
        };
        let mut table = Table::new();
        table.load_style(match self.is_ruled {
            true => presets::UTF8_FULL_CONDENSED,
            false => presets::NOTHING,
        });
        table.set_header(of(&self.header));
        table.add_rows(self.rows.iter().map(|row| of(row)));
        match self.width {
            Some(width) => {
                table.set_width(width);
                table.set_content_arrangement(ContentArrangement::Dynamic);
            }
            None => {
                table.set_content_arrangement(ContentArrangement::Disabled);
            }
        }
        for (column, index) in table.column_iter_mut().zip(columns) {
            if self.numbers.is_some_and(|first| *index >= first) {
                column.set_cell_alignment(CellAlignment::Right);
            }
            let longest = self.longest_word(*index).saturating_add(PADDING);
            let longest = u16::try_from(longest).unwrap_or(u16::MAX);
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(longest)));
        }
        table
    }
}

impl Display for TerminalTable {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        for (index, columns) in self.parts().iter().enumerate() {
            if index > 0 {
                to.write_str("\n\n")?;
            }
            let text = self.part(columns).to_string();
            // Cells are padded to the width of their column, also at the end of a line.
            let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
            to.write_str(&lines.join("\n"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: [&str; 6] = [
        "case",
        "NDR (no loss), Mpps",
        "forwarded at the highest load, Mpps",
        "mean round trip",
        "cycles a frame",
        "invalid trials",
    ];
    const ROWS: [[&str; 6]; 2] = [
        ["quiet", "8.24", "23.4", "28.8 us", "126", "3 of 40"],
        [
            "noisy-pinned",
            "at least 9.35",
            "12.3456789",
            "3.01 us",
            "131",
            "12 of 48",
        ],
    ];

    fn table(width: Option<u16>) -> TerminalTable {
        let mut table = TerminalTable::new(HEADER, width).numbers_from(1);
        for row in ROWS {
            table.add_row(row);
        }
        table
    }

    fn words(text: &str) -> Vec<&str> {
        let mut words: Vec<&str> = text
            .split(|character: char| !(character.is_ascii_graphic()))
            .filter(|word| !word.is_empty())
            .collect();
        words.sort_unstable();
        words.dedup();
        words
    }

    #[test]
    fn no_word_is_broken_or_lost_at_any_width() {
        let everything = [HEADER.join(" "), ROWS.concat().join(" ")].join(" ");
        for is_ruled in [false, true] {
            for width in 30..=200 {
                let table = table(Some(width));
                let text = if is_ruled { table.ruled() } else { table }.to_string();
                assert_eq!(words(&text), words(&everything), "{width}:\n{text}");
                for line in text.lines() {
                    assert!(
                        line.chars().count() <= usize::from(width),
                        "{width}:\n{text}"
                    );
                }
            }
        }
    }

    #[test]
    fn labels_stand_in_each_part() {
        let text = table(Some(44)).to_string();
        let parts: Vec<&str> = text.split("\n\n").collect();
        assert!(parts.len() > 1, "{text}");
        for part in parts {
            assert!(
                part.contains("quiet") && part.contains("noisy-pinned"),
                "{text}"
            );
        }
    }

    #[test]
    fn without_a_terminal_a_row_is_a_line() {
        let text = table(None).to_string();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(
            text.contains("forwarded at the highest load, Mpps"),
            "{text}"
        );
    }

    #[test]
    fn a_word_wider_than_the_terminal_stays_whole() {
        let mut table = TerminalTable::new(["port", "uri"], Some(20));
        table.add_row(["p0", "memif:/run/quietwire/a-long-name.sock?role=server"]);
        assert!(
            table
                .to_string()
                .contains("memif:/run/quietwire/a-long-name.sock?role=server")
        );
    }
}
