// SPDX-License-Identifier: Apache-2.0
//! System calls in a thread of another process, in place of its own (ptrace(2)). The calls pass the thread's seccomp filter, as calls
//! of code that an attacker executes there would.

use nix::libc;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Calls of an idle thread, which need no result.
const IDLE: [i64; 4] = [
    libc::SYS_sched_yield,
    libc::SYS_clock_nanosleep,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
];

/// Result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The filter denied it; the result after that.
    Denied(i64),
    /// The kernel executed it; the result.
    Executed(i64),
}

/// A thread that makes calls for this thread until this value is dropped.
pub(crate) struct Puppet(Pid);

impl Puppet {
    pub(crate) fn new(tid: i32) -> Self {
        let tid = Pid::from_raw(tid);
        ptrace::seize(tid, ptrace::Options::PTRACE_O_TRACESYSGOOD).unwrap();
        ptrace::interrupt(tid).unwrap();
        waitpid(tid, Some(WaitPidFlag::__WALL)).unwrap();
        Self(tid)
    }

    /// Continues with a signal to the next stop.
    fn goes_on(&self, signal: Option<Signal>) -> WaitStatus {
        ptrace::syscall(self.0, signal).unwrap();
        waitpid(self.0, Some(WaitPidFlag::__WALL)).unwrap()
    }

    /// Continues to the begin of a call, and returns its number.
    fn next_call(&self) -> i64 {
        let mut signal = None;
        loop {
            match self.goes_on(signal.take()) {
                WaitStatus::PtraceSyscall(_) => {
                    let information = ptrace::syscall_info(self.0).unwrap();
                    if information.op == libc::PTRACE_SYSCALL_INFO_ENTRY {
                        return ptrace::getregs(self.0).unwrap().orig_rax.cast_signed();
                    }
                }
                WaitStatus::Stopped(_, other) => signal = Some(other),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Makes a call in place of one of the thread's own.
    pub(crate) fn call(&self, number: i64, arguments: [u64; 3]) -> Outcome {
        while !IDLE.contains(&self.next_call()) {}
        let own = ptrace::getregs(self.0).unwrap();
        let mut registers = own;
        registers.orig_rax = number.cast_unsigned();
        [registers.rdi, registers.rsi, registers.rdx] = arguments;
        ptrace::setregs(self.0, registers).unwrap();
        let ended = self.goes_on(None);
        assert!(matches!(ended, WaitStatus::PtraceSyscall(_)), "{ended:?}");
        let result = ptrace::getregs(self.0).unwrap().rax;
        // The kernel restores the number of a denied call.
        let outcome = if result == number.cast_unsigned() {
            self.handles_denial()
        } else {
            Outcome::Executed(result.cast_signed())
        };
        ptrace::setregs(self.0, libc::user_regs_struct { rax: 0, ..own }).unwrap();
        outcome
    }

    /// Continues to the end of the handler of SIGSYS.
    fn handles_denial(&self) -> Outcome {
        let stopped = self.goes_on(None);
        assert_eq!(stopped, WaitStatus::Stopped(self.0, Signal::SIGSYS));
        let mut status = self.goes_on(Some(Signal::SIGSYS));
        loop {
            assert!(matches!(status, WaitStatus::PtraceSyscall(_)), "{status:?}");
            let is_last =
                ptrace::getregs(self.0).unwrap().orig_rax == libc::SYS_rt_sigreturn.cast_unsigned();
            status = self.goes_on(None);
            if is_last {
                return Outcome::Denied(ptrace::getregs(self.0).unwrap().rax.cast_signed());
            }
        }
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        // The thread is stopped, unless its process has ended.
        let _ = ptrace::detach(self.0, None);
    }
}
