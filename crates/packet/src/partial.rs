// SPDX-License-Identifier: Apache-2.0
//! Checksums that a sender on this machine left to the network card, in frames without a record of that.

use crate::ethernet::split_tags;
use crate::segment::{ipv4, ipv6, pseudo_sum, put};
use crate::{
    Checksum, EtherType, EthernetHeader, IpProtocol, TCP_CHECKSUM_OFFSET, UDP_CHECKSUM_OFFSET,
    UDP_HEADER_LENGTH, be16, udp_checksum,
};

/// Completes the checksum of TCP or UDP if it is incomplete. Returns true if it was.
///
/// Linux writes the sum of the pseudo header, not complemented, into the field and leaves the rest to the device (`CHECKSUM_PARTIAL`,
/// Documentation/networking/checksum-offloads.rst). A field with exactly this value is incomplete, unless the checksum is correct as
/// it is: one of 65,536 complete checksums has the same value. All other frames stay unchanged, among them fragments, whose checksum
/// the sender has always completed.
///
/// If the frame is in a VXLAN or Geneve tunnel (RFC 7348, RFC 8926), the incomplete checksum may be that of the inner frame: the kernel leaves
/// one checksum of a frame to the device, and computes the outer one for the completed inner one.
#[inline]
pub fn complete_partial_checksum(frame: &mut [u8]) -> bool {
    let Some(transport) = locate(frame) else {
        return false;
    };
    // The inner one first: the outer one is correct then, even if it happens to be the sum of its pseudo header.
    let is_udp = transport.checksum == UDP_CHECKSUM_OFFSET;
    if is_udp && complete_inner(frame, &transport).is_some() {
        return true;
    }
    transport.has_pseudo_header_only && complete(frame, &transport).is_some()
}

/// Completes the checksum of the inner frame of a tunnel over UDP. `None` if there is no such frame, or its checksum is complete.
#[inline]
fn complete_inner(frame: &mut [u8], outer: &TransportLocation) -> Option<()> {
    let udp = frame.get(outer.start..outer.end)?;
    let length = tunnel_headers(udp)?;
    let inner = frame.get_mut(outer.start.saturating_add(length)..outer.end)?;
    let transport = locate(inner)?;
    if !transport.has_pseudo_header_only {
        return None;
    }
    complete(inner, &transport)
}

/// Returns the length of the headers of UDP and of VXLAN or Geneve before an inner Ethernet frame; `None` if the datagram has none.
fn tunnel_headers(udp: &[u8]) -> Option<usize> {
    const VXLAN: u16 = 4789;
    const GENEVE: u16 = 6081;
    const TUNNEL_HEADER: usize = 8;
    /// The flag of a valid network identifier, which every VXLAN header has.
    const VXLAN_FLAG: u8 = 0x08;
    /// Geneve's protocol type of an Ethernet frame.
    const ETHERNET: u16 = 0x6558;
    let destination = be16(udp.first_chunk::<4>()?, 2);
    if destination != VXLAN && destination != GENEVE {
        return None;
    }
    let header = udp.get(UDP_HEADER_LENGTH..)?.first_chunk::<4>()?;
    let [first, _, _, _] = *header;
    let length = UDP_HEADER_LENGTH + TUNNEL_HEADER;
    if destination == VXLAN {
        return (first & VXLAN_FLAG != 0).then_some(length);
    }
    // The version is 0; the length of the options is in units of four octets.
    let is_ethernet = first >> 6 == 0 && be16(header, 2) == ETHERNET;
    let options = usize::from(first & 0x3f).saturating_mul(4);
    is_ethernet.then_some(length.saturating_add(options))
}

/// TCP or UDP in a frame.
struct TransportLocation {
    /// Offset of the header of TCP or UDP, and end of the data.
    start: usize,
    end: usize,
    checksum: usize,
    /// True if the field is the sum of the pseudo header.
    has_pseudo_header_only: bool,
    pseudo_header: Checksum,
}

#[inline(always)]
fn locate(frame: &[u8]) -> Option<TransportLocation> {
    let (ethernet, rest) = EthernetHeader::split(frame).ok()?;
    let untagged = split_tags(ethernet.ethertype(), rest).ok()?;
    let packet = untagged.payload;
    let network = frame.len().saturating_sub(packet.len());
    let (addresses, (protocol, header_length, length)) = match untagged.ethertype {
        EtherType::IPV4 => (12..20, ipv4(packet)?),
        EtherType::IPV6 => (8..40, ipv6(packet)?),
        _ => return None,
    };
    let checksum = match protocol {
        IpProtocol::TCP => TCP_CHECKSUM_OFFSET,
        IpProtocol::UDP => UDP_CHECKSUM_OFFSET,
        _ => return None,
    };
    let transport = packet.get(header_length..length)?;
    let field = be16(transport.get(checksum..)?.first_chunk::<2>()?, 0);
    let transport_length = u32::try_from(transport.len()).ok()?;
    let pseudo_header = pseudo_sum(packet.get(addresses)?, protocol, transport_length);
    Some(TransportLocation {
        start: network.saturating_add(header_length),
        end: network.saturating_add(length),
        checksum,
        has_pseudo_header_only: field == !pseudo_header.finish(),
        pseudo_header,
    })
}

fn complete(frame: &mut [u8], location: &TransportLocation) -> Option<()> {
    let transport = frame.get_mut(location.start..location.end)?;
    // The field counts as the sum of the pseudo header.
    let completed = crate::checksum(transport);
    let mut whole = location.pseudo_header;
    whole.add(&(!completed).to_be_bytes());
    if whole.finish() == 0 {
        return None;
    }
    let sum = match location.checksum {
        UDP_CHECKSUM_OFFSET => udp_checksum(completed),
        _ => completed,
    };
    put(transport, location.checksum, sum)
}
