// SPDX-License-Identifier: Apache-2.0
//! How tables of the switch look.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// A table whose columns from `numbers` on are numbers.
pub(super) fn table<const N: usize>(header: [&str; N], numbers: usize) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    for column in table.column_iter_mut().skip(numbers) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
