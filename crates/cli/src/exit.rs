// SPDX-License-Identifier: Apache-2.0
//! Conversion of errors to messages and exit codes: 1 for a failure, 2 for bad input, 3 for a missing requirement of the
//! machine.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use quietwire_base::Fault;
use quietwire_base::proc::{self, Status};
use quietwire_host::apply::ApplyError;
use quietwire_host::settings;
use quietwire_lab::LabError;
use quietwire_lab::topology::TopologyError;
use quietwire_study::{FileError, LabBenchError, StoreError};
use quietwire_switch::SwitchError;
use quietwire_tester::{CalibrationsError, TesterError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Sets the flag on SIGINT, SIGTERM and SIGHUP, so that a command undoes its changes before it ends. SIGHUP, which is sent when
/// a terminal is closed, stays ignored if it is already (`nohup`).
///
/// # Errors
/// A signal handler cannot be installed.
pub(crate) fn on_signals(flag: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let text = proc::read(Path::new("/proc/self/status")).unwrap_or_default();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if signal == SIGHUP && is_ignored(&text, signal) {
            continue;
        }
        signal_hook::flag::register(signal, Arc::clone(flag))
            .with_context(|| format!("cannot catch signal {signal}"))?;
    }
    Ok(())
}

fn is_ignored(status: &str, signal: i32) -> bool {
    let ignored = Status::new(status).ignored_signals();
    ignored.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
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

/// A path that will not do is bad input; a disk that fails is not.
fn of_store(error: &StoreError) -> u8 {
    match error {
        StoreError::Full(_)
        | StoreError::Io { .. }
        | StoreError::Damaged { .. }
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
    let huge_mib = settings::huge_pages_free().unwrap_or(0) * HUGE_PAGE_MIB;
    let available_mib = settings::memory_available_mib().context(settings::MEMORY)? + huge_mib;
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
    fn nohup_is_seen() {
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
