// SPDX-License-Identifier: Apache-2.0
//! Checks of memory and huge pages.

use super::Machine;
use super::check::Check;
use crate::proc::memory_mib;

/// Minimum available memory for studies, MiB.
const MEMORY_LEAST_MIB: u64 = 512;
/// Available memory that is enough for all studies, MiB.
const MEMORY_AMPLE_MIB: u64 = 1024;

/// Directory of the kernel's huge page pools, with one subdirectory for each page size
/// (Documentation/admin-guide/mm/hugetlbpage.rst).
const POOLS: &str = "/sys/kernel/mm/hugepages";

pub(super) fn examine(machine: &Machine) -> Vec<Check> {
    vec![available(machine), huge_pages(machine), mount(machine)]
}

fn available(machine: &Machine) -> Check {
    const NAME: &str = "memory";
    let text = machine.text("/proc/meminfo").unwrap_or_default();
    let Some(mib) = memory_mib(&text, "MemAvailable") else {
        return Check::unavailable(NAME, "/proc/meminfo does not report the available memory");
    };
    let found = format!("{mib} MiB available");
    if mib >= MEMORY_AMPLE_MIB {
        Check::ok(NAME, found)
    } else if mib >= MEMORY_LEAST_MIB {
        Check::warning(NAME, format!("{found}: enough for small studies only"))
            .remedy("stop processes, or free huge pages")
    } else {
        Check::missing(NAME, format!("{found}, less than {MEMORY_LEAST_MIB} MiB"))
            .remedy("stop processes, or free huge pages")
    }
}

/// One pool: page size in KiB, reserved pages, free pages.
struct Pool {
    page_kib: u64,
    total: u64,
    free: u64,
}

fn pools(machine: &Machine) -> Vec<Pool> {
    let directories = machine.names(POOLS).into_iter().filter_map(|name| {
        let page_kib = name
            .strip_prefix("hugepages-")?
            .strip_suffix("kB")?
            .parse()
            .ok()?;
        Some(Pool {
            page_kib,
            total: machine.value(&format!("{POOLS}/{name}/nr_hugepages"))?,
            free: machine.value(&format!("{POOLS}/{name}/free_hugepages"))?,
        })
    });
    let mut pools: Vec<Pool> = directories.collect();
    pools.sort_by_key(|pool| pool.page_kib);
    pools
}

fn huge_pages(machine: &Machine) -> Check {
    const NAME: &str = "huge-pages";
    const PRICE: &str = "DPDK runs with --no-huge: about 15 % slower with memif, 20 % with vhost";
    let pools = pools(machine);
    let Some(smallest) = pools.first() else {
        return Check::unavailable(
            NAME,
            format!("the kernel does not support huge pages; {PRICE}"),
        );
    };
    let reserve = format!(
        "echo 256 > {POOLS}/hugepages-{}kB/nr_hugepages",
        smallest.page_kib
    );
    let found: Vec<String> = pools
        .iter()
        .filter(|pool| pool.total > 0)
        .map(|pool| {
            format!(
                "{} free of {} of {} KiB",
                pool.free, pool.total, pool.page_kib
            )
        })
        .collect();
    if found.is_empty() {
        return Check::warning(NAME, format!("none reserved; {PRICE}")).remedy(reserve);
    }
    let found = found.join(", ");
    if pools.iter().all(|pool| pool.free == 0) {
        return Check::warning(NAME, format!("{found}; {PRICE}"))
            .remedy("remove files of terminated processes in /dev/hugepages, which occupy pages");
    }
    Check::ok(NAME, found)
}

fn mount(machine: &Machine) -> Check {
    const NAME: &str = "hugetlbfs";
    let points: Vec<String> = machine
        .mounts()
        .into_iter()
        .filter(|mount| mount.kind == "hugetlbfs")
        .map(|mount| mount.point)
        .collect();
    if !points.is_empty() {
        return Check::ok(NAME, format!("mounted at {}", points.join(", ")));
    }
    if !machine.knows_filesystem("hugetlbfs") {
        return Check::unavailable(NAME, "the kernel does not support this file system");
    }
    Check::warning(NAME, "not mounted, so DPDK cannot use huge pages")
        .remedy("mkdir -p /dev/hugepages && mount -t hugetlbfs nodev /dev/hugepages")
}
