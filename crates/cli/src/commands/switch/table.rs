// SPDX-License-Identifier: Apache-2.0
//! How tables of the switch look.

use quietwire_report::TerminalTable;

use crate::text::terminal_columns;

/// A table whose columns from `numbers` on are numbers.
pub(super) fn table(
    header: impl IntoIterator<Item = &'static str>,
    numbers: usize,
) -> TerminalTable {
    TerminalTable::new(header, terminal_columns()).numbers_from(numbers)
}
