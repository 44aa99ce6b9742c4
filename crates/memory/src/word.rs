// SPDX-License-Identifier: Apache-2.0
//! Conversion of offsets.

/// Converts an offset to a number of octets of this process, which has the same width.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "addresses have 64 bits: the crate does not compile otherwise"
)]
pub(crate) const fn index(offset: u64) -> usize {
    offset as usize
}
