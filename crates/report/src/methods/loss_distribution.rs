// SPDX-License-Identifier: Apache-2.0
//! Loss of many trials at a few rates.

use super::table::{LABELS, MethodTable, by_round, or_none};
use crate::format;
use crate::summary::{LossesAtRate, MethodFigures};

/// Title of the table and of the plots above it.
pub(crate) const TITLE: &str = "Loss distribution";

pub(super) const TABLE: MethodTable = MethodTable {
    title: TITLE,
    lead: "Many trials at each rate. A percentile is shown if there are enough trials for it.",
    labels: LABELS,
    head: &[
        "rate, Mpps",
        "trials",
        "excluded",
        "loss in the",
        "worst trial",
    ],
    rows: |case| {
        by_round(case, |figures| match figures {
            MethodFigures::LossDistribution { rates } => rates.iter().map(losses).collect(),
            _ => Vec::new(),
        })
    },
};

fn losses(rate: &LossesAtRate) -> Vec<String> {
    let percentiles: Vec<String> = rate
        .percentiles
        .iter()
        .map(|(percent, loss)| format!("p{percent}: {}", format::loss(*loss)))
        .collect();
    vec![
        format::mpps(rate.rate_pps),
        rate.loss_ratios.len().to_string(),
        rate.invalid.to_string(),
        percentiles.join(", "),
        or_none(rate.loss_ratios.last().copied(), format::loss),
    ]
}
