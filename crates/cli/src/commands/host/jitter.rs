// SPDX-License-Identifier: Apache-2.0
//! `quietwire host jitter`: gaps in the execution of a thread that reads the clock, per CPU.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use quietwire_host::CpuList;
use quietwire_host::jitter::{CpuJitter, JitterError, JitterReport, measure};

use crate::exit::{Usage, stop_on_signals};
use crate::text::print;
use crate::units::parse_positive_duration;

/// Read the clock in a loop on CPUs and report gaps between two readings, in which other code ran. The CPUs are fully
/// loaded meanwhile, so do not run it on CPUs that forward packets.
#[derive(Debug, Args)]
pub(crate) struct JitterArgs {
    /// CPUs to measure, such as 2-5,9.
    #[arg(long, value_name = "LIST")]
    cpus: CpuList,
    /// Duration of the measurement.
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = parse_positive_duration)]
    duration: Duration,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Message about the remains of a measurement that is ended by force.
const LEFT: &str =
    "the kernel's osnoise tracer may still run (the next `quietwire host jitter` stops it)";

pub(crate) fn run(args: &JitterArgs) -> Result<()> {
    let stop = stop_on_signals(LEFT)?;
    let report = measure(&args.cpus, args.duration, &stop).map_err(|error| match error {
        JitterError::Cpu { .. } | JitterError::NoCpus => Usage(error.to_string()),
    })?;
    if args.json {
        return print(serde_json::to_string_pretty(&report)?);
    }
    print(text(&report))
}

/// Widest bar of a histogram.
const BAR: usize = 40;
/// Most sources and interrupts in the list.
const NAMED: usize = 8;

fn text(report: &JitterReport) -> String {
    let mut lines: Vec<String> = report.cpus.iter().flat_map(of_cpu).collect();
    if let Some(why) = &report.untraced {
        lines.push(format!(
            "the kernel does not report the sources of gaps: {why}"
        ));
    }
    lines.join("\n")
}

/// Formats a time: 850 ns, 12.5 us, 3.2 ms.
fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

fn of_cpu(cpu: &CpuJitter) -> Vec<String> {
    let lost = cpu.lost_ns as f64 * 100.0 / cpu.duration_ns.max(1) as f64;
    let mut lines = vec![format!(
        "CPU {}: {} gaps of 1 us and more in {}, the longest {}, {lost:.3} % of the time; a reading takes {}",
        cpu.cpu,
        cpu.gaps,
        time(cpu.duration_ns),
        time(cpu.longest_ns),
        time(cpu.shortest_ns)
    )];
    let percentiles: Vec<String> = cpu
        .percentiles
        .iter()
        .map(|(share, ns)| format!("{share} % up to {}", time(*ns)))
        .collect();
    if cpu.gaps > 0 {
        lines.push(format!("  of these gaps {}", percentiles.join(", ")));
    }
    // The length of a bar is logarithmic because there are a million times more readings than gaps.
    for (bound, count) in &cpu.histogram {
        let magnitude = count.max(&1).ilog2() as usize;
        let width = magnitude.saturating_add(1).min(BAR);
        lines.push(format!(
            "  from {:>9} {count:>12} {}",
            time(*bound),
            "#".repeat(width)
        ));
    }
    if let Some(switches) = cpu.forced_switches {
        lines.push(format!("  {switches} context switches to other threads"));
    }
    let mut interrupts: Vec<&(String, u64)> = cpu.interrupts.iter().collect();
    interrupts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (name, count) in interrupts.into_iter().take(NAMED) {
        lines.push(format!("  {count:>8} {name}"));
    }
    for source in cpu.sources.iter().take(NAMED) {
        lines.push(format!(
            "  {} {}: {} times, {} altogether, {} at most",
            source.kind,
            source.name,
            source.count,
            time(source.total_ns),
            time(source.longest_ns)
        ));
    }
    lines
}
