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

/// The reference, which the compiler makes vector code of.
#[inline(always)]
fn plain(octets: &[u8]) -> u64 {
    let (chunks, rest) = octets.as_chunks::<4>();
    let words = chunks.iter().map(|chunk| u32::from_ne_bytes(*chunk));
    let mut last = [0; 4];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    words.map(u64::from).sum::<u64>() + u64::from(u32::from_ne_bytes(last))
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
            #[cfg(target_arch = "x86_64")]
            {
                if std::arch::is_x86_feature_detected!("avx2") {
                    // SAFETY: the processor has it.
                    prop_assert_eq!(unsafe { with_avx2(octets) }, expected);
                }
                if std::arch::is_x86_feature_detected!("avx512f") {
                    // SAFETY: the processor has it.
                    prop_assert_eq!(unsafe { with_avx512(octets) }, expected);
                }
            }
        }
    }

    #[test]
    fn the_largest_words_do_not_overflow() {
        let octets = vec![0xff; 65_536];
        assert_eq!(sum_of_words(&octets), 16_384 * u64::from(u32::MAX));
    }
}
