// SPDX-License-Identifier: Apache-2.0
//! Processes that fail, for tests: they are not started, exit at once, are killed, start late or ignore SIGTERM. All choices follow from a
//! seed.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::rc::Rc;
use std::time::Duration;

use nix::errno::Errno;

use super::When;
use crate::deadline::Deadline;
use crate::proc::{self, Stat};
use crate::process::{ProcessHandle, ProcessId};
use crate::random::Random;
use crate::supervised::{SpawnHook, with_spawn_hook};

/// Longest wait for the end of a process that was killed, or that exits at once.
const END_MAX: Duration = Duration::from_secs(30);

/// Fault of the start of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpawnFault {
    /// It is not started.
    Refused(Errno),
    /// It exits with this code and does not execute its program.
    Exits(i32),
    /// It is killed as soon as this number of processes were started after it; 0: at once.
    Killed(u64),
    /// It executes its program after this pause, milliseconds.
    Late(u64),
    /// It ignores SIGTERM.
    Deaf,
}

impl SpawnFault {
    /// Returns any fault.
    pub fn any(random: &mut Random) -> Self {
        match random.below(6) {
            0 | 1 => Self::Refused(random.one_of(Errno::ENOENT, &[Errno::EAGAIN, Errno::ENOMEM])),
            2 => Self::Exits(random.one_of(1, &[127])),
            3 => Self::Killed(random.below(4)),
            4 => Self::Late(1 + random.below(40)),
            _ => Self::Deaf,
        }
    }

    /// Returns the words of a command with this fault.
    fn words(self, words: &[OsString]) -> io::Result<Vec<OsString>> {
        let script = match self {
            Self::Refused(errno) => return Err(errno.into()),
            Self::Killed(_) => return Ok(words.to_vec()),
            Self::Exits(code) => format!("exit {code}"),
            Self::Late(pause) => {
                let (seconds, rest) = (pause / 1000, pause % 1000);
                format!("sleep {seconds}.{rest:03}; exec \"$@\"")
            }
            // An ignored signal stays ignored after exec (signal(7)).
            Self::Deaf => "trap '' TERM; exec \"$@\"".to_owned(),
        };
        let shell = ["/bin/sh", "-c", script.as_str(), "sh"].map(OsString::from);
        Ok(shell.into_iter().chain(words.iter().cloned()).collect())
    }
}

/// A process that was started.
#[derive(Debug)]
struct Started {
    process: ProcessId,
    handle: ProcessHandle,
    /// Number of starts, its own included, after which it is killed.
    killed_at: Option<u64>,
}

impl Started {
    /// Returns `None` for a process that has ended.
    fn of(child: &Child) -> Option<Self> {
        let process = ProcessId::of(i32::try_from(child.id()).ok()?)?;
        let handle = process.handle().ok()??;
        Some(Self {
            process,
            handle,
            killed_at: None,
        })
    }

    /// Waits until it has ended. It is not reaped.
    fn wait(&self) -> io::Result<()> {
        match self.handle.wait(Deadline::after(END_MAX))? {
            true => Ok(()),
            false => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn kill(&mut self) -> io::Result<()> {
        self.killed_at = None;
        self.handle.kill()?;
        self.wait()
    }

    /// Returns whether the process exists, even if it has ended and is not reaped.
    fn exists(&self) -> bool {
        let path = PathBuf::from(format!("/proc/{}/stat", self.process.pid));
        let Ok(text) = proc::read(&path) else {
            return false;
        };
        let start_time = Stat::parse(&text).and_then(|stat| stat.start_time());
        start_time == Some(self.process.start_time)
    }
}

/// Planned faults, and those that have happened.
#[derive(Debug)]
struct Script {
    when: When,
    what: Option<SpawnFault>,
    random: Random,
    /// Starts so far.
    count: u64,
    /// Fault of the latest start.
    latest: Option<SpawnFault>,
    started: Vec<Started>,
    happened: Vec<String>,
}

impl Script {
    /// Decides about the next start.
    fn next(&mut self, words: &[OsString]) -> Option<SpawnFault> {
        let number = self.count;
        self.count += 1;
        let hits = match self.when {
            When::Never => false,
            When::Once(at) => number == at,
            When::FromOnFile(at) | When::FromOnChanges(at) => number >= at,
            When::OnFile(end) => words.iter().any(|word| Path::new(word).ends_with(end)),
            When::OneIn(count) => self.random.below(count) == 0,
        };
        if !hits {
            return None;
        }
        let fault = match self.what {
            Some(fault) => fault,
            None => SpawnFault::any(&mut self.random),
        };
        self.note(format!("process {number}: {fault:?}: {words:?}"));
        Some(fault)
    }

    fn note(&mut self, line: String) {
        self.happened.push(line);
    }

    /// Keeps a process that was just started, and applies its fault.
    fn keep(&mut self, mut started: Started) {
        let outcome = match self.latest {
            Some(SpawnFault::Killed(later)) => {
                started.killed_at = Some(self.count + later);
                Ok(())
            }
            // Otherwise it may be alive when the parent first checks it.
            Some(SpawnFault::Exits(_)) if self.random.below(2) == 0 => started.wait(),
            _ => Ok(()),
        };
        if let Err(error) = outcome {
            self.note(format!("{:?} did not exit: {error}", started.process));
        }
        self.started.push(started);
    }

    /// Kills the processes that are killed after this number of starts.
    fn kill_due(&mut self, count: u64) {
        for started in &mut self.started {
            if started.killed_at.is_some_and(|at| at <= count)
                && let Err(error) = started.kill()
            {
                let line = format!("{:?} was not killed: {error}", started.process);
                self.happened.push(line);
            }
        }
    }
}

/// Starts of processes, some of which fail.
#[derive(Debug)]
pub struct SpawnFaults(RefCell<Script>);

impl SpawnFaults {
    /// Returns starts that fail at these moments: with `what`, or with any fault if it is `None`. [`When::OnFile`] selects the commands that
    /// have such a word; a start is an operation that changes something.
    #[must_use]
    pub fn new(when: When, what: Option<SpawnFault>, random: Random) -> Rc<Self> {
        Rc::new(Self(RefCell::new(Script {
            when,
            what,
            random,
            count: 0,
            latest: None,
            started: Vec::new(),
            happened: Vec::new(),
        })))
    }

    /// Runs `work`. All processes that this thread starts meanwhile may fail.
    pub fn run<T>(self: &Rc<Self>, work: impl FnOnce() -> T) -> T {
        let hook: Rc<dyn SpawnHook> = Rc::<Self>::clone(self);
        with_spawn_hook(hook, work)
    }

    /// Returns the number of starts, those that failed included.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.borrow().count
    }

    /// Returns descriptions of all faults that have happened.
    #[must_use]
    pub fn happened(&self) -> Vec<String> {
        self.0.borrow().happened.clone()
    }

    /// Kills the processes that would be killed after later starts.
    pub fn kill_rest(&self) {
        self.0.borrow_mut().kill_due(u64::MAX);
    }

    /// Returns the started processes that exist, even if they have ended and are not reaped.
    #[must_use]
    pub fn left(&self) -> Vec<ProcessId> {
        let script = self.0.borrow();
        let left = script.started.iter().filter(|started| started.exists());
        left.map(|started| started.process).collect()
    }
}

impl SpawnHook for SpawnFaults {
    fn before(&self, words: &[OsString]) -> io::Result<Vec<OsString>> {
        let mut script = self.0.borrow_mut();
        script.latest = script.next(words);
        match script.latest {
            Some(fault) => fault.words(words),
            None => Ok(words.to_vec()),
        }
    }

    fn after(&self, child: &Child) {
        let mut script = self.0.borrow_mut();
        if let Some(started) = Started::of(child) {
            script.keep(started);
        }
        let count = script.count;
        script.kill_due(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervised::{Command, Streams};

    fn deadline() -> Deadline {
        Deadline::after(END_MAX)
    }

    fn with(fault: SpawnFault) -> Rc<SpawnFaults> {
        SpawnFaults::new(When::Once(0), Some(fault), Random::new(0))
    }

    #[test]
    fn a_refused_process_is_not_started() {
        for errno in [Errno::ENOENT, Errno::EAGAIN, Errno::ENOMEM] {
            let faults = with(SpawnFault::Refused(errno));
            let command = Command::new("true");
            let error = faults.run(|| command.run(deadline())).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(errno as i32));
            assert_eq!((faults.count(), faults.left().len()), (1, 0));
            // The next one is, and so are those outside of `run`.
            assert!(faults.run(|| command.run(deadline())).is_ok());
            assert!(command.run(deadline()).is_ok());
            assert_eq!((faults.count(), faults.happened().len()), (2, 1));
        }
    }

    #[test]
    fn processes_exit_at_once_or_are_late() {
        let echo = Command::new("echo").arg("printed");
        let faults = with(SpawnFault::Exits(127));
        let finished = faults.run(|| echo.run(deadline())).unwrap();
        let code = finished.status.and_then(|status| status.code());
        assert_eq!((code, finished.printed()), (Some(127), String::new()));
        let faults = with(SpawnFault::Late(30));
        let finished = faults.run(|| echo.run(deadline())).unwrap();
        assert_eq!(finished.printed(), "printed\n");
        assert!(finished.elapsed >= Duration::from_millis(30));
        assert!(faults.left().is_empty());
    }

    #[test]
    fn a_process_is_killed_when_others_were_started_after_it() {
        let sleep = Command::new("sleep").arg("600");
        let start = || sleep.start(Streams::Captured(0)).unwrap();
        let faults = with(SpawnFault::Killed(2));
        let mut all = faults.run(|| vec![start(), start()]);
        assert!(!all[0].has_ended());
        all.push(faults.run(start));
        let ended: Vec<bool> = all.iter_mut().map(|child| child.has_ended()).collect();
        assert_eq!(ended, [true, false, false]);
        let faults = with(SpawnFault::Killed(0));
        assert!(faults.run(start).has_ended());
        let faults = with(SpawnFault::Killed(1));
        let mut child = faults.run(start);
        assert!(!child.has_ended());
        faults.kill_rest();
        assert!(child.has_ended());
        drop(child);
        assert!(faults.left().is_empty());
    }

    #[test]
    fn a_process_ignores_sigterm() {
        let faults = with(SpawnFault::Deaf);
        let sleep = Command::new("sleep").arg("600");
        let mut child = faults.run(|| sleep.start(Streams::Captured(0))).unwrap();
        // The shell ignores the signal before it executes the program.
        let name = || std::fs::read_to_string(format!("/proc/{}/comm", child.id()));
        while !matches!(name().as_deref(), Ok("sleep\n")) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(faults.left().len(), 1);
        assert!(!child.end(Duration::from_millis(20)).unwrap());
        assert!(faults.left().is_empty());
    }
}
