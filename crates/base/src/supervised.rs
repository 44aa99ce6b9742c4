// SPDX-License-Identifier: Apache-2.0
//! Child processes that end in time: with their parent, at a deadline, or at a request, and are killed if they do not.

use std::io::{self, PipeReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::deadline::{Deadline, wait_until};
use crate::process::ProcessId;

/// Begins a command that the kernel kills when its parent ends (prctl(2), PR_SET_PDEATHSIG); setpriv(1) is of util-linux.
pub const WITH_PARENT: [&str; 3] = ["setpriv", "--pdeathsig", "KILL"];

/// Interval between two checks whether a command has ended.
const LOOK: Duration = Duration::from_millis(1);

/// Longest wait for output after the end of a command, if another process holds its pipe open.
const GRACE: Duration = Duration::from_millis(500);

/// Most octets that are kept of each output.
const OUTPUT_MAX: usize = 16 << 20;

/// Returns a command that checks, if it begins with [`WITH_PARENT`], whether this process still exists before it executes its
/// program. If this process was killed just before, the kernel would leave the new one behind for good.
#[must_use]
pub fn never_orphaned(command: &[String]) -> Vec<String> {
    const CHECK: [&str; 3] = ["/bin/sh", "-c", "[ \"$PPID\" = \"$0\" ] && exec \"$@\""];
    let Some(words) = command.strip_prefix(&WITH_PARENT.map(str::to_owned)) else {
        return command.to_vec();
    };
    let begin = WITH_PARENT.into_iter().chain(CHECK).map(str::to_owned);
    let own = std::process::id().to_string();
    begin.chain([own]).chain(words.iter().cloned()).collect()
}

/// Asks a child to end (SIGTERM), and does not wait for the end.
pub fn ask_to_end(child: &Child) {
    if let Some(process) = i32::try_from(child.id()).ok().and_then(ProcessId::of) {
        // If that fails, the child has ended, or [`end`] returns why it cannot be ended.
        let _ = kill(Pid::from_raw(process.pid), Signal::SIGTERM);
    }
}

/// Ends a child that leads a process group: SIGTERM, after `timeout` SIGKILL, then SIGKILL for everything that it forked. Reaps it.
/// Returns true if the child ended by itself, or after SIGTERM.
///
/// # Errors
/// The error of the system, or that the child outlived SIGKILL.
pub fn end(child: &mut Child, timeout: Duration) -> io::Result<bool> {
    if child.try_wait()?.is_some() {
        return Ok(true);
    }
    let number = i32::try_from(child.id()).map_err(io::Error::other)?;
    // None: the child has ended, and is not reaped yet.
    let is_clean = match ProcessId::of(number) {
        Some(process) => process.end(timeout)?,
        None => true,
    };
    // Not reaped, so the number of the group is not used again.
    match killpg(Pid::from_raw(number), Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => return Err(error.into()),
    }
    if !wait_until(timeout, || !matches!(child.try_wait(), Ok(None))) {
        return Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "a process did not end",
        ));
    }
    Ok(is_clean)
}

/// Time that a helper has to end after its standard input ended, and again after SIGTERM.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A running helper, driven over pipes. Dropping the value ends it. The kernel kills it if this process is killed. Its messages go to the
/// standard error of this process.
#[derive(Debug)]
pub struct Supervised {
    child: Child,
}

impl Supervised {
    /// Starts a program with arguments, in its own process group. Returns its standard input and output as well.
    ///
    /// # Errors
    /// The error of the system; [`io::ErrorKind::NotFound`] without setpriv(1).
    pub fn start(words: &[String]) -> io::Result<(Self, ChildStdin, ChildStdout)> {
        let begin = WITH_PARENT.into_iter().map(str::to_owned);
        let words: Vec<String> = begin.chain(words.iter().cloned()).collect();
        let mut words = never_orphaned(&words).into_iter();
        let mut child = Command::new(words.next().unwrap_or_default())
            .args(words)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let supervised = Self { child };
        let (stdin, stdout) = pipes.ok_or_else(|| io::Error::other("no pipes"))?;
        Ok((supervised, stdin, stdout))
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        // Usually its standard input has ended just now.
        wait_until(TIMEOUT, || !matches!(self.child.try_wait(), Ok(None)));
        // If this fails, the kernel ends it with this process.
        drop(end(&mut self.child, TIMEOUT));
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
}

/// Runs a command in its own process group and without input. At the deadline, the command and everything that it forked are killed. The
/// first 16 MiB of each output are kept. If the command leaves a process behind with its pipes open, the call does not wait for that
/// process.
///
/// # Errors
/// The error of the system.
pub fn run(command: &mut Command, deadline: Deadline) -> io::Result<Finished> {
    let ((stdout, out), (stderr, err)) = (io::pipe()?, io::pipe()?);
    let child = command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .spawn();
    // The command holds the pipes' other ends, which would never end otherwise.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = child?;
    let outputs = [Output::read(stdout), Output::read(stderr)];
    let ended = deadline.poll(LOOK, || child.try_wait().transpose());
    let status = match ended {
        Some(status) => Some(status?),
        None => {
            end(&mut child, Duration::ZERO).or_else(|_| end(&mut child, TIMEOUT))?;
            None
        }
    };
    let grace = Deadline::after(GRACE);
    let [stdout, stderr] = outputs.map(|output| output.finish(grace));
    Ok(Finished {
        status,
        stdout,
        stderr,
    })
}

/// An output that a thread reads, since the output may be larger than a pipe.
struct Output {
    printed: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Output {
    fn read(mut pipe: PipeReader) -> Self {
        let printed = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&printed);
        let reader = std::thread::spawn(move || {
            let mut octets = vec![0; 64 << 10];
            // An error of a pipe is its end.
            while let Ok(length @ 1..) = pipe.read(&mut octets) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                let room = OUTPUT_MAX.saturating_sub(kept.len());
                kept.extend(octets.iter().take(length.min(room)));
            }
        });
        Self { printed, reader }
    }

    fn finish(self, deadline: Deadline) -> Vec<u8> {
        deadline.poll(LOOK, || self.reader.is_finished().then_some(()));
        let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *printed)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(60);

    fn start(script: &str) -> (Supervised, ChildStdin, ChildStdout) {
        Supervised::start(&["sh", "-c", script].map(str::to_owned)).unwrap()
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn group(script: &str) -> (Child, String) {
        let mut command = shell(script);
        command.process_group(0).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        (child, line.trim().to_owned())
    }

    #[test]
    fn a_helper_answers_and_ends_with_its_input() {
        let (helper, mut stdin, stdout) = start("exec cat");
        let id = ProcessId::of(helper.child.id().try_into().unwrap()).unwrap();
        writeln!(stdin, "hello").unwrap();
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        assert_eq!(line, "hello\n");
        drop(stdin);
        drop(helper);
        assert!(!id.is_alive());
    }

    #[test]
    fn a_helper_that_does_not_end_is_ended() {
        let (helper, stdin, stdout) = start("trap '' TERM; echo ready; while :; do sleep 1; done");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let id = ProcessId::of(helper.child.id().try_into().unwrap()).unwrap();
        drop(helper);
        drop(stdin);
        assert!(!id.is_alive());
    }

    #[test]
    fn what_does_not_listen_is_killed_with_all_that_it_forked() {
        let (mut child, forked) =
            group("trap '' TERM; sleep 60 & echo $!; while :; do sleep 1; done");
        let forked = ProcessId::of(forked.parse().unwrap()).unwrap();
        assert!(!end(&mut child, Duration::from_millis(100)).unwrap());
        assert!(wait_until(DEADLINE, || !forked.is_alive()));
        // A second call does no harm.
        assert!(end(&mut child, Duration::from_millis(100)).unwrap());
    }

    #[test]
    fn what_listens_is_reported_to_have_ended_by_itself() {
        let (mut child, _) = group("echo ready; exec sleep 60");
        assert!(end(&mut child, DEADLINE).unwrap());
        let (mut child, _) = group("echo ready; exec sleep 60");
        ask_to_end(&child);
        assert!(wait_until(DEADLINE, || child.try_wait().unwrap().is_some()));
    }

    #[test]
    fn what_is_to_go_with_its_parent_looks_whether_it_is_there() {
        let words = [&WITH_PARENT[..], &["echo", "ready"]].concat();
        let command: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let guarded = never_orphaned(&command);
        let of = |words: &[String]| {
            let output = Command::new(&words[0]).args(&words[1..]).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(of(&guarded), "ready\n");
        // Now the child of another process.
        let between: Vec<String> = ["sh", "-c", "\"$@\"; true", "sh"]
            .map(str::to_owned)
            .into_iter()
            .chain(guarded)
            .collect();
        assert_eq!(of(&between), "");
        let other = ["echo".to_owned()];
        assert_eq!(never_orphaned(&other), other);
    }

    #[test]
    fn both_outputs_and_the_status_are_kept() {
        let finished = run(
            &mut shell("echo out; echo err >&2; exit 3"),
            Deadline::after(DEADLINE),
        );
        let finished = finished.unwrap();
        assert_eq!(finished.status.and_then(|status| status.code()), Some(3));
        assert_eq!(
            (finished.stdout, finished.stderr),
            (b"out\n".to_vec(), b"err\n".to_vec())
        );
        let missing = run(
            &mut Command::new("/no/such/program"),
            Deadline::after(DEADLINE),
        );
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn output_is_bounded() {
        let more = OUTPUT_MAX + 1;
        let script = format!("head -c {more} /dev/zero");
        let finished = run(&mut shell(&script), Deadline::after(DEADLINE)).unwrap();
        assert!(finished.status.unwrap().success());
        assert_eq!(finished.stdout.len(), OUTPUT_MAX);
    }

    #[test]
    fn a_command_is_killed_at_the_deadline_with_all_that_it_forked() {
        let script = "sleep 600 & echo $!; trap '' TERM; while :; do sleep 1; done";
        let finished = run(
            &mut shell(script),
            Deadline::after(Duration::from_millis(500)),
        )
        .unwrap();
        assert_eq!(finished.status, None);
        let forked = String::from_utf8(finished.stdout).unwrap();
        let forked: i32 = forked.trim().parse().unwrap();
        assert!(wait_until(DEADLINE, || ProcessId::of(forked).is_none()));
    }

    #[test]
    fn a_process_that_keeps_the_pipes_is_not_waited_for() {
        let finished = run(&mut shell("sleep 600 & echo $!"), Deadline::after(DEADLINE)).unwrap();
        assert!(finished.status.unwrap().success());
        let left: i32 = String::from_utf8(finished.stdout)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let left = ProcessId::of(left).unwrap();
        left.end(DEADLINE).unwrap();
    }
}
