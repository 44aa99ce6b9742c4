// SPDX-License-Identifier: Apache-2.0
//! CPU affinity of threads: each forwarding thread has one CPU, which no other thread may use.

use std::collections::BTreeMap;

use super::check::{Check, some_of};
use super::machine::Machine;
use super::remedy;
use crate::partition::Role;
use crate::tasks::Task;

const FILES: &str = "/proc/*/task/*/status (Cpus_allowed_list)";

pub(super) fn checks(machine: &Machine<'_>) -> Vec<Check> {
    if machine.tasks.is_empty() {
        return vec![Check::unknown(
            "affinity",
            FILES,
            "only forwarding threads and guests on isolated CPUs",
            "no threads are visible",
        )];
    }
    vec![forwarding(machine), intruders(machine)]
}

fn label(task: &Task) -> String {
    format!(
        "{} ({} of process {}, CPUs {})",
        task.name, task.tid, task.pid, task.cpus
    )
}

/// Checks that every forwarding thread has exactly one CPU, a forwarding CPU that no other forwarding thread has.
fn forwarding(machine: &Machine<'_>) -> Check {
    let pollers = machine
        .tasks
        .iter()
        .filter(|task| task.forwards_for.is_some());
    let (mut wrong, mut found) = (Vec::new(), 0_usize);
    let mut by_cpu: BTreeMap<_, u32> = BTreeMap::new();
    for task in pollers.clone() {
        found = found.saturating_add(1);
        let is_alone = task.cpus.len() == 1;
        if !is_alone || !task.cpus.difference(&machine.forwarding).is_empty() {
            wrong.push(label(task));
        } else if let Some(cpu) = task.cpus.first() {
            let count = by_cpu.entry(cpu).or_default();
            *count = count.saturating_add(1);
        }
    }
    for (cpu, _) in by_cpu.iter().filter(|(_, count)| **count > 1) {
        wrong.push(format!("several threads on CPU {cpu}"));
    }
    let actual = match (found, wrong.is_empty()) {
        (0, _) => "no forwarding threads are running".to_owned(),
        (_, true) => format!("{found} forwarding threads, each on its own CPU"),
        (_, false) => some_of(&wrong),
    };
    Check::new(
        "forwarding-threads",
        FILES,
        format!(
            "each forwarding thread alone on one of the CPUs {}",
            machine.forwarding
        ),
        actual,
        wrong.is_empty(),
        "configure the data plane with the forwarding CPUs: quietwire partition render --for ovs|vpp|testpmd|vrouter|quietwire",
    )
}

/// Checks for threads that may run on isolated CPUs but are not forwarding threads, guests on the guests' CPUs or kernel
/// threads bound to their CPU.
fn intruders(machine: &Machine<'_>) -> Check {
    let guests = machine.plan.cpus(Role::Guest);
    let wrong: Vec<&Task> = machine
        .tasks
        .iter()
        .filter(|task| task.forwards_for.is_none())
        .filter(|task| !task.cpus.intersection(&machine.isolated).is_empty())
        .filter(|task| !(task.is_kernel && task.cpus.len() == 1))
        .filter(|task| !task.cpus.difference(&guests).is_empty())
        // Only an interval shows whether and how long these threads really ran there.
        .filter(|task| !(task.is_kernel && task.is_bound(machine.root)))
        .collect();
    let actual = if wrong.is_empty() {
        format!(
            "{} threads, none of them on isolated CPUs",
            machine.tasks.len()
        )
    } else {
        let labels: Vec<String> = wrong.iter().map(|task| label(task)).collect();
        format!("{} threads: {}", wrong.len(), some_of(&labels))
    };
    let remedy = remedy::threads(machine, &wrong);
    Check::new(
        "intruders",
        FILES,
        format!(
            "only forwarding threads and guests on the isolated CPUs {}",
            machine.isolated
        ),
        actual,
        wrong.is_empty(),
        remedy.text,
    )
    .with_commands(remedy.commands)
}
