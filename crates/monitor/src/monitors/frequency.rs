// SPDX-License-Identifier: Apache-2.0
//! Frequency of each CPU at the end of an interval, from cpufreq (Documentation/admin-guide/pm/cpufreq.rst).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::files::{cpus, value};
use crate::monitor::{Monitor, Target, Unavailable};

/// Frequency of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuFrequency {
    /// Number of the CPU.
    pub cpu: u32,
    /// Frequency, kHz.
    pub khz: u64,
}

pub(crate) struct Frequency;

impl Monitor for Frequency {
    const NAME: &'static str = "frequency";
    type Counters = BTreeMap<u32, u64>;
    type Activity = Vec<CpuFrequency>;

    fn read(target: &Target<'_>) -> Result<Self::Counters, Unavailable> {
        let of_cpu = |cpu: u32| {
            let file = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq");
            Some((cpu, value(&target.root.join(file))?))
        };
        let found: Self::Counters = cpus(target.root).into_iter().filter_map(of_cpu).collect();
        if found.is_empty() {
            return Err(Unavailable::missing(
                "/sys/devices/system/cpu/cpu*/cpufreq/scaling_cur_freq",
            ));
        }
        Ok(found)
    }

    fn between(
        _then: &Self::Counters,
        now: &Self::Counters,
        _anomalies: &mut Vec<String>,
    ) -> Self::Activity {
        let all = now.iter();
        all.map(|(cpu, khz)| CpuFrequency {
            cpu: *cpu,
            khz: *khz,
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Machine, between};

    #[test]
    fn the_frequency_is_that_of_the_end() {
        let at = |khz: &str| {
            Machine::default()
                .with("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", khz)
                .with("sys/devices/system/cpu/cpu0/online", "1")
        };
        let activity = between::<Frequency>(&at("3000000\n"), &at("2000000\n"));
        assert_eq!(
            activity,
            [CpuFrequency {
                cpu: 1,
                khz: 2_000_000
            }]
        );
        assert!(
            Machine::default()
                .unavailable::<Frequency>()
                .contains("scaling_cur_freq")
        );
    }
}
