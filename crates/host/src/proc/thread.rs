// SPDX-License-Identifier: Apache-2.0
//! Files of one thread, `/proc/PID/task/TID` (proc(5)).

use std::io;
use std::path::{Path, PathBuf};

use quietwire_base::proc::read;

/// The directory of a thread; the thread may have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    tid: i32,
    directory: PathBuf,
}

impl Thread {
    /// Thread `tid` of process `pid`.
    #[must_use]
    pub fn of(root: &Path, pid: i32, tid: i32) -> Self {
        Self::below(&root.join(format!("proc/{pid}/task")), tid)
    }

    /// Thread `tid` of whatever process.
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

    /// Returns its number.
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
    /// What the system said; [`super::has_ended`] for a thread that has ended.
    pub fn stat(&self) -> io::Result<String> {
        read(&self.path("stat"))
    }

    /// Returns the text that [`quietwire_base::proc::Status`] parses.
    ///
    /// # Errors
    /// As [`Self::stat`].
    pub fn status(&self) -> io::Result<String> {
        read(&self.path("status"))
    }

    /// Returns the time that it ran, nanoseconds (`schedstat`); `None` if the kernel does not tell.
    #[must_use]
    pub fn run_ns(&self) -> Option<u64> {
        let text = read(&self.path("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    }

    /// Returns the number of changes of its CPU; `None` if the kernel does not tell. Only kernels with CONFIG_SCHED_DEBUG have
    /// `sched`.
    #[must_use]
    pub fn migrations(&self) -> Option<u64> {
        let text = read(&self.path("sched")).ok()?;
        text.lines().find_map(|line| {
            let (key, value) = line.rsplit_once(':')?;
            let is_it = key.trim().ends_with("nr_migrations");
            is_it.then(|| value.trim().parse().ok())?
        })
    }

    /// Returns the number of the system call that it waits in, -1 for a wait outside of any, `None` while it runs.
    ///
    /// # Errors
    /// As [`Self::stat`]; another user's threads are denied.
    pub fn system_call(&self) -> io::Result<Option<i64>> {
        let text = read(&self.path("syscall"))?;
        // The kernel says `running` for a thread that is on its CPU.
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
        // The first line of `sched` begins with the name, which may hold anything.
        write(
            "sched",
            b"nr_migrations : 9\xff (8, #threads: 1)\nse.nr_migrations   :     3\n",
        );
        write("schedstat", b"123 4 5\n");
        write("syscall", b"running\n");
        assert_eq!((thread.run_ns(), thread.migrations()), (Some(123), Some(3)));
        assert_eq!(thread.system_call().unwrap(), None);
        write("syscall", b"-1 0x0 0x0\n");
        assert_eq!(thread.system_call().unwrap(), Some(-1));
        write("schedstat", b"");
        write("sched", b"nr_migrations\n");
        assert_eq!((thread.run_ns(), thread.migrations()), (None, None));
        assert_eq!(
            Thread::numbered(root.path(), 8).path("stat"),
            root.path().join("proc/8/stat")
        );
    }
}
