// SPDX-License-Identifier: Apache-2.0
//! Files of one thread, `/proc/PID/task/TID` (proc(5)).

use std::io;
use std::path::{Path, PathBuf};

use quietwire_base::proc::read;

/// Directory of a thread, which may have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    tid: i32,
    directory: PathBuf,
}

impl Thread {
    /// Returns thread `tid` of process `pid`.
    #[must_use]
    pub fn of(root: &Path, pid: i32, tid: i32) -> Self {
        Self::below(&root.join(format!("proc/{pid}/task")), tid)
    }

    /// Returns thread `tid` of any process.
    #[must_use]
    pub fn numbered(root: &Path, tid: i32) -> Self {
        Self::below(&root.join("proc"), tid)
    }

    pub(super) fn below(tasks: &Path, tid: i32) -> Self {
        Self {
            tid,
            directory: tasks.join(tid.to_string()),
        }
    }

    /// Returns the thread ID.
    #[must_use]
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// Returns the path of one of its files.
    #[must_use]
    pub fn path(&self, file: &str) -> PathBuf {
        self.directory.join(file)
    }

    /// Returns the text that [`quietwire_base::proc::Stat`] parses.
    ///
    /// # Errors
    /// Error of the operating system. [`super::has_ended`] recognises the error of a thread that has ended.
    pub fn stat(&self) -> io::Result<String> {
        read(&self.path("stat"))
    }

    /// Returns the text that [`quietwire_base::proc::Status`] parses.
    ///
    /// # Errors
    /// Errors of [`Self::stat`].
    pub fn status(&self) -> io::Result<String> {
        read(&self.path("status"))
    }

    /// Returns the run time, nanoseconds (`schedstat`). `None` if the kernel does not report it.
    #[must_use]
    pub fn run_ns(&self) -> Option<u64> {
        let text = read(&self.path("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    }

    /// Returns the time that the thread waited for a CPU while it could run, nanoseconds (`schedstat`). `None` if the kernel does not
    /// report it.
    #[must_use]
    pub fn run_delay_ns(&self) -> Option<u64> {
        let text = read(&self.path("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse().ok()
    }

    /// Returns the number of migrations to another CPU. `None` if the kernel does not report it. Only kernels with
    /// CONFIG_SCHED_DEBUG have `sched`.
    #[must_use]
    pub fn migrations(&self) -> Option<u64> {
        let text = read(&self.path("sched")).ok()?;
        text.lines().find_map(|line| {
            let (key, value) = line.rsplit_once(':')?;
            let is_it = key.trim().ends_with("nr_migrations");
            is_it.then(|| value.trim().parse().ok())?
        })
    }

    /// Returns the number of the system call in which the thread waits, or -1 for a wait outside of system calls. `None` while the
    /// thread is running.
    ///
    /// # Errors
    /// Errors of [`Self::stat`]. Permission is denied for threads of other users.
    pub fn system_call(&self) -> io::Result<Option<i64>> {
        let text = read(&self.path("syscall"))?;
        // The kernel reports `running` for a thread that is on a CPU.
        Ok(text
            .split_whitespace()
            .next()
            .and_then(|number| number.parse().ok()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_that_are_missing_or_nonsense_have_no_figures() {
        let root = tempfile::tempdir().unwrap();
        let thread = Thread::of(root.path(), 7, 8);
        assert_eq!((thread.run_ns(), thread.migrations()), (None, None));
        assert!(super::super::has_ended(&thread.stat().unwrap_err()));
        fs::create_dir_all(thread.path("")).unwrap();
        let write = |file: &str, text: &[u8]| fs::write(thread.path(file), text).unwrap();
        // The first line of `sched` begins with the name, which may contain any character.
        write(
            "sched",
            b"nr_migrations : 9\xff (8, #threads: 1)\nse.nr_migrations   :     3\n",
        );
        write("schedstat", b"123 4 5\n");
        write("syscall", b"running\n");
        assert_eq!((thread.run_ns(), thread.migrations()), (Some(123), Some(3)));
        assert_eq!(thread.run_delay_ns(), Some(4));
        assert_eq!(thread.system_call().unwrap(), None);
        write("syscall", b"-1 0x0 0x0\n");
        assert_eq!(thread.system_call().unwrap(), Some(-1));
        write("schedstat", b"5");
        assert_eq!((thread.run_ns(), thread.run_delay_ns()), (Some(5), None));
        write("schedstat", b"");
        write("sched", b"nr_migrations\n");
        assert_eq!((thread.run_ns(), thread.migrations()), (None, None));
        assert_eq!(
            Thread::numbered(root.path(), 8).path("stat"),
            root.path().join("proc/8/stat")
        );
    }
}
