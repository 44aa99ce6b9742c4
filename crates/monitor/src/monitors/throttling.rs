// SPDX-License-Identifier: Apache-2.0
//! Throttling of CPUs because of their temperature, from `thermal_throttle` (arch/x86/kernel/cpu/mce and drivers/thermal/intel,
//! therm_throt.c).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::files::{cpus, value};
use crate::monitor::{Monitor, Target, Unavailable};
use crate::ticks::difference;

/// Throttling of one CPU. CPUs that were not throttled are not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuThrottling {
    /// Number of the CPU.
    pub cpu: u32,
    /// Number of times that its core was throttled.
    pub core_events: u64,
    /// Number of times that its package was throttled.
    pub package_events: u64,
}

pub(crate) struct Throttling;

impl Monitor for Throttling {
    const NAME: &'static str = "throttling";
    /// Events of core and package by CPU.
    type Counters = BTreeMap<u32, [u64; 2]>;
    type Activity = Vec<CpuThrottling>;

    fn read(target: &Target<'_>) -> Result<Self::Counters, Unavailable> {
        let of_cpu = |cpu: u32| {
            let directory = format!("sys/devices/system/cpu/cpu{cpu}/thermal_throttle");
            let count = |file: &str| value(&target.root.join(&directory).join(file));
            let core = count("core_throttle_count")?;
            Some((cpu, [core, count("package_throttle_count").unwrap_or(0)]))
        };
        let found: Self::Counters = cpus(target.root).into_iter().filter_map(of_cpu).collect();
        if found.is_empty() {
            return Err(Unavailable::missing(
                "/sys/devices/system/cpu/cpu*/thermal_throttle/core_throttle_count",
            ));
        }
        Ok(found)
    }

    fn between(
        then: &Self::Counters,
        now: &Self::Counters,
        anomalies: &mut Vec<String>,
    ) -> Self::Activity {
        let mut found = Vec::new();
        for (cpu, [core, package]) in now {
            let Some([core_then, package_then]) = then.get(cpu) else {
                continue;
            };
            let mut since = |what: &str, then: u64, now: u64| {
                let what = format!("{what} throttling of CPU {cpu}");
                difference(&what, then, now, anomalies)
            };
            let core_events = since("core", *core_then, *core);
            let package_events = since("package", *package_then, *package);
            if core_events > 0 || package_events > 0 {
                found.push(CpuThrottling {
                    cpu: *cpu,
                    core_events,
                    package_events,
                });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Machine, between};

    #[test]
    fn cpus_that_were_throttled_are_listed_and_others_are_not() {
        let at = |core: &str| {
            Machine::default()
                .with(
                    "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count",
                    "4",
                )
                .with(
                    "sys/devices/system/cpu/cpu3/thermal_throttle/core_throttle_count",
                    core,
                )
                .with(
                    "sys/devices/system/cpu/cpu3/thermal_throttle/package_throttle_count",
                    "1",
                )
        };
        let activity = between::<Throttling>(&at("7"), &at("9"));
        let wanted = CpuThrottling {
            cpu: 3,
            core_events: 2,
            package_events: 0,
        };
        assert_eq!(activity, [wanted]);
        assert!(between::<Throttling>(&at("7"), &at("7")).is_empty());
        assert!(
            Machine::default()
                .unavailable::<Throttling>()
                .contains("thermal_throttle")
        );
    }
}
