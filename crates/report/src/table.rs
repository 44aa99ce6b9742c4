// SPDX-License-Identifier: Apache-2.0
//! The summary as a table for a terminal.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

use crate::format;
use crate::further::{FurtherTable, tables};
use crate::page::words;
use crate::summary::{CaseSummary, SizeSummary, Summary};

/// The summary as text: one table for each frame size, and the answer in words. `width` is the terminal's, in columns.
#[must_use]
pub fn text_table(summary: &Summary, width: u16) -> String {
    let mut text = String::new();
    if summary.is_simulated {
        text.push_str("SIMULATED: the device is arithmetic, and nothing was measured.\n");
    }
    for size in &summary.sizes {
        let frames = words::frames(&size.frame_size);
        text.push_str(&format!("{}, {frames}\n", summary.title));
        text.push_str(&of_size(size, width));
        for further in tables(size) {
            text.push_str(&format!("\n\n{}\n", further.title));
            text.push_str(&of_further(&further, width));
        }
        text.push('\n');
        for sentence in words::answer(summary, size) {
            text.push_str(&words::plain(&sentence));
            text.push('\n');
        }
        text.push('\n');
    }
    for case in &summary.unavailable {
        text.push_str(&format!(
            "{}: unavailable on this machine: {}\n",
            case.name, case.reason
        ));
    }
    // A terminal's fonts may lack the narrow space.
    text.replace(format::THIN, " ")
}

fn of_size(size: &SizeSummary, width: u16) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width);
    let goals = size.cases.first().map(|case| &case.goals);
    let mut header = vec!["case".to_owned()];
    for goal in goals.into_iter().flatten() {
        header.push(format!(
            "{} ({}), Mpps",
            goal.name,
            words::allows(goal.loss_ratio)
        ));
    }
    header.extend(
        [
            "forwarded at the highest load, Mpps",
            "mean round trip",
            "invalid trials",
        ]
        .map(str::to_owned),
    );
    table.set_header(header);
    for case in &size.cases {
        table.add_row(row(case));
    }
    table.to_string()
}

fn of_further(further: &FurtherTable, width: u16) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width)
        .set_header(["case", "round"].iter().chain(further.head));
    for row in &further.rows {
        table.add_row(row);
    }
    table.to_string()
}

fn row(case: &CaseSummary) -> Vec<Cell> {
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let mut cells = vec![Cell::new(&case.name)];
    cells.extend(case.goals.iter().map(|goal| right(words::goal_value(goal))));
    cells.push(right(
        case.highest_load
            .as_ref()
            .map_or_else(|| "–".to_owned(), words::highest_load_value),
    ));
    cells.push(right(
        case.round_trip
            .as_ref()
            .map_or_else(|| "–".to_owned(), words::mean_round_trip),
    ));
    cells.push(right(format!(
        "{} of {}",
        case.health.invalid, case.health.trials
    )));
    cells
}
