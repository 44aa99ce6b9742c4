// SPDX-License-Identifier: Apache-2.0
//! Interrupts by CPU, from `/proc/interrupts` (Documentation/filesystems/proc.rst, section 1.2).

use quietwire_base::proc::read;
use quietwire_host::proc::PerCpu;
use serde::{Deserialize, Serialize};

use crate::monitor::{Monitor, Target, Unavailable};
use crate::ticks::difference;

/// Interrupts that one CPU served, of all kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptCount {
    /// Number of the CPU.
    pub cpu: u32,
    /// Number of interrupts.
    pub count: u64,
}

/// Interrupts of one line that one CPU served. Lines that did not increase are not listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptLine {
    /// Number of the CPU.
    pub cpu: u32,
    /// Name of the line: the number of a device's interrupt, or the kernel's name, such as `LOC` or `RES`.
    pub name: String,
    /// The kernel's description: controller and devices, or `Local timer interrupts`.
    pub what: String,
    /// Number of interrupts.
    pub count: u64,
}

impl InterruptLine {
    /// Returns true for an interrupt of a device, which has an affinity. Others are the kernel's own.
    #[must_use]
    pub fn is_of_device(&self) -> bool {
        !self.name.is_empty() && self.name.bytes().all(|octet| octet.is_ascii_digit())
    }
}

/// Interrupts between two instants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InterruptActivity {
    pub(crate) counts: Vec<InterruptCount>,
    pub(crate) lines: Vec<InterruptLine>,
}

pub(crate) struct Interrupts;

impl Monitor for Interrupts {
    const NAME: &'static str = "interrupts";
    type Counters = PerCpu;
    type Activity = InterruptActivity;

    fn read(target: &Target<'_>) -> Result<Self::Counters, Unavailable> {
        let text = read(&target.root.join("proc/interrupts")).ok();
        // Lines without a count for each CPU (`ERR`, `MIS`) are ignored.
        let counters = text.and_then(|text| PerCpu::parse(&text, |_| true));
        counters.ok_or_else(|| Unavailable::missing("/proc/interrupts"))
    }

    fn between(
        then: &Self::Counters,
        now: &Self::Counters,
        anomalies: &mut Vec<String>,
    ) -> Self::Activity {
        let sums = then.sums();
        let mut counts = Vec::new();
        for (cpu, sum) in now.sums() {
            let Some(then) = sums.get(&cpu) else {
                continue;
            };
            let what = format!("interrupts of CPU {cpu}");
            let count = difference(&what, *then, sum, anomalies);
            counts.push(InterruptCount { cpu: cpu.0, count });
        }
        let increased = now.since(then).lines.into_iter();
        let lines = increased.flat_map(|(name, line)| {
            let what = line.what;
            line.counts
                .into_iter()
                .map(move |(cpu, count)| InterruptLine {
                    cpu: cpu.0,
                    name: name.clone(),
                    what: what.clone(),
                    count,
                })
        });
        InterruptActivity {
            lines: lines.collect(),
            counts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Machine, between};

    #[test]
    fn interrupts_of_devices_are_distinguished_from_those_of_the_kernel() {
        let at = |device: &str, timer: &str| {
            let text = format!(
                "     CPU0 CPU1\n 24: 3 {device} PCI-MSI eth0\nLOC: {timer} 7 Local timer\nERR: 0\n"
            );
            Machine::default().with("proc/interrupts", &text)
        };
        let activity = between::<Interrupts>(&at("5", "1"), &at("9", "2"));
        let lines: Vec<_> = activity
            .lines
            .iter()
            .map(|line| {
                (
                    line.cpu,
                    line.name.as_str(),
                    line.count,
                    line.is_of_device(),
                )
            })
            .collect();
        assert_eq!(lines, [(1, "24", 4, true), (0, "LOC", 1, false)]);
        assert_eq!(activity.lines[0].what, "PCI-MSI eth0");
        assert_eq!(activity.counts[1], InterruptCount { cpu: 1, count: 4 });
        assert!(
            Machine::default()
                .unavailable::<Interrupts>()
                .contains("/proc/interrupts")
        );
    }
}
