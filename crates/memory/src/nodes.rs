// SPDX-License-Identifier: Apache-2.0
//! NUMA nodes of memory, from the pages that this process has mapped (move_pages(2)).

use std::collections::BTreeMap;
use std::io;
use std::ptr;

use nix::libc;

/// Size of the pages that are looked up.
const PAGE: usize = 4096;
/// Most pages that are looked up.
const SAMPLES_MAX: usize = 64;

/// Returns the octets of a range of this process's memory by NUMA node, estimated from at most 64 pages at even distances. Pages that are
/// not mapped do not count. Empty if none of the pages is mapped.
///
/// # Errors
/// The error of the kernel, such as ENOSYS if it does not support NUMA, or EPERM in a container.
pub fn octets_by_node(start: usize, len: usize) -> io::Result<BTreeMap<u32, u64>> {
    let pages = len.div_ceil(PAGE);
    let samples = pages.min(SAMPLES_MAX);
    // Miri knows no pages.
    if samples == 0 || cfg!(miri) {
        return Ok(BTreeMap::new());
    }
    let address = |sample: usize| {
        let page = sample.saturating_mul(pages).checked_div(samples);
        start.saturating_add(page.unwrap_or_default().saturating_mul(PAGE))
    };
    let addresses: Vec<usize> = (0..samples).map(address).collect();
    let mut nodes: Vec<libc::c_int> = vec![-1; samples];
    const THIS_PROCESS: usize = 0;
    const NO_FLAGS: usize = 0;
    let no_targets = ptr::null::<libc::c_int>();
    // SAFETY: the kernel reads this number of addresses, writes as many nodes, moves nothing without targets, and accepts any address.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            THIS_PROCESS,
            samples,
            addresses.as_ptr(),
            no_targets,
            nodes.as_mut_ptr(),
            NO_FLAGS,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // A page that is not mapped has a negative error code.
    let known = nodes.iter().filter_map(|node| u32::try_from(*node).ok());
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    for node in known {
        let count = counts.entry(node).or_default();
        *count = count.saturating_add(1);
    }
    let found: u64 = counts.values().sum();
    let share = |count: u64| {
        let octets = (len as u64).saturating_mul(count);
        octets.checked_div(found).unwrap_or_default()
    };
    Ok(counts
        .into_iter()
        .map(|(node, count)| (node, share(count)))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_the_node_of_its_pages_and_memory_that_is_not_mapped_has_none() {
        let memory = vec![1_u8; 1 << 20];
        let start = memory.as_ptr().addr();
        match octets_by_node(start, memory.len()) {
            Ok(_) if cfg!(miri) => {}
            Ok(nodes) => {
                let sum: u64 = nodes.values().sum();
                // Rounded down for each node.
                assert!(sum <= 1 << 20 && sum > (1 << 20) - 64, "{nodes:?}");
                // The first page of the address space is never mapped.
                assert_eq!(octets_by_node(0, PAGE).unwrap(), BTreeMap::new());
            }
            Err(error) => {
                let expected = [libc::ENOSYS, libc::EPERM];
                assert!(expected.contains(&error.raw_os_error().unwrap()), "{error}");
            }
        }
        assert_eq!(octets_by_node(start, 0).unwrap(), BTreeMap::new());
    }
}
