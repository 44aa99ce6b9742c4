// SPDX-License-Identifier: Apache-2.0
//! Ends of commands: conversion of errors to messages and exit codes (1 for a failure, 2 for bad input, 3 for a missing
//! requirement of the machine), and signals.

use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use quietwire_base::proc::{self, Status};
use quietwire_base::{Fault, wait_until};
use quietwire_host::apply::ApplyError;
use quietwire_host::settings;
use quietwire_lab::LabError;
use quietwire_lab::topology::TopologyError;
use quietwire_study::{FileError, LabBenchError, StoreError};
use quietwire_switch::SwitchError;
use quietwire_tester::{CalibrationsError, TesterError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Time that a command has to undo its changes and to end after a signal. Less than the 5 s that are promised, by what the end of a
/// process takes.
const END: Duration = Duration::from_millis(4500);
/// Time for the message of a command that does not end by itself. Its terminal or pipe may be blocked.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Returns the signals that end a command. SIGHUP, which is sent when a terminal is closed, stays ignored if it is already (`nohup`).
fn signals() -> impl Iterator<Item = i32> {
    let text = proc::read(Path::new("/proc/self/status")).unwrap_or_default();
    let is_caught = move |signal: &i32| *signal != SIGHUP || !is_ignored(&text, *signal);
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(is_caught)
}

/// Sets the flag on SIGINT, SIGTERM and SIGHUP, so that a command undoes its changes before it ends.
///
/// # Errors
/// A signal handler cannot be installed.
pub(crate) fn on_signals(flag: &Arc<AtomicBool>) -> anyhow::Result<()> {
    for signal in signals() {
        signal_hook::flag::register(signal, Arc::clone(flag))
            .with_context(|| format!("cannot catch signal {signal}"))?;
    }
    Ok(())
}

/// Returns a flag that signals set, like [`on_signals`], and a socket that is readable from the first signal on, to end a wait.
///
/// # Errors
/// A signal handler cannot be installed.
pub(crate) fn waking_on_signals() -> anyhow::Result<(Arc<AtomicBool>, UnixStream)> {
    let flag = Arc::new(AtomicBool::new(false));
    // Before the socket is readable, the flag is set.
    on_signals(&flag)?;
    let (receiver, sent) = UnixStream::pair().context("cannot wait for signals")?;
    for signal in signals() {
        let sent = sent.try_clone().context("cannot wait for signals")?;
        signal_hook::low_level::pipe::register(signal, sent)
            .with_context(|| format!("cannot catch signal {signal}"))?;
    }
    Ok((flag, receiver))
}

/// Returns a flag that signals set, like [`on_signals`]. A command that does not end within 4.5 s after the first signal is ended by
/// force, whatever it waits for, with a message. `left` names what may remain then, and the command that undoes it.
///
/// # Errors
/// A signal handler cannot be installed.
pub(crate) fn stop_on_signals(left: &'static str) -> anyhow::Result<Arc<AtomicBool>> {
    let (flag, mut receiver) = waking_on_signals()?;
    let watch = move || {
        if receiver.read_exact(&mut [0]).is_ok() {
            thread::sleep(END);
            end_by_force(left);
        }
    };
    // It sleeps until a signal, so that it disturbs no CPU.
    let name = "qw-signals".to_owned();
    thread::Builder::new()
        .name(name)
        .spawn(watch)
        .context("cannot start the thread that waits for signals")?;
    Ok(flag)
}

/// Ends the process, with a message if standard error can be written.
fn end_by_force(left: &str) {
    let text = format!(
        "quietwire: ended by force, because it did not end within {:.1} s after a signal{}{left}",
        END.as_secs_f64(),
        if left.is_empty() { "" } else { "; " }
    );
    let printed = thread::spawn(move || crate::text::say(text));
    wait_until(LAST_WORDS, || printed.is_finished());
    signal_hook::low_level::exit(i32::from(FAILED));
}

/// Message about the remains of a command with isolated CPUs that is ended by force.
pub(crate) const ISOLATION_LEFT: &str =
    "CPUs may still be isolated (undo that with `quietwire lab clean`)";

fn is_ignored(status: &str, signal: i32) -> bool {
    let ignored = Status::new(status).ignored_signals();
    let place = signal.checked_sub(1).and_then(|it| u32::try_from(it).ok());
    let bit = place.and_then(|place| 1_u64.checked_shl(place));
    ignored.zip(bit).is_some_and(|(mask, bit)| mask & bit != 0)
}

/// Bad input of the caller (exit code 2).
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// A check that ran and failed (exit code 1).
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CheckFailed(pub(crate) String);

/// A requirement that the machine does not meet (exit code 3).
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct MissingPrerequisite(pub(crate) String);

pub(crate) const FAILED: u8 = 1;
const BAD_INPUT: u8 = 2;
const LACKS: u8 = 3;

fn of_fault(fault: Fault) -> u8 {
    match fault {
        Fault::BadInput => BAD_INPUT,
        Fault::MissingPrerequisite => LACKS,
        Fault::Failed => FAILED,
    }
}

/// Returns the exit code of an error of a store. An unsuitable path is bad input; a failure of the disk is not.
fn of_store(error: &StoreError) -> u8 {
    match error {
        StoreError::Full(_)
        | StoreError::Io { .. }
        | StoreError::Damaged { .. }
        | StoreError::TooLong(_)
        | StoreError::CannotStore { .. }
        | StoreError::CannotRename { .. }
        | StoreError::Other { .. } => FAILED,
        _ => BAD_INPUT,
    }
}

/// Fails unless the caller is root. `why` names the action that requires root.
pub(crate) fn require_root(why: &str) -> anyhow::Result<()> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    Err(MissingPrerequisite(format!(
        "{why} requires root (run the same command with sudo)"
    ))
    .into())
}

/// Fails if the amount of memory for frames is 0 or unavailable. The own check gives a better message than DPDK.
pub(crate) fn require_memory(memory_mib: u32) -> anyhow::Result<()> {
    if memory_mib == 0 {
        return Err(Usage("memory-mib is 0 (use at least 1)".to_owned()).into());
    }
    /// Size of a huge page, MiB.
    const HUGE_PAGE_MIB: u64 = 2;
    // Available memory does not include free huge pages. A machine without huge pages has no such file.
    let huge_pages = settings::huge_pages_free().unwrap_or(0);
    let huge_mib = huge_pages.saturating_mul(HUGE_PAGE_MIB);
    let available_mib = settings::memory_available_mib().context(settings::MEMORY)?;
    let available_mib = available_mib.saturating_add(huge_mib);
    if u64::from(memory_mib) > available_mib {
        return Err(MissingPrerequisite(format!(
            "memory-mib is {memory_mib}, but only {available_mib} MiB are available on this machine (decrease --memory-mib)"
        ))
        .into());
    }
    Ok(())
}

/// Returns the exit code of an error: that of the first cause with a known kind of fault.
pub(crate) fn code(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if let Some(error) = cause.downcast_ref::<quietwire_dpdk::Error>() {
            return of_fault(error.fault());
        }
        if let Some(error) = cause.downcast_ref::<TesterError>() {
            return of_fault(error.fault());
        }
        if let Some(error) = cause.downcast_ref::<CalibrationsError>() {
            return of_fault(error.fault());
        }
        if let Some(error) = cause.downcast_ref::<ApplyError>() {
            return of_fault(error.fault());
        }
        if let Some(error) = cause.downcast_ref::<SwitchError>() {
            return of_fault(error.fault());
        }
        if let Some(error) = cause.downcast_ref::<LabBenchError>() {
            return of_fault(error.fault());
        }
        if let Some(error) = cause.downcast_ref::<LabError>() {
            return of_fault(error.fault());
        }
        if let Some(error) = cause.downcast_ref::<StoreError>() {
            return of_store(error);
        }
        if cause.is::<FileError>() || cause.is::<TopologyError>() || cause.is::<Usage>() {
            return BAD_INPUT;
        }
        if cause.is::<MissingPrerequisite>() {
            return LACKS;
        }
    }
    FAILED
}

/// Prints an error with its causes as one message, and returns the exit code.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    crate::text::say(format!("quietwire: {}", message(error)));
    ExitCode::from(code(error))
}

/// Formats an error with its causes. A cause that the message already contains is not repeated.
fn message(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |reported, cause| {
        let cause = cause.to_string();
        if reported.is_empty() {
            cause
        } else if reported.contains(&cause) {
            reported
        } else {
            format!("{reported}: {cause}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nohup_is_respected() {
        let status = "Name:\tx\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(status, SIGHUP) && !is_ignored(status, SIGTERM));
        assert!(!is_ignored("", SIGHUP));
    }

    #[test]
    fn a_cause_is_reported_once() {
        let cause = || Usage("the disk is full".to_owned());
        let error = anyhow::Error::new(cause()).context("the store: the disk is full");
        assert_eq!(message(&error), "the store: the disk is full");
        assert_eq!(code(&error), BAD_INPUT);
        let error = Err::<(), _>(cause()).context("the store").unwrap_err();
        assert_eq!(message(&error), "the store: the disk is full");
    }
}
