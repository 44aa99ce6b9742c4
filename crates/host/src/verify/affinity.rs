// SPDX-License-Identifier: Apache-2.0
//! Who may run where: forwarding threads on one CPU each, and nobody else there.

use std::collections::BTreeMap;

use super::check::{Check, some_of};
use super::machine::Machine;
use super::remedy;
use crate::partition::Role;
use crate::tasks::Task;

const FILES: &str = "/proc/*/task/*/status (Cpus_allowed_list)";

pub(super) fn checks(machine: &Machine<'_>) -> Vec<Check> {
    if machine.tasks.is_empty() {
        return vec![Check::cannot_tell(
            "affinity",
            FILES,
            "nobody but forwarding threads and guests on isolated CPUs",
            "no thread is to be seen there",
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

/// Every forwarding thread has one CPU, a forwarding one, which no other has.
fn forwarding(machine: &Machine<'_>) -> Check {
    let pollers = machine
        .tasks
        .iter()
        .filter(|task| task.forwards_for.is_some());
    let (mut wrong, mut found) = (Vec::new(), 0);
    let mut by_cpu: BTreeMap<_, u32> = BTreeMap::new();
    for task in pollers.clone() {
        found += 1;
        let is_alone = task.cpus.len() == 1;
        if !is_alone || !task.cpus.difference(&machine.forwarding).is_empty() {
            wrong.push(label(task));
        } else if let Some(cpu) = task.cpus.first() {
            *by_cpu.entry(cpu).or_default() += 1;
        }
    }
    for (cpu, _) in by_cpu.iter().filter(|(_, count)| **count > 1) {
        wrong.push(format!("several on CPU {cpu}"));
    }
    let seen = match (found, wrong.is_empty()) {
        (0, _) => "no forwarding thread runs".to_owned(),
        (_, true) => format!("{found} forwarding threads, each on its own"),
        (_, false) => some_of(&wrong),
    };
    Check::new(
        "forwarding-threads",
        FILES,
        format!("each on one of the CPUs {}, alone", machine.forwarding),
        seen,
        wrong.is_empty(),
        "give the data plane the forwarding CPUs: quietwire partition render --for ovs|vpp|testpmd|vrouter|quietwire",
    )
}

/// Who may run on isolated CPUs and is neither a forwarding thread, nor a guest on the guests' CPUs, nor a thread of the
/// kernel's that belongs to its CPU.
fn intruders(machine: &Machine<'_>) -> Check {
    let guests = machine.plan.cpus(Role::Guest);
    let wrong: Vec<&Task> = machine
        .tasks
        .iter()
        .filter(|task| task.forwards_for.is_none())
        .filter(|task| !task.cpus.intersection(&machine.isolated).is_empty())
        .filter(|task| !(task.is_kernel && task.cpus.len() == 1))
        .filter(|task| !task.cpus.difference(&guests).is_empty())
        // Whether these really ran there, and how long, an interval tells.
        .filter(|task| !(task.is_kernel && task.is_bound(machine.root)))
        .collect();
    let seen = if wrong.is_empty() {
        format!("{} threads, none of them", machine.tasks.len())
    } else {
        let labels: Vec<String> = wrong.iter().map(|task| label(task)).collect();
        format!("{} threads: {}", wrong.len(), some_of(&labels))
    };
    let remedy = remedy::threads(machine, &wrong);
    Check::new(
        "intruders",
        FILES,
        format!(
            "nobody but forwarding threads and guests on the isolated CPUs {}",
            machine.isolated
        ),
        seen,
        wrong.is_empty(),
        remedy.text,
    )
    .mended_by(remedy.commands)
}
