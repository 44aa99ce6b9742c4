// SPDX-License-Identifier: Apache-2.0
//! Interrupts by CPU, from `/proc/interrupts` (Documentation/filesystems/proc.rst, section 1.2).

use std::collections::BTreeMap;

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
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let cpus: Vec<u32> = header
        .split_whitespace()
        .filter_map(|name| name.strip_prefix("CPU")?.parse().ok())
        .collect();
    let mut sums: BTreeMap<u32, u64> = cpus.iter().map(|cpu| (*cpu, 0)).collect();
    for line in lines {
        let counts: Vec<u64> = line
            .split_whitespace()
            .skip(1)
            .take(cpus.len())
            .map_while(|field| field.parse().ok())
            .collect();
        if counts.len() < cpus.len() {
            continue;
        }
        for (cpu, count) in cpus.iter().zip(counts) {
            *sums.entry(*cpu).or_default() += count;
        }
    }
    sums
}
