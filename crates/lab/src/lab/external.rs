// SPDX-License-Identifier: Apache-2.0
//! Devices that the lab does not start: commands of their owner prepare them for a case and restore them after it.

use std::path::Path;
use std::time::Duration;

use quietwire_base::Deadline;
use quietwire_base::supervised::{Streams, WITH_PARENT};
use quietwire_host::cpuset::Cpuset;
use quietwire_host::journal::{Change, Journal};

use super::{Lab, Running, being_entered};
use crate::error::{LabError, io_error};
use crate::spawn::spawn;
use crate::stop::Stop;

/// Octets of the output of a command that are kept.
const OUTPUT_MAX: usize = 64 << 10;
/// Interval between checks for a stop request.
const LOOK: Duration = Duration::from_millis(100);

/// A command of the owner of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceCommand {
    /// Its words. The first is the program.
    pub words: Vec<String>,
    /// Time that it has. It is killed then.
    pub timeout: Duration,
}

/// A device that the lab does not start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExternalDevice {
    /// Prepares the device, and ends when it forwards. Processes that it leaves running are part of the device.
    pub prepare: Option<DeviceCommand>,
    /// Restores the device. It runs whenever preparing the device has begun, also after a kill of this process.
    pub restore: Option<DeviceCommand>,
}

impl Lab {
    /// Prepares the device of the begun case, in its CPU set. Returns the commands. The device is restored with the case.
    ///
    /// # Errors
    /// [`LabError::Prepare`] if the command fails or exceeds its time, [`LabError::Aborted`]; the whole case is undone then.
    pub fn prepare_external(
        &mut self,
        device: &ExternalDevice,
        stop: &Stop,
    ) -> Result<Vec<String>, LabError> {
        let prepared = self.prepare(device, stop);
        self.leave_on_error(prepared)
    }

    fn prepare(&mut self, device: &ExternalDevice, stop: &Stop) -> Result<Vec<String>, LabError> {
        stop.check()?;
        let Running { journal, set, .. } = being_entered(&mut self.running)?;
        let mut commands = Vec::new();
        // First, so that the device is restored even if preparing it is killed.
        if let Some(restore) = &device.restore {
            record(journal, restore)?;
        }
        if let Some(prepare) = &device.prepare {
            run(journal, prepare, set.as_ref(), stop)?;
            commands.push(prepare.words.join(" "));
        }
        if let Some(restore) = &device.restore {
            commands.push(format!("{} (after the case)", restore.words.join(" ")));
        }
        Ok(commands)
    }
}

fn record(journal: &mut Journal, restore: &DeviceCommand) -> Result<(), LabError> {
    let change = Change::DevicePrepared {
        restore: restore.words.clone(),
        timeout_ms: u64::try_from(restore.timeout.as_millis()).unwrap_or(u64::MAX),
    };
    let path = journal.path().to_owned();
    journal
        .record(&change)
        .map_err(io_error(&path, "writing the journal"))
}

/// Runs a command to its end. At its timeout and at a stop request, it is killed with everything that it forked.
fn run(
    journal: &mut Journal,
    command: &DeviceCommand,
    set: Option<&Cpuset>,
    stop: &Stop,
) -> Result<(), LabError> {
    let line = command.words.join(" ");
    let begin = WITH_PARENT.iter().map(|word| (*word).to_owned());
    let words: Vec<String> = begin.chain(command.words.iter().cloned()).collect();
    let system = |what| io_error(Path::new(&line), what);
    let mut child = spawn(journal, &words, set, Streams::Captured(OUTPUT_MAX))?;
    let deadline = Deadline::after(command.timeout);
    let status = loop {
        let look = Deadline::after(deadline.remaining().min(LOOK));
        let status = child.wait(look).map_err(system("waiting for its end"))?;
        if status.is_some() || deadline.has_passed() || stop.is_wanted() {
            break status;
        }
    };
    let what = match status {
        Some(status) if status.success() => return Ok(()),
        Some(status) => format!("failed with {status}"),
        None => {
            child.kill().map_err(system("ending it"))?;
            stop.check()?;
            let timeout_s = command.timeout.as_secs_f64();
            format!("did not end within {timeout_s} s and was killed")
        }
    };
    Err(LabError::Prepare {
        command: line,
        what,
        printed: child.last_lines(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use quietwire_host::journal;

    use super::*;

    fn command(words: &[&str], timeout: Duration) -> DeviceCommand {
        DeviceCommand {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            timeout,
        }
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_command_has_an_end_an_output_and_a_deadline() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(&directory.path().join("journal")).unwrap();
        let stop = Stop::default();
        let made = directory.path().join("made");
        let touch = ["touch", made.to_str().unwrap()];
        run(&mut journal, &command(&touch, LONG), None, &stop).unwrap();
        assert!(made.exists());
        let failing = ["sh", "-c", "echo no card here >&2; exit 7"];
        let error = run(&mut journal, &command(&failing, LONG), None, &stop).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("exit status: 7"), "{text}");
        assert!(text.ends_with("no card here"), "{text}");
        let endless = command(&["sleep", "600"], Duration::from_millis(50));
        let error = run(&mut journal, &endless, None, &stop).unwrap_err();
        assert!(error.to_string().contains("within 0.05 s"), "{error}");
    }

    #[test]
    fn a_stop_request_ends_a_command() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(&directory.path().join("journal")).unwrap();
        let stop = Stop::default();
        stop.flag()
            .store(true, std::sync::atomic::Ordering::Relaxed);
        let endless = command(&["sleep", "600"], LONG);
        let error = run(&mut journal, &endless, None, &stop).unwrap_err();
        assert!(matches!(error, LabError::Aborted), "{error}");
        for (_, outcome) in journal::undo(&journal::read(journal.path()).unwrap()) {
            assert!(!outcome.is_left(), "{outcome:?}");
        }
    }

    #[test]
    fn the_journal_restores_a_device_that_was_being_prepared() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(&directory.path().join("journal")).unwrap();
        let file = directory.path().join("prepared");
        fs::write(&file, "").unwrap();
        let restore = command(&["rm", file.to_str().unwrap()], LONG);
        record(&mut journal, &restore).unwrap();
        // As after a kill: only the journal is left.
        let changes = journal::read(journal.path()).unwrap();
        assert!(!journal::undo(&changes)[0].1.is_left());
        assert!(!file.exists());
        // A command that does not succeed twice keeps its journal.
        assert!(journal::undo(&changes)[0].1.is_left());
    }
}
