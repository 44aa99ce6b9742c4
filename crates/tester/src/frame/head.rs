// SPDX-License-Identifier: Apache-2.0
//! Headers of the tester's frames, Ethernet to UDP, and the incremental computation of their checksums.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use quietwire_packet::{
    BuildError, EtherType, EthernetFrame, IpProtocol, MacAddress, UdpChecksum, UdpFrame, fold_sum,
    native_sum,
};

use crate::trial::{DESTINATIONS_MAX, IpVersion};

/// Length of the head of an IPv4 frame, octets: the smallest Ethernet frame without FCS.
pub(crate) const IPV4: usize = 60;
/// Length of the head of an IPv6 frame, octets. The IPv6 header is 20 octets longer.
pub(crate) const IPV6: usize = 80;
/// Length of the signature, octets. Both heads end with it.
pub(crate) const SIGNATURE: usize = 18;
/// Length of the FCS, octets. Frame sizes include it, buffers do not.
const FCS: u16 = 4;
const ETHERNET: usize = 14;
/// Octets of a frame with FCS that are not payload of its IPv6 packet: Ethernet header, IPv6 header, FCS.
const AROUND_IPV6_PAYLOAD: u16 = 14 + 40 + FCS;

/// UDP source port of flow 0.
pub(crate) const UDP_SOURCE_FIRST: u16 = 1024;
/// UDP destination port of every frame: echo (RFC 2544, appendix C.2.6.4).
const UDP_DESTINATION: u16 = 7;
/// First IPv4 destination network: 16.0.0.0.
const FIRST_DESTINATION: u32 = 0x1000_0000;
/// First IPv6 destination prefix: 3fff::/20 is reserved for documentation (RFC 9637). The next 32 bits number its /48 networks.
const DESTINATION_PREFIX: u16 = 0x3fff;

/// Parts that all frames of one size share.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// Frame length without FCS, octets.
    pub(crate) length: u16,
    /// Head of the frame for its IP version, padded with zeros.
    octets: [u8; IPV6],
    /// Network with index 0. The networks of a pair's second port follow those of the first port.
    first_network: u32,
    /// IPv4 only: sum of the header's words without the destination and the checksum.
    header_sum: u64,
    /// Sum of the words that the UDP checksum covers, without the destination address, the source port and the signature.
    udp_sum: u64,
    /// Sum of the words of the destination address.
    destination_sum: u64,
}

/// Returns the offset of the signature in a frame.
pub(crate) fn signature_place(ip: IpVersion) -> usize {
    match ip {
        IpVersion::V4 => IPV4 - SIGNATURE,
        IpVersion::V6 => IPV6 - SIGNATURE,
    }
}

/// Returns a locally administered MAC address of the tester, composed of the port and a number.
pub(crate) fn mac_address(port: u8, number: u32) -> MacAddress {
    let [a, b, c, d] = number.to_be_bytes();
    MacAddress([0x02, port, a, b, c, d])
}

impl Template {
    /// Creates the template of frames of `size` octets with FCS. The addresses belong to the ranges reserved for benchmarks (RFC 2544,
    /// appendix C.2.2; RFC 5180, section 8).
    ///
    /// # Errors
    /// [`BuildError`] if the size does not hold the headers and the signature.
    pub(crate) fn new(ip: IpVersion, size: u16, port: u8, peer: u8) -> Result<Self, BuildError> {
        let mut frame = vec![0; usize::from(size).max(IPV6)];
        match ip {
            IpVersion::V4 => write_ipv4(&mut frame, size, port, peer)?,
            IpVersion::V6 => write_ipv6(&mut frame, size, port, peer)?,
        }
        let mut octets = [0; IPV6];
        for (octet, written) in octets.iter_mut().zip(frame) {
            *octet = written;
        }
        let sum_of = |ranges: &[Range<usize>]| -> u64 {
            let parts = ranges.iter().filter_map(|range| octets.get(range.clone()));
            parts.map(native_sum).sum()
        };
        let protocol = native_sum(&[0, IpProtocol::UDP.0]);
        // Length in the pseudo header, source address and UDP header.
        let (udp, destination) = match ip {
            IpVersion::V4 => ([38..40, 26..30, 36..40], 30..34),
            IpVersion::V6 => ([18..20, 22..38, 56..60], 38..54),
        };
        Ok(Self {
            length: size.saturating_sub(FCS),
            octets,
            first_network: u32::from(port % 2) * DESTINATIONS_MAX,
            header_sum: sum_of(&[14..24, 26..30]),
            udp_sum: sum_of(&udp).saturating_add(protocol),
            destination_sum: sum_of(&[destination]),
        })
    }

    /// Returns the head: the first [`IPV4`] or [`IPV6`] octets.
    #[inline(always)]
    pub(crate) fn head<const N: usize>(&self) -> Option<&[u8; N]> {
        self.octets.first_chunk()
    }

    /// Returns the sum of the words that the UDP checksum of a frame to the template's destination covers, without the source port and
    /// the signature.
    #[inline(always)]
    pub(crate) fn udp_sum(&self) -> u64 {
        self.udp_sum.wrapping_add(self.destination_sum)
    }

    /// Writes the destination network, if one was drawn, and the checksums that depend on it and on `varied`, the sum of the source port
    /// and the signature ([`native_sum`]).
    #[inline(always)]
    pub(crate) fn complete<const N: usize>(
        &self,
        head: &mut [u8; N],
        network: Option<u32>,
        varied: u64,
    ) {
        // Below 2^22.
        let network = network.map(|network| self.first_network.wrapping_add(network));
        // Sums of words of up to 32 bits, of a head of 80 octets.
        let total = self.udp_sum.wrapping_add(varied);
        if N == IPV6 {
            let sum = if let Some(network) = network {
                let [a, b, c, d] = network.to_be_bytes();
                let [p, q] = DESTINATION_PREFIX.to_be_bytes();
                head[38..46].copy_from_slice(&[p, q, a, b, c, d, 0, 0]);
                // The template holds the remaining octets, `::1`.
                u64::from(u16::from_ne_bytes([p, q]))
                    .wrapping_add(u64::from(u32::from_ne_bytes([a, b, c, d])))
                    .wrapping_add(u64::from(u16::from_ne_bytes([0, 1])))
            } else {
                self.destination_sum
            };
            head[60..62].copy_from_slice(&udp_checksum(total.wrapping_add(sum)));
        } else {
            let sum = if let Some(network) = network {
                let destination = FIRST_DESTINATION.wrapping_add((network << 8) | 1);
                let octets = destination.to_be_bytes();
                head[30..34].copy_from_slice(&octets);
                let sum = u64::from(u32::from_ne_bytes(octets));
                let checksum = !fold_sum(self.header_sum.wrapping_add(sum));
                head[24..26].copy_from_slice(&checksum.to_ne_bytes());
                sum
            } else {
                self.destination_sum
            };
            head[40..42].copy_from_slice(&udp_checksum(total.wrapping_add(sum)));
        }
    }
}

/// Returns the UDP checksum (RFC 768; RFC 8200, section 8.1) of words summed in memory order, as it is stored in a frame. The ones'
/// complement sum is independent of the byte order (RFC 1071, section 2).
#[inline(always)]
pub(crate) fn udp_checksum(total: u64) -> [u8; 2] {
    // A checksum of zero is transmitted as all ones: zero means that there is no checksum.
    match !fold_sum(total) {
        0 => [u8::MAX; 2],
        checksum => checksum.to_ne_bytes(),
    }
}

fn write_ipv4(frame: &mut [u8], size: u16, port: u8, peer: u8) -> Result<(), BuildError> {
    let udp = UdpFrame {
        destination_mac: mac_address(peer, 0),
        source_mac: mac_address(port, 0),
        tag: None,
        destination_ip: Ipv4Addr::new(198, 18, peer, 1),
        source_ip: Ipv4Addr::new(198, 18, port, 1),
        ttl: 64,
        destination_port: UDP_DESTINATION,
        source_port: UDP_SOURCE_FIRST,
        // `complete` writes the checksum, because each frame's payload differs.
        udp_checksum: UdpChecksum::Absent,
        payload: &[0; SIGNATURE],
        size_with_fcs: size,
    };
    udp.write(frame).map(|_| ())
}

fn write_ipv6(frame: &mut [u8], size: u16, port: u8, peer: u8) -> Result<(), BuildError> {
    let address = |of: u8| Ipv6Addr::new(0x2001, 2, 0, u16::from(of), 0, 0, 0, 1).octets();
    let mut packet = [0; IPV6 - ETHERNET];
    let length = size.saturating_sub(AROUND_IPV6_PAYLOAD);
    let [high, low] = length.to_be_bytes();
    packet[0] = 0x60;
    packet[4..8].copy_from_slice(&[high, low, IpProtocol::UDP.0, 64]);
    packet[8..24].copy_from_slice(&address(port));
    packet[24..40].copy_from_slice(&address(peer));
    packet[40..42].copy_from_slice(&UDP_SOURCE_FIRST.to_be_bytes());
    packet[42..44].copy_from_slice(&UDP_DESTINATION.to_be_bytes());
    packet[44..46].copy_from_slice(&[high, low]);
    let ethernet = EthernetFrame {
        destination: mac_address(peer, 0),
        source: mac_address(port, 0),
        tag: None,
        ethertype: EtherType::IPV6,
        payload: &packet,
        size_with_fcs: size,
    };
    ethernet.write(frame).map(|_| ())
}
