// SPDX-License-Identifier: Apache-2.0
//! Starting a process in a CPU set, with its outputs in logs of limited size, known to the journal.

use std::path::{Path, PathBuf};

use quietwire_base::find_program;
use quietwire_base::supervised::{Command, Streams, Supervised, never_orphaned};
use quietwire_host::cpuset::Cpuset;
use quietwire_host::journal::{Change, Journal};

use crate::error::{LabError, io_error};

/// Starts `command`, in `set` from its first instruction on, if a set is given. The command leads a process group, so Ctrl-C reaches only
/// the study, which then ends its processes in order, and [`Supervised::end`] finds all processes that the command forks.
pub(crate) fn spawn(
    journal: &mut Journal,
    command: &[String],
    set: Option<&Cpuset>,
    streams: Streams<'_>,
) -> Result<Supervised, LabError> {
    let lists: Vec<PathBuf> = set.map(Cpuset::processes_file).into_iter().collect();
    spawn_in(journal, command, &lists, streams)
}

/// Returns the reason why a child does not run, as a clause that begins with `how`; `None` while it runs.
pub(crate) fn ended(child: &mut Supervised, how: &str) -> Option<String> {
    match child.exit() {
        Ok(None) => None,
        Ok(Some(status)) => Some(format!("{how}, with {status}")),
        Err(error) => Some(format!("cannot be watched: {error}")),
    }
}

/// Starts a command as [`spawn`] does, listed from its first instruction on in these files of the kernel: of CPU sets, of classes of
/// service.
pub(crate) fn spawn_in(
    journal: &mut Journal,
    command: &[String],
    lists: &[PathBuf],
    streams: Streams<'_>,
) -> Result<Supervised, LabError> {
    // The shell enters the sets and then executes the program, so no thread ever runs outside them.
    const ENLIST: &str =
        r#"while [ "$1" != -- ]; do echo $$ > "$1" || exit 1; shift; done; shift; exec "$@""#;
    let child = Command::of(&["/bin/sh", "-c", ENLIST, "sh"])
        .args(lists)
        .arg("--")
        .args(never_orphaned(command))
        .start(streams)
        .map_err(io_error(Path::new("/bin/sh"), "starting a process"))?;
    if let Some(process) = child.process() {
        let change = Change::ProcessStarted {
            process,
            command: command.join(" "),
        };
        // A process that no journal knows would be left behind: an error ends it.
        journal
            .record(&change)
            .map_err(io_error(journal.path(), "writing the journal"))?;
    }
    Ok(child)
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
    use std::fs;
    use std::time::Duration;

    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};
    use quietwire_base::supervised::WITH_PARENT;
    use quietwire_base::{Deadline, wait_until};

    use super::*;

    #[test]
    fn a_started_process_is_in_the_journal_and_prints_into_its_log() {
        let directory = tempfile::tempdir().unwrap();
        let words = [&WITH_PARENT[..], &["echo", "ready"]].concat();
        let command: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let path = directory.path().join("journal");
        let mut journal = Journal::open(&path).unwrap();
        let log = directory.path().join("log");
        let mut child = spawn(&mut journal, &command, None, Streams::Log(&log)).unwrap();
        let deadline = Deadline::after(Duration::from_secs(60));
        assert!(child.wait(deadline).unwrap().unwrap().success());
        assert_eq!(child.last_lines(), "ready");
        assert_eq!(fs::read_to_string(&log).unwrap(), "ready\n");
    }

    /// Processes with this word in their command line.
    fn with_word(word: &str) -> Vec<PathBuf> {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let has_word = |path: &PathBuf| {
            let words = fs::read(path.join("cmdline")).unwrap_or_default();
            words
                .split(|octet| *octet == 0)
                .any(|other| other == word.as_bytes())
        };
        processes
            .map(|entry| entry.path())
            .filter(has_word)
            .collect()
    }

    #[test]
    fn a_process_that_the_journal_does_not_take_is_ended() {
        let directory = tempfile::tempdir().unwrap();
        // Unique on this machine.
        let word = format!("600.{}", std::process::id());
        let command = ["sleep".to_owned(), word.clone()];
        let log = directory.path().join("log");
        let mut journal = Journal::open(&directory.path().join("journal")).unwrap();
        let child = spawn(&mut journal, &command, None, Streams::Log(&log)).unwrap();
        // Until the program is executed, the process is the shell.
        let executed = wait_until(Duration::from_secs(60), || with_word(&word).len() == 1);
        assert!(executed, "no process has the word {word}");
        drop(child);
        let on_a_full_disk = || {
            let disk = directory.path().join("disk");
            fs::create_dir(&disk).unwrap();
            // Only this thread sees the disk, so it goes with the thread.
            unshare(CloneFlags::CLONE_NEWNS).expect("requires root");
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
            let none = MsFlags::empty();
            mount(None::<&str>, &disk, Some("tmpfs"), none, Some("size=16k")).unwrap();
            let mut full = Journal::open(&disk.join("journal")).unwrap();
            fs::write(disk.join("rest"), [0; 64 << 10]).unwrap_err();
            let error = spawn(&mut full, &command, None, Streams::Log(&log)).unwrap_err();
            assert!(error.to_string().contains("journal"), "{error}");
            assert_eq!(with_word(&word), Vec::<PathBuf>::new());
        };
        std::thread::scope(|scope| scope.spawn(on_a_full_disk).join().unwrap());
    }

    #[test]
    fn an_absent_program_is_reported_with_its_package() {
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
