// SPDX-License-Identifier: Apache-2.0
//! Names of ports as elements of sets.

use std::fmt::{self, Write};

/// Longest name, octets.
const NAME_MAX: usize = 32;

/// Name of a port: a letter first, then letters, digits, `_`, `-` and `.`, up to 32 octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortName([u8; NAME_MAX]);

impl PortName {
    /// Returns a text as a name; `None` if it is not one.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let is_allowed = |one: char| one.is_ascii_alphanumeric() || "_-.".contains(one);
        let is_name = text.starts_with(|one: char| one.is_ascii_alphabetic());
        let mut octets = [0; NAME_MAX];
        let place = octets.get_mut(..text.len())?;
        place.copy_from_slice(text.as_bytes());
        (is_name && text.chars().all(is_allowed)).then_some(Self(octets))
    }

    /// Returns true if this is the name of a port.
    #[must_use]
    pub fn is(&self, port: &str) -> bool {
        self.octets() == port.as_bytes()
    }

    fn octets(&self) -> &[u8] {
        let end = self.0.iter().position(|octet| *octet == 0);
        self.0.get(..end.unwrap_or(NAME_MAX)).unwrap_or_default()
    }
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut octets = self.octets().iter();
        octets.try_for_each(|octet| f.write_char(char::from(*octet)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_as_they_are_read() {
        let longest = "a".repeat(NAME_MAX);
        for text in ["a", "eth0", "tap-guest_1.7", longest.as_str()] {
            let name = PortName::new(text).unwrap();
            assert_eq!(name.to_string(), text);
            assert!(name.is(text) && !name.is("b"));
        }
        let too_long = "a".repeat(NAME_MAX + 1);
        for wrong in ["", "7", "eth*", "a b", "@a", "a\0", "é", too_long.as_str()] {
            assert_eq!(PortName::new(wrong), None, "{wrong}");
        }
    }
}
