// SPDX-License-Identifier: Apache-2.0
//! Memory: free memory and huge pages at the end of an interval, and faults, swapping, compaction and migration of pages in it
//! (proc_meminfo(5), proc_vmstat(5)).

use quietwire_base::proc::read;
use quietwire_host::proc::{counter, memory_mib};
use serde::{Deserialize, Serialize};

use crate::files::value;
use crate::monitor::{Monitor, Target, Unavailable};
use crate::ticks::difference;

const HUGE_PAGES: &str = "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
const KEYS: [&str; 5] = [
    "pgmajfault",
    "pswpin",
    "pswpout",
    "compact_stall",
    "numa_pages_migrated",
];

/// State and activity of the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryActivity {
    /// Memory available at the end, MiB.
    pub available_mib: Option<u64>,
    /// Free huge pages of 2 MiB at the end.
    pub free_huge_pages: Option<u64>,
    /// Page faults that read from a disk.
    pub major_faults: u64,
    /// Pages read from swap.
    pub pages_swapped_in: u64,
    /// Pages written to swap.
    pub pages_swapped_out: u64,
    /// Allocations that waited for compaction.
    pub compaction_stalls: u64,
    /// Pages that NUMA balancing moved to another node.
    pub pages_migrated: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryCounters {
    available_mib: Option<u64>,
    free_huge_pages: Option<u64>,
    counters: [u64; KEYS.len()],
}

pub(crate) struct Memory;

impl Monitor for Memory {
    const NAME: &'static str = "memory";
    type Counters = MemoryCounters;
    type Activity = Option<MemoryActivity>;

    fn read(target: &Target<'_>) -> Result<Self::Counters, Unavailable> {
        let statistics = read(&target.root.join("proc/vmstat"))
            .map_err(|_| Unavailable::missing("/proc/vmstat"))?;
        let meminfo = read(&target.root.join("proc/meminfo")).unwrap_or_default();
        Ok(MemoryCounters {
            available_mib: memory_mib(&meminfo, "MemAvailable"),
            free_huge_pages: value(&target.root.join(HUGE_PAGES)),
            // Kernels without swap or compaction lack these lines, and have none of these events.
            counters: KEYS.map(|key| counter(&statistics, key).unwrap_or(0)),
        })
    }

    fn between(
        then: &Self::Counters,
        now: &Self::Counters,
        anomalies: &mut Vec<String>,
    ) -> Self::Activity {
        // As many pairs as keys.
        let mut pairs = then.counters.into_iter().zip(now.counters);
        let [
            major_faults,
            pages_swapped_in,
            pages_swapped_out,
            compaction_stalls,
            pages_migrated,
        ] = KEYS.map(|key| {
            let (then, now) = pairs.next().unwrap_or_default();
            difference(key, then, now, anomalies)
        });
        Some(MemoryActivity {
            available_mib: now.available_mib,
            free_huge_pages: now.free_huge_pages,
            major_faults,
            pages_swapped_in,
            pages_swapped_out,
            compaction_stalls,
            pages_migrated,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Machine, between};

    #[test]
    fn faults_and_swapping_are_counted() {
        let at = |faults: &str| {
            let text = format!("pgmajfault {faults}\npswpin 1\npswpout 2\n");
            Machine::default()
                .with("proc/vmstat", &text)
                .with("proc/meminfo", "MemAvailable:  2048 kB\n")
        };
        let activity = between::<Memory>(&at("3"), &at("8"));
        let wanted = MemoryActivity {
            available_mib: Some(2),
            major_faults: 5,
            ..MemoryActivity::default()
        };
        assert_eq!(activity, Some(wanted));
        assert!(
            Machine::default()
                .unavailable::<Memory>()
                .contains("/proc/vmstat")
        );
    }
}
