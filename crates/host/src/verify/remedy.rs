// SPDX-License-Identifier: Apache-2.0
//! Remedies for settings that applying a plan does not change. Each names a thread, CPU set or interrupt and has a command.

use std::path::Path;

use super::check::{APPLY, some_of};
use super::machine::Machine;
use crate::CpuList;
use crate::cpuset::{Cpusets, Version};
use crate::tasks::{Task, is_data_plane_thread};

/// A remedy: a text, and shell commands to run one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Remedy {
    pub(super) text: String,
    pub(super) commands: Vec<String>,
}

/// Returns the remedy for threads that may run on isolated CPUs. Applying moves threads that may also run elsewhere, and
/// control threads of data planes. It does not move any other thread that is pinned to one CPU or whose CPU set has only
/// isolated CPUs.
pub(super) fn threads(machine: &Machine<'_>, threads: &[&Task]) -> Remedy {
    let mut remedy = Remedy::default();
    let (mut pinned, mut confined, mut applied) = (Vec::new(), Vec::new(), 0_usize);
    for task in threads {
        if let Some(set) = confining_set(machine, task) {
            confined.push(format!("{} ({}) in {set}", task.name, task.pid));
            remedy.commands.extend(leave_set(machine, task));
        } else if task.cpus.len() == 1 && !is_of_data_plane(machine, task) {
            pinned.push(format!("{} ({})", task.name, task.tid));
            let cpus = &machine.plan.housekeeping;
            remedy
                .commands
                .push(format!("taskset --pid --cpu-list {cpus} {}", task.tid));
        } else {
            applied = applied.saturating_add(1);
        }
    }
    let mut texts = Vec::new();
    if applied > 0 {
        texts.push(APPLY.to_owned());
        remedy.commands.insert(0, APPLY.to_owned());
    }
    if !pinned.is_empty() {
        texts.push(format!(
            "`apply` does not move threads that are pinned to a CPU: move {}, or start them on other CPUs",
            some_of(&pinned)
        ));
    }
    if !confined.is_empty() {
        texts.push(format!(
            "`apply` does not change the CPU sets of other programs: move {}, or remove the isolated CPUs from the set",
            some_of(&confined)
        ));
    }
    remedy.text = texts.join("; ");
    remedy
}

fn is_of_data_plane(machine: &Machine<'_>, task: &Task) -> bool {
    let mut others = machine.tasks.iter();
    is_data_plane_thread(&task.name)
        || others.any(|other| other.pid == task.pid && other.forwards_for.is_some())
}

/// Returns the CPU set that keeps a process off all housekeeping CPUs, as a path below the mount point.
fn confining_set(machine: &Machine<'_>, task: &Task) -> Option<String> {
    let sets = Cpusets::find(machine.root).ok()?;
    let set = machine.text(&format!("proc/{}/cpuset", task.pid))?;
    let below = set.trim_start_matches('/');
    let cpus = cpus_of(&sets, &sets.mount.join(below));
    let keeps_off = cpus.intersection(&machine.plan.housekeeping).is_empty();
    (!below.is_empty() && !cpus.is_empty() && keeps_off).then_some(set)
}

fn cpus_of(sets: &Cpusets, set: &Path) -> CpuList {
    let file = match sets.version {
        Version::V1 => "cpuset.effective_cpus",
        Version::V2 => "cpuset.cpus.effective",
    };
    let cpus = std::fs::read_to_string(set.join(file)).ok();
    cpus.and_then(|cpus| cpus.parse().ok()).unwrap_or_default()
}

/// Returns the command that moves a task to the host's set, or to the root set if there is none.
fn leave_set(machine: &Machine<'_>, task: &Task) -> Option<String> {
    let sets = Cpusets::find(machine.root).ok()?;
    let host = sets.mount.join(format!("{}host", crate::apply::SET_PREFIX));
    let set = if host.is_dir() { host } else { sets.mount };
    let file = machine.shown(&set.join("cgroup.procs"));
    Some(format!("echo {} > {file}", task.pid))
}

/// Returns the command that writes a value to a file of a set.
pub(super) fn set_file(machine: &Machine<'_>, set: &Path, file: &str, value: &str) -> String {
    let value = if value.is_empty() { "''" } else { value };
    format!("echo {value} > {}", machine.shown(&set.join(file)))
}

/// Returns the command that moves an interrupt to the housekeeping CPUs.
pub(super) fn interrupt(machine: &Machine<'_>, irq: &str) -> String {
    let cpus = &machine.plan.housekeeping;
    format!("echo {cpus} > /proc/irq/{irq}/smp_affinity_list")
}
