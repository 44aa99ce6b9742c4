// SPDX-License-Identifier: Apache-2.0
//! Common parts of a guest's network functions: ports, CPUs, the interface to control them, and a process.

use std::path::Path;
use std::time::Duration;

use quietwire_base::Deadline;
use quietwire_base::durable::remove_if_exists;
use quietwire_base::supervised::{Command, Streams, Supervised};
use quietwire_host::{CpuId, CpuList};
use quietwire_switch::report::CyclesReport;

use super::ports::{Bus, Port};
use super::protocol::PortCounters;

/// Timeout until one forwards.
const UP_DEADLINE: Duration = Duration::from_secs(50);
/// Timeout for its exit after SIGTERM: in an emulated guest on a busy host, several seconds.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// Pause between two checks whether it forwards.
const PAUSE: Duration = Duration::from_millis(20);

/// The guest's resources for a network function.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) bus: Bus,
    pub(super) ports: Vec<Port>,
    pub(super) cpus: CpuList,
}

/// A running network function.
pub(super) trait Function: std::fmt::Debug {
    /// Commands that started it, in order.
    fn commands(&self) -> Vec<String>;
    /// Returns the counters of each port since it was started.
    fn counters(&mut self) -> Result<Vec<PortCounters>, String>;
    /// Returns its own report of cycles since it was started.
    fn cycles(&mut self) -> Result<CyclesReport, String> {
        Err("this network function counts no cycles".to_owned())
    }
    /// Returns the last lines of its output.
    fn log(&self) -> String;
    /// Stops it. After a failure, a further call tries again.
    fn stop(&mut self) -> Result<(), String>;
    /// Returns true if nothing of it is left, also after a failure of `stop`.
    fn has_ended(&mut self) -> bool {
        false
    }
}

/// CPUs of a guest for a program that polls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cpus {
    pub(super) forwarding: CpuList,
    /// CPUs of all other threads.
    pub(super) control: CpuId,
    /// Whether the forwarding CPUs are exclusive.
    pub(super) are_apart: bool,
}

impl Cpus {
    pub(super) fn of(all: &CpuList, asked: Option<&CpuList>) -> Result<Self, String> {
        let first = all.first().ok_or("the guest has no CPU")?;
        let others: CpuList = all.iter().skip(1).collect();
        let forwarding = match asked {
            Some(cpus) => cpus.clone(),
            None if others.is_empty() => CpuList::from_iter([first]),
            None => others,
        };
        if forwarding.is_empty() || !forwarding.difference(all).is_empty() {
            return Err(format!(
                "forwarding-cpus '{forwarding}': the guest has the CPUs {all}"
            ));
        }
        let control = all.difference(&forwarding).first();
        Ok(Self {
            are_apart: control.is_some(),
            control: control.unwrap_or(first),
            forwarding,
        })
    }
}

/// A forwarding program, with its output in a log.
#[derive(Debug)]
pub(super) struct Process {
    child: Supervised,
    command: String,
}

impl Process {
    /// Starts a program.
    pub(super) fn spawn(words: &[String], log: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("starting {}: {error}", words.join(" "));
        // A log of an earlier program must not look like that of this one.
        remove_if_exists(log).map_err(failed)?;
        let child = Command::of(words)
            .start(Streams::Log(log))
            .map_err(failed)?;
        Ok(Self {
            child,
            command: words.join(" "),
        })
    }

    /// Waits until `is_up` holds. Terminates the program if it does not.
    pub(super) fn wait_until_up(
        mut self,
        mut is_up: impl FnMut() -> Result<(), String>,
    ) -> Result<Self, String> {
        let mut reason = String::new();
        let outcome =
            Deadline::after(UP_DEADLINE).poll(PAUSE, || match (self.child.exit(), is_up()) {
                (Ok(Some(status)), _) => Some(Err(format!("ended immediately, with {status}"))),
                (Err(error), _) => Some(Err(format!("cannot be watched: {error}"))),
                (Ok(None), Ok(())) => Some(Ok(())),
                (Ok(None), Err(not_yet)) => {
                    reason = not_yet;
                    None
                }
            });
        let what = match outcome {
            Some(Ok(())) => return Ok(self),
            Some(Err(what)) => what,
            None => format!("did not come up in {} s: {reason}", UP_DEADLINE.as_secs()),
        };
        let printed = self.last_words();
        // A process that survives ends with the guest.
        let _ = self.stop();
        Err(format!(
            "the network function {what}. Its last output:\n{printed}\n(the command was: {})",
            self.command
        ))
    }

    pub(super) fn command(&self) -> &str {
        &self.command
    }

    /// Returns the last 64 KiB of its output.
    pub(super) fn printed(&self) -> String {
        self.child.printed()
    }

    pub(super) fn last_words(&self) -> String {
        self.child.last_lines()
    }

    /// Returns an error if it has exited.
    pub(super) fn check(&mut self) -> Result<(), String> {
        match self.child.exit() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(format!(
                "the network function ended with {status}. Its last output:\n{}",
                self.last_words()
            )),
            Err(error) => Err(format!("the network function cannot be watched: {error}")),
        }
    }

    /// Returns true if it has exited.
    pub(super) fn has_ended(&mut self) -> bool {
        matches!(self.child.exit(), Ok(Some(_)))
    }

    /// Sends SIGTERM, and SIGKILL after a timeout.
    pub(super) fn stop(&mut self) -> Result<(), String> {
        match self.child.end(STOP_TIMEOUT) {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!(
                "the network function did not stop on SIGTERM and was killed. Its last output:\n{}",
                self.last_words()
            )),
            Err(error) => Err(format!("the network function cannot be stopped: {error}")),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(all: &str, asked: Option<&str>) -> Result<Cpus, String> {
        let asked = asked.map(|list| list.parse().unwrap());
        Cpus::of(&all.parse().unwrap(), asked.as_ref())
    }

    #[test]
    fn forwarding_has_cpus_to_itself_where_there_are_several() {
        let cpus = of("0-2", None).unwrap();
        assert_eq!(
            (cpus.forwarding.to_string(), cpus.control.0, cpus.are_apart),
            ("1-2".to_owned(), 0, true)
        );
        let cpus = of("0", None).unwrap();
        assert_eq!(
            (cpus.forwarding.to_string(), cpus.control.0, cpus.are_apart),
            ("0".to_owned(), 0, false)
        );
        let cpus = of("0-1", Some("0")).unwrap();
        assert_eq!((cpus.control.0, cpus.are_apart), (1, true));
        for asked in ["5", ""] {
            assert!(of("0-1", Some(asked)).unwrap_err().contains("0-1"));
        }
    }

    #[test]
    fn a_program_that_does_not_come_up_is_reported_with_its_last_words() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let words = ["sh", "-c", "echo no memory; exit 3"].map(str::to_owned);
        let process = Process::spawn(&words, &log).unwrap();
        let error = process
            .wait_until_up(|| Err("not yet".to_owned()))
            .unwrap_err();
        assert!(
            error.contains("no memory") && error.contains("ended immediately"),
            "{error}"
        );
        let words = ["sh", "-c", "exec sleep 60"].map(str::to_owned);
        let process = Process::spawn(&words, &log).unwrap();
        let mut process = process.wait_until_up(|| Ok(())).unwrap();
        process.check().unwrap();
        assert!(!process.has_ended());
        process.stop().unwrap();
        assert!(process.has_ended());
        assert!(process.check().unwrap_err().contains("ended with"));
        let error = Process::spawn(&["/no/such/program".to_owned()], &log).unwrap_err();
        assert!(error.contains("/no/such/program"), "{error}");
    }

    #[test]
    fn a_long_output_is_read_from_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let script = "yes 0123456789 | head -n 20000; echo last; exec sleep 60";
        let words = ["sh", "-c", script].map(str::to_owned);
        let mut process = Process::spawn(&words, &log).unwrap();
        let last = Deadline::after(UP_DEADLINE).poll(PAUSE, || {
            let printed = process.printed();
            printed.ends_with("last\n").then_some(printed)
        });
        assert!(last.unwrap().len() <= 64 << 10);
        process.stop().unwrap();
    }
}
