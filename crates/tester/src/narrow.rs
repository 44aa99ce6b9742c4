// SPDX-License-Identifier: Apache-2.0
//! Narrowing of numbers: fields of words, indices, and whole parts of floating-point numbers. A checked conversion would cost a branch
//! per frame.

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

/// Returns the whole part of a number: 0 for negative numbers and NaN, `u64::MAX` for numbers from 2^64 on.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates"
)]
pub(crate) const fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_part_of_a_number_is_within_the_range() {
        let numbers = [0.0, 1.999, 1e18, 2e19, f64::INFINITY, -1.5, f64::NAN];
        assert_eq!(
            numbers.map(whole),
            [0, 1, 1_000_000_000_000_000_000, u64::MAX, u64::MAX, 0, 0]
        );
    }
}
