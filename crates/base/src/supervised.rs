// SPDX-License-Identifier: Apache-2.0
//! Child processes that end in time: with their parent, at a deadline, or at a request, and are killed if they do not.

mod hook;
mod output;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::io::{self, PipeReader, Write as _};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{self, Child, ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use rustix::process::{WaitId, WaitIdOptions, waitid};

use crate::deadline::{Deadline, wait_until};
use crate::process::ProcessId;

#[doc(hidden)]
pub use hook::{SpawnHook, with_spawn_hook};
pub use output::{BoundedLog, last_lines};

use output::{Log, Output};

/// Begins a command that the kernel kills when its parent ends (prctl(2), PR_SET_PDEATHSIG); setpriv(1) is of util-linux.
pub const WITH_PARENT: [&str; 3] = ["setpriv", "--pdeathsig", "KILL"];

/// Shortest and longest interval between two checks whether a command has ended.
const LOOK: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(16);

/// Longest wait for output after the end of a command, if another process holds its pipe open.
const GRACE: Duration = Duration::from_millis(500);

/// Most octets that are kept of each output of a command.
const OUTPUT_MAX: usize = 16 << 20;

/// Octets that are kept in memory of an output that goes to a log.
const KEPT: usize = 64 << 10;

/// Largest log of a child, octets, unless the caller sets another.
pub const LOG_MAX: u64 = 4 << 20;

/// Time that a killed process has to end.
const KILL_DEADLINE: Duration = Duration::from_secs(5);

/// Checks, as the first arguments of a shell, whether the process of the next argument is the parent, and executes the other arguments.
const CHECK: [&str; 3] = ["/bin/sh", "-c", "[ \"$PPID\" = \"$0\" ] && exec \"$@\""];

/// Returns the words before a command that ends with this process. If this process was killed just before, the kernel would leave the new
/// one behind for good, so the command checks whether this process still exists.
fn with_this_process() -> impl Iterator<Item = String> {
    let begin = WITH_PARENT.into_iter().chain(CHECK).map(str::to_owned);
    begin.chain([process::id().to_string()])
}

/// Returns a command that checks, if it begins with [`WITH_PARENT`], whether this process still exists before it executes its
/// program.
#[must_use]
pub fn never_orphaned(command: &[String]) -> Vec<String> {
    match command.strip_prefix(&WITH_PARENT.map(str::to_owned)) {
        Some(words) => with_this_process().chain(words.iter().cloned()).collect(),
        None => command.to_vec(),
    }
}

/// Kills a process group whose leader is not reaped, so that its number is not used again.
fn kill_group(leader: i32) -> io::Result<()> {
    match killpg(Pid::from_raw(leader), Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Asks a child to end (SIGTERM), and does not wait for the end.
fn ask_to_end(child: &Child) {
    if let Some(process) = i32::try_from(child.id()).ok().and_then(ProcessId::of) {
        // If that fails, the child has ended, or [`end`] returns why it cannot be ended.
        let _ = kill(Pid::from_raw(process.pid), Signal::SIGTERM);
    }
}

/// Returns the exit status of a child that has ended, and does not reap it: until then no other process gets its number, which is also the
/// number of its group.
fn exit_status(child: &Child) -> io::Result<Option<ExitStatus>> {
    let number = i32::try_from(child.id()).map_err(io::Error::other)?;
    let number = rustix::process::Pid::from_raw(number).ok_or(io::ErrorKind::InvalidInput)?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let Some(status) = waitid(WaitId::Pid(number), options)? else {
        return Ok(None);
    };
    // As wait(2) returns it: the code in the upper octet, the signal in the lower one.
    let code = status.exit_status().map(|code| code << 8);
    let core = if status.dumped() { 0x80 } else { 0 };
    let signal = status.terminating_signal().map(|signal| signal | core);
    Ok(code.or(signal).map(ExitStatus::from_raw))
}

/// Time that a child has to end after its standard input ended, and again after SIGTERM, unless the caller sets another.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A command to run: a program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    words: Vec<OsString>,
    in_own_group: bool,
}

/// Standard streams of a child. Its standard input is empty if not stated otherwise.
#[derive(Clone, Copy, Debug)]
pub enum Streams<'a> {
    /// Both outputs are appended to one file of at most [`LOG_MAX`] octets.
    Log(&'a Path),
    /// As [`Streams::Log`], and the input is a pipe.
    InputAndLog(&'a Path),
    /// The outputs are appended to a file each.
    Logs {
        /// The file of the standard output.
        stdout: &'a Path,
        /// The file of the standard error.
        stderr: &'a Path,
        /// Largest size of each file, octets; usually [`LOG_MAX`].
        max: u64,
    },
    /// The last octets of both outputs are kept in memory, this many of them.
    Captured(usize),
    /// The input is a pipe, the standard output is dropped, the standard error is that of this process.
    Input,
    /// Input and standard output are pipes. The standard error is copied to that of this process.
    Pipes,
}

impl Command {
    /// Returns a command without arguments.
    #[must_use]
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            words: vec![program.as_ref().to_owned()],
            in_own_group: true,
        }
    }

    /// Returns the command of these words; the first is the program.
    #[must_use]
    pub fn of<S: AsRef<OsStr>>(words: &[S]) -> Self {
        Self {
            words: words.iter().map(|word| word.as_ref().to_owned()).collect(),
            in_own_group: true,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, word: impl AsRef<OsStr>) -> Self {
        self.words.push(word.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        let words = words.into_iter().map(|word| word.as_ref().to_owned());
        self.words.extend(words);
        self
    }

    /// Lets the kernel kill the command when the thread that starts it ends, or this process. Requires setpriv(1).
    #[must_use]
    pub fn with_parent(mut self) -> Self {
        let begin = with_this_process().map(OsString::from);
        self.words = begin.chain(self.words).collect();
        self
    }

    /// Starts the command in the process group of this process, for a program that makes a session of its own (setsid(2)).
    #[must_use]
    pub fn in_this_group(mut self) -> Self {
        self.in_own_group = false;
        self
    }

    /// Returns the words, separated by spaces.
    #[must_use]
    pub fn line(&self) -> String {
        let words: Vec<_> = self
            .words
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        words.join(" ")
    }

    /// Starts the process with these streams: input, output and error output.
    fn spawn(&self, [stdin, stdout, stderr]: [Stdio; 3]) -> io::Result<Child> {
        hook::spawn(&self.words, |words| {
            let (program, arguments) = words.split_first().ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidInput, "the command is empty")
            })?;
            let mut command = process::Command::new(program);
            command.args(arguments);
            command.stdin(stdin).stdout(stdout).stderr(stderr);
            if self.in_own_group {
                command.process_group(0);
            }
            command.spawn()
        })
    }

    /// Runs the command in its own process group and without input. At the deadline, the command and everything that it forked are killed.
    /// The last 16 MiB of each output are kept. If the command leaves a process behind with its pipes open, the call does not wait for
    /// that process.
    ///
    /// # Errors
    /// The error of the system.
    pub fn run(&self, deadline: Deadline) -> io::Result<Finished> {
        self.run_on(Stdio::null(), deadline, |_| Ok(()))
    }

    /// Runs the command as [`Self::run`], with this input. A command that does not read it loses it.
    ///
    /// # Errors
    /// The error of the system.
    pub fn run_with_input(&self, input: &[u8], deadline: Deadline) -> io::Result<Finished> {
        let input = input.to_owned();
        self.run_on(Stdio::piped(), deadline, |child| {
            let Some(mut pipe) = child.take_stdin() else {
                return Ok(());
            };
            // A thread, because the pipe may be full. It ends with the command: then the pipe has no reader.
            let write = move || drop(pipe.write_all(&input));
            let writer = thread::Builder::new().name("qw-input".to_owned());
            writer.spawn(write).map(drop)
        })
    }

    fn run_on(
        &self,
        stdin: Stdio,
        deadline: Deadline,
        begin: impl FnOnce(&mut Supervised) -> io::Result<()>,
    ) -> io::Result<Finished> {
        let began = Instant::now();
        let ((stdout, out), (stderr, err)) = (io::pipe()?, io::pipe()?);
        let child = self.spawn([stdin, out.into(), err.into()])?;
        let mut child = Supervised::new(child, Duration::ZERO);
        for pipe in [stdout, stderr] {
            child.outputs.push(Output::read(pipe, OUTPUT_MAX, None)?);
        }
        begin(&mut child)?;
        let status = child.wait(deadline)?;
        if status.is_none() {
            child.end(Duration::ZERO).or_else(|_| child.end(TIMEOUT))?;
        }
        child.settle();
        let mut outputs = child.outputs.iter().map(Output::take);
        Ok(Finished {
            status,
            stdout: outputs.next().unwrap_or_default(),
            stderr: outputs.next().unwrap_or_default(),
            elapsed: began.elapsed(),
        })
    }

    /// Starts the command in its own process group.
    ///
    /// # Errors
    /// The error of the system: a log that cannot be opened, a program that does not exist.
    pub fn start(&self, streams: Streams<'_>) -> io::Result<Supervised> {
        let mut readers: Vec<(PipeReader, usize, Option<Log>)> = Vec::new();
        let standard: [Stdio; 3] = match streams {
            Streams::Log(path) | Streams::InputAndLog(path) => {
                let (reader, writer) = io::pipe()?;
                readers.push((reader, KEPT, Some(log(path, LOG_MAX)?)));
                let has_input = matches!(streams, Streams::InputAndLog(_));
                let input = if has_input {
                    Stdio::piped()
                } else {
                    Stdio::null()
                };
                [input, writer.try_clone()?.into(), writer.into()]
            }
            Streams::Logs {
                stdout,
                stderr,
                max,
            } => {
                let (reader, out) = io::pipe()?;
                readers.push((reader, KEPT, Some(log(stdout, max)?)));
                let (reader, err) = io::pipe()?;
                readers.push((reader, KEPT, Some(log(stderr, max)?)));
                [Stdio::null(), out.into(), err.into()]
            }
            Streams::Captured(max) => {
                let (reader, writer) = io::pipe()?;
                readers.push((reader, max, None));
                [Stdio::null(), writer.try_clone()?.into(), writer.into()]
            }
            Streams::Input => [Stdio::piped(), Stdio::null(), Stdio::inherit()],
            Streams::Pipes => {
                let (reader, err) = io::pipe()?;
                readers.push((reader, KEPT, Some(Box::new(io::stderr()))));
                [Stdio::piped(), Stdio::piped(), err.into()]
            }
        };
        // This process keeps no other end of the pipes: they would never end otherwise.
        let mut child = Supervised::new(self.spawn(standard)?, TIMEOUT);
        for (reader, max, log) in readers {
            child.outputs.push(Output::read(reader, max, log)?);
        }
        Ok(child)
    }
}

fn log(path: &Path, max: u64) -> io::Result<Log> {
    let log = BoundedLog::open(path, max);
    let named = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("opening the log {}: {error}", path.display()),
        )
    };
    Ok(Box::new(log.map_err(named)?))
}

/// A child process. Dropping the value ends the process: first its input, then SIGTERM, then SIGKILL for it and everything that it forked.
/// The process is reaped then. If it has ended before, processes that it forked are left running; [`Supervised::end`] ends them.
#[derive(Debug)]
pub struct Supervised {
    child: Child,
    outputs: Vec<Output>,
    timeout: Duration,
    status: Option<ExitStatus>,
    has_input: bool,
    is_released: bool,
    is_reaped: bool,
}

impl Supervised {
    fn new(child: Child, timeout: Duration) -> Self {
        Self {
            has_input: child.stdin.is_some(),
            child,
            outputs: Vec::new(),
            timeout,
            status: None,
            is_released: false,
            is_reaped: false,
        }
    }

    /// Returns the number of the process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the process; `None` if it has ended.
    #[must_use]
    pub fn process(&self) -> Option<ProcessId> {
        i32::try_from(self.child.id()).ok().and_then(ProcessId::of)
    }

    /// Sets the time that the process has to end after SIGTERM when the value is dropped. Default: 2 s.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Returns the pipe to its standard input, once.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Returns the pipe from its standard output, once.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Returns the exit status; `None` while the process runs. When this returns a status, the logs are complete.
    ///
    /// # Errors
    /// The error of the system.
    pub fn exit(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = exit_status(&self.child)?;
            if self.status.is_some() {
                self.settle();
            }
        }
        Ok(self.status)
    }

    /// Returns true after the exit of the process.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.exit(), Ok(Some(_)))
    }

    /// Waits for the exit; returns `None` at the deadline.
    ///
    /// # Errors
    /// The error of the system.
    pub fn wait(&mut self, deadline: Deadline) -> io::Result<Option<ExitStatus>> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.exit()? {
                return Ok(Some(status));
            }
            let remaining = deadline.remaining();
            if remaining.is_zero() {
                return Ok(None);
            }
            // Short commands end within milliseconds; long ones need no check every millisecond.
            let pause = began.elapsed().checked_div(16).unwrap_or(LOOK);
            std::thread::sleep(pause.clamp(LOOK, LOOK_MAX).min(remaining));
        }
    }

    /// Asks the process to end (SIGTERM), and does not wait for the end.
    pub fn ask_to_end(&self) {
        if self.status.is_none() {
            ask_to_end(&self.child);
        }
    }

    /// Ends the process: SIGTERM, after `timeout` SIGKILL, then SIGKILL for everything that it forked. Reaps it. Returns true if the process
    /// ended by itself, or after SIGTERM.
    ///
    /// # Errors
    /// The error of the system, or that the process outlived SIGKILL.
    pub fn end(&mut self, timeout: Duration) -> io::Result<bool> {
        if self.is_reaped {
            return Ok(true);
        }
        let number = i32::try_from(self.child.id()).map_err(io::Error::other)?;
        // None: the process has ended, and is not reaped yet.
        let is_clean = match ProcessId::of(number) {
            Some(process) => process.end(timeout)?,
            None => true,
        };
        kill_group(number)?;
        self.reap(timeout)?;
        Ok(is_clean)
    }

    /// Kills the process and everything that it forked (SIGKILL), and reaps it.
    ///
    /// # Errors
    /// The error of the system, or that the process outlived SIGKILL.
    pub fn kill(&mut self) -> io::Result<()> {
        if self.is_reaped {
            return Ok(());
        }
        let number = i32::try_from(self.child.id()).map_err(io::Error::other)?;
        kill_group(number)?;
        self.child.kill()?;
        self.reap(KILL_DEADLINE)
    }

    /// Waits for the exit of the process, and reaps it.
    fn reap(&mut self, timeout: Duration) -> io::Result<()> {
        if self.wait(Deadline::after(timeout))?.is_none() {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "a process did not end",
            ));
        }
        self.child.wait()?;
        self.is_reaped = true;
        Ok(())
    }

    /// Waits for the ends of the outputs after the end of the process.
    fn settle(&self) {
        let grace = Deadline::after(GRACE);
        for output in &self.outputs {
            output.settle(grace);
        }
    }

    /// Returns the kept outputs: of [`Streams::Captured`] as many octets as requested, otherwise the last 64 KiB of each.
    #[must_use]
    pub fn printed(&self) -> String {
        self.outputs.iter().map(Output::text).collect()
    }

    /// Returns the last lines of its outputs, for an error message.
    #[must_use]
    pub fn last_lines(&self) -> String {
        last_lines(&self.printed())
    }

    /// Leaves the process running, for a process that outlives this one.
    pub fn release(mut self) {
        self.is_released = true;
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        if self.is_released || self.is_reaped {
            return;
        }
        if self.has_ended() {
            // Without an error: it is a child that has ended.
            let _ = self.child.wait();
            return;
        }
        if self.has_input {
            // Most programs end with their input.
            drop(self.child.stdin.take());
            wait_until(TIMEOUT, || self.has_ended());
        }
        // If this fails, the process is in no state that a signal ends: the kernel ends it as soon as it can.
        drop(self.end(self.timeout));
    }
}

/// Outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Exit status; `None` if the command was killed at the deadline.
    pub status: Option<ExitStatus>,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// Time from its start to its end.
    pub elapsed: Duration,
}

impl Finished {
    /// Returns the text of both outputs.
    #[must_use]
    pub fn printed(&self) -> String {
        [&self.stdout, &self.stderr]
            .map(|octets| String::from_utf8_lossy(octets))
            .concat()
    }

    /// Returns the standard output of a command that succeeded.
    ///
    /// # Errors
    /// The outputs with the exit status, or that the command was killed at its deadline.
    pub fn into_result(self) -> Result<String, String> {
        let printed = self.printed();
        let printed = printed.trim();
        match self.status {
            Some(status) if status.success() => {
                Ok(String::from_utf8_lossy(&self.stdout).into_owned())
            }
            Some(status) => Err(format!("{printed} ({status})")),
            None => {
                let waited = self.elapsed.as_secs_f64();
                Err(format!(
                    "{printed} (killed: it did not end within {waited:.1} s)"
                ))
            }
        }
        .map_err(|text| text.trim().to_owned())
    }
}
