// SPDX-License-Identifier: Apache-2.0
//! The record: figures of the tester, every trial, the machine, every command and setting.

use maud::{Markup, html};
use quietwire_study::{RunEnd, RunRecord, StepRecord, StudyResults, TrialRecord};
use quietwire_tester::{InvalidCause, TesterHealth};
use serde_json::Value;

use super::words;
use crate::chart::{gaps as gap_chart, legend};
use crate::format::{self, grouped};
use crate::summary::{CaseSummary, SizeSummary, Summary};

/// Returns the number of invalid trials of a case with this cause.
fn count_of(case: &CaseSummary, cause: InvalidCause) -> usize {
    let mut causes = case.health.causes.iter();
    causes
        .find(|(known, _)| *known == cause)
        .map_or(0, |(_, count)| *count)
}

pub(super) fn health(size: &SizeSummary) -> Markup {
    let is_counted =
        |cause: &InvalidCause| size.cases.iter().any(|case| count_of(case, *cause) > 0);
    let causes: Vec<InvalidCause> = InvalidCause::ALL.into_iter().filter(is_counted).collect();
    let reasons: Vec<_> = size
        .cases
        .iter()
        .flat_map(|case| {
            case.health
                .reasons
                .iter()
                .map(move |(reason, count)| (&case.name, reason, count))
        })
        .collect();
    html! {
        section {
            h2 { "Losses and delays of the tester" }
            p.lead { "A trial in which they exceed the limits is invalid and is repeated; it never counts against the device." }
            @for check in words::damage_checks(size) { p.note { (check) } }
            div.scroll role="region" tabindex="0" aria-label="Losses and delays of the tester" {
                table {
                    thead {
                        tr {
                            th scope="col" { "Case" }
                            th.num scope="col" { "Trials" }
                            th.num scope="col" { "Invalid" }
                            th.num scope="col" { "Rate error, worst valid trial" }
                            th.num scope="col" { "Longest gap, median" }
                            th.num scope="col" { "Longest gap" }
                            th.num scope="col" { "Gaps over 100" (format::THIN) "µs" }
                            th.num scope="col" { "Frames dropped by the tester" }
                            th.num scope="col" { "Trials without real-time priority" }
                        }
                    }
                    tbody {
                        @for case in &size.cases {
                            @let health = &case.health;
                            tr {
                                th scope="row" { (case.name) }
                                td.num { (health.trials) }
                                td.num { (health.invalid) }
                                td.num { (format::loss(health.worst_pacing_miss_ratio)) }
                                td.num { (format::time_ns(health.median_longest_gap_ns as f64)) }
                                td.num { (format::time_ns(health.longest_gap_ns as f64)) }
                                td.num { (grouped(health.gaps_over_100us)) }
                                td.num { (grouped(health.receive_drops)) }
                                td.num { (health.without_realtime) }
                            }
                        }
                    }
                }
            }
            (gaps(size))
            @if !reasons.is_empty() {
                h3 { "Why trials were invalid" }
                table {
                    thead {
                        tr {
                            th scope="col" { "Case" }
                            @for cause in &causes { th.num scope="col" { (cause.words()) } }
                        }
                    }
                    tbody {
                        @for case in &size.cases {
                            tr {
                                th scope="row" { (case.name) }
                                @for cause in &causes { td.num { (count_of(case, *cause)) } }
                            }
                        }
                    }
                }
                ul.reasons {
                    @for (case, reason, count) in reasons {
                        li { b { (case) ", " (count) "×" } " " (reason) }
                    }
                }
            }
        }
    }
}

/// Renders the gaps between bursts of latency trials, if any are known.
fn gaps(size: &SizeSummary) -> Markup {
    let mut trips = size
        .cases
        .iter()
        .filter_map(|case| case.round_trip.as_ref());
    html! {
        @if trips.any(|trip| trip.burst_gaps.samples > 0) {
            h3 { "Gaps between bursts" }
            p.note {
                "Times from the start of a burst of the tester to the start of the next on the same port, in the latency trials, "
                "which have one load. Gaps with stalls of the tester are left out."
            }
            (legend(size.cases.iter().map(|case| case.name.as_str())))
            figure { (gap_chart(&size.cases)) }
        }
    }
}

pub(super) fn record(results: &StudyResults, summary: &Summary) -> Markup {
    html! {
        section.record {
            h2 { "Record" }
            p.lead { "The store of the study contains everything below and the full histograms of every trial." }
            details {
                summary { "Every trial (" (summary.trials) ")" }
                div.scroll.tall role="region" tabindex="0" aria-label="Every trial" { (trials(results)) }
            }
            details {
                summary { "The machine and the software" }
                @for (index, run) in results.runs.iter().enumerate() { (of_run(index, run)) }
            }
            details {
                summary { "Every command and setting (" (results.entries.len()) " case setups)" }
                @for entry in &results.entries {
                    h3 { (entry.case_name) ", round " (entry.round.saturating_add(1)) ", " (format::date(entry.entered_unix_ns)) }
                    pre { (pretty(&entry.settings)) }
                }
            }
            @if !results.consoles.is_empty() { (consoles(results)) }
            details {
                summary { "The study file" }
                p.note { "SHA-256 " code { (results.file_sha256) } }
                pre { (results.file_text) }
            }
        }
    }
}

/// Lines of a console that the page shows. The last lines show recent events, and those before them the boot of the guest.
const CONSOLE_LINES: usize = 60;

fn consoles(results: &StudyResults) -> Markup {
    html! {
        details {
            summary { "Console output of guests (" (results.consoles.len()) ")" }
            p.note { "The last " (CONSOLE_LINES) " lines of each. " code { "quietwire study report STORE --consoles DIRECTORY" } " writes the complete output of each to a file." }
            @for console in &results.consoles {
                h3 { (console.case_name) ", round " (console.round.saturating_add(1)) ", " (console.element) }
                pre { (last_lines(&console.output, CONSOLE_LINES)) }
            }
        }
    }
}

fn last_lines(text: &str, most: usize) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let from = lines.len().saturating_sub(most);
    lines.get(from..).unwrap_or_default().join("\n")
}

fn of_run(index: usize, run: &RunRecord) -> Markup {
    let end = match &run.end {
        None => "running or killed".to_owned(),
        Some((RunEnd::Finished, when)) => format!("finished {}", format::date(*when)),
        Some((RunEnd::Interrupted, when)) => format!("interrupted {}", format::date(*when)),
        Some((RunEnd::Failed(reason), when)) => format!("failed {}: {reason}", format::date(*when)),
    };
    html! {
        h3 { "Run " (index.saturating_add(1)) ": " (format::date(run.started_unix_ns)) ", " (end) }
        @if !run.resumed_despite.is_empty() {
            p { "Resumed under other conditions than the runs before: " (run.resumed_despite.join("; ")) "." }
        }
        h4 { "Software" }
        pre { (pretty(&run.versions)) }
        h4 { "Machine" }
        pre { (pretty(&run.machine)) }
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string())
}

fn trials(results: &StudyResults) -> Markup {
    html! {
        table.trials {
            thead {
                tr {
                    th.num scope="col" { "#" }
                    th.num scope="col" { "Round" }
                    th scope="col" { "Case" }
                    th.num scope="col" { "Frame" }
                    th scope="col" { "Step" }
                    th scope="col" { "Verdict" }
                    th.num scope="col" { "Asked, Mpps" }
                    th.num scope="col" { "Offered, Mpps" }
                    th.num scope="col" { "Forwarded, Mpps" }
                    th.num scope="col" { "Frames lost" }
                    th.num scope="col" { "Loss" }
                    th.num scope="col" { "Mean round trip" }
                    th.num scope="col" { "p99" }
                    th.num scope="col" { "Largest" }
                    th.num scope="col" { "Tester's longest gap" }
                    th.num scope="col" { "Rate off by" }
                    th.num scope="col" { "Gaps between bursts: 50, 99, 99.9" (format::THIN) "%, longest" }
                    th.num scope="col" { "Gaps with stalls" }
                    th.num scope="col" { "Stalls of the host" }
                }
            }
            tbody {
                @for (index, (step, trial)) in results.trials().enumerate() { (row(index, step, trial)) }
            }
        }
    }
}

/// Returns the cells of a trial's pacing.
fn pacing(health: &TesterHealth) -> Markup {
    let error = health.rate_error_ratio;
    let error = error.map_or_else(|| "–".to_owned(), |ratio| format!("{:+.4}", ratio * 100.0));
    let gaps = &health.burst_gaps;
    let longest_ns = (gaps.samples > 0).then_some(gaps.max_ns);
    let gaps = [gaps.p50_ns, gaps.p99_ns, gaps.p99_9_ns, longest_ns];
    let gaps = gaps.map(|gap| gap.map_or_else(|| "–".to_owned(), |ns| format::time_ns(ns as f64)));
    html! {
        td { (error) @if health.rate_error_ratio.is_some() { (format::THIN) "%" } }
        td { (gaps.join(", ")) }
        td { (grouped(health.stalled_gaps.samples)) }
        td {
            (grouped(health.host_stalls))
            @if health.host_stalls > 0 { ", " (format::time_ns(health.host_stall_time_ns as f64)) }
        }
    }
}

fn row(index: usize, step: &StepRecord, trial: &TrialRecord) -> Markup {
    let result = &trial.result;
    let cited = result.calibration.as_ref();
    let own = cited.and_then(|cited| cited.own.as_ref());
    let latency = |ns: f64, own_ns: Option<f64>| {
        if result.latency.samples == 0 {
            "–".to_owned()
        } else {
            format::latency_ns(ns, own_ns)
        }
    };
    let mean = latency(result.latency.mean_ns, own.map(|own| own.mean_ns));
    let own_p99_ns = own.map(|own| own.at_or_max(99.0) as f64);
    let p99 = result.latency.p99_ns;
    let p99 = p99.map_or_else(|| "–".to_owned(), |ns| latency(ns as f64, own_p99_ns));
    let own_max_ns = own.map(|own| own.max_ns as f64);
    let max = latency(result.latency.max_ns as f64, own_max_ns);
    let exact = |rate_pps: f64| format!("{:.4}", rate_pps / 1e6);
    html! {
        tr class=[(!result.is_valid()).then_some("invalid")] {
            td { (index.saturating_add(1)) }
            td { (step.round.saturating_add(1)) }
            td { (step.case_name) }
            td { (step.frame_size) }
            td { (step.kind) }
            td { @if result.is_valid() { "valid" } @else { "invalid" } }
            td { (exact(trial.request.offered_rate_pps)) }
            td { (exact(result.achieved_rate_pps)) }
            td { (exact(result.forwarding_rate_pps)) }
            td { (grouped(result.lost_frames)) }
            td { (format::loss(result.loss_ratio)) }
            td { (mean) }
            td { (p99) }
            td { (max) }
            td { (format::time_ns(result.health.longest_gap_ns as f64)) }
            (pacing(&result.health))
        }
        @if let Some(reasons) = result.validity.text() {
            tr.invalid.why { td {} td colspan="18" { (reasons) } }
        }
    }
}
