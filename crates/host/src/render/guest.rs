// SPDX-License-Identifier: Apache-2.0
//! Virtual CPUs of a guest: their CPUs, and the cores and threads that the guest sees. Virtual CPUs on one core of the guest
//! are on one core of the machine, so the guest's scheduler knows which of them share a core.

use crate::CpuId;
use crate::partition::{Group, Plan};

use crate::inventory::Vendor;

/// Memory of a guest without requested memory, MiB.
const LEAST_MIB: u64 = 512;

/// The virtual CPUs of one guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VirtualCpus {
    /// CPU of each virtual CPU, in order.
    pub(super) pins: Vec<CpuId>,
    /// Number of cores that the guest sees.
    pub(super) cores: usize,
    /// Threads of each core.
    pub(super) threads: usize,
}

/// Returns the virtual CPUs of a guest. If its cores have different numbers of threads, the guest sees cores with one thread
/// each, because all cores of a virtual machine are equal.
pub(super) fn virtual_cpus(guest: &Group) -> VirtualCpus {
    let pins: Vec<CpuId> = if guest.cores.is_empty() {
        guest.cpus.iter().collect()
    } else {
        guest.cores.iter().flat_map(|core| core.iter()).collect()
    };
    let threads = guest.cores.first().map_or(1, crate::CpuList::len);
    let are_alike = guest.cores.iter().all(|core| core.len() == threads);
    let threads = if are_alike { threads.max(1) } else { 1 };
    VirtualCpus {
        // Not zero threads.
        cores: pins.len().checked_div(threads).unwrap_or(0),
        threads,
        pins,
    }
}

/// Returns whether the guest needs the CPU feature `topoext`, without which AMD processors show it no threads.
pub(super) fn needs_topoext(plan: &Plan, cpus: &VirtualCpus) -> bool {
    plan.vendor == Some(Vendor::Amd) && cpus.threads > 1
}

/// Returns the guest's memory, MiB.
pub(super) fn memory_mib(guest: &Group) -> u64 {
    if guest.memory_mib > 0 {
        guest.memory_mib
    } else {
        LEAST_MIB
    }
}

/// Checks that a rendered guest conforms to the plan. `pins` are in the order of virtual CPUs.
#[cfg(test)]
pub(super) fn check(guest: &Group, pins: &[CpuId], cores: usize, threads: usize) {
    let pinned: crate::CpuList = pins.iter().copied().collect();
    assert_eq!((&pinned, pins.len()), (&guest.cpus, guest.cpus.len()));
    assert_eq!(cores * threads, pins.len());
    // Threads of one core of the guest are all threads of one core of the machine.
    for core in pins.chunks(threads).filter(|_| threads > 1) {
        let core: crate::CpuList = core.iter().copied().collect();
        assert!(guest.cores.contains(&core), "{core} of {:?}", guest.cores);
    }
    let are_pairs = guest.cores.iter().all(|core| core.len() == 2);
    assert!(!are_pairs || threads == 2, "threads are shown");
}
