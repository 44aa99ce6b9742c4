// SPDX-License-Identifier: Apache-2.0
//! Values of connections that rules set and match bit by bit: marks of 32 bits, as `ct mark` of nftables, and labels of 128 bits, as
//! `ct_label` of Open vSwitch (ovs-fields(7)).

use std::fmt;
use std::hash::Hash;
use std::ops::{BitAnd, BitOr, Not};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A value of a connection.
pub trait CtValue:
    Copy
    + Default
    + Eq
    + Hash
    + fmt::Debug
    + fmt::LowerHex
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + Not<Output = Self>
    + TryFrom<u128>
{
    /// Name of the value.
    const NAME: &'static str;
    /// Number of its bits.
    const WIDTH: u32;
}

impl CtValue for u32 {
    const NAME: &'static str = "mark";
    const WIDTH: u32 = 32;
}

impl CtValue for u128 {
    const NAME: &'static str = "label";
    const WIDTH: u32 = 128;
}

/// Bits of a mark or label: those in the mask have a value. As text, the value and the mask, like `0x2/0x3`; without a mask, all bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String", bound = "")]
pub struct CtBits<V: CtValue> {
    value: V,
    mask: V,
}

/// Bits of the mark of a connection.
pub type MarkBits = CtBits<u32>;

/// Bits of the label of a connection.
pub type LabelBits = CtBits<u128>;

impl<V: CtValue> CtBits<V> {
    /// Creates bits. `None` if the mask is 0, or if the value has other bits.
    #[must_use]
    pub fn new(value: V, mask: V) -> Option<Self> {
        let none = V::default();
        (mask != none && value & !mask == none).then_some(Self { value, mask })
    }

    /// Returns true if a mark or label has these bits.
    #[inline(always)]
    #[must_use]
    pub fn matches(self, word: V) -> bool {
        word & self.mask == self.value
    }

    /// Returns a mark or label with these bits, and the other bits of the former one.
    #[inline(always)]
    #[must_use]
    pub fn set_in(self, former: V) -> V {
        (former & !self.mask) | self.value
    }

    /// Returns the value if it has all bits.
    #[must_use]
    pub fn whole(self) -> Option<V> {
        (self.mask == !V::default()).then_some(self.value)
    }

    /// Returns the bits that a mark or label has if it has both. `None` if none has both.
    #[must_use]
    pub fn intersection(self, other: Self) -> Option<Self> {
        let both = self.mask & other.mask;
        let is_possible = self.value & both == other.value & both;
        is_possible.then_some(Self {
            value: self.value | other.value,
            mask: self.mask | other.mask,
        })
    }
}

/// Reads a number: hexadecimal with `0x` in front, or decimal.
fn number<V: CtValue>(text: &str) -> Option<V> {
    let is_number = |digits: &str, radix| {
        // Signs are no digits.
        let mut digits = digits.chars();
        digits.all(|digit: char| digit.is_digit(radix))
    };
    let number = match text.strip_prefix("0x") {
        Some(digits) if is_number(digits, 16) => u128::from_str_radix(digits, 16).ok(),
        None if is_number(text, 10) => text.parse::<u128>().ok(),
        _ => None,
    };
    V::try_from(number?).ok()
}

impl<V: CtValue> FromStr for CtBits<V> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (value, mask) = match text.split_once('/') {
            Some((value, mask)) => (number(value), number(mask)),
            None => (number(text), Some(!V::default())),
        };
        let (Some(value), Some(mask)) = (value, mask) else {
            return Err(format!(
                "'{text}' is not a {} of up to {} bits (use VALUE or VALUE/MASK, such as 0x2/0x3)",
                V::NAME,
                V::WIDTH
            ));
        };
        Self::new(value, mask).ok_or_else(|| {
            format!(
                "{} '{text}' has a mask of 0, or a value with bits outside of the mask (set the bits in the mask)",
                V::NAME
            )
        })
    }
}

impl<V: CtValue> fmt::Display for CtBits<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.whole() {
            Some(value) => write!(f, "{value:#x}"),
            None => write!(f, "{:#x}/{:#x}", self.value, self.mask),
        }
    }
}

impl<V: CtValue> TryFrom<String> for CtBits<V> {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl<V: CtValue> From<CtBits<V>> for String {
    fn from(bits: CtBits<V>) -> Self {
        bits.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bits_are_compared_and_set_one_by_one(value: u128, mask: u128, label: u128) {
            let Some(bits) = LabelBits::new(value & mask, mask) else {
                return Err(TestCaseError::reject("a mask of 0"));
            };
            let bit = |word: u128, place: u32| word >> place & 1;
            let is_equal = |place: u32| bit(label, place) == bit(value, place);
            let masked = |place: &u32| bit(mask, *place) == 1;
            prop_assert_eq!(bits.matches(label), (0..128).filter(masked).all(is_equal));
            let set = bits.set_in(label);
            prop_assert!(bits.matches(set));
            for place in 0..128 {
                let expected = if masked(&place) { value } else { label };
                prop_assert_eq!(bit(set, place), bit(expected, place));
            }
            prop_assert_eq!(bits.to_string().parse::<LabelBits>(), Ok(bits));
        }

        #[test]
        fn marks_are_labels_of_32_bits(value: u32, mask: u32, mark: u32) {
            let Some(bits) = MarkBits::new(value & mask, mask) else {
                return Err(TestCaseError::reject("a mask of 0"));
            };
            let as_label = LabelBits::new(u128::from(value & mask), u128::from(mask)).unwrap();
            prop_assert_eq!(bits.matches(mark), as_label.matches(u128::from(mark)));
            prop_assert_eq!(u128::from(bits.set_in(mark)), as_label.set_in(u128::from(mark)));
            prop_assert_eq!(bits.to_string().parse::<MarkBits>(), Ok(bits));
        }

        #[test]
        fn an_intersection_matches_what_both_match(bits in [(0..8u32, 1..8u32), (0..8u32, 1..8u32)]) {
            let [one, other] = bits.map(|(value, mask)| MarkBits::new(value & mask, mask).unwrap());
            let both = one.intersection(other);
            for mark in 0..16 {
                let expected = one.matches(mark) && other.matches(mark);
                prop_assert_eq!(both.is_some_and(|bits| bits.matches(mark)), expected);
            }
        }
    }

    #[test]
    fn labels_are_read_and_written() {
        for (text, written) in [
            ("0x2/0x3", "0x2/0x3"),
            ("2/3", "0x2/0x3"),
            ("0/0x10", "0x0/0x10"),
            ("255", "0xff"),
            (
                "0xffffffffffffffffffffffffffffffff",
                "0xffffffffffffffffffffffffffffffff",
            ),
            ("1/0xffffffffffffffffffffffffffffffff", "0x1"),
        ] {
            let bits: LabelBits = text.parse().unwrap();
            assert_eq!(bits.to_string(), written);
            let json = serde_json::to_string(&bits).unwrap();
            assert_eq!(serde_json::from_str::<LabelBits>(&json).unwrap(), bits);
        }
        for text in [
            "",
            "0x",
            "1/",
            "/1",
            "+1",
            "0x+1",
            "red",
            "1/2/3",
            "0x1ffffffffffffffffffffffffffffffff",
        ] {
            let error = text.parse::<LabelBits>().unwrap_err();
            assert!(error.contains("VALUE/MASK"), "{error}");
        }
        for text in ["0/0", "4/3"] {
            let error = text.parse::<LabelBits>().unwrap_err();
            assert!(error.contains("set the bits in the mask"), "{error}");
        }
        for (text, written) in [("0xffffffff", "0xffffffff"), ("3/0xffffffff", "0x3")] {
            assert_eq!(text.parse::<MarkBits>().unwrap().to_string(), written);
        }
        for text in ["0x100000000", "1/0x100000000"] {
            let error = text.parse::<MarkBits>().unwrap_err();
            assert!(error.contains("not a mark of up to 32 bits"), "{error}");
        }
        let whole: LabelBits = "7".parse().unwrap();
        assert_eq!(whole.whole(), Some(7));
        assert_eq!("7/7".parse::<LabelBits>().unwrap().whole(), None);
    }
}
