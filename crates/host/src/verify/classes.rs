// SPDX-License-Identifier: Apache-2.0
//! Classes of service: existence, cache ways, CPUs and forwarding threads.

use super::check::{APPLY, Check, some_of};
use super::machine::Machine;
use crate::files::Disk;
use crate::partition::Class;
use crate::resctrl::{Group, Resctrl};

pub(super) fn checks(machine: &Machine<'_>) -> Vec<Check> {
    if machine.plan.classes.is_empty() {
        return Vec::new();
    }
    let expected = format!("{} classes of service", machine.plan.classes.len());
    let file = "/sys/fs/resctrl";
    let Some(resctrl) = Resctrl::find(&Disk, machine.root) else {
        return vec![Check::new(
            "classes",
            file,
            expected,
            "not mounted",
            false,
            "mount -t resctrl resctrl /sys/fs/resctrl",
        )];
    };
    let groups = match resctrl.groups(&Disk) {
        Ok(groups) => groups,
        Err(error) => {
            return vec![Check::unknown("classes", file, expected, error.to_string())];
        }
    };
    let mut checks: Vec<Check> = machine
        .plan
        .classes
        .iter()
        .map(|class| class_check(machine, class, &resctrl, &groups))
        .collect();
    checks.push(tasks(machine, &groups));
    checks
}

fn class_check(machine: &Machine<'_>, class: &Class, resctrl: &Resctrl, groups: &[Group]) -> Check {
    let name = if class.is_default { "" } else { &class.name };
    let file = machine.shown(&resctrl.group(name));
    let mut wanted: Vec<String> = Vec::new();
    let mut wrong = Vec::new();
    let group = groups.iter().find(|group| group.name == name);
    let info = resctrl.info(&Disk);
    for mask in &class.masks {
        let plain = format!("L{}", mask.level);
        for resource in info.caches.keys().filter(|name| name.starts_with(&plain)) {
            wanted.push(format!("{resource}:{}={:x}", mask.domain, mask.mask));
            let now = group.and_then(|group| group.schemata.get(resource, mask.domain));
            if now != Some(mask.mask) {
                let now = now.map_or("none".to_owned(), |now| format!("{now:x}"));
                wrong.push(format!("{resource}:{}={now}", mask.domain));
            }
        }
    }
    for limit in &class.bandwidth {
        wanted.push(format!("MB:{}={}", limit.domain, limit.limit));
        let now = group.and_then(|group| group.schemata.get("MB", limit.domain));
        let gran = info
            .bandwidth
            .map_or(1, |bandwidth| bandwidth.bandwidth_gran);
        let rounded = u64::from(limit.limit.next_multiple_of(gran.max(1)));
        if now != Some(rounded) {
            let now = now.map_or("none".to_owned(), |now| now.to_string());
            wrong.push(format!("MB:{}={now}", limit.domain));
        }
    }
    if !class.is_default {
        wanted.push(format!("CPUs {}", class.cpus));
        match group {
            Some(group) if group.cpus == class.cpus => {}
            Some(group) => wrong.push(format!("CPUs {}", group.cpus)),
            None => wrong.insert(0, "class does not exist".to_owned()),
        }
    }
    let actual = if wrong.is_empty() {
        "as planned".to_owned()
    } else {
        some_of(&wrong)
    };
    Check::new(
        "classes",
        file,
        wanted.join(" "),
        actual,
        wrong.is_empty(),
        APPLY,
    )
}

/// Checks the classes of forwarding threads. A task in a class's `tasks` file has this class on every CPU; the class of the
/// CPU does not apply to it.
fn tasks(machine: &Machine<'_>, groups: &[Group]) -> Check {
    let mut wrong = Vec::new();
    for task in machine
        .tasks
        .iter()
        .filter(|task| task.forwards_for.is_some())
    {
        let Some(cpu) = task.cpus.first() else {
            continue;
        };
        let planned = machine
            .plan
            .classes
            .iter()
            .find(|class| class.cpus.contains(cpu));
        let own = groups
            .iter()
            .find(|group| !group.name.is_empty() && group.tasks.contains(&task.tid));
        if let (Some(planned), Some(own)) = (planned, own)
            && planned.name != own.name
        {
            wrong.push(format!("{} ({}) in {}", task.name, task.tid, own.name));
        }
    }
    let actual = if wrong.is_empty() {
        "none".to_owned()
    } else {
        some_of(&wrong)
    };
    Check::new(
        "class-tasks",
        "/sys/fs/resctrl/*/tasks",
        "no forwarding thread in a class other than its CPU's class",
        actual,
        wrong.is_empty(),
        "write the thread ID into the `tasks` file of the CPU's class",
    )
}
