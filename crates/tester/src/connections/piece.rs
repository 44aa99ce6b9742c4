// SPDX-License-Identifier: Apache-2.0
//! Fragments of datagrams, and their contents.

use quietwire_base::random::mix;
use quietwire_packet::UDP_HEADER_LENGTH;

/// Octets at the front of the data of each fragment, which identify it. The others are zero.
const MARK: usize = 16;

/// Properties of all datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) seed: u64,
    /// Fragments of a datagram, at most 16.
    pub(crate) count: u8,
    /// Data of each fragment, octets, a multiple of 8.
    pub(crate) octets: u16,
}

impl Shape {
    /// Returns the octets that identify a fragment.
    pub(crate) fn mark(&self, number: u64, index: u8) -> [u8; MARK] {
        let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
        let check = mix(self.seed ^ mix(number) ^ u64::from(index));
        let [i, j, k, l, m, n, o, _] = check.to_be_bytes();
        [a, b, c, d, e, f, g, h, index, i, j, k, l, m, n, o]
    }

    /// Returns the number of the datagram and of the fragment; `None` for other data.
    pub(crate) fn read(&self, data: &[u8]) -> Option<(u64, u8)> {
        let (mark, rest) = data.split_first_chunk::<MARK>()?;
        let [a, b, c, d, e, f, g, h, index, ..] = *mark;
        let number = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let is_of_shape = index < self.count
            && data.len() == usize::from(self.octets)
            && *mark == self.mark(number, index)
            && rest.iter().all(|octet| *octet == 0);
        is_of_shape.then_some((number, index))
    }

    /// Returns the data of a datagram, octets.
    pub(crate) fn data_length(&self) -> usize {
        usize::from(self.octets).saturating_mul(usize::from(self.count))
    }

    /// Returns a bit for each fragment.
    pub(crate) fn all(&self) -> u32 {
        (0..self.count).fold(0, |all, index| all | bit(index))
    }
}

/// Returns the bit of a fragment.
pub(crate) fn bit(index: u8) -> u32 {
    1u32.checked_shl(u32::from(index)).unwrap_or(0)
}

/// A fragment to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) shape: Shape,
    /// Number of the datagram.
    pub(crate) number: u64,
    /// Number of the fragment, from 0.
    pub(crate) index: u8,
}

impl Piece {
    /// Returns the octets of the datagram in front of it.
    pub(crate) fn offset(&self) -> u16 {
        match self.index {
            0 => 0,
            index => {
                let header = u16::try_from(UDP_HEADER_LENGTH).unwrap_or(0);
                header.saturating_add(self.shape.octets.saturating_mul(u16::from(index)))
            }
        }
    }

    /// Returns true if others follow.
    pub(crate) fn has_more(&self) -> bool {
        self.index.saturating_add(1) < self.shape.count
    }

    /// Returns its octets behind the IP header.
    pub(crate) fn length(&self) -> usize {
        let header = if self.index == 0 {
            UDP_HEADER_LENGTH
        } else {
            0
        };
        usize::from(self.shape.octets).saturating_add(header)
    }

    /// Returns the length of the datagram with its UDP header, octets.
    pub(crate) fn datagram_length(&self) -> usize {
        self.shape.data_length().saturating_add(UDP_HEADER_LENGTH)
    }
}
