// SPDX-License-Identifier: Apache-2.0
//! Memory of the device is on another NUMA node than its forwarding thread.

use quietwire_monitor::ProcessMemory;

use super::data::{CaseData, is_device_thread};
use super::finding::MachineFinding;
use crate::format;

/// Share of a process's memory that may be on other nodes: libraries are where they were first used.
const REMOTE_MAX: f64 = 0.1;

/// Reports the port with the largest share of memory on other nodes than its forwarding thread. If no port has too much there, reports the
/// process.
pub(super) fn remote_memory(data: &CaseData<'_>) -> Option<MachineFinding> {
    let (text, node) = of_ports(data).or_else(|| of_processes(data))?;
    let cure = format!(
        "reserve huge pages on node {node} before the start, or forward on CPUs of the other node"
    );
    Some(MachineFinding::new("remote-memory", data.case, text, &cure))
}

/// Returns the sentence about the port with the largest share of memory on other nodes than the CPU that polls it, and the node of that
/// CPU.
fn of_ports(data: &CaseData<'_>) -> Option<(String, u32)> {
    let mut worst: Option<(f64, String, u32)> = None;
    for memory in &data.port_memory {
        let whole_kib: f64 = memory.nodes.iter().map(|one| one.kib as f64).sum();
        for cpu in &memory.cpus {
            let Some(node) = data.place(*cpu).and_then(|place| place.node) else {
                continue;
            };
            let remote = || memory.nodes.iter().filter(move |one| one.node != node);
            let remote_kib: f64 = remote().map(|one| one.kib as f64).sum();
            let Some(largest) = remote().max_by_key(|one| one.kib) else {
                continue;
            };
            let share = remote_kib / whole_kib.max(1.0);
            if share > REMOTE_MAX && worst.as_ref().is_none_or(|(most, ..)| share > *most) {
                let text = format!(
                    "{} of the memory of port {} is on node {}, but its forwarding thread runs on CPU {cpu} of node {node}.",
                    format::percent(share * 100.0),
                    memory.port,
                    largest.node
                );
                worst = Some((share, text, node));
            }
        }
    }
    worst.map(|(_, text, node)| (text, node))
}

/// Returns the sentence about the process with the largest share of memory on other nodes than its forwarding thread, and the node of that
/// thread.
fn of_processes(data: &CaseData<'_>) -> Option<(String, u32)> {
    let mut worst: Option<(f64, String, u32)> = None;
    for activity in &data.activities {
        for thread in activity
            .threads
            .iter()
            .filter(|thread| is_device_thread(thread))
        {
            let Some(node) = data.place(thread.cpu).and_then(|place| place.node) else {
                continue;
            };
            let of_process = || {
                activity
                    .placement
                    .iter()
                    .filter(move |one| one.pid == thread.pid)
            };
            // Frames are in buffers and queues. Stores of earlier versions do not distinguish them.
            let has_buffers = of_process().any(|one| one.buffers_kib.is_some_and(|kib| kib > 0));
            let kib = |one: &ProcessMemory| match has_buffers {
                true => one.buffers_kib.unwrap_or(0),
                false => one.kib,
            };
            let whole_kib: u64 = of_process().map(kib).sum();
            let remote = || of_process().filter(move |one| one.node != node);
            let remote_kib: u64 = remote().map(kib).sum();
            let Some(largest) = remote().max_by_key(|one| kib(one)) else {
                continue;
            };
            let share = remote_kib as f64 / whole_kib.max(1) as f64;
            if share > REMOTE_MAX && worst.as_ref().is_none_or(|(most, ..)| share > *most) {
                let what = match has_buffers {
                    true => "memory for buffers and queues",
                    false => "memory",
                };
                let text = format!(
                    "{} of the {what} of forwarding thread {} is on node {}, but the thread runs on CPU {} of node {node}.",
                    format::percent(share * 100.0),
                    thread.name,
                    largest.node,
                    thread.cpu
                );
                worst = Some((share, text, node));
            }
        }
    }
    worst.map(|(_, text, node)| (text, node))
}

#[cfg(test)]
mod tests {
    use quietwire_study::PortMemory;
    use serde_json::json;

    use super::super::tests::{activity, data, forwarding, machine};
    use super::*;

    #[test]
    fn memory_on_the_other_node_is_reported() {
        let machine = machine(&[(0, "0", 0), (8, "8", 1)]);
        for (remote_kib, is_found) in [(900, true), (50, false)] {
            let mut found = activity(10.0, vec![forwarding("qw-fwd-0", 0)]);
            let pid = found.threads[0].pid;
            let on = |node, kib| ProcessMemory {
                pid,
                node,
                kib,
                buffers_kib: None,
            };
            let other = ProcessMemory {
                pid: pid + 1,
                ..on(1, 9_000)
            };
            found.placement = vec![on(0, 1_000 - remote_kib), on(1, remote_kib), other];
            let mut data = data(&[&found]);
            assert_eq!(remote_memory(&data), None);
            data.machine = Some(&machine);
            let finding = remote_memory(&data);
            assert_eq!(finding.is_some(), is_found);
            if let Some(finding) = finding {
                let text = finding.text.replace(format::THIN, " ");
                let wanted = "90 % of the memory of forwarding thread qw-fwd-0 is on node 1, but the thread runs on CPU 0 of node 0.";
                assert_eq!(text, wanted);
            }
        }
    }

    #[test]
    fn a_port_on_the_other_node_is_reported_before_its_process() {
        let machine = machine(&[(0, "0", 0), (8, "8", 1)]);
        for (remote_kib, is_found) in [(900, true), (50, false)] {
            let own_kib = 1000 - remote_kib;
            let nodes = json!([{"node": 0, "kib": own_kib}, {"node": 1, "kib": remote_kib}]);
            let memory = json!({"port": "p0", "cpus": [0], "nodes": nodes});
            let memory: PortMemory = serde_json::from_value(memory).unwrap();
            let found = activity(10.0, vec![forwarding("qw-fwd-0", 0)]);
            let mut data = data(&[&found]);
            data.port_memory = vec![&memory];
            assert_eq!(remote_memory(&data), None);
            data.machine = Some(&machine);
            let finding = remote_memory(&data);
            assert_eq!(finding.is_some(), is_found, "{finding:?}");
            if let Some(finding) = finding {
                let text = finding.text.replace(format::THIN, " ");
                let wanted = "90 % of the memory of port p0 is on node 1, but its forwarding thread runs on CPU 0 of node 0.";
                assert_eq!(text, wanted);
            }
        }
    }

    #[test]
    fn buffers_and_queues_count_if_they_are_known() {
        let machine = machine(&[(0, "0", 0), (8, "8", 1)]);
        for (remote_kib, is_found) in [(300, true), (0, false)] {
            let mut found = activity(10.0, vec![forwarding("qw-fwd-0", 0)]);
            let pid = found.threads[0].pid;
            let on = |node, kib, buffers_kib| ProcessMemory {
                pid,
                node,
                kib,
                buffers_kib: Some(buffers_kib),
            };
            // Most of the other memory, such as libraries, is on node 1.
            found.placement = vec![on(0, 1_000, 900), on(1, 5_000 + remote_kib, remote_kib)];
            let mut data = data(&[&found]);
            data.machine = Some(&machine);
            let finding = remote_memory(&data);
            assert_eq!(finding.is_some(), is_found, "{finding:?}");
            if let Some(finding) = finding {
                let text = finding.text.replace(format::THIN, " ");
                let wanted = "25 % of the memory for buffers and queues of forwarding thread qw-fwd-0 is on node 1,";
                assert!(text.starts_with(wanted), "{text}");
            }
        }
    }
}
