// SPDX-License-Identifier: Apache-2.0
//! Copies of short octet sequences without a function call.

use std::ptr;

/// Returns true for a length that is copied without a call. A loop that copies only such lengths keeps its values in
/// registers.
#[inline(always)]
#[must_use]
pub fn is_short(length: usize) -> bool {
    (16..=128).contains(&length)
}

/// Copies `length` octets.
///
/// Short lengths are copied by a fixed number of wide moves that may overlap one another; a call of `memcpy` costs more than
/// the copy of a small frame.
///
/// # Safety
/// `from` is readable and `to` writable for `length` octets, and the two do not overlap. Another process may write to either
/// during the copy: the copied octets are then any mixture of old and new ones.
#[inline(always)]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    #[cfg(target_arch = "x86_64")]
    if is_short(length) {
        // SAFETY: as the caller promises; SSE2 is part of x86-64.
        unsafe { copy_wide(from, to, length) };
        return;
    }
    // SAFETY: as the caller promises.
    unsafe { copy_many(from, to, length) };
}

/// As [`copy`], but always calls `memcpy`, so that loops over short frames contain no other calls.
///
/// # Safety
/// As [`copy`].
#[cold]
#[inline(never)]
unsafe fn copy_many(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: as the caller promises.
    unsafe { ptr::copy_nonoverlapping(from, to, length) }
}

/// Copies 16 to 128 octets.
///
/// # Safety
/// As [`copy`], with such a length.
#[cfg(target_arch = "x86_64")]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "the length is at least the octets that each branch subtracts (checked)"
)]
#[inline(always)]
unsafe fn copy_wide(from: *const u8, to: *mut u8, length: usize) {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_storeu_si128};
    // SAFETY: each offset below is at most `length - 16`.
    let load = |at: usize| unsafe { _mm_loadu_si128(from.add(at).cast::<__m128i>()) };
    // SAFETY: as above.
    let store = |at: usize, value| unsafe { _mm_storeu_si128(to.add(at).cast::<__m128i>(), value) };
    if length <= 32 {
        let (first, last) = (load(0), load(length - 16));
        store(0, first);
        store(length - 16, last);
        return;
    }
    if length <= 64 {
        let values = (load(0), load(16), load(length - 32), load(length - 16));
        store(0, values.0);
        store(16, values.1);
        store(length - 32, values.2);
        store(length - 16, values.3);
        return;
    }
    let front = (load(0), load(16), load(32), load(48));
    let back = (
        load(length - 64),
        load(length - 48),
        load(length - 32),
        load(length - 16),
    );
    store(0, front.0);
    store(16, front.1);
    store(32, front.2);
    store(48, front.3);
    store(length - 64, back.0);
    store(length - 48, back.1);
    store(length - 32, back.2);
    store(length - 16, back.3);
}

/// Asks the processor to load the cache line at an address. Changes nothing but the cache, whatever the address.
#[inline(always)]
pub fn prefetch_address(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch changes nothing but the cache and never faults, whatever the address.
    unsafe {
        core::arch::x86_64::_mm_prefetch(address.cast(), core::arch::x86_64::_MM_HINT_T0);
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Asks the processor to load the first cache line of a value. Changes nothing but the cache.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    prefetch_address(std::ptr::from_ref(value).cast());
}

/// Asks the processor to load the cache line at an address in order to write to it.
#[inline(always)]
pub(crate) fn prefetch_write(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as above. Processors that lack the instruction execute it as a no-op (AMD64 manual, volume 3, PREFETCHW).
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_copied_and_nothing_else() {
        for length in 0..300_usize {
            let from: Vec<u8> = (0..length).map(|at| (at % 251) as u8 + 1).collect();
            let mut to = vec![0; length + 64];
            // SAFETY: both have that many octets from these positions on.
            unsafe { copy(from.as_ptr(), to.as_mut_ptr().add(32), length) };
            assert_eq!(to[32..32 + length], from, "{length}");
            let untouched = to[..32].iter().chain(&to[32 + length..]);
            assert!(untouched.copied().all(|octet| octet == 0), "{length}");
        }
    }
}
