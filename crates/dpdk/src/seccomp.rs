// SPDX-License-Identifier: Apache-2.0
//! Seccomp filters of threads (seccomp(2)): the system calls that a thread may make, by its task.
//!
//! The lists are here because the calls are those of DPDK's drivers and of this crate's ports. They do not depend on the kinds of ports,
//! except for the families of sockets: a switch adds ports of other kinds at run time, and the filters of its threads cannot be widened for
//! them. A thread installs its filter after its setup and can never remove it. Threads that it starts inherit the filter, and can only add
//! a narrower one.
//!
//! A denied call returns EPERM. The filter lets the kernel send SIGSYS instead of returning the error itself, because the handler of the
//! signal also counts the call, by thread and by task. Only starts of threads and processes fail without a signal: the C library blocks all
//! signals meanwhile, and the kernel ends a process to which it cannot send SIGSYS.

mod calls;
mod denied;
mod names;
mod task;
#[cfg(test)]
mod tests;
mod trap;

use std::sync::Arc;

use nix::sys::signal::{SigSet, Signal};
use quietwire_base::Seccomp;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

use crate::error::Error;
use crate::uri::PortKind;

pub use denied::{Denied, of_task, of_thread};
pub use task::Task;

/// The filter of a task, to be installed by its threads.
#[derive(Clone, Debug)]
pub struct Filter {
    task: Task,
    /// Installed in this order.
    programs: Arc<[BpfProgram]>,
}

/// The filter of a running thread. Dropping it only ends the thread's entry in the counts of denied calls.
#[derive(Debug)]
pub struct Installed {
    _entry: Option<denied::Registration>,
}

impl Filter {
    /// Creates the filter of a task in this process, for ports of every kind. In [`Seccomp::Off`] it is empty.
    ///
    /// # Errors
    /// [`Error::Seccomp`] if the architecture of the machine has no filters.
    pub fn new(task: Task, mode: Seccomp) -> Result<Self, Error> {
        Self::for_ports(task, mode, &PortKind::ALL)
    }

    /// Creates the filter of a task in this process, without the families of sockets that only ports of other kinds require
    /// (`AF_PACKET`, `AF_XDP`). In [`Seccomp::Off`] it is empty.
    ///
    /// # Errors
    /// [`Error::Seccomp`] if the architecture of the machine has no filters.
    pub fn for_ports(task: Task, mode: Seccomp, kinds: &[PortKind]) -> Result<Self, Error> {
        let action = match mode {
            Seccomp::Enforce => SeccompAction::Trap,
            Seccomp::Log => SeccompAction::Log,
            Seccomp::Off => {
                let programs = Arc::default();
                return Ok(Self { task, programs });
            }
        };
        let mut programs = Vec::new();
        if mode == Seccomp::Enforce {
            for (rules, errno) in calls::failing(task)? {
                let error = SeccompAction::Errno(errno);
                programs.push(compile(rules, SeccompAction::Allow, error)?);
            }
        }
        // The last one, because it may not allow to install another.
        programs.push(compile(
            calls::allowed(task, kinds)?,
            action,
            SeccompAction::Allow,
        )?);
        Ok(Self {
            task,
            programs: programs.into(),
        })
    }

    /// Restricts the calling thread. Call it after the setup of the thread.
    ///
    /// # Errors
    /// [`Error::Seccomp`] if the kernel has no filters.
    pub fn install(&self) -> Result<Installed, Error> {
        if self.programs.is_empty() {
            return Ok(Installed { _entry: None });
        }
        trap::install()?;
        SigSet::from(Signal::SIGSYS)
            .thread_unblock()
            .map_err(Error::seccomp)?;
        let entry = denied::Registration::new(self.task);
        for program in &*self.programs {
            seccompiler::apply_filter(program).map_err(Error::seccomp)?;
        }
        Ok(Installed { _entry: entry })
    }
}

fn compile(
    rules: calls::Rules,
    mismatch: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, Error> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(Error::seccomp)?;
    let filter = SeccompFilter::new(rules, mismatch, matched, arch).map_err(Error::seccomp)?;
    BpfProgram::try_from(filter).map_err(Error::seccomp)
}
