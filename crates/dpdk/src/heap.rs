// SPDX-License-Identifier: Apache-2.0
//! The heap of a process that runs for months.

/// Octets from which a block of the heap is a mapping of its own, which goes back to the kernel as soon as it is freed.
#[cfg(target_env = "gnu")]
const OWN_MAPPING: i32 = 128 << 10;

/// Makes the process hold little more memory than it uses (mallopt(3)): all threads use one arena, so that a thread finds what another
/// has freed, and blocks of at least 128 KiB always go back to the kernel when they are freed. By default, glibc has eight arenas for each
/// CPU, and keeps blocks of up to 32 MiB once blocks of that size have been freed. Threads that allocate at the same time wait for each
/// other. Returns false if the allocator refuses; without effect for other C libraries than glibc.
pub(crate) fn keep_small() -> bool {
    #[cfg(target_env = "gnu")]
    {
        use nix::libc::{M_ARENA_MAX, M_MMAP_THRESHOLD, mallopt};
        // SAFETY: both set a number in the allocator, under its own lock, at any time.
        unsafe { mallopt(M_ARENA_MAX, 1) == 1 && mallopt(M_MMAP_THRESHOLD, OWN_MAPPING) == 1 }
    }
    #[cfg(not(target_env = "gnu"))]
    true
}

#[cfg(all(test, target_env = "gnu", not(miri)))]
mod tests {
    use nix::libc::mallinfo2;

    use super::*;

    #[test]
    fn large_blocks_are_mappings_and_go_back() {
        assert!(keep_small());
        // SAFETY: it only reads the statistics of the allocator.
        let mapped = || unsafe { mallinfo2() }.hblkhd;
        let length = 32 << 20;
        // By default, a freed block of this size would raise the threshold.
        drop(vec![1_u8; length / 2]);
        let before = mapped();
        let block = vec![1_u8; length / 2];
        let during = mapped();
        drop(block);
        assert!(during >= before + length / 2, "{before} {during}");
        assert!(mapped() < during, "{before} {during}");
    }
}
