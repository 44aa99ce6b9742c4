// SPDX-License-Identifier: Apache-2.0
//! `tester self-test --connections`: the tester's account of connections compared with the ledger of a stateful device.

use anyhow::Result;
use quietwire_tester::self_test::{ConnectionCaseReport, ConnectionSelfTestOptions, Verdict};

use super::super::table::table;
use super::outcome::{Conclusion, outcome};
use super::ports::Link;

/// Formats the outcome of one case.
pub(super) fn line(report: &ConnectionCaseReport) -> String {
    let (word, reasons) = outcome(&report.verdict);
    let mut line = format!(
        "{} connections per second, {}: {word}",
        report.rate, report.name
    );
    if !reasons.is_empty() {
        line.push_str(": ");
        line.push_str(&reasons.join("; "));
    }
    line
}

/// Formats the table, and the reasons of the cases that do not agree.
fn text(reports: &[ConnectionCaseReport]) -> String {
    let mut table = table(&["fault", "connections", "completed", "failed", "outcome"]);
    for report in reports {
        let of = |name: &str| {
            let mut figures = report.figures.iter();
            figures.find(|figure| figure.name == name)
        };
        let opened = of("opened").map_or(0, |figure| figure.measured);
        let completed = of("completed").map_or(0, |figure| figure.measured);
        table.add_row([
            report.name.clone(),
            opened.to_string(),
            completed.to_string(),
            opened.saturating_sub(completed).to_string(),
            outcome(&report.verdict).0.to_owned(),
        ]);
    }
    let mut parts = vec![table.to_string()];
    let open = reports.iter().filter(|it| it.verdict != Verdict::Agrees);
    parts.extend(open.map(line));
    parts.join("\n")
}

/// Prints the reports and chooses the outcome.
pub(super) fn conclude(
    (is_json, link): (bool, Link),
    options: &ConnectionSelfTestOptions,
    reports: &[ConnectionCaseReport],
) -> Result<()> {
    let conclusion = Conclusion {
        is_json,
        link,
        duration_s: options.duration_s,
        seed: options.seed,
        difference: "the tester's account of connections differs",
        rate_option: "--connections-rate",
    };
    conclusion.print(reports, |report| &report.verdict, text)
}
