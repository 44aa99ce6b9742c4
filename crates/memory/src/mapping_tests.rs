// SPDX-License-Identifier: Apache-2.0

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};

use super::*;
use crate::SharedSlice;

const SIZE: u64 = 3 * 4096;

fn file_of(flags: MFdFlags, size: u64) -> File {
    let file = File::from(memfd_create(c"peer", flags).unwrap());
    file.set_len(size).unwrap();
    file
}

fn sealable(size: u64) -> File {
    file_of(MFdFlags::MFD_ALLOW_SEALING, size)
}

#[test]
fn both_sides_see_what_either_writes() {
    let (ours, file) = Mapping::create("quietwire-test", 5000).unwrap();
    assert_eq!(ours.len(), 8192);
    let theirs = Mapping::of_peer(file.as_fd(), 4096, 100, Sealing::Required).unwrap();
    ours.span(4096, 5).unwrap().copy_from(b"hello");
    assert_eq!(theirs.span(0, 5).unwrap().read_array(), Some(*b"hello"));
    assert!(theirs.span(0, 101).is_none());
    assert!(theirs.span(u64::MAX, 2).is_none());
    assert!(theirs.span(100, 0).is_some());
}

/// Returns the flags of the mapping at an address (proc_pid_smaps(5), VmFlags).
fn flags_at(address: usize) -> Vec<String> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let start = format!("{address:x}-");
    let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&start));
    let flags = lines.find_map(|line| line.strip_prefix("VmFlags:"));
    flags.unwrap().split(' ').map(str::to_owned).collect()
}

#[test]
fn shared_memory_stays_out_of_core_files() {
    let (ours, file) = Mapping::create("quietwire-test", 8192).unwrap();
    let theirs = Mapping::of_peer(file.as_fd(), 4096, 100, Sealing::Required).unwrap();
    for mapping in [&ours, &theirs] {
        let flags = flags_at(mapping.base.addr().get());
        assert!(flags.iter().any(|flag| flag == "dd"), "{flags:?}");
    }
}

#[test]
fn an_offset_within_a_page_is_mapped_exactly() {
    let (ours, file) = Mapping::create("quietwire-test", 8192).unwrap();
    let theirs = Mapping::of_peer(file.as_fd(), 4000, 200, Sealing::Required).unwrap();
    ours.span(4000, 3).unwrap().copy_from(b"abc");
    ours.span(4197, 3).unwrap().copy_from(b"xyz");
    assert_eq!(theirs.span(0, 3).unwrap().read_array(), Some(*b"abc"));
    assert_eq!(theirs.span(197, 3).unwrap().read_array(), Some(*b"xyz"));
}

#[test]
fn a_peers_file_cannot_be_truncated_after_it_is_mapped() {
    let file = sealable(SIZE);
    let _mapping = Mapping::of_peer(file.as_fd(), 0, SIZE, Sealing::Required).unwrap();
    assert!(file.set_len(0).is_err());
}

#[test]
fn a_file_that_cannot_be_sealed_is_refused_unless_its_owner_is_trusted() {
    let file = file_of(MFdFlags::empty(), SIZE);
    let error = Mapping::of_peer(file.as_fd(), 0, SIZE, Sealing::Required).unwrap_err();
    assert!(matches!(error, MapError::Unsealed(_)), "{error}");
    Mapping::of_peer(file.as_fd(), 0, SIZE, Sealing::Trusted).unwrap();
}

#[test]
fn a_file_shorter_than_the_announced_region_is_refused() {
    let file = sealable(SIZE);
    for (offset, len) in [(0, SIZE + 1), (SIZE, 1), (1, SIZE), (u64::MAX, 1), (0, 0)] {
        Mapping::of_peer(file.as_fd(), offset, len, Sealing::Required).unwrap_err();
    }
    let directory = File::open("/").unwrap();
    Mapping::of_peer(directory.as_fd(), 0, 1, Sealing::Trusted).unwrap_err();
}

#[test]
fn a_missing_page_is_replaced_and_noted() {
    let file = file_of(MFdFlags::empty(), SIZE);
    let mapping = Arc::new(Mapping::of_peer(file.as_fd(), 0, SIZE, Sealing::Trusted).unwrap());
    let other = Mapping::of_peer(file.as_fd(), 0, 4096, Sealing::Trusted).unwrap();
    mapping.span(8192, 1).unwrap().copy_from(&[7]);
    file.set_len(4096).unwrap();
    assert!(!mapping.has_faulted());
    assert_eq!(mapping.span(8192, 1).unwrap().read_array(), Some([0]));
    assert!(mapping.has_faulted());
    // Writes to it are lost; the remaining pages are unchanged.
    let words = SharedSlice::<AtomicU64>::new(&mapping, 4096, 1).unwrap();
    words[0].store(1, Ordering::Relaxed);
    assert!(!other.has_faulted());
    assert_eq!(other.span(0, 1).unwrap().read_array(), Some([0]));
}

#[test]
fn words_have_to_be_aligned_and_inside() {
    let (mapping, _file) = Mapping::create("quietwire-test", 4096).unwrap();
    let mapping = Arc::new(mapping);
    let slice = |offset, len| SharedSlice::<AtomicU16>::new(&mapping, offset, len);
    assert_eq!(slice(4094, 1).unwrap().len(), 1);
    assert!(slice(4095, 1).is_none());
    assert!(slice(4094, 2).is_none());
    assert!(slice(1, 1).is_none());
    assert!(slice(0, usize::MAX).is_none());
}

#[test]
fn pages_that_a_file_has_are_populated_and_no_others() {
    let file = sealable(64 * 4096);
    std::os::unix::fs::FileExt::write_all_at(&file, &[1], 10 * 4096).unwrap();
    let blocks = |file: &File| std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap());
    let before = blocks(&file);
    let mapping = Mapping::of_peer(file.as_fd(), 0, 64 * 4096, Sealing::Required).unwrap();
    let mut at = Some(0);
    let mut calls = 0;
    while let Some(offset) = at {
        at = mapping.populate_present(file.as_fd(), 0, offset, 4096);
        calls += 1;
        assert!(calls < 10);
    }
    assert_eq!(blocks(&file), before);
}

#[test]
fn a_slice_of_octets_has_spans_within_itself_only() {
    let (mapping, _file) = Mapping::create("quietwire-test", 4096).unwrap();
    let mapping = Arc::new(mapping);
    mapping.span(100, 4).unwrap().copy_from(b"abcd");
    let slice = SharedSlice::<AtomicU8>::new(&mapping, 100, 4).unwrap();
    assert_eq!(slice.span(1, 3).unwrap().read_array(), Some(*b"bcd"));
    assert_eq!(slice.span(4, 0).unwrap().len(), 0);
    for (offset, len) in [(0, 5), (4, 1), (5, 0), (u64::MAX, 1), (1, usize::MAX)] {
        assert!(slice.span(offset, len).is_none(), "{offset} {len}");
    }
}

const HUGE: u64 = 2 << 20;

/// Huge pages of 2 MiB in addition to those that the system had, until this is dropped.
struct HugePages(u64);

impl HugePages {
    const COUNT: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

    fn reserve(count: u64) -> Self {
        let before = Self::total();
        Self::set(before + count);
        let reserved = Self(count);
        let total = Self::total();
        assert!(
            total >= before + count,
            "{count} huge pages of 2 MiB are required, but the kernel has {} (free some memory)",
            total.saturating_sub(before)
        );
        reserved
    }

    fn total() -> u64 {
        let text = std::fs::read_to_string(Self::COUNT).expect("a kernel with huge pages of 2 MiB");
        text.trim().parse().unwrap()
    }

    fn set(count: u64) {
        std::fs::write(Self::COUNT, count.to_string()).expect("root, who may reserve huge pages");
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        Self::set(Self::total().saturating_sub(self.0));
    }
}

#[test]
fn huge_pages_are_mapped_around_an_offset_and_unmapped_exactly() {
    const NAME: &str = "quietwire-test-huge";
    let _reserved = HugePages::reserve(2);
    let flags = MFdFlags::MFD_HUGETLB | MFdFlags::MFD_HUGE_2MB | MFdFlags::MFD_ALLOW_SEALING;
    let file = File::from(memfd_create(NAME, flags).unwrap());
    file.set_len(2 * HUGE).unwrap();
    let mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let own = maps.lines().filter(|line| line.contains(NAME));
        own.map(str::to_owned).collect::<Vec<_>>()
    };
    // The neighbours of the unmapped range, at any address that the kernel chooses.
    let whole = || Mapping::of_peer(file.as_fd(), 0, 2 * HUGE, Sealing::Required).unwrap();
    let neighbours = [whole(), whole(), whole()];
    neighbours[0]
        .span(HUGE - 3, 6)
        .unwrap()
        .copy_from(b"abcdef");
    let size = || -> u64 {
        let lines = mapped();
        let sizes = lines.iter().map(|line| {
            let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            number(to) - number(from)
        });
        sizes.sum()
    };
    for (offset, octets, pages) in [
        (HUGE - 3, &b"abcdef"[..], 2),
        (HUGE, &b"def"[..], 1),
        (HUGE + 4097, &[0; 100][..], 1),
        (5, &[0; 9][..], 1),
    ] {
        let (before, size_before) = (mapped(), size());
        let len = octets.len() as u64;
        let mapping = Mapping::of_peer(file.as_fd(), offset, len, Sealing::Required).unwrap();
        assert_eq!(size() - size_before, pages * HUGE);
        for (place, octet) in (0..).zip(octets) {
            let found = mapping.span(place, 1).unwrap().read_array();
            assert_eq!(found, Some([*octet]), "{offset} {place}");
        }
        assert!(mapping.span(len, 1).is_none());
        drop(mapping);
        assert_eq!(mapped(), before, "{offset}");
    }
    // All neighbours are still mapped.
    for neighbour in &neighbours {
        let octets = neighbour.span(HUGE - 3, 6).unwrap().read_array();
        assert_eq!(octets, Some(*b"abcdef"));
    }
    drop(neighbours);
    assert_eq!(mapped(), Vec::<String>::new());
}
