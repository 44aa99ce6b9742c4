// SPDX-License-Identifier: Apache-2.0
//! Reader of processes, threads and interrupts in `/proc`. All files are below a root directory, so the files of another
//! machine can be read as well. The parsers of single lines are in [`quietwire_base::proc`].

mod interrupts;
mod machine;
mod thread;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use nix::errno::Errno;
use quietwire_base::proc::read;

pub use interrupts::{Line, PerCpu};
pub use machine::{Mount, buffers_by_node, cache_kib, counter, memory_by_node, memory_mib, mounts};
pub use thread::Thread;

/// Returns whether an error means that the file's thread or process has ended: the file does not exist, or the thread ended
/// after it was opened (ESRCH).
#[must_use]
pub fn has_ended(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ESRCH as i32)
}

/// Returns the PIDs of all processes, in order. Empty if `/proc` cannot be read.
#[must_use]
pub fn processes(root: &Path) -> Vec<i32> {
    numbers(&root.join("proc")).unwrap_or_default()
}

/// Returns the name of a process (`/proc/PID/comm`), at most 15 octets. Empty if it has ended.
#[must_use]
pub fn process_name(root: &Path, pid: i32) -> String {
    let text = read(&root.join(format!("proc/{pid}/comm"))).unwrap_or_default();
    // One newline ends the file. The name itself may end with newlines.
    text.strip_suffix('\n').unwrap_or(&text).to_owned()
}

/// Returns the threads of a process, sorted by thread ID.
///
/// # Errors
/// Errors of [`fs::read_dir`], for example if the process does not exist.
pub fn threads(root: &Path, pid: i32) -> io::Result<Vec<Thread>> {
    threads_below(&root.join(format!("proc/{pid}/task")))
}

/// Returns the threads of the calling process, sorted by thread ID.
///
/// # Errors
/// Errors of [`fs::read_dir`].
pub fn own_threads(root: &Path) -> io::Result<Vec<Thread>> {
    threads_below(&root.join("proc/self/task"))
}

fn threads_below(tasks: &Path) -> io::Result<Vec<Thread>> {
    let numbers = numbers(tasks)?.into_iter();
    Ok(numbers.map(|tid| Thread::below(tasks, tid)).collect())
}

/// Returns the entries of a directory that are numbers, in order.
fn numbers(directory: &Path) -> io::Result<Vec<i32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory)? {
        numbers.extend(
            entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<i32>().ok()),
        );
    }
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_and_threads_come_by_number() {
        let root = tempfile::tempdir().unwrap();
        for directory in [
            "20/task/21",
            "20/task/20",
            "20/task/x",
            "3/task/3",
            "self",
            "sys",
        ] {
            fs::create_dir_all(root.path().join("proc").join(directory)).unwrap();
        }
        fs::write(root.path().join("proc/20/comm"), "a) b\n\n").unwrap();
        assert_eq!(processes(root.path()), [3, 20]);
        let of = |pid| threads(root.path(), pid).map(|all| all.iter().map(Thread::tid).collect());
        let tids: Vec<i32> = of(20).unwrap();
        assert_eq!(tids, [20, 21]);
        let missing = of(7).unwrap_err();
        assert!(has_ended(&missing), "{missing}");
        assert_eq!(process_name(root.path(), 20), "a) b\n");
        assert_eq!(process_name(root.path(), 7), "");
        assert!(!has_ended(&ErrorKind::PermissionDenied.into()));
        assert!(has_ended(&Errno::ESRCH.into()));
    }
}
