// SPDX-License-Identifier: Apache-2.0
//! Data of one case that rules judge.

use std::collections::BTreeMap;

use quietwire_base::Idle;
use quietwire_host::CpuId;
use quietwire_host::inventory::{CpuPlace, Inventory};
use quietwire_monitor::{Activity, CpuActivity, Owner, ThreadActivity};
use quietwire_study::PortMemory;
use quietwire_tester::account::LossAccount;

use super::super::limit::Limit;

/// Data of one case, over all frame sizes and rounds.
#[derive(Clone, Debug, Default)]
pub(super) struct CaseData<'a> {
    /// Name of the case.
    pub(super) case: &'a str,
    /// Activity of the machine in the valid trials.
    pub(super) activities: Vec<&'a Activity>,
    /// Memory of the device's ports in the valid trials.
    pub(super) port_memory: Vec<&'a PortMemory>,
    /// The machine of the last run.
    pub(super) machine: Option<&'a Inventory>,
    /// Idle strategy of forwarding threads.
    pub(super) idle: Idle,
    /// Limits of the rates that were found, with the goals' names.
    pub(super) limits: Vec<(&'a str, &'a Limit)>,
    /// Frames of a burst near the highest load.
    pub(super) frames_per_burst: Option<f64>,
    /// Share of their CPUs that neighbours had, median over trials; none without neighbours.
    pub(super) neighbour_share: Option<f64>,
    /// Lost frames by place, at each frame size whose device has counters.
    pub(super) losses: Vec<&'a LossAccount>,
    /// Number of trials.
    pub(super) trials: usize,
    /// Trials that are invalid because the tester missed its rate.
    pub(super) rate_missed: usize,
}

/// A forwarding thread over all trials. Each round starts the device again, so it is known by its name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ForwardingThread {
    pub(super) name: String,
    /// CPU on which most trials ended.
    pub(super) cpu: u32,
    /// Time of the trials in which it existed, seconds.
    pub(super) elapsed_s: f64,
    pub(super) voluntary: u64,
    pub(super) involuntary: u64,
    /// None if the kernel does not report migrations.
    pub(super) migrations: Option<u64>,
    /// Time without a CPU, seconds; none if the kernel does not report it.
    pub(super) run_delay_s: Option<f64>,
    /// Trials that ended on each CPU.
    places: BTreeMap<u32, usize>,
}

impl ForwardingThread {
    fn add(&mut self, thread: &ThreadActivity, elapsed_s: f64) {
        self.elapsed_s += elapsed_s;
        self.voluntary = self.voluntary.saturating_add(thread.voluntary_switches);
        self.involuntary = self
            .involuntary
            .saturating_add(thread.nonvoluntary_switches);
        if let Some(moved) = thread.migrations {
            let sum = self.migrations.get_or_insert(0);
            *sum = sum.saturating_add(moved);
        }
        if let Some(delay_s) = thread.run_delay_s {
            *self.run_delay_s.get_or_insert(0.0) += delay_s;
        }
        let trials = self.places.entry(thread.cpu).or_default();
        *trials = trials.saturating_add(1);
        let most = self.places.iter().max_by_key(|(_, trials)| **trials);
        self.cpu = most.map_or(thread.cpu, |(cpu, _)| *cpu);
    }

    /// Returns a number of events per second.
    pub(super) fn per_second(&self, events: u64) -> f64 {
        if self.elapsed_s > 0.0 {
            events as f64 / self.elapsed_s
        } else {
            0.0
        }
    }
}

impl CaseData<'_> {
    /// Returns the forwarding threads of the device, in the order of their names.
    pub(super) fn forwarding(&self) -> Vec<ForwardingThread> {
        let mut found: BTreeMap<&str, ForwardingThread> = BTreeMap::new();
        for activity in &self.activities {
            let threads = activity
                .threads
                .iter()
                .filter(|thread| is_device_thread(thread));
            for thread in threads {
                let sum = found
                    .entry(&thread.name)
                    .or_insert_with(|| ForwardingThread {
                        name: thread.name.clone(),
                        ..ForwardingThread::default()
                    });
                sum.add(thread, activity.elapsed_s);
            }
        }
        found.into_values().collect()
    }

    /// Returns the time of all trials, seconds.
    pub(super) fn elapsed_s(&self) -> f64 {
        self.activities
            .iter()
            .map(|activity| activity.elapsed_s)
            .sum()
    }

    /// Returns the share of a CPU's time, 0 to 1, in states. None if nothing is known about the CPU.
    pub(super) fn share(&self, cpu: u32, states: impl Fn(&CpuActivity) -> f64) -> Option<f64> {
        let all = self.activities.iter().flat_map(|activity| &activity.cpus);
        let own = all.filter(|one| one.cpu == cpu);
        let (part, whole) = own.fold((0.0, 0.0), |(part, whole), one| {
            (part + states(one), whole + whole_s(one))
        });
        (whole > 0.0).then(|| part / whole)
    }

    /// Returns the place of a CPU in the machine.
    pub(super) fn place(&self, cpu: u32) -> Option<&CpuPlace> {
        self.machine?.cpu(CpuId(cpu))
    }
}

/// Neighbours may run data planes of their own.
pub(super) fn is_device_thread(thread: &ThreadActivity) -> bool {
    thread.is_forwarding && thread.owner != Some(Owner::Neighbour)
}

fn whole_s(cpu: &CpuActivity) -> f64 {
    busy_s(cpu) + cpu.idle_s + cpu.iowait_s
}

/// Returns the time in which a CPU was not idle, seconds. The time that the hypervisor took counts as busy.
pub(super) fn busy_s(cpu: &CpuActivity) -> f64 {
    let of_processes = cpu.user_s + cpu.nice_s + cpu.system_s + cpu.guest_s + cpu.guest_nice_s;
    of_processes + cpu.irq_s + cpu.softirq_s + cpu.steal_s
}
