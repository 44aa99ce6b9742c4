// SPDX-License-Identifier: Apache-2.0
//! Snapshots of the machine's counters, and the differences between two of them.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::monitor::{Monitor, Offer, Owner, Target, Watched};
use crate::monitors::cpus::{CpuActivity, Cpus};
use crate::monitors::energy::{DomainEnergy, Energy};
use crate::monitors::frequency::{CpuFrequency, Frequency};
use crate::monitors::interrupts::{InterruptCount, InterruptLine, Interrupts};
use crate::monitors::kvm::{GuestExits, Kvm};
use crate::monitors::kvm_exit_reasons::ExitReasons;
use crate::monitors::memory::{Memory, MemoryActivity};
use crate::monitors::numa::{NodeAllocations, Numa};
use crate::monitors::perf_events::CpuEvents;
use crate::monitors::placement::{Placement, ProcessMemory};
use crate::monitors::resctrl::{ClassActivity, Resctrl};
use crate::monitors::softirqs::{SoftirqCount, Softirqs};
use crate::monitors::system_call_counts::SystemCallCounts;
use crate::monitors::system_calls::SystemCallSamples;
use crate::monitors::temperature::{Temperature, ZoneTemperature};
use crate::monitors::threads::{ThreadActivity, ThreadCounters, Threads};
use crate::monitors::throttling::{CpuThrottling, Throttling};
use crate::monitors::uncore::UncoreEvents;

/// Error of a snapshot.
#[derive(Debug, thiserror::Error)]
#[error("{}: {cause}", path.display())]
pub struct MonitorError {
    /// The file.
    pub path: PathBuf,
    /// Error of the system, or problem of the text.
    pub cause: String,
}

/// Side of an interval at which a snapshot is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Its start.
    Start,
    /// Its end.
    End,
}

/// Counters of the machine at an instant.
#[derive(Clone, Debug)]
pub struct Snapshot {
    taken: Instant,
    cpus: <Cpus as Monitor>::Counters,
    threads: <Threads as Monitor>::Counters,
    interrupts: Option<<Interrupts as Monitor>::Counters>,
    others: OtherCounters,
}

/// Counters of the monitors that only complete snapshots have. `None`: the machine does not offer them.
#[derive(Clone, Debug, Default)]
struct OtherCounters {
    softirqs: Option<<Softirqs as Monitor>::Counters>,
    frequency: Option<<Frequency as Monitor>::Counters>,
    throttling: Option<<Throttling as Monitor>::Counters>,
    temperature: Option<<Temperature as Monitor>::Counters>,
    energy: Option<<Energy as Monitor>::Counters>,
    numa: Option<<Numa as Monitor>::Counters>,
    placement: Option<<Placement as Monitor>::Counters>,
    memory: Option<<Memory as Monitor>::Counters>,
    resctrl: Option<<Resctrl as Monitor>::Counters>,
    kvm: Option<<Kvm as Monitor>::Counters>,
}

/// Activity of the machine between two snapshots.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// Interrupts by line and CPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupt_lines: Vec<InterruptLine>,
    /// Softirqs by CPU and kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub softirqs: Vec<SoftirqCount>,
    /// System calls of forwarding threads, sampled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub system_calls: Vec<SystemCallSamples>,
    /// System calls of forwarding threads, counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub system_call_counts: Vec<SystemCallCounts>,
    /// Events of the forwarding CPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub perf_events: Vec<CpuEvents>,
    /// Events of memory controllers, links between packages and PCIe.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncore: Vec<UncoreEvents>,
    /// Frequencies of CPUs at the second snapshot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frequencies: Vec<CpuFrequency>,
    /// CPUs that were throttled because of their temperature.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttling: Vec<CpuThrottling>,
    /// Temperatures at the second snapshot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub temperatures: Vec<ZoneTemperature>,
    /// Energy by power domain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub energy: Vec<DomainEnergy>,
    /// Allocations on NUMA nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeAllocations>,
    /// Memory of device and tester by NUMA node, at the second snapshot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placement: Vec<ProcessMemory>,
    /// Memory of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryActivity>,
    /// Classes of service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassActivity>,
    /// Exits of guests of the device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guest_exits: Vec<GuestExits>,
    /// Exits of virtual CPUs of the device's guests, by reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guest_exit_reasons: Vec<ExitReasons>,
    /// Counters that went backwards and other anomalies, one sentence each.
    pub anomalies: Vec<String>,
}

/// Returns every monitor that reads counters, and whether the machine with these files offers it. Monitors of processes are read for this
/// process.
#[must_use]
pub fn offers(root: &Path) -> Vec<Offer> {
    let watched = [Watched::of(std::process::id(), Owner::Tester)];
    let target = Target {
        root,
        watched: &watched,
    };
    vec![
        Offer::of::<Cpus>(&target),
        Offer::of::<Threads>(&target),
        Offer::of::<Interrupts>(&target),
        Offer::of::<Softirqs>(&target),
        Offer::of::<Frequency>(&target),
        Offer::of::<Throttling>(&target),
        Offer::of::<Temperature>(&target),
        Offer::of::<Energy>(&target),
        Offer::of::<Numa>(&target),
        Offer::of::<Placement>(&target),
        Offer::of::<Memory>(&target),
        Offer::of::<Resctrl>(&target),
        Offer::of::<Kvm>(&target),
    ]
}

impl OtherCounters {
    fn read(target: &Target<'_>) -> Self {
        // `offers` reports why a monitor is unavailable.
        Self {
            softirqs: Softirqs::read(target).ok(),
            frequency: Frequency::read(target).ok(),
            throttling: Throttling::read(target).ok(),
            temperature: Temperature::read(target).ok(),
            energy: Energy::read(target).ok(),
            numa: Numa::read(target).ok(),
            placement: Placement::read(target).ok(),
            memory: Memory::read(target).ok(),
            resctrl: Resctrl::read(target).ok(),
            kvm: Kvm::read(target).ok(),
        }
    }
}

/// Returns the activity of one monitor. Empty if the machine offered it at one of the instants only, or not at all.
fn of_monitor<M: Monitor>(
    then: Option<&M::Counters>,
    now: Option<&M::Counters>,
    anomalies: &mut Vec<String>,
) -> M::Activity {
    match (then, now) {
        (Some(then), Some(now)) => M::between(then, now, anomalies),
        _ => M::Activity::default(),
    }
}

impl Snapshot {
    /// Reads CPUs, interrupts and all threads of `pids`, from files below `root`. A process that has ended has no threads.
    ///
    /// # Errors
    /// [`MonitorError`] if `/proc/stat` cannot be read. Missing details elsewhere are omitted.
    pub fn take(root: &Path, pids: &[u32]) -> Result<Self, MonitorError> {
        let watched = |pid: &u32| Watched {
            pid: *pid,
            owner: None,
        };
        let watched: Vec<Watched> = pids.iter().map(watched).collect();
        Self::of(&Target {
            root,
            watched: &watched,
        })
    }

    /// Reads the counters of all monitors, and all threads of `watched`, from files below `root`. Reading all of them takes some
    /// milliseconds, so those of [`Self::take`] are read at the side of the interval that they begin or end.
    ///
    /// # Errors
    /// Errors of [`Self::take`].
    pub fn take_all(root: &Path, watched: &[Watched], edge: Edge) -> Result<Self, MonitorError> {
        let target = Target { root, watched };
        let before = match edge {
            Edge::Start => Some(OtherCounters::read(&target)),
            Edge::End => None,
        };
        let snapshot = Self::of(&target)?;
        Ok(Self {
            others: before.unwrap_or_else(|| OtherCounters::read(&target)),
            ..snapshot
        })
    }

    fn of(target: &Target<'_>) -> Result<Self, MonitorError> {
        let cpus = Cpus::read(target).map_err(|reason| MonitorError {
            path: target.root.join("proc/stat"),
            cause: reason.0,
        })?;
        let interrupts = Interrupts::read(target).ok();
        Ok(Self {
            taken: Instant::now(),
            cpus,
            threads: Threads::read(target).unwrap_or_default(),
            interrupts,
            others: OtherCounters::default(),
        })
    }

    /// Returns process and thread ID of each forwarding thread of the watched processes.
    #[must_use]
    pub fn forwarding_threads(&self) -> Vec<(u32, i32)> {
        let forwarding = self
            .threads
            .iter()
            .filter(|(_, thread)| thread.is_forwarding());
        forwarding.map(|(id, _)| *id).collect()
    }

    /// Returns process and thread ID of each virtual CPU of the watched guests, without those of neighbours.
    #[must_use]
    pub fn virtual_cpus(&self) -> Vec<(u32, i32)> {
        let threads = self.threads.iter();
        let virtual_cpus = threads.filter(|(_, thread)| thread.is_virtual_cpu());
        virtual_cpus.map(|(id, _)| *id).collect()
    }

    /// Returns the CPUs on which forwarding threads of the watched processes last ran, in order.
    #[must_use]
    pub fn forwarding_cpus(&self) -> Vec<u32> {
        let threads = self.threads.values();
        let forwarding = threads.filter(|thread| thread.is_forwarding());
        let mut cpus: Vec<u32> = forwarding.map(ThreadCounters::cpu).collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }
}

impl Activity {
    /// Removes all threads of neighbours except the `kept` busiest ones. There may be thousands of them.
    pub fn keep_busiest_neighbours(&mut self, kept: usize) {
        let is_neighbours = |thread: &ThreadActivity| thread.owner == Some(Owner::Neighbour);
        let (mut neighbours, mut others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.threads)
            .into_iter()
            .partition(is_neighbours);
        neighbours.sort_by(|one, other| other.cpu_time_s.total_cmp(&one.cpu_time_s));
        neighbours.truncate(kept);
        others.append(&mut neighbours);
        self.threads = others;
    }

    /// Returns the activity from `before` to `after`.
    #[must_use]
    pub fn between(before: &Snapshot, after: &Snapshot) -> Self {
        let mut found = Vec::new();
        let anomalies = &mut found;
        let threads = Threads::between(&before.threads, &after.threads, anomalies);
        let cpus = Cpus::between(&before.cpus, &after.cpus, anomalies);
        let (then, now) = (before.interrupts.as_ref(), after.interrupts.as_ref());
        let interrupts = of_monitor::<Interrupts>(then, now, anomalies);
        let (then, now) = (&before.others, &after.others);
        macro_rules! other {
            ($monitor:ty, $field:ident) => {
                of_monitor::<$monitor>(then.$field.as_ref(), now.$field.as_ref(), anomalies)
            };
        }
        let softirqs = other!(Softirqs, softirqs);
        let throttling = other!(Throttling, throttling);
        let energy = other!(Energy, energy);
        let nodes = other!(Numa, numa);
        let memory = other!(Memory, memory);
        let classes = other!(Resctrl, resctrl);
        let guest_exits = other!(Kvm, kvm);
        let frequencies = other!(Frequency, frequency);
        let temperatures = other!(Temperature, temperature);
        let placement = other!(Placement, placement);
        Self {
            elapsed_s: after.taken.duration_since(before.taken).as_secs_f64(),
            cpus,
            threads: threads.threads,
            vanished_threads: threads.vanished,
            new_threads: threads.new,
            interrupts: interrupts.counts,
            interrupt_lines: interrupts.lines,
            softirqs,
            system_calls: Vec::new(),
            system_call_counts: Vec::new(),
            perf_events: Vec::new(),
            uncore: Vec::new(),
            frequencies,
            throttling,
            temperatures,
            energy,
            nodes,
            placement,
            memory,
            classes,
            guest_exits,
            guest_exit_reasons: Vec::new(),
            anomalies: found,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        let close =
            |observed: f64, wanted: f64| assert!((observed - wanted).abs() < 1e-9, "{cpu:?}");
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
    fn threads_and_cpus_that_disappear_are_reported_by_name() {
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
        let observed = Snapshot::take(root.path(), &[7]).unwrap();
        let activity = Activity::between(&observed, &observed);
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
    fn every_monitor_is_offered_or_has_a_reason_and_an_activity_survives_being_stored() {
        let root = Path::new("/");
        let offers = offers(root);
        let reasons = |monitor: &str| {
            let offer = offers.iter().find(|one| one.monitor == monitor).unwrap();
            offer.unavailable.clone()
        };
        assert_eq!((reasons("cpus"), reasons("threads")), (None, None));
        assert!(
            offers
                .iter()
                .all(|one| one.unavailable.as_deref() != Some(""))
        );
        let none = super::offers(&root.join("nonexistent"));
        let available = none.iter().filter(|one| one.unavailable.is_none());
        // Threads of a process that does not exist are none.
        assert_eq!(available.count(), 1);
        let watched = [Watched::of(std::process::id(), Owner::Tester)];
        let take = |edge| Snapshot::take_all(root, &watched, edge).unwrap();
        let activity = Activity::between(&take(Edge::Start), &take(Edge::End));
        assert!(
            activity
                .threads
                .iter()
                .all(|one| one.owner == Some(Owner::Tester))
        );
        assert!(activity.system_calls.is_empty());
        assert!(take(Edge::End).forwarding_threads().is_empty());
    }

    #[test]
    fn the_busiest_neighbours_are_kept() {
        let thread = |tid, owner, cpu_time_s| ThreadActivity {
            tid,
            owner: Some(owner),
            cpu_time_s,
            ..ThreadActivity::default()
        };
        let mut activity = Activity {
            threads: vec![
                thread(1, Owner::Neighbour, 0.5),
                thread(2, Owner::Device, 0.0),
                thread(3, Owner::Neighbour, 0.1),
                thread(4, Owner::Neighbour, 0.9),
            ],
            ..Activity::default()
        };
        activity.keep_busiest_neighbours(2);
        let tids: Vec<i32> = activity.threads.iter().map(|thread| thread.tid).collect();
        assert_eq!(tids, [2, 4, 1]);
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
