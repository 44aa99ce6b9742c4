// SPDX-License-Identifier: Apache-2.0
//! Narrowing of numbers: fields of words, and counts that rings and frames bound. A checked conversion would cost a branch per frame; tests
//! and fuzz targets check these.

/// Returns the lowest 8 bits of a word.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "a field of a word: the others are dropped"
)]
pub(crate) const fn low_u8(word: u64) -> u8 {
    word as u8
}

/// Returns the lowest 16 bits of a word.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "a field of a word: the others are dropped"
)]
pub(crate) const fn low_u16(word: u64) -> u16 {
    word as u16
}

/// Returns the lowest 32 bits of a word.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "a field of a word: the others are dropped"
)]
pub(crate) const fn low_u32(word: u64) -> u32 {
    word as u32
}

/// Converts a number of slots or chains, which is at most that of a ring: 32,768.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "a ring has at most 32,768 slots"
)]
pub(crate) const fn slots(count: usize) -> u16 {
    debug_assert!(count <= u16::MAX as usize);
    count as u16
}

/// Converts a number of octets of a frame, a chain or a buffer, which is less than 4 GiB: a descriptor has no more.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "frames, chains and buffers have limits far below 4 GiB"
)]
pub(crate) const fn octets(count: usize) -> u32 {
    debug_assert!(count <= u32::MAX as usize);
    count as u32
}
