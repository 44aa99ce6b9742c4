// SPDX-License-Identifier: Apache-2.0
//! Internet checksum (RFC 1071) and its incremental update (RFC 1624).

/// An Internet checksum in progress: add the pieces, then call [`Checksum::finish`]. Pieces may have odd lengths; the result
/// is that of all bytes in a row.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checksum {
    /// Sum of 16-bit words in network order, not folded. Each piece adds less than 2^16, so it never wraps.
    sum: u64,
    odd: bool,
}

impl Checksum {
    /// Returns an empty sum.
    #[must_use]
    pub const fn new() -> Self {
        Self { sum: 0, odd: false }
    }

    /// Adds bytes.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        let word = u16::from_be(fold_sum(native_sum(bytes)));
        // RFC 1071, section 2 (B): a piece that begins at an odd offset counts with its bytes swapped.
        let word = if self.odd { word.swap_bytes() } else { word };
        self.sum = self.sum.wrapping_add(u64::from(word));
        self.odd ^= bytes.len() % 2 == 1;
    }

    /// Adds a number of four octets, most significant first.
    #[inline]
    pub const fn add_u32(&mut self, number: u32) {
        let word = fold_sum(number as u64);
        let word = if self.odd { word.swap_bytes() } else { word };
        self.sum = self.sum.wrapping_add(word as u64);
    }

    /// Returns the checksum as written in a header: the complement of the sum. It is zero over bytes that include their own
    /// correct checksum.
    #[must_use]
    #[inline]
    pub fn finish(self) -> u16 {
        !fold_sum(self.sum)
    }
}

/// Returns the checksum of bytes in one piece.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = Checksum::new();
    sum.add(bytes);
    sum.finish()
}

/// Returns the checksum after a 16-bit word of the data changed from `old` to `new` (RFC 1624, section 3, equation 3).
///
/// The result equals a newly computed checksum unless all data are zero: then one is 0 and the other 0xffff, which are the
/// same number in one's complement arithmetic. A UDP checksum of 0 means no checksum: do not update it, and write 0xffff if
/// an update yields 0.
#[must_use]
#[inline]
pub const fn update_checksum_u16(checksum: u16, old: u16, new: u16) -> u16 {
    // Three numbers of 16 bits.
    let sum = (!checksum as u64).wrapping_add(!old as u64);
    !fold_sum(sum.wrapping_add(new as u64))
}

/// Returns the checksum after a 32-bit word at an even offset changed, such as an IPv4 address (see
/// [`update_checksum_u16`]).
#[must_use]
#[inline]
pub const fn update_checksum_u32(checksum: u16, old: u32, new: u32) -> u16 {
    let ([a, b, c, d], [e, f, g, h]) = (old.to_be_bytes(), new.to_be_bytes());
    let high = [u16::from_be_bytes([a, b]), u16::from_be_bytes([e, f])];
    let low = [u16::from_be_bytes([c, d]), u16::from_be_bytes([g, h])];
    let half = update_checksum_u16(checksum, high[0], high[1]);
    update_checksum_u16(half, low[0], low[1])
}

/// Returns a checksum as UDP sends it: 0 means no checksum, so all ones, the same number in one's complement arithmetic, are sent instead
/// (RFC 768).
#[inline(always)]
#[must_use]
pub const fn udp_checksum(checksum: u16) -> u16 {
    match checksum {
        0 => u16::MAX,
        checksum => checksum,
    }
}

/// Returns the sum of 16-bit words in the machine's byte order, eight octets at a time. By RFC 1071, section 2 (B), the byte
/// order affects the sum only by a final swap.
#[inline]
#[must_use]
pub fn native_sum(bytes: &[u8]) -> u64 {
    let (chunks, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    let mut sum = 0u64;
    for chunk in chunks.iter().chain([&last]) {
        let word = u64::from_ne_bytes(*chunk);
        // Under 2^33 each: the sum wraps after 2^31 chunks, far more than a frame has.
        sum = sum.wrapping_add((word & 0xffff_ffff).wrapping_add(word >> 32));
    }
    sum
}

/// Folds a sum of words into one 16-bit word, without a branch: four steps are enough for any sum.
#[inline(always)]
#[must_use]
pub const fn fold_sum(sum: u64) -> u16 {
    // No sum of two parts of a word wraps.
    let sum = (sum >> 32).wrapping_add(sum & 0xffff_ffff);
    let sum = (sum >> 16).wrapping_add(sum & 0xffff);
    let sum = (sum >> 16).wrapping_add(sum & 0xffff);
    let sum = (sum >> 16).wrapping_add(sum & 0xffff);
    // The last step leaves 16 bits.
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn carries_of_each_step_are_added() {
        // One's complement arithmetic is arithmetic modulo 2^16 - 1, with 2^16 - 1 for multiples of it but zero.
        let sums = [0, 1, 0xffff, 0x1_0000, 1 << 32, 1 << 48, 0x1_ffff_ffff];
        let carries_in_each_step = [0x1_0000_ffff_ffff, 0x1_0000_ffff_fffe, u64::MAX];
        for sum in sums.into_iter().chain(carries_in_each_step) {
            let expected = match sum % 0xffff {
                0 if sum > 0 => 0xffff,
                rest => rest,
            };
            assert_eq!(u64::from(fold_sum(sum)), expected, "{sum:#x}");
        }
    }

    /// Computes the checksum directly by RFC 1071, section 1: pairs adjacent octets to 16-bit words, adds them in one's
    /// complement, complements the sum.
    fn obvious(bytes: &[u8]) -> u16 {
        let mut sum = 0u16;
        for pair in bytes.chunks(2) {
            let word = u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]);
            let (added, carry) = sum.overflowing_add(word);
            sum = added + u16::from(carry);
        }
        !sum
    }

    #[test]
    fn example_of_rfc_1071() {
        // Section 3: the sum is 0xddf2.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(&bytes), !0xddf2);
        assert_eq!(checksum(&[]), 0xffff);
    }

    #[test]
    fn numbers_add_as_their_octets_do() {
        for number in [0, 1, 0xffff, 0x1_0000, 0x8000_7fff, 0x0102_0304, u32::MAX] {
            for before in [&[][..], &[7], &[7, 9], &[0xff, 0xff, 0x80]] {
                let mut sum = Checksum::new();
                sum.add(before);
                sum.add_u32(number);
                sum.add(&[1, 2]);
                let octets = [before, &number.to_be_bytes(), &[1, 2]].concat();
                assert_eq!(sum.finish(), obvious(&octets), "{before:?} {number:#x}");
            }
        }
    }

    #[test]
    fn example_of_rfc_1624() {
        // Section 4: checksum 0xdd2f, a word from 0x5555 to 0x3285; the older equation gives 0xffff here.
        assert_eq!(update_checksum_u16(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    /// Adds in one's complement as RFC 1071, section 1 defines: the carry is added again.
    fn plus(a: u16, b: u16) -> u16 {
        let (sum, carry) = a.overflowing_add(b);
        sum + u16::from(carry)
    }

    /// Returns RFC 1624's equation 3, HC' = ~(~HC + ~m + m'), by one's complement additions.
    fn equation_3(checksum: u16, old: u16, new: u16) -> u16 {
        !plus(plus(!checksum, !old), new)
    }

    /// Together, these loops cover every argument of [`update_checksum_u16`]. The three terms enter the function only as their
    /// sum, at most 3 * 65,535. So it is right for all 2^48 arguments if folding is right for each such sum. That the function
    /// has no other dependence is checked with every value of each argument beside all edge cases of the other two.
    #[test]
    #[cfg_attr(miri, ignore = "too slow under Miri")]
    fn every_update_of_16_bits_is_that_of_the_equation() {
        let mut sums = vec![false; 3 * 0xffff + 1];
        for first in 0..=u16::MAX {
            for (second, third) in [(0, 0), (u16::MAX, 0), (u16::MAX, u16::MAX)] {
                let sum = [first, second, third].map(u64::from).iter().sum();
                assert_eq!(fold_sum(sum), plus(plus(first, second), third), "{sum}");
                sums[sum as usize] = true;
            }
        }
        assert!(sums.iter().all(|observed| *observed));
        const EDGES: [u16; 12] = [
            0, 1, 2, 0xff, 0x100, 0x7fff, 0x8000, 0x8001, 0xff00, 0xfffd, 0xfffe, 0xffff,
        ];
        for (a, b) in EDGES.iter().flat_map(|a| EDGES.map(|b| (*a, b))) {
            for any in 0..=u16::MAX {
                for (sum, old, new) in [(any, a, b), (a, any, b), (a, b, any)] {
                    let expected = equation_3(sum, old, new);
                    assert_eq!(update_checksum_u16(sum, old, new), expected);
                }
            }
        }
    }

    #[test]
    #[ignore = "takes minutes; make models runs it"]
    fn every_pair_of_words_is_updated_as_if_the_checksum_was_computed_again() {
        for (old, new) in (0..=u16::MAX).flat_map(|old| (0..=u16::MAX).map(move |new| (old, new))) {
            // Beside another word, and beside one that makes the sum the other zero.
            for rest in [0x1234, !new] {
                let updated = update_checksum_u16(!plus(rest, old), old, new);
                let is_zero = rest == 0 && old == 0 && new == 0;
                assert!(updated == !plus(rest, new) || is_zero, "{old} {new}");
            }
        }
    }

    proptest! {
        #[test]
        fn pieces_sum_to_the_whole(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        ) {
            let mut places: Vec<usize> = cuts.iter().map(|c| c.index(bytes.len() + 1)).collect();
            places.extend([0, bytes.len()]);
            places.sort_unstable();
            let mut sum = Checksum::new();
            for pair in places.windows(2) {
                sum.add(&bytes[pair[0]..pair[1]]);
            }
            prop_assert_eq!(sum.finish(), obvious(&bytes));
            prop_assert_eq!(checksum(&bytes), obvious(&bytes));
        }

        #[test]
        fn update_equals_making_again(
            mut bytes in prop::collection::vec(any::<u8>(), 4..80),
            place in any::<prop::sample::Index>(),
            wide in any::<bool>(),
            new in prop_oneof![any::<u32>(), Just(0), Just(u32::MAX)],
        ) {
            let at = place.index(bytes.len() / 2 - 1) * 2;
            let old_checksum = checksum(&bytes);
            let updated = if wide {
                let old = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
                bytes[at..at + 4].copy_from_slice(&new.to_be_bytes());
                update_checksum_u32(old_checksum, old, new)
            } else {
                let old = u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap());
                bytes[at..at + 2].copy_from_slice(&(new as u16).to_be_bytes());
                update_checksum_u16(old_checksum, old, new as u16)
            };
            if bytes.iter().any(|b| *b != 0) {
                prop_assert_eq!(updated, checksum(&bytes));
            } else {
                prop_assert_eq!(updated, 0);
            }
        }
    }
}
