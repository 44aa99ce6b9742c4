// SPDX-License-Identifier: Apache-2.0
//! Context for starting an element: processes, commands, and the journal that records all of them.

use std::fs;
use std::path::Path;
use std::process::ChildStdin;
use std::time::Duration;

use quietwire_base::Deadline;
use quietwire_base::supervised::{Command, Streams, Supervised};
use quietwire_host::cpuset::Cpuset;
use quietwire_host::journal::{Change, Journal};

use super::Plan;
use crate::error::{LabError, io_error};
use crate::netns::NetNs;
use crate::spawn;
use crate::stop::Stop;
use crate::topology::ElementPlace;

/// Timeout for a program's start. Several programs may share one CPU.
const UP_DEADLINE: Duration = Duration::from_secs(60);
/// Timeout for a program's exit after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for a command. The longest ones add a full route table to a device that shares its CPU.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(300);
/// Pause between two checks of a program's state.
const PAUSE: Duration = Duration::from_millis(20);

/// Prefix of a command that sees the interfaces of its network namespace below /sys, as with `ip netns exec` (sysfs(5): a mount
/// shows the namespace in which it was mounted).
const SHOWING: [&str; 7] = [
    "unshare",
    "--mount",
    "--",
    "sh",
    "-c",
    "mount -t sysfs sysfs /sys && exec \"$@\"",
    "sh",
];

/// A process of an element.
#[derive(Debug)]
pub(crate) struct Process {
    child: Supervised,
    name: String,
    command: String,
    stop_timeout: Duration,
}

impl Process {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns an error if it has exited.
    pub(crate) fn check(&mut self) -> Result<(), LabError> {
        self.check_as("died")
    }

    /// Returns an error if it has exited; `how` describes the exit.
    fn check_as(&mut self, how: &str) -> Result<(), LabError> {
        let ended = spawn::ended(&mut self.child, how);
        ended.map_or(Ok(()), |what| Err(self.failed(what)))
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(&mut self) -> Result<(), LabError> {
        self.child
            .kill()
            .map_err(|error| self.failed(format!("cannot be killed: {error}")))
    }

    /// Returns the pipe to its standard input, once; none if [`ElementContext::spawn`] started it.
    pub(crate) fn take_input(&mut self) -> Option<ChildStdin> {
        self.child.take_stdin()
    }

    /// Returns the last 64 KiB of its outputs.
    pub(crate) fn printed(&self) -> String {
        self.child.printed()
    }

    /// Sends SIGTERM and returns at once.
    pub(crate) fn ask_to_end(&self) {
        self.child.ask_to_end();
    }

    /// Terminates it with SIGTERM, and with SIGKILL after a timeout.
    pub(crate) fn stop(&mut self) -> Result<(), LabError> {
        match self.child.end(self.stop_timeout) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let name = &self.name;
                tracing::warn!("the device '{name}' did not stop on SIGTERM and was killed");
                Ok(())
            }
            Err(error) => Err(self.failed(format!("could not be stopped: {error}"))),
        }
    }

    fn failed(&self, what: String) -> LabError {
        LabError::Device {
            name: self.name.clone(),
            what,
            log: self.child.last_lines(),
            command: self.command.clone(),
        }
    }
}

/// Context that records every change in the journal before it is made, and every command for the result.
#[derive(Debug)]
pub(crate) struct ElementContext<'a> {
    journal: &'a mut Journal,
    /// Every command, in order.
    pub(crate) commands: &'a mut Vec<String>,
    /// CPU set that every process is in from its first instruction on; `None` for that of this process.
    pub(crate) set: Option<Cpuset>,
    /// Aborts every wait when set.
    pub(crate) stop: Stop,
    /// Timeout for the exit of its processes after SIGTERM.
    pub(crate) stop_timeout: Duration,
}

impl<'a> ElementContext<'a> {
    pub(crate) fn new(journal: &'a mut Journal, commands: &'a mut Vec<String>) -> Self {
        Self {
            journal,
            commands,
            set: None,
            stop: Stop::default(),
            stop_timeout: STOP_TIMEOUT,
        }
    }

    /// Returns the journal, for callers that record their changes themselves.
    pub(crate) fn journal(&mut self) -> &mut Journal {
        self.journal
    }

    /// Records a change before it is made.
    pub(crate) fn record(&mut self, change: &Change) -> Result<(), LabError> {
        self.journal
            .record(change)
            .map_err(io_error(self.journal.path(), "writing the journal"))
    }

    /// Creates a directory within the lab's own directory. It is removed with the lab.
    pub(crate) fn make_directory(&mut self, path: &Path) -> Result<(), LabError> {
        fs::create_dir_all(path).map_err(io_error(path, "making the directory"))
    }

    /// Starts a program of an element in the element's namespace, on the CPUs that it may use. The kernel kills it when this
    /// process exits.
    pub(crate) fn spawn(
        &mut self,
        plan: &Plan,
        log: &str,
        environment: &[(&str, String)],
        words: &[String],
    ) -> Result<Process, LabError> {
        let log = plan.directory.join(log);
        self.spawn_on(plan, Streams::Log(&log), environment, words)
    }

    /// As [`Self::spawn`], with a pipe to the standard input of the program.
    pub(crate) fn spawn_with_input(
        &mut self,
        plan: &Plan,
        log: &str,
        words: &[String],
    ) -> Result<Process, LabError> {
        let log = plan.directory.join(log);
        self.spawn_on(plan, Streams::InputAndLog(&log), &[], words)
    }

    fn spawn_on(
        &mut self,
        plan: &Plan,
        streams: Streams<'_>,
        environment: &[(&str, String)],
        words: &[String],
    ) -> Result<Process, LabError> {
        let mut inner = Vec::new();
        if plan.place == ElementPlace::Container {
            inner.extend(["unshare", "--ipc", "--uts"].map(str::to_owned));
        }
        if plan.namespace.is_some() {
            inner.extend(SHOWING.map(str::to_owned));
        }
        if let Some(cpus) = plan.affinity() {
            inner.extend(["taskset", "--cpu-list"].map(str::to_owned));
            inner.push(cpus.to_string());
        }
        if !environment.is_empty() {
            inner.push("env".to_owned());
            inner.extend(
                environment
                    .iter()
                    .map(|(key, value)| format!("{key}={value}")),
            );
        }
        inner.extend_from_slice(words);
        let place = NetNs::of(plan.namespace.as_deref())?;
        let command = place.command(&inner)?;
        let child = spawn::spawn(self.journal, &command, self.set.as_ref(), streams)?;
        self.commands.push(command.join(" "));
        Ok(Process {
            child,
            name: plan.name.clone(),
            command: command.join(" "),
            stop_timeout: self.stop_timeout,
        })
    }

    /// Runs a command until it exits and returns its output.
    pub(crate) fn run(&mut self, words: &[&str]) -> Result<String, LabError> {
        let line = words.join(" ");
        self.commands.push(line.clone());
        run(words).map_err(|printed| LabError::Command {
            command: line,
            printed,
        })
    }

    /// Waits until a program is in the required state.
    pub(crate) fn wait_until(
        &self,
        plan: &Plan,
        processes: &mut [Process],
        what: &str,
        look: impl FnMut() -> Result<(), String>,
    ) -> Result<(), LabError> {
        self.wait_within(UP_DEADLINE, plan, processes, what, look)
    }

    /// As [`Self::wait_until`], with a limit.
    pub(crate) fn wait_within(
        &self,
        limit: Duration,
        plan: &Plan,
        processes: &mut [Process],
        what: &str,
        mut look: impl FnMut() -> Result<(), String>,
    ) -> Result<(), LabError> {
        let mut reason = String::new();
        let outcome = Deadline::after(limit).poll(PAUSE, || {
            let mut running = processes.iter_mut();
            if let Err(error) = running.try_for_each(|process| process.check_as("ended at once")) {
                return Some(Err(error));
            }
            reason = match look() {
                Ok(()) => return Some(Ok(())),
                Err(reason) => reason,
            };
            self.stop.check().err().map(Err)
        });
        outcome.unwrap_or_else(|| {
            let what = format!("did not {what} in {} s: {reason}", limit.as_secs());
            Err(match processes.last() {
                Some(process) => process.failed(what),
                None => plan.failed(what),
            })
        })
    }
}

/// Runs a command until it exits and returns its output, or its error output as an error. After 5 minutes it is killed.
pub(crate) fn run(words: &[&str]) -> Result<String, String> {
    run_within(COMMAND_TIMEOUT, words)
}

fn run_within(timeout: Duration, words: &[&str]) -> Result<String, String> {
    Command::of(words)
        .run(Deadline::after(timeout))
        .map_err(|error| error.to_string())?
        .into_result()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_does_not_end_is_killed_and_reported() {
        assert_eq!(run(&["echo", "out"]).unwrap(), "out\n");
        let short = Duration::from_millis(100);
        let reason = run_within(short, &["sh", "-c", "echo begun; sleep 600"]).unwrap_err();
        assert!(
            reason.starts_with("begun") && reason.contains("did not end within"),
            "{reason}"
        );
        let reason = run(&["sh", "-c", "echo no such device >&2; exit 2"]).unwrap_err();
        assert_eq!(reason, "no such device (exit status: 2)");
    }
}
