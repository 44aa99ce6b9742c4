// SPDX-License-Identifier: Apache-2.0
//! Checks and counters in the Prometheus text format. Names follow its conventions: base units, `_total` for counters.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use super::Sample;
use super::check::{Check, Verdict};
use crate::proc::PerCpu;

struct Text(String);

impl Text {
    fn metric(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = (String, f64)>,
    ) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP quietwire_partition_{name} {help}");
        let _ = writeln!(self.0, "# TYPE quietwire_partition_{name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(self.0, "quietwire_partition_{name}{labels} {value}");
        }
    }
}

/// Formats labels in braces and escapes backslashes, quotes and newlines.
fn labels(pairs: &[(&str, &str)]) -> String {
    let escaped = |value: &str| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        value.replace('\n', "\\n")
    };
    let pairs = pairs
        .iter()
        .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
}

/// Renders all checks and counters of a sample. `spent` is the CPU time used for verification so far, `at_s` the time of the
/// sample in seconds since 1970.
#[must_use]
pub fn exposition(checks: &[Check], sample: &Sample, spent: Duration, at_s: f64) -> String {
    let mut text = Text(String::new());
    let mut counts: BTreeMap<(&str, Verdict), u32> = BTreeMap::new();
    for check in checks {
        for verdict in [Verdict::Pass, Verdict::Fail, Verdict::Unknown] {
            *counts.entry((check.name, verdict)).or_default() +=
                u32::from(check.verdict == verdict);
        }
    }
    text.metric(
        "checks",
        "gauge",
        "Checks by verdict.",
        counts.iter().map(|((name, verdict), count)| {
            let verdict = verdict.name().replace(' ', "-");
            (
                labels(&[("check", name), ("verdict", &verdict)]),
                f64::from(*count),
            )
        }),
    );
    for (name, help, counts) in [
        (
            "interrupts_total",
            "Interrupts on isolated CPUs.",
            &sample.interrupts,
        ),
        (
            "softirqs_total",
            "Softirqs on isolated CPUs.",
            &sample.softirqs,
        ),
    ] {
        text.metric(name, "counter", help, counts.iter().flat_map(of_cpus));
    }
    threads(&mut text, sample);
    text.metric(
        "verify_cpu_seconds_total",
        "counter",
        "CPU time used for verification.",
        [(String::new(), spent.as_secs_f64())],
    );
    text.metric(
        "verify_timestamp_seconds",
        "gauge",
        "Time of the last sample, seconds since 1970.",
        [(String::new(), at_s)],
    );
    text.0
}

fn of_cpus(counts: &PerCpu) -> Vec<(String, f64)> {
    let mut samples = Vec::new();
    for (name, line) in &counts.lines {
        for (cpu, count) in &line.counts {
            let labels = labels(&[
                ("cpu", &cpu.to_string()),
                ("kind", name),
                ("what", &line.what),
            ]);
            samples.push((labels, *count as f64));
        }
    }
    samples
}

fn threads(text: &mut Text, sample: &Sample) {
    let forwarding: Vec<(String, u64, u64, Option<u64>)> = sample
        .threads
        .iter()
        .filter_map(|(tid, thread)| {
            let counts = thread.forwarding.as_ref()?;
            let labels = labels(&[
                ("data_plane", counts.data_plane.name()),
                ("thread", &thread.name),
                ("tid", &tid.to_string()),
                ("cpu", &thread.cpu.to_string()),
            ]);
            Some((
                labels,
                counts.voluntary,
                counts.involuntary,
                counts.migrations,
            ))
        })
        .collect();
    text.metric(
        "forwarding_voluntary_switches_total",
        "counter",
        "Voluntary context switches of forwarding threads.",
        forwarding
            .iter()
            .map(|(labels, count, ..)| (labels.clone(), *count as f64)),
    );
    text.metric(
        "forwarding_involuntary_switches_total",
        "counter",
        "Involuntary context switches of forwarding threads.",
        forwarding
            .iter()
            .map(|(labels, _, count, _)| (labels.clone(), *count as f64)),
    );
    text.metric(
        "forwarding_migrations_total",
        "counter",
        "Migrations of forwarding threads to another CPU.",
        forwarding
            .iter()
            .filter_map(|(labels, .., count)| Some((labels.clone(), (*count)? as f64))),
    );
}
