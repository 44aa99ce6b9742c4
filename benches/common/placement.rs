// SPDX-License-Identifier: Apache-2.0
//! Placement of threads that neither forward nor generate: one rule for all sides.
//!
//! They run on a third CPU if the machine has one. Otherwise they share the tester's CPU, at a higher priority than the
//! tester: a forwarding thread may wait for a lock that one of them holds, and they have almost nothing to do while frames
//! are counted.

use std::fs;
use std::process::{Command, Stdio};

use super::{DEVICE_CPU, TESTER_CPU};

/// Priorities of the tester, and a higher one.
pub(crate) const TESTER_PRIORITY: &str = "50";
pub(crate) const HELPERS_PRIORITY: &str = "60";
/// Nice value of forwarding threads. At real-time priority they would starve the kernel's threads on their CPU.
const NICE: &str = "-20";
const THIRD_CPU: &str = "2";

/// Returns the CPU of all threads that neither forward nor generate.
pub(crate) fn helper_cpu() -> &'static str {
    if super::cpus() > 2 {
        THIRD_CPU
    } else {
        TESTER_CPU
    }
}

/// Places the threads of a device: those pinned to the forwarding CPU get priority over every other program there; all
/// others move to the helpers' CPU.
pub(crate) fn place_threads(pid: &str) {
    for (thread, cpus) in threads(pid) {
        if cpus == DEVICE_CPU {
            change("renice", &["-n", NICE, "-p", &thread]);
        } else {
            move_to_helpers(&thread);
        }
    }
}

/// Places the threads of a generator other than quietwire's: its workers get the tester's priority; all others move to the helpers' CPU.
pub(crate) fn place_generator(pid: &str) {
    let name = |thread: &str| fs::read_to_string(format!("/proc/{pid}/task/{thread}/comm"));
    for (thread, _) in threads(pid) {
        if name(&thread).is_ok_and(|name| name.contains("worker")) {
            change("chrt", &["-fp", TESTER_PRIORITY, &thread]);
        } else {
            move_to_helpers(&thread);
        }
    }
}

/// Moves a thread that neither forwards nor generates to the helpers' CPU, with their priority.
fn move_to_helpers(thread: &str) {
    change("taskset", &["-cp", helper_cpu(), thread]);
    change("chrt", &["-fp", HELPERS_PRIORITY, thread]);
}

/// Returns the threads of a process, and the CPUs that each may use.
fn threads(pid: &str) -> Vec<(String, String)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the device's threads");
    let thread = |task: fs::DirEntry| {
        // A thread may have ended in the meantime.
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let mut lines = status.lines();
        let cpus = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        let name = task.file_name().to_string_lossy().into_owned();
        Some((name, cpus.trim().to_owned()))
    };
    tasks.flatten().filter_map(thread).collect()
}

/// Runs a tool on a thread, which may have ended in the meantime.
fn change(program: &str, arguments: &[&str]) {
    let mut command = Command::new(program);
    command.args(arguments);
    let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
}

/// Returns the rule for the stored run.
pub(crate) fn rule() -> String {
    let helper = helper_cpu();
    let beside = if helper == TESTER_CPU {
        ", the tester's, as the machine has only two"
    } else {
        ", a third one"
    };
    format!(
        "CPU {DEVICE_CPU} forwards (nice {NICE}), CPU {TESTER_CPU} generates and checks (SCHED_FIFO {TESTER_PRIORITY}). All other threads of every side run on CPU \
         {helper}{beside} (SCHED_FIFO {HELPERS_PRIORITY})."
    )
}
