// SPDX-License-Identifier: Apache-2.0
//! Data of a TCP segment or a UDP datagram, as the search for names reads them.

use quietwire_packet::{
    Fragment, IpProtocol, TCP_HEADER_MIN, UDP_HEADER_LENGTH, walk_ipv6_extensions,
};

use super::super::pattern::{IPV4, IPV4_HEADER, IPV6, IPV6_HEADER, after_tags};

const TCP: u8 = 6;
const UDP: u8 = 17;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FlowKey {
    source: u128,
    destination: u128,
    /// Source and destination port.
    ports: [u16; 2],
    /// Ingress port and VLAN, which is 0 without a tag.
    place: (u32, u16),
    is_ipv6: bool,
}

impl FlowKey {
    /// The key of no connection.
    pub(super) const EMPTY: Self = Self {
        source: 0,
        destination: 0,
        ports: [0; 2],
        place: (0, 0),
        is_ipv6: false,
    };
}

/// Data of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data<'frame> {
    pub(super) flow: FlowKey,
    pub(super) is_tcp: bool,
    /// TCP flags; 0 for UDP.
    flags: u8,
    /// Sequence number of the first octet of data; 0 for UDP.
    pub(super) sequence: u32,
    /// Data in the first buffer.
    pub(super) octets: &'frame [u8],
    /// Octets of data, by the IP header.
    pub(super) length: usize,
    /// All data are in `octets`, and the packet is no fragment.
    pub(super) is_whole: bool,
}

/// Payload of an IP packet.
struct Payload<'frame> {
    flow: FlowKey,
    protocol: u8,
    octets: &'frame [u8],
    /// Octets by the IP header.
    length: usize,
    fragment: Fragment,
}

impl<'frame> Data<'frame> {
    /// Reads a frame that has ports. `ingress` is the number of its port. `None` if a header is truncated or its lengths contradict each
    /// other.
    pub(super) fn read(frame: &'frame [u8], ingress: u32) -> Option<Self> {
        let (vlan, rest) = after_tags(frame)?;
        let ([a, b], packet) = rest.split_first_chunk::<2>()?;
        let mut payload = match u16::from_be_bytes([*a, *b]) {
            IPV4 => read_ipv4(packet)?,
            IPV6 => read_ipv6(packet)?,
            _ => return None,
        };
        payload.flow.place = (ingress, vlan.unwrap_or(0));
        payload.data()
    }

    /// Returns true for the first segment of a connection: a SYN without acknowledgement.
    pub(super) const fn is_opening(&self) -> bool {
        self.flags & (FIN | SYN | RST | ACK) == SYN
    }
}

fn read_ipv4(packet: &[u8]) -> Option<Payload<'_>> {
    let header = packet.first_chunk::<IPV4_HEADER>()?;
    let [first, _, a, b, _, _, c, d, _, protocol, ..] = *header;
    let [.., e, f, g, h, i, j, k, l] = *header;
    let header_length = usize::from(first & 0xf).saturating_mul(4);
    let total = usize::from(u16::from_be_bytes([a, b]));
    let length = total.checked_sub(header_length)?;
    let octets = packet.get(header_length..)?;
    // More fragments, or an offset.
    let fragment = match u16::from_be_bytes([c, d]) & 0x3fff {
        0 => Fragment::Whole,
        _ => Fragment::First,
    };
    Some(Payload {
        flow: FlowKey {
            source: u128::from(u32::from_be_bytes([e, f, g, h])),
            destination: u128::from(u32::from_be_bytes([i, j, k, l])),
            ..FlowKey::EMPTY
        },
        protocol,
        octets: octets.get(..length).unwrap_or(octets),
        length,
        fragment,
    })
}

fn read_ipv6(packet: &[u8]) -> Option<Payload<'_>> {
    let (header, rest) = packet.split_first_chunk::<IPV6_HEADER>()?;
    let (fixed, addresses) = header.split_first_chunk::<8>()?;
    let (source, destination) = addresses.split_first_chunk::<16>()?;
    let [_, _, _, _, a, b, next, _] = *fixed;
    let length = usize::from(u16::from_be_bytes([a, b]));
    let octets = rest.get(..length).unwrap_or(rest);
    let walked = walk_ipv6_extensions(IpProtocol(next), octets).ok()?;
    Some(Payload {
        flow: FlowKey {
            source: u128::from_be_bytes(*source),
            destination: u128::from_be_bytes(*destination.first_chunk::<16>()?),
            is_ipv6: true,
            ..FlowKey::EMPTY
        },
        protocol: walked.protocol.0,
        octets: octets.get(walked.length..)?,
        length: length.checked_sub(walked.length)?,
        fragment: walked.fragment,
    })
}

impl<'frame> Payload<'frame> {
    fn data(self) -> Option<Data<'frame>> {
        let [a, b, c, d] = *self.octets.first_chunk::<4>()?;
        let mut flow = self.flow;
        flow.ports = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
        let mut data = Data {
            flow,
            is_tcp: self.protocol == TCP,
            flags: 0,
            sequence: 0,
            octets: &[],
            length: 0,
            is_whole: false,
        };
        let header = match self.protocol {
            TCP => {
                let header = self.octets.first_chunk::<TCP_HEADER_MIN>()?;
                let [_, _, _, _, e, f, g, h, _, _, _, _, offset, flags, ..] = *header;
                data.flags = flags;
                data.sequence = u32::from_be_bytes([e, f, g, h]);
                if flags & SYN != 0 {
                    // The SYN counts as an octet before the data.
                    data.sequence = data.sequence.wrapping_add(1);
                }
                let length = usize::from(offset >> 4).saturating_mul(4);
                (length >= TCP_HEADER_MIN).then_some(length)?
            }
            UDP => UDP_HEADER_LENGTH,
            _ => return None,
        };
        data.octets = self.octets.get(header..)?;
        data.length = self.length.checked_sub(header)?;
        data.is_whole = self.fragment == Fragment::Whole && data.octets.len() == data.length;
        Some(data)
    }
}
