// SPDX-License-Identifier: Apache-2.0
//! Memory of device and tester by NUMA node, from `/proc/PID/numa_maps` (proc_pid_numa_maps(5)).

use std::collections::BTreeMap;

use quietwire_base::proc::read;
use quietwire_host::proc::{buffers_by_node, memory_by_node};
use serde::{Deserialize, Serialize};

use crate::monitor::{Monitor, Owner, Target, Unavailable};

/// Memory of one process on one NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessMemory {
    /// Process ID.
    pub pid: u32,
    /// Number of the node.
    pub node: u32,
    /// Memory, KiB.
    pub kib: u64,
    /// Part of it in huge pages and in files in memory, where data planes keep buffers and queues, KiB. None in stores of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffers_kib: Option<u64>,
}

pub(crate) struct Placement;

impl Monitor for Placement {
    const NAME: &'static str = "placement";
    /// All memory and that of buffers, KiB, by process and node.
    type Counters = BTreeMap<(u32, u32), (u64, u64)>;
    type Activity = Vec<ProcessMemory>;

    fn read(target: &Target<'_>) -> Result<Self::Counters, Unavailable> {
        let mut found = BTreeMap::new();
        let mut is_readable = false;
        // The place of neighbours' memory affects no frame.
        let own = target
            .watched
            .iter()
            .filter(|one| one.owner != Some(Owner::Neighbour));
        for watched in own {
            let path = target.root.join(format!("proc/{}/numa_maps", watched.pid));
            if let Ok(text) = read(&path) {
                is_readable = true;
                let buffers = buffers_by_node(&text);
                let nodes = memory_by_node(&text).into_iter();
                found.extend(nodes.map(|(node, kib)| {
                    let of_buffers = buffers.get(&node).copied().unwrap_or(0);
                    ((watched.pid, node), (kib, of_buffers))
                }));
            }
        }
        if is_readable {
            Ok(found)
        } else {
            Err(Unavailable::missing("/proc/PID/numa_maps"))
        }
    }

    fn between(
        _then: &Self::Counters,
        now: &Self::Counters,
        _anomalies: &mut Vec<String>,
    ) -> Self::Activity {
        let all = now
            .iter()
            .map(|((pid, node), (kib, buffers_kib))| ProcessMemory {
                pid: *pid,
                node: *node,
                kib: *kib,
                buffers_kib: Some(*buffers_kib),
            });
        all.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::Watched;
    use crate::tests::{Machine, between};

    #[test]
    fn memory_of_device_and_tester_is_listed_by_node() {
        let text = "7f00 default anon=3 N0=2 N1=1 kernelpagesize_kB=4\n7f10 default file=/memfd:x N1=2 kernelpagesize_kB=4\n";
        let machine = Machine::default()
            .with("proc/7/numa_maps", text)
            .with("proc/9/numa_maps", text)
            .watching(Watched::of(7, Owner::Device))
            .watching(Watched::of(9, Owner::Neighbour));
        let activity = between::<Placement>(&machine, &machine);
        let on = |node, kib, buffers_kib| ProcessMemory {
            pid: 7,
            node,
            kib,
            buffers_kib: Some(buffers_kib),
        };
        assert_eq!(activity, [on(0, 8, 0), on(1, 12, 8)]);
        let none = Machine::default().watching(Watched::of(7, Owner::Device));
        assert!(none.unavailable::<Placement>().contains("numa_maps"));
    }
}
