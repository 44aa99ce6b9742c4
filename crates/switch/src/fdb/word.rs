// SPDX-License-Identifier: Apache-2.0
//! The two words of an entry: whom it is about, and what is known of it.

use quietwire_packet::MacAddress;

/// Number of the filtering database of a bridge that knows no VLANs. Never 0, so that no key is [`EMPTY`].
const FILTERING_ID: u64 = 1;

const MAC_BITS: u32 = 48;
const MAC_MASK: u64 = (1 << MAC_BITS) - 1;

/// Key word of a slot that nobody uses.
pub(super) const EMPTY: u64 = 0;
/// Key word of a slot that one thread is filling. No key: the highest 4 bits of a filtering id are 0.
pub(super) const RESERVED: u64 = u64::MAX;

/// Whom an entry is about: an address (48 bits) and the filtering database (12 bits) it was seen in
/// (IEEE 802.1Q, section 8.8.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(u64);

impl Key {
    /// The key of an address given as a number, last octet lowest ([`MacAddress::to_u64`]).
    #[inline(always)]
    #[must_use]
    pub const fn of_number(address: u64) -> Self {
        Self((FILTERING_ID << MAC_BITS) | (address & MAC_MASK))
    }

    /// The key of an address.
    #[must_use]
    pub const fn of(address: MacAddress) -> Self {
        Self::of_number(address.to_u64())
    }

    /// The address.
    #[must_use]
    pub const fn address(self) -> MacAddress {
        MacAddress::from_u64(self.0 & MAC_MASK)
    }

    #[inline(always)]
    pub(super) const fn word(self) -> u64 {
        self.0
    }

    /// The key in a slot's key word, if there is one.
    #[inline(always)]
    pub(super) const fn of_word(word: u64) -> Option<Self> {
        match word {
            EMPTY | RESERVED => None,
            word => Some(Self(word)),
        }
    }
}

/// What is known of an address: its port, and when it was last seen. `tag` is a part of the key's hash: a
/// value word that was meant for another key, read at the moment in which a slot changed hands, does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) port: u16,
    pub(super) tag: u16,
    /// Seconds of the coarse clock.
    pub(super) stamp_s: u32,
}

impl Value {
    #[inline(always)]
    pub(super) const fn word(self) -> u64 {
        (self.port as u64) << 48 | (self.tag as u64) << 32 | self.stamp_s as u64
    }

    #[inline(always)]
    pub(super) const fn of_word(word: u64) -> Self {
        Self {
            port: (word >> 48) as u16,
            tag: (word >> 32) as u16,
            stamp_s: word as u32,
        }
    }
}

/// Seconds from `stamp_s` to `now_s` on a clock that wraps; 0 when the stamp is the later one.
#[inline(always)]
pub(super) const fn age_s(stamp_s: u32, now_s: u32) -> u32 {
    let age = now_s.wrapping_sub(stamp_s);
    if age > u32::MAX / 2 { 0 } else { age }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_hold_what_was_put_in(port: u16, tag: u16, stamp_s: u32, address: [u8; 6]) {
            let value = Value { port, tag, stamp_s };
            prop_assert_eq!(Value::of_word(value.word()), value);
            let key = Key::of(MacAddress(address));
            prop_assert_eq!(Key::of_word(key.word()), Some(key));
            prop_assert_eq!(key.address(), MacAddress(address));
        }

        #[test]
        fn age_survives_the_clock_wrapping(stamp_s: u32, passed in 0..u32::MAX / 2) {
            prop_assert_eq!(age_s(stamp_s, stamp_s.wrapping_add(passed)), passed);
            prop_assert_eq!(age_s(stamp_s.wrapping_add(passed + 1), stamp_s), 0);
        }
    }
}
