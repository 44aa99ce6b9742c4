// SPDX-License-Identifier: Apache-2.0
//! Threads that ran on isolated CPUs.

use super::super::check::{Check, some_of};
use super::super::machine::Machine;
use super::super::remedy;
use super::super::remedy::Remedy;
use super::interval::Interval;
use super::sample::ThreadSample;
use crate::partition::Role;
use crate::tasks::Task;

/// Name of the check of kernel threads on isolated CPUs.
pub const KERNEL_THREADS: &str = "kernel-threads";
const FILES: &str = "/proc/*/task/*/stat, schedstat";
/// Maximum run time of a kernel thread on an isolated CPU, microseconds per second.
const OWN_US_PER_S: f64 = 1000.0;
/// Length of a clock tick in `/proc`, nanoseconds (sysconf(_SC_CLK_TCK) is 100 on Linux).
const TICK_NS: u64 = 10_000_000;

pub(super) fn checks(interval: &Interval<'_>) -> Vec<Check> {
    let machine = interval.machine;
    let guests = machine.plan.cpus(Role::Guest);
    let (mut users, mut own, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    for (tid, thread) in &interval.after.threads {
        let former = interval.before.threads.get(tid);
        let was_there = former.is_some_and(|former| machine.isolated.contains(former.cpu));
        let is_there = machine.isolated.contains(thread.cpu);
        if thread.forwarding.is_some() || !(is_there || was_there) {
            continue;
        }
        // Threads of guests may run on the guests' CPUs.
        if !thread.is_kernel && guests.contains(thread.cpu) {
            continue;
        }
        let ran_ns = ran_ns(thread, former);
        if ran_ns == 0 {
            continue;
        }
        let us_per_s = ran_ns as f64 / 1000.0 / interval.seconds;
        let text = format!(
            "{} ({tid}) {us_per_s:.0} µs per second on CPU {}",
            thread.name, thread.cpu
        );
        if !thread.is_kernel {
            users.push((ran_ns, text));
            ids.push(*tid);
        } else if us_per_s > OWN_US_PER_S {
            own.push((ran_ns, text));
        }
    }
    let reported = |mut found: Vec<(u64, String)>| {
        found.sort_unstable_by(|one, other| other.cmp(one));
        let texts: Vec<String> = found.into_iter().map(|(_, text)| text).collect();
        (
            texts.is_empty(),
            if texts.is_empty() {
                "none".to_owned()
            } else {
                some_of(&texts)
            },
        )
    };
    let (users_fine, users) = reported(users);
    let (own_fine, own) = reported(own);
    let isolated = &machine.isolated;
    let remedy = remedy_for(machine, &ids);
    vec![
        Check::new(
            "who-ran",
            FILES,
            format!("only forwarding threads and guests on the isolated CPUs {isolated}"),
            users,
            users_fine,
            remedy.text,
        )
        .with_commands(remedy.commands),
        Check::new(
            KERNEL_THREADS,
            FILES,
            format!(
                "no kernel thread for more than {OWN_US_PER_S:.0} µs per second on the isolated CPUs {isolated}"
            ),
            own,
            own_fine,
            "ksoftirqd handles interrupts, kworker handles work bound to its CPU: keep interrupts, sockets and file systems off these CPUs",
        ),
    ]
}

/// Returns the remedy for threads. Threads that have ended cannot be moved, but may be started again.
fn remedy_for(machine: &Machine<'_>, ids: &[i32]) -> Remedy {
    let tasks = machine.tasks.iter();
    let threads: Vec<&Task> = tasks.filter(|task| ids.contains(&task.tid)).collect();
    let remedy = remedy::threads(machine, &threads);
    if threads.is_empty() {
        let cpus = &machine.plan.housekeeping;
        return Remedy {
            text: format!("these threads have ended; start them with taskset --cpu-list {cpus}"),
            ..remedy
        };
    }
    remedy
}

/// Returns how long a thread ran, nanoseconds. Without an earlier `schedstat` value, the ticks give an estimate. For a new
/// thread, the total counts.
fn ran_ns(thread: &ThreadSample, former: Option<&ThreadSample>) -> u64 {
    match (
        former,
        thread.run_ns,
        former.and_then(|former| former.run_ns),
    ) {
        (Some(_), Some(now), Some(before)) => now.saturating_sub(before),
        (None, Some(now), _) => now,
        (Some(former), _, _) => {
            let sum = |(user, system): (u64, u64)| user.saturating_add(system);
            let ticks = sum(thread.ticks).saturating_sub(sum(former.ticks));
            ticks.saturating_mul(TICK_NS)
        }
        (None, None, _) => 0,
    }
}
