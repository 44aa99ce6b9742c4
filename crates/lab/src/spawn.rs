// SPDX-License-Identifier: Apache-2.0
//! Starting a process in a CPU set, with its words in a log, known to the journal.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use quietwire_base::supervised::never_orphaned;
use quietwire_base::{ProcessId, find_program};
use quietwire_host::cpuset::Cpuset;
use quietwire_host::journal::{Change, Journal};

use crate::error::{LabError, io_error};

/// Lines of a log shown in an error.
const LOG_LINES: usize = 12;

/// Starts `command`, in `set` from its first instruction on, if a set is given. The command leads a process group, so Ctrl-C reaches only
/// the study, which then ends its processes in order, and [`quietwire_base::supervised::end`] finds all processes that the command forks.
pub(crate) fn spawn(
    journal: &mut Journal,
    command: &[String],
    set: Option<&Cpuset>,
    log: &Path,
) -> Result<Child, LabError> {
    let lists: Vec<PathBuf> = set.map(Cpuset::processes_file).into_iter().collect();
    spawn_in(journal, command, &lists, log)
}

/// Starts a command as [`spawn`] does, listed from its first instruction on in these files of the kernel: of CPU sets, of classes of
/// service.
pub(crate) fn spawn_in(
    journal: &mut Journal,
    command: &[String],
    lists: &[PathBuf],
    log: &Path,
) -> Result<Child, LabError> {
    let out = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(log)
        .map_err(io_error(log, "making the log"))?;
    let errors = out.try_clone().map_err(io_error(log, "making the log"))?;
    // The shell enters the sets and then executes the program, so no thread ever runs outside them.
    let mut shell = Command::new("/bin/sh");
    const ENLIST: &str =
        r#"while [ "$1" != -- ]; do echo $$ > "$1" || exit 1; shift; done; shift; exec "$@""#;
    shell
        .args(["-c", ENLIST, "sh"])
        .args(lists)
        .arg("--")
        .args(never_orphaned(command).iter().map(OsStr::new))
        .process_group(0)
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

/// Returns the end of a log, for an error message.
pub(crate) fn last_words(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        return "(it said nothing)".to_owned();
    }
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

/// Checks that a program is installed.
pub(crate) fn require(program: &str, package: &'static str) -> Result<(), LabError> {
    match find_program(program) {
        Some(_) => Ok(()),
        None => Err(LabError::MissingProgram {
            program: program.to_owned(),
            package,
        }),
    }
}

#[cfg(test)]
mod tests {
    use quietwire_base::supervised::WITH_PARENT;

    use super::*;

    #[test]
    fn what_is_started_is_in_the_journal_and_says_what_it_has_to_say_in_its_log() {
        let directory = tempfile::tempdir().unwrap();
        let words = [&WITH_PARENT[..], &["echo", "ready"]].concat();
        let command: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let path = directory.path().join("journal");
        let mut journal = Journal::open(&path).unwrap();
        let log = directory.path().join("log");
        let mut child = spawn(&mut journal, &command, None, &log).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(last_words(&log), "ready");
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_its_package() {
        require("sh", "dash").unwrap();
        let error = require("no-such-program", "some-package").unwrap_err();
        assert_eq!(error.fault(), quietwire_base::Fault::MissingPrerequisite);
        let text = error.to_string();
        assert!(
            text.contains("no-such-program") && text.contains("some-package"),
            "{text}"
        );
    }
}
