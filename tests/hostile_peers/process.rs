// SPDX-License-Identifier: Apache-2.0
//! The kernel's information on a process.

use std::fs;
use std::time::Duration;

use crate::rig::{DEADLINE, within};

/// Resources of a process that a peer can exhaust.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Footprint {
    pub(crate) descriptors: usize,
    mappings: usize,
    pub(crate) memory_kib: usize,
}

/// Normal variation: buffers that are touched for the first time, former mappings that wait for a thread.
const MORE_MEMORY_KIB: usize = 24 << 10;
const MORE_MAPPINGS: usize = 16;

impl Footprint {
    /// Returns the resources; `None` if the process has ended.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let memory = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?
            .trim_end_matches("kB")
            .trim();
        Some(Self {
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count(),
            mappings: fs::read_to_string(format!("/proc/{pid}/maps"))
                .ok()?
                .lines()
                .count(),
            memory_kib: memory.parse().ok()?,
        })
    }

    fn is_at_most(&self, before: &Self) -> bool {
        self.descriptors <= before.descriptors
            && self.mappings <= before.mappings + MORE_MAPPINGS
            && self.memory_kib <= before.memory_kib + MORE_MEMORY_KIB
    }

    /// Waits until the process uses at most `self` again.
    pub(crate) fn assert_restored(&self, pid: u32) {
        let mut last = None;
        let found = within(DEADLINE, || {
            last = Self::of(pid);
            last.filter(|now| now.is_at_most(self)).map(|_| ())
        });
        assert!(found.is_some(), "{self:?} became {last:?}");
    }
}

/// Returns the octets of shared memory that a process has page table entries for.
pub(crate) fn shared_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssShmem:"));
    let kib: u64 = line.unwrap().trim_end_matches("kB").trim().parse().unwrap();
    kib << 10
}

/// Returns the page faults of the forwarding threads, without those that read from a disk.
pub(crate) fn forwarding_faults(pid: u32) -> u64 {
    let forwarding = threads(pid).into_iter().filter(|thread| thread.forwards);
    forwarding.map(|thread| thread.faults).sum()
}

/// Returns the CPU time of all threads of a process but the forwarding ones.
pub(crate) fn other_threads(pid: u32) -> Duration {
    let others = threads(pid).into_iter().filter(|thread| !thread.forwards);
    // USER_HZ is 100 on every architecture that quietwire runs on.
    Duration::from_millis(others.map(|thread| thread.ticks).sum::<u64>() * 10)
}

struct Thread {
    forwards: bool,
    faults: u64,
    ticks: u64,
}

fn threads(pid: u32) -> Vec<Thread> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let read = |task: std::io::Result<fs::DirEntry>| {
        let path = task.unwrap().path();
        // A thread may have ended.
        let name = fs::read_to_string(path.join("comm")).ok()?;
        let stat = fs::read_to_string(path.join("stat")).ok()?;
        // proc_pid_stat(5): minflt, utime and stime are the 8th, 12th and 13th fields after the name in parentheses.
        let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 2..]
            .split_whitespace()
            .collect();
        let number = |field: usize| fields[field].parse::<u64>().unwrap();
        Some(Thread {
            forwards: name.starts_with("qw-fwd"),
            faults: number(7),
            ticks: number(11) + number(12),
        })
    };
    tasks.filter_map(read).collect()
}
