// SPDX-License-Identifier: Apache-2.0
//! Flow hash, which assigns all packets of a flow to the same next hop.

use quietwire_base::random::word_of;
use quietwire_packet::ETHERNET_HEADER_LENGTH;

/// Returns a number that is equal for all packets of a flow: addresses, protocol and ports (RFC 2992; without ports for fragments and other
/// protocols; by flow label for IPv6 packets that have one, RFC 6438).
#[inline(never)]
pub(super) fn flow_hash(frame: &[u8]) -> u32 {
    let packet = frame.get(ETHERNET_HEADER_LENGTH..).unwrap_or(&[]);
    let (addresses, protocol, ports) = match packet {
        [first, ..] if first >> 4 == 4 => {
            let is_fragment = matches!(packet, [_, _, _, _, _, _, a, b, ..] if (a & 0x3f | b) != 0);
            let header_length = usize::from(first & 0xf).wrapping_mul(4);
            let protocol = packet.get(9).copied().unwrap_or(0);
            let ports = if is_fragment {
                0
            } else {
                ports_of(protocol, packet.get(header_length..))
            };
            (packet.get(12..20), protocol, ports)
        }
        [_, a, b, c, ..] => {
            let label = u32::from_be_bytes([0, a & 0xf, *b, *c]);
            let protocol = packet.get(6).copied().unwrap_or(0);
            let ports = match label {
                0 => ports_of(protocol, packet.get(40..)),
                label => label,
            };
            (packet.get(8..40), protocol, ports)
        }
        _ => (None, 0, 0),
    };
    let mut hash = u64::from(ports) << 8 | u64::from(protocol);
    for word in addresses.unwrap_or(&[]).as_chunks::<8>().0 {
        hash = word_of(hash ^ u64::from_be_bytes(*word));
    }
    (word_of(hash) >> 32) as u32
}

/// Returns both ports of a protocol with ports at the same offsets as TCP.
fn ports_of(protocol: u8, payload: Option<&[u8]>) -> u32 {
    match (
        protocol,
        payload.and_then(|payload| payload.first_chunk::<4>()),
    ) {
        // TCP, UDP, DCCP, SCTP, UDP-Lite.
        (6 | 17 | 33 | 132 | 136, Some(ports)) => u32::from_be_bytes(*ports),
        _ => 0,
    }
}
