// SPDX-License-Identifier: Apache-2.0
//! Settings of the kernel's in files: read, and written with a journal.

use std::fs;
use std::io;
use std::path::Path;

use crate::journal::{Change, Journal};
use crate::proc::memory_mib;

/// Share of each second that real-time threads may run, microseconds; -1 for all of it (sched(7)).
pub const REALTIME_RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";

/// Number of 2 MiB pages in the pool (Documentation/admin-guide/mm/hugetlbpage.rst).
pub const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
/// Where the kernel tells about memory.
pub const MEMORY: &str = "/proc/meminfo";
const HUGE_PAGES_FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";

/// Returns the first two numbers of a kernel's release such as `6.1.0-18-cloud-amd64`.
#[must_use]
pub fn release_numbers(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Writes a setting, unless it holds the value already. True when it was written.
///
/// # Errors
/// What the system said, with the file's name.
pub fn write(journal: &mut Journal, path: &Path, value: &str) -> io::Result<bool> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let former = fs::read_to_string(path).map_err(named)?;
    if former.trim() == value.trim() {
        return Ok(false);
    }
    journal.record(&Change::FileWritten {
        path: path.to_owned(),
        former,
        new: value.to_owned(),
    })?;
    fs::write(path, value).map_err(named)?;
    Ok(true)
}

/// Makes the pool of 2 MiB pages large enough that `pages` are free; gives the number that then is free, which may be
/// fewer when memory is scattered or short.
///
/// # Errors
/// What the system said.
pub fn reserve_huge_pages(journal: &mut Journal, pages: u64) -> io::Result<u64> {
    let free = read_number(Path::new(HUGE_PAGES_FREE))?;
    if free >= pages {
        return Ok(free);
    }
    let former = fs::read_to_string(HUGE_PAGES)?;
    let total = read_number(Path::new(HUGE_PAGES))?;
    let wanted = total + pages - free;
    journal.record(&Change::FileWritten {
        path: HUGE_PAGES.into(),
        former: former.clone(),
        new: wanted.to_string(),
    })?;
    fs::write(HUGE_PAGES, wanted.to_string())?;
    let granted = read_number(Path::new(HUGE_PAGES))?;
    if granted != wanted {
        // What the kernel made of it, so that undoing knows it for our own value.
        journal.record(&Change::FileWritten {
            path: HUGE_PAGES.into(),
            former,
            new: granted.to_string(),
        })?;
    }
    read_number(Path::new(HUGE_PAGES_FREE))
}

/// Number of free 2 MiB pages in the pool.
///
/// # Errors
/// What the system said.
pub fn huge_pages_free() -> io::Result<u64> {
    read_number(Path::new(HUGE_PAGES_FREE))
}

/// Memory that can be had without swapping, MiB (`MemAvailable`, proc_meminfo(5)).
///
/// # Errors
/// What the system said, or that the kernel does not tell.
pub fn memory_available_mib() -> io::Result<u64> {
    let text = fs::read_to_string(MEMORY)?;
    memory_mib(&text, "MemAvailable")
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no MemAvailable in it"))
}

/// A number in a file of the kernel's.
///
/// # Errors
/// What the system said, or that there is no number.
pub fn read_number(path: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    text.trim().parse().map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} holds '{}' and no number", path.display(), text.trim()),
        )
    })
}
