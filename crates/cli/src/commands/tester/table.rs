// SPDX-License-Identifier: Apache-2.0
//! Tables of the tester.

use quietwire_report::TerminalTable;

use crate::text::terminal_columns;

pub(super) fn table(head: &[&str]) -> TerminalTable {
    TerminalTable::new(head, terminal_columns()).numbers_from(1)
}
