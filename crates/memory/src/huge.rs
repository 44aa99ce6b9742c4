// SPDX-License-Identifier: Apache-2.0
//! Large tables in ordinary memory.

use std::ptr::NonNull;

use nix::sys::mman::{MmapAdvise, madvise};

const PAGE: usize = 4096;

/// Advises the kernel to use transparent huge pages for memory (madvise(2), MADV_HUGEPAGE), so that random access costs
/// fewer page table walks. The contents do not change. Returns false if the kernel refuses the advice.
pub fn prefer_huge_pages<T>(memory: &[T]) -> bool {
    // Miri knows no pages.
    if cfg!(miri) {
        return true;
    }
    let start = (memory.as_ptr() as usize).next_multiple_of(PAGE);
    let end = (memory.as_ptr() as usize).saturating_add(size_of_val(memory)) & !(PAGE - 1);
    let Some(length) = end.checked_sub(start).filter(|length| *length > 0) else {
        return true;
    };
    let Some(address) = NonNull::new(start as *mut std::ffi::c_void) else {
        return false;
    };
    // SAFETY: the pages lie within borrowed memory, and this advice does not change their contents.
    unsafe { madvise(address, length, MmapAdvise::MADV_HUGEPAGE) }.is_ok()
}
