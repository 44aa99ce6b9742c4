// SPDX-License-Identifier: Apache-2.0
//! The summary as a table for a terminal.

use crate::format;
use crate::method_table::ResultTable;
use crate::methods::tables;
use crate::page::application::sentence;
use crate::page::published::bounds;
use crate::page::{ranking, words};
use crate::summary::{CaseSummary, Ranking, SizeSummary, Summary};
use crate::terminal_table::TerminalTable;

/// Returns the summary as text: one table for each frame size, and the result in words. `width` is the terminal's,
/// in columns; none if the output is not a terminal.
#[must_use]
pub fn text_table(summary: &Summary, width: Option<u16>) -> String {
    let mut text = String::new();
    if summary.is_simulated {
        text.push_str("SIMULATED: all figures are computed from a model of a device, and nothing was measured.\n");
    }
    if summary.is_quick {
        text.push_str(words::QUICK);
        text.push('\n');
    }
    if !summary.verdicts.is_empty() {
        text.push_str(&of_verdicts(summary, width));
        text.push_str("\n\n");
    }
    for finding in &summary.findings {
        text.push_str(&format!(
            "FINDING  {}: {} Cure: {} ({})\n",
            finding.case, finding.text, finding.cure, finding.page
        ));
    }
    if !summary.findings.is_empty() {
        text.push('\n');
    }
    for size in &summary.sizes {
        let frames = words::frames(size);
        text.push_str(&format!("{}, {frames}\n", summary.title));
        text.push_str(&of_size(size, width));
        for comparable in &size.rankings {
            let title = ranking::title(comparable);
            text.push_str(&format!("\n\nRanking: {title}\n"));
            text.push_str(&of_ranking(comparable, width));
            for sentence in ranking::accounts(comparable) {
                text.push_str(&format!("\n{sentence}"));
            }
        }
        for method_tables in tables(size) {
            let method_tables = method_tables.without_known_labels();
            text.push_str(&format!("\n\n{}\n", method_tables.title));
            text.push_str(&of_methods(&method_tables, width));
        }
        for case in &size.cases {
            if let Some(observed) = &case.applications {
                text.push_str(&format!("\n{}: {}", case.name, sentence(observed)));
            }
        }
        if !size.published.is_empty() {
            text.push_str(
                "\n\nComparison with published figures, in percent of another configuration\n",
            );
            text.push_str(&of_published(size, width));
        }
        text.push('\n');
        for sentence in words::answer(summary, size) {
            text.push_str(&words::plain(&sentence));
            text.push('\n');
        }
        for warning in words::warnings(size) {
            text.push_str(&format!("WARNING  {warning}\n"));
        }
        text.push('\n');
    }
    for case in &summary.unavailable {
        text.push_str(&format!(
            "{}: {} on this machine: {}\n",
            case.name,
            words::left_out(case).to_lowercase(),
            case.reason
        ));
    }
    // Fonts of terminals may lack the narrow no-break space.
    text.replace(format::THIN, " ")
}

/// Returns the table of verdicts, and the reasons of those that the results do not decide.
fn of_verdicts(summary: &Summary, width: Option<u16>) -> String {
    let header = [
        "verdict",
        "objective",
        "frames",
        "median (interval)",
        "values",
    ];
    let mut table = TerminalTable::new(header.map(str::to_owned), width)
        .ruled()
        .labels(4);
    for verdict in &summary.verdicts {
        table.add_row([
            verdict.judgement.verdict.name().to_owned(),
            verdict.name.clone(),
            verdict.frames_text(),
            verdict.found_text(),
            verdict.count_text(),
        ]);
    }
    let mut text = table.to_string();
    for verdict in &summary.verdicts {
        if let Some(reason) = &verdict.judgement.reason {
            text.push_str(&format!(
                "\nunknown: {} ({}): {reason}",
                verdict.name,
                verdict.frames_text()
            ));
        }
    }
    text
}

/// Placeholder for an unknown figure.
const NONE: &str = "–";

fn of_size(size: &SizeSummary, width: Option<u16>) -> String {
    let (header, rows) = size_table(size);
    if header.len() == 1 {
        // Only names of cases: the figures are in the tables of methods.
        return String::new();
    }
    let mut table = TerminalTable::new(header, width).ruled().numbers_from(1);
    for row in rows {
        table.add_row(row);
    }
    table.to_string()
}

/// Returns header and rows of the table of all cases, without columns that have no figure.
pub(crate) fn size_table(size: &SizeSummary) -> (Vec<String>, Vec<Vec<String>>) {
    let goals = size.cases.first().map(|case| &case.goals);
    let mut header = vec!["case".to_owned()];
    for goal in goals.into_iter().flatten() {
        header.push(format!(
            "{} ({}), Mpps",
            goal.name,
            format::allows(goal.loss_ratio)
        ));
    }
    let others = [
        "forwarded at the highest load, Mpps",
        "mean round trip",
        "cycles per frame",
        "limited by",
        "invalid trials",
    ];
    header.extend(others.map(str::to_owned));
    let rows: Vec<Vec<String>> = size.cases.iter().map(row).collect();
    // Columns without figures are omitted.
    let has_figure = |column: &usize| {
        let mut cells = rows.iter().filter_map(|row| row.get(*column));
        rows.is_empty() || cells.any(|cell| cell != NONE)
    };
    let columns: Vec<usize> = (0..header.len()).filter(has_figure).collect();
    let of = |cells: &[String]| -> Vec<String> {
        let shown = columns.iter().filter_map(|column| cells.get(*column));
        shown.cloned().collect()
    };
    (of(&header), rows.iter().map(|row| of(row)).collect())
}

fn of_ranking(comparable: &Ranking, width: Option<u16>) -> String {
    let mut table = TerminalTable::new(ranking::HEADER, width).ruled().labels(2);
    for case in &comparable.cases {
        table.add_row(ranking::cells(case));
    }
    table.to_string()
}

/// Returns the table of published figures, which has ratios only.
fn of_published(size: &SizeSummary, width: Option<u16>) -> String {
    let goals = size.cases.first().map(|case| &case.goals);
    let goals: Vec<&str> = goals
        .into_iter()
        .flatten()
        .map(|goal| goal.name.as_str())
        .collect();
    let mut header = vec![
        "configuration".to_owned(),
        "throughput, published".to_owned(),
    ];
    let has_tcp = size.cases.iter().any(|case| case.applications.is_some());
    if has_tcp {
        header.extend(["measured, TCP up", "TCP down"].map(str::to_owned));
    }
    header.extend(goals.iter().map(|goal| format!("measured, {goal}")));
    header.extend(["round trip, published", "measured", "here"].map(str::to_owned));
    let mut table = TerminalTable::new(header, width).ruled();
    let percent = |ratio: Option<f64>| {
        ratio.map_or_else(|| "–".to_owned(), |ratio| format::percent(ratio * 100.0))
    };
    for row in &size.published {
        let measured = row.measured.as_ref();
        let of_goal = |index: usize| measured.and_then(|it| it.goals.get(index).copied().flatten());
        let mut cells = vec![row.configuration.clone(), bounds(row.throughput)];
        if has_tcp {
            let both = measured.and_then(|it| it.tcp);
            let ratios = both.map_or([None; 2], |both| both.map(Some));
            cells.extend(ratios.map(percent));
        }
        cells.extend((0..goals.len()).map(|index| percent(of_goal(index))));
        cells.push(bounds(row.round_trip));
        cells.push(percent(measured.and_then(|it| it.round_trip)));
        cells.push(match (measured, &row.unanswered) {
            (Some(it), _) if it.case != it.against => format!("{} against {}", it.case, it.against),
            (Some(it), _) => it.case.clone(),
            (None, why) => why.clone().unwrap_or_default(),
        });
        table.add_row(cells);
    }
    table.to_string()
}

fn of_methods(method_tables: &ResultTable, width: Option<u16>) -> String {
    let header = method_tables.labels.iter().chain(method_tables.head);
    let labels = method_tables.labels.len().max(1);
    let mut table = TerminalTable::new(header, width).ruled().labels(labels);
    for row in &method_tables.rows {
        table.add_row(row);
    }
    table.to_string()
}

fn row(case: &CaseSummary) -> Vec<String> {
    let mut cells = vec![case.name.clone()];
    cells.extend(case.goals.iter().map(words::goal_value));
    cells.push(
        case.highest_load
            .as_ref()
            .map_or_else(|| NONE.to_owned(), words::highest_load_value),
    );
    cells.push(
        case.round_trip
            .as_ref()
            .map_or_else(|| NONE.to_owned(), words::mean_round_trip),
    );
    cells.push(words::cycles(case.cycles.as_ref()));
    cells.push(words::limit(case));
    cells.push(match case.has_results_without_trials() {
        true => NONE.to_owned(),
        false => format!("{} of {}", case.health.invalid, case.health.trials),
    });
    cells
}
