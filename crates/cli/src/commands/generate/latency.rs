// SPDX-License-Identifier: Apache-2.0
//! Latency and its variation in lines for people.

use quietwire_tester::{LatencySummary, SignedSummary, TrialResult};

/// What is told of one distribution, microseconds.
struct Row {
    name: &'static str,
    samples: u64,
    min_ns: i64,
    mean_ns: f64,
    percentiles: [Option<i64>; 5],
    max_ns: i64,
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
        }
    }

    fn line(&self) -> String {
        let us = |ns: f64| format!("{:.2}", ns / 1e3);
        let value = |ns: Option<i64>| ns.map_or_else(|| "-".to_owned(), |ns| us(ns as f64));
        let mut line = format!("{:11}", self.name);
        let values = [value(Some(self.min_ns)), us(self.mean_ns)]
            .into_iter()
            .chain(self.percentiles.map(value))
            .chain([value(Some(self.max_ns))]);
        for text in values {
            line += &format!("{text:>9}");
        }
        line + &format!("{:>11}", self.samples)
    }
}

/// A table of latency, IPDV and PDV; nothing where no frame came back. A percentile that has fewer than ten samples beyond
/// it is a dash.
pub(super) fn latency_lines(result: &TrialResult) -> Vec<String> {
    if result.latency.samples == 0 {
        return Vec::new();
    }
    let mut lines = vec![
        format!(
            "{:11}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>11}",
            "us", "min", "mean", "p50", "p90", "p99", "p99.9", "p99.99", "max", "samples"
        ),
        Row::of("latency", &result.latency).line(),
        Row::of_signed("IPDV", &result.variation.ipdv).line(),
        Row::of("PDV", &result.variation.pdv).line(),
    ];
    let low_rate = &result.low_rate;
    if low_rate.latency.samples > 0 {
        lines.push(format!(
            "low-rate streams, {} frames/s each: {} of {} frames came back",
            low_rate.rate_pps, low_rate.received_frames, low_rate.offered_frames
        ));
        lines.extend([
            Row::of("latency", &low_rate.latency).line(),
            Row::of_signed("IPDV", &low_rate.variation.ipdv).line(),
            Row::of("PDV", &low_rate.variation.pdv).line(),
        ]);
    }
    lines
}
