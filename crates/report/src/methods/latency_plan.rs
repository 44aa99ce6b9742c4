// SPDX-License-Identifier: Apache-2.0
//! Latency and delay variation at the rates that the search found.

use super::table::{MethodTable, NONE, by_round, or_none};
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

/// Figures of delay variation in a row.
const FIGURES: usize = 6;

pub(super) const VARIATION: MethodTable = MethodTable {
    title: "Delay variation at the rates found",
    lead: "Of the same round trips (RFC 5481): IPDV is the difference to the frame sent before in the same flow, PDV that to the minimum of the trial. A percentile is missing if there are too few frames for it.",
    labels: &["case", "round", "load"],
    head: &[
        "Mpps", "IPDV p50", "IPDV p90", "IPDV max", "PDV p50", "PDV p90", "PDV max",
    ],
    rows: |case| {
        by_round(case, |figures| match figures {
            // A version without this measurement has no such rows.
            MethodFigures::LatencyPlan { loads }
                if loads.iter().any(|load| load.variation().is_ok()) =>
            {
                loads.iter().map(variation_row).collect()
            }
            _ => Vec::new(),
        })
    },
};

/// Returns the cells of a load, or the reason why its trial has no delay variation.
fn variation_row(load: &LatencyAtLoad) -> Vec<String> {
    let place = [load.stands_for.join(", "), format::mpps(load.rate_pps)];
    let variation = match load.variation() {
        Ok(variation) => variation,
        Err(reason) => {
            let others = std::iter::repeat_n(NONE.to_owned(), FIGURES - 1);
            return place
                .into_iter()
                .chain([reason.to_owned()])
                .chain(others)
                .collect();
        }
    };
    let (ipdv, pdv) = (&variation.ipdv, &variation.pdv);
    let signed = |ns: Option<i64>| ns.map_or_else(|| NONE.to_owned(), format::signed_time_ns);
    let plain = |ns: Option<u64>| or_none(ns.map(|ns| ns as f64), format::time_ns);
    let figures: [String; FIGURES] = [
        signed(ipdv.p50_ns),
        signed(ipdv.p90_ns),
        signed((ipdv.samples > 0).then_some(ipdv.max_ns)),
        plain(pdv.p50_ns),
        plain(pdv.p90_ns),
        plain(Some(pdv.max_ns)),
    ];
    place.into_iter().chain(figures).collect()
}
