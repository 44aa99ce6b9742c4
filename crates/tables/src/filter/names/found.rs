// SPDX-License-Identifier: Apache-2.0
//! Results of the parsers, and the name that they write.

/// Longest name, octets (RFC 1035, section 2.3.4: 255 octets with the lengths of the labels).
pub(super) const NAME_MAX: usize = 253;

/// Result of a parser for the octets of a connection so far. All but [`Found::More`] are final: further octets do not change them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The octets end before the name does.
    More,
    /// The name has been written.
    Name,
    /// Another protocol, or a first message without a name.
    Nothing,
    /// The octets violate the protocol, or a receiver may read another name.
    Undecidable,
}

/// A name: printable ASCII in lower case, without a dot at its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    length: u8,
    octets: [u8; NAME_MAX],
}

impl Name {
    /// No name.
    pub(super) const EMPTY: Self = Self {
        length: 0,
        octets: [0; NAME_MAX],
    };

    /// Adds an octet. Returns false, and adds none, if it is not printable or the name is too long.
    pub(super) fn push(&mut self, octet: u8) -> bool {
        if !octet.is_ascii_graphic() {
            return false;
        }
        let Some(place) = self.octets.get_mut(usize::from(self.length)) else {
            return false;
        };
        *place = octet.to_ascii_lowercase();
        self.length = self.length.saturating_add(1);
        true
    }

    /// Adds octets. Returns false if one cannot be added.
    pub(super) fn extend(&mut self, octets: &[u8]) -> bool {
        octets.iter().all(|octet| self.push(*octet))
    }

    /// Removes the dot at the end, which stands for the root.
    pub(super) fn remove_root(&mut self) {
        if self.octets().ends_with(b".") {
            self.length = self.length.saturating_sub(1);
        }
    }

    /// Returns the octets.
    pub(super) fn octets(&self) -> &[u8] {
        let octets = self.octets.get(..usize::from(self.length));
        octets.unwrap_or_default()
    }

    /// Returns true if there is no name.
    pub(super) const fn is_empty(&self) -> bool {
        self.length == 0
    }
}
