// SPDX-License-Identifier: Apache-2.0
//! Repeated searches.

use quietwire_search::Statistics;

use super::table::{LABELS, MethodTable, NONE, by_round, or_none};
use crate::format::{self, THIN};
use crate::summary::{MethodFigures, RepeatedRates};

pub(super) const TABLE: MethodTable = MethodTable {
    title: "Repeated searches",
    lead: "The same search, repeated: the lower the standard deviation, the more reliable its result. The interval is the confidence interval of the mean (Student's t).",
    labels: LABELS,
    head: &[
        "search for",
        "results",
        "mean, Mpps",
        "deviation, Mpps",
        "interval, Mpps",
        "smallest to largest, Mpps",
        "trials per search",
        "time per search",
    ],
    rows: |case| {
        by_round(case, |figures| match figures {
            MethodFigures::Repeat(found) => vec![repeated(found)],
            _ => Vec::new(),
        })
    },
};

fn repeated(found: &RepeatedRates) -> Vec<String> {
    let statistics = found.statistics;
    let of =
        |value: fn(Statistics) -> Option<f64>| or_none(statistics.and_then(value), format::mpps);
    vec![
        found.name.clone(),
        format!(
            "{} of {}",
            statistics.map_or(0, |it| it.count),
            found.results_pps.len()
        ),
        of(|it| Some(it.mean)),
        of(|it| it.standard_deviation),
        statistics
            .and_then(|it| Some((it.half_interval?, it.confidence)))
            .map_or_else(
                || NONE.to_owned(),
                |(half, level)| {
                    format!(
                        "±{THIN}{} ({})",
                        format::mpps(half),
                        format::percent(level * 100.0)
                    )
                },
            ),
        statistics.map_or_else(
            || NONE.to_owned(),
            |it| format!("{} to {}", format::mpps(it.min), format::mpps(it.max)),
        ),
        format::number(found.mean_trials),
        format::duration_s(found.mean_duration_s),
    ]
}
