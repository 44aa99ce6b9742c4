// SPDX-License-Identifier: Apache-2.0
//! Online CPUs, and the CPU affinity of the threads of a process.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use quietwire_base::proc::Status;

use crate::CpuList;
use crate::proc::{self, Thread, has_ended};

/// A kernel file that could not be read or parsed.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {cause}", path.display())]
pub struct ReadError {
    /// The file or directory.
    pub path: PathBuf,
    /// Error of the operating system, or the problem of the text.
    pub cause: String,
}

/// A thread and its CPU affinity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadCpus {
    /// Thread ID.
    pub tid: i32,
    /// Its name (`/proc/PID/task/TID/comm`), at most 15 octets.
    pub name: String,
    /// CPU affinity (`Cpus_allowed_list` of `/proc/PID/task/TID/status`).
    pub cpus: CpuList,
}

fn unreadable(path: &Path, cause: impl ToString) -> ReadError {
    ReadError {
        path: path.to_owned(),
        cause: cause.to_string(),
    }
}

/// Returns the online CPUs from `/sys/devices/system/cpu/online` below `root`.
///
/// # Errors
/// [`ReadError`] if the file does not exist or is not a CPU list.
pub fn online_cpus(root: &Path) -> Result<CpuList, ReadError> {
    let path = root.join("sys/devices/system/cpu/online");
    fs::read_to_string(&path)
        .map_err(|cause| unreadable(&path, cause))?
        .parse()
        .map_err(|cause| unreadable(&path, cause))
}

/// Returns the threads of the calling process from `/proc/self/task` below `root`, sorted by thread ID, without those that
/// end meanwhile.
///
/// # Errors
/// [`ReadError`] if the directory or a thread's file cannot be read.
pub fn own_threads(root: &Path) -> Result<Vec<ThreadCpus>, ReadError> {
    listed(&root.join("proc/self/task"), proc::own_threads(root))
}

/// Returns the threads of a process from `/proc/PID/task` below `root`, sorted by thread ID.
///
/// # Errors
/// Errors of [`own_threads`], and a process that does not exist.
pub fn threads_of(root: &Path, pid: u32) -> Result<Vec<ThreadCpus>, ReadError> {
    let path = root.join(format!("proc/{pid}/task"));
    let pid = i32::try_from(pid).map_err(|cause| unreadable(&path, cause))?;
    listed(&path, proc::threads(root, pid))
}

/// Returns the CPU affinity of a task. `None` if it has ended.
#[must_use]
pub fn allowed_cpus(root: &Path, tid: i32) -> Option<CpuList> {
    Some(cpus_of(&Thread::numbered(root, tid)).ok()??.cpus)
}

/// Restricts a thread to `cpus` (sched_setaffinity(2)).
///
/// # Errors
/// Error of the operating system: ESRCH if the thread has ended, EINVAL if its CPU set allows none of the CPUs.
pub fn set_affinity(tid: i32, cpus: &CpuList) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus.iter() {
        set.set(cpu.0 as usize)?;
    }
    Ok(sched_setaffinity(Pid::from_raw(tid), &set)?)
}

fn listed(path: &Path, threads: io::Result<Vec<Thread>>) -> Result<Vec<ThreadCpus>, ReadError> {
    let mut found = Vec::new();
    for thread in threads.map_err(|cause| unreadable(path, cause))? {
        found.extend(cpus_of(&thread)?);
    }
    Ok(found)
}

/// Returns a thread's name and CPU affinity. `None` if it has ended.
fn cpus_of(thread: &Thread) -> Result<Option<ThreadCpus>, ReadError> {
    let path = thread.path("status");
    let text = match thread.status() {
        Err(error) if has_ended(&error) => return Ok(None),
        read => read.map_err(|cause| unreadable(&path, cause))?,
    };
    let status = Status::new(&text);
    let cpus = status
        .allowed_cpus()
        .ok_or_else(|| unreadable(&path, "it has no line 'Cpus_allowed_list'"))?
        .parse()
        .map_err(|cause| unreadable(&path, cause))?;
    Ok(Some(ThreadCpus {
        tid: thread.tid(),
        name: status.name().unwrap_or_default(),
        cpus,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(threads: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (tid, status) in threads {
            let task = root.path().join("proc/self/task").join(tid);
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("status"), status).unwrap();
        }
        root
    }

    #[test]
    fn threads_come_by_number_with_their_cpus() {
        let root = machine(&[
            (
                "20",
                "Name:\tqw-fwd-3\nCpus_allowed:\t8\nCpus_allowed_list:\t3\n",
            ),
            ("9", "Name:\tquietwire\nCpus_allowed_list:\t0-1\n"),
        ]);
        // The thread has ended between listing and reading.
        fs::create_dir_all(root.path().join("proc/self/task/30")).unwrap();
        let threads = own_threads(root.path()).unwrap();
        let observed: Vec<(i32, &str, String)> = threads
            .iter()
            .map(|t| (t.tid, t.name.as_str(), t.cpus.to_string()))
            .collect();
        assert_eq!(
            observed,
            [
                (9, "quietwire", "0-1".to_owned()),
                (20, "qw-fwd-3", "3".to_owned())
            ]
        );
    }

    #[test]
    fn cpu_lists_that_cannot_be_parsed_are_reported() {
        let root = machine(&[("9", "Name:\tx\nCpus_allowed_list:\tmany\n")]);
        let error = own_threads(root.path()).unwrap_err().to_string();
        assert!(
            error.contains("task/9/status") && error.contains("'many'"),
            "{error}"
        );
        let root = machine(&[("9", "Name:\tx\n")]);
        assert!(own_threads(root.path()).is_err());
        assert!(online_cpus(root.path()).is_err());
    }

    #[test]
    fn the_running_machine_has_this_thread() {
        let root = Path::new("/");
        let online = online_cpus(root).unwrap();
        let threads = own_threads(root).unwrap();
        assert!(!online.is_empty() && !threads.is_empty());
        assert!(threads.iter().all(|thread| !thread.cpus.is_empty()));
        let same = threads_of(root, std::process::id()).unwrap();
        assert!(!same.is_empty());
        assert!(threads_of(root, 0).is_err());
        assert_eq!(allowed_cpus(root, 0), None);
    }

    #[test]
    fn a_thread_keeps_to_the_cpu_it_was_given() {
        let root = Path::new("/");
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let tid = i32::try_from(child.id()).unwrap();
        for cpu in online_cpus(root).unwrap().iter() {
            let one: CpuList = [cpu].into_iter().collect();
            set_affinity(tid, &one).unwrap();
            assert_eq!(allowed_cpus(root, tid), Some(one));
        }
        assert!(set_affinity(tid, &CpuList::new()).is_err());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(set_affinity(tid, &"0".parse().unwrap()).is_err());
    }
}
