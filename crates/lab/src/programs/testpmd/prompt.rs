// SPDX-License-Identifier: Apache-2.0
//! Command line of an interactive testpmd: commands go to its standard input, and answers are in its output.

use std::cell::Cell;
use std::io::Write as _;
use std::process::ChildStdin;
use std::time::Duration;

use quietwire_base::Deadline;

use crate::counts::too_late;

/// Text that testpmd prints when it accepts a command.
pub(super) const PROMPT: &str = "testpmd> ";
/// Interval between two checks for an answer.
const LOOK: Duration = Duration::from_millis(2);
/// Commands without an answer in a row after which no further one is sent. The pipe has space for far more, so a write never waits.
const UNANSWERED_MAX: u64 = 16;

/// The command line of a testpmd process. The process ends when the value is dropped.
#[derive(Debug)]
pub(super) struct Prompt {
    input: ChildStdin,
    /// Commands with an answer that were sent so far.
    asked: Cell<u64>,
    /// Those since the last answer.
    unanswered: Cell<u64>,
}

impl Prompt {
    /// Creates the command line of a process with this standard input.
    pub(super) fn new(input: ChildStdin) -> Self {
        Self {
            input,
            asked: Cell::new(0),
            unanswered: Cell::new(0),
        }
    }

    /// Sends lines, and does not wait for an answer.
    ///
    /// # Errors
    /// The reason, as a clause, why the process does not read them.
    pub(super) fn send(&self, lines: &str) -> Result<(), String> {
        let written = (&self.input).write_all(lines.as_bytes());
        written.map_err(|error| format!("its standard input: {error}"))
    }

    /// Sends a command and returns its answer. `printed` returns the end of the output of the process.
    ///
    /// # Errors
    /// The reason, as a clause, why there is no answer by the deadline.
    pub(super) fn ask(
        &self,
        command: &str,
        deadline: Deadline,
        printed: impl Fn() -> String,
    ) -> Result<String, String> {
        let unanswered = self.unanswered.get();
        if unanswered >= UNANSWERED_MAX {
            return Err(format!("it did not answer {unanswered} commands"));
        }
        self.unanswered.set(unanswered.saturating_add(1));
        let number = self.asked.get().saturating_add(1);
        self.asked.set(number);
        self.send(&format!("{command}\n{}\n", mark(number)))?;
        let found = deadline.poll(LOOK, || answer(&printed(), number));
        let found = found.ok_or_else(too_late)?;
        self.unanswered.set(0);
        Ok(found)
    }
}

/// Returns the comment after a command. testpmd prints it when it reads it, which is after the answer to the command.
fn mark(number: u64) -> String {
    format!("# {number} end")
}

/// Returns what was printed between the comments after the last command and after the one before; `None` without the former. The latter
/// may be missing, because the output lacks its beginning.
fn answer(printed: &str, number: u64) -> Option<String> {
    let (until, _) = printed.rsplit_once(&mark(number))?;
    let before = mark(number.checked_sub(1)?);
    let after = until.rsplit_once(&before);
    Some(after.map_or(until, |(_, answer)| answer).to_owned())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use quietwire_base::supervised::{Command, Streams};

    use super::*;

    #[test]
    fn an_answer_is_between_two_comments() {
        let printed = "testpmd> show a\r\n1\ntestpmd> # 1 end\r\ntestpmd> show a\r\n2\ntestpmd> # 2 end\r\ntestpmd> ";
        let lines = |number| answer(printed, number).map(|text| text.matches('\n').count());
        assert_eq!(lines(1), Some(2));
        let second = answer(printed, 2).unwrap();
        assert!(
            second.contains("\n2\n") && !second.contains("\n1\n"),
            "{second}"
        );
        // Neither is the comment of another command.
        for missing in [0, 3, 12] {
            assert_eq!(lines(missing), None, "{missing}");
        }
        // The beginning is missing.
        let end = printed.split_once("1 end").unwrap().1;
        assert_eq!(answer(end, 2).unwrap(), end.split_once("# 2").unwrap().0);
    }

    #[test]
    fn a_process_that_does_not_answer_gets_few_commands() {
        let mut silent = Command::new("sleep")
            .arg("600")
            .start(Streams::Pipes)
            .unwrap();
        let prompt = Prompt::new(silent.take_stdin().unwrap());
        let printed = RefCell::new(String::new());
        let ask = || {
            let over = Deadline::after(Duration::ZERO);
            prompt.ask("show a", over, || printed.borrow().clone())
        };
        assert_eq!(ask(), Err(too_late()));
        // An answer later on.
        printed.replace("# 1 end\r\n3\n# 2 end".to_owned());
        assert_eq!(ask().unwrap(), "\r\n3\n");
        for _ in 0..UNANSWERED_MAX {
            assert_eq!(ask(), Err(too_late()));
        }
        let reason = ask().unwrap_err();
        assert!(reason.starts_with("it did not answer 16 "), "{reason}");
        silent.kill().unwrap();
        let reason = prompt.send("start\n").unwrap_err();
        assert!(reason.starts_with("its standard input: "), "{reason}");
    }
}
