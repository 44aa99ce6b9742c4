// SPDX-License-Identifier: Apache-2.0
//! All threads of the machine: CPU affinity, context switches and the data plane of forwarding threads.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::CpuList;

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
    /// Voluntary context switches since the thread started.
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
    /// Data plane for which it forwards.
    pub forwards_for: Option<DataPlane>,
}

/// Returns all threads below `root`, sorted by thread ID, without those that end meanwhile.
#[must_use]
pub fn all(root: &Path) -> Vec<Task> {
    let mut tasks = Vec::new();
    for pid in numbers(&root.join("proc")) {
        let directory = root.join(format!("proc/{pid}/task"));
        let process = fs::read_to_string(root.join(format!("proc/{pid}/comm")));
        let process = process.unwrap_or_default();
        for tid in numbers(&directory) {
            let status = fs::read_to_string(directory.join(format!("{tid}/status")));
            tasks.extend(
                status
                    .ok()
                    .and_then(|status| task(pid, tid, process.trim(), &status)),
            );
        }
    }
    tasks
}

/// PF_NO_SETAFFINITY of the kernel's include/linux/sched.h: its CPUs are the kernel's to choose.
const NO_SET_AFFINITY: u64 = 0x0400_0000;
/// Where the flags stand in `stat` behind the command, in fields (proc_pid_stat(5)).
const FLAGS_FIELD: usize = 6;

impl Task {
    /// Whether the kernel does not let it be given other CPUs, as it is with workers and rescuers of its work queues.
    #[must_use]
    pub fn is_bound(&self, root: &Path) -> bool {
        let file = root.join(format!("proc/{}/task/{}/stat", self.pid, self.tid));
        let stat = fs::read_to_string(file).unwrap_or_default();
        // The command may hold anything, parentheses too: its end is the last one.
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
        let flags = fields.and_then(|fields| fields.split_whitespace().nth(FLAGS_FIELD));
        flags
            .and_then(|flags| flags.parse::<u64>().ok())
            .is_some_and(|flags| flags & NO_SET_AFFINITY != 0)
    }
}

/// Numbers that name entries of a directory, in order.
fn numbers(directory: &Path) -> Vec<i32> {
    let mut numbers: Vec<i32> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers
}

fn task(pid: i32, tid: i32, process: &str, status: &str) -> Option<Task> {
    let (mut name, mut cpus) = (None, None);
    let (mut voluntary_switches, mut involuntary_switches) = (0, 0);
    let (mut has_memory, mut is_kthread) = (false, None);
    for line in status.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.trim();
        match key {
            "Name" => name = Some(value.to_owned()),
            "Cpus_allowed_list" => cpus = value.parse().ok(),
            "voluntary_ctxt_switches" => voluntary_switches = value.parse().unwrap_or(0),
            "nonvoluntary_ctxt_switches" => involuntary_switches = value.parse().unwrap_or(0),
            "VmSize" => has_memory = true,
            "Kthread" => is_kthread = Some(value == "1"),
            // A zombie has no memory either, and runs nowhere.
            "State" if value.starts_with(['Z', 'X']) => return None,
            _ => {}
        }
    }
    let name = name?;
    Some(Task {
        pid,
        tid,
        forwards_for: forwards_for(&name, process),
        name,
        cpus: cpus?,
        // Kernels before 6.8 do not say `Kthread`; their threads have no memory of their own.
        is_kernel: is_kthread.unwrap_or(!has_memory),
        voluntary_switches,
        involuntary_switches,
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
