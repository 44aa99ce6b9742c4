// SPDX-License-Identifier: Apache-2.0
//! One sample of the kernel's counters. Cheap: one small file for most threads.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Instant;

use super::counts::PerCpu;
use crate::partition::Plan;
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
            PerCpu::parse(&text, &isolated)
        };
        Self {
            at: Instant::now(),
            interrupts: counts("proc/interrupts"),
            softirqs: counts("proc/softirqs"),
            threads: threads(root, &isolated),
            calls: BTreeMap::new(),
        }
    }

    /// Looks at what system calls the forwarding threads of this sample are in just now, and adds that.
    pub fn look_at_calls(&mut self, root: &Path) {
        for (tid, thread) in &self.threads {
            if thread.forwarding.is_none() {
                continue;
            }
            let file = root.join(format!("proc/{}/task/{tid}/syscall", thread.pid));
            let sample = self.calls.entry(*tid).or_default();
            match fs::read_to_string(file) {
                Ok(text) => {
                    sample.looks += 1;
                    let number = text.split_whitespace().next().unwrap_or_default();
                    // `running` is the answer for a thread that is on its CPU.
                    if let Ok(number) = number.parse() {
                        *sample.waiting.entry(number).or_default() += 1;
                    }
                }
                Err(error) if error.kind() == ErrorKind::PermissionDenied => sample.denied += 1,
                // It ended.
                Err(_) => {}
            }
        }
    }
}

fn numbers(directory: &Path) -> impl Iterator<Item = i32> {
    let listed = fs::read_dir(directory).into_iter().flatten();
    listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn threads(root: &Path, isolated: &CpuList) -> BTreeMap<i32, ThreadSample> {
    let mut threads = BTreeMap::new();
    for pid in numbers(&root.join("proc")) {
        let process = root.join(format!("proc/{pid}"));
        // Read only for the few threads whose name alone does not tell.
        let mut command = None;
        for tid in numbers(&process.join("task")) {
            let directory = process.join(format!("task/{tid}"));
            let Some(mut thread) = stat(pid, &directory) else {
                continue;
            };
            let command = command.get_or_insert_with(|| {
                let command = fs::read_to_string(process.join("comm"));
                command.unwrap_or_default().trim().to_owned()
            });
            thread.forwarding = forwards_for(&thread.name, command)
                .and_then(|data_plane| forwarding(&directory, data_plane));
            if isolated.contains(thread.cpu) {
                thread.run_ns = run_ns(&directory);
            }
            threads.insert(tid, thread);
        }
    }
    threads
}

/// Fields of `stat` behind the command, state first (proc_pid_stat(5)).
const FLAGS: usize = 6;
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;
const PROCESSOR: usize = 36;
/// PF_KTHREAD of the kernel's include/linux/sched.h.
const KERNEL_THREAD: u64 = 0x0020_0000;

fn stat(pid: i32, directory: &Path) -> Option<ThreadSample> {
    let stat = fs::read_to_string(directory.join("stat")).ok()?;
    // The command may hold anything, parentheses too: its end is the last one.
    let end = stat.rfind(')')?;
    let name = stat.get(stat.find('(')? + 1..end)?;
    let mut fields = [0u64; PROCESSOR + 1];
    let rest = stat.get(end + 1..)?.split_whitespace();
    for (field, text) in fields.iter_mut().zip(rest) {
        *field = text.parse().unwrap_or(0);
    }
    Some(ThreadSample {
        pid,
        name: name.to_owned(),
        is_kernel: fields[FLAGS] & KERNEL_THREAD != 0,
        cpu: CpuId(u32::try_from(fields[PROCESSOR]).ok()?),
        ticks: (fields[USER_TICKS], fields[SYSTEM_TICKS]),
        run_ns: None,
        forwarding: None,
    })
}

fn run_ns(directory: &Path) -> Option<u64> {
    let text = fs::read_to_string(directory.join("schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn forwarding(directory: &Path, data_plane: DataPlane) -> Option<ForwardingSample> {
    let status = fs::read_to_string(directory.join("status")).ok()?;
    let number = |text: &str, key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim_start_matches([' ', ':', '\t'])
            .trim()
            .parse::<u64>()
            .ok()
    };
    // Only of kernels with CONFIG_SCHED_DEBUG.
    let debug = fs::read_to_string(directory.join("sched")).unwrap_or_default();
    Some(ForwardingSample {
        data_plane,
        voluntary: number(&status, "voluntary_ctxt_switches")?,
        involuntary: number(&status, "nonvoluntary_ctxt_switches")?,
        migrations: number(&debug, "se.nr_migrations"),
    })
}
