// SPDX-License-Identifier: Apache-2.0
//! Checks of CPUs: number, shared cores, isolation, frequency and clock source.

use std::collections::BTreeSet;

use quietwire_base::proc::Status;

use super::Machine;
use super::check::Check;
use crate::CpuList;

/// Minimum number of CPUs: one for the tester, one for the device under test.
const CPUS_NEEDED: usize = 2;

/// Clock sources of x86-64 and arm64 that threads read without a system call.
const STEADY_CLOCKS: [&str; 2] = ["tsc", "arch_sys_counter"];

pub(super) fn examine(machine: &Machine) -> Vec<Check> {
    let online = machine.cpu_list("online");
    vec![
        count(machine, online.as_ref()),
        hyper_threads(machine, online.as_ref()),
        isolation(machine),
        frequency(machine, online.as_ref()),
        clock(machine),
    ]
}

/// Returns the CPUs that this process may use (`Cpus_allowed_list` in `/proc/self/status`).
fn allowed(machine: &Machine) -> Option<CpuList> {
    const STATUS: &str = "/proc/self/status";
    let text = machine.text(STATUS)?;
    machine.parse(STATUS, Status::new(&text).allowed_cpus()?)
}

/// Returns true if this process is in a CPU set that a study or a lab created (cpuset(7), `/proc/self/cpuset`).
fn is_confined_by_us(machine: &Machine) -> bool {
    machine
        .text("/proc/self/cpuset")
        .is_some_and(|path| path.starts_with("/quietwire-"))
}

fn count(machine: &Machine, online: Option<&CpuList>) -> Check {
    const NAME: &str = "cpus";
    let Some(online) = online else {
        return Check::unavailable(NAME, "the kernel does not report online CPUs");
    };
    let usable = allowed(machine).map_or_else(|| online.clone(), |cpus| cpus.intersection(online));
    let found = if usable == *online {
        format!("{online} online")
    } else {
        format!("{online} online, {usable} of them available to this process")
    };
    if usable.len() >= CPUS_NEEDED {
        return Check::ok(NAME, found);
    }
    let check = Check::missing(
        NAME,
        format!("{found}; the tester and the device under test require one CPU each"),
    );
    if is_confined_by_us(machine) {
        // taskset cannot leave a CPU set.
        check.remedy(
            "quietwire lab clean # a killed study or lab has confined this process to its CPU set",
        )
    } else if online.len() >= CPUS_NEEDED {
        check.remedy(format!("taskset --cpu-list {online} quietwire …"))
    } else {
        check.remedy(format!(
            "give the virtual machine {CPUS_NEEDED} CPUs, or use another machine"
        ))
    }
}

fn hyper_threads(machine: &Machine, online: Option<&CpuList>) -> Check {
    const NAME: &str = "hyper-threads";
    let cores: BTreeSet<String> = online
        .into_iter()
        .flat_map(CpuList::iter)
        .filter_map(|cpu| machine.cpu_list(&format!("cpu{cpu}/topology/thread_siblings_list")))
        .filter(|siblings| siblings.len() > 1)
        .map(|siblings| siblings.to_string())
        .collect();
    if !cores.is_empty() {
        let cores: Vec<String> = cores.into_iter().collect();
        return Check::warning(
            NAME,
            format!(
                "CPUs share cores ({}): work on one slows the others",
                cores.join("; ")
            ),
        )
        .remedy("keep a forwarding CPU's sibling idle, or: echo off > /sys/devices/system/cpu/smt/control");
    }
    if machine
        .cpu_list("cpu0/topology/thread_siblings_list")
        .is_none()
    {
        return Check::unavailable(NAME, "the kernel does not report which CPUs share a core");
    }
    Check::ok(NAME, "no CPUs share a core")
}

fn isolation(machine: &Machine) -> Check {
    const NAME: &str = "isolated-cpus";
    match machine.cpu_list("isolated") {
        None => Check::unavailable(NAME, "the kernel does not report isolated CPUs"),
        Some(cpus) if cpus.is_empty() => Check::warning(
            NAME,
            "none; CPU sets keep other processes off forwarding CPUs, but not the kernel's own work",
        )
        .remedy("add isolcpus=, nohz_full= and rcu_nocbs= with the forwarding CPUs to the kernel command line and reboot"),
        Some(cpus) => Check::ok(NAME, cpus.to_string()),
    }
}

fn frequency(machine: &Machine, online: Option<&CpuList>) -> Check {
    const NAME: &str = "cpu-frequency";
    let governors: BTreeSet<String> = online
        .into_iter()
        .flat_map(CpuList::iter)
        .filter_map(|cpu| machine.cpu_text(&format!("cpu{cpu}/cpufreq/scaling_governor")))
        .collect();
    if governors.is_empty() {
        return Check::unavailable(
            NAME,
            "no cpufreq: the hypervisor or the firmware controls the frequency",
        );
    }
    let found = governors.iter().cloned().collect::<Vec<_>>().join(", ");
    if governors.iter().all(|governor| governor == "performance") {
        return Check::ok(NAME, format!("governor {found}"));
    }
    Check::warning(
        NAME,
        format!("governor {found}: the frequency changes during measurements"),
    )
    .remedy("echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor")
}

fn clock(machine: &Machine) -> Check {
    const NAME: &str = "clock";
    const DIRECTORY: &str = "/sys/devices/system/clocksource/clocksource0";
    let Some(current) = machine.text(&format!("{DIRECTORY}/current_clocksource")) else {
        return Check::unavailable(NAME, "the kernel does not report its clock source");
    };
    if !STEADY_CLOCKS.contains(&current.as_str()) {
        let available = machine
            .text(&format!("{DIRECTORY}/available_clocksource"))
            .unwrap_or_default();
        let check = Check::warning(
            NAME,
            format!("clock source {current}: slow or irregular reads make latencies inaccurate"),
        );
        let better = available
            .split_whitespace()
            .find(|name| STEADY_CLOCKS.contains(name));
        return match better {
            Some(name) => check.remedy(format!("echo {name} > {DIRECTORY}/current_clocksource")),
            None => check,
        };
    }
    if current == "tsc" && !tsc_is_invariant(machine) {
        return Check::warning(
            NAME,
            "tsc, not invariant: its rate changes with the CPU's frequency and sleep states",
        );
    }
    Check::ok(NAME, format!("{current}, at a constant rate"))
}

/// Returns whether the CPU has an invariant TSC, which both flags together indicate (Intel SDM volume 3, section "Invariant TSC").
fn tsc_is_invariant(machine: &Machine) -> bool {
    let text = machine.text("/proc/cpuinfo").unwrap_or_default();
    let flags: Vec<&str> = text
        .lines()
        .find(|line| line.starts_with("flags"))
        .map(|line| line.split_whitespace().collect())
        .unwrap_or_default();
    flags.contains(&"constant_tsc") && flags.contains(&"nonstop_tsc")
}
