// SPDX-License-Identifier: Apache-2.0
//! Scheduling domains: CPUs that the scheduler does not balance have none (kernel documentation:
//! scheduler/sched-stats.rst, sched-domains.rst).

use super::check::{Check, some_of};
use super::machine::Machine;

const STATISTICS: &str = "proc/schedstat";
const DEBUG: &str = "sys/kernel/debug/sched/domains";

pub(super) fn checks(machine: &Machine<'_>) -> Vec<Check> {
    let name = "scheduling-domains";
    let expected = format!("none for the isolated CPUs {}", machine.isolated);
    let (file, of) = if let Some(text) = machine.text(STATISTICS) {
        (STATISTICS, in_statistics(&text))
    } else if machine.path(DEBUG).is_dir() {
        (DEBUG, in_debug(machine))
    } else {
        return vec![Check::unknown(
            name,
            format!("/{STATISTICS}, /{DEBUG}"),
            expected,
            "both missing: the kernel is built without statistics, and debugfs is not mounted",
        )];
    };
    let balanced: Vec<String> = machine
        .isolated
        .iter()
        .filter(|cpu| of.contains(&cpu.0))
        .map(|cpu| format!("CPU {cpu}"))
        .collect();
    let actual = if balanced.is_empty() {
        "none".to_owned()
    } else {
        format!("{} balanced with other CPUs", some_of(&balanced))
    };
    vec![Check::new(
        name,
        format!("/{file}"),
        expected,
        actual,
        balanced.is_empty(),
        "add isolcpus=domain,… to the kernel command line, or create CPU sets without balancing: quietwire partition apply --config FILE",
    )]
}

/// Returns the CPUs that have a domain. Lines `domainN` follow the line `cpuN` of their CPU.
fn in_statistics(text: &str) -> Vec<u32> {
    let mut found = Vec::new();
    let mut current: Option<u32> = None;
    for line in text.lines() {
        let word = line.split_whitespace().next().unwrap_or_default();
        if let Some(number) = word.strip_prefix("cpu") {
            current = number.parse().ok();
        } else if word.starts_with("domain") {
            found.extend(current);
        }
    }
    found
}

fn in_debug(machine: &Machine<'_>) -> Vec<u32> {
    let has_domain = |cpu: &String| !machine.names(&format!("{DEBUG}/{cpu}")).is_empty();
    machine
        .names(DEBUG)
        .into_iter()
        .filter(has_domain)
        .filter_map(|cpu| cpu.strip_prefix("cpu")?.parse().ok())
        .collect()
}
