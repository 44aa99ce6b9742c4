// SPDX-License-Identifier: Apache-2.0
//! Cost of forwarding, as switches count it.

use quietwire_switch::report::CyclesReport;
use serde::{Deserialize, Serialize};

use crate::vpp_runtime::{NodeKind, has_worker, nodes};

/// Cost of a switch's forwarding since its start, summed over its forwarding threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleCount {
    /// Ticks of the time stamp counter spent on frames, without empty polls.
    pub cycles: u64,
    /// Frames received.
    pub frames: u64,
    /// `cycles` of each forwarding thread, in the switch's order. Empty in stores of versions before 0.2.0, and if `input_cycles` are
    /// separate.
    #[serde(default)]
    pub threads: Vec<u64>,
    /// Bursts that contained the frames. 0 if the device does not count them, and in stores of versions before 0.2.0.
    #[serde(default)]
    pub bursts: u64,
    /// Cycles of the nodes that received the frames, empty polls included, if the device does not separate both: `cycles` are those of all
    /// other nodes then. None if `cycles` include the cost to receive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_cycles: Option<u64>,
}

impl CycleCount {
    /// Returns the increase since an earlier sample; `None` if the counters were reset meanwhile.
    #[must_use]
    pub fn since(&self, then: &Self) -> Option<Self> {
        let threads = self.threads.iter().zip(&then.threads);
        let threads = threads.map(|(now, then)| now.checked_sub(*then));
        Some(Self {
            cycles: self.cycles.checked_sub(then.cycles)?,
            frames: self.frames.checked_sub(then.frames)?,
            threads: threads.collect::<Option<_>>()?,
            bursts: self.bursts.checked_sub(then.bursts)?,
            input_cycles: match (self.input_cycles, then.input_cycles) {
                (Some(now), then) => Some(now.checked_sub(then.unwrap_or(0))?),
                (None, _) => None,
            },
        })
    }

    /// Returns true if `cycles` include the cost to receive frames.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.input_cycles.is_none()
    }

    /// Adds the counts of a later interval of a device without counts by thread.
    pub(crate) fn add(&mut self, later: &Self) {
        self.cycles = self.cycles.saturating_add(later.cycles);
        self.frames = self.frames.saturating_add(later.frames);
        if let Some(input) = later.input_cycles {
            let sum = self.input_cycles.unwrap_or(0).saturating_add(input);
            self.input_cycles = Some(sum);
        }
    }

    /// Returns the share of `ticks`, 0 to 1, in which the busiest thread had no frames; `None` if no thread counted cycles.
    #[must_use]
    pub fn idle_ratio(&self, ticks: f64) -> Option<f64> {
        let busiest = *self.threads.iter().max()?;
        (busiest > 0 && ticks > 0.0).then(|| (1.0 - busiest as f64 / ticks).max(0.0))
    }

    /// Sums the answer to `show cycles` over threads.
    pub(crate) fn of_quietwire(report: &CyclesReport) -> Self {
        let mut count = Self::default();
        for thread in &report.threads {
            count.threads.push(0);
            for step in &thread.steps {
                if step.is_forwarding() {
                    count.add_cycles(step.cycles);
                }
                if step.is_receiving() {
                    count.frames = count.frames.saturating_add(step.frames);
                    count.bursts = count.bursts.saturating_add(step.bursts);
                }
            }
        }
        count
    }

    /// Adds cycles of the last thread.
    fn add_cycles(&mut self, cycles: u64) {
        self.cycles = self.cycles.saturating_add(cycles);
        if let Some(last) = self.threads.last_mut() {
            *last = last.saturating_add(cycles);
        }
    }

    /// Parses the output of `ovs-appctl dpif-netdev/pmd-stats-show` (lib/dpif-netdev.c, `pmd_info_show_stats`): a thread that has processed
    /// nothing yet has no line of cycles.
    pub(crate) fn of_ovs(printed: &str) -> Result<Self, String> {
        let mut count = Self::default();
        let mut is_reported = false;
        for line in printed.lines() {
            let Some((key, rest)) = line.trim().split_once(": ") else {
                continue;
            };
            if !matches!(key, "packets received" | "processing cycles") {
                continue;
            }
            let number = rest.split_whitespace().next().unwrap_or_default();
            let number = number
                .parse::<u64>()
                .map_err(|_| format!("it said '{}'", line.trim()))?;
            if key == "packets received" {
                count.frames = count.frames.saturating_add(number);
            } else {
                count.threads.push(0);
                count.add_cycles(number);
            }
            is_reported = true;
        }
        if is_reported {
            Ok(count)
        } else {
            Err(format!("it said '{}'", printed.trim()))
        }
    }

    /// Parses the output of testpmd's `show fwd stats all` (app/test-pmd/testpmd.c, `fwd_stats_display`) with cycles recorded. After the sums
    /// of all ports, it has a line of cycles, except before the first frame. They are those of calls that received and sent frames, called
    /// `total cycles` up to DPDK 22.11 and `busy cycles` since 23.03.
    ///
    /// # Errors
    /// The output has no sums, or frames without cycles.
    pub(crate) fn of_testpmd(printed: &str) -> Result<Self, String> {
        let (_, sums) = printed
            .rsplit_once("Accumulated forward statistics for all ports")
            .ok_or("`show fwd stats all` has no sums of all ports")?;
        let mut lines = sums.lines().map(str::trim);
        if let Some(line) = lines.find(|line| line.starts_with("CPU cycles/packet=")) {
            return Self::of_testpmd_line(line).ok_or_else(|| format!("it said '{line}'"));
        }
        let number = |name: &str| -> Option<u64> {
            let (_, rest) = sums.split_once(name)?;
            rest.split_whitespace().next()?.parse().ok()
        };
        match (number("RX-packets:"), number("TX-packets:")) {
            (Some(0), Some(0)) => Ok(Self::default()),
            _ => Err("`show fwd stats all` has no cycles".to_owned()),
        }
    }

    /// Parses testpmd's line of cycles, such as `CPU cycles/packet=50.00 (busy cycles=5000 / total io packets=100) at 2300 MHz Clock`.
    fn of_testpmd_line(line: &str) -> Option<Self> {
        let (_, counts) = line.split_once(" (")?;
        let (_, counts) = counts.split_once(" cycles=")?;
        let (cycles, counts) = counts.split_once(" / ")?;
        let (_, counts) = counts.split_once(" packets=")?;
        let (frames, _) = counts.split_once(')')?;
        Some(Self {
            cycles: cycles.parse().ok()?,
            frames: frames.parse().ok()?,
            ..Self::default()
        })
    }

    /// Parses the output of VPP's `show runtime`: the nodes of its workers. An input node counts the cycles of its empty polls and of
    /// those with frames together, so they are separate, and the idle time of the threads is unknown. Nodes that received no frame are
    /// left out.
    ///
    /// # Errors
    /// The output has no worker.
    pub(crate) fn of_vpp(printed: &str) -> Result<Self, String> {
        if !has_worker(printed) {
            return Err("`show runtime` has no worker thread".to_owned());
        }
        let (mut count, mut input_cycles) = (Self::default(), 0_u64);
        for node in nodes(printed).filter(|node| node.is_of_worker()) {
            match node.kind {
                NodeKind::Input => {
                    count.frames = count.frames.saturating_add(node.vectors);
                    input_cycles = input_cycles.saturating_add(node.cycles());
                }
                NodeKind::Internal => count.add_cycles(node.cycles()),
                NodeKind::Process => {}
            }
        }
        count.input_cycles = Some(input_cycles);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use quietwire_switch::report::{StepCounts, ThreadCycles};

    use super::*;

    #[test]
    fn quietwires_threads_are_summed_up_without_what_forwards_nothing() {
        let step = |name: &str, cycles, frames| StepCounts {
            step: name.to_owned(),
            cycles,
            bursts: 1,
            frames,
        };
        let thread = |cpu, steps| ThreadCycles { cpu, steps };
        let first = vec![
            step("idle", 900, 0),
            step("receive", 100, 32),
            step("send", 60, 32),
            step("control", 5, 0),
        ];
        let report = CyclesReport {
            threads: vec![thread(1, first), thread(2, vec![step("receive", 10, 1)])],
            ..CyclesReport::default()
        };
        let wanted = CycleCount {
            cycles: 170,
            frames: 33,
            threads: vec![160, 10],
            bursts: 2,
            input_cycles: None,
        };
        assert_eq!(CycleCount::of_quietwire(&report), wanted);
    }

    #[test]
    fn threads_of_open_vswitch_are_summed_up() {
        let printed = "pmd thread numa_id 0 core_id 1:\n  packets received: 2000\n  packet recirculations: 0\n  \
                    avg. datapath passes per packet: 1.00\n  idle cycles: 4356 (86.72%)\n  processing cycles: 500000 (13.28%)\n  \
                    avg cycles per packet: 300.00 (600000/2000)\n  avg processing cycles per packet: 250.00 (500000/2000)\n\
                    main thread:\n  packets received: 0\n  packet recirculations: 0\n";
        let count = CycleCount::of_ovs(printed).unwrap();
        let wanted = CycleCount {
            cycles: 500_000,
            frames: 2000,
            threads: vec![500_000],
            bursts: 0,
            input_cycles: None,
        };
        assert_eq!(count, wanted);
        for wrong in ["", "packets received: many\n"] {
            assert!(CycleCount::of_ovs(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_cycles_of_testpmd_are_those_of_all_its_ports() {
        let total = include_str!("../tests/corpus/testpmd-cycles/total-cycles");
        let busy = include_str!("../tests/corpus/testpmd-cycles/busy-cycles");
        let count = CycleCount::of_testpmd;
        let wanted = |cycles, frames| CycleCount {
            cycles,
            frames,
            ..CycleCount::default()
        };
        assert_eq!(count(total).unwrap(), wanted(61_250_000, 1_000_000));
        assert_eq!(count(busy).unwrap(), wanted(120_750_000, 2_100_000));
        // They include the cost to receive, and no thread is known by its own.
        assert!(count(busy).unwrap().is_complete());
        assert_eq!(count(busy).unwrap().idle_ratio(1e9), None);
        // The last answer counts.
        assert_eq!(count(&format!("{total}{busy}")), count(busy));
        // No line of cycles before the first frame.
        let none = include_str!("../tests/corpus/testpmd-cycles/no-frames");
        assert_eq!(count(none).unwrap(), CycleCount::default());
        let line = total
            .lines()
            .find(|line| line.contains("CPU cycles"))
            .unwrap();
        let reason = |printed: &str| count(printed).unwrap_err();
        let unrecorded = total.replace(line, "");
        assert_eq!(reason(&unrecorded), "`show fwd stats all` has no cycles");
        for (old, new) in [
            ("cycles=61", "cycles=x"),
            (" / total", ""),
            ("=1000000)", "="),
        ] {
            let wrong = total.replace(line, &line.replace(old, new));
            assert!(reason(&wrong).starts_with("it said 'CPU cycles"), "{wrong}");
        }
        for wrong in ["", "Command not found\n", line] {
            let expected = "`show fwd stats all` has no sums of all ports";
            assert_eq!(reason(wrong), expected, "{wrong}");
        }
    }

    #[test]
    fn input_nodes_of_vpp_are_separate_because_they_count_empty_polls() {
        let printed = include_str!("../tests/corpus/vpp-runtime/cross-connect");
        let count = CycleCount::of_vpp(printed).unwrap();
        // 21.0 + 14.4 + 10.2 + 9.4 + 30.0 for each frame. vhost-user-input received none.
        let wanted = CycleCount {
            cycles: 85_000_000,
            frames: 1_000_000,
            threads: Vec::new(),
            bursts: 0,
            input_cycles: Some(55_500_000),
        };
        assert_eq!(count, wanted);
        assert!(!count.is_complete() && count.idle_ratio(1e9).is_none());
        let mut sum = CycleCount::default();
        assert!(sum.is_complete());
        sum.add(&count);
        let before = sum.clone();
        sum.add(&count);
        assert_eq!(sum.since(&before), Some(count));
        assert_eq!(before.since(&sum), None);
        let quiet = "Thread 0 vpp_main (lcore 0)\nThread 1 vpp_wk_0 (lcore 1)\n";
        assert_eq!(CycleCount::of_vpp(quiet).unwrap().input_cycles, Some(0));
        for wrong in [
            "",
            "show: unknown input\n",
            "memif-input polling 5 12 0 1.0e1 2.4\n",
        ] {
            assert!(CycleCount::of_vpp(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn counters_that_began_again_tell_nothing() {
        let count = |cycles, frames, threads: &[u64]| CycleCount {
            cycles,
            frames,
            threads: threads.to_vec(),
            bursts: frames,
            input_cycles: None,
        };
        let then = count(10, 2, &[4, 6]);
        let between = count(20, 3, &[15, 5]);
        assert_eq!(count(30, 5, &[19, 11]).since(&then), Some(between));
        assert_eq!(count(30, 1, &[19, 11]).since(&then), None);
        assert_eq!(count(30, 5, &[3, 27]).since(&then), None);
    }

    #[test]
    fn the_busiest_thread_determines_the_idle_time() {
        let count = |threads: &[u64]| CycleCount {
            threads: threads.to_vec(),
            ..CycleCount::default()
        };
        assert_eq!(count(&[10, 75, 20]).idle_ratio(100.0), Some(0.25));
        // Both clocks are read at different times.
        assert_eq!(count(&[101]).idle_ratio(100.0), Some(0.0));
        for unknown in [&[] as &[u64], &[0, 0]] {
            assert_eq!(count(unknown).idle_ratio(100.0), None);
        }
        assert_eq!(count(&[10]).idle_ratio(0.0), None);
    }

    #[test]
    fn sums_that_overflow_saturate() {
        let printed = format!("packets received: {}\n", u64::MAX).repeat(2);
        assert_eq!(CycleCount::of_ovs(&printed).unwrap().frames, u64::MAX);
        let step = StepCounts {
            step: "receive".to_owned(),
            cycles: u64::MAX,
            bursts: 1,
            frames: u64::MAX,
        };
        let thread = ThreadCycles {
            cpu: 1,
            steps: vec![step.clone(), step],
        };
        let report = CyclesReport {
            threads: vec![thread],
            ..CyclesReport::default()
        };
        let count = CycleCount::of_quietwire(&report);
        assert_eq!((count.cycles, count.frames), (u64::MAX, u64::MAX));
    }
}
