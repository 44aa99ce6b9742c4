// SPDX-License-Identifier: Apache-2.0
//! A guest's virtual CPUs: which CPU each has, and the cores and threads that the guest is shown. Two virtual CPUs that
//! are threads of one core to the guest are threads of one core of the machine, so that its scheduler knows what it shares.

use crate::CpuId;
use crate::partition::{Group, Plan};

use crate::inventory::Vendor;

/// A guest for which no memory was wished still needs some, MiB.
const LEAST_MIB: u64 = 512;

/// The virtual CPUs of one guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VirtualCpus {
    /// The CPU of each virtual CPU, in their order.
    pub(super) pins: Vec<CpuId>,
    /// Cores that the guest is shown.
    pub(super) cores: usize,
    /// Threads of each.
    pub(super) threads: usize,
}

/// Cores with unlike numbers of threads are shown as cores of one thread each: virtual machines have only one kind.
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
        cores: pins.len() / threads,
        threads,
        pins,
    }
}

/// AMD's processors tell a guest of threads only with the feature `topoext`, which has to be asked for.
pub(super) fn needs_topoext(plan: &Plan, cpus: &VirtualCpus) -> bool {
    plan.vendor == Some(Vendor::Amd) && cpus.threads > 1
}

/// The guest's memory, MiB.
pub(super) fn memory_mib(guest: &Group) -> u64 {
    if guest.memory_mib > 0 {
        guest.memory_mib
    } else {
        LEAST_MIB
    }
}

/// That what a file shows to a guest is what the plan has: `pins` in the order of virtual CPUs.
#[cfg(test)]
pub(super) fn check(guest: &Group, pins: &[CpuId], cores: usize, threads: usize) {
    let pinned: crate::CpuList = pins.iter().copied().collect();
    assert_eq!((&pinned, pins.len()), (&guest.cpus, guest.cpus.len()));
    assert_eq!(cores * threads, pins.len());
    // Threads of one core of the guest are all threads of one core of the machine that the guest has.
    for core in pins.chunks(threads).filter(|_| threads > 1) {
        let core: crate::CpuList = core.iter().copied().collect();
        assert!(guest.cores.contains(&core), "{core} of {:?}", guest.cores);
    }
    let are_pairs = guest.cores.iter().all(|core| core.len() == 2);
    assert!(!are_pairs || threads == 2, "threads are shown");
}
