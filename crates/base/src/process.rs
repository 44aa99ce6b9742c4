// SPDX-License-Identifier: Apache-2.0
//! Processes with a permanent identity: the kernel reuses a number, but not a number with its start time.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::deadline::wait_until;
use crate::proc::{self, Stat};

/// One process, identified beyond the reuse of its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// The kernel's number.
    pub pid: i32,
    /// Start time, clock ticks since boot (field 22 of `/proc/PID/stat`, proc(5)).
    pub start_time: u64,
}

/// Time that a killed process has to end.
const KILL_DEADLINE: Duration = Duration::from_secs(5);

impl ProcessId {
    /// Returns the process that has this number now; `None` if there is no such process, or it is a zombie.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let text = proc::read(&PathBuf::from(format!("/proc/{pid}/stat"))).ok()?;
        let stat = Stat::parse(&text).filter(|stat| !stat.has_ended())?;
        let start_time = stat.start_time()?;
        Some(Self { pid, start_time })
    }

    /// Returns the calling process.
    #[must_use]
    pub fn own() -> Option<Self> {
        Self::of(i32::try_from(std::process::id()).ok()?)
    }

    /// Returns true while this process lives.
    #[must_use]
    pub fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// Asks the process to end (SIGTERM), and kills it after `timeout` (SIGKILL). Returns true if the process ended by itself after the
    /// request.
    ///
    /// # Errors
    /// The error of the system, or that the process outlived SIGKILL.
    pub fn end(self, timeout: Duration) -> io::Result<bool> {
        for (signal, wait) in [(Signal::SIGTERM, timeout), (Signal::SIGKILL, KILL_DEADLINE)] {
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
    }

    #[test]
    fn a_name_that_is_no_text_hides_no_process() {
        // A parenthesis, a newline, an octet that is not UTF-8.
        let script = r#"use v5.10; $| = 1; open(my $comm, ">", "/proc/self/comm"); syswrite($comm, ") Z\n\xff"); close($comm); say "ready"; <STDIN>"#;
        let mut child = Command::new("perl")
            .args(["-e", script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut printed = String::new();
        io::BufRead::read_line(
            &mut io::BufReader::new(child.stdout.take().unwrap()),
            &mut printed,
        )
        .unwrap();
        let id = ProcessId::of(i32::try_from(child.id()).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(printed, "ready\n");
        assert!(id.is_some());
    }
}
