// SPDX-License-Identifier: Apache-2.0
//! Handles of connections as numbers, for interfaces of other languages.

use super::tracker::Connection;

/// Bits of the generation, above those of the index.
const GENERATION: u32 = 32;
/// Bits of a handle.
const BITS: u32 = 48;

impl Connection {
    /// Returns the handle as a number under 2^48.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << GENERATION | self.index as u64
    }

    /// Returns the handle of a number; `None` if it is 2^48 or more. A tracker refuses a handle of a connection that it does not have.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the lower 32 bits, and the 16 bits above them"
    )]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Option<Self> {
        if bits >> BITS != 0 {
            return None;
        }
        Some(Self {
            index: bits as u32,
            generation: (bits >> GENERATION) as u16,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_the_same_after_its_way_through_a_number() {
        for (index, generation) in [(0, 0), (7, 1), (u32::MAX, 2), (1, u16::MAX)] {
            let connection = Connection { index, generation };
            let bits = connection.to_bits();
            assert!(bits < 1 << BITS);
            assert_eq!(Connection::from_bits(bits), Some(connection));
        }
        assert_eq!(Connection::from_bits(1 << BITS), None);
        assert_eq!(Connection::from_bits(u64::MAX), None);
    }
}
