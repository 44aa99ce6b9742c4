// SPDX-License-Identifier: Apache-2.0
//! Starting a process in a CPU set, with its words in a log, known to the journal.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use quietwire_base::{ProcessId, find_program, wait_until};
use quietwire_host::cpuset::Cpuset;
use quietwire_host::journal::{Change, Journal};

use crate::error::{LabError, io_error};

/// Lines of a log shown in an error.
const LOG_LINES: usize = 12;

/// Begins a command that the kernel kills when the process that started it ends.
pub(crate) const ASKING: [&str; 3] = ["setpriv", "--pdeathsig", "KILL"];

/// Starts `command`, in `set` from its first instruction on where one is given. It leads a process group of its own:
/// Ctrl-C is for the study, which then ends its processes in order, and [`stop`] finds all that it forks.
pub(crate) fn spawn(
    journal: &mut Journal,
    command: &[String],
    set: Option<&Cpuset>,
    log: &Path,
) -> Result<Child, LabError> {
    let lists: Vec<PathBuf> = set.map(Cpuset::processes_file).into_iter().collect();
    spawn_in(journal, command, &lists, log)
}

/// As [`spawn`], listed from its first instruction on in these files of the kernel's: of CPU sets, of classes of service.
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
    // The shell enters the sets and becomes the program, so that no thread is ever elsewhere.
    let mut shell = Command::new("/bin/sh");
    const ENLIST: &str =
        r#"while [ "$1" != -- ]; do echo $$ > "$1" || exit 1; shift; done; shift; exec "$@""#;
    shell
        .args(["-c", ENLIST, "sh"])
        .args(lists)
        .arg("--")
        .args(orphaned_never(command).iter().map(OsStr::new))
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

/// A command that asks to be killed with this process (prctl(2), PR_SET_PDEATHSIG), and then looks whether this process is
/// still there: one that was killed just before would leave it behind for good.
pub(crate) fn orphaned_never(command: &[String]) -> Vec<String> {
    const LOOK: [&str; 3] = ["/bin/sh", "-c", "[ \"$PPID\" = \"$0\" ] && exec \"$@\""];
    let Some(words) = command.strip_prefix(&ASKING.map(str::to_owned)) else {
        return command.to_vec();
    };
    let mut all: Vec<String> = ASKING.into_iter().chain(LOOK).map(str::to_owned).collect();
    all.push(std::process::id().to_string());
    all.extend_from_slice(words);
    all
}

/// Asks a child to end, and does not wait for that. Whether it was heard shows when it is made to.
pub(crate) fn ask_to_end(child: &Child) {
    if let Some(process) = i32::try_from(child.id()).ok().and_then(ProcessId::of) {
        // It has ended, or [`stop`] says why it cannot be ended.
        let _ = kill(Pid::from_raw(process.pid), Signal::SIGTERM);
    }
}

/// Ends a child: asked first, then made to, with all that it forked. True when it ended by itself.
pub(crate) fn stop(child: &mut Child, patience: Duration) -> io::Result<bool> {
    if child.try_wait()?.is_some() {
        return Ok(true);
    }
    let number = i32::try_from(child.id()).map_err(io::Error::other)?;
    // None: it has ended, and is not waited for yet.
    let clean = match ProcessId::of(number) {
        Some(process) => process.end(patience)?,
        None => true,
    };
    // Not waited for, so that the number of the group is still its own.
    match killpg(Pid::from_raw(number), Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => return Err(error.into()),
    }
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

/// Sees that a program is installed.
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
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(20);

    fn start(directory: &Path, script: &str) -> Child {
        let mut journal = Journal::open(&directory.join("journal")).unwrap();
        let command = ["sh", "-c", script].map(str::to_owned);
        let log = directory.join("log");
        let child = spawn(&mut journal, &command, None, &log).unwrap();
        assert!(wait_until(DEADLINE, || last_words(&log).contains("ready")));
        child
    }

    #[test]
    fn what_does_not_listen_is_killed_with_all_that_it_forked() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = start(
            directory.path(),
            "trap '' TERM; sleep 60 & echo ready $!; while :; do sleep 1; done",
        );
        let words = last_words(&directory.path().join("log"));
        let forked: i32 = words.split(' ').next_back().unwrap().parse().unwrap();
        let forked = ProcessId::of(forked).unwrap();
        assert!(!stop(&mut child, Duration::from_millis(100)).unwrap());
        assert!(wait_until(DEADLINE, || !forked.is_alive()));
        // Once more is no harm.
        assert!(stop(&mut child, Duration::from_millis(100)).unwrap());
    }

    #[test]
    fn what_is_to_go_with_its_parent_looks_whether_it_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let words = [&ASKING[..], &["echo", "ready"]].concat();
        let command: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let guarded = orphaned_never(&command);
        let of = |words: &[String]| {
            let output = Command::new(&words[0]).args(&words[1..]).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(of(&guarded), "ready\n");
        // Another's child now.
        let between: Vec<String> = ["sh", "-c", "\"$@\"; true", "sh"]
            .map(str::to_owned)
            .into_iter()
            .chain(guarded)
            .collect();
        assert_eq!(of(&between), "");
        let mut journal = Journal::open(&directory.path().join("journal")).unwrap();
        let log = directory.path().join("log");
        let mut child = spawn(&mut journal, &command, None, &log).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(last_words(&log), "ready");
    }

    #[test]
    fn what_listens_is_said_to_have_ended_by_itself() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = start(directory.path(), "echo ready; exec sleep 60");
        assert!(stop(&mut child, DEADLINE).unwrap());
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_its_package() {
        require("sh", "dash").unwrap();
        let error = require("no-such-program", "some-package").unwrap_err();
        assert_eq!(error.fault(), quietwire_base::Fault::Lacks);
        let text = error.to_string();
        assert!(
            text.contains("no-such-program") && text.contains("some-package"),
            "{text}"
        );
    }
}
