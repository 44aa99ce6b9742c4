// SPDX-License-Identifier: Apache-2.0
//! IPv4 fragmentation (RFC 791, section 3.2; RFC 1812, section 4.2.2.7).

use quietwire_packet::{ETHERNET_HEADER_LENGTH, checksum};

const HEADER_MIN: usize = 20;
const HEADER_MAX: usize = 60;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

/// A fragment of a packet: its own header, and the octets of the packet that follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment<'packet> {
    header: [u8; HEADER_MAX],
    header_length: usize,
    payload: &'packet [u8],
}

impl Fragment<'_> {
    /// Returns the length of the frame, octets without FCS.
    #[must_use]
    pub fn frame_length(&self) -> usize {
        self.header_length
            .saturating_add(self.payload.len())
            .saturating_add(ETHERNET_HEADER_LENGTH)
    }

    /// Writes the fragment behind an Ethernet header into a buffer of [`Self::frame_length`]. Returns false if the buffer is shorter.
    #[must_use]
    pub fn write(&self, ethernet: &[u8; ETHERNET_HEADER_LENGTH], frame: &mut [u8]) -> bool {
        let Some(header) = self.header.get(..self.header_length) else {
            return false;
        };
        let Some(frame) = frame.get_mut(..self.frame_length()) else {
            return false;
        };
        let mut at = 0_usize;
        for part in [ethernet.as_slice(), header, self.payload] {
            let end = at.saturating_add(part.len());
            if let Some(place) = frame.get_mut(at..end) {
                place.copy_from_slice(part);
            }
            at = end;
        }
        true
    }
}

/// Fragments a packet, given from its IPv4 header on, for a link of this MTU. The packet must be valid and must allow fragmentation. The
/// result is empty for an invalid packet, or an MTU below 68 (RFC 791, section 3.2).
pub fn fragments(packet: &[u8], mtu: u16) -> impl Iterator<Item = Fragment<'_>> {
    let parts = Parts::of(packet);
    let mut next = 0;
    std::iter::from_fn(move || {
        let parts = parts.as_ref().filter(|_| mtu >= 68)?;
        let (fragment, end) = parts.fragment(next, usize::from(mtu))?;
        next = end;
        Some(fragment)
    })
}

/// Returns whether the payload of a packet would end beyond the maximum packet size (RFC 791, section 3.1): its fragments would have
/// unrepresentable offsets. The packet is given from the IPv4 header on.
pub(super) fn ends_beyond(packet: &[u8]) -> bool {
    Parts::of(packet).is_some_and(|parts| {
        let offset = usize::from(parts.offset_and_flags & OFFSET_MASK).saturating_mul(8);
        let length = parts.header.len().saturating_add(parts.payload.len());
        offset.saturating_add(length) > usize::from(u16::MAX)
    })
}

struct Parts<'packet> {
    header: &'packet [u8],
    payload: &'packet [u8],
    /// Offset of the payload in the original packet, in units of eight octets; flags in the high bits.
    offset_and_flags: u16,
}

impl<'packet> Parts<'packet> {
    fn of(packet: &'packet [u8]) -> Option<Self> {
        let first = packet.first()?;
        let header_length = usize::from(first & 0xf).saturating_mul(4);
        let length = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
        let (header, payload) = packet.get(..length)?.split_at_checked(header_length)?;
        if header.len() < HEADER_MIN || first >> 4 != 4 {
            return None;
        }
        Some(Self {
            header,
            payload,
            offset_and_flags: u16::from_be_bytes(*header.get(6..)?.first_chunk()?),
        })
    }

    /// Returns the fragment that begins at `start`, and the start of the next one.
    fn fragment(&self, start: usize, mtu: usize) -> Option<(Fragment<'packet>, usize)> {
        let rest = self.payload.get(start..).filter(|rest| !rest.is_empty())?;
        let mut header = [0; HEADER_MAX];
        let header_length = self.copy_header(&mut header, start == 0)?;
        // Whole units of eight octets.
        let space = mtu.checked_sub(header_length)? & !7;
        let last = header_length.saturating_add(rest.len()) <= mtu;
        let payload = if last { rest } else { rest.get(..space)? };
        if payload.is_empty() {
            return None;
        }
        let units = u16::try_from(start / 8).ok()?;
        let offset = (self.offset_and_flags & OFFSET_MASK).checked_add(units)?;
        if offset > OFFSET_MASK {
            return None;
        }
        // A fragment of a fragment with MF set also has MF set.
        let more = if last {
            self.offset_and_flags & MORE_FRAGMENTS
        } else {
            MORE_FRAGMENTS
        };
        let octets = header_length.saturating_add(payload.len());
        let length = u16::try_from(octets).ok()?;
        header[0] = 0x40 | u8::try_from(header_length / 4).ok()?;
        put(&mut header, 2, length);
        put(&mut header, 6, offset & OFFSET_MASK | more);
        put(&mut header, 10, 0);
        let sum = checksum(header.get(..header_length)?);
        put(&mut header, 10, sum);
        let fragment = Fragment {
            header,
            header_length,
            payload,
        };
        Some((fragment, start.saturating_add(payload.len())))
    }

    /// Copies all options into the first fragment, and those with the 'copied' flag into the others (RFC 791, section 3.1).
    fn copy_header(&self, header: &mut [u8; HEADER_MAX], is_first: bool) -> Option<usize> {
        if is_first || self.header.len() == HEADER_MIN {
            header
                .get_mut(..self.header.len())?
                .copy_from_slice(self.header);
            return Some(self.header.len());
        }
        let (fixed, mut options) = self.header.split_at_checked(HEADER_MIN)?;
        header.get_mut(..HEADER_MIN)?.copy_from_slice(fixed);
        let mut length = HEADER_MIN;
        while let [kind, after @ ..] = options {
            let size = match (*kind, after.first()) {
                (0, _) => break,
                (1, _) => 1,
                (_, Some(size)) if *size >= 2 => usize::from(*size),
                _ => break,
            };
            let Some((option, rest)) = options.split_at_checked(size) else {
                break;
            };
            if kind & 0x80 != 0 {
                let end = length.saturating_add(size);
                header.get_mut(length..end)?.copy_from_slice(option);
                length = end;
            }
            options = rest;
        }
        // The padding behind the last option is zero: end of options.
        Some(length.next_multiple_of(4))
    }
}

fn put(header: &mut [u8; HEADER_MAX], at: usize, value: u16) {
    let place = header.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<2>);
    if let Some(place) = place {
        *place = value.to_be_bytes();
    }
}
