// SPDX-License-Identifier: Apache-2.0
//! Interrupts by CPU, of `/proc/interrupts` (Documentation/filesystems/proc.rst, section 1.2).

use std::collections::BTreeMap;

use quietwire_host::proc::PerCpu;
use serde::{Deserialize, Serialize};

/// Interrupts that one CPU served, all kinds together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptCount {
    /// Number of the CPU.
    pub cpu: u32,
    /// How many.
    pub count: u64,
}

/// Sums over all interrupts, by CPU. Lines that do not count by CPU (`ERR`, `MIS`) are left out.
pub(crate) fn parse(text: &str) -> BTreeMap<u32, u64> {
    let counts = PerCpu::parse(text, |_| true).unwrap_or_default();
    counts
        .sums()
        .into_iter()
        .map(|(cpu, sum)| (cpu.0, sum))
        .collect()
}
