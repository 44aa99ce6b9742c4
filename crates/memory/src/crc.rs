// SPDX-License-Identifier: Apache-2.0
//! CRC-32C of octet sequences by an instruction of the processor, if it has one.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32};

/// Returns the CRC-32C of octets (RFC 3720, section 12.1) by the instruction of SSE 4.2; `None` if the processor does not have it.
#[inline(always)]
#[must_use]
pub fn crc32c_by_instruction(octets: &[u8]) -> Option<u32> {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has SSE 4.2.
        return Some(unsafe { with_sse42(octets) });
    }
    let _ = octets;
    None
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
#[inline]
fn with_sse42(octets: &[u8]) -> u32 {
    let (words, rest) = octets.as_chunks::<4>();
    let words = words.iter().map(|word| u32::from_le_bytes(*word));
    let mut crc = u32::MAX;
    for word in words {
        crc = _mm_crc32_u32(crc, word);
    }
    for octet in rest {
        crc = _mm_crc32_u8(crc, *octet);
    }
    !crc
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Divides bit by bit.
    fn reference(octets: &[u8]) -> u32 {
        let mut crc = u32::MAX;
        for octet in octets {
            crc ^= u32::from(*octet);
            for _ in 0..8 {
                crc = (crc >> 1) ^ (0x82f6_3b78 * (crc & 1));
            }
        }
        !crc
    }

    #[test]
    fn the_instruction_is_used_on_x86_64() {
        // Check value of the catalogue of CRCs.
        assert_eq!(reference(b"123456789"), 0xe306_9283);
        let found = crc32c_by_instruction(b"123456789");
        let is_available = cfg!(target_arch = "x86_64");
        assert_eq!(found, is_available.then_some(0xe306_9283));
    }

    proptest! {
        #[test]
        fn the_crc_by_the_instruction_is_that_of_the_reference(
            octets in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let found = crc32c_by_instruction(&octets);
            prop_assert!(found.is_none_or(|crc| crc == reference(&octets)));
        }
    }
}
