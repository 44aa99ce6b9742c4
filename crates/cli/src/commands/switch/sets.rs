// SPDX-License-Identifier: Apache-2.0
//! `quietwire switch show sets`.

use std::path::Path;

use anyhow::Result;
use quietwire_switch::config::rules::SetName;
use quietwire_switch::control::{Request, ask};
use quietwire_switch::report::SetsReport;

use super::table::table;
use super::tables::or_dash;
use crate::text::print;

/// Shows all sets, or one, and up to `limit` of their elements from the element `first` on.
pub(super) fn show(
    name: Option<&SetName>,
    (first, limit): (usize, usize),
    socket: &Path,
    is_json: bool,
) -> Result<()> {
    let page = |from: usize, limit: usize| -> Result<SetsReport> {
        let set = name.cloned();
        let request = Request::ShowSets { set, from, limit };
        Ok(ask(socket, &request)?)
    };
    let mut report = page(first, limit)?;
    while let Some(from) = report.next
        && report.elements.len() < limit
    {
        let next = page(from, limit.saturating_sub(report.elements.len()))?;
        report.next = next.next;
        report.elements.extend(next.elements);
    }
    print(if is_json {
        serde_json::to_string_pretty(&report)?
    } else {
        rendered(&report)
    })
}

fn rendered(report: &SetsReport) -> String {
    let mut sets = table(["set", "type", "timeout s", "elements", "rules"], 2);
    for set in &report.sets {
        sets.add_row([
            set.name.to_string(),
            set.kind.to_string(),
            or_dash(set.timeout_s),
            set.elements.to_string(),
            set.rules.to_string(),
        ]);
    }
    let mut text = sets.to_string();
    if !report.elements.is_empty() {
        let mut elements = table(["set", "element", "expires s"], 2);
        for one in &report.elements {
            elements.add_row([
                one.set.to_string(),
                one.element.to_string(),
                or_dash(one.expires_in_s),
            ]);
        }
        text += &format!("\n\n{elements}");
    }
    if let Some(next) = report.next {
        let left = report.total.saturating_sub(next);
        text += &format!("\n{left} more elements (run with --from {next})");
    }
    text
}
