// SPDX-License-Identifier: Apache-2.0
//! One sample of the kernel's counters. Cheap: one small file for most threads.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Instant;

use quietwire_base::proc::{Stat, Status};

use crate::partition::Plan;
use crate::proc::{self, PerCpu, Thread};
use crate::tasks::{DataPlane, forwards_for};
use crate::{CpuId, CpuList};

/// State of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadSample {
    /// Process ID.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// Whether it is a kernel thread.
    pub is_kernel: bool,
    /// CPU on which it last ran.
    pub cpu: CpuId,
    /// Run time in user space and in the kernel, clock ticks of 10 ms.
    pub ticks: (u64, u64),
    /// Run time (`schedstat`), nanoseconds. Only for threads that were on an isolated CPU.
    pub run_ns: Option<u64>,
    /// Data plane and counters of a forwarding thread. `None` for other threads.
    pub forwarding: Option<ForwardingSample>,
}

/// Counters of a forwarding thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardingSample {
    /// Data plane of the thread.
    pub data_plane: DataPlane,
    /// Voluntary context switches.
    pub voluntary: u64,
    /// Involuntary context switches.
    pub involuntary: u64,
    /// Migrations to another CPU. `None` if the kernel does not count them.
    pub migrations: Option<u64>,
}

/// System call samples of a forwarding thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallSample {
    /// Samples of the thread.
    pub looks: u32,
    /// Samples in which the thread waited in a system call, by the call's number; -1 if it waited outside any call.
    pub waiting: BTreeMap<i64, u32>,
    /// Samples that were not permitted.
    pub denied: u32,
}

/// One sample of the machine.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Time of the sample.
    pub at: Instant,
    /// Interrupts by line of `/proc/interrupts`. `None` if it cannot be read.
    pub interrupts: Option<PerCpu>,
    /// Softirqs by line of `/proc/softirqs`.
    pub softirqs: Option<PerCpu>,
    /// Threads by number.
    pub threads: BTreeMap<i32, ThreadSample>,
    /// System calls of forwarding threads up to this sample.
    pub calls: BTreeMap<i32, CallSample>,
}

impl Sample {
    /// Samples the machine whose files are below `root`.
    #[must_use]
    pub fn take(root: &Path, plan: &Plan) -> Self {
        let isolated = plan.isolated();
        let counts = |file: &str| {
            let text = fs::read_to_string(root.join(file)).ok()?;
            PerCpu::parse(&text, |cpu| isolated.contains(cpu))
        };
        Self {
            at: Instant::now(),
            interrupts: counts("proc/interrupts"),
            softirqs: counts("proc/softirqs"),
            threads: threads(root, &isolated),
            calls: BTreeMap::new(),
        }
    }

    /// Samples the current system calls of this sample's forwarding threads and adds them to it.
    pub fn sample_calls(&mut self, root: &Path) {
        for (tid, thread) in &self.threads {
            if thread.forwarding.is_none() {
                continue;
            }
            let sample = self.calls.entry(*tid).or_default();
            match Thread::of(root, thread.pid, *tid).system_call() {
                Ok(call) => {
                    sample.looks = sample.looks.saturating_add(1);
                    if let Some(number) = call {
                        let waiting = sample.waiting.entry(number).or_default();
                        *waiting = waiting.saturating_add(1);
                    }
                }
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    sample.denied = sample.denied.saturating_add(1);
                }
                // The thread has ended.
                Err(_) => {}
            }
        }
    }
}

fn threads(root: &Path, isolated: &CpuList) -> BTreeMap<i32, ThreadSample> {
    let mut threads = BTreeMap::new();
    for pid in proc::processes(root) {
        // Read only for the few threads whose name alone does not identify the data plane.
        let mut command = None;
        for thread in proc::threads(root, pid).unwrap_or_default() {
            let Some(mut sample) = sample(pid, &thread) else {
                continue;
            };
            let command = command.get_or_insert_with(|| proc::process_name(root, pid));
            sample.forwarding = forwards_for(&sample.name, command)
                .and_then(|data_plane| forwarding(&thread, data_plane));
            if isolated.contains(sample.cpu) {
                sample.run_ns = thread.run_ns();
            }
            threads.insert(thread.tid(), sample);
        }
    }
    threads
}

fn sample(pid: i32, thread: &Thread) -> Option<ThreadSample> {
    let text = thread.stat().ok()?;
    let stat = Stat::parse(&text)?;
    Some(ThreadSample {
        pid,
        name: stat.name.to_owned(),
        is_kernel: stat.is_kernel_thread(),
        cpu: CpuId(stat.cpu().unwrap_or(0)),
        ticks: (
            stat.user_ticks().unwrap_or(0),
            stat.system_ticks().unwrap_or(0),
        ),
        run_ns: None,
        forwarding: None,
    })
}

fn forwarding(thread: &Thread, data_plane: DataPlane) -> Option<ForwardingSample> {
    let text = thread.status().ok()?;
    let status = Status::new(&text);
    Some(ForwardingSample {
        data_plane,
        voluntary: status.voluntary_switches()?,
        involuntary: status.involuntary_switches()?,
        migrations: thread.migrations(),
    })
}
