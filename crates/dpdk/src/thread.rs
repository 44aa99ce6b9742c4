// SPDX-License-Identifier: Apache-2.0
//! CPUs, priority and signals of the calling thread.

use nix::libc;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;

use crate::error::Error;

pub(crate) fn failed(what: String, cause: impl ToString) -> Error {
    Error::Thread {
        what,
        cause: cause.to_string(),
    }
}

/// Returns the CPUs that the calling thread may run on (sched_getaffinity(2)).
///
/// # Errors
/// [`Error::Thread`] with the system's error.
pub fn affinity() -> Result<Vec<u32>, Error> {
    let set = sched_getaffinity(Pid::from_raw(0))
        .map_err(|cause| failed("cannot read the CPUs of a thread".to_owned(), cause))?;
    Ok((0..CpuSet::count())
        .filter(|cpu| set.is_set(*cpu).unwrap_or(false))
        .filter_map(|cpu| u32::try_from(cpu).ok())
        .collect())
}

/// Pins the calling thread to `cpus` (sched_setaffinity(2)).
///
/// # Errors
/// [`Error::Thread`] if a CPU does not exist, is offline or outside the process's cpuset.
pub fn pin(cpus: &[u32]) -> Result<(), Error> {
    let what = || format!("cannot pin a thread to CPUs {cpus:?}");
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu as usize)
            .map_err(|cause| failed(what(), cause))?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).map_err(|cause| failed(what(), cause))
}

/// Gives the calling thread real-time priority (SCHED_FIFO of sched(7)), 1 to 99. Child threads do not inherit it.
///
/// # Errors
/// [`Error::Thread`], in most cases because CAP_SYS_NICE is missing.
pub fn set_realtime(priority: u8) -> Result<(), Error> {
    schedule(
        libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK,
        i32::from(priority),
    )
}

/// Gives the calling thread ordinary priority again (SCHED_OTHER).
///
/// # Errors
/// [`Error::Thread`] with the system's error.
pub fn set_ordinary() -> Result<(), Error> {
    schedule(libc::SCHED_OTHER, 0)
}

fn schedule(policy: i32, priority: i32) -> Result<(), Error> {
    let parameter = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: thread 0 is the caller; `parameter` outlives the call.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) } == 0 {
        Ok(())
    } else {
        Err(failed(
            match priority {
                0 => "cannot give a thread ordinary priority".to_owned(),
                _ => format!("cannot give a thread real-time priority {priority}"),
            },
            std::io::Error::last_os_error(),
        ))
    }
}

/// Blocks the process's signals in the calling thread: their handlers run in any thread that does not block them.
pub(crate) fn refuse_signals() -> Result<(), Error> {
    let mut signals = SigSet::all();
    // The thread itself causes these signals, so they stay unblocked.
    for own in [
        Signal::SIGSEGV,
        Signal::SIGBUS,
        Signal::SIGILL,
        Signal::SIGFPE,
        Signal::SIGABRT,
        // A blocked SIGSYS would end the process at the first denied system call.
        Signal::SIGSYS,
    ] {
        signals.remove(own);
    }
    signals
        .thread_block()
        .map_err(|cause| failed("cannot block signals in a thread".to_owned(), cause))
}
