// SPDX-License-Identifier: Apache-2.0
//! CPU usage, as a heat map.

use maud::{Markup, html};
use quietwire_host::cpu::{CpuId, CpuList};
use quietwire_study::{StudyFile, StudyResults};

use crate::chart::{cpu_timeline, legend};
use crate::format::{THIN, grouped, mpps, number, percent};
use crate::summary::{CaseSummary, SizeSummary, timeline};

pub(super) fn heat_map(results: &StudyResults, size: &SizeSummary) -> Markup {
    let has_any = size.cases.iter().any(|case| !case.cpus.is_empty());
    html! {
        section {
            h2 { "CPU usage" }
            @if has_any {
                p.lead { "Share of time in each state of " code { "/proc/stat" } ", mean over all valid trials. A polling device is busy with and without frames. Roles are those of the study file; the scheduler places threads that are not pinned." }
                div.heats {
                    @for case in &size.cases { (of_case(&results.file, case)) }
                }
                (over_time(results, size))
                (threads(size))
            } @else {
                p.none { "The store has no CPU data." }
            }
        }
    }
}

fn of_case(file: &StudyFile, case: &CaseSummary) -> Markup {
    let Some(first) = case.cpus.first() else {
        return html! { div { h3 { (case.name) } p.none { "no data" } } };
    };
    html! {
        div {
            h3 { (case.name) }
            div.scroll role="region" tabindex="0" aria-label={ "CPU usage of " (case.name) } {
                table.heat {
                    thead {
                        tr {
                            th scope="col" { "CPU" }
                            @for (state, _) in &first.states { th scope="col" { (state) } }
                        }
                    }
                    tbody {
                        @for cpu in &case.cpus {
                            tr {
                                th scope="row" { (cpu.cpu) " " span.roles { (roles(file, cpu.cpu)) } }
                                @for (state, share) in &cpu.states { (cell(state, *share)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Renders the use of the CPUs in the order of time.
fn over_time(results: &StudyResults, size: &SizeSummary) -> Markup {
    let Some(timeline) = timeline(results, &size.frame_size) else {
        return html! {};
    };
    let place = |name: &str| size.cases.iter().position(|case| case.name == name);
    html! {
        h3 { "CPU usage over time" }
        p.lead { "Trials of all rounds, valid or not. The strip above the CPUs has the colours of the cases; a darker field is a busier CPU." }
        (legend(size.cases.iter().map(|case| case.name.as_str())))
        figure { (cpu_timeline(&timeline, place)) }
    }
}

/// Renders the busy threads. A forwarding thread that is preempted or migrates loses frames and cache contents.
fn threads(size: &SizeSummary) -> Markup {
    if size.cases.iter().all(|case| case.threads.is_empty()) {
        return html! {};
    }
    html! {
        h3 { "Busy threads of switch and tester" }
        p.lead { "A preempted thread does not forward while another thread runs on its CPU. A thread that migrates to another CPU also loses its cache contents." }
        div.scroll role="region" tabindex="0" aria-label="Busy threads of switch and tester" {
            table {
                thead {
                    tr {
                        th scope="col" { "Case" }
                        th scope="col" { "Thread" }
                        th.num scope="col" { "Last CPU" }
                        th.num scope="col" { "Running" }
                        th.num scope="col" { "Preempted per second, median" }
                        th.num scope="col" { "max" }
                        th.num scope="col" { "Migrations, all trials" }
                        th.num scope="col" { "Waiting for a CPU" }
                    }
                }
                tbody {
                    @for case in &size.cases {
                        @for (index, thread) in case.threads.iter().enumerate() {
                            tr {
                                @if index == 0 { th scope="rowgroup" rowspan=(case.threads.len()) { (case.name) } }
                                td.name { (thread.name) }
                                td.num { (thread.cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")) }
                                td.num { (percent(thread.busy_ratio * 100.0)) }
                                td.num { (number(thread.involuntary_switches_per_s.median)) }
                                td.num { (number(thread.involuntary_switches_per_s.max)) }
                                td.num { (thread.migrations.map_or_else(|| "unknown".to_owned(), grouped)) }
                                td.num { (thread.run_delay_ratio.map_or_else(|| "unknown".to_owned(), |ratio| percent(ratio * 100.0))) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Renders the CPU time of neighbours. Neighbours without CPU time disturb nothing, so figures of such a case show nothing about
/// isolation.
pub(super) fn neighbours(size: &SizeSummary) -> Markup {
    let with: Vec<_> = size
        .cases
        .iter()
        .filter_map(|case| Some((&case.name, case.neighbours.as_ref()?)))
        .collect();
    if with.is_empty() {
        return html! {};
    }
    let has_network = with
        .iter()
        .any(|(_, reported)| reported.network_pps.is_some());
    html! {
        section {
            h2 { "Load by neighbours" }
            p.lead { "Share of CPU time that the neighbours got on their CPUs, measured in every trial. If it is near 0, they were starved or mostly waited, and the case shows little about isolation." }
            div.scroll role="region" tabindex="0" aria-label="Load by neighbours" {
                table {
                    thead {
                        tr {
                            th scope="col" { "Case" }
                            th.num scope="col" { "Threads" }
                            th.num scope="col" { "CPUs" }
                            th.num scope="col" { "Share, median" }
                            th.num scope="col" { "least" }
                            th.num scope="col" { "most" }
                            @if has_network { th.num scope="col" { "Sent through the device, Mpps" } }
                            th.num scope="col" { "Trials" }
                        }
                    }
                    tbody {
                        @for (name, reported) in with {
                            tr {
                                th scope="row" { (name) }
                                td.num { (reported.threads) }
                                td.num { (reported.cpus) }
                                td.num { (percent(reported.share.median * 100.0)) }
                                td.num { (percent(reported.share.min * 100.0)) }
                                td.num { (percent(reported.share.max * 100.0)) }
                                @if has_network {
                                    td.num { (reported.network_pps.as_ref().map_or_else(|| "–".to_owned(), |sent| mpps(sent.median))) }
                                }
                                td.num { (reported.trials) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the shade of a cell, by its share. Shades are steps, so that the style can give each a readable text colour.
#[expect(clippy::cast_possible_truncation, reason = "clamped to 10")]
fn cell(state: &str, share: f64) -> Markup {
    let depth = (share * 10.0).ceil().clamp(0.0, 10.0) as u32;
    let percent = share * 100.0;
    let text = if percent == 0.0 {
        "0".to_owned()
    } else if percent < 0.1 {
        "<\u{202f}0.1".to_owned()
    } else if percent < 9.95 {
        format!("{percent:.1}")
    } else {
        format!("{percent:.0}")
    };
    html! { td class={ "h" (depth) } title={ (state) ": " (text) (THIN) "%" } { (text) } }
}

/// Returns the roles of a CPU in the study file.
pub(super) fn roles(file: &StudyFile, cpu: u32) -> String {
    let has = |cpus: &CpuList| cpus.contains(CpuId(cpu));
    let roles = [
        (has(&file.device.forwarding_cpus), "forwarding"),
        (has(&file.tester.cpu), "tester"),
        (has(&file.device.service_cpus), "service"),
        (has(&file.device.control_cpus), "control"),
    ];
    let names: Vec<&str> = roles
        .iter()
        .filter(|(has, _)| *has)
        .map(|(_, name)| *name)
        .collect();
    names.join(", ")
}
