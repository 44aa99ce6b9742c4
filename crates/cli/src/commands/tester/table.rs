// SPDX-License-Identifier: Apache-2.0
//! Style of the tester's tables.

use quietwire_report::TerminalTable;

use crate::text::terminal_columns;

pub(super) fn table(head: &[&str]) -> TerminalTable {
    TerminalTable::new(head, terminal_columns()).numbers_from(1)
}
