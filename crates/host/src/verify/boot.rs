// SPDX-License-Identifier: Apache-2.0
//! Kernel command line and its effect.

use super::check::{Check, UNREADABLE};
use super::machine::Machine;
use crate::CpuList;
use crate::boot_parameters::{cpus, is_given, value};
use crate::partition::BootParameter;

const COMMAND_LINE: &str = "proc/cmdline";

pub(super) fn checks(machine: &Machine<'_>) -> Vec<Check> {
    let Some(given) = machine.text(COMMAND_LINE) else {
        return vec![Check::unknown(
            "command-line",
            "/proc/cmdline",
            machine.plan.command_line(),
            UNREADABLE,
        )];
    };
    let mut checks: Vec<Check> = machine
        .plan
        .boot
        .iter()
        .map(|parameter| given_as_planned(parameter, &given))
        .collect();
    if let Some(cpus) = value(&given, "systemd.cpu_affinity") {
        let cpus = cpus.parse().ok();
        checks.push(machine.keeps_off(
            "systemd-affinity-at-boot",
            COMMAND_LINE,
            cpus,
            "remove the isolated CPUs from systemd.cpu_affinity= and reboot",
        ));
    }
    checks.extend(took_effect(machine, &given, "isolcpus", "isolated"));
    checks.extend(took_effect(machine, &given, "nohz_full", "nohz_full"));
    checks
}

fn given_as_planned(parameter: &BootParameter, given: &str) -> Check {
    let wanted = parameter.to_string();
    let is_fine = is_given(parameter, given);
    let actual = value(given, &parameter.name);
    Check::new(
        "command-line",
        "/proc/cmdline",
        &wanted,
        match actual {
            Some(value) => format!("{}={value}", parameter.name),
            None if is_fine => wanted.clone(),
            None => format!("no {}", parameter.name),
        },
        is_fine,
        format!(
            "add {wanted} to the kernel command line (quietwire partition render --for grub) and reboot"
        ),
    )
}

/// Checks that a parameter took effect. A kernel without support and a CPU that does not exist make it ineffective.
fn took_effect(
    machine: &Machine<'_>,
    given: &str,
    parameter: &'static str,
    file: &str,
) -> Option<Check> {
    let name = if parameter == "isolcpus" {
        "isolated-in-effect"
    } else {
        "tick-off-in-effect"
    };
    let wanted = cpus(value(given, parameter)?);
    let below = format!("sys/devices/system/cpu/{file}");
    let expected = format!("CPUs {wanted}, the CPUs of {parameter}=");
    let Some(text) = machine.text(&below) else {
        return Some(Check::unknown(
            name,
            format!("/{below}"),
            expected,
            UNREADABLE,
        ));
    };
    // Some kernels print an empty set as `(null)`.
    let actual: CpuList = text.parse().unwrap_or_default();
    Some(Check::new(
        name,
        format!("/{below}"),
        expected,
        format!("CPUs {actual}"),
        wanted.difference(&actual).is_empty(),
        format!(
            "{parameter}= has no effect: see `dmesg` for the reason (the kernel may be built without support for it)"
        ),
    ))
}
