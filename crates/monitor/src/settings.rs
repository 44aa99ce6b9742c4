// SPDX-License-Identifier: Apache-2.0
//! Settings of the machine that affect results: those of the firmware as far as the kernel shows them, and those of the kernel. Each has its
//! source. A value that cannot be read is `unknown`, never a guess.

mod firmware;
mod modules;
mod power;
mod prefetchers;
mod registers;
mod setting;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::files::{cpus, names, numbered, text};

pub use setting::MachineSetting;

/// Settings that are the content of one file.
const FILES: [(&str, &str); 23] = [
    ("SMT", "sys/devices/system/cpu/smt/control"),
    (
        "frequency driver",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_driver",
    ),
    ("intel_pstate", "sys/devices/system/cpu/intel_pstate/status"),
    (
        "energy efficiency",
        "sys/devices/system/cpu/intel_pstate/energy_efficiency",
    ),
    (
        "energy bias",
        "sys/devices/system/cpu/cpu0/power/energy_perf_bias",
    ),
    (
        "idle driver",
        "sys/devices/system/cpu/cpuidle/current_driver",
    ),
    (
        "idle governor",
        "sys/devices/system/cpu/cpuidle/current_governor",
    ),
    (
        "PCIe power saving",
        "sys/module/pcie_aspm/parameters/policy",
    ),
    ("NUMA nodes", "sys/devices/system/node/online"),
    ("NUMA balancing", "proc/sys/kernel/numa_balancing"),
    ("microcode", "sys/devices/system/cpu/cpu0/microcode/version"),
    ("kernel", "proc/sys/kernel/osrelease"),
    ("kernel build", "proc/sys/kernel/version"),
    ("kernel command line", "proc/cmdline"),
    (
        "clock source",
        "sys/devices/system/clocksource/clocksource0/current_clocksource",
    ),
    (
        "transparent huge pages",
        "sys/kernel/mm/transparent_hugepage/enabled",
    ),
    ("same-page merging", "sys/kernel/mm/ksm/run"),
    ("real-time run time", "proc/sys/kernel/sched_rt_runtime_us"),
    ("lockup detector", "proc/sys/kernel/watchdog"),
    ("statistics interval", "proc/sys/vm/stat_interval"),
    ("swappiness", "proc/sys/vm/swappiness"),
    ("isolated CPUs", "sys/devices/system/cpu/isolated"),
    ("CPUs without a tick", "sys/devices/system/cpu/nohz_full"),
];

/// Files of the kernel whose absence and emptiness mean the same: no such CPU.
const EMPTY_IS_NONE: [&str; 2] = ["isolated CPUs", "CPUs without a tick"];

/// Returns all settings of the machine whose files are below `root`, by name.
#[must_use]
pub fn settings(root: &Path) -> BTreeMap<String, MachineSetting> {
    let mut found = BTreeMap::new();
    for (name, file) in FILES {
        let mut value = text(&root.join(file));
        if value.is_none() && EMPTY_IS_NONE.contains(&name) && root.join(file).exists() {
            value = Some("none".to_owned());
        }
        found.insert(
            name.to_owned(),
            MachineSetting::of(value, format!("/{file}")),
        );
    }
    found.insert("turbo".to_owned(), turbo(root));
    found.insert(
        "governor".to_owned(),
        of_all_cpus(root, "cpufreq/scaling_governor"),
    );
    let preference = of_all_cpus(root, "cpufreq/energy_performance_preference");
    found.insert("energy preference".to_owned(), preference);
    found.insert("C-states".to_owned(), idle_states(root));
    found.insert("IOMMU".to_owned(), iommu(root));
    found.insert("uncore frequency".to_owned(), uncore(root));
    found.insert("prefetchers".to_owned(), prefetchers::prefetchers(root));
    found.extend(modules::memory(root));
    found.extend(power::power(root));
    found.extend(firmware::firmware(root));
    found.extend(mitigations(root));
    found
}

/// Returns whether turbo is on. intel_pstate's `no_turbo` is inverted; other drivers have `boost`
/// (Documentation/admin-guide/pm/intel_pstate.rst, cpufreq.rst).
fn turbo(root: &Path) -> MachineSetting {
    let files = [
        ("sys/devices/system/cpu/intel_pstate/no_turbo", ["1", "0"]),
        ("sys/devices/system/cpu/cpufreq/boost", ["0", "1"]),
    ];
    for (file, [off, on]) in files {
        let value = match text(&root.join(file)) {
            Some(value) if value == off => "off",
            Some(value) if value == on => "on",
            _ => continue,
        };
        return MachineSetting::of(Some(value.to_owned()), format!("/{file}"));
    }
    MachineSetting::of(None, format!("/{}", files[0].0))
}

/// Returns the values of a file of all CPUs: one value, or each value once.
fn of_all_cpus(root: &Path, file: &str) -> MachineSetting {
    let directory = "sys/devices/system/cpu";
    let all = cpus(root).into_iter();
    let values: BTreeSet<String> = all
        .filter_map(|cpu| text(&root.join(format!("{directory}/cpu{cpu}/{file}"))))
        .collect();
    let value = (!values.is_empty()).then(|| values.into_iter().collect::<Vec<_>>().join(", "));
    MachineSetting::of(value, format!("/{directory}/cpu*/{file}"))
}

/// Returns the idle states of CPU 0, with those that are disabled (Documentation/admin-guide/pm/cpuidle.rst).
fn idle_states(root: &Path) -> MachineSetting {
    let directory = "sys/devices/system/cpu/cpu0/cpuidle";
    let states = numbered(&root.join(directory), "state").into_iter();
    let states: Vec<String> = states
        .filter_map(|number| {
            let state = root.join(format!("{directory}/state{number}"));
            let name = text(&state.join("name"))?;
            let is_disabled = text(&state.join("disable")).is_some_and(|value| value != "0");
            Some(if is_disabled {
                format!("{name} (disabled)")
            } else {
                name
            })
        })
        .collect();
    let value = (!states.is_empty()).then(|| states.join(", "));
    MachineSetting::of(value, format!("/{directory}/state*/name"))
}

/// Returns the number of IOMMUs that the kernel uses.
fn iommu(root: &Path) -> MachineSetting {
    let directory = "sys/class/iommu";
    let value = root
        .join("sys/class")
        .is_dir()
        .then(|| match names(&root.join(directory)).len() {
            0 => "none in use".to_owned(),
            count => format!("{count} in use"),
        });
    MachineSetting::of(value, format!("/{directory}"))
}

/// Returns the limits of the uncore frequency of the first die (Documentation/admin-guide/pm/intel_uncore_frequency_scaling.rst).
fn uncore(root: &Path) -> MachineSetting {
    let directory = "sys/devices/system/cpu/intel_uncore_frequency/package_00_die_00";
    let limit = |file: &str| text(&root.join(directory).join(file));
    let limits = limit("min_freq_khz").zip(limit("max_freq_khz"));
    let value = limits.map(|(min, max)| format!("{min} to {max} kHz"));
    MachineSetting::of(value, format!("/{directory}/*_freq_khz"))
}

/// Returns the mitigation of each vulnerability of the processor (Documentation/admin-guide/hw-vuln/index.rst).
fn mitigations(root: &Path) -> Vec<(String, MachineSetting)> {
    let directory = "sys/devices/system/cpu/vulnerabilities";
    let vulnerabilities = names(&root.join(directory)).into_iter();
    let mut found: Vec<_> = vulnerabilities
        .map(|name| {
            let value = text(&root.join(directory).join(&name));
            let source = format!("/{directory}/{name}");
            (
                format!("mitigation {name}"),
                MachineSetting::of(value, source),
            )
        })
        .collect();
    if found.is_empty() {
        let setting = MachineSetting::of(None, format!("/{directory}"));
        found.push(("mitigations".to_owned(), setting));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::setting::UNKNOWN;
    use super::*;
    use crate::tests::Machine;

    fn value_of(machine: &Machine, name: &str) -> String {
        settings(machine.root())[name].value.clone()
    }

    #[test]
    fn nothing_is_guessed_and_every_setting_has_a_source() {
        let settings = settings(Machine::default().root());
        for (name, setting) in &settings {
            assert_eq!(setting.value, UNKNOWN, "{name}");
            assert!(
                setting.source.starts_with('/') || setting.source.starts_with("MSR"),
                "{name}"
            );
        }
        for name in [
            "SMT",
            "turbo",
            "C-states",
            "IOMMU",
            "prefetchers",
            "C1E promotion",
            "populated memory slots",
            "firmware",
            "mitigations",
        ] {
            assert!(settings.contains_key(name), "{name}");
        }
    }

    #[test]
    fn settings_are_read_from_the_files_of_the_kernel() {
        let cpu = "sys/devices/system/cpu";
        let machine = Machine::default()
            .with("sys/devices/system/cpu/intel_pstate/no_turbo", "0\n")
            .with(
                &format!("{cpu}/cpu0/cpufreq/scaling_governor"),
                "powersave\n",
            )
            .with(
                &format!("{cpu}/cpu10/cpufreq/scaling_governor"),
                "performance\n",
            )
            .with(&format!("{cpu}/cpu0/cpuidle/state0/name"), "POLL\n")
            .with(&format!("{cpu}/cpu0/cpuidle/state10/name"), "C6\n")
            .with(&format!("{cpu}/cpu0/cpuidle/state10/disable"), "1\n")
            .with(&format!("{cpu}/isolated"), "\n")
            .with(
                &format!("{cpu}/vulnerabilities/spectre_v2"),
                "Mitigation: IBRS\n",
            )
            .with("sys/class/iommu/dmar0/x", "")
            .with(
                &format!("{cpu}/intel_uncore_frequency/package_00_die_00/min_freq_khz"),
                "800000",
            )
            .with(
                &format!("{cpu}/intel_uncore_frequency/package_00_die_00/max_freq_khz"),
                "2400000",
            );
        let read = |name: &str| value_of(&machine, name);
        assert_eq!(read("turbo"), "on");
        assert_eq!(read("governor"), "performance, powersave");
        assert_eq!(read("C-states"), "POLL, C6 (disabled)");
        assert_eq!(read("isolated CPUs"), "none");
        assert_eq!(read("mitigation spectre_v2"), "Mitigation: IBRS");
        assert_eq!(read("IOMMU"), "1 in use");
        assert_eq!(read("uncore frequency"), "800000 to 2400000 kHz");
        let amd = Machine::default().with("sys/devices/system/cpu/cpufreq/boost", "0\n");
        assert_eq!(value_of(&amd, "turbo"), "off");
        let empty = Machine::default().with("sys/class/x", "");
        assert_eq!(value_of(&empty, "IOMMU"), "none in use");
    }
}
