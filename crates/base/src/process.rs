// SPDX-License-Identifier: Apache-2.0
//! Processes with a permanent identity: the kernel reuses a number, but not a number with its start time, and start times begin again
//! with each boot.

use std::fmt;
use std::io;
use std::num::NonZeroU128;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::deadline::Deadline;
use crate::proc::{self, Stat};

/// One boot of this machine: the kernel draws a random number at each (`/proc/sys/kernel/random/boot_id`, random(4)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BootId(NonZeroU128);

impl BootId {
    /// Returns the running boot; `None` if the kernel does not show it.
    #[must_use]
    pub fn current() -> Option<Self> {
        static CURRENT: OnceLock<Option<BootId>> = OnceLock::new();
        *CURRENT.get_or_init(|| {
            let text = proc::read(Path::new("/proc/sys/kernel/random/boot_id")).ok()?;
            Self::parse(text.trim())
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let digits = text.replace('-', "");
        let number = u128::from_str_radix(&digits, 16).ok()?;
        (digits.len() == 32).then(|| NonZeroU128::new(number).map(Self))?
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Serialize for BootId {
    /// Writes 32 hexadecimal digits.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BootId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| serde::de::Error::custom(format!("'{text}' is not a boot ID")))
    }
}

/// One process, identified beyond the reuse of its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// The kernel's number.
    pub pid: i32,
    /// Start time, clock ticks since boot (field 22 of `/proc/PID/stat`, proc(5)).
    pub start_time: u64,
    /// The boot in which it runs; `None` if a file of an earlier version names the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootId>,
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
        let boot = BootId::current();
        Some(Self {
            pid,
            start_time,
            boot,
        })
    }

    /// Returns the calling process.
    #[must_use]
    pub fn own() -> Option<Self> {
        Self::of(i32::try_from(std::process::id()).ok()?)
    }

    /// Returns true while this process lives.
    #[must_use]
    pub fn is_alive(self) -> bool {
        Self::of(self.pid).is_some_and(|now| {
            let is_of_boot = self.boot.is_none() || now.boot.is_none() || self.boot == now.boot;
            is_of_boot && now.start_time == self.start_time
        })
    }

    /// Returns a handle that stands for this process even if its number is used again; `None` if the process has ended.
    ///
    /// # Errors
    /// The error of the system (pidfd_open(2)).
    pub fn handle(self) -> io::Result<Option<ProcessHandle>> {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return Ok(None);
        };
        let descriptor = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => descriptor,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Checked after the descriptor was opened, so the descriptor is this process's.
        Ok(self.is_alive().then_some(ProcessHandle { descriptor }))
    }

    /// Asks the process to end (SIGTERM), and kills it after `timeout` (SIGKILL). Returns true if the process ended by itself after the
    /// request.
    ///
    /// # Errors
    /// The error of the system, or that the process outlived SIGKILL.
    pub fn end(self, timeout: Duration) -> io::Result<bool> {
        let Some(handle) = self.handle()? else {
            return Ok(true);
        };
        handle.ask_to_end()?;
        if handle.wait(Deadline::after(timeout))? {
            return Ok(true);
        }
        handle.kill()?;
        if handle.wait(Deadline::after(KILL_DEADLINE))? {
            return Ok(false);
        }
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("process {} outlived SIGKILL", self.pid),
        ))
    }
}

/// A process of which the number may be used again without harm (pidfd_open(2)).
#[derive(Debug)]
pub struct ProcessHandle {
    descriptor: OwnedFd,
}

impl ProcessHandle {
    /// Sends SIGTERM, if the process has not ended.
    ///
    /// # Errors
    /// The error of the system.
    pub fn ask_to_end(&self) -> io::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Sends SIGKILL, if the process has not ended.
    ///
    /// # Errors
    /// The error of the system.
    pub fn kill(&self) -> io::Result<()> {
        self.signal(Signal::KILL)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.descriptor, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the process has ended, with all its threads. Returns false if it has not at the deadline.
    ///
    /// # Errors
    /// The error of the system.
    pub fn wait(&self, deadline: Deadline) -> io::Result<bool> {
        loop {
            let remaining = deadline.remaining();
            // Rounded up: a wait of zero would not wait for the last millisecond.
            let remaining = remaining.saturating_add(Duration::from_micros(999));
            let timeout = PollTimeout::try_from(remaining).unwrap_or(PollTimeout::MAX);
            let mut ended = [PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN)];
            match poll(&mut ended, timeout) {
                Ok(0) if deadline.has_passed() => return Ok(false),
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
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
        let of_boot = |boot: &str| Some(BootId::parse(boot).unwrap());
        let other_boot = of_boot("6a3d8d1e-6b3f-4d7e-9a52-0d2b4f3c1a00");
        for other in [
            ProcessId {
                start_time: id.start_time + 1,
                ..id
            },
            ProcessId {
                boot: other_boot,
                ..id
            },
        ] {
            // Another process has the number now: it is left alone.
            assert!(!other.is_alive());
            assert!(other.handle().unwrap().is_none());
            assert!(other.end(Duration::ZERO).unwrap());
            assert!(id.is_alive());
        }
        // Files of earlier versions name no boot.
        assert!(ProcessId { boot: None, ..id }.is_alive());
        assert!(id.end(Duration::from_secs(5)).unwrap());
        assert!(!id.is_alive());
        child.wait().unwrap();
        assert!(ProcessId::own().unwrap().is_alive());
        assert_eq!(ProcessId::of(-1), None);
    }

    #[test]
    fn a_process_that_ignores_the_request_is_killed() {
        let mut child = Command::new("sh")
            .args(["-c", "trap '' TERM; echo ready; while :; do sleep 1; done"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut printed = String::new();
        let stdout = child.stdout.take().unwrap();
        io::BufRead::read_line(&mut io::BufReader::new(stdout), &mut printed).unwrap();
        let id = ProcessId::of(i32::try_from(child.id()).unwrap()).unwrap();
        let handle = id.handle().unwrap().unwrap();
        assert!(!handle.wait(Deadline::after(Duration::ZERO)).unwrap());
        assert!(!id.end(Duration::from_millis(50)).unwrap());
        assert!(handle.wait(Deadline::after(Duration::ZERO)).unwrap());
        child.wait().unwrap();
        // The number is free: a handle of the process that had it sends nothing.
        handle.kill().unwrap();
        assert!(id.handle().unwrap().is_none());
    }

    #[test]
    fn names_of_processes_have_their_boot_and_are_read_without_it() {
        let own = ProcessId::own().unwrap();
        let text = serde_json::to_string(&own).unwrap();
        assert!(text.contains("\"boot\":\""), "{text}");
        assert_eq!(serde_json::from_str::<ProcessId>(&text).unwrap(), own);
        let old: ProcessId = serde_json::from_str(r#"{"pid":7,"start_time":9}"#).unwrap();
        assert_eq!((old.pid, old.start_time, old.boot), (7, 9, None));
        for text in [
            "",
            "7",
            "6a3d8d1e-6b3f-4d7e-9a52-0d2b4f3c1a0g",
            "6a3d8d1e6b3f4d7e9a520d2b4f3c1a0000",
        ] {
            assert_eq!(BootId::parse(text), None, "{text}");
        }
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
