// SPDX-License-Identifier: Apache-2.0
//! Sums of octet sequences: of long ones with the widest instructions of the processor, chosen at run time.

/// Octets from which wide instructions cost less, call included.
const LONG: usize = 192;

/// Returns the sum of the 32-bit words of octets, in the machine's byte order. Zeros fill up the last word. Under 2^46 for 64 KiB.
#[inline(always)]
#[must_use]
pub fn sum_of_words(octets: &[u8]) -> u64 {
    if octets.len() < LONG {
        plain(octets)
    } else {
        wide(octets)
    }
}

#[inline(never)]
fn wide(octets: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has AVX-512F, and the kernel saves its registers.
            return unsafe { with_avx512(octets) };
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, and the kernel saves its registers.
            return unsafe { with_avx2(octets) };
        }
    }
    plain(octets)
}

/// Returns the sum by the reference code, which the compiler vectorises.
#[inline(always)]
fn plain(octets: &[u8]) -> u64 {
    let (chunks, rest) = octets.as_chunks::<4>();
    let words = chunks.iter().map(|chunk| u32::from_ne_bytes(*chunk));
    let sum: u64 = words.map(u64::from).sum();
    sum.wrapping_add(last_word(rest.iter().copied()))
}

/// Returns the word of the last octets, fewer than four.
#[inline(always)]
fn last_word(octets: impl Iterator<Item = u8>) -> u64 {
    let mut last = [0; 4];
    for (to, from) in last.iter_mut().zip(octets) {
        *to = from;
    }
    u64::from(u32::from_ne_bytes(last))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2(octets: &[u8]) -> u64 {
    plain(octets)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn with_avx512(octets: &[u8]) -> u64 {
    plain(octets)
}

/// As [`sum_of_words`], of octets that another process may change meanwhile. Each of them is read once.
///
/// # Safety
/// `start` is readable for `length` octets.
#[inline(always)]
pub(crate) unsafe fn sum_of_shared(start: *const u8, length: usize) -> u64 {
    if length == 0 {
        return 0;
    }
    // SAFETY: as the caller promises.
    unsafe {
        if length < LONG {
            plain_shared(start, length)
        } else {
            wide_shared(start, length)
        }
    }
}

/// # Safety
/// As [`sum_of_shared`].
#[inline(never)]
unsafe fn wide_shared(start: *const u8, length: usize) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: as the caller promises; the processor has AVX-512F, and the kernel saves its registers.
            return unsafe { shared_with_avx512(start, length) };
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: as the caller promises; the processor has AVX2, and the kernel saves its registers.
            return unsafe { shared_with_avx2(start, length) };
        }
    }
    // SAFETY: as the caller promises.
    unsafe { plain_shared(start, length) }
}

/// # Safety
/// As [`sum_of_shared`].
#[inline(always)]
unsafe fn plain_shared(start: *const u8, length: usize) -> u64 {
    let words = length / 4;
    let mut sum = 0_u64;
    for word in 0..words {
        let at = word.wrapping_mul(4);
        // SAFETY: the word ends at `4 * words` or before, which is within the octets.
        let octets = unsafe { start.add(at).cast::<[u8; 4]>().read() };
        sum = sum.wrapping_add(u64::from(u32::from_ne_bytes(octets)));
    }
    let rest = words.wrapping_mul(4)..length;
    // SAFETY: each of these octets is before `length`.
    let rest = rest.map(|at| unsafe { start.add(at).read() });
    sum.wrapping_add(last_word(rest))
}

/// # Safety
/// As [`sum_of_shared`], on a processor with AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn shared_with_avx2(start: *const u8, length: usize) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { plain_shared(start, length) }
}

/// # Safety
/// As [`sum_of_shared`], on a processor with AVX-512F.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn shared_with_avx512(start: *const u8, length: usize) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { plain_shared(start, length) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    #[cfg(target_arch = "x86_64")]
    use proptest::test_runner::TestRunner;

    use super::*;

    /// Adds word by word.
    fn reference(octets: &[u8]) -> u64 {
        let mut sum = 0;
        for chunk in octets.chunks(4) {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            sum += u64::from(u32::from_ne_bytes(word));
        }
        sum
    }

    proptest! {
        #[test]
        fn every_width_of_instructions_has_the_same_sum(
            octets in prop::collection::vec(any::<u8>(), 0..3000),
            skip in 0_usize..64,
        ) {
            let octets = octets.get(skip..).unwrap_or_default();
            let expected = reference(octets);
            prop_assert_eq!(sum_of_words(octets), expected);
            prop_assert_eq!(plain(octets), expected);
            prop_assert_eq!(wide(octets), expected);
            let (start, length) = (octets.as_ptr(), octets.len());
            // SAFETY: the octets are readable.
            unsafe {
                prop_assert_eq!(sum_of_shared(start, length), expected);
                prop_assert_eq!(plain_shared(start, length), expected);
                prop_assert_eq!(wide_shared(start, length), expected);
            }
        }
    }

    /// Compares the sums by these instructions with the reference. Prints `unavailable` if the processor does not have them.
    #[cfg(target_arch = "x86_64")]
    fn check_instructions(name: &str, are_available: bool, sums: impl Fn(&[u8]) -> [u64; 2]) {
        if !are_available {
            println!("unavailable: this processor does not have {name}");
            return;
        }
        let inputs = (prop::collection::vec(any::<u8>(), 0..3000), 0_usize..64);
        let checked = TestRunner::default().run(&inputs, |(octets, skip)| {
            let octets = octets.get(skip..).unwrap_or_default();
            prop_assert_eq!(sums(octets), [reference(octets); 2]);
            Ok(())
        });
        checked.unwrap();
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn sums_by_avx2_are_those_of_the_reference() {
        let is_available = std::arch::is_x86_feature_detected!("avx2");
        check_instructions("AVX2", is_available, |octets| {
            let (start, length) = (octets.as_ptr(), octets.len());
            // SAFETY: the processor has AVX2, and the octets are readable.
            unsafe { [with_avx2(octets), shared_with_avx2(start, length)] }
        });
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn sums_by_avx512_are_those_of_the_reference() {
        let is_available = std::arch::is_x86_feature_detected!("avx512f");
        check_instructions("AVX-512F", is_available, |octets| {
            let (start, length) = (octets.as_ptr(), octets.len());
            // SAFETY: the processor has AVX-512F, and the octets are readable.
            unsafe { [with_avx512(octets), shared_with_avx512(start, length)] }
        });
    }

    #[test]
    fn the_largest_words_do_not_overflow() {
        let octets = vec![0xff; 65_536];
        assert_eq!(sum_of_words(&octets), 16_384 * u64::from(u32::MAX));
    }
}
