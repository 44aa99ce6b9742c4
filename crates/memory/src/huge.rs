// SPDX-License-Identifier: Apache-2.0
//! Large tables in ordinary memory.

use std::ptr::NonNull;

use nix::sys::mman::{MmapAdvise, madvise};

const PAGE: usize = 4096;

/// Asks the kernel to back memory with transparent huge pages where it can (madvise(2), MADV_HUGEPAGE), so that looking
/// at it all over costs fewer walks of page tables. What it holds does not change. False when the kernel has none.
pub fn prefer_huge_pages<T>(memory: &[T]) -> bool {
    let start = (memory.as_ptr() as usize).next_multiple_of(PAGE);
    let end = (memory.as_ptr() as usize + size_of_val(memory)) / PAGE * PAGE;
    let Some(length) = end.checked_sub(start).filter(|length| *length > 0) else {
        return true;
    };
    let Some(address) = NonNull::new(start as *mut std::ffi::c_void) else {
        return false;
    };
    // SAFETY: the pages lie within memory that is borrowed, and this advice changes nothing that can be seen of it.
    unsafe { madvise(address, length, MmapAdvise::MADV_HUGEPAGE) }.is_ok()
}
