// SPDX-License-Identifier: Apache-2.0
//! Mappings under Miri, which knows no files in memory: pages of ordinary memory, which no other process shares.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

const PAGE: usize = 4096;

fn layout(len: usize) -> Option<Layout> {
    Layout::from_size_align(len, PAGE).ok()
}

/// Returns zeroed memory of at least `len` octets, its length and the length of a page.
pub(super) fn allocate(len: usize) -> Option<(NonNull<u8>, usize, usize)> {
    let len = len.max(1).checked_next_multiple_of(PAGE)?;
    // SAFETY: the size is not zero.
    let base = unsafe { alloc_zeroed(layout(len)?) };
    Some((NonNull::new(base)?, len, PAGE))
}

/// Frees memory of [`allocate`].
///
/// # Safety
/// `base` and `len` are those that [`allocate`] returned, and nothing uses the memory any more.
pub(super) unsafe fn free(base: NonNull<u8>, len: usize) {
    if let Some(layout) = layout(len) {
        // SAFETY: as the caller promises.
        unsafe { dealloc(base.as_ptr(), layout) };
    }
}

/// Returns a file that stands for that of the mapping.
pub(super) fn file() -> io::Result<OwnedFd> {
    Ok(File::open("/dev/null")?.into())
}
