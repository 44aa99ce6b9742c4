// SPDX-License-Identifier: Apache-2.0
//! Threads of this process: roles, CPUs, enforcement of their affinity, and their system calls.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use quietwire_base::proc::Status;
use quietwire_base::{Deadline, Seccomp};
use quietwire_dpdk::seccomp::{self, Filter, Task};
use quietwire_host::CpuList;
use quietwire_host::privileges::{self, Capabilities};
use quietwire_host::threads::{ReadError, ThreadCpus, own_threads};

use crate::config::{Pinning, Plan};
use crate::error::SwitchError;
use crate::report::{Role, ThreadReport, ThreadRights};

/// Name prefix of forwarding threads; the CPU number follows. A thread name in the kernel has at most 15 octets.
const FORWARDING: &str = "qw-fwd-";
pub(crate) const SERVICE: &str = "qw-service";
pub(crate) const CONTROL: &str = "qw-control";

/// Timeout for a thread to become ready.
const READY: Duration = Duration::from_secs(10);

/// Interval between two checks of the stop flag meanwhile.
const LOOK: Duration = Duration::from_millis(50);

/// Returns the task of a role, which determines its system calls.
pub(crate) const fn task_of(role: Role) -> Task {
    match role {
        Role::Forwarding => Task::Packets,
        Role::Service => Task::Service,
        Role::Control => Task::Control,
    }
}

/// Returns the capabilities that a thread of a role keeps, of those that it inherits. Control threads open ports; the others use open
/// descriptors only.
const fn capabilities_of(role: Role) -> Capabilities {
    match role {
        Role::Forwarding | Role::Service => Capabilities::NONE,
        Role::Control => Capabilities::PORTS,
    }
}

/// Spawns a thread and waits until it has run `prepare` and restricted its capabilities and system calls to those of its role, or until
/// `stop` is set. The result of `prepare` is kept until `body` ends.
pub(crate) fn spawn<T>(
    name: &str,
    (stop, seccomp): (&AtomicBool, Seccomp),
    prepare: impl FnOnce() -> Result<T, quietwire_dpdk::Error> + Send + 'static,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, SwitchError> {
    let failed = |what: String| SwitchError::Thread {
        name: name.to_owned(),
        what,
    };
    let role = role(name);
    let filter = Filter::new(task_of(role), seccomp)?;
    let prepare = move || -> Result<_, SwitchError> {
        let kept = prepare()?;
        // Before the filter, which denies it to threads that forward.
        privileges::reduce(None, capabilities_of(role))?;
        Ok((kept, filter.install()?))
    };
    let (ready, is_ready) = mpsc::sync_channel(1);
    let handle = Builder::new()
        .name(name.to_owned())
        .spawn(move || match prepare() {
            Ok(_kept) => {
                // The send fails only if the wait has ended, and the thread with it.
                if ready.send(Ok(())).is_ok() {
                    body();
                }
            }
            Err(error) => drop(ready.send(Err(error))),
        })
        .map_err(|cause| failed(format!("cannot start the thread: {cause}")))?;
    let deadline = Deadline::after(READY);
    let prepared = loop {
        match is_ready.recv_timeout(LOOK) {
            Ok(prepared) => break prepared,
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                return Err(failed("not ready before the end of the switch".to_owned()));
            }
            Err(RecvTimeoutError::Timeout) if !deadline.has_passed() => {}
            Err(_) => return Err(failed(format!("not ready within {} s", READY.as_secs()))),
        }
    };
    prepared?;
    Ok(handle)
}

/// Returns the memory node of a CPU (`/sys/devices/system/cpu/cpu*/node*`); `None` if the kernel does not report it.
pub(crate) fn node_of(cpu: u32) -> Option<u32> {
    let directory = format!("/sys/devices/system/cpu/cpu{cpu}");
    std::fs::read_dir(directory)
        .ok()?
        .filter_map(Result::ok)
        .find_map(|entry| {
            entry
                .file_name()
                .to_str()?
                .strip_prefix("node")?
                .parse()
                .ok()
        })
}

pub(crate) fn forwarding_name(cpu: u32) -> String {
    format!("{FORWARDING}{cpu}")
}

/// Returns the role of a thread name. Threads created by DPDK and the main thread are control threads.
fn role(name: &str) -> Role {
    if name.starts_with(FORWARDING) {
        Role::Forwarding
    } else if name == SERVICE {
        Role::Service
    } else {
        Role::Control
    }
}

/// Returns the rights of a thread of this process. `None` if it has ended.
fn rights(tid: i32) -> Option<ThreadRights> {
    let path = format!("/proc/self/task/{tid}/status");
    let text = quietwire_base::proc::read(Path::new(&path)).ok()?;
    let status = Status::new(&text);
    Some(ThreadRights {
        uid: status.effective_user()?,
        capabilities: Capabilities::of_mask(status.effective_capabilities()?).to_string(),
        can_gain_rights: status.field("NoNewPrivs")? != "1",
        has_seccomp_filter: status.field("Seccomp")? == "2",
    })
}

/// Returns all threads of this process.
pub(crate) fn list() -> Result<Vec<ThreadReport>, ReadError> {
    let report = |thread: ThreadCpus| {
        let denied = seccomp::of_thread(thread.tid);
        ThreadReport {
            role: role(&thread.name),
            tid: thread.tid,
            name: thread.name,
            cpus: thread.cpus,
            is_asleep: None,
            late_s: None,
            rights: rights(thread.tid),
            denied_calls: denied.calls,
            last_denied_call: denied.last,
        }
    };
    Ok(own_threads(Path::new("/"))?
        .into_iter()
        .map(report)
        .collect())
}

/// Moves every thread that may run on CPUs of another role to its own CPUs, and logs it. Called after start-up and periodically, because
/// libraries create threads when ports connect.
pub(crate) fn keep_to_roles(plan: &Plan) -> Result<(), SwitchError> {
    if plan.pinning == Pinning::None {
        return Ok(());
    }
    for thread in list()? {
        let allowed = match thread.role {
            Role::Forwarding => &plan.forwarding_cpus,
            Role::Service => &plan.service_cpus,
            Role::Control => &plan.control_cpus,
        };
        if thread.cpus.difference(allowed).is_empty() {
            continue;
        }
        tracing::warn!(
            "moved thread {} ({}) from CPUs {} to CPUs {allowed}",
            thread.tid,
            thread.name,
            thread.cpus
        );
        move_to(thread.tid, allowed).map_err(|cause| SwitchError::Thread {
            name: thread.name,
            what: format!("cannot move the thread to CPUs {allowed}: {cause}"),
        })?;
    }
    Ok(())
}

fn move_to(tid: i32, cpus: &CpuList) -> nix::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus.iter() {
        set.set(cpu.0 as usize)?;
    }
    match sched_setaffinity(Pid::from_raw(tid), &set) {
        // The thread has ended.
        Err(nix::errno::Errno::ESRCH) => Ok(()),
        other => other,
    }
}

/// Returns the CPUs in DPDK's form.
pub(crate) fn numbers(cpus: &CpuList) -> Vec<u32> {
    cpus.iter().map(|cpu| cpu.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_not_ready_does_not_delay_the_end_of_the_switch() {
        let stop = AtomicBool::new(true);
        let (release, held) = mpsc::channel::<()>();
        let prepare = move || {
            let _ = held.recv();
            Ok(())
        };
        let error = spawn("late", (&stop, Seccomp::Off), prepare, || {
            panic!("the switch has ended")
        })
        .unwrap_err();
        assert!(
            error.to_string().contains("not ready before the end"),
            "{error}"
        );
        drop(release);
    }
}
