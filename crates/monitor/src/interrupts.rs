// SPDX-License-Identifier: Apache-2.0
//! Interrupts by CPU, from `/proc/interrupts` (Documentation/filesystems/proc.rst, section 1.2).

use std::collections::BTreeMap;

use quietwire_host::proc::PerCpu;
use serde::{Deserialize, Serialize};

/// Interrupts that one CPU served, of all kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptCount {
    /// Number of the CPU.
    pub cpu: u32,
    /// Number of interrupts.
    pub count: u64,
}

/// Returns the sum over all interrupts, by CPU. Lines without a count for each CPU (`ERR`, `MIS`) are ignored.
pub(crate) fn parse(text: &str) -> BTreeMap<u32, u64> {
    let counts = PerCpu::parse(text, |_| true).unwrap_or_default();
    counts
        .sums()
        .into_iter()
        .map(|(cpu, sum)| (cpu.0, sum))
        .collect()
}
