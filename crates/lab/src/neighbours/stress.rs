// SPDX-License-Identifier: Apache-2.0
//! stress-ng, in a process or in a container: its options, start, supervision and end.

#[cfg(test)]
mod faults;

use std::path::Path;
use std::time::Duration;

use quietwire_base::Deadline;
use quietwire_base::supervised::{Command, Streams, Supervised};
use quietwire_host::journal::Journal;

use super::spec::{NeighbourContext, NeighbourPlace, NeighbourSpec};
use crate::error::{LabError, io_error};
use crate::spawn;

/// Time that neighbours have to stop after a request.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for stress-ng's check of its options.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);
/// The kernel kills neighbours when this process ends: they must not outlive a killed study. They have ordinary priority, whatever the
/// priority of the thread that starts them.
const AS_NEIGHBOUR: &str = "setpriv --pdeathsig KILL chrt --other 0";
/// All kinds of namespaces except user namespaces, with a /proc that shows only its own processes. All processes in it end with its first
/// process, and that process with unshare itself (unshare(1)).
const CONTAINER: &str =
    "unshare --mount --uts --ipc --net --pid --cgroup --fork --kill-child=KILL --mount-proc";
/// In a new network namespace even the loopback interface is down, which sockets require.
const LOOPBACK: &str = r#"ip link set lo up && exec "$@""#;

/// Options of stress-ng, as arguments.
pub(super) fn arguments(stressors: &[String]) -> Vec<String> {
    let words = stressors.iter().flat_map(|text| text.split_whitespace());
    words.map(str::to_owned).collect()
}

/// Checks that the programs that start a neighbour are installed.
pub(super) fn require_setters() -> Result<(), LabError> {
    for program in ["setpriv", "chrt"] {
        spawn::require(program, "util-linux")?;
    }
    Ok(())
}

fn require_programs(place: NeighbourPlace) -> Result<(), LabError> {
    spawn::require("stress-ng", "stress-ng")?;
    require_setters()?;
    if place == NeighbourPlace::Container {
        spawn::require("unshare", "util-linux")?;
        spawn::require("ip", "iproute2")?;
    }
    Ok(())
}

/// Checks that stress-ng accepts these options.
///
/// # Errors
/// [`LabError::MissingProgram`], [`LabError::Stressors`].
pub(super) fn check(stressors: &[String], place: NeighbourPlace) -> Result<(), LabError> {
    require_programs(place)?;
    let arguments = arguments(stressors);
    let finished = Command::new("stress-ng")
        .arg("--dry-run")
        .args(&arguments)
        .run(Deadline::after(CHECK_TIMEOUT))
        .map_err(io_error(Path::new("stress-ng"), "trying its options"))?;
    if finished.status.is_some_and(|status| status.success()) {
        return Ok(());
    }
    Err(LabError::Stressors {
        stressors: arguments.join(" "),
        printed: match finished.status {
            Some(_) => first_complaint(&finished.printed()),
            None => format!("no result within {} s", CHECK_TIMEOUT.as_secs()),
        },
    })
}

/// Returns the first line that stress-ng prints above the level of information.
fn first_complaint(printed: &str) -> String {
    let mut lines = printed.lines().map(str::trim);
    let line = lines.find(|line| !line.is_empty() && !line.contains(": info:"));
    line.unwrap_or("(it printed nothing)").to_owned()
}

/// Returns the command that starts a neighbour.
pub(super) fn as_neighbour(words: impl IntoIterator<Item = String>) -> Vec<String> {
    let first = AS_NEIGHBOUR.split(' ').map(str::to_owned);
    first.chain(words).collect()
}

/// A process of the neighbours.
#[derive(Debug)]
pub(super) struct Worker {
    child: Supervised,
    command: Vec<String>,
    at_rest: usize,
    timeout: Duration,
}

impl Worker {
    /// Starts stress-ng.
    pub(super) fn stress_ng(
        journal: &mut Journal,
        spec: &NeighbourSpec,
        around: &NeighbourContext<'_>,
    ) -> Result<Self, LabError> {
        require_programs(spec.place)?;
        let mut words = Vec::new();
        if spec.place == NeighbourPlace::Container {
            words.extend(CONTAINER.split(' ').map(str::to_owned));
            words.extend(["sh", "-c", LOOPBACK, "sh"].map(str::to_owned));
        }
        words.push("stress-ng".to_owned());
        words.extend(arguments(&spec.stressors));
        // unshare waits for its child.
        let at_rest = match spec.place {
            NeighbourPlace::Container => 2,
            _ => 1,
        };
        let mut worker = Self::start(
            journal,
            as_neighbour(words),
            "neighbours.log",
            at_rest,
            around,
        )?;
        if spec.place == NeighbourPlace::Container {
            // unshare ignores signals while it waits. All processes in the container end with its first process.
            worker.timeout = Duration::ZERO;
        }
        Ok(worker)
    }

    /// Starts a command. `at_rest` is the number of its processes before it is at work.
    pub(super) fn start(
        journal: &mut Journal,
        command: Vec<String>,
        log: &str,
        at_rest: usize,
        around: &NeighbourContext<'_>,
    ) -> Result<Self, LabError> {
        let log = around.directory.join(log);
        let streams = Streams::Log(&log);
        let child = spawn::spawn_in(journal, &command, &around.lists(), streams)?;
        Ok(Self {
            child,
            command,
            at_rest,
            timeout: STOP_TIMEOUT,
        })
    }

    pub(super) fn processes_at_rest(&self) -> usize {
        self.at_rest
    }

    pub(super) fn command(&self) -> String {
        self.command.join(" ")
    }

    pub(super) fn failed(&self, what: String) -> LabError {
        LabError::Neighbours {
            what,
            log: self.child.last_lines(),
            command: self.command(),
        }
    }

    /// Returns an error if it has ended; `how` describes it.
    pub(super) fn check(&mut self, how: &str) -> Result<(), LabError> {
        let ended = spawn::ended(&mut self.child, how);
        ended.map_or(Ok(()), |what| Err(self.failed(what)))
    }

    pub(super) fn stop(&mut self) -> Result<(), LabError> {
        self.child
            .end(self.timeout)
            .map(|_| ())
            .map_err(|error| self.failed(format!("could not be stopped: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use quietwire_base::fuzz::{check, planted};

    use super::*;

    #[test]
    fn the_first_complaint_is_no_information_and_no_empty_line() {
        let printed =
            "\nstress-ng: info:  [7] setting\n  \nstress-ng: unrecognized option '--x'\nmore\n";
        assert_eq!(
            first_complaint(printed),
            "stress-ng: unrecognized option '--x'"
        );
        assert_eq!(first_complaint("\n"), "(it printed nothing)");
    }

    /// Reads any text as the output of stress-ng. The complaint is one line.
    fn fuzz_stress_ng(octets: &[u8]) -> bool {
        let complaint = first_complaint(&String::from_utf8_lossy(octets));
        assert!(!complaint.is_empty() && !complaint.contains('\n'));
        planted("lab-stress-ng", || {
            complaint.starts_with("more")
                && octets.iter().filter(|octet| **octet == b'[').count() > 6
        });
        complaint.starts_with("stress-ng: ") || complaint.starts_with("more")
    }

    #[test]
    fn fuzz_outputs() {
        check(env!("CARGO_MANIFEST_DIR"), "lab-stress-ng", fuzz_stress_ng);
    }
}
