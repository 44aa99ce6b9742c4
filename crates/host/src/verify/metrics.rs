// SPDX-License-Identifier: Apache-2.0
//! Checks and counters as Prometheus metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use quietwire_base::metrics::{Labels, Metric, MetricsText};

use super::Sample;
use super::check::{Check, Verdict};
use crate::proc::PerCpu;

/// Renders all checks and counters of a sample. `spent` is the CPU time used for verification so far, `at_s` the time of the
/// sample in seconds since 1970.
#[must_use]
pub fn exposition(checks: &[Check], sample: &Sample, spent: Duration, at_s: f64) -> String {
    let mut text = MetricsText::default();
    let mut counts: BTreeMap<(&str, Verdict), u64> = BTreeMap::new();
    for check in checks {
        for verdict in [Verdict::Pass, Verdict::Fail, Verdict::Unknown] {
            let count = counts.entry((check.name, verdict)).or_default();
            *count = count.saturating_add(u64::from(check.verdict == verdict));
        }
    }
    let counts = counts.into_iter().map(|((name, verdict), count)| {
        let verdict = verdict.name().to_owned();
        (
            vec![("check", name.to_owned()), ("verdict", verdict)],
            count,
        )
    });
    text.add_counts(Metric::PartitionChecks, counts);
    for (metric, counts) in [
        (Metric::PartitionInterruptsTotal, &sample.interrupts),
        (Metric::PartitionSoftirqsTotal, &sample.softirqs),
    ] {
        text.add_counts(metric, counts.iter().flat_map(of_cpus));
    }
    threads(&mut text, sample);
    text.add(
        Metric::PartitionVerifyCpuSecondsTotal,
        [(vec![], spent.as_secs_f64())],
    );
    text.add(Metric::PartitionVerifyTimestampSeconds, [(vec![], at_s)]);
    text.finish()
}

fn of_cpus(counts: &PerCpu) -> Vec<(Labels, u64)> {
    let mut samples = Vec::new();
    for (name, line) in &counts.lines {
        for (cpu, count) in &line.counts {
            let labels = vec![
                ("cpu", cpu.to_string()),
                ("kind", name.clone()),
                ("what", line.what.clone()),
            ];
            samples.push((labels, *count));
        }
    }
    samples
}

fn threads(text: &mut MetricsText, sample: &Sample) {
    let forwarding = || {
        sample.threads.iter().filter_map(|(tid, thread)| {
            let counts = thread.forwarding.as_ref()?;
            let labels = vec![
                ("data_plane", counts.data_plane.name().to_owned()),
                ("thread", thread.name.clone()),
                ("tid", tid.to_string()),
                ("cpu", thread.cpu.to_string()),
            ];
            Some((labels, counts))
        })
    };
    text.add_counts(
        Metric::PartitionForwardingVoluntarySwitchesTotal,
        forwarding().map(|(labels, counts)| (labels, counts.voluntary)),
    );
    text.add_counts(
        Metric::PartitionForwardingInvoluntarySwitchesTotal,
        forwarding().map(|(labels, counts)| (labels, counts.involuntary)),
    );
    // Some kernels do not report migrations.
    text.add_counts(
        Metric::PartitionForwardingMigrationsTotal,
        forwarding().filter_map(|(labels, counts)| Some((labels, counts.migrations?))),
    );
}
