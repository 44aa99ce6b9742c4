// SPDX-License-Identifier: Apache-2.0
//! Counters by CPU of `/proc/interrupts` and `/proc/softirqs`.

use std::collections::BTreeMap;

use crate::CpuId;

/// Lines of `/proc/interrupts` or `/proc/softirqs`, with the counters of selected CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerCpu {
    /// Lines by name: an interrupt's number, `LOC`, `NET_RX`.
    pub lines: BTreeMap<String, Line>,
}

/// One line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Text after the counters.
    pub what: String,
    /// Counters by CPU.
    pub counts: BTreeMap<CpuId, u64>,
}

impl PerCpu {
    /// Parses a file and keeps only the columns of selected CPUs. `None` if it has no heading.
    #[must_use]
    pub fn parse(text: &str, is_wanted: impl Fn(CpuId) -> bool) -> Option<Self> {
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
            // `ERR` and `MIS` belong to no CPU.
            if counts.len() < heading.len() {
                continue;
            }
            let what = words.get(heading.len()..).unwrap_or_default().join(" ");
            let counts = heading.iter().copied().zip(counts);
            let counts = counts.filter(|(cpu, _)| is_wanted(*cpu)).collect();
            found.insert(name.trim().to_owned(), Line { what, counts });
        }
        Some(Self { lines: found })
    }

    /// Returns the sum over all lines, by CPU.
    #[must_use]
    pub fn sums(&self) -> BTreeMap<CpuId, u64> {
        let mut sums = BTreeMap::new();
        for (cpu, count) in self.lines.values().flat_map(|line| &line.counts) {
            let sum: &mut u64 = sums.entry(*cpu).or_default();
            *sum = sum.saturating_add(*count);
        }
        sums
    }

    /// Returns the increase since an earlier sample, by line and CPU, without lines that did not increase.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "           CPU0       CPU2\n  24:          1          0   IO-APIC   5-edge      ACPI: Ged\n LOC:         30         40   Local timer interrupts\n ERR:          7\n 25: 1\nnonsense\n 26: 1 many\n";

    #[test]
    fn lines_that_count_by_cpu_are_kept() {
        let all = PerCpu::parse(TEXT, |_| true).unwrap();
        let names: Vec<&String> = all.lines.keys().collect();
        assert_eq!(names, ["24", "LOC"]);
        assert_eq!(all.lines["24"].what, "IO-APIC 5-edge ACPI: Ged");
        assert_eq!(all.sums(), BTreeMap::from([(CpuId(0), 31), (CpuId(2), 40)]));
        let one = PerCpu::parse(TEXT, |cpu| cpu == CpuId(2)).unwrap();
        assert_eq!(one.lines["LOC"].counts, BTreeMap::from([(CpuId(2), 40)]));
        assert_eq!(PerCpu::parse("", |_| true), None);
        assert_eq!(PerCpu::parse("24: 1 2 chip\n", |_| true), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "(CPU[0-9]{1,12} ){0,3}\n(.*: [0-9]{0,25} [0-9]{0,25}\n?){0,4}") {
            if let Some(counts) = PerCpu::parse(&text, |_| true) {
                let _ = (counts.sums(), counts.since(&counts));
            }
        }
    }
}
