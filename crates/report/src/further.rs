// SPDX-License-Identifier: Apache-2.0
//! Figures of further methods as tables of texts, for page and terminal alike.

use quietwire_search::procedure::ProcedureFindings;
use quietwire_search::{CriticalLoad, SoakFindings, Statistics};

use quietwire_study::StepKind;

use crate::format::{self, THIN};
use crate::method_table::FurtherTable;
use crate::summary::{
    LatencyAtLoad, LossesAtRate, MethodFigures, MethodResult, RepeatedRates, RoundTrip,
    SizeSummary, soak_end,
};
use crate::tenants;

type Rows = fn(&MethodFigures) -> Option<Vec<Vec<String>>>;

const KINDS: [(&str, &str, &[&str], Rows); 6] = [
    (
        "Repeated searches",
        "The same search many times over: the lower the standard deviation, the more its result can be relied on. The interval is the mean's, by Student's t.",
        &[
            "search for",
            "results",
            "mean, Mpps",
            "deviation, Mpps",
            "interval, Mpps",
            "smallest to largest, Mpps",
            "trials each",
            "time each",
        ],
        |figures| match figures {
            MethodFigures::Repeat(found) => Some(vec![repeated(found)]),
            _ => None,
        },
    ),
    (
        "Loss distribution",
        "Many trials at each rate. A percentile is told where there are trials enough to bear it.",
        &[
            "rate, Mpps",
            "trials",
            "left out",
            "lost in the",
            "worst trial",
        ],
        |figures| match figures {
            MethodFigures::LossDistribution { rates } => Some(rates.iter().map(losses).collect()),
            _ => None,
        },
    ),
    (
        "Forwarding rate at maximum load",
        "What came through of the maximum offered load, and the most that came through of any (RFC 2285, RFC 2889).",
        &[
            "offered at most, Mpps",
            "forwarded of that, Mpps",
            "most forwarded, Mpps",
            "at the load, Mpps",
        ],
        |figures| match figures {
            MethodFigures::ForwardingRate(found) => {
                let or_failed = |rate: Option<f64>| {
                    rate.map_or_else(|| "the tester failed".to_owned(), format::mpps)
                };
                Some(vec![vec![
                    format::mpps(found.config.max_rate_pps),
                    or_failed(found.at_max_load_pps),
                    or_failed(found.maximum.map(|it| it.forwarded_pps)),
                    or_failed(found.maximum.map(|it| it.offered_pps)),
                ]])
            }
            _ => None,
        },
    ),
    (
        "Latency at the rates found",
        "Round trips at NDR, at PDR, at the last linear step under each, and at parts of PDR.",
        &[
            "load",
            "Mpps",
            "lost",
            "samples",
            "least",
            "mean",
            "percentiles",
            "largest",
        ],
        |figures| match figures {
            MethodFigures::LatencyPlan { loads } => Some(loads.iter().map(latency).collect()),
            _ => None,
        },
    ),
    (
        "Soak",
        "An estimate of the load at which the stated part is lost, and how sure it is; not a rate that was seen to hold.",
        &[
            "part lost",
            "critical load, Mpps",
            "deviation, Mpps",
            "stretch, Mpps",
            "erf, Mpps",
            "trials",
            "time",
            "",
        ],
        |figures| match figures {
            MethodFigures::Soak(found) => Some(vec![soak(found)]),
            _ => None,
        },
    ),
    (
        "Bursts, restarts and addresses",
        "What a device does beside a steady load: RFC 2544, RFC 9004, RFC 6201, RFC 2889.",
        &["method", "result", "from"],
        |figures| match figures {
            MethodFigures::Procedure {
                findings,
                step,
                failed,
            } => Some(vec![procedure(step, findings.as_ref(), failed.as_deref())]),
            _ => None,
        },
    ),
];

/// One table a method that there are results of.
pub(crate) fn tables(size: &SizeSummary) -> Vec<FurtherTable> {
    let of =
        |(title, lead, head, rows): (&'static str, &'static str, &'static [&'static str], Rows)| {
            let all = size.cases.iter().flat_map(|case| {
                case.methods
                    .iter()
                    .flat_map(move |result| with_place(&case.name, result, rows))
            });
            FurtherTable {
                title,
                lead,
                head,
                rows: all.collect(),
            }
        };
    let tables = KINDS.into_iter().map(of);
    let tables = tables.filter(|table| !table.rows.is_empty());
    size.tenants
        .as_ref()
        .and_then(tenants::table)
        .into_iter()
        .chain(tables)
        .collect()
}

fn with_place(case: &str, result: &MethodResult, rows: Rows) -> Vec<Vec<String>> {
    let place = [case.to_owned(), (result.round + 1).to_string()];
    let rows = rows(&result.figures).unwrap_or_default().into_iter();
    rows.map(|row| place.iter().cloned().chain(row).collect())
        .collect()
}

const NONE: &str = "–";

fn or_none(value: Option<f64>, told: fn(f64) -> String) -> String {
    value.map_or_else(|| NONE.to_owned(), told)
}

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

fn latency(load: &LatencyAtLoad) -> Vec<String> {
    let trip = load.round_trip.as_ref();
    let percentiles = trip
        .iter()
        .flat_map(|trip| &trip.percentiles)
        .map(|value| format!("p{}: {}", value.percentile, value.text()));
    vec![
        load.stands_for.join(", "),
        format::mpps(load.rate_pps),
        load.loss_ratio
            .map_or_else(|| "the tester failed".to_owned(), format::loss),
        trip.map_or_else(|| "0".to_owned(), |trip| format::grouped(trip.frames)),
        trip.map_or_else(|| NONE.to_owned(), RoundTrip::min_text),
        trip.map_or_else(|| NONE.to_owned(), RoundTrip::mean_text),
        percentiles.collect::<Vec<_>>().join(", "),
        trip.map_or_else(|| NONE.to_owned(), RoundTrip::max_text),
    ]
}

fn soak(found: &SoakFindings) -> Vec<String> {
    let mean = |load: Option<CriticalLoad>| or_none(load.map(|it| it.mean_pps), format::mpps);
    vec![
        format!("{:e}", found.config.loss_ratio.get()),
        mean(found.critical_load),
        or_none(found.critical_load.map(|it| it.deviation_pps), format::mpps),
        mean(found.stretch),
        mean(found.erf),
        found.trials.to_string(),
        format::duration_s(found.trials_s),
        soak_end(found).to_owned(),
    ]
}

/// Name, the result in words, and what it was made from.
fn procedure(
    step: &StepKind,
    findings: Option<&ProcedureFindings>,
    failed: Option<&str>,
) -> Vec<String> {
    let (result, from) = match findings {
        None => (
            "not made: the rate that it starts from was not found, or is the highest offered"
                .to_owned(),
            String::new(),
        ),
        Some(found) => told(found),
    };
    let result = match failed {
        Some(reason) => format!("the tester failed: {reason}; before that: {result}"),
        None => result,
    };
    vec![step.to_string(), result, from]
}

fn mean(statistics: Option<Statistics>, unit: fn(f64) -> String) -> String {
    let Some(found) = statistics else {
        return NONE.to_owned();
    };
    let deviation = found
        .standard_deviation
        .map_or_else(String::new, |it| format!(", deviation {}", unit(it)));
    format!(
        "{}{deviation}, {} to {}",
        unit(found.mean),
        unit(found.min),
        unit(found.max)
    )
}

fn seconds(seconds: f64) -> String {
    format::time_ns(seconds * 1e9)
}

/// `; not in time 2 times`; nothing for none.
fn times(what: &str, count: usize) -> String {
    if count > 0 {
        format!("; {what} {count} times")
    } else {
        String::new()
    }
}

fn told(found: &ProcedureFindings) -> (String, String) {
    match found {
        ProcedureFindings::BackToBack(found) => (
            format!(
                "longest burst, frames: {}; buffer {} as implied, {} corrected{}",
                mean(found.frames, format::number),
                or_none(found.implied_buffer_s, seconds),
                or_none(found.corrected_buffer_s, seconds),
                times("the longest allowed passed", found.at_limit as usize),
            ),
            format!(
                "{} searches among bursts of up to {} frames in steps of {}, {} apart, sent at {}; throughput {}",
                found.longest_frames.len(),
                format::grouped(found.config.max_burst_frames),
                format::grouped(found.config.resolution_frames),
                seconds(found.config.pause_s),
                format::rate(
                    found
                        .burst_rate_pps
                        .map_or(found.config.max_rate_pps, |rate| rate.mean)
                ),
                format::rate(found.config.throughput_pps)
            ),
        ),
        ProcedureFindings::SystemRecovery(found) => {
            let never = found.recoveries_s.iter().filter(|it| it.is_none()).count();
            (
                format!(
                    "recovered after {}{}",
                    mean(found.recovery_s, seconds),
                    times("not in time", never)
                ),
                format!(
                    "{} overloads of {}",
                    found.recoveries_s.len(),
                    format::rate(found.config.overload_pps())
                ),
            )
        }
        ProcedureFindings::Reset(found) => {
            let never = found.outages.iter().filter(|it| it.is_none()).count();
            (
                format!(
                    "without frames for {}{}",
                    mean(found.reset_s, seconds),
                    times("not back in time", never)
                ),
                format!(
                    "{} restarts at {}",
                    found.outages.len(),
                    format::rate(found.config.rate_pps)
                ),
            )
        }
        ProcedureFindings::AddressCaching(found) => (
            format!(
                "{} addresses kept",
                at_least(found.capacity_addresses, found.is_limit)
            ),
            format!(
                "learned at {}",
                format::rate(found.config.learning_rate_pps)
            ),
        ),
        ProcedureFindings::AddressLearningRate(found) => (
            format!(
                "{} addresses a second learned",
                at_least(found.learning_rate_pps, found.is_limit)
            ),
            format!("{} addresses", found.config.addresses),
        ),
        _ => (NONE.to_owned(), String::new()),
    }
}

fn at_least(number: Option<u32>, is_limit: bool) -> String {
    let sign = if is_limit { "≥\u{202f}" } else { "" };
    number.map_or_else(
        || "none of".to_owned(),
        |number| format!("{sign}{}", format::grouped(u64::from(number))),
    )
}
