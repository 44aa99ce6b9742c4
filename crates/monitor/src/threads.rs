// SPDX-License-Identifier: Apache-2.0
//! Threads of the watched processes, from `/proc/PID/task/TID` (proc(5)).

use std::fs;
use std::path::Path;

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
pub(crate) struct ThreadSeen {
    pub(crate) name: String,
    /// Start time in ticks since boot. It distinguishes threads if a thread ID is reused.
    started: u64,
    cpu: u32,
    ticks: u64,
    voluntary: u64,
    nonvoluntary: u64,
    migrations: Option<u64>,
}

/// Fields of `/proc/PID/stat` counted from the first behind the name's closing parenthesis.
const UTIME: usize = 11;
const STIME: usize = 12;
const START_TIME: usize = 19;
const PROCESSOR: usize = 36;

pub(crate) fn read(root: &Path, pid: u32) -> Vec<((u32, i32), ThreadSeen)> {
    let tasks = root.join(format!("proc/{pid}/task"));
    let Ok(entries) = fs::read_dir(tasks) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let tid = path.file_name()?.to_str()?.parse().ok()?;
            // A thread that ends during the read is omitted, like one that ended before.
            Some(((pid, tid), one(&path)?))
        })
        .collect()
}

fn one(task: &Path) -> Option<ThreadSeen> {
    let stat = fs::read_to_string(task.join("stat")).ok()?;
    let fields: Vec<&str> = stat
        .get(stat.rfind(')')? + 1..)?
        .split_whitespace()
        .collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    let status = fs::read_to_string(task.join("status")).ok()?;
    let field = |key: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(key))
            .map(str::trim)
    };
    let sched = fs::read_to_string(task.join("sched")).unwrap_or_default();
    let migrations = sched.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.trim()
            .ends_with("nr_migrations")
            .then(|| value.trim().parse().ok())?
    });
    Some(ThreadSeen {
        name: field("Name:").unwrap_or_default().to_owned(),
        started: number(START_TIME)?,
        cpu: u32::try_from(number(PROCESSOR)?).ok()?,
        ticks: number(UTIME)? + number(STIME)?,
        voluntary: field("voluntary_ctxt_switches:")?.parse().ok()?,
        nonvoluntary: field("nonvoluntary_ctxt_switches:")?.parse().ok()?,
        migrations,
    })
}

impl ThreadSeen {
    /// Returns true if both snapshots are of the same thread.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.started == other.started
    }
}

impl ThreadActivity {
    pub(crate) fn between(
        (pid, tid): (u32, i32),
        then: &ThreadSeen,
        now: &ThreadSeen,
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
