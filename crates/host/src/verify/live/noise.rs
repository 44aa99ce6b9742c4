// SPDX-License-Identifier: Apache-2.0
//! CPU frequencies, cache occupancy, and the results of the kernel's osnoise tracer if it is enabled.

use std::collections::BTreeMap;

use super::super::check::{Check, UNREADABLE, some_of};
use super::interval::Interval;
use crate::files::Disk;
use crate::partition::Class;
use crate::proc::cache_kib;
use crate::resctrl::Resctrl;
use crate::{CpuId, CpuList};

const CPUS: &str = "sys/devices/system/cpu";
const TRACING: [&str; 2] = ["sys/kernel/tracing", "sys/kernel/debug/tracing"];
/// Tolerance of the frequency check: the frequency of a CPU varies a little.
const FREQUENCY_SLACK: f64 = 0.95;
/// Tolerance of the cache check: the hardware estimates occupancy from samples.
const OCCUPANCY_SLACK: f64 = 1.1;
/// Minimum availability of an isolated CPU for its thread, percent of time.
const AVAILABLE: f64 = 99.99;

pub(super) fn checks(interval: &Interval<'_>) -> Vec<Check> {
    let mut checks = vec![frequency(interval)];
    checks.extend(occupancy(interval));
    checks.push(noise(interval));
    checks
}

/// Checks that forwarding CPUs run at least at their planned frequency.
fn frequency(interval: &Interval<'_>) -> Check {
    let machine = interval.machine;
    let name = "frequency";
    let files = format!("/{CPUS}/cpu*/cpufreq/scaling_cur_freq");
    let planned = |cpu: CpuId| {
        let mut settings = machine.plan.frequencies.iter();
        settings.find(|setting| setting.cpus.contains(cpu))?.min_khz
    };
    let (mut slow, mut actual) = (Vec::new(), Vec::new());
    for cpu in machine.forwarding.iter() {
        let now = machine.value::<u64>(&format!("{CPUS}/cpu{cpu}/cpufreq/scaling_cur_freq"));
        let Some(now) = now else { continue };
        let text = format!("CPU {cpu} {now} kHz");
        let least = planned(cpu).map(|khz| khz as f64 * FREQUENCY_SLACK);
        if least.is_some_and(|least| (now as f64) < least) {
            slow.push(text.clone());
        }
        actual.push(text);
    }
    let expected = "forwarding CPUs at or above their planned lower limit";
    if actual.is_empty() {
        return Check::unknown(name, files, expected, UNREADABLE);
    }
    let is_fine = slow.is_empty();
    let reported = some_of(if is_fine { &actual } else { &slow });
    let remedy = "check the governor, the limits, temperature and power (turbostat)";
    Check::new(name, files, expected, reported, is_fine, remedy)
}

/// Checks that no class uses more of the cache than its ways.
fn occupancy(interval: &Interval<'_>) -> Vec<Check> {
    let machine = interval.machine;
    if machine.plan.classes.is_empty() {
        return Vec::new();
    }
    let (name, files) = ("cache-use", "/sys/fs/resctrl/**/mon_data/*/llc_occupancy");
    let expected = "each class within its ways";
    let resctrl = Resctrl::find(&Disk, machine.root);
    let all = resctrl.as_ref().and_then(|resctrl| {
        let caches = resctrl.info(&Disk).caches;
        caches
            .iter()
            .find(|(name, _)| name.starts_with("L3"))
            .map(|(_, cache)| cache.cbm_mask)
    });
    let (Some(resctrl), Some(all)) = (resctrl, all) else {
        return vec![Check::unknown(name, files, expected, UNREADABLE)];
    };
    let (mut wrong, mut actual) = (Vec::new(), Vec::new());
    for class in &machine.plan.classes {
        let Some(size) = cache_octets(interval, class) else {
            continue;
        };
        let group = if class.is_default { "" } else { &class.name };
        for monitor in resctrl.monitor(&Disk, group) {
            let domain = monitor
                .domain
                .rsplit('_')
                .next()
                .and_then(|text| text.parse().ok());
            let mask = class
                .masks
                .iter()
                .find(|mask| mask.level == 3 && Some(mask.domain) == domain);
            let (Some(mask), Some(used)) = (mask, monitor.occupancy) else {
                continue;
            };
            let share = f64::from(mask.mask.count_ones()) / f64::from(all.count_ones().max(1));
            let most = size as f64 * share * OCCUPANCY_SLACK;
            let text = format!("{} {} KiB of {}", class.name, used / 1024, monitor.domain);
            if used as f64 > most {
                wrong.push(text.clone());
            }
            actual.push(text);
        }
    }
    if actual.is_empty() {
        return vec![Check::unknown(
            name,
            files,
            expected,
            "this processor does not measure cache occupancy",
        )];
    }
    let is_fine = wrong.is_empty();
    let reported = some_of(if is_fine { &actual } else { &wrong });
    let remedy = "occupancy shrinks within minutes after a class loses ways; otherwise check the tasks of the class";
    vec![Check::new(name, files, expected, reported, is_fine, remedy)]
}

/// Returns the size of the last level cache of a class's CPUs, octets.
fn cache_octets(interval: &Interval<'_>, class: &Class) -> Option<u64> {
    let cpu = class.cpus.first().unwrap_or(CpuId(0));
    let size = interval
        .machine
        .text(&format!("{CPUS}/cpu{cpu}/cache/index3/size"))?;
    cache_kib(&size)?.checked_mul(1024)
}

/// Checks the results of the osnoise tracer if it is running. Verification does not start it, because it never writes.
fn noise(interval: &Interval<'_>) -> Check {
    let machine = interval.machine;
    let name = "noise";
    let expected = format!(
        "isolated CPUs {} at least {AVAILABLE} % available",
        machine.isolated
    );
    let running = TRACING.iter().find(|directory| {
        machine
            .text(&format!("{directory}/current_tracer"))
            .as_deref()
            == Some("osnoise")
    });
    let Some(directory) = running else {
        let why = "the kernel's osnoise tracer is not running; quietwire host jitter --cpus LIST measures gaps while nothing forwards";
        return Check::unknown(name, format!("/{}/trace", TRACING[0]), expected, why);
    };
    let file = format!("{directory}/trace");
    let available = available(&machine.text(&file).unwrap_or_default(), &machine.isolated);
    if available.is_empty() {
        return Check::unknown(
            name,
            format!("/{file}"),
            expected,
            "no results for isolated CPUs yet",
        );
    }
    let reported = |(cpu, share): (&CpuId, &f64)| format!("CPU {cpu} {share} %");
    let wrong: Vec<String> = available
        .iter()
        .filter(|(_, share)| **share < AVAILABLE)
        .map(reported)
        .collect();
    let is_fine = wrong.is_empty();
    let actual = if is_fine {
        some_of(&available.iter().map(reported).collect::<Vec<_>>())
    } else {
        some_of(&wrong)
    };
    let remedy = "see the following columns for the kind of noise: hardware, NMI, interrupt, softirq, thread";
    Check::new(name, format!("/{file}"), expected, actual, is_fine, remedy)
}

/// Returns the column `% OF CPU AVAILABLE` of each CPU's last line (kernel documentation: trace/osnoise-tracer.rst).
fn available(trace: &str, cpus: &CpuList) -> BTreeMap<CpuId, f64> {
    /// Index of the column after the time.
    const COLUMN: usize = 2;
    let mut found = BTreeMap::new();
    for line in trace
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
    {
        let cpu = line
            .split_once('[')
            .and_then(|(_, rest)| rest.split(']').next());
        let Some(cpu) = cpu.and_then(|cpu| cpu.trim().parse().ok()).map(CpuId) else {
            continue;
        };
        let share = line
            .split_once(": ")
            .and_then(|(_, rest)| rest.split_whitespace().nth(COLUMN)?.parse().ok());
        if let Some(share) = share.filter(|_| cpus.contains(cpu)) {
            found.insert(cpu, share);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tracer_s_table_is_read() {
        let trace = "# tracer: osnoise\n#\n           <...>-859     [000] ....    81.637220: 1000000        190  99.98100       9     18      0   1007     18      1\n           <...>-860     [002] ....    81.638154: 1000000          4  99.99960       2      1      0      1      0      0\n";
        let found = available(trace, &"2-3".parse().unwrap());
        assert_eq!(found, BTreeMap::from([(CpuId(2), 99.9996)]));
    }
}
