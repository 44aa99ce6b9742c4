// SPDX-License-Identifier: Apache-2.0
//! Labels of connections: 128 bits of a connection that rules set and match, as `ct_label` of Open vSwitch (ovs-fields(7)).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Bits of a label: those in the mask have a value. As text, the value and the mask, like `0x2/0x3`; without a mask, all bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LabelBits {
    value: u128,
    mask: u128,
}

impl LabelBits {
    /// Creates bits of a label. `None` if the mask is 0, or if the value has other bits.
    #[must_use]
    pub const fn new(value: u128, mask: u128) -> Option<Self> {
        match mask != 0 && value & !mask == 0 {
            true => Some(Self { value, mask }),
            false => None,
        }
    }

    /// Returns true if a label has these bits.
    #[inline(always)]
    #[must_use]
    pub const fn matches(self, label: u128) -> bool {
        label & self.mask == self.value
    }

    /// Returns a label with these bits, and the other bits of the former one.
    #[inline(always)]
    #[must_use]
    pub const fn set_in(self, label: u128) -> u128 {
        label & !self.mask | self.value
    }

    /// Returns the value if it has all bits.
    #[must_use]
    pub const fn whole(self) -> Option<u128> {
        match self.mask {
            u128::MAX => Some(self.value),
            _ => None,
        }
    }
}

/// Reads a number: hexadecimal with `0x` in front, or decimal.
fn number(text: &str) -> Option<u128> {
    let is_number = |digits: &str, radix| {
        // Signs are no digits.
        let mut digits = digits.chars();
        digits.all(|digit: char| digit.is_digit(radix))
    };
    match text.strip_prefix("0x") {
        Some(digits) if is_number(digits, 16) => u128::from_str_radix(digits, 16).ok(),
        None if is_number(text, 10) => text.parse().ok(),
        _ => None,
    }
}

impl FromStr for LabelBits {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (value, mask) = match text.split_once('/') {
            Some((value, mask)) => (number(value), number(mask)),
            None => (number(text), Some(u128::MAX)),
        };
        let (Some(value), Some(mask)) = (value, mask) else {
            return Err(format!(
                "'{text}' is not a label of up to 128 bits (use VALUE or VALUE/MASK, such as 0x2/0x3)"
            ));
        };
        Self::new(value, mask).ok_or_else(|| {
            format!("label '{text}' has a mask of 0, or a value with bits outside of the mask (set the bits in the mask)")
        })
    }
}

impl fmt::Display for LabelBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.whole() {
            Some(value) => write!(f, "{value:#x}"),
            None => write!(f, "{:#x}/{:#x}", self.value, self.mask),
        }
    }
}

impl TryFrom<String> for LabelBits {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<LabelBits> for String {
    fn from(bits: LabelBits) -> Self {
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
        let whole: LabelBits = "7".parse().unwrap();
        assert_eq!(whole.whole(), Some(7));
        assert_eq!("7/7".parse::<LabelBits>().unwrap().whole(), None);
    }
}
