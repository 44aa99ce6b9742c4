// SPDX-License-Identifier: Apache-2.0
//! Governors, frequency limits, high-priority cores (SST-BF), wake-up latency and polling for machine checks.

use super::check::{APPLY, Check, UNREADABLE, some_of};
use super::machine::Machine;
use crate::CpuId;
use crate::partition::{FrequencySetting, Idle};

const CPUS: &str = "sys/devices/system/cpu";
const MACHINE_CHECKS: &str = "sys/devices/system/machinecheck";

pub(super) fn checks(machine: &Machine<'_>) -> Vec<Check> {
    let mut checks = Vec::new();
    for setting in &machine.plan.frequencies {
        if let Some(governor) = &setting.governor {
            checks.push(all_hold(
                machine,
                "governor",
                setting,
                "scaling_governor",
                governor,
            ));
        }
        for (name, file, khz) in [
            ("frequency-minimum", "scaling_min_freq", setting.min_khz),
            ("frequency-maximum", "scaling_max_freq", setting.max_khz),
        ] {
            if let Some(khz) = khz {
                checks.push(all_hold(machine, name, setting, file, &khz.to_string()));
            }
        }
        if setting.is_high_priority {
            checks.push(high_priority(machine, setting));
        }
    }
    if !machine.isolated.is_empty() {
        checks.push(machine_checks(machine));
        checks.extend(wake_up(machine));
    }
    checks
}

/// Checks that a file of every CPU of a setting has the planned value.
fn all_hold(
    machine: &Machine<'_>,
    name: &'static str,
    setting: &FrequencySetting,
    file: &str,
    wanted: &str,
) -> Check {
    let files = format!("/{CPUS}/cpu*/cpufreq/{file}");
    let expected = format!("{wanted} for CPUs {}", setting.cpus);
    let (mut wrong, mut unknown) = (Vec::new(), Vec::new());
    for cpu in setting.cpus.iter() {
        match machine.text(&format!("{CPUS}/cpu{cpu}/cpufreq/{file}")) {
            None => unknown.push(format!("CPU {cpu}")),
            Some(now) if now != wanted => wrong.push(format!("CPU {cpu} {now}")),
            Some(_) => {}
        }
    }
    if wrong.is_empty() && !unknown.is_empty() {
        let why = format!("{UNREADABLE} for {}", some_of(&unknown));
        return Check::unknown(name, files, expected, why);
    }
    let actual = if wrong.is_empty() {
        "as planned".to_owned()
    } else {
        some_of(&wrong)
    };
    Check::new(name, files, expected, actual, wrong.is_empty(), APPLY)
}

fn base_khz(machine: &Machine<'_>, cpu: CpuId) -> Option<u64> {
    machine.value(&format!("{CPUS}/cpu{cpu}/cpufreq/base_frequency"))
}

/// Checks that high-priority cores have a higher base frequency than the others. Otherwise the processor's SST-BF profile is
/// disabled or a different one.
fn high_priority(machine: &Machine<'_>, setting: &FrequencySetting) -> Check {
    let name = "high-priority-cores";
    let files = format!("/{CPUS}/cpu*/cpufreq/base_frequency");
    let expected = format!("CPUs {} have the highest base frequency", setting.cpus);
    let everywhere = machine
        .plan
        .groups
        .iter()
        .flat_map(|group| group.cpus.iter());
    let highest = everywhere.filter_map(|cpu| base_khz(machine, cpu)).max();
    let Some(highest) = highest else {
        return Check::unknown(name, files, expected, UNREADABLE);
    };
    let lower: Vec<String> = setting
        .cpus
        .iter()
        .filter(|cpu| base_khz(machine, *cpu) < Some(highest))
        .map(|cpu| format!("CPU {cpu}"))
        .collect();
    let actual = if lower.is_empty() {
        format!("{highest} kHz, the highest")
    } else {
        format!("less than {highest} kHz: {}", some_of(&lower))
    };
    let remedy = "enable SST-BF in the firmware or with intel-speed-select, or make a new plan";
    Check::new(name, files, expected, actual, lower.is_empty(), remedy)
}

/// Checks that the kernel does not poll isolated CPUs for corrected machine checks. By default, it polls all CPUs every five
/// minutes.
fn machine_checks(machine: &Machine<'_>) -> Check {
    let files = format!("/{MACHINE_CHECKS}/machinecheck*/ignore_ce");
    let expected = format!("1 for the isolated CPUs {}", machine.isolated);
    let mut wrong = Vec::new();
    let mut is_known = false;
    for cpu in machine.isolated.iter() {
        let now = machine.text(&format!("{MACHINE_CHECKS}/machinecheck{cpu}/ignore_ce"));
        is_known |= now.is_some();
        if now.is_some_and(|now| now != "1") {
            wrong.push(format!("CPU {cpu}"));
        }
    }
    if !is_known {
        return Check::unknown("machine-checks", files, expected, UNREADABLE);
    }
    let actual = if wrong.is_empty() {
        "1".to_owned()
    } else {
        format!("0: {}", some_of(&wrong))
    };
    Check::new(
        "machine-checks",
        files,
        expected,
        actual,
        wrong.is_empty(),
        APPLY,
    )
}

/// Checks the limit of the wake-up latency. CPUs that poll never sleep.
fn wake_up(machine: &Machine<'_>) -> Option<Check> {
    let name = "wake-up";
    machine.forwarding.first()?;
    let files = format!("/{CPUS}/cpu*/power/pm_qos_resume_latency_us");
    if machine.plan.idle == Idle::Poll {
        let actual = "forwarding CPUs poll and never sleep";
        return Some(Check::new(name, files, "any", actual, true, ""));
    }
    let expected = "a limit, because forwarding CPUs sleep";
    let (mut wrong, mut actual) = (Vec::new(), Vec::new());
    for cpu in machine.forwarding.iter() {
        let file = format!("{CPUS}/cpu{cpu}/power/pm_qos_resume_latency_us");
        let Some(now) = machine.text(&file) else {
            return Some(Check::unknown(name, files, expected, UNREADABLE));
        };
        // 0 means no limit, and n/a means that the CPU may not sleep at all.
        if now == "0" {
            wrong.push(format!("CPU {cpu}"));
        }
        actual.push(format!("CPU {cpu} {now}"));
    }
    let is_fine = wrong.is_empty();
    let reported = if is_fine {
        some_of(&actual)
    } else {
        format!("none for {}", some_of(&wrong))
    };
    let remedy =
        "write the maximum wake-up latency in microseconds to the file of each forwarding CPU";
    Some(Check::new(name, files, expected, reported, is_fine, remedy))
}
