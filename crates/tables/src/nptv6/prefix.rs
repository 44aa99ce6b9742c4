// SPDX-License-Identifier: Apache-2.0
//! The arithmetic of a pair of prefixes (RFC 6296, section 3).

use ipnet::Ipv6Net;

use super::NptDrop;

/// Maximum length of prefixes, bits.
pub const PREFIX_MAX: u8 = 64;
/// Up to this length, the word of the subnet is adjusted.
const SHORT_MAX: u8 = 48;
/// Number of the word of the subnet, and of those of the interface identifier.
const SUBNET: u32 = 3;
const IDENTIFIER: (u32, u32) = (4, 8);
/// The other zero of ones' complement arithmetic.
const NEGATIVE_ZERO: u16 = 0xffff;

/// An inside prefix and its external prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixPair {
    internal: u128,
    external: u128,
    /// Bits of both prefixes.
    mask: u128,
    length: u8,
    /// Added to a word of addresses that leave; its negative to one of those that arrive.
    adjustment: u16,
}

/// Error of a pair of prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixPairError {
    /// A prefix has no bits, or too many.
    #[error("{0} is not a prefix that can be translated (use a length from 1 to {PREFIX_MAX})")]
    Length(Ipv6Net),
    /// Both prefixes are the same.
    #[error("{0} and {1} are the same prefix, and would not change")]
    Same(Ipv6Net, Ipv6Net),
}

/// Adds in ones' complement arithmetic (RFC 1071, section 1).
const fn add(a: u16, b: u16) -> u16 {
    let (sum, has_carry) = a.overflowing_add(b);
    // A sum with a carry is less than 0xffff.
    sum.wrapping_add(has_carry as u16)
}

/// Returns the number of bits behind a word of an address. The words have numbers from 0 to 7.
const fn bits_behind(number: u32) -> u32 {
    112u32.saturating_sub(number.saturating_mul(16))
}

/// Returns a word of an address, by its number from 0 on.
const fn word(address: u128, number: u32) -> u16 {
    ((address >> bits_behind(number)) & 0xffff) as u16
}

/// Returns the sum of all words.
fn sum(address: u128) -> u16 {
    (0..8).fold(0, |sum, number| add(sum, word(address, number)))
}

impl PrefixPair {
    /// Creates a pair. If the lengths differ, the shorter prefix is extended by zeros (RFC 6296, section 3.1).
    ///
    /// # Errors
    /// [`PrefixPairError`].
    pub fn new(internal: Ipv6Net, external: Ipv6Net) -> Result<Self, PrefixPairError> {
        for prefix in [internal, external] {
            if !(1..=PREFIX_MAX).contains(&prefix.prefix_len()) {
                return Err(PrefixPairError::Length(prefix));
            }
        }
        let length = internal.prefix_len().max(external.prefix_len());
        let bits = |prefix: Ipv6Net| prefix.network().to_bits();
        let (inside, outside) = (bits(internal), bits(external));
        if inside == outside {
            return Err(PrefixPairError::Same(internal, external));
        }
        Ok(Self {
            internal: inside,
            external: outside,
            mask: !(u128::MAX >> length),
            length,
            adjustment: add(sum(inside), !sum(outside)),
        })
    }

    /// Returns true if an address is of the inside prefix.
    #[must_use]
    #[inline]
    pub const fn is_internal(&self, address: u128) -> bool {
        address & self.mask == self.internal
    }

    /// Returns true if an address is of the external prefix.
    #[must_use]
    #[inline]
    pub const fn is_external(&self, address: u128) -> bool {
        address & self.mask == self.external
    }

    /// Returns the external address of an inside one; `None` if it is not of the inside prefix.
    ///
    /// # Errors
    /// [`NptDrop::Address`].
    #[inline]
    pub fn external_of(&self, address: u128) -> Result<Option<u128>, NptDrop> {
        if !self.is_internal(address) {
            return Ok(None);
        }
        self.adjusted(address, self.external, self.adjustment)
            .map(Some)
    }

    /// Returns the inside address of an external one; `None` if it is not of the external prefix.
    ///
    /// # Errors
    /// [`NptDrop::Address`].
    #[inline]
    pub fn internal_of(&self, address: u128) -> Result<Option<u128>, NptDrop> {
        if !self.is_external(address) {
            return Ok(None);
        }
        self.adjusted(address, self.internal, !self.adjustment)
            .map(Some)
    }

    /// Replaces the prefix, and adjusts a word.
    fn adjusted(&self, address: u128, prefix: u128, adjustment: u16) -> Result<u128, NptDrop> {
        let is_possible = |number: &u32| word(address, *number) != NEGATIVE_ZERO;
        let number = if self.length <= SHORT_MAX {
            Some(SUBNET).filter(is_possible)
        } else {
            let (first, end) = IDENTIFIER;
            (first..end).find(is_possible)
        };
        let number = number.ok_or(NptDrop::Address)?;
        let new = match add(word(address, number), adjustment) {
            NEGATIVE_ZERO => 0,
            new => new,
        };
        let shift = bits_behind(number);
        let rest = address & !self.mask & !(0xffff << shift);
        Ok(prefix | rest | u128::from(new) << shift)
    }
}
