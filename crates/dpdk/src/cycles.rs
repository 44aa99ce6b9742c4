// SPDX-License-Identifier: Apache-2.0
//! The time stamp counter: the only clock of the packet path.

/// Returns the value of the time stamp counter.
#[inline(always)]
#[must_use]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: rdtsc has no preconditions in user space (CR4.TSD is clear on Linux).
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: reads a counter register.
    unsafe {
        crate::sys::qw_tsc()
    }
}

/// Returns the frequency of [`now`] measured by the EAL, ticks per second. Zero before the EAL is started.
#[must_use]
pub fn hz() -> u64 {
    // SAFETY: reads a variable that is set once, by rte_eal_init.
    unsafe { crate::sys::rte_get_tsc_hz() }
}
