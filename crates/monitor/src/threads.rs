// SPDX-License-Identifier: Apache-2.0
//! Threads of the watched processes, from `/proc/PID/task/TID` (proc(5)).

use std::path::Path;

use quietwire_base::proc::{Stat, Status};
use quietwire_host::proc::{self, Thread};
use serde::{Deserialize, Serialize};

use crate::ticks::difference;

/// Activity of one thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadActivity {
    /// Process ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: i32,
    /// Name.
    pub name: String,
    /// CPU that it last ran on.
    pub cpu: u32,
    /// CPU time, seconds.
    pub cpu_time_s: f64,
    /// Voluntary context switches: the thread went to sleep.
    pub voluntary_switches: u64,
    /// Nonvoluntary context switches: the thread was preempted.
    pub nonvoluntary_switches: u64,
    /// Migrations to another CPU, if the kernel reports them.
    pub migrations: Option<u64>,
}

/// Counters of one thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadCounters {
    pub(crate) name: String,
    /// Start time in ticks since boot. It distinguishes threads if a thread ID is reused.
    started: u64,
    cpu: u32,
    ticks: u64,
    voluntary: u64,
    nonvoluntary: u64,
    migrations: Option<u64>,
}

/// The threads of a process; none if it has ended.
pub(crate) fn read(root: &Path, pid: u32) -> Vec<((u32, i32), ThreadCounters)> {
    let number = i32::try_from(pid).ok();
    let threads = number.and_then(|pid| proc::threads(root, pid).ok());
    // A thread that ends while it is read is left out, as if it had ended before.
    let seen = |thread: &Thread| Some(((pid, thread.tid()), one(thread)?));
    threads.iter().flatten().filter_map(seen).collect()
}

fn one(thread: &Thread) -> Option<ThreadCounters> {
    let text = thread.stat().ok()?;
    let stat = Stat::parse(&text)?;
    let text = thread.status().ok()?;
    let status = Status::new(&text);
    Some(ThreadCounters {
        name: status.name().unwrap_or_default(),
        started: stat.start_time()?,
        cpu: stat.cpu()?,
        ticks: stat.user_ticks()? + stat.system_ticks()?,
        voluntary: status.voluntary_switches()?,
        nonvoluntary: status.involuntary_switches()?,
        migrations: thread.migrations(),
    })
}

impl ThreadCounters {
    /// Returns true if both snapshots are of the same thread.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.started == other.started
    }
}

impl ThreadActivity {
    pub(crate) fn between(
        (pid, tid): (u32, i32),
        then: &ThreadCounters,
        now: &ThreadCounters,
        ticks_per_second: f64,
        anomalies: &mut Vec<String>,
    ) -> Self {
        let mut since = |what: &str, then: u64, now: u64| {
            difference(
                &format!("{what} of thread {tid} of process {pid}"),
                then,
                now,
                anomalies,
            )
        };
        let ticks = since("CPU time", then.ticks, now.ticks);
        let voluntary_switches = since("voluntary switches", then.voluntary, now.voluntary);
        let nonvoluntary_switches =
            since("nonvoluntary switches", then.nonvoluntary, now.nonvoluntary);
        let migrations = then
            .migrations
            .zip(now.migrations)
            .map(|(then, now)| since("migrations", then, now));
        Self {
            pid,
            tid,
            name: now.name.clone(),
            cpu: now.cpu,
            cpu_time_s: ticks as f64 / ticks_per_second,
            voluntary_switches,
            nonvoluntary_switches,
            migrations,
        }
    }
}
