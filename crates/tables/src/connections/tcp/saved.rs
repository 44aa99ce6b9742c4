// SPDX-License-Identifier: Apache-2.0
//! Sides of TCP connections as octets, for connections that outlive a restart.

use super::{GUESSED, HAS_ACKED, HAS_FIN, HAS_SYN, LOOSE, SCALES, Side};

/// Octets of a saved side.
pub(in super::super) const SIDE_OCTETS: usize = 16;
/// Largest shift of a window (RFC 7323, section 2.3).
const SCALE_MAX: u8 = 14;

impl Side {
    /// Returns the side as octets, in network order.
    pub(in super::super) fn to_octets(self) -> [u8; SIDE_OCTETS] {
        let [a, b, c, d] = self.end.to_be_bytes();
        let [e, f, g, h] = self.limit.to_be_bytes();
        let [i, j, k, l] = self.acked.to_be_bytes();
        let [m, n] = self.window.to_be_bytes();
        [
            a, b, c, d, e, f, g, h, i, j, k, l, m, n, self.scale, self.flags,
        ]
    }

    /// Reads a side; `None` if a scale or a flag is impossible. Every sequence number is possible.
    pub(in super::super) const fn from_octets(octets: [u8; SIDE_OCTETS]) -> Option<Self> {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, scale, flags] = octets;
        let is_known = flags & !(HAS_ACKED | HAS_FIN | HAS_SYN | SCALES | LOOSE | GUESSED) == 0;
        if scale > SCALE_MAX || !is_known {
            return None;
        }
        Some(Self {
            end: u32::from_be_bytes([a, b, c, d]),
            limit: u32::from_be_bytes([e, f, g, h]),
            acked: u32::from_be_bytes([i, j, k, l]),
            window: u16::from_be_bytes([m, n]),
            scale,
            flags,
        })
    }
}
