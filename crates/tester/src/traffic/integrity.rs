// SPDX-License-Identifier: Apache-2.0
//! Verification that a payload arrives unchanged, octet by octet.
//!
//! The signature is followed by the payload's length and a CRC-32C of both. The remaining octets are a pattern drawn from the
//! description's seed, which the receiver knows.

use quietwire_base::crc32c;
use quietwire_base::random::mix;
use quietwire_memory::crc32c_by_instruction;

use crate::frame::SIGNATURE;

/// Octets after the signature: the payload's length and the CRC.
pub(crate) const SEAL: usize = 6;
/// Octets that the CRC covers: the signature and the length.
const COVERED: usize = SIGNATURE + 2;
/// Octets before the pattern.
const HEAD: usize = COVERED + 4;
/// The longest payload.
const LENGTH_MAX: usize = 9000;

/// Returns the octets after a signature: the length of its payload, and the CRC of both.
#[inline(always)]
pub(crate) fn seal(signature: &[u8; SIGNATURE], length: u16) -> [u8; SEAL] {
    let [a, b] = length.to_be_bytes();
    let mut covered = [0; COVERED];
    let [start @ .., x, y] = &mut covered;
    *start = *signature;
    (*x, *y) = (a, b);
    let [c, d, e, f] = crc(&covered).to_be_bytes();
    [a, b, c, d, e, f]
}

/// Returns the CRC-32C of octets, by the instruction of the processor if it has one.
#[inline(always)]
fn crc(octets: &[u8]) -> u32 {
    crc32c_by_instruction(octets).unwrap_or_else(|| crc32c(octets))
}

/// Pattern of payloads after the CRC.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    octets: Box<[u8]>,
}

impl Pattern {
    /// Creates the pattern of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        let seed = mix(seed ^ 0x7061_7474_6572_6e00);
        let words = (0..(LENGTH_MAX as u64).div_ceil(8)).map(|word| mix(seed.wrapping_add(word)));
        Self {
            octets: words.flat_map(u64::to_le_bytes).collect(),
        }
    }

    /// Writes the pattern over a whole payload. The signature, length and CRC are written afterwards.
    pub(crate) fn fill(&self, payload: &mut [u8]) {
        for (octet, pattern) in payload.iter_mut().zip(&self.octets).skip(HEAD) {
            *octet = *pattern;
        }
        for octet in payload.iter_mut().take(HEAD) {
            *octet = 0;
        }
    }

    /// Returns true if a payload is unchanged. Octets after it are padding added on the way.
    #[inline(always)]
    pub(crate) fn is_intact(&self, payload: &[u8]) -> bool {
        let Some(head) = payload.first_chunk::<HEAD>() else {
            return false;
        };
        let (covered, crc) = head.split_at(COVERED);
        let [.., a, b, _, _, _, _] = *head;
        let length = usize::from(u16::from_be_bytes([a, b]));
        self::crc(covered).to_be_bytes() == *crc
            && length >= HEAD
            && payload.get(HEAD..length) == self.octets.get(HEAD..length)
            && payload.len() >= length
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_crc_is_castagnolis() {
        // Check value of the catalogue of CRCs.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        // RFC 3720, appendix B.4: 32 octets of zeros.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    fn sealed(length: usize, seed: u64) -> (Pattern, Vec<u8>) {
        let pattern = Pattern::new(seed);
        let mut payload = vec![0; length];
        pattern.fill(&mut payload);
        let signature = b"QW signature here.";
        payload[..18].copy_from_slice(signature);
        payload[18..24].copy_from_slice(&seal(signature, length as u16));
        (pattern, payload)
    }

    proptest! {
        #[test]
        fn the_crc_by_the_instruction_is_that_of_plain_code(octets in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(crc(&octets), crc32c(&octets));
        }

        #[test]
        fn every_changed_bit_is_detected(length in 24usize..2000, at in any::<prop::sample::Index>(), bit in 0..8) {
            let (pattern, mut payload) = sealed(length, 5);
            prop_assert!(pattern.is_intact(&payload));
            payload.extend([0; 7]);
            prop_assert!(pattern.is_intact(&payload));
            payload[at.index(length)] ^= 1u8 << bit;
            prop_assert!(!pattern.is_intact(&payload));
        }

        #[test]
        fn a_payload_cut_short_is_detected(length in 24usize..2000, left in any::<prop::sample::Index>()) {
            let (pattern, payload) = sealed(length, 5);
            prop_assert!(!pattern.is_intact(&payload[..left.index(length)]));
            prop_assert!(length < 32 || !Pattern::new(6).is_intact(&payload));
        }
    }
}
