// SPDX-License-Identifier: Apache-2.0
//! Counters of a device about its own work: cycles by step, bursts, nodes of its graph. Each program has its own names.

use std::collections::BTreeMap;

use quietwire_switch::report::{CyclesReport, NodeMemory, PortReport, QueueCycles};
use serde::{Deserialize, Serialize};

use crate::counts::errors;
use crate::statistics::Statistics;
use crate::vpp_runtime::nodes;

/// Largest number of parts in a view.
const PARTS_MAX: usize = 256;
/// Largest number of counters of a part.
const COUNTERS_MAX: usize = 1024;
/// Longest name of a part or a counter, octets.
const NAME_MAX: usize = 64;

/// A device's counters of its own work since its start, or the increase during a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnView {
    /// Its parts, such as threads, by the names that the program gives them.
    pub parts: BTreeMap<String, PartView>,
    /// Statistics of the drivers of its ports, such as network cards: by port, with the drivers' names. A statistic that fell is left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub drivers: BTreeMap<String, BTreeMap<String, u64>>,
    /// Memory of its ports at the time of the sample, if it reports that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<PortMemory>,
    /// Unavailable sources, such as a command, with the reason as a clause. Sources of the sample before a trial and of that after it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unavailable: BTreeMap<String, String>,
}

/// Memory of a port: rings and buffers, or the memory of its guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortMemory {
    /// Name of the port.
    pub port: String,
    /// CPUs of the threads that poll it, in ascending order.
    pub cpus: Vec<u32>,
    /// Memory by NUMA node, estimated from some of its pages.
    pub nodes: Vec<NodeMemory>,
}

/// Largest number of NUMA nodes and of CPUs of a port's memory.
const NODES_MAX: usize = 64;

/// Name of the part of VPP's errors.
const ERRORS: &str = "errors";

/// Names of the burst sizes that quietwire's switch counts.
const BURST_SIZES: [&str; 7] = [
    "bursts of 1",
    "bursts of 2",
    "bursts of 3 to 4",
    "bursts of 5 to 8",
    "bursts of 9 to 16",
    "bursts of 17 to 32",
    "bursts of 33 to 64",
];

/// Counters of a part of a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartView {
    /// Counters by name. The names are those of the program.
    pub counters: BTreeMap<String, u64>,
    /// Values at the time of the sample that are no counters, such as means of the program.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, f64>,
}

impl PartView {
    fn count(&mut self, name: &str, number: u64) {
        if name.len() <= NAME_MAX && self.counters.len() < COUNTERS_MAX {
            self.counters.insert(name.to_owned(), number);
        }
    }

    fn set(&mut self, name: &str, number: f64) {
        let fits = name.len() <= NAME_MAX && self.values.len() < COUNTERS_MAX;
        if fits && number.is_finite() {
            self.values.insert(name.to_owned(), number);
        }
    }

    /// Adds the counters of another interval. Values that both have are those of this one.
    fn add(&mut self, other: &Self) {
        for (name, number) in &other.counters {
            match self.counters.get_mut(name) {
                Some(sum) => *sum = sum.saturating_add(*number),
                None => self.count(name, *number),
            }
        }
        for (name, number) in &other.values {
            if !self.values.contains_key(name) {
                self.set(name, *number);
            }
        }
    }

    /// Returns the increase since an earlier sample; `None` if a counter went backwards.
    fn since(&self, then: &Self) -> Option<Self> {
        let counters = self.counters.iter().map(|(name, now)| {
            // A counter that the program did not show before was zero.
            let before = then.counters.get(name).copied().unwrap_or(0);
            Some((name.clone(), now.checked_sub(before)?))
        });
        Some(Self {
            counters: counters.collect::<Option<_>>()?,
            values: self.values.clone(),
        })
    }
}

impl OwnView {
    /// Returns the increase since an earlier sample, with the values of this one; `None` if a counter went backwards. Counters that did
    /// not change are left out, and counters without an earlier value if a source of the earlier sample was unavailable.
    #[must_use]
    pub fn since(&self, then: &Self) -> Option<Self> {
        let none = PartView::default();
        // A part or a statistic that the program did not show before was zero, unless it could not show it.
        let is_complete = then.unavailable.is_empty();
        let known = self.parts.iter();
        let known = known.filter(|(name, _)| is_complete || then.parts.contains_key(*name));
        let parts = known.map(|(name, now)| {
            let mut part = now.since(then.parts.get(name).unwrap_or(&none))?;
            part.counters.retain(|_, increase| *increase > 0);
            Some((name.clone(), part))
        });
        let drivers = self.drivers.iter().filter_map(|(port, now)| {
            let before = then.drivers.get(port);
            let increases = now.iter().filter_map(|(name, now)| {
                let before = before.and_then(|before| before.get(name)).copied();
                let before = before.or(is_complete.then_some(0))?;
                let increase = now.checked_sub(before)?;
                (increase > 0).then(|| (name.clone(), increase))
            });
            let increases: BTreeMap<String, u64> = increases.collect();
            (!increases.is_empty()).then(|| (port.clone(), increases))
        });
        Some(Self {
            parts: parts.collect::<Option<_>>()?,
            drivers: drivers.collect(),
            memory: self.memory.clone(),
            unavailable: then
                .unavailable
                .iter()
                .chain(&self.unavailable)
                .map(|(source, reason)| (source.clone(), reason.clone()))
                .collect(),
        })
    }

    /// Returns the part of this name, which is created if it fits.
    fn part(&mut self, name: &str) -> Option<&mut PartView> {
        let has_space = self.parts.len() < PARTS_MAX && name.len() <= NAME_MAX;
        if has_space || self.parts.contains_key(name) {
            return Some(self.parts.entry(name.to_owned()).or_default());
        }
        None
    }

    fn reported(self, printed: &str) -> Result<Self, String> {
        let has_counters = self.parts.values().any(|part| !part.counters.is_empty());
        if has_counters {
            return Ok(self);
        }
        let first: String = printed.trim().chars().take(NAME_MAX).collect();
        Err(format!("it said '{first}'"))
    }

    /// Adds the statistics of the drivers of ports, as of `show ports`.
    pub(crate) fn with_ports(self, ports: &[PortReport]) -> Self {
        let mut statistics = Statistics::default();
        for port in ports {
            for (name, value) in &port.driver {
                statistics.set(&port.counts.name, name, *value);
            }
        }
        self.with_statistics(statistics)
    }

    /// Adds the memory of ports, as of `show ports`, with the CPUs of their queues, as of `show cycles`.
    pub(crate) fn with_memory(mut self, ports: &[PortReport], queues: &[QueueCycles]) -> Self {
        for port in ports.iter().take(PARTS_MAX) {
            let name = &port.counts.name;
            if port.memory.is_empty() || name.len() > NAME_MAX {
                continue;
            }
            let own = queues.iter().filter(|queue| queue.port == *name);
            let mut cpus: Vec<u32> = own.filter_map(|queue| queue.cpu).collect();
            cpus.sort_unstable();
            cpus.dedup();
            cpus.truncate(NODES_MAX);
            self.memory.push(PortMemory {
                port: name.clone(),
                cpus,
                nodes: port.memory.iter().take(NODES_MAX).copied().collect(),
            });
        }
        self
    }

    /// Adds statistics of ports.
    pub(crate) fn with_statistics(mut self, statistics: Statistics) -> Self {
        self.drivers.extend(statistics.ports);
        self.unavailable.extend(statistics.unavailable);
        self
    }

    /// Returns statistics of ports as the view of a program that counts nothing else.
    ///
    /// # Errors
    /// The reason of the first unavailable source, if no port has statistics.
    pub(crate) fn of_statistics(statistics: Statistics) -> Result<Self, String> {
        if statistics.ports.is_empty() {
            let mut reasons = statistics.unavailable.into_iter();
            let first = reasons.next();
            let reason = first.map(|(source, reason)| format!("{source}: {reason}"));
            return Err(reason.unwrap_or_else(|| "it has no ports".to_owned()));
        }
        Ok(Self::default().with_statistics(statistics))
    }

    /// Adds the counters of another interval of the same parts. Values that both have are those of this one.
    pub(crate) fn with_interval(mut self, other: &Self) -> Self {
        for (name, counts) in &other.parts {
            if let Some(part) = self.part(name) {
                part.add(counts);
            }
        }
        self
    }

    /// Returns the same counters without values.
    pub(crate) fn without_values(mut self) -> Self {
        for part in self.parts.values_mut() {
            part.values.clear();
        }
        self
    }

    /// Adds VPP's errors, from the output of `show errors`: counters by node and reason, summed over threads.
    pub(crate) fn with_errors(mut self, printed: Result<String, String>) -> Self {
        match printed {
            Ok(printed) => {
                let mut sums: BTreeMap<String, u64> = BTreeMap::new();
                for (count, node, reason) in errors(&printed) {
                    let name = format!("{node} {reason}");
                    let name: String = name.chars().take(NAME_MAX).collect();
                    let sum = sums.entry(name).or_default();
                    *sum = sum.saturating_add(count);
                }
                // The part exists without errors, too: an error that follows has a value before the trial.
                if let Some(part) = self.part(ERRORS) {
                    for (name, count) in &sums {
                        part.count(name, *count);
                    }
                }
            }
            Err(reason) => {
                let mut lacking = Statistics::default();
                lacking.lacks("show errors", &reason);
                self.unavailable.extend(lacking.unavailable);
            }
        }
        self
    }

    /// Returns the answer to `show cycles`: cycles, bursts and frames of each step of each forwarding thread, and frames and burst sizes of
    /// each receive queue.
    pub(crate) fn of_quietwire(report: &CyclesReport) -> Self {
        let mut view = Self::default();
        for thread in &report.threads {
            let Some(part) = view.part(&format!("CPU {}", thread.cpu)) else {
                continue;
            };
            for step in &thread.steps {
                part.count(&format!("{} cycles", step.step), step.cycles);
                part.count(&format!("{} bursts", step.step), step.bursts);
                part.count(&format!("{} frames", step.step), step.frames);
            }
        }
        for queue in &report.queues {
            let Some(part) = view.part(&format!("queue {} of {}", queue.queue, queue.port)) else {
                continue;
            };
            part.count("frames", queue.frames);
            for (name, bursts) in BURST_SIZES.iter().zip(queue.burst_sizes) {
                part.count(name, bursts);
            }
        }
        view
    }

    /// Parses the output of `ovs-appctl dpif-netdev/pmd-perf-show` (lib/dpif-netdev-perf.c, `pmd_perf_format_overall_stats`): a line
    /// `pmd thread numa_id 0 core_id 1:` for each thread, then lines `NAME: NUMBER (REMARKS)`. Histograms have no such lines.
    pub(crate) fn of_pmd_perf(printed: &str) -> Result<Self, String> {
        let mut view = Self::default();
        let mut part = None;
        for line in printed.lines() {
            let line = line.trim();
            if let Some(thread) = line.strip_suffix(':') {
                let is_thread = thread.starts_with("pmd thread") || thread == "main thread";
                part = is_thread.then(|| thread.to_owned());
                continue;
            }
            let counter = line.split_once(':').and_then(|(name, rest)| {
                let number = rest.split_whitespace().next()?.parse::<u64>().ok()?;
                Some((name.trim_start_matches("- "), number))
            });
            let Some((name, number)) = counter else {
                continue;
            };
            if let Some(part) = part.as_deref().and_then(|part| view.part(part)) {
                part.count(name, number);
            }
        }
        view.reported(printed)
    }

    /// Parses the output of VPP's `show runtime` (vlib/node_cli.c, `format_vlib_node_stats`): calls, vectors and suspends of each active
    /// node of each thread, and its clocks for each vector.
    ///
    /// # Errors
    ///
    /// Returns the first words of a text that has no such line.
    pub fn of_runtime(printed: &str) -> Result<Self, String> {
        let mut view = Self::default();
        for node in nodes(printed) {
            let Some(part) = view.part(node.thread) else {
                continue;
            };
            part.count(&format!("{} calls", node.name), node.calls);
            part.count(&format!("{} vectors", node.name), node.vectors);
            part.count(&format!("{} suspends", node.name), node.suspends);
            part.set(&format!("{} clocks", node.name), node.clocks);
        }
        view.reported(printed)
    }
}

#[cfg(test)]
mod tests {
    use quietwire_switch::report::{PortCounts, StepCounts, ThreadCycles};

    use super::*;

    const PMD_PERF: &str = include_str!("../tests/corpus/pmd-perf/two-threads");
    /// With `pmd-perf-metrics=true`: histograms, and the last iterations and milliseconds, follow the counters (ovs-vswitchd(8),
    /// "DPIF-NETDEV COMMANDS").
    const HISTOGRAMS: &str = include_str!("../tests/corpus/pmd-perf/histograms");
    const RUNTIME: &str = include_str!("../tests/corpus/vpp-runtime/two-threads");
    const ONE_THREAD: &str = include_str!("../tests/corpus/vpp-runtime/one-thread");

    #[test]
    fn threads_of_open_vswitch_have_their_iterations_hits_and_batches() {
        let view = OwnView::of_pmd_perf(PMD_PERF).unwrap();
        let names: Vec<&str> = view.parts.keys().map(String::as_str).collect();
        assert_eq!(names, ["main thread", "pmd thread numa_id 0 core_id 1"]);
        let counters = &view.parts[names[1]].counters;
        for (name, number) in [
            ("Iterations", 2_400_118),
            ("Used TSC cycles", 9_600_472_310),
            ("busy iterations", 31_250),
            ("Rx packets", 1_000_000),
            ("EMC hits", 999_998),
            ("Lost upcalls", 0),
            ("Tx batches", 31_250),
        ] {
            assert_eq!(counters[name], number, "{name}");
        }
        for wrong in ["", "pmd thread numa_id 0 core_id 1:\n", "Rx packets: 4\n"] {
            assert!(OwnView::of_pmd_perf(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn histograms_and_tables_of_open_vswitch_are_no_counters() {
        let view = OwnView::of_pmd_perf(HISTOGRAMS).unwrap();
        let parts: Vec<&String> = view.parts.keys().collect();
        assert_eq!(parts, ["pmd thread numa_id 0 core_id 1"]);
        let counters = &view.parts[parts[0]].counters;
        let wanted = [
            ("Datapath passes", 500_000),
            ("EMC hits", 499_999),
            ("Iterations", 1_200_059),
            ("Lost upcalls", 0),
            ("Megaflow hits", 0),
            ("Rx packets", 500_000),
            ("SMC hits", 0),
            ("Tx batches", 15_625),
            ("Tx packets", 500_000),
            ("Upcalls", 1),
            ("Used TSC cycles", 4_800_236_155),
            ("busy iterations", 15_625),
            ("idle iterations", 1_184_434),
        ];
        let counters: Vec<(&str, u64)> = counters
            .iter()
            .map(|(name, number)| (name.as_str(), *number))
            .collect();
        assert_eq!(counters, wanted);
    }

    #[test]
    fn a_single_thread_of_vpp_has_its_nodes_and_no_line_of_the_head() {
        let view = OwnView::of_runtime(ONE_THREAD).unwrap();
        assert_eq!(view.parts.len(), 1);
        let main = &view.parts["vpp_main"];
        // States of one and of two words.
        assert_eq!(main.counters["af-packet-input vectors"], 500_000);
        assert_eq!(main.counters["dpdk-process suspends"], 5);
        assert_eq!(main.counters["error-drop calls"], 1);
        assert_eq!(main.values["unix-epoll-input clocks"], 1330.0);
        assert_eq!((main.counters.len(), main.values.len()), (6 * 3, 6));
    }

    #[test]
    fn nodes_of_vpp_have_calls_and_vectors_by_thread() {
        let view = OwnView::of_runtime(RUNTIME).unwrap();
        let worker = &view.parts["vpp_wk_0"];
        assert_eq!(worker.counters["memif-input vectors"], 1_000_000);
        assert_eq!(worker.counters["memif-input calls"], 297_451_577);
        assert_eq!(worker.values["memif1/0-output clocks"], 32.1);
        // A state of two words.
        assert_eq!(
            view.parts["vpp_main"].counters["ip4-full-reassembly-expire-wal suspends"],
            12
        );
        // A single thread has no line of its own.
        let single = "Time 1.0, average vectors/node 0\n l2-fwd active 5 10 0 1.0e1 2.0\n";
        assert!(
            OwnView::of_runtime(single)
                .unwrap()
                .parts
                .contains_key("vpp_main")
        );
        for wrong in ["", "show: unknown input\n", " a active 1 2 x 1.0 1.0\n"] {
            assert!(OwnView::of_runtime(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn intervals_of_vpp_are_summed_up_with_the_means_of_the_later_one() {
        let view = |printed: &str| OwnView::of_runtime(printed).unwrap();
        let trial = view("a active 2 8 0 3.0 4.0\nb active 1 8 0 5.0 8.0\n");
        let both = trial.with_interval(&view("a active 1 2 0 9.0 2.0\nc active 1 1 0 7.0 1.0\n"));
        let main = &both.parts["vpp_main"];
        let count = |name: &str| main.counters[name];
        assert_eq!(
            (count("a vectors"), count("b calls"), count("c calls")),
            (10, 1, 1)
        );
        let mean = |name: &str| main.values[name];
        assert_eq!((mean("a clocks"), mean("c clocks")), (3.0, 7.0));
        assert!(both.without_values().parts["vpp_main"].values.is_empty());
    }

    #[test]
    fn a_trial_has_the_increase_and_no_part_that_began_again() {
        let report = |cycles| CyclesReport {
            threads: vec![ThreadCycles {
                cpu: 3,
                steps: vec![
                    StepCounts {
                        step: "receive".to_owned(),
                        cycles,
                        bursts: 1,
                        frames: 32,
                    },
                    StepCounts::default(),
                ],
            }],
            ..CyclesReport::default()
        };
        let [before, after] = [100, 350].map(|cycles| OwnView::of_quietwire(&report(cycles)));
        let increase = after.since(&before).unwrap();
        let counters = &increase.parts["CPU 3"].counters;
        assert_eq!(
            counters.iter().collect::<Vec<_>>(),
            [(&"receive cycles".to_owned(), &250)]
        );
        assert_eq!(before.since(&after), None);
        let stored = serde_json::to_value(&increase).unwrap();
        assert_eq!(serde_json::from_value::<OwnView>(stored).unwrap(), increase);
    }

    #[test]
    fn queues_have_their_burst_sizes_and_ports_the_statistics_of_their_drivers() {
        let view = |frames: u64, fallen: u64| {
            let report = CyclesReport {
                queues: vec![QueueCycles {
                    port: "p0".to_owned(),
                    queue: 1,
                    frames,
                    burst_sizes: [frames, 0, 0, 0, 0, 2, 0],
                    ..QueueCycles::default()
                }],
                ..CyclesReport::default()
            };
            let port = PortReport {
                driver: BTreeMap::from([
                    ("rx_good_packets".to_owned(), frames),
                    ("rx_level".to_owned(), fallen),
                ]),
                counts: PortCounts {
                    name: "p0".to_owned(),
                    ..PortCounts::default()
                },
                ..PortReport::default()
            };
            OwnView::of_quietwire(&report).with_ports(&[port])
        };
        let increase = view(9, 1).since(&view(4, 3)).unwrap();
        let queue = &increase.parts["queue 1 of p0"].counters;
        let queue: Vec<(&str, u64)> = queue
            .iter()
            .map(|(name, number)| (name.as_str(), *number))
            .collect();
        assert_eq!(queue, [("bursts of 1", 5), ("frames", 5)]);
        // A level that fell is no counter, and does not remove the others.
        let driver = BTreeMap::from([("rx_good_packets".to_owned(), 5)]);
        assert_eq!(increase.drivers["p0"], driver);
        let stored = serde_json::to_value(&increase).unwrap();
        assert_eq!(serde_json::from_value::<OwnView>(stored).unwrap(), increase);
        assert!(view(4, 3).since(&view(4, 3)).unwrap().drivers.is_empty());
    }

    #[test]
    fn errors_of_vpp_are_a_part_and_statistics_alone_are_a_view() {
        let view = |errors: Result<&str, &str>| {
            let runtime = OwnView::of_runtime(ONE_THREAD).unwrap();
            runtime.with_errors(errors.map(str::to_owned).map_err(str::to_owned))
        };
        let errors = "   Count   Node   Reason   Severity\n 20 memif1/0-tx no free tx slots error\n \
                      1 memif1/0-tx no free tx slots error\n 9 l2-output L2 output packets error\n";
        let increase = view(Ok(errors)).since(&view(Ok(""))).unwrap();
        let counted = &increase.parts[ERRORS].counters;
        assert_eq!(counted["memif1/0-tx no free tx slots"], 21);
        assert_eq!(counted["l2-output L2 output packets"], 9);
        // Without a value before the trial there is no increase.
        let increase = view(Ok(errors)).since(&view(Err("no reply"))).unwrap();
        assert!(!increase.parts.contains_key(ERRORS) && !increase.parts.is_empty());
        assert_eq!(increase.unavailable["show errors"], "no reply");

        let mut statistics = Statistics::default();
        statistics.lacks("ethtool -S p0", "no stats available");
        let reason = OwnView::of_statistics(statistics.clone()).unwrap_err();
        assert_eq!(reason, "ethtool -S p0: no stats available");
        let before = statistics.clone();
        statistics.set("p0", "rx packets", 5);
        let [mut before, after] =
            [before, statistics].map(|one| OwnView::default().with_statistics(one));
        // A statistic of a source that was unavailable has no value before the trial.
        let increase = after.since(&before).unwrap();
        assert!(increase.drivers.is_empty() && increase.unavailable.len() == 1);
        before.unavailable.clear();
        let increase = after.since(&before).unwrap();
        assert_eq!(increase.drivers["p0"]["rx packets"], 5);
        let stored = serde_json::to_value(&increase).unwrap();
        assert_eq!(serde_json::from_value::<OwnView>(stored).unwrap(), increase);
    }

    #[test]
    fn ports_have_the_nodes_of_their_memory_and_the_cpus_that_poll_them() {
        let on = |node, kib| NodeMemory { node, kib };
        let port = |name: &str, memory| PortReport {
            memory,
            counts: PortCounts {
                name: name.to_owned(),
                ..PortCounts::default()
            },
            ..PortReport::default()
        };
        let queue = |port: &str, cpu| QueueCycles {
            port: port.to_owned(),
            cpu,
            ..QueueCycles::default()
        };
        let ports = [port("p0", vec![on(0, 96), on(1, 32)]), port("p1", vec![])];
        let queues = [
            queue("p0", Some(5)),
            queue("p1", Some(4)),
            queue("p0", Some(3)),
            queue("p0", Some(5)),
            queue("p0", None),
        ];
        let before = OwnView::default();
        let after = OwnView::default().with_memory(&ports, &queues);
        let increase = after.since(&before).unwrap();
        let wanted = PortMemory {
            port: "p0".to_owned(),
            cpus: vec![3, 5],
            nodes: vec![on(0, 96), on(1, 32)],
        };
        assert_eq!(increase.memory, [wanted]);
        let stored = serde_json::to_value(&increase).unwrap();
        assert_eq!(serde_json::from_value::<OwnView>(stored).unwrap(), increase);
    }

    #[test]
    fn a_view_is_bounded() {
        let mut printed = String::new();
        for thread in 0..2 * PARTS_MAX {
            printed += &format!("pmd thread numa_id 0 core_id {thread}:\n Rx packets: 1\n");
        }
        assert_eq!(
            OwnView::of_pmd_perf(&printed).unwrap().parts.len(),
            PARTS_MAX
        );
        let mut printed = String::new();
        for node in 0..2 * COUNTERS_MAX {
            printed += &format!("node-{node} active 1 2 0 1.0 2.0\n");
        }
        let view = OwnView::of_runtime(&printed).unwrap();
        assert_eq!(view.parts["vpp_main"].counters.len(), COUNTERS_MAX);
        let long = format!("{} active 1 2 0 1.0 2.0\n", "n".repeat(NAME_MAX));
        assert!(OwnView::of_runtime(&long).is_err());
    }
}
