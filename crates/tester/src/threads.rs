// SPDX-License-Identifier: Apache-2.0
//! Threads of a trial, each pinned to a CPU of the tester, with real-time priority if it is configured, and restricted to the capabilities
//! and system calls that sending and receiving require.

use std::thread::{Builder, Scope, ScopedJoinHandle, scope};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use quietwire_base::Seccomp;
use quietwire_dpdk::Eal;
use quietwire_dpdk::seccomp::{self, Filter, Task};
use quietwire_dpdk::{Registered, thread};
use quietwire_host::privileges::{self, Capabilities};

use crate::engine::{self, LoopHealth, Signals, Timetable};
use crate::error::TesterError;
use crate::lane::Lane;
use crate::narrow::whole;
use crate::tester::TesterOptions;
use crate::trial::Trial;

/// Time by which a real-time thread may overrun its trial before the kernel ends the process, seconds.
const OVERSTAY_S: u64 = 10;

/// Sets RLIMIT_RTTIME (setrlimit(2)), by which the kernel ends the process if a real-time thread neither sleeps nor ends long after its
/// trial. Such a thread could otherwise occupy its CPU forever.
pub(crate) fn guard_realtime(trial: &Trial, lead_s: f64, realtime: bool) {
    let trial_s = lead_s + trial.warm_up_s + trial.duration_s + trial.drain_s;
    limit_realtime(trial_s, realtime);
}

/// Does the same for threads that run for `busy_s` seconds.
pub(crate) fn limit_realtime(busy_s: f64, realtime: bool) {
    if !realtime {
        return;
    }
    let limit_s = whole(busy_s.ceil()).saturating_add(OVERSTAY_S);
    let limit_us = limit_s.saturating_mul(1_000_000);
    let set = getrlimit(Resource::RLIMIT_RTTIME)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_RTTIME, limit_us.min(hard), hard));
    if let Err(error) = set {
        tracing::warn!("cannot limit the CPU time of real-time threads: {error}");
    }
}

type ThreadEnd<'port> = Result<(Vec<Lane<'port>>, LoopHealth, bool), TesterError>;

/// Distributes lanes over threads, runs them, and returns the lanes in their order. Calls `meanwhile` on the calling thread while they
/// run. Logs system calls that `seccomp` denies to them.
pub(crate) fn run_threads<'port>(
    eal: &Eal,
    (options, seccomp): (&TesterOptions, Seccomp),
    lanes: Vec<Lane<'port>>,
    times: &Timetable,
    signals: Signals<'_>,
    meanwhile: &mut dyn FnMut(),
) -> Result<(Vec<Lane<'port>>, Vec<LoopHealth>, bool), TesterError> {
    let threads = options.cpus.len().min(lanes.len());
    if threads == 0 {
        return Err(TesterError::Thread(
            "there is no CPU or no port for it".to_owned(),
        ));
    }
    let mut shares: Vec<Vec<Lane<'port>>> = (0..threads).map(|_| Vec::new()).collect();
    for (thread, lane) in (0..threads).cycle().zip(lanes) {
        if let Some(share) = shares.get_mut(thread) {
            share.push(lane);
        }
    }
    let filter = Filter::new(Task::Packets, seccomp)?;
    let denied_before = seccomp::of_task(Task::Packets).calls;
    let ends: Vec<ThreadEnd<'port>> = scope(|scope| {
        let handles: Vec<_> = shares
            .into_iter()
            .zip(&options.cpus)
            .map(|(share, cpu)| {
                spawn(
                    scope,
                    eal,
                    *cpu,
                    (options.realtime_priority, &filter),
                    share,
                    times,
                    signals,
                )
            })
            .collect();
        meanwhile();
        handles.into_iter().map(join).collect()
    });
    warn_of_denied_calls(denied_before);
    let mut by_thread = Vec::new();
    let mut healths = Vec::new();
    let mut all_realtime = true;
    for end in ends {
        let (lanes, health, realtime) = end?;
        by_thread.push(lanes.into_iter());
        healths.push(health);
        all_realtime &= realtime;
    }
    let mut lanes = Vec::new();
    'deal: loop {
        for share in &mut by_thread {
            match share.next() {
                Some(lane) => lanes.push(lane),
                None => break 'deal,
            }
        }
    }
    Ok((lanes, healths, all_realtime))
}

/// Logs the system calls of tester threads that were denied since `before` were.
fn warn_of_denied_calls(before: u64) {
    let denied = seccomp::of_task(Task::Packets);
    if denied.calls > before {
        tracing::warn!(
            "seccomp filters of the tester's threads have denied {} system calls, most recently {} (a bug of the tester, or an attack on it; --seccomp log allows them)",
            denied.calls.saturating_sub(before),
            denied.last.unwrap_or_default()
        );
    }
}

fn join<'port>(
    handle: Result<ScopedJoinHandle<'_, ThreadEnd<'port>>, TesterError>,
) -> ThreadEnd<'port> {
    handle?
        .join()
        .unwrap_or_else(|_| Err(TesterError::Thread("the thread panicked".to_owned())))
}

fn spawn<'scope, 'port: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    eal: &'scope Eal,
    cpu: u32,
    (realtime_priority, filter): (Option<u8>, &'scope Filter),
    mut lanes: Vec<Lane<'port>>,
    times: &'scope Timetable,
    signals: Signals<'scope>,
) -> Result<ScopedJoinHandle<'scope, ThreadEnd<'port>>, TesterError> {
    Builder::new()
        .name(format!("qw-tester-{cpu}"))
        .spawn_scoped(scope, move || {
            let work = || engine::run(&mut lanes, times, signals);
            let (health, realtime) = as_tester(eal, (cpu, realtime_priority), filter, work)?;
            Ok((lanes, health, realtime))
        })
        .map_err(|error| TesterError::Thread(error.to_string()))
}

/// Does some work as a thread of the tester. Returns its result, and whether it had real-time priority.
fn as_tester<T>(
    eal: &Eal,
    (cpu, realtime_priority): (u32, Option<u8>),
    filter: &Filter,
    work: impl FnOnce() -> T,
) -> Result<(T, bool), TesterError> {
    thread::pin(&[cpu])?;
    let _registered = Registered::new(eal)?;
    let realtime = realtime_priority.is_some_and(|priority| match thread::set_realtime(priority) {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!("the tester thread runs at ordinary priority: {error}");
            false
        }
    });
    // Before the filter, which denies it. The ports are open, so only the end of the real-time priority requires a capability.
    let kept = if realtime {
        Capabilities::REALTIME
    } else {
        Capabilities::NONE
    };
    privileges::reduce(None, kept).map_err(|error| TesterError::Thread(error.to_string()))?;
    let _filter = filter.install()?;
    let done = work();
    if realtime {
        thread::set_ordinary()?;
    }
    Ok((done, realtime))
}

/// Does some work on a thread of the tester's first CPU. Returns its result, and whether it had real-time priority.
pub(crate) fn run_thread<T: Send>(
    eal: &Eal,
    (options, seccomp): (&TesterOptions, Seccomp),
    work: impl FnOnce() -> T + Send,
) -> Result<(T, bool), TesterError> {
    let filter = Filter::new(Task::Packets, seccomp)?;
    let denied_before = seccomp::of_task(Task::Packets).calls;
    let cpu = options.cpus.first().copied().unwrap_or(0);
    let priority = options.realtime_priority;
    let done = scope(|scope| {
        let thread = Builder::new()
            .name(format!("qw-tester-{cpu}"))
            .spawn_scoped(scope, || as_tester(eal, (cpu, priority), &filter, work))
            .map_err(|error| TesterError::Thread(error.to_string()))?;
        let panicked = |_| Err(TesterError::Thread("the thread panicked".to_owned()));
        thread.join().unwrap_or_else(panicked)
    });
    warn_of_denied_calls(denied_before);
    done
}
