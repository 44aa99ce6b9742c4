// SPDX-License-Identifier: Apache-2.0
//! Receive packet steering (kernel documentation: networking/scaling.rst) and the number of receive queues.

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
    let (mut wrong, mut actual) = (Vec::new(), 0_usize);
    for interface in machine.names(INTERFACES) {
        for queue in queues(machine, &interface) {
            let file = format!("{INTERFACES}/{interface}/queues/{queue}/rps_cpus");
            let Some(cpus) = machine.mask(&file) else {
                continue;
            };
            actual = actual.saturating_add(1);
            let both = cpus.intersection(&machine.isolated);
            if !both.is_empty() {
                wrong.push(format!("{interface} {queue} to CPUs {both}"));
            }
        }
    }
    let expected = format!("no steering to the isolated CPUs {}", machine.isolated);
    // A machine without interfaces steers nothing. Without the directory, the state is unknown.
    if actual == 0 && !machine.path(INTERFACES).is_dir() {
        return Check::unknown("receive-steering", files, expected, UNREADABLE);
    }
    let actual = if wrong.is_empty() {
        format!("{actual} queues, none steered to isolated CPUs")
    } else {
        some_of(&wrong)
    };
    Check::new(
        "receive-steering",
        files,
        expected,
        actual,
        wrong.is_empty(),
        APPLY,
    )
}

/// Checks that network cards with a kernel driver have the planned number of queues. The data plane configures the others.
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
