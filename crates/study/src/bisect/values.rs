// SPDX-License-Identifier: Apache-2.0
//! Values that a command prints in a worktree.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use quietwire_base::durable::remove_if_exists;
use quietwire_base::supervised::{Command, LOG_MAX, Streams};
use quietwire_base::{Deadline, wait_until};

use super::error::BisectError;
use super::options::BisectOptions;

/// Longest output of a command that is read, octets.
const OUTPUT_MAX: u64 = 4 << 20;
/// Largest part of a wrong line in a message, characters.
const LINE_SHOWN: usize = 80;
/// Time that an interrupted command has to end.
const END: Duration = Duration::from_secs(2);

/// Runs the command of a bisection.
pub(super) struct Runner<'a> {
    options: &'a BisectOptions,
    /// Files of the two outputs.
    outputs: [PathBuf; 2],
}

impl<'a> Runner<'a> {
    /// Keeps the outputs of the latest run in this directory.
    pub(super) fn new(options: &'a BisectOptions, directory: &Path) -> Self {
        Self {
            options,
            outputs: ["stdout", "stderr"].map(|name| directory.join(name)),
        }
    }

    /// Runs the command in a directory and returns its value, or why it has none.
    ///
    /// # Errors
    /// The command cannot be started, or the bisection is stopped.
    pub(super) fn value(&self, directory: &Path) -> Result<Result<f64, String>, BisectError> {
        let failed = |error: io::Error| {
            let command = self.options.command.first().cloned().unwrap_or_default();
            BisectError::Failed(format!("{}: {error}", command.display()))
        };
        for output in &self.outputs {
            remove_if_exists(output).map_err(failed)?;
        }
        let mut change = OsString::from("--chdir=");
        change.push(directory);
        let command = Command::new("env")
            .arg(change)
            .args(&self.options.command)
            .with_parent();
        let [stdout, stderr] = &self.outputs;
        let mut child = command
            .start(Streams::Logs {
                stdout,
                stderr,
                max: LOG_MAX,
            })
            .map_err(failed)?;
        let is_stopped = || self.options.stop.load(Ordering::Relaxed);
        let has_ended = wait_until(self.options.timeout, || child.has_ended() || is_stopped());
        if is_stopped() {
            child.end(END).map_err(failed)?;
            return Err(BisectError::Aborted);
        }
        if !has_ended {
            child.end(END).map_err(failed)?;
            let seconds = self.options.timeout.as_secs_f64();
            return Ok(Err(format!(
                "it did not end within {seconds} s (--timeout)"
            )));
        }
        // With the process, everything that it forked.
        let status = child
            .wait(Deadline::after(END))
            .map_err(failed)?
            .ok_or_else(|| failed(ErrorKind::TimedOut.into()))?;
        let last = child.last_lines();
        child.end(END).map_err(failed)?;
        drop(child);
        if !status.success() {
            return Ok(Err(format!("{status}: {}", last.trim())));
        }
        let mut printed = String::new();
        File::open(stdout)
            .and_then(|file| file.take(OUTPUT_MAX).read_to_string(&mut printed))
            .map_err(failed)?;
        Ok(value_of(&printed))
    }
}

/// Returns the value in the last line that is not empty.
fn value_of(printed: &str) -> Result<f64, String> {
    let mut lines = printed.lines().rev().map(str::trim);
    let line = lines.find(|line| !line.is_empty()).unwrap_or_default();
    let value = line.parse::<f64>().ok();
    value
        .filter(|value| value.is_finite() && *value > 0.0)
        .ok_or_else(|| {
            let shown: String = line.chars().take(LINE_SHOWN).collect();
            format!("its last line is '{shown}' (print a number above zero)")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_is_the_last_line() {
        assert_eq!(value_of("building\n 12.5 \n\n"), Ok(12.5));
        assert_eq!(value_of("1e6"), Ok(1e6));
        for wrong in ["", "\n", "12.5 Mpps", "-1", "0", "inf", "nan", "5\nend"] {
            assert!(value_of(wrong).is_err(), "{wrong}");
        }
        let long = value_of(&"x".repeat(1000)).unwrap_err();
        assert!(long.len() < 200, "{long}");
    }
}
