// SPDX-License-Identifier: Apache-2.0
//! Procedures: bursts, overloads, restarts, addresses.

use quietwire_search::Statistics;
use quietwire_search::procedure::ProcedureFindings;
use quietwire_study::StepKind;

use super::table::{LABELS, MethodTable, NONE, by_round, or_none};
use crate::format;
use crate::summary::MethodFigures;

pub(super) const TABLE: MethodTable = MethodTable {
    title: "Bursts, restarts and addresses",
    lead: "RFC 2544, RFC 9004, RFC 6201 and RFC 2889.",
    labels: LABELS,
    head: &["method", "result", "from"],
    rows: |case| {
        by_round(case, |figures| match figures {
            MethodFigures::Procedure {
                findings,
                step,
                failed,
            } if !step.opens_connections() => {
                vec![procedure(step, findings.as_ref(), failed.as_deref())]
            }
            _ => Vec::new(),
        })
    },
};

/// Returns the name, the result in words, and the parameters.
fn procedure(
    step: &StepKind,
    findings: Option<&ProcedureFindings>,
    failed: Option<&str>,
) -> Vec<String> {
    let (result, from) = match findings {
        None => (
            "not run: the search found no rate to start from, or only the highest one offered"
                .to_owned(),
            String::new(),
        ),
        Some(found) => reported(found),
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

/// Returns `; not in time 2 times`, or nothing for none.
fn times(what: &str, count: usize) -> String {
    if count > 0 {
        format!("; {what} {count} times")
    } else {
        String::new()
    }
}

fn reported(found: &ProcedureFindings) -> (String, String) {
    match found {
        ProcedureFindings::BackToBack(found) => (
            format!(
                "longest burst, frames: {}; buffer {} implied, {} corrected{}",
                mean(found.frames, format::number),
                or_none(found.implied_buffer_s, seconds),
                or_none(found.corrected_buffer_s, seconds),
                times("the longest allowed burst passed", found.at_limit as usize),
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
                    "recovery time {}{}",
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
                    "reset time {}{}",
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
                "{} addresses learned",
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
