// SPDX-License-Identifier: Apache-2.0
//! The summary as Markdown (CommonMark with the tables of GitHub), for issues and reviews.

use crate::format;
use crate::method_table::ResultTable;
use crate::methods::tables;
use crate::page::{ranking, words};
use crate::summary::{SizeSummary, Summary};
use crate::table::size_table;

/// Returns the summary as Markdown: verdicts, findings, and one table for each frame size.
#[must_use]
pub fn markdown(summary: &Summary) -> String {
    let mut text = format!("# {}\n\n", escaped(&summary.title));
    text.push_str(&format!(
        "{}, {} trials in {}\n",
        format::date(summary.started_unix_ns),
        summary.trials,
        format::duration_s(summary.running_time_s)
    ));
    if summary.is_simulated {
        text.push_str("\n**Simulated: all figures are computed from a model of a device, and nothing was measured.**\n");
    }
    if summary.is_quick {
        text.push_str(&format!("\n**{}**\n", words::QUICK));
    }
    if let Some(note) = words::incomplete(&summary.state) {
        text.push_str(&format!("\n**{}**\n", escaped(&note)));
    }
    text.push_str(&verdicts(summary));
    text.push_str(&findings(summary));
    for size in &summary.sizes {
        text.push_str(&of_size(summary, size));
    }
    if !summary.unavailable.is_empty() {
        text.push_str("\n## Unavailable on this machine\n\n");
        for case in &summary.unavailable {
            let (name, reason) = (escaped(&case.name), escaped(&case.reason));
            text.push_str(&format!("- {name}: {}: {reason}\n", words::left_out(case)));
        }
    }
    // Fonts may lack the narrow no-break space.
    text.replace(format::THIN, " ")
}

fn verdicts(summary: &Summary) -> String {
    if summary.verdicts.is_empty() {
        return String::new();
    }
    let header = [
        "verdict",
        "objective",
        "frames",
        "median (interval)",
        "values",
        "reason",
    ];
    let rows = summary.verdicts.iter().map(|verdict| {
        let judgement = &verdict.judgement;
        vec![
            judgement.verdict.name().to_owned(),
            verdict.name.clone(),
            verdict.frames_text(),
            verdict.found_text(),
            verdict.count_text(),
            judgement.reason.clone().unwrap_or_default(),
        ]
    });
    format!(
        "\n## Verdicts\n\n{}",
        table(&header.map(str::to_owned), rows)
    )
}

fn findings(summary: &Summary) -> String {
    if summary.findings.is_empty() {
        return String::new();
    }
    let mut text = "\n## Findings\n\n".to_owned();
    for finding in &summary.findings {
        let (case, found) = (escaped(&finding.case), escaped(&finding.text));
        text.push_str(&format!(
            "- **{case}**: {found} Cure: {}. (`{}`)\n",
            finding.cure, finding.page
        ));
    }
    text
}

fn of_size(summary: &Summary, size: &SizeSummary) -> String {
    let (header, rows) = size_table(size);
    let mut text = format!("\n## Results with {}\n\n", words::frames(size));
    if header.len() > 1 {
        text.push_str(&table(&header, rows.into_iter()));
        text.push('\n');
    }
    for sentence in words::answer(summary, size) {
        text.push_str(&format!("{}\n", escaped(&words::plain(&sentence))));
    }
    for warning in words::warnings(size) {
        text.push_str(&format!("\n> **Warning** {}\n", escaped(&warning)));
    }
    for comparable in &size.rankings {
        let header = ranking::HEADER.map(str::to_owned);
        let rows = comparable
            .cases
            .iter()
            .map(|case| Vec::from(ranking::cells(case)));
        let title = escaped(&ranking::title(comparable));
        text.push_str(&format!(
            "\n### Ranking: {title}\n\n{}",
            table(&header, rows)
        ));
        for sentence in ranking::accounts(comparable) {
            text.push_str(&format!("\n{}\n", escaped(&sentence)));
        }
    }
    for method in tables(size) {
        text.push_str(&of_method(&method));
    }
    text
}

fn of_method(method: &ResultTable) -> String {
    let names = method.labels.iter().chain(method.head);
    let header: Vec<String> = names.map(|name| (*name).to_owned()).collect();
    let rows = method.rows.iter().cloned();
    format!(
        "\n### {}\n\n{}",
        escaped(method.title),
        table(&header, rows)
    )
}

/// Returns a table. A row with fewer cells than the header is filled up, as in GitHub's tables.
fn table(header: &[String], rows: impl Iterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| escaped(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut text = line(header);
    text.push_str(&format!("|{}\n", "---|".repeat(header.len())));
    for row in rows {
        text.push_str(&line(&row));
    }
    text
}

/// Characters with a meaning in Markdown, if they are part of a text.
const SPECIAL: [char; 9] = ['\\', '|', '<', '>', '*', '_', '[', ']', '`'];

/// Escapes a text: it stays in its cell, and no part of it becomes a format, a link or HTML.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() {
            safe.push(' ');
            continue;
        }
        if SPECIAL.contains(&letter) {
            safe.push('\\');
        }
        safe.push(letter);
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_cannot_leave_their_table() {
        assert_eq!(escaped("a|b\nc <b> *d*"), "a\\|b c \\<b\\> \\*d\\*");
        let rows = [vec!["1".to_owned(), "x|y".to_owned()]];
        let text = table(&["a".to_owned(), "b".to_owned()], rows.into_iter());
        assert_eq!(text, "| a | b |\n|---|---|\n| 1 | x\\|y |\n");
    }
}
