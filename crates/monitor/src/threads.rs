// SPDX-License-Identifier: Apache-2.0
//! Threads of the watched processes, of `/proc/PID/task/TID` (proc(5)).

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::ticks::difference;

/// What one thread did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadActivity {
    /// Its process.
    pub pid: u32,
    /// Its number.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// CPU that it ran on last.
    pub cpu: u32,
    /// CPU time that it used, seconds.
    pub cpu_time_s: f64,
    /// Times that it went to sleep.
    pub voluntary_switches: u64,
    /// Times that another was run in its place.
    pub nonvoluntary_switches: u64,
    /// Times that it was moved to another CPU, where the kernel tells.
    pub migrations: Option<u64>,
}

/// What the counters of one thread showed.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadSeen {
    pub(crate) name: String,
    /// Ticks since boot: a number may be given to another thread later, with another start.
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
            // A thread that ends while it is read is left out, as if it had ended before.
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
    /// True when both are sights of one thread.
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
