// SPDX-License-Identifier: Apache-2.0
//! CPU sets: whose may use isolated CPUs (cpuset(7); kernel documentation: admin-guide/cgroup-v2.rst).

use std::path::Path;

use super::{APPLY, Check, Machine, some_of};
use crate::CpuList;
use crate::cpuset::{Cpusets, Version, child_sets, processes};
use crate::partition::Role;

/// Sets below sets that are looked at.
const DEPTH_MAX: usize = 8;

pub(super) fn checks(machine: &Machine<'_>) -> Vec<Check> {
    let Ok(sets) = Cpusets::find(machine.root) else {
        return vec![Check::cannot_tell(
            "cpu-sets",
            "/proc/self/mounts",
            "CPU sets that keep others off the isolated CPUs",
            "no control group has the controller cpuset",
        )];
    };
    let mut checks = vec![others(machine, &sets)];
    checks.extend(partition(&sets));
    checks
}

fn read(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

/// Sets with processes in them that may use isolated CPUs, and are neither ours nor a guest's.
fn others(machine: &Machine<'_>, sets: &Cpusets) -> Check {
    let effective = match sets.version {
        Version::V1 => "cpuset.effective_cpus",
        Version::V2 => "cpuset.cpus.effective",
    };
    let allowed = machine.isolated.difference(&machine.plan.cpus(Role::Guest));
    let mut wrong = Vec::new();
    let mut looking = vec![(sets.mount.clone(), 0)];
    while let Some((set, depth)) = looking.pop() {
        let is_ours = set
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(crate::apply::SET_PREFIX));
        if is_ours {
            continue;
        }
        if depth < DEPTH_MAX {
            let below = child_sets(&set).unwrap_or_default();
            looking.extend(below.into_iter().map(|set| (set, depth + 1)));
        }
        let cpus = read(&set.join(effective)).or_else(|| read(&set.join("cpuset.cpus")));
        let cpus: CpuList = cpus.and_then(|cpus| cpus.parse().ok()).unwrap_or_default();
        let both = cpus.intersection(&allowed);
        if both.is_empty() {
            continue;
        }
        let inside = processes(&set).unwrap_or_default();
        // The kernel's own threads that are bound to their CPUs stay in the top set.
        let inside = inside.iter().filter(|pid| is_free(machine, **pid)).count();
        if inside > 0 {
            let name = set.strip_prefix(&sets.mount).unwrap_or(&set);
            wrong.push(format!(
                "/{} ({inside} processes, CPUs {both})",
                name.display()
            ));
        }
    }
    let seen = if wrong.is_empty() {
        "none".to_owned()
    } else {
        some_of(&wrong)
    };
    Check::new(
        "cpu-sets",
        format!("{}/**/{effective}", sets.mount.display()),
        format!("no set but our own with processes on the isolated CPUs {allowed}"),
        seen,
        wrong.is_empty(),
        APPLY,
    )
}

fn is_free(machine: &Machine<'_>, pid: i32) -> bool {
    let task = machine.tasks.iter().find(|task| task.tid == pid);
    task.is_some_and(|task| !task.is_kernel)
}

/// Partitions of version 2 that could not be made say so.
fn partition(sets: &Cpusets) -> Vec<Check> {
    let mut checks = Vec::new();
    for set in child_sets(&sets.mount).unwrap_or_default() {
        let file = set.join("cpuset.cpus.partition");
        let Some(state) = read(&file).filter(|state| state != "member") else {
            continue;
        };
        checks.push(Check::new(
            "cpu-set-partition",
            file.display().to_string(),
            "isolated or root",
            &state,
            !state.contains("invalid"),
            "the kernel says why in brackets; take its CPUs out of the other sets' cpuset.cpus.exclusive",
        ));
    }
    checks
}
