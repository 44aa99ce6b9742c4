// SPDX-License-Identifier: Apache-2.0
//! Verdicts about the objectives: the first section of the page.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use maud::{Markup, html};

use super::places::memory_by_node;
use crate::format;
use crate::summary::{CpuShare, ObjectiveVerdict, Summary, ThreadShare, TrialProfile};

/// Renders the verdicts. Returns nothing if the study has no objectives.
pub(super) fn verdicts(summary: &Summary) -> Markup {
    if summary.verdicts.is_empty() {
        return html! {};
    }
    let has_sizes = summary.sizes.len() > 1;
    html! {
        section.verdicts {
            h2 { "Verdicts" }
            div.scroll role="region" tabindex="0" aria-label="Verdicts" {
                table {
                    thead {
                        tr {
                            th scope="col" { "Verdict" }
                            th scope="col" { "Objective" }
                            @if has_sizes { th scope="col" { "Frame size" } }
                            th scope="col" { "Bound" }
                            th scope="col" { "Median (confidence interval)" }
                            th.num scope="col" { "Values that meet it" }
                        }
                    }
                    tbody {
                        @for verdict in &summary.verdicts { (row(verdict, has_sizes)) }
                    }
                }
            }
            @for verdict in &summary.verdicts {
                @if let Some(profile) = &verdict.profile { (of_worst(verdict, profile)) }
            }
            p.note {
                "Pass and fail are each wrong with a probability of at most "
                (error_rate(summary))
                ", whatever the distribution of the values. The values are those of independent rounds."
            }
        }
    }
}

fn row(verdict: &ObjectiveVerdict, has_sizes: bool) -> Markup {
    let judgement = &verdict.judgement;
    html! {
        tr {
            td { b class=(class(verdict)) { (judgement.verdict.name()) } }
            th scope="row" {
                (verdict.name)
                @if let Some(reason) = &judgement.reason { div.dim { (reason) } }
            }
            @if has_sizes { td { (verdict.frame_size) } }
            td { (verdict.bound_text()) }
            td { (verdict.found_text()) }
            td.num { (verdict.count_text()) }
        }
    }
}

/// Renders the profile of the worst trial of a failed objective.
fn of_worst(verdict: &ObjectiveVerdict, profile: &TrialProfile) -> Markup {
    let title = format!("Worst trial: {}, {}", verdict.name, verdict.frames_text());
    let latency = profile.latency_max_ns.map_or_else(String::new, |ns| {
        format!(", largest round trip {}", format::time_ns(ns as f64))
    });
    html! {
        details {
            summary { (title) }
            p {
                "Trial " (profile.trial) ", round " (profile.round.saturating_add(1)) ", " (profile.step) ": "
                (format::rate(profile.achieved_rate_pps)) ", " (format::loss(profile.loss_ratio)) " lost" (latency) "."
            }
            @if profile.cpus.is_empty() {
                p.none { "The store has no CPU data of this trial." }
            } @else {
                div.scroll role="region" tabindex="0" aria-label=(title) { (doings(profile)) }
            }
        }
    }
}

/// Renders what CPUs, threads and the device did: one row each.
fn doings(profile: &TrialProfile) -> Markup {
    html! {
        table {
            thead { tr { th scope="col" { "Of" } th scope="col" { "Observed" } } }
            tbody {
                @for cpu in &profile.cpus {
                    tr { th scope="row" { "CPU " (cpu.cpu) } td.wide { (states(cpu)) } }
                }
                @for thread in &profile.threads {
                    tr { th scope="row" { "thread " (thread.name) } td.wide { (scheduling(thread)) } }
                }
                @for (part, counters) in &profile.counters {
                    tr { th scope="row" { (part) } td.wide { (largest(counters)) } }
                }
                @for (port, nodes) in &profile.memory {
                    tr { th scope="row" { "memory of " (port) } td.wide { (memory_by_node(nodes.iter().map(|(node, kib)| (*node, *kib)))) } }
                }
                @for (source, reason) in &profile.unavailable {
                    tr { th scope="row" { (source) } td.wide { "unavailable: " (reason) } }
                }
            }
        }
    }
}

/// Formats the states of a CPU that are not 0.
fn states(cpu: &CpuShare) -> String {
    let states = cpu.states.iter().filter(|(_, share)| *share >= 0.0005);
    let states = states.map(|(state, share)| format!("{state} {}", format::percent(share * 100.0)));
    states.collect::<Vec<_>>().join(", ")
}

fn scheduling(thread: &ThreadShare) -> String {
    let waiting = thread.run_delay_ratio.map_or_else(String::new, |ratio| {
        format!(", waiting for a CPU {}", format::percent(ratio * 100.0))
    });
    let migrations = thread.migrations.map_or_else(String::new, |moved| {
        format!(", {} migrations", format::grouped(moved))
    });
    format!(
        "running {}, preempted {} times per second{migrations}{waiting}",
        format::percent(thread.busy_ratio * 100.0),
        format::number(thread.involuntary_switches_per_s.median)
    )
}

/// Counters of a part that the page shows.
const COUNTERS: usize = 12;

/// Formats the largest counters of a part.
fn largest(counters: &BTreeMap<String, u64>) -> String {
    let mut all: Vec<(&String, &u64)> = counters.iter().collect();
    all.sort_by_key(|(_, count)| Reverse(**count));
    let shown = all.iter().take(COUNTERS);
    let shown = shown.map(|(name, count)| format!("{name} {}", format::grouped(**count)));
    shown.collect::<Vec<_>>().join(", ")
}

fn class(verdict: &ObjectiveVerdict) -> &'static str {
    match verdict.judgement.verdict {
        quietwire_study::Verdict::Pass => "verdict pass",
        quietwire_study::Verdict::Fail => "verdict fail",
        quietwire_study::Verdict::Unknown => "verdict unknown",
    }
}

/// Returns the largest error rate of all rules.
fn error_rate(summary: &Summary) -> String {
    let rules = summary.verdicts.iter().filter_map(|verdict| verdict.rule);
    let largest = rules.map(|rule| rule.error_rate).fold(0.0, f64::max);
    format::percent(largest * 100.0)
}
