// SPDX-License-Identifier: Apache-2.0
//! Starting a process in a CPU set, with its words in a log, known to the journal.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use quietwire_host::cpuset::Cpuset;
use quietwire_host::journal::{Change, Journal};
use quietwire_host::process::{ProcessId, wait_until};

use crate::error::{LabError, io_error};

/// Lines of a log shown in an error.
const LOG_LINES: usize = 12;

/// Starts `command`, in `set` from its first instruction on where one is given.
pub(crate) fn spawn(
    journal: &mut Journal,
    command: &[String],
    set: Option<&Cpuset>,
    log: &Path,
) -> Result<Child, LabError> {
    let out = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(log)
        .map_err(io_error(log, "making the log"))?;
    let errors = out.try_clone().map_err(io_error(log, "making the log"))?;
    // The shell enters the set and becomes the program, so that no thread is ever elsewhere.
    let mut shell = Command::new("/bin/sh");
    match set {
        Some(set) => shell
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(set.processes_file()),
        None => shell.args(["-c", "exec \"$@\"", "sh"]),
    };
    shell
        .args(command.iter().map(OsStr::new))
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(errors);
    let child = shell
        .spawn()
        .map_err(io_error(Path::new("/bin/sh"), "starting a process"))?;
    if let Some(process) = i32::try_from(child.id()).ok().and_then(ProcessId::of) {
        let change = Change::ProcessStarted {
            process,
            command: command.join(" "),
        };
        journal
            .record(&change)
            .map_err(io_error(journal.path(), "writing the journal"))?;
    }
    Ok(child)
}

/// Ends a child: asked first, then made to. True when it ended by itself.
pub(crate) fn stop(child: &mut Child, patience: Duration) -> io::Result<bool> {
    if child.try_wait()?.is_some() {
        return Ok(true);
    }
    let process = i32::try_from(child.id()).ok().and_then(ProcessId::of);
    let clean = match process {
        Some(process) => process.end(patience)?,
        None => true,
    };
    if !wait_until(patience, || !matches!(child.try_wait(), Ok(None))) {
        return Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "a process did not end",
        ));
    }
    Ok(clean)
}

/// The end of a log, for an error message.
pub(crate) fn last_words(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        return "(it said nothing)".to_owned();
    }
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

/// Finds a program on the search path.
pub(crate) fn require(program: &str, package: &'static str) -> Result<(), LabError> {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
    });
    if found {
        Ok(())
    } else {
        Err(LabError::MissingProgram {
            program: program.to_owned(),
            package,
        })
    }
}
