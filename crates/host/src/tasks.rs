// SPDX-License-Identifier: Apache-2.0
//! All threads of the machine: CPU affinity, context switches and the data plane of forwarding threads.

use std::path::Path;

use quietwire_base::proc::{Stat, Status};
use serde::Serialize;

use crate::CpuList;
use crate::proc::{self, Thread};

/// Data plane of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DataPlane {
    /// `quietwire switch`.
    Quietwire,
    /// Open vSwitch with DPDK.
    OpenVswitch,
    /// FD.io VPP.
    Vpp,
    /// Contrail / Tungsten Fabric vRouter.
    Vrouter,
    /// Another DPDK program.
    Dpdk,
}

impl DataPlane {
    /// Returns the data plane's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Quietwire => "quietwire",
            Self::OpenVswitch => "Open vSwitch",
            Self::Vpp => "VPP",
            Self::Vrouter => "vRouter",
            Self::Dpdk => "DPDK",
        }
    }
}

/// Returns the data plane of a forwarding thread from the names of thread and process. `None` for other threads.
#[must_use]
pub fn forwards_for(thread: &str, process: &str) -> Option<DataPlane> {
    let numbered = |prefix: &str| {
        thread
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let is_vrouter = process.contains("vrouter");
    if numbered("qw-fwd-") {
        return Some(DataPlane::Quietwire);
    }
    // `pmd-c03/id:8`; older releases `pmd12`.
    if numbered("pmd-c") || (numbered("pmd") && process.starts_with("ovs-vswitchd")) {
        return Some(DataPlane::OpenVswitch);
    }
    if numbered("vpp_wk_") {
        return Some(DataPlane::Vpp);
    }
    // DPDK's names of worker threads: since 23.03, in 22.11, before 22.11, and before 21.
    let names = [
        "dpdk-worker",
        "rte-worker-",
        "lcore-worker-",
        "lcore-slave-",
    ];
    if names.iter().any(|name| numbered(name)) {
        return Some(if is_vrouter {
            DataPlane::Vrouter
        } else {
            DataPlane::Dpdk
        });
    }
    None
}

/// Returns whether a thread name belongs to a process with a data plane.
#[must_use]
pub fn is_data_plane_thread(thread: &str) -> bool {
    ["eal-intr-thread", "rte_mp_", "telemetry-v", "dpdk-"]
        .iter()
        .any(|name| thread.starts_with(name))
}

/// One thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Process ID.
    pub pid: i32,
    /// Thread ID.
    pub tid: i32,
    /// Name, at most 15 octets.
    pub name: String,
    /// CPU affinity.
    pub cpus: CpuList,
    /// Whether it is a kernel thread.
    pub is_kernel: bool,
    /// Number of voluntary context switches since the thread started.
    pub voluntary_switches: u64,
    /// Number of involuntary context switches since the thread started.
    pub involuntary_switches: u64,
    /// Data plane for which it forwards.
    pub forwards_for: Option<DataPlane>,
}

/// Returns all threads below `root`, sorted by thread ID, without those that end meanwhile.
#[must_use]
pub fn all(root: &Path) -> Vec<Task> {
    let mut tasks = Vec::new();
    for pid in proc::processes(root) {
        let process = proc::process_name(root, pid);
        let threads = proc::threads(root, pid).unwrap_or_default();
        tasks.extend(threads.iter().filter_map(|thread| {
            let status = thread.status().ok()?;
            task(pid, thread.tid(), &process, &Status::new(&status))
        }));
    }
    tasks
}

impl Task {
    /// Returns whether the kernel refuses to change the CPU affinity, as for workers and rescuers of its work queues.
    #[must_use]
    pub fn is_bound(&self, root: &Path) -> bool {
        is_bound_by(&Thread::of(root, self.pid, self.tid))
    }
}

fn is_bound_by(thread: &Thread) -> bool {
    let text = thread.stat().unwrap_or_default();
    Stat::parse(&text).is_some_and(|stat| stat.is_bound())
}

/// Returns true for a thread of the running machine whose CPUs only the kernel chooses: it cannot be moved, and need not be.
#[must_use]
pub fn is_bound(tid: i32) -> bool {
    is_bound_by(&Thread::numbered(Path::new("/"), tid))
}

fn task(pid: i32, tid: i32, process: &str, status: &Status<'_>) -> Option<Task> {
    // A zombie runs nowhere.
    if status.has_ended() {
        return None;
    }
    let name = status.name()?;
    Some(Task {
        pid,
        tid,
        forwards_for: forwards_for(&name, process),
        name,
        cpus: status.allowed_cpus()?.parse().ok()?,
        is_kernel: status.is_kernel_thread(),
        voluntary_switches: status.voluntary_switches().unwrap_or(0),
        involuntary_switches: status.involuntary_switches().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarding_threads_are_known_by_their_names() {
        for (thread, process, wanted) in [
            ("qw-fwd-3", "quietwire", Some(DataPlane::Quietwire)),
            ("pmd-c03/id:8", "ovs-vswitchd", Some(DataPlane::OpenVswitch)),
            ("pmd12", "ovs-vswitchd-dp", Some(DataPlane::OpenVswitch)),
            ("pmdk-server", "pmdk", None),
            ("vpp_wk_0", "vpp_main", Some(DataPlane::Vpp)),
            ("vpp_main", "vpp_main", None),
            ("dpdk-worker1", "dpdk-testpmd", Some(DataPlane::Dpdk)),
            ("rte-worker-1", "dpdk-testpmd", Some(DataPlane::Dpdk)),
            ("lcore-worker-2", "dpdk-testpmd", Some(DataPlane::Dpdk)),
            ("lcore-slave-2", "testpmd", Some(DataPlane::Dpdk)),
            (
                "lcore-slave-10",
                "contrail-vrouter-dpdk",
                Some(DataPlane::Vrouter),
            ),
            ("dpdk-intr", "dpdk-testpmd", None),
            ("ksoftirqd/0", "ksoftirqd/0", None),
        ] {
            assert_eq!(forwards_for(thread, process), wanted, "{thread}");
        }
        for name in [
            "dpdk-mp-msg",
            "dpdk-intr",
            "eal-intr-thread",
            "rte_mp_handle",
            "telemetry-v2",
        ] {
            assert!(is_data_plane_thread(name), "{name}");
        }
        assert!(!is_data_plane_thread("bash"));
    }

    #[test]
    fn no_process_and_no_program_is_bound() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(!is_bound(-1) && !is_bound(own));
    }

    #[test]
    fn the_running_machine_has_this_thread_and_the_kernel_s() {
        let tasks = all(Path::new("/"));
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(
            tasks
                .iter()
                .any(|task| task.pid == own && !task.is_kernel && !task.cpus.is_empty())
        );
        if Path::new("/proc/2/comm").exists() {
            let kernel = tasks.iter().find(|task| task.pid == 2);
            assert!(kernel.is_none_or(|task| task.is_kernel || task.name != "kthreadd"));
        }
    }
}
