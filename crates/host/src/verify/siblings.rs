// SPDX-License-Identifier: Apache-2.0
//! Online CPUs, threads that share a core, and CPUs that share a cache.

use super::check::{Check, UNREADABLE, some_of};
use super::machine::Machine;
use crate::CpuList;
use crate::partition::Role;

const CPUS: &str = "sys/devices/system/cpu";

pub(super) fn checks(machine: &Machine<'_>) -> Vec<Check> {
    let mut checks = vec![online(machine)];
    if !machine.forwarding.is_empty() {
        checks.push(siblings(machine));
        checks.push(caches(machine));
    }
    checks
}

fn online(machine: &Machine<'_>) -> Check {
    let file = format!("{CPUS}/online");
    let wanted: CpuList = machine
        .plan
        .groups
        .iter()
        .flat_map(|group| group.cpus.iter())
        .collect();
    let expected = format!("CPUs {wanted}");
    match machine.value::<CpuList>(&file) {
        None => Check::unknown("online", format!("/{file}"), expected, UNREADABLE),
        Some(online) => {
            let down = wanted.difference(&online);
            Check::new(
                "online",
                format!("/{file}"),
                expected,
                format!("CPUs {online}"),
                down.is_empty(),
                format!(
                    "bring CPUs {down} online (echo 1 > /{CPUS}/cpuN/online), or make a new plan"
                ),
            )
        }
    }
}

/// Checks that no core is shared between forwarding and another role.
fn siblings(machine: &Machine<'_>) -> Check {
    let name = "siblings";
    let files = format!("/{CPUS}/smt/active, cpu*/topology/thread_siblings_list");
    let expected = "all threads of forwarding cores forward or stay idle";
    let smt = machine.value::<u32>(&format!("{CPUS}/smt/active"));
    let (mut split, mut unknown) = (Vec::new(), Vec::new());
    for cpu in machine.forwarding.iter() {
        let file = format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list");
        let Some(siblings) = machine.value::<CpuList>(&file) else {
            // Without SMT, each CPU is a core.
            if smt != Some(0) {
                unknown.push(format!("CPU {cpu}"));
            }
            continue;
        };
        for sibling in siblings.iter().filter(|sibling| *sibling != cpu) {
            let role = machine.role(sibling);
            if !matches!(role, Some(Role::Forwarding | Role::Idle)) {
                let role = role.map_or("no role", Role::name);
                split.push(format!("CPU {cpu} with {sibling} ({role})"));
            }
        }
    }
    if split.is_empty() && !unknown.is_empty() {
        let why = format!("{UNREADABLE} for {}", some_of(&unknown));
        return Check::unknown(name, files, expected, why);
    }
    let is_fine = split.is_empty();
    let actual = if is_fine {
        "no shared core".to_owned()
    } else {
        some_of(&split)
    };
    let remedy = "use both threads of these cores for forwarding, or leave the other thread idle";
    Check::new(name, files, expected, actual, is_fine, remedy)
}

/// Checks for neighbours and guests that share the last level cache of forwarding CPUs without separate classes.
fn caches(machine: &Machine<'_>) -> Check {
    let name = "shared-cache";
    let files = format!("/{CPUS}/cpu*/cache/index*/shared_cpu_list");
    let expected = "separate cache ways or another cache for guests and neighbours";
    let mut sharing = CpuList::new();
    let mut is_known = false;
    for cpu in machine.forwarding.iter() {
        let directory = format!("{CPUS}/cpu{cpu}/cache");
        let last = machine
            .names(&directory)
            .into_iter()
            .rfind(|name| name.starts_with("index"));
        let shared = last.and_then(|index| {
            machine.value::<CpuList>(&format!("{directory}/{index}/shared_cpu_list"))
        });
        if let Some(shared) = shared {
            is_known = true;
            sharing = sharing.union(&shared);
        }
    }
    if !is_known {
        return Check::unknown(name, files, expected, UNREADABLE);
    }
    let others = machine
        .plan
        .cpus(Role::Guest)
        .union(&machine.plan.cpus(Role::Neighbour));
    let others = others.intersection(&sharing);
    if others.is_empty() || machine.plan.classes.len() > 1 {
        let actual = if others.is_empty() {
            "not shared".to_owned()
        } else {
            format!("shared with CPUs {others} in separate classes")
        };
        return Check::new(name, files, expected, actual, true, "");
    }
    let why = format!(
        "shared with CPUs {others}, and this machine does not support cache allocation; measure the effect under load (quietwire study run)"
    );
    Check::unknown(name, files, expected, why)
}
