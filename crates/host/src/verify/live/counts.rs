// SPDX-License-Identifier: Apache-2.0
//! Interrupts and softirqs that isolated CPUs had.

use std::collections::BTreeMap;

use super::super::{APPLY, Check, UNREADABLE, some_of};
use super::{Interval, TICKS_PER_S};
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

/// The tick's line of `/proc/interrupts`: `LOC` on x86.
const TICK: [&str; 2] = ["LOC", "arch_timer"];
/// Interrupts between CPUs that one may have, a second: a rare one is the kernel keeping its own books.
const BETWEEN_CPUS_PER_S: f64 = 1.0;
/// Softirqs that follow from the tick.
const OF_THE_TICK: [&str; 4] = ["TIMER", "SCHED", "RCU", "HRTIMER"];

pub(super) fn checks(interval: &Interval<'_>) -> Vec<Check> {
    let mut checks = interrupts(interval);
    checks.push(softirqs(interval));
    checks
}

fn since(before: Option<&PerCpu>, after: Option<&PerCpu>) -> Option<PerCpu> {
    Some(after?.since(before?))
}

fn interrupts(interval: &Interval<'_>) -> Vec<Check> {
    let file = "/proc/interrupts";
    let isolated = &interval.machine.isolated;
    let devices_expected = format!("no device's interrupt on the isolated CPUs {isolated}");
    let came = since(
        interval.before.interrupts.as_ref(),
        interval.after.interrupts.as_ref(),
    );
    let Some(came) = came else {
        let name = "interrupts-that-came";
        return vec![Check::cannot_tell(name, file, devices_expected, UNREADABLE)];
    };
    let (mut devices, mut ticks, mut between) = (Vec::new(), Vec::new(), Vec::new());
    for (name, line) in &came.lines {
        let is_tick = TICK
            .iter()
            .any(|tick| name == tick || line.what.contains(tick));
        let is_device = name.bytes().all(|octet| octet.is_ascii_digit());
        for (cpu, count) in &line.counts {
            let rate = *count as f64 / interval.seconds;
            if is_tick {
                if rate > TICKS_PER_S {
                    ticks.push(format!("CPU {cpu} {rate:.0} a second"));
                }
            } else if is_device {
                devices.push(format!("{name} ({}) {count} times on CPU {cpu}", line.what));
            } else if rate > BETWEEN_CPUS_PER_S {
                between.push(format!(
                    "{name} ({}) {rate:.1} a second on CPU {cpu}",
                    line.what
                ));
            }
        }
    }
    let seen = |found: &[String]| {
        if found.is_empty() {
            "none".to_owned()
        } else {
            some_of(found)
        }
    };
    let mut checks = vec![Check::new(
        "interrupts-that-came",
        file,
        devices_expected,
        seen(&devices),
        devices.is_empty(),
        APPLY,
    )];
    let is_fine = ticks.is_empty() || !interval.is_tickless;
    let expected = if interval.is_tickless {
        format!("at most {TICKS_PER_S:.0} a second on the isolated CPUs {isolated}")
    } else {
        "any, as the plan leaves the tick on".to_owned()
    };
    let remedy =
        "nohz_full= needs one thread a CPU that never sleeps, and no timer there: see who else ran";
    checks.push(Check::new(
        "tick",
        file,
        expected,
        seen(&ticks),
        is_fine,
        remedy,
    ));
    checks.push(Check::new(
        "interrupts-between-cpus",
        file,
        format!("at most {BETWEEN_CPUS_PER_S:.0} of a kind a second on the isolated CPUs {isolated}"),
        seen(&between),
        between.is_empty(),
        "RES is somebody who was woken there, TLB is a process with threads there and elsewhere that gives memory back, CAL is the kernel's own; rcu_nocbs= and memory that is locked help",
    ));
    checks
}

fn softirqs(interval: &Interval<'_>) -> Check {
    let (name, file) = ("softirqs", "/proc/softirqs");
    let isolated = &interval.machine.isolated;
    let expected =
        format!("at most {TICKS_PER_S:.0} of a kind a second on the isolated CPUs {isolated}");
    let came = since(
        interval.before.softirqs.as_ref(),
        interval.after.softirqs.as_ref(),
    );
    let Some(came) = came else {
        return Check::cannot_tell(name, file, expected, UNREADABLE);
    };
    let mut wrong = Vec::new();
    for (kind, line) in &came.lines {
        if !interval.is_tickless && OF_THE_TICK.contains(&kind.as_str()) {
            continue;
        }
        for (cpu, count) in &line.counts {
            let rate = *count as f64 / interval.seconds;
            if rate > TICKS_PER_S {
                wrong.push(format!("{kind} {rate:.0} a second on CPU {cpu}"));
            }
        }
    }
    let seen = if wrong.is_empty() {
        "no more".to_owned()
    } else {
        some_of(&wrong)
    };
    let remedy = "NET_RX and NET_TX come with interrupts and receive steering; the others with threads that ran there";
    Check::new(name, file, expected, seen, wrong.is_empty(), remedy)
}
