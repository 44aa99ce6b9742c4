// SPDX-License-Identifier: Apache-2.0
//! Kernel settings in files: reads them, and writes them with a journal.

use std::fs;
use std::io;
use std::path::Path;

use crate::files::{Disk, Files, named};
use crate::journal::{Change, Journal};
use crate::proc::memory_mib;
use crate::tree::Tree;

/// Run time of real-time threads per period, microseconds; -1 for no limit (sched(7)).
pub const REALTIME_RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";

/// Number of 2 MiB pages in the pool (Documentation/admin-guide/mm/hugetlbpage.rst).
pub const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
/// Remedy if the kernel reserves fewer pages than requested: it reclaims little of the page cache for them.
pub(crate) const MORE_HUGE_PAGES: &str = "memory is fragmented or used as page cache: drop the page cache with `sync; echo 1 > /proc/sys/vm/drop_caches` and apply again, or reserve huge pages at boot with hugepages= on the kernel command line";
/// The kernel's memory statistics.
pub const MEMORY: &str = "/proc/meminfo";
/// Directory of NUMA nodes in sysfs.
const NODES: &str = "sys/devices/system/node";
const HUGE_PAGES_FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";

/// Writes a setting unless it already has the value. Returns whether it was written.
///
/// # Errors
/// Error of the operating system, with the file's name.
pub fn write(journal: &mut Journal, path: &Path, value: &str) -> io::Result<bool> {
    write_in(&Disk, journal, path, value)
}

/// Writes a setting like [`write`], with the caller's file access.
pub(crate) fn write_in(
    files: &dyn Files,
    journal: &mut Journal,
    path: &Path,
    value: &str,
) -> io::Result<bool> {
    let former = files.read(path).map_err(named(path))?;
    if former.trim() == value.trim() {
        return Ok(false);
    }
    journal.record(&Change::FileWritten {
        path: path.to_owned(),
        former,
        new: value.to_owned(),
    })?;
    files.write(path, value).map_err(named(path))?;
    Ok(true)
}

/// Enlarges the pool of 2 MiB pages until `pages` are free. Returns the number of free pages, which may be lower if memory is
/// fragmented or short.
///
/// # Errors
/// Error of the operating system.
pub fn reserve_huge_pages(journal: &mut Journal, pages: u64) -> io::Result<u64> {
    let free = read_number(Path::new(HUGE_PAGES_FREE))?;
    if free >= pages {
        return Ok(free);
    }
    let former = fs::read_to_string(HUGE_PAGES)?;
    let total = read_number(Path::new(HUGE_PAGES))?;
    // More pages than can exist are as many as the kernel finds.
    let wanted = total.saturating_add(pages.saturating_sub(free));
    journal.record(&Change::FileWritten {
        path: HUGE_PAGES.into(),
        former: former.clone(),
        new: wanted.to_string(),
    })?;
    fs::write(HUGE_PAGES, wanted.to_string())?;
    let granted = read_number(Path::new(HUGE_PAGES))?;
    if granted != wanted {
        // Journal the kernel's actual value, so undoing recognises it as quietwire's.
        journal.record(&Change::FileWritten {
            path: HUGE_PAGES.into(),
            former,
            new: granted.to_string(),
        })?;
    }
    read_number(Path::new(HUGE_PAGES_FREE))
}

/// Returns the number of free 2 MiB pages in the pool.
///
/// # Errors
/// Error of the operating system.
pub fn huge_pages_free() -> io::Result<u64> {
    read_number(Path::new(HUGE_PAGES_FREE))
}

/// Returns the number of 2 MiB pages that are free on every NUMA node below `root`: that of the node with the fewest. 0 if the kernel lists
/// no node.
#[must_use]
pub fn huge_pages_free_on_each_node(root: &Path) -> u64 {
    let tree = Tree::new(root);
    let free = |node: u32| {
        let path = format!("{NODES}/node{node}/hugepages/hugepages-2048kB/free_hugepages");
        tree.value::<u64>(&path).unwrap_or(0)
    };
    let nodes = tree.numbered(NODES, "node");
    nodes.into_iter().map(free).min().unwrap_or(0)
}

/// Returns the memory available without swapping, MiB (`MemAvailable`, proc_meminfo(5)).
///
/// # Errors
/// Error of the operating system, or a missing value.
pub fn memory_available_mib() -> io::Result<u64> {
    let text = fs::read_to_string(MEMORY)?;
    memory_mib(&text, "MemAvailable").ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the file has no line MemAvailable",
        )
    })
}

/// Reads a number from a kernel file.
///
/// # Errors
/// Error of the operating system, or a text that is not a number.
pub fn read_number(path: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    text.trim().parse().map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "{} contains '{}', which is not a number",
                path.display(),
                text.trim()
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_free_on_each_node_if_the_node_with_the_fewest_has_them() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(huge_pages_free_on_each_node(root.path()), 0);
        for (node, free) in [(0, "40\n"), (1, "12\n")] {
            let pool = format!("{NODES}/node{node}/hugepages/hugepages-2048kB");
            let pool = root.path().join(pool);
            fs::create_dir_all(&pool).unwrap();
            fs::write(pool.join("free_hugepages"), free).unwrap();
            let least = if node == 0 { 40 } else { 12 };
            assert_eq!(huge_pages_free_on_each_node(root.path()), least);
        }
        // A node without pages of this size.
        fs::create_dir_all(root.path().join(NODES).join("node2")).unwrap();
        assert_eq!(huge_pages_free_on_each_node(root.path()), 0);
    }
}
