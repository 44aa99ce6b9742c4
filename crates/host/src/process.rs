// SPDX-License-Identifier: Apache-2.0
//! Processes, told apart for good: a number may be used again, a number with its start time is not.

use std::fs;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// One process, whatever happens to its number later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// The kernel's number.
    pub pid: i32,
    /// When it started, clock ticks since boot (field 22 of `/proc/PID/stat`, proc(5)).
    pub start_time: u64,
}

/// Where start_time stands behind the command's closing parenthesis, in fields.
const START_TIME_FIELD: usize = 19;

impl ProcessId {
    /// The process that has this number now; none when there is no such process, or it is a zombie.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let fields = stat_fields(pid)?;
        if matches!(fields.first()?.as_str(), "Z" | "X") {
            return None;
        }
        let start_time = fields.get(START_TIME_FIELD)?.parse().ok()?;
        Some(Self { pid, start_time })
    }

    /// The calling process.
    #[must_use]
    pub fn own() -> Option<Self> {
        Self::of(i32::try_from(std::process::id()).ok()?)
    }

    /// True while this very process lives.
    #[must_use]
    pub fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// Asks the process to end (SIGTERM), and after `patience` ends it (SIGKILL). True when it was asked and ended
    /// by itself.
    ///
    /// # Errors
    /// What the system said, or that the process lives on all the same.
    pub fn end(self, patience: Duration) -> io::Result<bool> {
        for (signal, wait) in [
            (Signal::SIGTERM, patience),
            (Signal::SIGKILL, KILL_DEADLINE),
        ] {
            if !self.is_alive() {
                return Ok(true);
            }
            match kill(Pid::from_raw(self.pid), signal) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => return Err(error.into()),
            }
            if wait_until(wait, || !self.is_alive()) {
                return Ok(signal == Signal::SIGTERM);
            }
        }
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("process {} outlived SIGKILL", self.pid),
        ))
    }
}

/// How long a killed process may take to go.
const KILL_DEADLINE: Duration = Duration::from_secs(5);

/// Looks again and again until `condition` holds; false when it does not within `deadline`.
pub fn wait_until(deadline: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if began.elapsed() >= deadline {
            return false;
        }
        sleep(Duration::from_millis(5));
    }
}

/// Where flags stands behind the command's closing parenthesis, in fields.
const FLAGS_FIELD: usize = 6;
/// PF_NO_SETAFFINITY of the kernel's include/linux/sched.h: a kernel thread whose CPUs are not for us to choose.
const NO_SET_AFFINITY: u64 = 0x0400_0000;

/// True for a kernel thread that is bound to its CPUs: it cannot be moved, and need not be.
#[must_use]
pub fn is_bound(tid: i32) -> bool {
    stat_fields(tid)
        .and_then(|fields| fields.get(FLAGS_FIELD)?.parse::<u64>().ok())
        .is_some_and(|flags| flags & NO_SET_AFFINITY != 0)
}

/// Fields of `/proc/PID/stat` behind the command, state first.
fn stat_fields(pid: i32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command may hold anything, parentheses too: its end is the last one.
    let fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    Some(fields.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_is_known_until_it_ends() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let id = ProcessId::of(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(id.is_alive());
        assert!(
            !ProcessId {
                start_time: id.start_time + 1,
                ..id
            }
            .is_alive()
        );
        assert!(id.end(Duration::from_secs(5)).unwrap());
        assert!(!id.is_alive());
        child.wait().unwrap();
        assert!(ProcessId::own().unwrap().is_alive());
        assert_eq!(ProcessId::of(-1), None);
        assert!(!is_bound(-1) && !is_bound(ProcessId::own().unwrap().pid));
    }
}
