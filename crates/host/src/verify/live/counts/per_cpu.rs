// SPDX-License-Identifier: Apache-2.0
//! Counts by CPU, as /proc/interrupts and /proc/softirqs have them.

use std::collections::BTreeMap;

use crate::{CpuId, CpuList};

/// Lines of `/proc/interrupts` or `/proc/softirqs`: counts of some CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerCpu {
    /// By the line's name: an interrupt's number, `LOC`, `NET_RX`; with what stands behind the counts.
    pub lines: BTreeMap<String, Line>,
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// What stands behind the counts.
    pub what: String,
    /// Counts by CPU.
    pub counts: BTreeMap<CpuId, u64>,
}

impl PerCpu {
    /// Reads such a file, of which only the columns of `cpus` are kept. None when it has no heading.
    #[must_use]
    pub fn parse(text: &str, cpus: &CpuList) -> Option<Self> {
        let mut lines = text.lines();
        let heading: Vec<CpuId> = lines
            .next()?
            .split_whitespace()
            .filter_map(|word| word.strip_prefix("CPU")?.parse().ok().map(CpuId))
            .collect();
        if heading.is_empty() {
            return None;
        }
        let mut found = BTreeMap::new();
        for line in lines {
            let Some((name, rest)) = line.split_once(':') else {
                continue;
            };
            let words: Vec<&str> = rest.split_whitespace().collect();
            let numbers = words.iter().map_while(|word| word.parse::<u64>().ok());
            let counts: Vec<u64> = numbers.take(heading.len()).collect();
            // `ERR` and `MIS` are of no CPU.
            if counts.len() < heading.len() {
                continue;
            }
            let what = words.get(heading.len()..).unwrap_or_default().join(" ");
            let counts = heading.iter().copied().zip(counts);
            let counts = counts.filter(|(cpu, _)| cpus.contains(*cpu)).collect();
            found.insert(name.trim().to_owned(), Line { what, counts });
        }
        Some(Self { lines: found })
    }

    /// What came between an earlier look and this one, by line and CPU; lines without any are left out.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut lines = BTreeMap::new();
        for (name, line) in &self.lines {
            let former = earlier.lines.get(name);
            let mut counts = line.counts.clone();
            for (cpu, count) in &mut counts {
                let former = former.and_then(|line| line.counts.get(cpu)).copied();
                *count = count.saturating_sub(former.unwrap_or(0));
            }
            counts.retain(|_, count| *count > 0);
            if !counts.is_empty() {
                let what = line.what.clone();
                lines.insert(name.clone(), Line { what, counts });
            }
        }
        Self { lines }
    }
}
