// SPDX-License-Identifier: Apache-2.0
//! Snapshots of the machine's counters, and the differences between two of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::cpus::{self, CpuActivity, CpuTicks};
use crate::interrupts::{self, InterruptCount};
use crate::threads::{self, ThreadActivity, ThreadCounters};
use crate::ticks::{difference, ticks_per_second};

/// Error of a snapshot.
#[derive(Debug, thiserror::Error)]
#[error("{}: {cause}", path.display())]
pub struct MonitorError {
    /// The file.
    pub path: PathBuf,
    /// Error of the system, or problem of the text.
    pub cause: String,
}

/// Counters of the machine at an instant.
#[derive(Clone, Debug)]
pub struct Snapshot {
    taken: Instant,
    ticks_per_second: f64,
    cpus: BTreeMap<u32, CpuTicks>,
    threads: BTreeMap<(u32, i32), ThreadCounters>,
    interrupts: BTreeMap<u32, u64>,
}

/// Activity of the machine between two snapshots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// Time between the snapshots, seconds.
    pub elapsed_s: f64,
    /// Every CPU that was online at both snapshots.
    pub cpus: Vec<CpuActivity>,
    /// Threads of the watched processes that existed at both snapshots.
    pub threads: Vec<ThreadActivity>,
    /// Threads that existed at the first snapshot only.
    pub vanished_threads: usize,
    /// Threads that existed at the second snapshot only.
    pub new_threads: usize,
    /// Interrupts that each CPU served.
    pub interrupts: Vec<InterruptCount>,
    /// Counters that went backwards and other anomalies, one sentence each.
    pub anomalies: Vec<String>,
}

impl Snapshot {
    /// Reads the counters below `root`, and those of all threads of `pids`. A process that has ended has no threads.
    ///
    /// # Errors
    /// [`MonitorError`] if `/proc/stat` cannot be read. Missing details elsewhere are omitted.
    pub fn take(root: &Path, pids: &[u32]) -> Result<Self, MonitorError> {
        let path = root.join("proc/stat");
        let stat = fs::read_to_string(&path).map_err(|error| MonitorError {
            path: path.clone(),
            cause: error.to_string(),
        })?;
        let cpus = cpus::parse(&stat);
        if cpus.is_empty() {
            return Err(MonitorError {
                path,
                cause: "no CPU in this file".to_owned(),
            });
        }
        let interrupts = fs::read_to_string(root.join("proc/interrupts"))
            .map(|text| interrupts::parse(&text))
            .unwrap_or_default();
        Ok(Self {
            taken: Instant::now(),
            ticks_per_second: ticks_per_second(),
            cpus,
            threads: pids
                .iter()
                .flat_map(|pid| threads::read(root, *pid))
                .collect(),
            interrupts,
        })
    }
}

impl Activity {
    /// Returns the activity from `before` to `after`.
    #[must_use]
    pub fn between(before: &Snapshot, after: &Snapshot) -> Self {
        let mut anomalies = Vec::new();
        let mut cpus = Vec::new();
        for (cpu, now) in &after.cpus {
            if let Some(then) = before.cpus.get(cpu) {
                cpus.push(CpuActivity::between(
                    *cpu,
                    then,
                    now,
                    after.ticks_per_second,
                    &mut anomalies,
                ));
            }
        }
        let mut threads = Vec::new();
        let mut new_threads = 0;
        for (id, now) in &after.threads {
            match before.threads.get(id).filter(|then| then.is_same(now)) {
                Some(then) => threads.push(ThreadActivity::between(
                    *id,
                    then,
                    now,
                    after.ticks_per_second,
                    &mut anomalies,
                )),
                None => new_threads += 1,
            }
        }
        let mut vanished_threads = 0;
        for ((pid, tid), then) in &before.threads {
            let now = after.threads.get(&(*pid, *tid));
            if !now.is_some_and(|now| now.is_same(then)) {
                vanished_threads += 1;
                anomalies.push(format!(
                    "thread {} ({tid}) of process {pid} ended",
                    then.name
                ));
            }
        }
        for cpu in before
            .cpus
            .keys()
            .filter(|cpu| !after.cpus.contains_key(cpu))
        {
            anomalies.push(format!("CPU {cpu} went offline"));
        }
        let interrupts = after
            .interrupts
            .iter()
            .filter_map(|(cpu, now)| {
                let then = before.interrupts.get(cpu)?;
                let count = difference(
                    &format!("interrupts of CPU {cpu}"),
                    *then,
                    *now,
                    &mut anomalies,
                );
                Some(InterruptCount { cpu: *cpu, count })
            })
            .collect();
        Self {
            elapsed_s: after.taken.duration_since(before.taken).as_secs_f64(),
            cpus,
            vanished_threads,
            new_threads,
            threads,
            interrupts,
            anomalies,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a machine with one thread, which started at this tick.
    fn machine_with(
        stat: &str,
        interrupts: &str,
        switches: u64,
        started: u64,
    ) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let task = root.path().join("proc/7/task/8");
        fs::create_dir_all(&task).unwrap();
        fs::write(root.path().join("proc/stat"), stat).unwrap();
        fs::write(root.path().join("proc/interrupts"), interrupts).unwrap();
        // Fields 3 to 52 of proc(5): user time is the 14th, start time the 22nd, the CPU the 39th.
        let (before, after) = ("0 ".repeat(6), "0 ".repeat(13));
        fs::write(
            task.join("stat"),
            format!("8 (qw fwd) 1) R 1 1 1 0 -1 0 0 0 0 0 {switches} 10 {before}{started} 0 0 {after}0 1 {after}\n"),
        )
        .unwrap();
        fs::write(
            task.join("status"),
            format!("Name:\tqw fwd) 1\nvoluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t5\n"),
        )
        .unwrap();
        fs::write(
            task.join("sched"),
            format!("x (8, #threads: 1)\nse.nr_migrations    :    {switches}\n"),
        )
        .unwrap();
        root
    }

    fn machine(stat: &str, interrupts: &str, switches: u64) -> tempfile::TempDir {
        machine_with(stat, interrupts, switches, 500)
    }

    #[test]
    fn the_difference_of_two_recorded_instants() {
        let before = machine(
            "cpu  1 1 1 1\ncpu0 100 5 50 1000 2 3 4 6 10 1\ncpu1 0 0 0 0 0 0 0 0 0 0\n",
            "      CPU0 CPU1\n 0: 10 20 timer\nNMI: 1 2 Non-maskable\nERR: 0\n",
            3,
        );
        let after = machine(
            "cpu  9 9 9 9\ncpu0 220 5 60 1050 2 3 4 16 30 1\ncpu1 0 0 0 0 0 0 0 0 0 0\ncpu2 1 1 1 1 1 1 1 1 1 1\n",
            "      CPU0 CPU1\n 0: 15 10 timer\nNMI: 2 2 Non-maskable\nERR: 0\n",
            9,
        );
        let before = Snapshot::take(before.path(), &[7, 99]).unwrap();
        let after = Snapshot::take(after.path(), &[7, 99]).unwrap();
        let activity = Activity::between(&before, &after);
        let cpu = &activity.cpus[0];
        let close = |seen: f64, wanted: f64| assert!((seen - wanted).abs() < 1e-9, "{cpu:?}");
        // User time includes guest time, which is separate here: 120 ticks minus the 20 of guests.
        close(cpu.user_s, 1.0);
        close(cpu.guest_s, 0.2);
        close(cpu.system_s, 0.1);
        close(cpu.idle_s, 0.5);
        close(cpu.steal_s, 0.1);
        assert_eq!(activity.cpus.len(), 2);
        assert_eq!(activity.interrupts[0], InterruptCount { cpu: 0, count: 6 });
        assert_eq!(activity.interrupts[1].count, 0);
        assert!(
            activity.anomalies[0].contains("interrupts of CPU 1"),
            "{:?}",
            activity.anomalies
        );
        let thread = &activity.threads[0];
        assert_eq!(
            (thread.pid, thread.tid, thread.name.as_str()),
            (7, 8, "qw fwd) 1")
        );
        assert_eq!(
            (
                thread.voluntary_switches,
                thread.nonvoluntary_switches,
                thread.migrations
            ),
            (6, 0, Some(6))
        );
        assert!((thread.cpu_time_s - 0.06).abs() < 1e-9);
        assert_eq!(thread.cpu, 1);
        assert_eq!((activity.vanished_threads, activity.new_threads), (0, 0));
    }

    #[test]
    fn what_went_away_is_reported_by_name() {
        let two = "cpu0 1 1 1 1 1 1 1 1 1 1\ncpu1 1 1 1 1 1 1 1 1 1 1\n";
        let one = "cpu0 1 1 1 1 1 1 1 1 1 1\n";
        let take = |root: &tempfile::TempDir| Snapshot::take(root.path(), &[7]).unwrap();
        let before = machine(two, "", 3);
        // The thread ID was reused by another thread, so its counters did not go backwards.
        let reused = machine_with(one, "", 1, 900);
        let activity = Activity::between(&take(&before), &take(&reused));
        assert_eq!((activity.vanished_threads, activity.new_threads), (1, 1));
        assert!(activity.threads.is_empty());
        let reported = [
            "thread qw fwd) 1 (8) of process 7 ended",
            "CPU 1 went offline",
        ];
        assert_eq!(activity.anomalies, reported);
        let gone = machine(two, "", 3);
        fs::remove_dir_all(gone.path().join("proc/7")).unwrap();
        let activity = Activity::between(&take(&before), &take(&gone));
        assert_eq!((activity.vanished_threads, activity.new_threads), (1, 0));
    }

    #[test]
    fn a_kernel_that_does_not_count_migrations_and_interrupts_is_not_guessed_for() {
        let root = machine("cpu0 1 1 1 1 1 1 1 1 1 1\n", "", 3);
        fs::remove_file(root.path().join("proc/7/task/8/sched")).unwrap();
        fs::remove_file(root.path().join("proc/interrupts")).unwrap();
        let seen = Snapshot::take(root.path(), &[7]).unwrap();
        let activity = Activity::between(&seen, &seen);
        assert_eq!(activity.threads[0].migrations, None);
        assert!(activity.interrupts.is_empty());
    }

    #[test]
    fn the_running_machine_can_be_watched() {
        let pid = std::process::id();
        let before = Snapshot::take(Path::new("/"), &[pid]).unwrap();
        let after = Snapshot::take(Path::new("/"), &[pid]).unwrap();
        let activity = Activity::between(&before, &after);
        assert!(!activity.cpus.is_empty() && !activity.threads.is_empty());
        assert!(activity.elapsed_s >= 0.0);
    }

    #[test]
    fn no_counters_is_an_error_that_names_the_file() {
        let root = tempfile::tempdir().unwrap();
        let error = Snapshot::take(root.path(), &[]).unwrap_err().to_string();
        assert!(error.contains("proc/stat"), "{error}");
        fs::create_dir_all(root.path().join("proc")).unwrap();
        fs::write(root.path().join("proc/stat"), "intr 1\n").unwrap();
        assert!(Snapshot::take(root.path(), &[]).is_err());
    }
}
