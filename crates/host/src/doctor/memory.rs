// SPDX-License-Identifier: Apache-2.0
//! Memory and huge pages.

use super::Machine;
use super::check::Check;
use crate::proc::memory_mib;

/// Under this, a study's processes do not fit, MiB.
const MEMORY_LEAST_MIB: u64 = 512;
/// From this on, nothing needs to be thought about, MiB.
const MEMORY_AMPLE_MIB: u64 = 1024;

/// Where the kernel keeps its pools of huge pages, one directory a size (Documentation/admin-guide/mm/hugetlbpage.rst).
const POOLS: &str = "/sys/kernel/mm/hugepages";

pub(super) fn examine(machine: &Machine) -> Vec<Check> {
    vec![available(machine), huge_pages(machine), mount(machine)]
}

fn available(machine: &Machine) -> Check {
    const NAME: &str = "memory";
    let text = machine.text("/proc/meminfo").unwrap_or_default();
    let Some(mib) = memory_mib(&text, "MemAvailable") else {
        return Check::unavailable(NAME, "/proc/meminfo doesn't say how much is available");
    };
    let seen = format!("{mib} MiB available");
    if mib >= MEMORY_AMPLE_MIB {
        Check::ok(NAME, seen)
    } else if mib >= MEMORY_LEAST_MIB {
        Check::warning(NAME, format!("{seen}: enough for small studies only"))
            .mend("end what isn't needed, or give huge pages back")
    } else {
        Check::missing(NAME, format!("{seen}, less than {MEMORY_LEAST_MIB} MiB"))
            .mend("end what isn't needed, or give huge pages back")
    }
}

/// One pool: size of its pages in KiB, pages reserved, pages nobody uses.
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
    const PRICE: &str =
        "DPDK runs with --no-huge, around 15 % slower over memif and 20 % over vhost";
    let pools = pools(machine);
    let Some(smallest) = pools.first() else {
        return Check::unavailable(NAME, format!("the kernel has none; {PRICE}"));
    };
    let reserve = format!(
        "echo 256 > {POOLS}/hugepages-{}kB/nr_hugepages",
        smallest.page_kib
    );
    let seen: Vec<String> = pools
        .iter()
        .filter(|pool| pool.total > 0)
        .map(|pool| {
            format!(
                "{} free of {} of {} KiB",
                pool.free, pool.total, pool.page_kib
            )
        })
        .collect();
    if seen.is_empty() {
        return Check::warning(NAME, format!("none reserved; {PRICE}")).mend(reserve);
    }
    let seen = seen.join(", ");
    if pools.iter().all(|pool| pool.free == 0) {
        return Check::warning(NAME, format!("{seen}; {PRICE}"))
            .mend("ls -l /dev/hugepages: files of processes that are gone hold their pages");
    }
    Check::ok(NAME, seen)
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
        return Check::unavailable(NAME, "the kernel doesn't have this file system");
    }
    Check::warning(NAME, "not mounted, so DPDK can't take huge pages")
        .mend("mkdir -p /dev/hugepages && mount -t hugetlbfs nodev /dev/hugepages")
}
