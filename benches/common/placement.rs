// SPDX-License-Identifier: Apache-2.0
//! Where threads run that neither forward nor generate: one rule for all sides.
//!
//! They get a CPU of their own if the machine has three. Otherwise they share the tester's CPU and come before the tester: a
//! forwarding thread may wait for a lock that one of them holds, and they have next to nothing to do while frames are counted.

use std::fs;
use std::process::{Command, Stdio};

use super::{DEVICE_CPU, TESTER_CPU};

/// Of the tester, and more than that.
pub(crate) const TESTER_PRIORITY: &str = "50";
pub(crate) const HELPERS_PRIORITY: &str = "60";
/// Of forwarding threads. At real-time priority they would leave the kernel's own threads on their CPU no time.
const NICE: &str = "-20";
const THIRD_CPU: &str = "2";

/// The CPU of all threads that neither forward nor generate.
pub(crate) fn helper_cpu() -> &'static str {
    if super::cpus() > 2 {
        THIRD_CPU
    } else {
        TESTER_CPU
    }
}

/// Places the threads of a device: those that are pinned to the forwarding CPU come before every other program there, all
/// others move to the helpers' CPU.
pub(crate) fn place_threads(pid: &str) {
    for (thread, cpus) in threads(pid) {
        if cpus == DEVICE_CPU {
            change("renice", &["-n", NICE, "-p", &thread]);
        } else {
            change("taskset", &["-cp", helper_cpu(), &thread]);
            change("chrt", &["-fp", HELPERS_PRIORITY, &thread]);
        }
    }
}

/// Gives the worker threads of a generator that is not quietwire's the tester's priority.
pub(crate) fn set_realtime(pid: &str) {
    let name = |thread: &str| fs::read_to_string(format!("/proc/{pid}/task/{thread}/comm"));
    for (thread, _) in threads(pid) {
        if name(&thread).is_ok_and(|name| name.contains("worker")) {
            change("chrt", &["-fp", TESTER_PRIORITY, &thread]);
        }
    }
}

/// The threads of a process, and the CPUs that each may use.
fn threads(pid: &str) -> Vec<(String, String)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the device's threads");
    let thread = |task: fs::DirEntry| {
        // A thread may have ended meanwhile.
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let mut lines = status.lines();
        let cpus = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        let name = task.file_name().to_string_lossy().into_owned();
        Some((name, cpus.trim().to_owned()))
    };
    tasks.flatten().filter_map(thread).collect()
}

/// Runs a tool on a thread, which may have ended meanwhile.
fn change(program: &str, arguments: &[&str]) {
    let mut command = Command::new(program);
    command.args(arguments);
    let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
}

/// The rule, as runs state it.
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
