// SPDX-License-Identifier: Apache-2.0
//! Checksums that a sender on this machine left to the network card, in frames without a record of that.

use crate::ethernet::split_tags;
use crate::segment::{ipv4, ipv6, pseudo_sum};
use crate::{
    Checksum, EtherType, EthernetHeader, IpProtocol, TCP_CHECKSUM_OFFSET, UDP_CHECKSUM_OFFSET,
    be16, udp_checksum,
};

/// Completes the checksum of TCP or UDP if it is incomplete. Returns true if it was.
///
/// Linux writes the sum of the pseudo header, not complemented, into the field and leaves the rest to the device (`CHECKSUM_PARTIAL`,
/// Documentation/networking/checksum-offloads.rst). A field with exactly this value is incomplete, unless the checksum is correct as
/// it is: one of 65,536 complete checksums has the same value. All other frames stay unchanged, among them fragments, whose checksum
/// the sender has always completed.
#[inline]
pub fn complete_partial_checksum(frame: &mut [u8]) -> bool {
    match locate(frame) {
        Some(transport) if transport.has_pseudo_header_only => {
            complete(frame, &transport).is_some()
        }
        _ => false,
    }
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
    let network = frame.len() - packet.len();
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
        start: network + header_length,
        end: network + length,
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
    let field = transport.get_mut(location.checksum..location.checksum + 2)?;
    field.copy_from_slice(&sum.to_be_bytes());
    Some(())
}
