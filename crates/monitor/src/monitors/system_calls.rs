// SPDX-License-Identifier: Apache-2.0
//! System calls of forwarding threads, sampled from `/proc/PID/task/TID/syscall` (proc_pid_syscall(5)) by a thread of its own. A sample
//! finds the call in which a thread waits. It rarely finds calls that return at once.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use nix::libc;
use quietwire_host::CpuList;
use quietwire_host::proc::Thread;
use quietwire_host::threads::set_affinity;
use serde::{Deserialize, Serialize};

use crate::monitor::Unavailable;

/// Time between two samples of a thread.
const INTERVAL: Duration = Duration::from_millis(5);

/// Maximum number of threads that are sampled.
const THREADS_MAX: usize = 256;

/// Samples of one forwarding thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemCallSamples {
    /// Process ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: i32,
    /// Number of samples.
    pub samples: u64,
    /// Samples in which the thread waited in a system call, by the name of the call; `outside` for a wait outside of system calls.
    pub waiting: BTreeMap<String, u64>,
}

/// Sampler of system calls. It stops when it is dropped.
#[derive(Debug)]
pub struct SystemCallSampler {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Vec<SystemCallSamples>>>,
}

impl SystemCallSampler {
    /// Starts a thread on `cpus` that samples threads, each given by process and thread ID. The files are below `root`.
    ///
    /// # Errors
    /// [`Unavailable`]: there is no CPU for the sampler, the kernel does not allow to read the system call, or the thread cannot start.
    pub fn start(root: &Path, threads: &[(u32, i32)], cpus: &CpuList) -> Result<Self, Unavailable> {
        if cpus.is_empty() {
            return Err(Unavailable(
                "device and tester use all CPUs, and none is left for the sampler".to_owned(),
            ));
        }
        let watched = watched(root, threads)?;
        let (stop, stopped) = channel();
        let cpus = cpus.clone();
        let sample = move || {
            // Sampling on a forwarding CPU would disturb what is measured.
            match set_affinity(0, &cpus) {
                Ok(()) => sample_until(watched, &stopped),
                Err(_) => Vec::new(),
            }
        };
        let thread = Builder::new().name("qw-sampler".to_owned()).spawn(sample);
        let thread = thread.map_err(|error| Unavailable(format!("no thread: {error}")))?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Stops sampling and returns the samples by thread. Empty if the sampler could not be moved to its CPUs.
    #[must_use]
    pub fn finish(mut self) -> Vec<SystemCallSamples> {
        self.end()
    }

    fn end(&mut self) -> Vec<SystemCallSamples> {
        // The thread ends when the channel closes.
        self.stop = None;
        let ended = self.thread.take().map(JoinHandle::join);
        ended.and_then(Result::ok).unwrap_or_default()
    }
}

impl Drop for SystemCallSampler {
    fn drop(&mut self) {
        self.end();
    }
}

/// A sampled thread.
struct Sampled {
    thread: Thread,
    found: SystemCallSamples,
}

fn watched(root: &Path, threads: &[(u32, i32)]) -> Result<Vec<Sampled>, Unavailable> {
    let mut watched = Vec::new();
    for (pid, tid) in threads.iter().take(THREADS_MAX) {
        let Ok(process) = i32::try_from(*pid) else {
            continue;
        };
        let thread = Thread::of(root, process, *tid);
        if let Err(error) = thread.system_call() {
            if error.kind() == ErrorKind::PermissionDenied {
                return Err(Unavailable(
                    "reading /proc/PID/task/TID/syscall requires the right to trace the process"
                        .to_owned(),
                ));
            }
            continue;
        }
        let found = SystemCallSamples {
            pid: *pid,
            tid: *tid,
            ..SystemCallSamples::default()
        };
        watched.push(Sampled { thread, found });
    }
    if watched.is_empty() {
        return Err(Unavailable(
            "there is no forwarding thread, or the kernel has no /proc/PID/task/TID/syscall"
                .to_owned(),
        ));
    }
    Ok(watched)
}

fn sample_until(mut watched: Vec<Sampled>, stopped: &Receiver<()>) -> Vec<SystemCallSamples> {
    while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        for one in &mut watched {
            one.sample();
        }
    }
    watched.into_iter().map(|one| one.found).collect()
}

impl Sampled {
    fn sample(&mut self) {
        // A thread that has ended gives no samples any more.
        let Ok(call) = self.thread.system_call() else {
            return;
        };
        self.found.samples = self.found.samples.saturating_add(1);
        if let Some(number) = call {
            let count = self.found.waiting.entry(name_of(number)).or_default();
            *count = count.saturating_add(1);
        }
    }
}

/// Calls in which forwarding threads of the supported data planes wait.
const NAMES: [(libc::c_long, &str); 24] = [
    (libc::SYS_read, "read"),
    (libc::SYS_write, "write"),
    (libc::SYS_readv, "readv"),
    (libc::SYS_writev, "writev"),
    (libc::SYS_ioctl, "ioctl"),
    (libc::SYS_sched_yield, "sched_yield"),
    (libc::SYS_madvise, "madvise"),
    (libc::SYS_mmap, "mmap"),
    (libc::SYS_munmap, "munmap"),
    (libc::SYS_mprotect, "mprotect"),
    (libc::SYS_nanosleep, "nanosleep"),
    (libc::SYS_clock_nanosleep, "clock_nanosleep"),
    (libc::SYS_sendto, "sendto"),
    (libc::SYS_recvfrom, "recvfrom"),
    (libc::SYS_sendmsg, "sendmsg"),
    (libc::SYS_recvmsg, "recvmsg"),
    (libc::SYS_sendmmsg, "sendmmsg"),
    (libc::SYS_recvmmsg, "recvmmsg"),
    (libc::SYS_futex, "futex"),
    (libc::SYS_epoll_pwait, "epoll_pwait"),
    (libc::SYS_ppoll, "ppoll"),
    (libc::SYS_pselect6, "pselect6"),
    (libc::SYS_io_uring_enter, "io_uring_enter"),
    (libc::SYS_membarrier, "membarrier"),
];

/// Calls that only older architectures have.
#[cfg(target_arch = "x86_64")]
const OLDER_NAMES: [(libc::c_long, &str); 3] = [
    (libc::SYS_poll, "poll"),
    (libc::SYS_select, "select"),
    (libc::SYS_epoll_wait, "epoll_wait"),
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER_NAMES: [(libc::c_long, &str); 0] = [];

/// Returns the names of the calls in which forwarding threads of the supported data planes wait.
pub(super) fn names_of_calls() -> impl Iterator<Item = &'static str> {
    let known = NAMES.into_iter().chain(OLDER_NAMES);
    known.map(|(_, name)| name)
}

/// Returns the name of a system call, or its number if the name is unknown.
fn name_of(number: i64) -> String {
    if number < 0 {
        return "outside".to_owned();
    }
    let mut known = NAMES.iter().chain(&OLDER_NAMES);
    let found = known.find(|(call, _)| *call == number);
    found.map_or_else(
        || format!("number {number}"),
        |(_, name)| (*name).to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use quietwire_host::threads::online_cpus;

    use super::*;

    fn recorded(call: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let task = root.path().join("proc/7/task/8");
        fs::create_dir_all(&task).unwrap();
        fs::write(task.join("syscall"), call).unwrap();
        root
    }

    #[test]
    fn calls_are_counted_by_name() {
        let call = format!("{} 0x0 0x0\n", libc::SYS_clock_nanosleep);
        for (call, waiting) in [(call.as_str(), 2), ("running\n", 0)] {
            let root = recorded(call);
            // Thread 9 does not exist.
            let mut sampled = watched(root.path(), &[(7, 8), (7, 9)]).unwrap();
            assert_eq!(sampled.len(), 1);
            sampled[0].sample();
            sampled[0].sample();
            fs::remove_dir_all(root.path().join("proc/7")).unwrap();
            sampled[0].sample();
            let found = &sampled[0].found;
            assert_eq!((found.pid, found.tid, found.samples), (7, 8, 2));
            let counted = found.waiting.get("clock_nanosleep").copied();
            assert_eq!(counted.unwrap_or(0), waiting);
        }
        assert_eq!(name_of(-1), "outside");
        assert_eq!(name_of(99_999), "number 99999");
    }

    #[test]
    fn a_sampler_ends_with_the_samples_of_each_thread() {
        let root = recorded("running\n");
        let cpus = online_cpus(Path::new("/")).unwrap();
        let sampler = SystemCallSampler::start(root.path(), &[(7, 8)], &cpus).unwrap();
        let found = sampler.finish();
        assert_eq!(found.len(), 1);
        assert!(found[0].waiting.is_empty());
    }

    #[test]
    fn a_sampler_without_a_cpu_or_a_thread_does_not_start() {
        let root = recorded("running\n");
        let start = |threads: &[(u32, i32)], cpus: &CpuList| {
            SystemCallSampler::start(root.path(), threads, cpus)
                .unwrap_err()
                .0
        };
        assert!(start(&[(7, 8)], &CpuList::new()).contains("use all CPUs"));
        let cpus = online_cpus(Path::new("/")).unwrap();
        assert!(start(&[(7, 9)], &cpus).contains("no forwarding thread"));
        assert!(start(&[], &cpus).contains("no forwarding thread"));
    }
}
