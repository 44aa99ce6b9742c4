// SPDX-License-Identifier: Apache-2.0
//! Kernel settings of a plan: huge pages, virtual functions, interrupts, work queues, receive steering and frequencies.

use super::cpusets::unbound_cpus;
use super::setting::{Kind, Setting, names};
use super::target::Target;
use crate::CpuList;
use crate::files::text;
use crate::partition::{FrequencySetting, Plan};

/// Returns all settings of the plan.
pub(super) fn settings(target: &Target<'_>, plan: &Plan) -> Vec<Setting> {
    let mut settings = huge_pages(target, plan);
    settings.extend(functions(target, plan));
    if !plan.housekeeping.is_empty() {
        settings.extend(work_queues(target, plan));
        settings.extend(steering(target, plan));
        settings.extend(interrupts(target, plan));
    }
    settings.extend(machine_checks(target, plan));
    for setting in &plan.frequencies {
        settings.extend(frequency(target, setting));
    }
    settings
}

fn setting(target: &Target<'_>, below: &str, value: impl ToString) -> Setting {
    Setting {
        path: target.path(below),
        value: value.to_string(),
        kind: Kind::Plain,
    }
}

/// Formats CPUs as a kernel mask: no `0x`, and a comma every 32 bits, which some kernel releases require.
fn mask(cpus: &CpuList) -> String {
    let digits = cpus.to_mask();
    let digits = digits.trim_start_matches("0x");
    // From the end, because only the first word may be shorter.
    let (mut rest, mut words) = (digits, Vec::new());
    while let Some(at) = rest.len().checked_sub(8) {
        let Some((before, word)) = rest.split_at_checked(at) else {
            break;
        };
        words.push(word);
        rest = before;
    }
    if !rest.is_empty() {
        words.push(rest);
    }
    words.reverse();
    words.join(",")
}

/// Returns the settings that stop the kernel from polling isolated CPUs for corrected machine checks every five minutes.
fn machine_checks(target: &Target<'_>, plan: &Plan) -> Vec<Setting> {
    let of_cpu = |cpu| {
        let below = format!("sys/devices/system/machinecheck/machinecheck{cpu}/ignore_ce");
        setting(target, &below, 1)
    };
    plan.isolated().iter().map(of_cpu).collect()
}

fn huge_pages(target: &Target<'_>, plan: &Plan) -> Vec<Setting> {
    let pool = |pages: &crate::partition::HugePages| {
        let below = format!("{}/nr_hugepages", pages.directory());
        Setting {
            kind: Kind::Pool,
            ..setting(target, &below, pages.pages)
        }
    };
    plan.huge_pages.iter().map(pool).collect()
}

fn functions(target: &Target<'_>, plan: &Plan) -> Vec<Setting> {
    let of_nic = |nic: &crate::partition::NicPlan| {
        let below = format!("sys/bus/pci/devices/{}/sriov_numvfs", nic.pci_address);
        Some(Setting {
            kind: Kind::Functions,
            ..setting(target, &below, nic.functions?)
        })
    };
    plan.nics.iter().filter_map(of_nic).collect()
}

fn work_queues(target: &Target<'_>, plan: &Plan) -> Vec<Setting> {
    let unbound = unbound_cpus(target, plan);
    [
        ("sys/devices/virtual/workqueue/cpumask", &unbound),
        (
            "sys/bus/workqueue/devices/writeback/cpumask",
            &plan.housekeeping,
        ),
    ]
    .map(|(file, cpus)| setting(target, file, mask(cpus)))
    .into()
}

/// Returns the settings that remove isolated CPUs from receive steering.
fn steering(target: &Target<'_>, plan: &Plan) -> Vec<Setting> {
    let isolated = plan.isolated();
    let mut settings = Vec::new();
    for interface in names(target, "sys/class/net") {
        let directory = format!("sys/class/net/{interface}/queues");
        for queue in names(target, &directory) {
            let below = format!("{directory}/{queue}/rps_cpus");
            let path = target.path(&below);
            let now = queue.starts_with("rx-").then(|| text(target.files, &path));
            let now = now
                .flatten()
                .and_then(|mask| format!("0x{mask}").parse::<CpuList>().ok());
            if let Some(now) = now {
                settings.push(setting(target, &below, mask(&now.difference(&isolated))));
            }
        }
    }
    settings
}

/// Returns the settings that move interrupts from isolated CPUs to the others, and the default for new interrupts.
fn interrupts(target: &Target<'_>, plan: &Plan) -> Vec<Setting> {
    let isolated = plan.isolated();
    let default = "proc/irq/default_smp_affinity";
    let mut settings = vec![setting(target, default, mask(&plan.housekeeping))];
    for irq in names(target, "proc/irq") {
        let below = format!("proc/irq/{irq}/smp_affinity_list");
        let now = text(target.files, &target.path(&below));
        let Some(now) = now.and_then(|list| list.parse::<CpuList>().ok()) else {
            continue;
        };
        let wanted = if now.intersection(&isolated).is_empty() {
            &now
        } else {
            &plan.housekeeping
        };
        settings.push(Setting {
            kind: Kind::Interrupt,
            ..setting(target, &below, wanted)
        });
    }
    settings
}

/// Returns governor and limits of each CPU. The order of the two limits keeps the lower one below the upper one at all
/// times. The reverse order is correct for rolling back.
fn frequency(target: &Target<'_>, wanted: &FrequencySetting) -> Vec<Setting> {
    let mut settings = Vec::new();
    for cpu in wanted.cpus.iter() {
        let at = |file: &str| format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/{file}");
        let number = |file: &str| -> Option<u64> {
            text(target.files, &target.path(&at(file)))?.parse().ok()
        };
        if let Some(governor) = &wanted.governor {
            // A change of the governor also changes the energy preference, so the preference is journaled first and restored last.
            if governor == "performance" {
                settings.push(setting(
                    target,
                    &at("energy_performance_preference"),
                    governor,
                ));
            }
            settings.push(setting(target, &at("scaling_governor"), governor));
        }
        let mut limits: Vec<Setting> = [
            ("scaling_min_freq", wanted.min_khz),
            ("scaling_max_freq", wanted.max_khz),
        ]
        .into_iter()
        .filter_map(|(file, khz)| Some(setting(target, &at(file), khz?)))
        .collect();
        if wanted.min_khz > number("scaling_max_freq") {
            limits.reverse();
        }
        settings.extend(limits);
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_have_a_comma_every_32_bits() {
        for (cpus, wanted) in [
            ("0", "1"),
            ("0-1", "3"),
            ("31", "80000000"),
            ("32", "1,00000000"),
            ("0,64", "1,00000000,00000001"),
            ("", "0"),
        ] {
            assert_eq!(mask(&cpus.parse().unwrap()), wanted);
        }
    }
}
