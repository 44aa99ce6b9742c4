// SPDX-License-Identifier: Apache-2.0
//! Threads of the watched processes, from `/proc/PID/task/TID` (proc(5); Documentation/scheduler/sched-stats.rst).

use std::collections::BTreeMap;
use std::path::Path;

use quietwire_base::proc::{Stat, Status};
use quietwire_host::proc::{self, Thread};
use quietwire_host::tasks::forwards_for;
use serde::{Deserialize, Serialize};

use crate::monitor::{Monitor, Owner, Target, Unavailable, Watched};
use crate::ticks::{difference, ticks_per_second};

/// Activity of one thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadActivity {
    /// Process ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: i32,
    /// Name.
    pub name: String,
    /// Owner of the process. None in stores of earlier versions, which watched device and tester only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// True if the name is that of a forwarding thread of a data plane.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_forwarding: bool,
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
    /// Time in which the thread could run but had no CPU, seconds, if the kernel reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_delay_s: Option<f64>,
}

/// Counters of one thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadCounters {
    name: String,
    owner: Option<Owner>,
    is_forwarding: bool,
    /// Start time in ticks since boot. It distinguishes threads if a thread ID is reused.
    started: u64,
    cpu: u32,
    ticks: u64,
    voluntary: u64,
    nonvoluntary: u64,
    migrations: Option<u64>,
    run_delay_ns: Option<u64>,
}

/// Threads between two instants.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ThreadsActivity {
    /// Threads that existed at both instants.
    pub(crate) threads: Vec<ThreadActivity>,
    /// Number of threads that existed at the first instant only.
    pub(crate) vanished: usize,
    /// Number of threads that existed at the second instant only.
    pub(crate) new: usize,
}

pub(crate) struct Threads;

impl Monitor for Threads {
    const NAME: &'static str = "threads";
    /// Threads by process and thread ID.
    type Counters = BTreeMap<(u32, i32), ThreadCounters>;
    type Activity = ThreadsActivity;

    /// Reads the counters of all threads. A process that has ended has none.
    fn read(target: &Target<'_>) -> Result<Self::Counters, Unavailable> {
        let of_process = |watched: &Watched| of_process(target.root, *watched);
        Ok(target.watched.iter().flat_map(of_process).collect())
    }

    fn between(
        then: &Self::Counters,
        now: &Self::Counters,
        anomalies: &mut Vec<String>,
    ) -> Self::Activity {
        let ticks_per_second = ticks_per_second();
        let mut found = ThreadsActivity::default();
        for (id, now) in now {
            match then.get(id).filter(|then| then.is_same(now)) {
                Some(then) => found.threads.push(ThreadActivity::between(
                    *id,
                    then,
                    now,
                    ticks_per_second,
                    anomalies,
                )),
                None => found.new = found.new.saturating_add(1),
            }
        }
        for ((pid, tid), then) in then {
            let now = now.get(&(*pid, *tid));
            if !now.is_some_and(|now| now.is_same(then)) {
                found.vanished = found.vanished.saturating_add(1);
                // Neighbours may end their threads at any time.
                if then.owner != Some(Owner::Neighbour) {
                    anomalies.push(format!(
                        "thread {} ({tid}) of process {pid} ended",
                        then.name
                    ));
                }
            }
        }
        found
    }
}

/// Returns the threads of a process; none if it has ended.
fn of_process(root: &Path, watched: Watched) -> Vec<((u32, i32), ThreadCounters)> {
    let Ok(pid) = i32::try_from(watched.pid) else {
        return Vec::new();
    };
    let threads = proc::threads(root, pid).unwrap_or_default();
    let process = proc::process_name(root, pid);
    // A thread that ends while it is read is left out, as if it had ended before.
    let observed = |thread: &Thread| {
        let counters = read_thread(thread, &process)?;
        let owner = watched.owner;
        Some((
            (watched.pid, thread.tid()),
            ThreadCounters { owner, ..counters },
        ))
    };
    threads.iter().filter_map(observed).collect()
}

fn read_thread(thread: &Thread, process: &str) -> Option<ThreadCounters> {
    let text = thread.stat().ok()?;
    let stat = Stat::parse(&text)?;
    let text = thread.status().ok()?;
    let status = Status::new(&text);
    let name = status.name().unwrap_or_default();
    Some(ThreadCounters {
        owner: None,
        is_forwarding: forwards_for(&name, process).is_some(),
        name,
        started: stat.start_time()?,
        cpu: stat.cpu()?,
        ticks: stat.user_ticks()?.checked_add(stat.system_ticks()?)?,
        voluntary: status.voluntary_switches()?,
        nonvoluntary: status.involuntary_switches()?,
        migrations: thread.migrations(),
        run_delay_ns: thread.run_delay_ns(),
    })
}

impl ThreadCounters {
    /// Returns true if both snapshots are of the same thread.
    fn is_same(&self, other: &Self) -> bool {
        self.started == other.started
    }

    /// Returns true for a forwarding thread.
    pub(crate) fn is_forwarding(&self) -> bool {
        self.is_forwarding
    }

    /// Returns true for a virtual CPU of a guest that is no neighbour: QEMU names its threads `CPU N/KVM` (`-name debug-threads=on`).
    pub(crate) fn is_virtual_cpu(&self) -> bool {
        let number = self.name.strip_prefix("CPU ");
        let number = number.and_then(|rest| rest.strip_suffix("/KVM"));
        let is_number = |text: &str| text.parse::<u32>().is_ok();
        number.is_some_and(is_number) && self.owner != Some(Owner::Neighbour)
    }

    /// Returns the CPU that it last ran on.
    pub(crate) fn cpu(&self) -> u32 {
        self.cpu
    }
}

impl ThreadActivity {
    fn between(
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
        let both = then.migrations.zip(now.migrations);
        let migrations = both.map(|(then, now)| since("migrations", then, now));
        let both = then.run_delay_ns.zip(now.run_delay_ns);
        let run_delay_ns = both.map(|(then, now)| since("run-queue delay", then, now));
        Self {
            pid,
            tid,
            name: now.name.clone(),
            owner: now.owner,
            is_forwarding: now.is_forwarding,
            cpu: now.cpu,
            cpu_time_s: ticks as f64 / ticks_per_second,
            voluntary_switches,
            nonvoluntary_switches,
            migrations,
            run_delay_s: run_delay_ns.map(|ns| ns as f64 / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Machine, between};

    const FIELDS: &str =
        "S 1 1 1 0 -1 0 0 0 0 0 3 1 0 0 20 0 1 0 500 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 2 0 0\n";

    fn machine(name: &str, delay_ns: &str, owner: Owner) -> Machine {
        let status =
            format!("Name:\t{name}\nvoluntary_ctxt_switches:\t1\nnonvoluntary_ctxt_switches:\t2\n");
        Machine::default()
            .with("proc/7/comm", "quietwire\n")
            .with("proc/7/task/8/stat", &format!("8 ({name}) {FIELDS}"))
            .with("proc/7/task/8/status", &status)
            .with("proc/7/task/8/schedstat", &format!("100 {delay_ns} 5\n"))
            .watching(Watched::of(7, owner))
    }

    #[test]
    fn threads_have_owner_delay_and_role() {
        let at = |delay: &str| machine("qw-fwd-1", delay, Owner::Device);
        let activity = between::<Threads>(&at("1000000"), &at("501000000"));
        let thread = &activity.threads[0];
        assert_eq!(
            (thread.owner, thread.is_forwarding, thread.cpu),
            (Some(Owner::Device), true, 2)
        );
        assert_eq!((thread.run_delay_s, thread.migrations), (Some(0.5), None));
        let other = machine("stress-ng-cpu", "0", Owner::Neighbour);
        let activity = between::<Threads>(&other, &other);
        assert!(!activity.threads[0].is_forwarding);
    }

    #[test]
    fn virtual_cpus_are_known_by_their_names() {
        for (name, owner, expected) in [
            ("CPU 0/KVM", Owner::Device, true),
            ("CPU 12/KVM", Owner::Tester, true),
            ("CPU 0/KVM", Owner::Neighbour, false),
            ("CPU x/KVM", Owner::Device, false),
            ("CPU 0/TCG", Owner::Device, false),
            ("qemu-system-x86", Owner::Device, false),
        ] {
            let counters = machine(name, "0", owner).read::<Threads>();
            let found: Vec<bool> = counters
                .values()
                .map(ThreadCounters::is_virtual_cpu)
                .collect();
            assert_eq!(found, [expected], "{name} {owner:?}");
        }
    }

    #[test]
    fn neighbours_may_end_threads_without_an_anomaly() {
        for (owner, expected) in [(Owner::Neighbour, 0), (Owner::Device, 1)] {
            let before = machine("a", "0", owner);
            let after = Machine::default().watching(Watched::of(7, owner));
            let mut anomalies = Vec::new();
            let activity = Threads::between(
                &before.read::<Threads>(),
                &after.read::<Threads>(),
                &mut anomalies,
            );
            assert_eq!((activity.vanished, anomalies.len()), (1, expected));
        }
    }
}
