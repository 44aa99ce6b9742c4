// SPDX-License-Identifier: Apache-2.0
//! Frequency settings of the CPUs.

use std::collections::BTreeMap;

use crate::CpuId;

use super::super::plan::{FrequencySetting, Plan};
use super::Attempt;

/// Default governor of isolated CPUs: every frequency change pauses the CPU.
const GOVERNOR: &str = "performance";

impl Attempt<'_> {
    /// Adds governors and limits of isolated CPUs to the plan, and with SST-BF the limits of all CPUs.
    pub(super) fn set_frequencies(&mut self, plan: &mut Plan) {
        let isolated = plan.isolated();
        let high = self.machine.high_priority();
        let requested = self.request.machine.governor.clone();
        let wanted = requested.clone().unwrap_or_else(|| GOVERNOR.to_owned());
        let mut is_refused = false;
        type Key = (Option<String>, Option<u64>, Option<u64>, bool);
        let mut settings: BTreeMap<Key, Vec<CpuId>> = BTreeMap::new();
        for cpu in self.online.iter() {
            let Some(frequency) = self
                .machine
                .cpu(cpu)
                .and_then(|place| place.frequency.as_ref())
            else {
                continue;
            };
            let is_quiet = isolated.contains(cpu);
            let has = |governor: &String| frequency.governors.contains(governor);
            let governor = Some(wanted.clone()).filter(|governor| is_quiet && has(governor));
            is_refused |= is_quiet
                && requested.is_some()
                && !frequency.governors.is_empty()
                && governor.is_none();
            // With SST-BF, every core runs at its own base frequency. Otherwise the low-priority cores would take the power
            // that the high-priority cores need.
            let base = frequency.base_khz.filter(|_| !high.is_empty());
            let is_high = high.contains(cpu);
            let min = base.filter(|_| is_quiet || is_high);
            if governor.is_some() || base.is_some() {
                settings
                    .entry((governor, min, base, is_high))
                    .or_default()
                    .push(cpu);
            }
        }
        if is_refused {
            self.conflict(
                "frequency",
                format!("the governor {wanted} is requested, but the machine does not support it"),
                format!("the governor {GOVERNOR}"),
            );
            self.nearest.machine.governor = None;
        }
        for ((governor, min_khz, max_khz, is_high_priority), cpus) in settings {
            let setting = FrequencySetting {
                cpus: cpus.into_iter().collect(),
                governor,
                min_khz,
                max_khz,
                is_high_priority,
            };
            self.explain_frequency(&setting);
            plan.frequencies.push(setting);
        }
    }

    fn explain_frequency(&mut self, setting: &FrequencySetting) {
        let mut parts: Vec<String> = Vec::new();
        parts.extend(setting.governor.as_ref().map(|governor| {
            format!("governor {governor}, because every frequency change pauses the CPU")
        }));
        parts.extend(setting.max_khz.map(|khz| {
            let reason = if setting.is_high_priority {
                "of the high-priority cores of SST-BF"
            } else {
                "so that the high-priority cores of SST-BF keep theirs"
            };
            format!("at most {} MHz, the base frequency {reason}", khz / 1000)
        }));
        self.reason(
            "frequency",
            format!("CPUs {}: {}", setting.cpus, parts.join("; ")),
        );
    }
}
