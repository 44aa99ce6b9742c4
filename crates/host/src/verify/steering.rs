// SPDX-License-Identifier: Apache-2.0
//! Where the kernel takes received packets on with (kernel documentation: networking/scaling.rst), and how many receive
//! queues there are.

use super::check::{APPLY, Check, UNREADABLE, some_of};
use super::machine::Machine;

const INTERFACES: &str = "sys/class/net";

pub(super) fn checks(machine: &Machine<'_>) -> Vec<Check> {
    let mut checks = vec![steering(machine)];
    checks.extend(queue_counts(machine));
    checks
}

fn queues(machine: &Machine<'_>, interface: &str) -> Vec<String> {
    let mut names = machine.names(&format!("{INTERFACES}/{interface}/queues"));
    names.retain(|name| name.starts_with("rx-"));
    names
}

fn steering(machine: &Machine<'_>) -> Check {
    let files = format!("/{INTERFACES}/*/queues/rx-*/rps_cpus");
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for interface in machine.names(INTERFACES) {
        for queue in queues(machine, &interface) {
            let file = format!("{INTERFACES}/{interface}/queues/{queue}/rps_cpus");
            let Some(cpus) = machine.mask(&file) else {
                continue;
            };
            seen += 1;
            let both = cpus.intersection(&machine.isolated);
            if !both.is_empty() {
                wrong.push(format!("{interface} {queue} to CPUs {both}"));
            }
        }
    }
    let expected = format!("nothing to the isolated CPUs {}", machine.isolated);
    // A machine without interfaces steers nothing; one whose queues do not say so cannot be judged.
    if seen == 0 && !machine.path(INTERFACES).is_dir() {
        return Check::cannot_tell("receive-steering", files, expected, UNREADABLE);
    }
    let seen = if wrong.is_empty() {
        format!("{seen} queues, none of them")
    } else {
        some_of(&wrong)
    };
    Check::new(
        "receive-steering",
        files,
        expected,
        seen,
        wrong.is_empty(),
        APPLY,
    )
}

/// Controllers that the kernel drives have as many queues as are planned; the others are their data plane's.
fn queue_counts(machine: &Machine<'_>) -> Vec<Check> {
    let mut checks = Vec::new();
    for nic in &machine.plan.nics {
        let Some(interface) = &nic.interface else {
            continue;
        };
        let there = queues(machine, interface).len();
        if there == 0 || nic.queues.is_empty() {
            continue;
        }
        checks.push(Check::new(
            "receive-queues",
            format!("/{INTERFACES}/{interface}/queues"),
            format!("at least {} receive queues", nic.queues.len()),
            there.to_string(),
            there >= nic.queues.len(),
            format!("ethtool -L {interface} combined {}", nic.queues.len()),
        ));
    }
    checks
}
