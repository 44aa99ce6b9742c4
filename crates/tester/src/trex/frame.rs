// SPDX-License-Identifier: Apache-2.0
//! Frame of a stream: UDP from one benchmarking network to another (RFC 2544, appendix C.2.2).

use quietwire_packet::checksum;

/// Headers before the payload, octets: Ethernet, IPv4, UDP.
const HEADERS: u16 = 14 + 20 + 8;
const FCS: u16 = 4;
/// UDP discard port.
const PORT: u16 = 9;

/// Returns a frame of `size` octets, including an FCS that is not written. Each port has its own network and sends to the other port's
/// network.
pub(super) fn udp(size: u16, port: u8) -> Vec<u8> {
    let length = size.saturating_sub(FCS).max(HEADERS);
    let mut frame = Vec::with_capacity(usize::from(length));
    // MAC addresses: the server writes them.
    frame.extend([0u8; 12]);
    frame.extend(0x0800u16.to_be_bytes());
    let ip_length = length.saturating_sub(14);
    let mut header = [0u8; 20];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&ip_length.to_be_bytes());
    header[8] = 64;
    header[9] = 17;
    header[12..16].copy_from_slice(&[198, port.saturating_add(18), 0, 1]);
    header[16..20].copy_from_slice(&[198, 19u8.saturating_sub(port), 0, 1]);
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(header);
    frame.extend(PORT.to_be_bytes());
    frame.extend(PORT.to_be_bytes());
    frame.extend(ip_length.saturating_sub(20).to_be_bytes());
    // No checksum: it is optional for UDP over IPv4.
    frame.extend([0, 0]);
    frame.resize(usize::from(length), 0);
    frame
}
