// SPDX-License-Identifier: Apache-2.0
//! What bringing up an element takes: processes, commands, and the journal that knows of all.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use quietwire_host::cpuset::Cpuset;
use quietwire_host::journal::{Change, Journal};

use super::Plan;
use crate::error::{LabError, io_error};
use crate::netns::NetNs;
use crate::spawn::{self, last_words};
use crate::stop::Stop;
use crate::topology::ElementPlace;

/// How long a program may take to come up. Several of them may have one CPU.
const UP_DEADLINE: Duration = Duration::from_secs(60);
/// How long one may take to stop when asked.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Begins a command that sees the interfaces of its network namespace below /sys, as behind `ip netns exec` (sysfs(5): what a
/// mount shows is that of the namespace in which it was made).
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
    child: Child,
    name: String,
    command: String,
    log: PathBuf,
}

impl Process {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// An error when it has ended.
    pub(crate) fn check(&mut self) -> Result<(), LabError> {
        self.check_as("died")
    }

    /// An error when it has ended; `how` tells of it.
    fn check_as(&mut self, how: &str) -> Result<(), LabError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.failed(format!("{how}, with {status}"))),
            Err(error) => Err(self.failed(format!("cannot be watched: {error}"))),
        }
    }

    /// Kills it, without a chance to say goodbye.
    pub(crate) fn kill(&mut self) -> Result<(), LabError> {
        self.child
            .kill()
            .and_then(|()| self.child.wait())
            .map(|_| ())
            .map_err(|error| self.failed(format!("could not be killed: {error}")))
    }

    /// Asks it to end, and does not wait for that.
    pub(crate) fn ask_to_end(&self) {
        quietwire_base::supervised::ask_to_end(&self.child);
    }

    /// Asks it to end, and makes it.
    pub(crate) fn stop(&mut self) -> Result<(), LabError> {
        match quietwire_base::supervised::end(&mut self.child, STOP_TIMEOUT) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let name = &self.name;
                tracing::warn!("the device '{name}' did not stop when asked, and was killed");
                Ok(())
            }
            Err(error) => Err(self.failed(format!("could not be stopped: {error}"))),
        }
    }

    fn failed(&self, what: String) -> LabError {
        LabError::Device {
            name: self.name.clone(),
            what,
            log: last_words(&self.log),
            command: self.command.clone(),
        }
    }
}

/// Where things are made, so that they are known to the journal first and to the record afterwards.
#[derive(Debug)]
pub(crate) struct ElementContext<'a> {
    journal: &'a mut Journal,
    /// Every command, in order.
    pub(crate) commands: &'a mut Vec<String>,
    /// The CPU set that every process is in from its first instruction on; none for that of this process.
    pub(crate) set: Option<Cpuset>,
    /// Nothing is waited for any more once this is wanted.
    pub(crate) stop: Stop,
}

impl<'a> ElementContext<'a> {
    pub(crate) fn new(journal: &'a mut Journal, commands: &'a mut Vec<String>) -> Self {
        Self {
            journal,
            commands,
            set: None,
            stop: Stop::default(),
        }
    }

    /// The journal, for what writes down its changes itself.
    pub(crate) fn journal(&mut self) -> &mut Journal {
        self.journal
    }

    /// Writes a change down before it is made.
    pub(crate) fn record(&mut self, change: &Change) -> Result<(), LabError> {
        self.journal
            .record(change)
            .map_err(io_error(self.journal.path(), "writing the journal"))
    }

    /// Makes a directory within the lab's own, which goes with it.
    pub(crate) fn make_directory(&mut self, path: &Path) -> Result<(), LabError> {
        fs::create_dir_all(path).map_err(io_error(path, "making the directory"))
    }

    /// Starts a program of an element where the element is, on the CPUs that it may use. It is killed by the kernel when this
    /// process is.
    pub(crate) fn spawn(
        &mut self,
        plan: &Plan,
        log: &str,
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
        let log = plan.directory.join(log);
        let child = spawn::spawn(self.journal, &command, self.set.as_ref(), &log)?;
        self.commands.push(command.join(" "));
        Ok(Process {
            child,
            name: plan.name.clone(),
            command: command.join(" "),
            log,
        })
    }

    /// Runs a command to its end; what it printed.
    pub(crate) fn run(&mut self, words: &[&str]) -> Result<String, LabError> {
        let line = words.join(" ");
        self.commands.push(line.clone());
        run(words).map_err(|printed| LabError::Command {
            command: line,
            printed,
        })
    }

    /// Looks until a program is as it should be.
    pub(crate) fn wait_until(
        &self,
        plan: &Plan,
        processes: &mut [Process],
        what: &str,
        look: impl FnMut() -> Result<(), String>,
    ) -> Result<(), LabError> {
        self.wait_within(UP_DEADLINE, plan, processes, what, look)
    }

    /// As [`Self::wait_until`], for not longer than that.
    pub(crate) fn wait_within(
        &self,
        limit: Duration,
        plan: &Plan,
        processes: &mut [Process],
        what: &str,
        mut look: impl FnMut() -> Result<(), String>,
    ) -> Result<(), LabError> {
        let began = Instant::now();
        loop {
            for process in processes.iter_mut() {
                process.check_as("ended at once")?;
            }
            let Err(reason) = look() else { return Ok(()) };
            self.stop.check()?;
            if began.elapsed() >= limit {
                let what = format!("did not {what} in {} s: {reason}", limit.as_secs());
                return Err(match processes.last() {
                    Some(process) => process.failed(what),
                    None => plan.failed(what),
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Runs a command to its end; what it printed, or what it complained of.
pub(crate) fn run(words: &[&str]) -> Result<String, String> {
    let (program, arguments) = words.split_first().ok_or("no command")?;
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let printed = [output.stdout, output.stderr].concat();
        Err(format!(
            "{} ({})",
            String::from_utf8_lossy(&printed).trim(),
            output.status
        ))
    }
}
