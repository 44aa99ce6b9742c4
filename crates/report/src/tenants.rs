// SPDX-License-Identifier: Apache-2.0
//! Maximum number of tenants, in words and as a table.

use crate::format;
use crate::method_table::ResultTable;
use crate::summary::{CyclesPerFrame, TenantsAt, TenantsFound, TenantsSummary};

const HEAD: &[&str] = &[
    "tenants",
    "total load, Mpps",
    "lost",
    "goal",
    "cycles per frame",
    "million cycles per second and tenant",
];
const LEAD: &str = "The number of tenants is doubled until the loss exceeds the goal, followed by a binary search. Cycles are those of the switch at that load, per received frame and per tenant and second.";

/// Returns the table; none if no number of tenants was tried.
pub(crate) fn table(summary: &TenantsSummary) -> Option<ResultTable> {
    let rows: Vec<_> = summary.rows.iter().map(row).collect();
    (!rows.is_empty()).then_some(ResultTable {
        title: "Tenants",
        lead: LEAD,
        labels: &["case", "round"],
        head: HEAD,
        rows,
    })
}

fn row(at: &TenantsAt) -> Vec<String> {
    let none = || "–".to_owned();
    let million = |hz: f64| format::number(hz / 1e6);
    vec![
        at.case.clone(),
        at.round.saturating_add(1).to_string(),
        at.tenants.to_string(),
        format::mpps(at.offered_pps),
        at.loss_ratio.map_or_else(none, format::loss),
        match (at.holds, at.loss_ratio) {
            (true, _) => "holds",
            (false, Some(_)) => "breaks",
            (false, None) => "the tester failed",
        }
        .to_owned(),
        at.cycles
            .as_ref()
            .map_or_else(|| "–".to_owned(), CyclesPerFrame::text),
        at.cycles_per_tenant_hz
            .as_ref()
            .map_or_else(none, |each| million(each.median)),
    ]
}

/// Returns the findings, one sentence for each round.
pub(crate) fn sentences(summary: &TenantsSummary) -> Vec<String> {
    let found = summary.found.iter();
    let is_one = summary.found.len() == 1;
    let round = |found: &TenantsFound| match is_one {
        true => String::new(),
        false => format!("Round {}: ", found.round.saturating_add(1)),
    };
    let reported = found.filter(|found| found.is_through);
    reported
        .map(|found| round(found) + &sentence(summary, found))
        .collect()
}

fn sentence(summary: &TenantsSummary, found: &TenantsFound) -> String {
    let goal = format!(
        "{} each ({})",
        format::rate(summary.rate_pps),
        format::allows(summary.loss_ratio)
    );
    let tenants = |count: u32| match count {
        1 => "1 tenant".to_owned(),
        _ => format!("{count} tenants"),
    };
    match (found.held, found.failed_at, &found.bound) {
        (0, _, Some(why)) => format!("One tenant: no result ({why})."),
        (0, ..) => format!("The loss goal does not hold for a single tenant ({goal})."),
        (held, Some(failed_at), Some(why)) => format!(
            "{} hold at {goal}. The limit of the switch is unknown: there is no result for {failed_at} ({why}).",
            tenants(held)
        ),
        (held, Some(failed_at), None) => {
            format!("{} hold at {goal}, and {failed_at} do not.", tenants(held))
        }
        (held, None, _) => format!(
            "{} hold at {goal}, the most that the study tries, so the limit is higher.",
            tenants(held)
        ),
    }
}
