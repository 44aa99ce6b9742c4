// SPDX-License-Identifier: Apache-2.0
//! Chains that the device has taken and not returned, in memory that the front end keeps while the device restarts
//! (vhost-user, "Inflight I/O tracking").
//!
//! Regions are accessed as 64-bit words, whose fields are those of the specification in the order of their offsets. The
//! device writes to them, and reads them only at its start, because the front end, which shares them, may write to them too.

mod packed;
mod split;

mod region;
#[cfg(test)]
mod tests;

use quietwire_memory::CACHE_LINE;

pub(crate) use packed::{PackedDescriptor, PackedInflight};
pub use region::InflightRegion;
pub(crate) use split::SplitInflight;

/// Returns the length of the region of one queue, octets. Regions follow one another.
#[must_use]
pub const fn inflight_region_len(size: u16, is_packed: bool) -> u64 {
    let words = if is_packed {
        packed::region_words(size)
    } else {
        split::region_words(size)
    };
    words
        .saturating_mul(size_of::<u64>())
        .next_multiple_of(CACHE_LINE) as u64
}
