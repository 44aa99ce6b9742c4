// SPDX-License-Identifier: Apache-2.0
//! Softirqs by CPU and kind, from `/proc/softirqs` (Documentation/filesystems/proc.rst, section 1.2).

use quietwire_base::proc::read;
use quietwire_host::proc::PerCpu;
use serde::{Deserialize, Serialize};

use crate::monitor::{Monitor, Target, Unavailable};

/// Softirqs of one kind that one CPU served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoftirqCount {
    /// Number of the CPU.
    pub cpu: u32,
    /// Kind: `NET_RX`, `TIMER`, `SCHED`, `RCU`.
    pub kind: String,
    /// Number of softirqs.
    pub count: u64,
}

pub(crate) struct Softirqs;

impl Monitor for Softirqs {
    const NAME: &'static str = "softirqs";
    type Counters = PerCpu;
    type Activity = Vec<SoftirqCount>;

    fn read(target: &Target<'_>) -> Result<Self::Counters, Unavailable> {
        let text = read(&target.root.join("proc/softirqs")).ok();
        let counters = text.and_then(|text| PerCpu::parse(&text, |_| true));
        counters.ok_or_else(|| Unavailable::missing("/proc/softirqs"))
    }

    fn between(
        then: &Self::Counters,
        now: &Self::Counters,
        _anomalies: &mut Vec<String>,
    ) -> Self::Activity {
        let increased = now.since(then).lines.into_iter();
        increased
            .flat_map(|(kind, line)| {
                line.counts
                    .into_iter()
                    .map(move |(cpu, count)| SoftirqCount {
                        cpu: cpu.0,
                        kind: kind.clone(),
                        count,
                    })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Machine, between};

    #[test]
    fn softirqs_are_counted_by_cpu_and_kind() {
        let at = |received: &str| {
            let text = format!("      CPU0 CPU1\n NET_RX: 5 {received}\n RCU: 3 3\n");
            Machine::default().with("proc/softirqs", &text)
        };
        let activity = between::<Softirqs>(&at("10"), &at("14"));
        let wanted = SoftirqCount {
            cpu: 1,
            kind: "NET_RX".to_owned(),
            count: 4,
        };
        assert_eq!(activity, [wanted]);
        assert!(
            Machine::default()
                .unavailable::<Softirqs>()
                .contains("/proc/softirqs")
        );
    }
}
