// SPDX-License-Identifier: Apache-2.0
//! Latency at the rates that the search found.

use super::table::{MethodTable, NONE, by_round};
use crate::format;
use crate::summary::{LatencyAtLoad, MethodFigures, RoundTrip};

/// Percentiles in the table.
const PERCENTILES: [f64; 3] = [50.0, 99.0, 99.9];

pub(super) const TABLE: MethodTable = MethodTable {
    title: "Latency at the rates found",
    lead: "Round trips at NDR, at PDR, at the last linear step below each, and at percentages of one of them. A percentile is shown if there are enough frames for it.",
    labels: &["case", "round", "load"],
    head: &["Mpps", "lost", "mean", "p50", "p99", "p99.9", "max"],
    rows: |case| {
        by_round(case, |figures| match figures {
            MethodFigures::LatencyPlan { loads } => loads.iter().map(row).collect(),
            _ => Vec::new(),
        })
    },
};

fn row(load: &LatencyAtLoad) -> Vec<String> {
    let trip = load.round_trip.as_ref();
    let of = |text: fn(&RoundTrip) -> String| trip.map_or_else(|| NONE.to_owned(), text);
    let percentile = |percent: f64| {
        let mut known = trip.iter().flat_map(|trip| &trip.percentiles);
        let known = known.find(|value| value.percentile == percent);
        known.map_or_else(|| NONE.to_owned(), |value| value.text())
    };
    let mut cells = vec![
        load.stands_for.join(", "),
        format::mpps(load.rate_pps),
        load.loss_ratio
            .map_or_else(|| "the tester failed".to_owned(), format::loss),
        of(RoundTrip::mean_text),
    ];
    cells.extend(PERCENTILES.map(percentile));
    cells.push(of(RoundTrip::max_text));
    cells
}
