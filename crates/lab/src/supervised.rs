// SPDX-License-Identifier: Apache-2.0
//! A helper process that is talked to over pipes and ends with the process that started it.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use quietwire_base::wait_until;

use crate::error::{LabError, io_error};
use crate::spawn::{ASKING, orphaned_never, require, stop};

/// How long a helper may take to end after its standard input did, and again after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(2);

/// A running helper. Dropped, it is ended. The kernel kills it if this process is killed. Its messages go to the standard error
/// of this process.
#[derive(Debug)]
pub struct Supervised {
    child: Child,
}

impl Supervised {
    /// Starts a program with arguments, in a process group of its own. Returns its standard input and output as well.
    ///
    /// # Errors
    /// [`LabError::MissingProgram`], or what the system said.
    pub fn start(words: &[String]) -> Result<(Self, ChildStdin, ChildStdout), LabError> {
        require("setpriv", "util-linux")?;
        let asking = ASKING.iter().map(|word| (*word).to_owned());
        let words: Vec<String> = asking.chain(words.iter().cloned()).collect();
        let words = orphaned_never(&words);
        let (program, arguments) = words
            .split_first()
            .map_or(("", [].as_slice()), |(first, rest)| (first, rest));
        let failed = |cause| io_error(Path::new(program), "starting a process")(cause);
        let mut child = Command::new(program)
            .args(arguments)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let supervised = Self { child };
        match pipes {
            Some((stdin, stdout)) => Ok((supervised, stdin, stdout)),
            None => Err(failed(std::io::Error::other("no pipes"))),
        }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        // Usually its standard input has ended just now.
        wait_until(PATIENCE, || !matches!(self.child.try_wait(), Ok(None)));
        if let Err(error) = stop(&mut self.child, PATIENCE) {
            tracing::warn!("process {} could not be ended: {error}", self.child.id());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};

    use quietwire_base::ProcessId;

    use super::*;

    fn start(script: &str) -> (Supervised, ChildStdin, ChildStdout) {
        Supervised::start(&["sh", "-c", script].map(str::to_owned)).unwrap()
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
}
