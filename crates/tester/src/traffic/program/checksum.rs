// SPDX-License-Identifier: Apache-2.0
//! Sums over octets for checksums.

/// Returns the sum of 16-bit words in network order, added two at a time.
#[inline(always)]
pub(crate) fn sum(octets: &[u8]) -> u64 {
    let (chunks, rest) = octets.as_chunks::<4>();
    let sum: u64 = chunks
        .iter()
        .map(|chunk| u64::from(u32::from_be_bytes(*chunk)))
        .sum();
    let (words, _) = rest.as_chunks::<2>();
    let rest = words
        .iter()
        .map(|word| u64::from(u16::from_be_bytes(*word)));
    sum.wrapping_add(rest.sum())
}
