// SPDX-License-Identifier: Apache-2.0
//! Narrowing of numbers from received frames: fields of words, and indices. A checked conversion would cost a branch per frame.

/// Returns the lowest 16 bits of a word.
#[inline(always)]
pub(crate) const fn low_u16(word: u64) -> u16 {
    let [a, b, ..] = word.to_le_bytes();
    u16::from_le_bytes([a, b])
}

/// Returns the lowest 32 bits of a word.
#[inline(always)]
pub(crate) const fn low_u32(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Converts a number to an index.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "an address has 64 bits: quietwire-memory does not compile otherwise"
)]
pub(crate) const fn index(number: u64) -> usize {
    number as usize
}
