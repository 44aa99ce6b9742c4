// SPDX-License-Identifier: Apache-2.0
//! Octets of packets.

/// Copies octets to the front. Returns the octets after them.
#[inline(always)]
pub(crate) fn put<'a>(to: &'a mut [u8], from: &[u8]) -> &'a mut [u8] {
    let count = from.len().min(to.len());
    let (front, rest) = to.split_at_mut(count);
    front
        .iter_mut()
        .zip(from)
        .for_each(|(to, from)| *to = *from);
    rest
}
