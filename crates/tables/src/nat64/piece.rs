// SPDX-License-Identifier: Apache-2.0
//! IPv6 fragments of a packet from IPv4 whose sender has allowed fragments (RFC 7915, section 4.1; RFC 8200, section 4.5).

use quietwire_packet::{ETHERNET_HEADER_LENGTH, IPV6_HEADER_LENGTH, IpProtocol};

use super::header::{FRAGMENT_HEADER, Part, fragment_header};

/// MTU of every IPv6 link, octets (RFC 8200, section 5).
pub const MTU_MIN: u16 = 1280;
const HEADERS: usize = IPV6_HEADER_LENGTH + FRAGMENT_HEADER;

/// A fragment: its headers, and octets of the packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece<'packet> {
    headers: [u8; HEADERS],
    payload: &'packet [u8],
}

impl Piece<'_> {
    /// Returns the length of the frame, octets without FCS.
    #[must_use]
    pub const fn frame_length(&self) -> usize {
        let headers = ETHERNET_HEADER_LENGTH + HEADERS;
        self.payload.len().saturating_add(headers)
    }

    /// Writes the fragment behind an Ethernet header into a buffer of [`Self::frame_length`]. Returns false if the buffer has another
    /// length.
    #[must_use]
    pub fn write(&self, ethernet: &[u8; ETHERNET_HEADER_LENGTH], frame: &mut [u8]) -> bool {
        if frame.len() != self.frame_length() {
            return false;
        }
        let octets = ethernet.iter().chain(&self.headers).chain(self.payload);
        for (place, octet) in frame.iter_mut().zip(octets) {
            *place = *octet;
        }
        true
    }
}

/// Returns the fragments of an IPv6 packet for an MTU. The packet has no extension headers but that of a fragment, whose part of the
/// datagram is then fragmented further. The result is empty for other packets, and for an MTU without space.
pub fn pieces(packet: &[u8], identification: u32, mtu: u16) -> impl Iterator<Item = Piece<'_>> {
    let whole = WholePacket::of(packet, identification);
    let mut next = 0;
    std::iter::from_fn(move || {
        let whole = whole.as_ref()?;
        let (piece, end) = whole.piece(next, usize::from(mtu))?;
        next = end;
        Some(piece)
    })
}

struct WholePacket<'packet> {
    header: [u8; IPV6_HEADER_LENGTH],
    protocol: u8,
    part: Part,
    payload: &'packet [u8],
}

impl<'packet> WholePacket<'packet> {
    fn of(packet: &'packet [u8], identification: u32) -> Option<Self> {
        let (header, rest) = packet.split_first_chunk::<IPV6_HEADER_LENGTH>()?;
        let [first, _, _, _, high, low, next, ..] = *header;
        let payload = rest.get(..usize::from(u16::from_be_bytes([high, low])))?;
        if first >> 4 != 6 {
            return None;
        }
        let mut whole = Self {
            header: *header,
            protocol: next,
            part: Part {
                identification,
                offset: 0,
                has_more: false,
            },
            payload,
        };
        if next == IpProtocol::FRAGMENT.0 {
            let (extension, payload) = payload.split_first_chunk::<FRAGMENT_HEADER>()?;
            let [protocol, _, high, low, a, b, c, d] = *extension;
            let field = u16::from_be_bytes([high, low]);
            whole.protocol = protocol;
            whole.payload = payload;
            whole.part = Part {
                identification: u32::from_be_bytes([a, b, c, d]),
                offset: field >> 3,
                has_more: field & 1 != 0,
            };
        }
        Some(whole)
    }

    /// Returns the fragment that begins at an octet of the payload, and the start of the next one.
    fn piece(&self, start: usize, mtu: usize) -> Option<(Piece<'packet>, usize)> {
        let rest = self.payload.get(start..).filter(|rest| !rest.is_empty())?;
        let space = mtu.checked_sub(HEADERS)?;
        let is_last = rest.len() <= space;
        let payload = match is_last {
            true => rest,
            // The offset of a fragment is a multiple of eight octets.
            false => rest.get(..space & !7).filter(|one| !one.is_empty())?,
        };
        let offset = usize::from(self.part.offset).saturating_add(start / 8);
        let part = Part {
            offset: u16::try_from(offset).ok().filter(|one| *one < 1 << 13)?,
            has_more: self.part.has_more || !is_last,
            ..self.part
        };
        let length = payload.len().checked_add(FRAGMENT_HEADER)?;
        let length = u16::try_from(length).ok()?;
        let mut headers = [0; HEADERS];
        let (header, extension) = headers.split_first_chunk_mut::<IPV6_HEADER_LENGTH>()?;
        *header = self.header;
        let [high, low] = length.to_be_bytes();
        for (place, octet) in [(4, high), (5, low), (6, IpProtocol::FRAGMENT.0)] {
            *header.get_mut(place)? = octet;
        }
        extension.copy_from_slice(&fragment_header(self.protocol, &part));
        let end = start.checked_add(payload.len())?;
        Some((Piece { headers, payload }, end))
    }
}
