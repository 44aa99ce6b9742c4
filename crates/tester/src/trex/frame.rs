// SPDX-License-Identifier: Apache-2.0
//! Frame of a stream: UDP from one benchmarking network to another (RFC 2544, appendix C.2.2).

/// Headers before the payload, octets: Ethernet, IPv4, UDP.
const HEADERS: usize = 14 + 20 + 8;
const FCS: usize = 4;
/// UDP discard port.
const PORT: u16 = 9;

/// Returns a frame of `size` octets, including an FCS that is not written. Each port has its own network and sends to the other port's
/// network.
pub(super) fn udp(size: u16, port: u8) -> Vec<u8> {
    let length = usize::from(size).max(HEADERS + FCS) - FCS;
    let mut frame = Vec::with_capacity(length);
    // MAC addresses: the server writes them.
    frame.extend([0u8; 12]);
    frame.extend(0x0800u16.to_be_bytes());
    let ip_length = (length - 14) as u16;
    let mut header = [0u8; 20];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&ip_length.to_be_bytes());
    header[8] = 64;
    header[9] = 17;
    header[12..16].copy_from_slice(&[198, 18 + port, 0, 1]);
    header[16..20].copy_from_slice(&[198, 19 - port, 0, 1]);
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(header);
    frame.extend(PORT.to_be_bytes());
    frame.extend(PORT.to_be_bytes());
    frame.extend((ip_length - 20).to_be_bytes());
    // No checksum: it is optional for UDP over IPv4.
    frame.extend([0, 0]);
    frame.resize(length, 0);
    frame
}

/// Returns the Internet checksum (RFC 1071).
fn checksum(header: &[u8; 20]) -> u16 {
    let words = header.chunks_exact(2);
    let mut sum: u32 = words
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
