// SPDX-License-Identifier: Apache-2.0
//! Handler of SIGSYS, which the kernel sends to a thread instead of executing a denied system call (seccomp(2), `SECCOMP_RET_TRAP`).
//!
//! The thread continues behind the call, with the registers that the handler leaves. The handler neither allocates nor locks.

use std::io;
use std::sync::OnceLock;
use std::{mem, ptr};

use nix::libc;

use super::denied;
use crate::error::Error;

/// `si_code` of a signal that a filter caused (linux/asm-generic/siginfo.h, `SYS_SECCOMP`).
const BY_FILTER: libc::c_int = 1;

/// Installs the handler, unless it is installed.
///
/// # Errors
/// [`Error::Seccomp`] with the kernel's error.
pub(super) fn install() -> Result<(), Error> {
    static OUTCOME: OnceLock<Result<(), i32>> = OnceLock::new();
    let outcome = OUTCOME.get_or_init(|| {
        // SAFETY: a structure of integers for which zero is a value; the handler makes no call that is not async-signal-safe.
        let code = unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = on_sigsys as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(libc::SIGSYS, &raw const action, ptr::null_mut())
        };
        match code {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        }
    });
    outcome.map_err(|errno| Error::seccomp(io::Error::from_raw_os_error(errno)))
}

extern "C" fn on_sigsys(
    _signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes valid structures, which only this thread uses.
    let (code, context) = unsafe { ((*info).si_code, &mut *context.cast::<libc::ucontext_t>()) };
    // A process with the right to do so may send the signal too; no call was denied then.
    if code == BY_FILTER {
        let number = refuse(context);
        // SAFETY: a system call without arguments that every filter allows.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) };
        denied::count(tid, number);
    }
}

/// Makes the denied call return EPERM. Returns its number: the kernel restores the registers of the call before the signal.
#[cfg(target_arch = "x86_64")]
fn refuse(context: &mut libc::ucontext_t) -> i64 {
    const RESULT: usize = libc::REG_RAX as usize;
    let number = context.uc_mcontext.gregs[RESULT];
    context.uc_mcontext.gregs[RESULT] = i64::from(-libc::EPERM);
    number
}

#[cfg(target_arch = "aarch64")]
fn refuse(context: &mut libc::ucontext_t) -> i64 {
    const NUMBER: usize = 8;
    const RESULT: usize = 0;
    let number = context.uc_mcontext.regs[NUMBER];
    context.uc_mcontext.regs[RESULT] = i64::from(-libc::EPERM).cast_unsigned();
    number.cast_signed()
}
