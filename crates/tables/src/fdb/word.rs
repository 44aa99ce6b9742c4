// SPDX-License-Identifier: Apache-2.0
//! Keys of entries, and the word that stores an entry.

use quietwire_packet::{MacAddress, VlanId};

const MAC_BITS: u32 = 48;
const MAC_MASK: u64 = (1 << MAC_BITS) - 1;
const VLAN_MASK: u64 = 0xfff;
/// Bits of a key: an address and a VLAN.
pub(super) const KEY_BITS: u32 = 60;

/// Key of an entry: an address (48 bits) and its VLAN (12 bits); the VLAN is 0 in a bridge without VLANs. Each VLAN has its own filtering
/// database (independent learning; IEEE 802.1Q, section 8.8.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(u64);

impl Key {
    /// Returns the key of an address in a bridge without VLANs. The address is a number, last octet lowest ([`MacAddress::to_u64`]).
    #[inline(always)]
    #[must_use]
    pub const fn of_number(address: u64) -> Self {
        Self::in_vlan(0, address)
    }

    /// Returns the key of an address in a bridge without VLANs.
    #[must_use]
    pub const fn of(address: MacAddress) -> Self {
        Self::of_number(address.to_u64())
    }

    /// Returns the key of an address, given as a number, in a VLAN. The lowest 12 bits of the VLAN count; 0 is no VLAN.
    #[inline(always)]
    #[must_use]
    pub const fn in_vlan(vlan: u16, address: u64) -> Self {
        Self((vlan as u64 & VLAN_MASK) << MAC_BITS | (address & MAC_MASK))
    }

    /// Returns the address.
    #[must_use]
    pub const fn address(self) -> MacAddress {
        MacAddress::from_u64(self.0 & MAC_MASK)
    }

    /// Returns the VLAN. `None` in a bridge without VLANs.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "shifted to the 16 bits of the VLAN"
    )]
    #[must_use]
    pub const fn vlan(self) -> Option<VlanId> {
        match VlanId::new((self.0 >> MAC_BITS) as u16) {
            Ok(vlan) => Some(vlan),
            Err(_) => None,
        }
    }

    /// Returns the key as a number of [`KEY_BITS`] bits.
    #[inline(always)]
    pub(super) const fn number(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub(super) const fn from_number(number: u64) -> Self {
        Self(number)
    }
}

const STAMP_BITS: u32 = 6;
const PORT_BITS: u32 = 11;
/// Bits of a word below its identity.
const IDENTITY_SHIFT: u32 = STAMP_BITS + PORT_BITS;
/// Bits of a word below the rest of the key.
const REST_SHIFT: u32 = IDENTITY_SHIFT + 1;
/// Bits of a word for the rest of a key, which the bucket number does not determine.
pub(super) const REST_BITS: u32 = u64::BITS - REST_SHIFT;

const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;
const PORT_MASK: u64 = ((1 << PORT_BITS) - 1) << STAMP_BITS;
/// Set if the entry is in the second bucket of its key.
const SECOND: u64 = 1 << IDENTITY_SHIFT;

/// Exclusive upper limit of port numbers.
pub const PORTS_MAX: u16 = 1 << PORT_BITS;

/// An entry, from the highest bit down: the rest of its key (46 bits), whether it is in its key's second bucket (1 bit), its port (11 bits)
/// and its timestamp (6 bits). It is one word, so readers never see a partial entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

impl Word {
    /// An empty slot. No entry has this timestamp.
    pub(super) const EMPTY: Self = Self(0);

    #[inline(always)]
    pub(super) const fn new(identity: Identity, port: u16, stamp: Stamp) -> Self {
        Self(identity.0 | ((port as u64) << STAMP_BITS & PORT_MASK) | stamp.0)
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "masked to the 16 bits of the port"
    )]
    #[inline(always)]
    pub(super) const fn port(self) -> u16 {
        ((self.0 & PORT_MASK) >> STAMP_BITS) as u16
    }

    #[inline(always)]
    pub(super) const fn stamp(self) -> Stamp {
        Stamp(self.0 & STAMP_MASK)
    }

    #[inline(always)]
    pub(super) const fn identity(self) -> Identity {
        Identity(self.0 & Identity::MASK)
    }

    /// Returns true for an entry of this identity. False for an empty slot, even if its bits match.
    #[inline(always)]
    pub(super) const fn is(self, identity: Identity) -> bool {
        self.has_bits_of(identity) && self.0 != Self::EMPTY.0
    }

    /// Returns true if the bits match: the cheaper part of [`Word::is`].
    #[inline(always)]
    pub(super) const fn has_bits_of(self, identity: Identity) -> bool {
        self.0 ^ identity.0 < 1 << IDENTITY_SHIFT
    }

    /// Returns the same entry in the other bucket of its key.
    pub(super) const fn in_other_bucket(self) -> Self {
        Self(self.0 ^ SECOND)
    }

    /// Returns true if both words are equivalent for the counts.
    #[inline(always)]
    pub(super) const fn counts_as(self, other: Self) -> bool {
        self.port() == other.port()
            && self.is_static() == other.is_static()
            && other.0 != Self::EMPTY.0
    }

    pub(super) const fn is_static(self) -> bool {
        self.stamp().0 == Stamp::STATIC.0
    }
}

/// Identity of a key within a given bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity(u64);

impl Identity {
    const MASK: u64 = !(PORT_MASK | STAMP_MASK);

    /// Returns the identity of the key with this rest in its first bucket.
    #[inline(always)]
    pub(super) const fn first(rest: u64) -> Self {
        Self(rest << REST_SHIFT)
    }

    #[inline(always)]
    pub(super) const fn in_second_bucket(self) -> Self {
        Self(self.0 | SECOND)
    }

    pub(super) const fn is_in_second_bucket(self) -> bool {
        self.0 & SECOND != 0
    }

    #[inline(always)]
    pub(super) const fn rest(self) -> u64 {
        self.0 >> REST_SHIFT
    }
}

/// Timestamp of an entry: a number of 1 to [`Stamp::CYCLE`] on a clock that wraps around, or static.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(u64);

impl Stamp {
    /// Never ages.
    pub(super) const STATIC: Self = Self(STAMP_MASK);
    /// Length of the clock cycle.
    const CYCLE: u64 = STAMP_MASK - 1;
    /// An entry that seems older was written by a thread whose clock is slightly ahead.
    const AHEAD: u64 = 4;
}

/// Conversion of seconds to timestamps. The ageing time is at most 30 units, so that an aged entry is recognised for another 27 units
/// before the clock wraps around.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ageing {
    unit_s: u32,
    units: u64,
}

/// A moment on the clock of one table.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    stamp: Stamp,
    pub(super) now_s: u32,
}

impl Now {
    #[inline(always)]
    pub(super) const fn stamp(self) -> Stamp {
        self.stamp
    }
}

impl Ageing {
    const UNITS_MAX: u32 = 30;

    pub(super) const fn new(ageing_s: u32) -> Self {
        let unit_s = match ageing_s.div_ceil(Self::UNITS_MAX) {
            0 => 1,
            unit_s => unit_s,
        };
        Self {
            unit_s,
            units: ageing_s.div_ceil(unit_s) as u64,
        }
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "a unit is at least one second"
    )]
    pub(super) const fn now(self, now_s: u32) -> Now {
        Now {
            stamp: Stamp((now_s / self.unit_s) as u64 % Stamp::CYCLE + 1),
            now_s,
        }
    }

    /// Returns the units since an entry was observed; 0 for static entries.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "stamps are at most CYCLE, and the greater one is not subtracted"
    )]
    #[inline(always)]
    const fn age(stamp: Stamp, now: Now) -> u64 {
        if stamp.0 == Stamp::STATIC.0 {
            return 0;
        }
        let (now, then) = (now.stamp.0, stamp.0);
        let age = if now >= then {
            now - then
        } else {
            now + Stamp::CYCLE - then
        };
        if age > Stamp::CYCLE - Stamp::AHEAD {
            0
        } else {
            age
        }
    }

    /// Returns true if the timestamp is current, so that nothing has to be written.
    #[inline(always)]
    pub(super) const fn is_fresh(stamp: Stamp, now: Now) -> bool {
        stamp.0 == now.stamp.0 || Self::age(stamp, now) == 0
    }

    /// Returns true if the entry has aged.
    #[inline(always)]
    pub(super) const fn is_over(self, stamp: Stamp, now: Now) -> bool {
        Self::age(stamp, now) > self.units
    }

    /// Returns the seconds since an entry was observed, in whole units.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "the age in seconds is at most that of a clock of 32 bits"
    )]
    pub(super) const fn age_s(self, stamp: Stamp, now: Now) -> u32 {
        Self::age(stamp, now) as u32 * self.unit_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_hold_what_was_put_in(
            port in 0..PORTS_MAX, rest in 0..1u64 << REST_BITS, now_s: u32, address: [u8; 6], vlan in 0..4095u16,
        ) {
            let stamp = Ageing::new(300).now(now_s).stamp();
            let first = Identity::first(rest);
            for identity in [first, first.in_second_bucket()] {
                let word = Word::new(identity, port, stamp);
                prop_assert_eq!((word.identity(), word.port(), word.stamp()), (identity, port, stamp));
                prop_assert_eq!(word.identity().rest(), rest);
                prop_assert!(word.is(identity) && !word.is_static() && word != Word::EMPTY);
                prop_assert!(!word.in_other_bucket().is(identity));
                prop_assert_eq!(word.in_other_bucket().in_other_bucket(), word);
            }
            let key = Key::in_vlan(vlan, MacAddress(address).to_u64());
            prop_assert_eq!(key.address(), MacAddress(address));
            prop_assert_eq!(key.vlan(), VlanId::new(vlan).ok());
            prop_assert!(key.number() < 1 << KEY_BITS);
        }

        /// Not before the ageing time, and at most a thirtieth and a second later because of rounding, twice.
        #[test]
        fn entries_age_in_time(ageing_s in 1..=1_000_000u32, observed_s in 0..1u32 << 31, passed_s in 0..2_000_000u32) {
            let ageing = Ageing::new(ageing_s);
            let stamp = ageing.now(observed_s).stamp();
            let unit_s = ageing_s.div_ceil(30);
            let over = ageing.is_over(stamp, ageing.now(observed_s + passed_s));
            if passed_s <= ageing_s {
                prop_assert!(!over);
            } else if (ageing_s + 2 * unit_s..=50 * unit_s).contains(&passed_s) {
                prop_assert!(over);
            }
            prop_assert!(!ageing.is_over(Stamp::STATIC, ageing.now(observed_s)));
        }
    }

    /// The timestamp has 63 values, the port 2,048; the rest of the key takes every value of each octet.
    #[test]
    #[cfg_attr(miri, ignore = "too slow under Miri")]
    fn words_hold_every_value_of_each_field() {
        let all = (1 << REST_BITS) - 1;
        let octets = (0..REST_BITS).step_by(8).flat_map(|shift| {
            (0..=0xff_u64).map(move |octet| (octet << shift & all, 0xff << shift & all))
        });
        let rests = octets.flat_map(|(rest, mask)| [rest, rest | (all & !mask)]);
        let check = |rest, port, stamp: u64| {
            let first = Identity::first(rest);
            for identity in [first, first.in_second_bucket()] {
                let word = Word::new(identity, port, Stamp(stamp));
                assert_eq!(word.identity(), identity);
                assert_eq!((word.identity().rest(), word.port()), (rest, port));
                assert_eq!(word.stamp(), Stamp(stamp));
                assert_eq!(word.is_static(), stamp == STAMP_MASK);
                assert!(word.is(identity) && !word.in_other_bucket().is(identity));
            }
        };
        for port in 0..PORTS_MAX {
            for stamp in 1..=STAMP_MASK {
                check(0, port, stamp);
                check(all, port, stamp);
            }
        }
        for rest in rests {
            for (port, stamp) in [
                (0, 1),
                (0, STAMP_MASK),
                (PORTS_MAX - 1, 1),
                (PORTS_MAX - 1, STAMP_MASK),
            ] {
                check(rest, port, stamp);
            }
        }
    }

    /// Every pair of two moments on the clock of 62 units, for every ageing time up to 30 units of a second: an entry ages out exactly
    /// after its ageing time, unless the clock has wrapped around.
    #[test]
    fn every_age_on_the_clock_is_recognised() {
        for ageing_s in 1..=30 {
            let ageing = Ageing::new(ageing_s);
            for observed_s in 0..62 {
                let stamp = ageing.now(observed_s).stamp();
                for passed_s in 0..=57 {
                    let now = ageing.now(observed_s + passed_s);
                    let expected = passed_s > ageing_s;
                    assert_eq!(
                        ageing.is_over(stamp, now),
                        expected,
                        "{passed_s} {ageing_s}"
                    );
                    assert_eq!(Ageing::is_fresh(stamp, now), passed_s == 0);
                    assert_eq!(ageing.age_s(stamp, now), passed_s);
                }
                // A thread whose clock is behind.
                for behind_s in 1..=4.min(observed_s) {
                    let now = ageing.now(observed_s - behind_s);
                    let is_fresh = behind_s < 4;
                    assert_eq!(Ageing::is_fresh(stamp, now), is_fresh, "{behind_s}");
                }
            }
        }
    }

    #[test]
    fn thirty_seconds_are_distinguished_to_the_second() {
        let ageing = Ageing::new(10);
        let stamp = ageing.now(100).stamp();
        assert!(!ageing.is_over(stamp, ageing.now(110)));
        assert!(ageing.is_over(stamp, ageing.now(111)));
        assert_eq!(ageing.age_s(stamp, ageing.now(107)), 7);
        // A thread whose clock is behind neither considers the entry old nor sets it back.
        assert!(!ageing.is_over(stamp, ageing.now(99)));
        assert!(
            Ageing::is_fresh(stamp, ageing.now(99)) && !Ageing::is_fresh(stamp, ageing.now(101))
        );
    }
}
