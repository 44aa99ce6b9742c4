// SPDX-License-Identifier: Apache-2.0
//! `tester self-test --connections`: the tester's account of connections beside the ledger of a stateful device that lies.

use anyhow::{Result, bail};
use quietwire_tester::self_test::{ConnectionCaseReport, ConnectionSelfTestOptions, Verdict};
use serde_json::json;

use super::super::table::table;
use super::outcome::outcome;
use crate::exit::CheckFailed;
use crate::text::print;

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
    let mut table = table(&["lie", "connections", "completed", "failed", "outcome"]);
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
    is_json: bool,
    options: &ConnectionSelfTestOptions,
    reports: &[ConnectionCaseReport],
) -> Result<()> {
    let count = |is_counted: fn(&Verdict) -> bool| {
        let counted = reports.iter().filter(|report| is_counted(&report.verdict));
        counted.count()
    };
    let agreeing = count(|verdict| matches!(verdict, Verdict::Agrees));
    let differing = count(|verdict| matches!(verdict, Verdict::Differs(_)));
    let not_proven = count(|verdict| matches!(verdict, Verdict::NotProven(_)));
    if is_json {
        print(serde_json::to_string_pretty(&json!({
            "duration_s": options.duration_s,
            "seed": options.seed,
            "agreeing": agreeing,
            "differing": differing,
            "not_proven": not_proven,
            "cases": reports,
        }))?)?;
    } else {
        print(text(reports))?;
        print(format!(
            "{agreeing} of {} cases agree, {differing} differ, {not_proven} are not proven",
            reports.len()
        ))?;
    }
    if differing > 0 {
        bail!(CheckFailed(format!(
            "the tester's account of connections differs from the ledger of the device in {differing} of {} cases",
            reports.len()
        )));
    }
    if agreeing == 0 {
        bail!(CheckFailed(
            "no case could be proven (use a lower --connections-rate, or CPUs without other work)"
                .to_owned()
        ));
    }
    Ok(())
}
