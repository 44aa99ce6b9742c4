// SPDX-License-Identifier: Apache-2.0
//! What CPUs and threads did during trials, from the monitor's stored account.

use quietwire_monitor::{Activity, CpuActivity};
use quietwire_study::{DeedRecord, Intensity, TrialRecord};
use serde::Serialize;

use super::spread::Spread;

/// How one CPU's time was shared among its states.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CpuShare {
    /// Number of the CPU.
    pub cpu: u32,
    /// Share of each state, 0 to 1, in the order of `/proc/stat`; over all valid trials.
    pub states: Vec<(&'static str, f64)>,
    /// Trials that told about this CPU.
    pub trials: usize,
}

/// What a thread of device or tester went through.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadShare {
    /// Its name.
    pub name: String,
    /// CPUs that it was seen on at the end of a trial.
    pub cpus: Vec<u32>,
    /// Part of the time that it ran, 0 to 1, over all valid trials.
    pub busy_ratio: f64,
    /// Times a second that another was run in its place, by trial.
    pub displaced_per_s: Spread,
    /// Times that it was moved to another CPU, in all trials together; none where the kernel does not tell.
    pub migrations: Option<u64>,
}

/// How hard the neighbours of a case worked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NeighbourShare {
    /// Trials, and things done for procedures, that tell of it.
    pub trials: usize,
    /// Their threads, at most.
    pub threads: usize,
    /// CPUs that they could use.
    pub cpus: usize,
    /// Part of those CPUs' time that they had, 0 to 1, by trial.
    pub share: Spread,
    /// Frames per second that neighbours sent through the same device, by trial; none without such.
    pub network_pps: Option<Spread>,
}

/// What neighbours did, over all valid trials and over what was done for procedures; none where there were none.
pub(super) fn neighbours<'a>(
    trials: &[&TrialRecord],
    deeds: impl Iterator<Item = &'a DeedRecord>,
) -> Option<NeighbourShare> {
    let of_trials = trials.iter().filter(|trial| trial.result.is_valid());
    let told = of_trials
        .map(|trial| &trial.activity)
        .chain(deeds.map(|deed| &deed.activity));
    let seen: Vec<Intensity> = told.filter_map(|activity| activity.neighbours).collect();
    Some(NeighbourShare {
        trials: seen.len(),
        threads: seen.iter().map(|one| one.threads).max()?,
        cpus: seen.iter().map(|one| one.cpus).max()?,
        share: Spread::of(seen.iter().map(|one| one.share).collect())?,
        network_pps: Spread::of(seen.iter().filter_map(|one| one.network_pps).collect()),
    })
}

/// A thread that runs less than this is no part of the packet path.
const BUSY_RATIO_MIN: f64 = 0.05;

/// Accounts of the valid trials. A store may hold none, when whoever made it did not watch.
fn accounts<'a>(trials: &[&'a TrialRecord]) -> Vec<&'a Activity> {
    trials
        .iter()
        .filter(|trial| trial.result.is_valid())
        .filter_map(|trial| trial.activity.machine.as_ref())
        .collect()
}

fn states(cpu: &CpuActivity) -> [(&'static str, f64); 10] {
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

/// Shares over all valid trials, in the order of the CPUs' numbers.
pub(super) fn cpus(trials: &[&TrialRecord]) -> Vec<CpuShare> {
    let mut sums: Vec<CpuShare> = Vec::new();
    for cpu in accounts(trials).iter().flat_map(|account| &account.cpus) {
        match sums.iter_mut().find(|sum| sum.cpu == cpu.cpu) {
            Some(sum) => {
                sum.trials += 1;
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
    displaced_per_s: Vec<f64>,
    migrations: Option<u64>,
}

/// Threads that ran for a good part of the time, the busiest first. Threads with the same name are one: a device is
/// started anew in every round.
pub(super) fn threads(trials: &[&TrialRecord]) -> Vec<ThreadShare> {
    let accounts = accounts(trials);
    let elapsed_s: f64 = accounts.iter().map(|account| account.elapsed_s).sum();
    let mut sums: Vec<ThreadSum> = Vec::new();
    for account in accounts.iter().filter(|account| account.elapsed_s > 0.0) {
        for thread in &account.threads {
            let place = sums.iter().position(|sum| sum.name == thread.name);
            let place = place.unwrap_or_else(|| {
                sums.push(ThreadSum {
                    name: thread.name.clone(),
                    ..ThreadSum::default()
                });
                sums.len() - 1
            });
            let sum = &mut sums[place];
            if !sum.cpus.contains(&thread.cpu) {
                sum.cpus.push(thread.cpu);
            }
            sum.cpu_time_s += thread.cpu_time_s;
            let displaced = thread.nonvoluntary_switches as f64 / account.elapsed_s;
            sum.displaced_per_s.push(displaced);
            if let Some(moved) = thread.migrations {
                *sum.migrations.get_or_insert(0) += moved;
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
                displaced_per_s: Spread::of(sum.displaced_per_s)?,
                migrations: sum.migrations,
            })
        })
        .filter(|thread| thread.busy_ratio >= BUSY_RATIO_MIN)
        .collect();
    shares.sort_by(|one, other| other.busy_ratio.total_cmp(&one.busy_ratio));
    shares
}
