// SPDX-License-Identifier: Apache-2.0
//! CPUs, caches and interrupts grouped by equal properties, one line per group, so that `host show` fits one page on a
//! machine with hundreds of them.

use std::collections::BTreeMap;

use quietwire_host::CpuList;
use quietwire_host::inventory::{Cache, CoreKind, CpuPlace, Frequency, IdleState, Inventory};

/// Most lines of one kind. Further lines are only counted.
const KINDS_SHOWN: usize = 8;

/// Name and value of each line.
pub(super) type Lines = Vec<(&'static str, String)>;

/// Lists dies, kinds of cores, frequencies and idle states with their CPUs, then caches and interrupts.
pub(super) fn lines(machine: &Inventory) -> Lines {
    let mut lines = Lines::new();
    let dies = by_value(&machine.cpus, |cpu| Some((cpu.package?, cpu.die?)));
    let packages = machine.packages.unwrap_or(1);
    if dies.len() > packages {
        let shown = dies.iter().map(|((package, die), cpus)| {
            ("die", format!("{die} of package {package}: CPUs {cpus}"))
        });
        add(&mut lines, shown.collect());
    }
    add(&mut lines, kinds(&machine.cpus));
    add(&mut lines, frequencies(&machine.cpus));
    add(&mut lines, idle_states(&machine.cpus));
    add(&mut lines, caches(&machine.caches));
    add(&mut lines, interrupts(machine));
    lines
}

fn add(lines: &mut Lines, mut more: Lines) {
    let left = more.len().saturating_sub(KINDS_SHOWN);
    more.truncate(KINDS_SHOWN);
    if let Some((name, _)) = more.last().filter(|_| left > 0) {
        more.push((name, format!("and {left} more kinds (--json lists all)")));
    }
    lines.extend(more);
}

/// Groups CPUs by the value that `look` returns, in order of the value. CPUs without a value are left out.
fn by_value<K: Ord>(
    cpus: &[CpuPlace],
    look: impl Fn(&CpuPlace) -> Option<K>,
) -> BTreeMap<K, CpuList> {
    let mut found: BTreeMap<K, Vec<_>> = BTreeMap::new();
    for cpu in cpus {
        if let Some(value) = look(cpu) {
            found.entry(value).or_default().push(cpu.cpu);
        }
    }
    let joined = |(value, cpus): (K, Vec<_>)| (value, cpus.into_iter().collect());
    found.into_iter().map(joined).collect()
}

fn kinds(cpus: &[CpuPlace]) -> Lines {
    let name = |kind: &CoreKind| match kind {
        CoreKind::Performance => "performance",
        CoreKind::Efficiency => "efficiency",
    };
    let kinds = by_value(cpus, |cpu| cpu.kind);
    let lines = kinds
        .iter()
        .map(|(kind, cpus)| ("kind of core", format!("{}: CPUs {cpus}", name(kind))));
    lines.collect()
}

fn frequencies(cpus: &[CpuPlace]) -> Lines {
    let found = by_value(cpus, |cpu| cpu.frequency.as_ref().map(frequency));
    let lines = found.iter().filter(|(text, _)| !text.is_empty());
    lines
        .map(|(text, cpus)| ("frequency", format!("{text}: CPUs {cpus}")))
        .collect()
}

fn frequency(frequency: &Frequency) -> String {
    let mhz = |khz: u64| khz / 1000;
    let range = |low: Option<u64>, high: Option<u64>| Some((mhz(low?), mhz(high?)));
    let mut parts = Vec::new();
    parts.extend(
        frequency
            .base_khz
            .map(|base| format!("base {} MHz", mhz(base))),
    );
    let possible = range(frequency.lowest_khz, frequency.highest_khz);
    parts.extend(possible.map(|(low, high)| format!("{low} to {high} MHz possible")));
    let allowed = range(frequency.min_khz, frequency.max_khz);
    parts.extend(allowed.map(|(low, high)| format!("{low} to {high} MHz allowed")));
    parts.extend(
        frequency
            .governor
            .as_ref()
            .map(|governor| format!("governor {governor}")),
    );
    parts.extend(
        frequency
            .driver
            .as_ref()
            .map(|driver| format!("driver {driver}")),
    );
    parts.join(", ")
}

fn idle_states(cpus: &[CpuPlace]) -> Lines {
    let found = by_value(cpus, |cpu| {
        let states: Vec<String> = cpu.idle_states.iter().map(idle_state).collect();
        (!states.is_empty()).then(|| states.join(", "))
    });
    let lines = found.iter();
    lines
        .map(|(text, cpus)| ("idle states", format!("{text}: CPUs {cpus}")))
        .collect()
}

fn idle_state(state: &IdleState) -> String {
    let latency = state
        .latency_us
        .map_or(String::new(), |latency| format!(" {latency} µs"));
    let off = if state.is_disabled == Some(true) {
        " off"
    } else {
        ""
    };
    format!("{}{latency}{off}", state.name)
}

fn caches(caches: &[Cache]) -> Lines {
    let mut alike: BTreeMap<_, usize> = BTreeMap::new();
    for cache in caches {
        let sharing = cache.cpus.len();
        let kind = (
            cache.level,
            &cache.kind,
            cache.size_kib,
            cache.ways,
            sharing,
        );
        let count = alike.entry(kind).or_default();
        *count = count.saturating_add(1);
    }
    let line = |((level, kind, size, ways, sharing), count): (_, usize)| {
        let (size, ways): (Option<u64>, Option<u32>) = (size, ways);
        let kind: &String = kind;
        let kind = if kind == "Unified" {
            String::new()
        } else {
            format!(" {}", kind.to_lowercase())
        };
        let size = size.map_or(String::new(), |kib| format!(" of {kib} KiB"));
        let ways = ways.map_or(String::new(), |ways| format!(", {ways} ways"));
        let cpus = if sharing == 1 { "CPU" } else { "CPUs" };
        (
            "cache",
            format!("L{level}{kind}: {count}{size}{ways}, {sharing} {cpus} each"),
        )
    };
    alike.into_iter().map(line).collect()
}

/// Counts the interrupts of each affinity mask.
fn interrupts(machine: &Inventory) -> Lines {
    let mut allowed: BTreeMap<String, usize> = BTreeMap::new();
    for irq in &machine.irqs {
        if let Some(cpus) = &irq.allowed {
            let count = allowed.entry(cpus.to_string()).or_default();
            *count = count.saturating_add(1);
        }
    }
    let lines = allowed.into_iter();
    lines
        .map(|(cpus, count)| {
            (
                "interrupts",
                format!("{count} with affinity to CPUs {cpus}"),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quietwire_host::recording::Root;

    /// Returns a machine with two CPUs that differ in their governor.
    fn machine() -> Inventory {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let cpus = "sys/devices/system/cpu";
        put(&format!("{cpus}/online"), "0-1\n");
        put(&format!("{cpus}/present"), "0-1\n");
        for cpu in 0..2 {
            let at = format!("{cpus}/cpu{cpu}");
            put(&format!("{at}/topology/physical_package_id"), "0\n");
            put(&format!("{at}/topology/die_id"), &format!("{cpu}\n"));
            put(&format!("{at}/topology/core_id"), &format!("{cpu}\n"));
            put(&format!("{at}/cpufreq/cpuinfo_min_freq"), "800000\n");
            put(&format!("{at}/cpufreq/cpuinfo_max_freq"), "3500000\n");
            put(&format!("{at}/cpufreq/base_frequency"), "2100000\n");
            put(
                &format!("{at}/cpufreq/scaling_governor"),
                ["performance\n", "powersave\n"][cpu],
            );
            for (state, name, latency, disable) in [(0, "POLL", "0", "0"), (1, "C6", "133", "1")] {
                put(&format!("{at}/cpuidle/state{state}/name"), name);
                put(&format!("{at}/cpuidle/state{state}/latency"), latency);
                put(&format!("{at}/cpuidle/state{state}/disable"), disable);
            }
            let cache = format!("{at}/cache/index0");
            put(&format!("{cache}/level"), "2\n");
            put(&format!("{cache}/type"), "Unified\n");
            put(&format!("{cache}/size"), "2048K\n");
            put(&format!("{cache}/shared_cpu_list"), &format!("{cpu}\n"));
            put(&format!("{cache}/ways_of_associativity"), "16\n");
        }
        for irq in 24..27 {
            put(
                &format!("proc/irq/{irq}/smp_affinity_list"),
                ["0\n", "0-1\n"][usize::from(irq > 24)],
            );
        }
        let read = Root::open(root.path()).unwrap();
        Inventory::read(read.path())
    }

    #[test]
    fn equal_cpus_share_one_line() {
        let shown: Vec<String> = lines(&machine())
            .into_iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        let fast = "base 2100 MHz, 800 to 3500 MHz possible, governor";
        assert_eq!(
            shown,
            [
                "die 0 of package 0: CPUs 0".to_owned(),
                "die 1 of package 0: CPUs 1".to_owned(),
                format!("frequency {fast} performance: CPUs 0"),
                format!("frequency {fast} powersave: CPUs 1"),
                "idle states POLL 0 µs, C6 133 µs off: CPUs 0-1".to_owned(),
                "cache L2: 2 of 2048 KiB, 16 ways, 1 CPU each".to_owned(),
                "interrupts 1 with affinity to CPUs 0".to_owned(),
                "interrupts 2 with affinity to CPUs 0-1".to_owned(),
            ]
        );
    }

    #[test]
    fn kinds_beyond_the_limit_are_counted() {
        let mut all = Lines::new();
        add(
            &mut all,
            (0..11)
                .map(|number| ("cache", number.to_string()))
                .collect(),
        );
        assert_eq!(all.len(), KINDS_SHOWN + 1);
        assert_eq!(
            all[KINDS_SHOWN],
            ("cache", "and 3 more kinds (--json lists all)".to_owned())
        );
    }
}
