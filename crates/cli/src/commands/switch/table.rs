// SPDX-License-Identifier: Apache-2.0
//! Style of the switch's tables.

use quietwire_report::TerminalTable;

use crate::text::terminal_columns;

/// Returns a table whose columns from index `numbers` on are numbers.
pub(super) fn table(
    header: impl IntoIterator<Item = &'static str>,
    numbers: usize,
) -> TerminalTable {
    TerminalTable::new(header, terminal_columns()).numbers_from(numbers)
}
