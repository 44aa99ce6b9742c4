// SPDX-License-Identifier: Apache-2.0
//! Activity of CPUs and threads during trials, from the stored data of the monitor.

use quietwire_monitor::{Activity, CpuActivity, Owner};
use quietwire_study::{ActionRecord, Intensity, TrialRecord};
use serde::Serialize;

use super::spread::Spread;

/// Time of one CPU by state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CpuShare {
    /// Number of the CPU.
    pub cpu: u32,
    /// Share of each state, 0 to 1, in the order of `/proc/stat`, over all valid trials.
    pub states: Vec<(&'static str, f64)>,
    /// Trials with data about this CPU.
    pub trials: usize,
}

/// Scheduling of a thread of device or tester.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadShare {
    /// Name.
    pub name: String,
    /// CPUs that it was on at the end of a trial.
    pub cpus: Vec<u32>,
    /// Share of time that it ran, 0 to 1, over all valid trials.
    pub busy_ratio: f64,
    /// Preemptions per second, by trial.
    pub involuntary_switches_per_s: Spread,
    /// Migrations to another CPU, in all trials together; none if the kernel does not report them.
    pub migrations: Option<u64>,
    /// Share of time that it could run but had no CPU, 0 to 1, over all valid trials; none if the kernel does not report it.
    pub run_delay_ratio: Option<f64>,
}

/// Load by the neighbours of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NeighbourShare {
    /// Number of trials and procedure actions with data about neighbours.
    pub trials: usize,
    /// Maximum number of their threads.
    pub threads: usize,
    /// CPUs available to them.
    pub cpus: usize,
    /// Share of the time of those CPUs that they got, 0 to 1, by trial.
    pub share: Spread,
    /// Frames per second that neighbours sent through the same device, by trial; none without such neighbours.
    pub network_pps: Option<Spread>,
}

/// Returns the load by neighbours, over all valid trials and procedure actions; none without neighbours.
pub(super) fn neighbours<'a>(
    trials: &[&TrialRecord],
    actions: impl Iterator<Item = &'a ActionRecord>,
) -> Option<NeighbourShare> {
    let of_trials = trials.iter().filter(|trial| trial.result.is_valid());
    let reported = of_trials
        .map(|trial| &trial.activity)
        .chain(actions.map(|action| &action.activity));
    let observed: Vec<Intensity> = reported
        .filter_map(|activity| activity.neighbours)
        .collect();
    Some(NeighbourShare {
        trials: observed.len(),
        threads: observed.iter().map(|one| one.threads).max()?,
        cpus: observed.iter().map(|one| one.cpus).max()?,
        share: Spread::of(observed.iter().map(|one| one.share).collect())?,
        network_pps: Spread::of(observed.iter().filter_map(|one| one.network_pps).collect()),
    })
}

/// Threads that run less than this share are not part of the packet path.
const BUSY_RATIO_MIN: f64 = 0.05;

/// Returns the activity of the valid trials. A store has none if no monitor ran.
fn accounts<'a>(trials: &[&'a TrialRecord]) -> Vec<&'a Activity> {
    trials
        .iter()
        .filter(|trial| trial.result.is_valid())
        .filter_map(|trial| trial.activity.machine.as_ref())
        .collect()
}

/// Returns the time of a CPU in each state, seconds.
pub(super) fn states(cpu: &CpuActivity) -> [(&'static str, f64); 10] {
    [
        ("user", cpu.user_s),
        ("nice", cpu.nice_s),
        ("system", cpu.system_s),
        ("idle", cpu.idle_s),
        ("iowait", cpu.iowait_s),
        ("irq", cpu.irq_s),
        ("softirq", cpu.softirq_s),
        ("steal", cpu.steal_s),
        ("guest", cpu.guest_s),
        ("guest nice", cpu.guest_nice_s),
    ]
}

/// Returns the shares over all valid trials, in the order of the CPU numbers.
pub(super) fn cpus(trials: &[&TrialRecord]) -> Vec<CpuShare> {
    let mut sums: Vec<CpuShare> = Vec::new();
    for cpu in accounts(trials).iter().flat_map(|account| &account.cpus) {
        match sums.iter_mut().find(|sum| sum.cpu == cpu.cpu) {
            Some(sum) => {
                sum.trials = sum.trials.saturating_add(1);
                for (known, new) in sum.states.iter_mut().zip(states(cpu)) {
                    known.1 += new.1;
                }
            }
            None => sums.push(CpuShare {
                cpu: cpu.cpu,
                states: states(cpu).to_vec(),
                trials: 1,
            }),
        }
    }
    for sum in &mut sums {
        let whole: f64 = sum.states.iter().map(|(_, seconds)| seconds).sum();
        for (_, share) in &mut sum.states {
            *share = if whole > 0.0 { *share / whole } else { 0.0 };
        }
    }
    sums.sort_by_key(|sum| sum.cpu);
    sums
}

#[derive(Default)]
struct ThreadSum {
    name: String,
    cpus: Vec<u32>,
    cpu_time_s: f64,
    involuntary_switches_per_s: Vec<f64>,
    migrations: Option<u64>,
    run_delay_s: Option<f64>,
}

/// Returns the threads that ran for a large share of the time, the busiest first. Threads with the same name count as one, because
/// each round starts the device again.
pub(super) fn threads(trials: &[&TrialRecord]) -> Vec<ThreadShare> {
    let accounts = accounts(trials);
    let elapsed_s: f64 = accounts.iter().map(|account| account.elapsed_s).sum();
    let mut sums: Vec<ThreadSum> = Vec::new();
    for account in accounts.iter().filter(|account| account.elapsed_s > 0.0) {
        let own = account.threads.iter();
        for thread in own.filter(|thread| thread.owner != Some(Owner::Neighbour)) {
            let place = sums.iter().position(|sum| sum.name == thread.name);
            let place = place.unwrap_or(sums.len());
            if place == sums.len() {
                sums.push(ThreadSum {
                    name: thread.name.clone(),
                    ..ThreadSum::default()
                });
            }
            let Some(sum) = sums.get_mut(place) else {
                continue;
            };
            if !sum.cpus.contains(&thread.cpu) {
                sum.cpus.push(thread.cpu);
            }
            sum.cpu_time_s += thread.cpu_time_s;
            let involuntary = thread.nonvoluntary_switches as f64 / account.elapsed_s;
            sum.involuntary_switches_per_s.push(involuntary);
            if let Some(moved) = thread.migrations {
                let migrations = sum.migrations.get_or_insert(0);
                *migrations = migrations.saturating_add(moved);
            }
            if let Some(delay_s) = thread.run_delay_s {
                *sum.run_delay_s.get_or_insert(0.0) += delay_s;
            }
        }
    }
    let mut shares: Vec<ThreadShare> = sums
        .into_iter()
        .filter_map(|mut sum| {
            sum.cpus.sort_unstable();
            Some(ThreadShare {
                name: sum.name,
                cpus: sum.cpus,
                busy_ratio: sum.cpu_time_s / elapsed_s,
                involuntary_switches_per_s: Spread::of(sum.involuntary_switches_per_s)?,
                migrations: sum.migrations,
                run_delay_ratio: sum.run_delay_s.map(|delay_s| delay_s / elapsed_s),
            })
        })
        .filter(|thread| thread.busy_ratio >= BUSY_RATIO_MIN)
        .collect();
    shares.sort_by(|one, other| other.busy_ratio.total_cmp(&one.busy_ratio));
    shares
}
