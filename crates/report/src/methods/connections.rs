// SPDX-License-Identifier: Apache-2.0
//! Connections: rates, numbers, throughput, and times of transactions.

use quietwire_search::procedure::{
    ConnectionThroughputFindings, ConversationCounts, ConversationQuantity, ConversationSearchEnd,
    ConversationSearchFindings, ProcedureFindings, TimeSummary, TransactionLatencyFindings,
};

use super::table::{LABELS, MethodTable, NONE, by_round, or_none};
use crate::format::{self, bits, with_unit};
use crate::summary::MethodFigures;

pub(super) const TABLE: MethodTable = MethodTable {
    title: "Connections",
    lead: "After RFC 9411, section 7, over TCP conversations of the tester: no HTTP, no TLS. A result is the highest value at which no more \
           attempts failed than the goal allows; the failures are those of the lowest value that failed. A lower bound has ≥.",
    labels: LABELS,
    head: &["method", "result", "failures", "from"],
    rows: |case| {
        by_round(case, |figures| match figures {
            MethodFigures::Procedure {
                findings,
                step,
                failed,
            } if step.opens_connections() => {
                let row = findings.as_ref().map(rates);
                let [result, failures, from] = row.unwrap_or_else(nothing);
                let result = match failed {
                    Some(reason) => format!("the tester failed: {reason}; before that: {result}"),
                    None => result,
                };
                vec![vec![step.to_string(), result, failures, from]]
            }
            _ => Vec::new(),
        })
    },
};

pub(super) const TIMES: MethodTable = MethodTable {
    title: "Times of connections and transactions",
    lead: "Times from a SYN to its answer, and from a request to the first and to the last octet of its answer. Of several trials, the median \
           of each figure. A percentile is shown if there are enough transactions for it.",
    labels: &["case", "round", "method", "at"],
    head: &[
        "time", "samples", "mean", "p50", "p90", "p99", "p99.9", "max",
    ],
    rows: |case| {
        by_round(case, |figures| match figures {
            MethodFigures::Procedure {
                findings: Some(findings),
                step,
                ..
            } => times(&step.to_string(), findings),
            _ => Vec::new(),
        })
    },
};

fn nothing() -> [String; 3] {
    [NONE.to_owned(), NONE.to_owned(), String::new()]
}

/// Returns the unit of a quantity, for tables.
fn unit(quantity: ConversationQuantity) -> &'static str {
    match quantity {
        ConversationQuantity::ConnectionsPerSecond => "connections/s",
        ConversationQuantity::ConcurrentConnections => "connections",
        ConversationQuantity::TransactionsPerSecond => "transactions/s",
    }
}

/// Formats failures: `12 of 1000: 10 refused, 2 late`.
fn failures(counts: &ConversationCounts) -> String {
    let causes = counts.causes.iter();
    let causes: Vec<String> = causes
        .map(|(cause, count)| format!("{} {}", format::grouped(*count), cause.replace('_', " ")))
        .collect();
    let listed = if causes.is_empty() {
        String::new()
    } else {
        format!(": {}", causes.join(", "))
    };
    format!(
        "{} of {}{listed}",
        format::grouped(counts.failed),
        format::grouped(counts.attempted)
    )
}

/// Returns result, failures and parameters.
fn rates(findings: &ProcedureFindings) -> [String; 3] {
    match findings {
        ProcedureFindings::ConnectionsPerSecond(found)
        | ProcedureFindings::ConcurrentConnections(found)
        | ProcedureFindings::TransactionsPerSecond(found) => searched(found),
        ProcedureFindings::ConnectionThroughput(found) => throughput(found),
        ProcedureFindings::TransactionLatency(found) => latency(found),
        _ => nothing(),
    }
}

fn searched(found: &ConversationSearchFindings) -> [String; 3] {
    let (config, unit) = (&found.config, unit(found.config.quantity));
    let bound = if found.is_limit() { "≥\u{202f}" } else { "" };
    let result = found.highest_held.map_or_else(
        || format!("none held up to {}", with_unit(config.max, unit)),
        |highest| format!("{bound}{}", with_unit(highest, unit)),
    );
    let note = match found.end {
        Some(ConversationSearchEnd::TrialLimit) => ", cut short",
        _ if found.failed_at_or_under_highest_held > 0 => ", inconsistent",
        _ => "",
    };
    let at = match (found.lowest_failed, &found.failed) {
        (Some(value), Some(counts)) => {
            format!("{} ({})", with_unit(value, unit), failures(counts))
        }
        _ => NONE.to_owned(),
    };
    let from = format!(
        "up to {} in steps of {}, failures up to {}, {} each",
        with_unit(config.max, unit),
        with_unit(config.resolution, unit),
        format::loss(config.failure_ratio.get()),
        format::time_ns(config.duration_s * 1e9)
    );
    [format!("{result}{note}"), at, from]
}

fn throughput(found: &ConnectionThroughputFindings) -> [String; 3] {
    let bound = if found.is_limit { "≥\u{202f}" } else { "" };
    let result = found.received_bps.map_or_else(
        || NONE.to_owned(),
        |rate| {
            let deviation = rate.standard_deviation;
            let deviation =
                deviation.map_or_else(String::new, |it| format!(", deviation {}", bits(it)));
            format!("{bound}{} of payload{deviation}", bits(rate.mean))
        },
    );
    let attempted = found.runs.iter().map(|run| run.attempted).sum();
    let failed = found.runs.iter().map(|run| run.failed).sum::<u64>();
    let config = &found.config;
    let from = format!(
        "{} trials of {} with {} connections",
        found.runs.len(),
        format::time_ns(config.duration_s * 1e9),
        format::grouped(u64::from(config.connections))
    );
    let failures = format!(
        "{} of {}",
        format::grouped(failed),
        format::grouped(attempted)
    );
    [result, failures, from]
}

fn latency(found: &TransactionLatencyFindings) -> [String; 3] {
    let result = or_none(
        found.median_ns(|run| run.last_octet, |times| Some(times.mean_ns)),
        format::time_ns,
    );
    let rate = or_none(found.per_s, |per_s| with_unit(per_s, "transactions/s"));
    let attempted = found.runs.iter().map(|run| run.attempted).sum();
    let failed = found.runs.iter().map(|run| run.failed).sum::<u64>();
    let failures = format!(
        "{} of {}",
        format::grouped(failed),
        format::grouped(attempted)
    );
    let from = format!(
        "{} trials at {rate} on {} connections",
        found.runs.len(),
        format::grouped(u64::from(found.config.connections))
    );
    [format!("{result} to the last octet, mean"), failures, from]
}

/// A time of counts, with its name.
type Time = (&'static str, fn(&ConversationCounts) -> Option<TimeSummary>);

const TIMES_OF_COUNTS: [Time; 3] = [
    ("handshake", |counts| counts.handshake),
    ("first octet", |counts| counts.first_octet),
    ("last octet", |counts| counts.last_octet),
];

/// Figures of a distribution, nanoseconds.
const FIGURES: [fn(&TimeSummary) -> Option<f64>; 6] = [
    |times| Some(times.mean_ns),
    |times| times.p50_ns.map(|ns| ns as f64),
    |times| times.p90_ns.map(|ns| ns as f64),
    |times| times.p99_ns.map(|ns| ns as f64),
    |times| times.p99_9_ns.map(|ns| ns as f64),
    |times| Some(times.max_ns as f64),
];

/// Returns a row for each time that a method measured.
fn times(step: &str, findings: &ProcedureFindings) -> Vec<Vec<String>> {
    match findings {
        ProcedureFindings::ConnectionsPerSecond(found)
        | ProcedureFindings::ConcurrentConnections(found)
        | ProcedureFindings::TransactionsPerSecond(found) => {
            let unit = unit(found.config.quantity);
            let held = found.highest_held.zip(found.held.as_ref());
            held.map_or_else(Vec::new, |(value, counts)| {
                let row = |(name, of): Time| {
                    let times = of(counts)?;
                    let figures = FIGURES.map(|figure| figure(&times));
                    Some(cells(
                        step,
                        &with_unit(value, unit),
                        name,
                        times.samples,
                        figures,
                    ))
                };
                TIMES_OF_COUNTS.into_iter().filter_map(row).collect()
            })
        }
        ProcedureFindings::TransactionLatency(found) => {
            let Some(per_s) = found.per_s else {
                return Vec::new();
            };
            let row = |(name, of): Time| {
                let samples = found.runs.iter().filter_map(of);
                let samples: u64 = samples.map(|times| times.samples).sum();
                let figures = FIGURES.map(|figure| found.median_ns(of, figure));
                let at = with_unit(per_s, "transactions/s");
                (samples > 0).then(|| cells(step, &at, name, samples, figures))
            };
            TIMES_OF_COUNTS.into_iter().filter_map(row).collect()
        }
        _ => Vec::new(),
    }
}

fn cells(
    step: &str,
    at: &str,
    name: &str,
    samples: u64,
    figures: [Option<f64>; FIGURES.len()],
) -> Vec<String> {
    let mut cells = vec![
        step.to_owned(),
        at.to_owned(),
        name.to_owned(),
        format::grouped(samples),
    ];
    cells.extend(figures.map(|figure| or_none(figure, format::time_ns)));
    cells
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use quietwire_search::LossRatio;
    use quietwire_search::procedure::ConversationSearchConfig;

    use super::*;

    fn found(quantity: ConversationQuantity, end: ConversationSearchEnd) -> ProcedureFindings {
        let counts = |failed| ConversationCounts {
            attempted: 10_000,
            failed,
            causes: BTreeMap::from([("not_established".to_owned(), failed)]),
            last_octet: Some(TimeSummary {
                samples: 10_000,
                mean_ns: 25_000.0,
                ..TimeSummary::default()
            }),
            ..ConversationCounts::default()
        };
        let found = Box::new(ConversationSearchFindings {
            config: ConversationSearchConfig {
                quantity,
                max: 100_000.0,
                step: 20_000.0,
                resolution: 1_000.0,
                failure_ratio: LossRatio::new(0.000_01).unwrap(),
                duration_s: 1.0,
                pause_s: 0.0,
                answer: None,
                connections: 1,
                opening_per_s: 1.0,
                best_of: 1,
                max_invalid_repeats: 1,
            },
            end: Some(end),
            highest_held: Some(62_500.0),
            held: Some(counts(0)),
            lowest_failed: Some(63_500.0),
            failed: Some(counts(12)),
            failed_at_or_under_highest_held: 0,
        });
        match quantity {
            ConversationQuantity::ConnectionsPerSecond => {
                ProcedureFindings::ConnectionsPerSecond(found)
            }
            ConversationQuantity::ConcurrentConnections => {
                ProcedureFindings::ConcurrentConnections(found)
            }
            ConversationQuantity::TransactionsPerSecond => {
                ProcedureFindings::TransactionsPerSecond(found)
            }
        }
    }

    #[test]
    fn results_have_the_unit_of_their_quantity() {
        let plain = |text: &str| text.replace(format::THIN, "_");
        for (quantity, unit) in [
            (ConversationQuantity::ConnectionsPerSecond, "connections/s"),
            (ConversationQuantity::ConcurrentConnections, "connections"),
            (
                ConversationQuantity::TransactionsPerSecond,
                "transactions/s",
            ),
        ] {
            let findings = found(quantity, ConversationSearchEnd::Converged);
            let [result, failures, from] = rates(&findings);
            assert_eq!(plain(&result), format!("62_500_{unit}"));
            let expected = format!("63_500_{unit} (12 of 10_000: 12 not established)");
            assert_eq!(plain(&failures), expected);
            assert!(plain(&from).contains("failures up to 0.0010_%"), "{from}");
            let rows = times("step", &findings);
            // The handshake and the first octet were not measured.
            assert_eq!(rows.len(), 1, "{rows:?}");
            assert_eq!(plain(&rows[0][4]), "25.0_µs");
            assert_eq!(rows[0][5], NONE);
            let bound = rates(&found(quantity, ConversationSearchEnd::HeldAtMax));
            assert!(bound[0].starts_with('≥'), "{bound:?}");
        }
    }

    #[test]
    fn verdicts_have_the_same_units() {
        use crate::summary::value_text;
        use quietwire_study::Unit;

        let plain = |unit, value| value_text(unit, value).replace(format::THIN, "_");
        assert_eq!(
            plain(Unit::ConnectionsPerSecond, 62_500.0),
            "62_500_connections/s"
        );
        assert_eq!(plain(Unit::Connections, 7_000.0), "7_000_connections");
        assert_eq!(
            plain(Unit::TransactionsPerSecond, 1e6),
            "1_000_000_transactions/s"
        );
        assert_eq!(plain(Unit::BitsPerSecond, 9.41e9), "9.41_Gbit/s");
    }

    #[test]
    fn throughput_is_in_bits() {
        let plain = |text: String| text.replace(format::THIN, "_");
        assert_eq!(plain(bits(9.41e9)), "9.41_Gbit/s");
        assert_eq!(plain(bits(12.5e6)), "12.5_Mbit/s");
        assert_eq!(plain(bits(800.0)), "0.800_kbit/s");
    }
}
