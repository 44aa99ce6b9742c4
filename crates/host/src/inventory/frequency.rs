// SPDX-License-Identifier: Apache-2.0
//! CPU frequencies and idle states (kernel documentation: admin-guide/pm/cpufreq.rst, intel_pstate.rst,
//! cpuidle.rst; acpi/cppc_sysfs.rst).

use serde::{Deserialize, Serialize};

use crate::tree::Tree;

/// Frequencies of one CPU, kHz.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frequency {
    /// Guaranteed frequency (`base_frequency`). With SST-BF, it differs between cores.
    pub base_khz: Option<u64>,
    /// Lowest frequency of the hardware (`cpuinfo_min_freq`).
    pub lowest_khz: Option<u64>,
    /// Highest frequency of the hardware (`cpuinfo_max_freq`).
    pub highest_khz: Option<u64>,
    /// Configured lower limit (`scaling_min_freq`).
    pub min_khz: Option<u64>,
    /// Configured upper limit (`scaling_max_freq`).
    pub max_khz: Option<u64>,
    /// Active governor.
    pub governor: Option<String>,
    /// Available governors.
    #[serde(default)]
    pub governors: Vec<String>,
    /// Driver (`scaling_driver`).
    pub driver: Option<String>,
    /// Guaranteed performance of ACPI CPPC, in the firmware's own unit (`acpi_cppc/guaranteed_perf`). Identifies high-priority
    /// cores (SST-BF) if there is no `base_frequency`.
    pub guaranteed_performance: Option<u64>,
}

/// One idle state of a CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleState {
    /// Its name (`C6`).
    pub name: String,
    /// Wake-up latency, microseconds.
    pub latency_us: Option<u64>,
    /// Whether the state is disabled.
    pub is_disabled: Option<bool>,
}

/// Returns the frequencies of one CPU. `None` without cpufreq and CPPC.
pub(super) fn frequency(tree: &Tree, cpu: u32) -> Option<Frequency> {
    let at = |file: &str| format!("sys/devices/system/cpu/cpu{cpu}/{file}");
    let khz = |file: &str| tree.value::<u64>(&at(&format!("cpufreq/{file}")));
    let governors = tree.text(&at("cpufreq/scaling_available_governors"));
    let found = Frequency {
        base_khz: khz("base_frequency"),
        lowest_khz: khz("cpuinfo_min_freq"),
        highest_khz: khz("cpuinfo_max_freq"),
        min_khz: khz("scaling_min_freq"),
        max_khz: khz("scaling_max_freq"),
        governor: tree.text(&at("cpufreq/scaling_governor")),
        governors: governors
            .iter()
            .flat_map(|names| names.split_whitespace())
            .map(str::to_owned)
            .collect(),
        driver: tree.text(&at("cpufreq/scaling_driver")),
        guaranteed_performance: tree.value(&at("acpi_cppc/guaranteed_perf")),
    };
    (found != Frequency::default()).then_some(found)
}

/// Returns the idle states of one CPU, the lightest first.
pub(super) fn idle_states(tree: &Tree, cpu: u32) -> Vec<IdleState> {
    let directory = format!("sys/devices/system/cpu/cpu{cpu}/cpuidle");
    let states = tree.numbered(&directory, "state");
    let state = |number: u32| {
        let at = |file: &str| format!("{directory}/state{number}/{file}");
        Some(IdleState {
            name: tree.text(&at("name"))?,
            latency_us: tree.value(&at("latency")),
            is_disabled: tree.value::<u64>(&at("disable")).map(|value| value != 0),
        })
    };
    states.into_iter().filter_map(state).collect()
}
