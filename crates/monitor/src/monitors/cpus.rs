// SPDX-License-Identifier: Apache-2.0
//! CPU time by state, from `/proc/stat` (Documentation/filesystems/proc.rst, section 1.7).

use std::collections::BTreeMap;

use quietwire_base::proc::read;
use serde::{Deserialize, Serialize};

use crate::monitor::{Monitor, Target, Unavailable};
use crate::ticks::{difference, ticks_per_second};

/// States in the order of the file.
const STATES: usize = 10;
const USER: usize = 0;
const NICE: usize = 1;
const GUEST: usize = 8;
const GUEST_NICE: usize = 9;
const NAMES: [&str; STATES] = [
    "user",
    "nice",
    "system",
    "idle",
    "iowait",
    "irq",
    "softirq",
    "steal",
    "guest",
    "guest_nice",
];

/// Ticks of one CPU in each state.
type CpuTicks = [u64; STATES];

/// Time of one CPU in each state, seconds. The kernel counts guest time as user (or nice) time as well; here each
/// second is in one state only, so the states add up to the elapsed time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuActivity {
    /// Number of the CPU.
    pub cpu: u32,
    /// Processes in user mode, without guests.
    pub user_s: f64,
    /// Low-priority (nice) processes in user mode, without guests.
    pub nice_s: f64,
    /// Kernel mode.
    pub system_s: f64,
    /// Idle.
    pub idle_s: f64,
    /// Idle with disk I/O pending.
    pub iowait_s: f64,
    /// Hardware interrupts.
    pub irq_s: f64,
    /// Soft interrupts.
    pub softirq_s: f64,
    /// Stolen by the hypervisor.
    pub steal_s: f64,
    /// Guests.
    pub guest_s: f64,
    /// Low-priority (nice) guests.
    pub guest_nice_s: f64,
}

pub(crate) struct Cpus;

impl Monitor for Cpus {
    const NAME: &'static str = "cpus";
    type Counters = BTreeMap<u32, CpuTicks>;
    type Activity = Vec<CpuActivity>;

    fn read(target: &Target<'_>) -> Result<Self::Counters, Unavailable> {
        let text =
            read(&target.root.join("proc/stat")).map_err(|_| Unavailable::missing("/proc/stat"))?;
        let cpus = parse(&text);
        if cpus.is_empty() {
            return Err(Unavailable("/proc/stat lists no CPU".to_owned()));
        }
        Ok(cpus)
    }

    fn between(
        then: &Self::Counters,
        now: &Self::Counters,
        anomalies: &mut Vec<String>,
    ) -> Self::Activity {
        let ticks_per_second = ticks_per_second();
        let mut found = Vec::new();
        for (cpu, now) in now {
            if let Some(then) = then.get(cpu) {
                let one = CpuActivity::between(*cpu, then, now, ticks_per_second, anomalies);
                found.push(one);
            }
        }
        let gone = then.keys().filter(|cpu| !now.contains_key(cpu));
        anomalies.extend(gone.map(|cpu| format!("CPU {cpu} went offline")));
        found
    }
}

fn parse(stat: &str) -> BTreeMap<u32, CpuTicks> {
    let mut cpus = BTreeMap::new();
    for line in stat.lines() {
        let mut fields = line.split_whitespace();
        let Some(cpu) = fields
            .next()
            .and_then(|name| name.strip_prefix("cpu")?.parse().ok())
        else {
            continue;
        };
        let mut ticks = [0; STATES];
        // Old kernels list fewer states. Missing ones are zero.
        for (slot, field) in ticks.iter_mut().zip(fields) {
            *slot = field.parse().unwrap_or(0);
        }
        cpus.insert(cpu, ticks);
    }
    cpus
}

/// Returns the time of each CPU in each state since boot, from the text of `/proc/stat`.
#[must_use]
pub fn cpu_times(stat: &str) -> Vec<CpuActivity> {
    let ticks_per_second = ticks_per_second();
    // No counter goes backwards from zero, so this list stays empty.
    let mut anomalies = Vec::new();
    let since_boot = |(cpu, ticks): (u32, CpuTicks)| {
        CpuActivity::between(cpu, &[0; STATES], &ticks, ticks_per_second, &mut anomalies)
    };
    parse(stat).into_iter().map(since_boot).collect()
}

impl CpuActivity {
    fn between(
        cpu: u32,
        then: &CpuTicks,
        now: &CpuTicks,
        ticks_per_second: f64,
        anomalies: &mut Vec<String>,
    ) -> Self {
        let mut ticks = [0; STATES];
        let states = NAMES.iter().zip(then).zip(now);
        for (slot, ((name, then), now)) in ticks.iter_mut().zip(states) {
            *slot = difference(&format!("{name} time of CPU {cpu}"), *then, *now, anomalies);
        }
        ticks[USER] = ticks[USER].saturating_sub(ticks[GUEST]);
        ticks[NICE] = ticks[NICE].saturating_sub(ticks[GUEST_NICE]);
        let [
            user_s,
            nice_s,
            system_s,
            idle_s,
            iowait_s,
            irq_s,
            softirq_s,
            steal_s,
            guest_s,
            guest_nice_s,
        ] = ticks.map(|ticks| ticks as f64 / ticks_per_second);
        Self {
            cpu,
            user_s,
            nice_s,
            system_s,
            idle_s,
            iowait_s,
            irq_s,
            softirq_s,
            steal_s,
            guest_s,
            guest_nice_s,
        }
    }
}
