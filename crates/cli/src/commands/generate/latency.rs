// SPDX-License-Identifier: Apache-2.0
//! Latency and delay variation as text.

use quietwire_tester::{LatencySummary, SignedSummary, TrialResult, is_bound, withhold_bounds};
use serde_json::Value;

/// One row of the table: the figures of one distribution, microseconds in the table.
struct Row {
    name: &'static str,
    samples: u64,
    min_ns: i64,
    mean_ns: f64,
    percentiles: [Option<i64>; 5],
    max_ns: i64,
    /// The tester's share of each figure in the order of the columns, if known.
    own_ns: Option<[f64; 8]>,
}

impl Row {
    fn of(name: &'static str, summary: &LatencySummary) -> Self {
        Self {
            name,
            samples: summary.samples,
            min_ns: summary.min_ns.cast_signed(),
            mean_ns: summary.mean_ns,
            percentiles: summary
                .percentiles()
                .map(|value| value.map(u64::cast_signed)),
            max_ns: summary.max_ns.cast_signed(),
            own_ns: None,
        }
    }

    /// Returns the row of the latency with the tester's share.
    fn of_latency(summary: &LatencySummary, own: Option<&LatencySummary>) -> Self {
        Self {
            own_ns: own.map(LatencySummary::own_parts),
            ..Self::of("latency", summary)
        }
    }

    fn of_signed(name: &'static str, summary: &SignedSummary) -> Self {
        Self {
            name,
            samples: summary.samples,
            min_ns: summary.min_ns,
            mean_ns: summary.mean_ns,
            percentiles: summary.percentiles(),
            max_ns: summary.max_ns,
            own_ns: None,
        }
    }

    fn line(&self) -> String {
        let mut line = format!("{:11}", self.name);
        let ends = [Some(self.min_ns as f64), Some(self.mean_ns)];
        let values = ends
            .into_iter()
            .chain(self.percentiles.map(|ns| ns.map(|ns| ns as f64)))
            .chain([Some(self.max_ns as f64)]);
        for (column, value) in values.enumerate() {
            let own = self.own_ns.and_then(|own| own.get(column).copied());
            let text = match value {
                None => "-".to_owned(),
                Some(ns) if own.is_some_and(|own| is_bound(ns, own)) => {
                    format!("<{:.2}", ns / 1e3)
                }
                Some(ns) => format!("{:.2}", ns / 1e3),
            };
            line += &format!("{text:>9}");
        }
        line + &format!("{:>11}", self.samples)
    }
}

/// Returns the latencies of the tester itself, by the calibration that a result cites.
fn own_latency(result: &TrialResult) -> Option<&LatencySummary> {
    result.calibration.as_ref()?.own.as_ref()
}

/// Withholds latencies in the JSON of a result: each is null, and has an upper bound instead.
pub(super) fn withhold(document: &mut Value, result: &TrialResult) {
    let Some(own) = own_latency(result) else {
        return;
    };
    for place in ["/latency", "/low_rate/latency"] {
        if let Some(latency) = document.pointer_mut(place) {
            withhold_bounds(latency, own);
        }
    }
}

/// Returns the head of a table of times.
fn head() -> String {
    format!(
        "{:11}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>11}",
        "us", "min", "mean", "p50", "p90", "p99", "p99.9", "p99.99", "max", "samples"
    )
}

/// Formats a table of times, one row for each that has samples. Empty if none has.
pub(super) fn summary_lines<'a>(
    times: impl IntoIterator<Item = (&'static str, &'a LatencySummary)>,
) -> Vec<String> {
    let times = times.into_iter().filter(|(_, times)| times.samples > 0);
    let rows: Vec<String> = times
        .map(|(name, times)| Row::of(name, times).line())
        .collect();
    if rows.is_empty() {
        return rows;
    }
    [head()].into_iter().chain(rows).collect()
}

/// Formats a table of latency, IPDV and PDV. Empty if the tester received no frame. A percentile with fewer than ten samples
/// above it is shown as a dash.
pub(super) fn latency_lines(result: &TrialResult) -> Vec<String> {
    if result.latency.samples == 0 {
        return Vec::new();
    }
    let own = own_latency(result);
    let mut lines = vec![head(), Row::of_latency(&result.latency, own).line()];
    lines.extend(own.map(|own| Row::of("own part", own).line()));
    lines.extend([
        Row::of_signed("IPDV", &result.variation.ipdv).line(),
        Row::of("PDV", &result.variation.pdv).line(),
    ]);
    let low_rate = &result.low_rate;
    if low_rate.latency.samples > 0 {
        lines.push(format!(
            "low-rate streams, {} frames/s each: {} of {} frames received",
            low_rate.rate_pps, low_rate.received_frames, low_rate.offered_frames
        ));
        lines.extend([
            Row::of_latency(&low_rate.latency, own).line(),
            Row::of_signed("IPDV", &low_rate.variation.ipdv).line(),
            Row::of("PDV", &low_rate.variation.pdv).line(),
        ]);
    }
    if own.is_some() {
        lines.push(
            "<: figure withheld (over a tenth may be the tester's own part), upper bound shown"
                .to_owned(),
        );
    }
    lines
}
