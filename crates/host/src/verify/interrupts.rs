// SPDX-License-Identifier: Apache-2.0
//! Interrupt affinity (kernel documentation: core-api/irq/irq-affinity.rst).

use super::check::{APPLY, Check, UNREADABLE, some_of};
use super::machine::Machine;
use super::remedy;
use crate::CpuList;

const IRQS: &str = "proc/irq";
const IRQBALANCE: &str = "etc/default/irqbalance";

pub(super) fn checks(machine: &Machine<'_>) -> Vec<Check> {
    let default = format!("{IRQS}/default_smp_affinity");
    let mut checks = vec![machine.keeps_off(
        "interrupts-to-come",
        &default,
        machine.mask(&default),
        APPLY,
    )];
    checks.push(allowed(machine));
    checks.push(irqbalance(machine));
    checks
}

/// Checks for interrupts that isolated CPUs may receive. Interrupts with an affinity that only the kernel sets are reported
/// but do not fail the check.
fn allowed(machine: &Machine<'_>) -> Check {
    let files = format!("/{IRQS}/*/smp_affinity_list, effective_affinity_list");
    let expected = format!("no interrupt for the isolated CPUs {}", machine.isolated);
    let (mut wrong, mut fixed, mut moving, mut read) =
        (Vec::new(), Vec::new(), Vec::new(), 0_usize);
    let (mut numbers, mut commands) = (Vec::new(), Vec::new());
    for irq in machine.names(IRQS) {
        let file = format!("{IRQS}/{irq}/smp_affinity_list");
        let Some(allowed) = machine.value::<CpuList>(&file) else {
            continue;
        };
        read = read.saturating_add(1);
        // The effective affinity decides if the kernel reports it: the kernel chooses one of the allowed CPUs.
        let effective = machine.value::<CpuList>(&format!("{IRQS}/{irq}/effective_affinity_list"));
        let effective = effective.filter(|cpus| !cpus.is_empty());
        let may_come = !allowed.intersection(&machine.isolated).is_empty();
        let comes = effective.is_some_and(|cpus| !cpus.intersection(&machine.isolated).is_empty());
        if !may_come && !comes {
            continue;
        }
        let is_fixed = machine.is_fixed_interrupt(&irq);
        let text = format!(
            "{irq} (CPUs {allowed}){}",
            if comes { "" } else { ", not now" }
        );
        if is_fixed {
            fixed.push(text);
        } else if !may_come {
            // The kernel reprograms the interrupt chip when the next interrupt arrives.
            moving.push(text);
        } else {
            wrong.push(text);
            commands.push(remedy::interrupt(machine, &irq));
            numbers.push(irq);
        }
    }
    if read == 0 {
        return Check::unknown("interrupts", files, expected, UNREADABLE);
    }
    let mut reported = if wrong.is_empty() {
        format!("{read} interrupts, all on other CPUs")
    } else {
        format!("interrupts {}", some_of(&wrong))
    };
    if !fixed.is_empty() {
        reported += &format!("; only the kernel can move {}", some_of(&fixed));
    }
    if !moving.is_empty() {
        reported += &format!(
            "; the kernel moves the following interrupts when they next occur: {}",
            some_of(&moving)
        );
        if wrong.is_empty() {
            reported += " (--for DURATION shows whether any occurred)";
            return Check::unknown("interrupts", files, expected, reported);
        }
    }
    let remedy = format!(
        "{APPLY}, or move interrupts {} one by one; if the kernel refuses to move one, add isolcpus=managed_irq,domain,{} to the kernel command line and reboot",
        some_of(&numbers),
        machine.isolated
    );
    Check::new(
        "interrupts",
        files,
        expected,
        reported,
        wrong.is_empty(),
        remedy,
    )
    .with_commands(commands)
}

/// Checks irqbalance, the daemon that moves interrupts, if it is running.
fn irqbalance(machine: &Machine<'_>) -> Check {
    let name = "irqbalance";
    let runs = machine.tasks.iter().any(|task| task.name == "irqbalance");
    let expected = format!("not running, or isolated CPUs {} banned", machine.isolated);
    if machine.tasks.is_empty() {
        let why = "no processes are visible";
        return Check::unknown(name, "/proc/*/comm", expected, why);
    }
    if !runs {
        return Check::new(name, "/proc/*/comm", expected, "not running", true, "");
    }
    let text = machine.program_text(IRQBALANCE).unwrap_or_default();
    let value = |key: &str| {
        let line = text
            .lines()
            .rev()
            .find_map(|line| line.trim().strip_prefix(key));
        Some(line?.trim_matches(['"', '\'', ' ']).to_owned())
    };
    let listed = value("IRQBALANCE_BANNED_CPULIST=").and_then(|list| list.parse::<CpuList>().ok());
    let masked = value("IRQBALANCE_BANNED_CPUS=").and_then(|mask| {
        format!("0x{}", mask.trim_start_matches("0x"))
            .parse::<CpuList>()
            .ok()
    });
    let banned = listed.or(masked).unwrap_or_default();
    Check::new(
        name,
        format!("/{IRQBALANCE}"),
        expected,
        format!("running, banned CPUs '{banned}'"),
        machine.isolated.difference(&banned).is_empty(),
        "configure irqbalance (quietwire partition render --for irqbalance) or stop it",
    )
}
