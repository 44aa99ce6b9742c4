// SPDX-License-Identifier: Apache-2.0
//! Builders of test frames (RFC 2544, section 9 and appendix C). They write into a slice and allocate nothing.

use std::net::Ipv4Addr;

use crate::{
    Checksum, ETHERNET_HEADER_LENGTH, EtherType, IPV4_HEADER_MIN, IpProtocol, MacAddress,
    UDP_HEADER_LENGTH, VLAN_TAG_LENGTH, VlanTag, checksum, udp_checksum,
};

/// Octets of the frame check sequence: included in frame sizes, never in the slice.
pub const FCS_LENGTH: usize = 4;

/// Reason why a frame was not written. The slice is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// Headers and payload exceed the requested size.
    #[error(
        "a frame of {size_with_fcs} octets with FCS is too small: headers, payload and FCS require {needed_with_fcs} octets"
    )]
    SizeTooSmall {
        /// Requested size.
        size_with_fcs: u16,
        /// Minimum size.
        needed_with_fcs: usize,
    },
    /// The slice is shorter than the frame.
    #[error("the buffer holds {buffer} octets, but the frame without FCS requires {needed}")]
    BufferTooSmall {
        /// Octets of the buffer.
        buffer: usize,
        /// Octets of the frame without FCS.
        needed: usize,
    },
}

/// Whether a UDP frame carries a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpChecksum {
    /// The correct checksum.
    Computed,
    /// Zero, which means no checksum for UDP over IPv4 (RFC 768): for senders that change the payload of every frame and
    /// have no time to compute its sum.
    Absent,
}

/// An Ethernet frame with a payload of any type, with or without a VLAN tag.
#[derive(Clone, Copy, Debug)]
pub struct EthernetFrame<'a> {
    /// Destination address.
    pub destination: MacAddress,
    /// Source address.
    pub source: MacAddress,
    /// Tag, if any.
    pub tag: Option<VlanTag>,
    /// Type of the payload.
    pub ethertype: EtherType,
    /// First octets of the payload; zeros follow up to the frame's size.
    pub payload: &'a [u8],
    /// Size of the frame with FCS, as in RFC 2544. The minimum of Ethernet is 64; smaller frames are written too.
    pub size_with_fcs: u16,
}

impl EthernetFrame<'_> {
    /// Writes the frame to the start of `buffer`; returns its length without FCS.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn write(&self, buffer: &mut [u8]) -> Result<usize, BuildError> {
        let needed = link_length(self.tag).saturating_add(self.payload.len());
        let frame = frame_of(buffer, self.size_with_fcs, needed)?;
        let payload = write_link(
            frame,
            self.destination,
            self.source,
            self.tag,
            self.ethertype,
        );
        write_padded(payload, self.payload);
        Ok(frame.len())
    }
}

/// A UDP frame over IPv4. The IPv4 and UDP lengths cover the frame to its end: the zeros after `payload` are part of the UDP
/// payload, not padding.
#[derive(Clone, Copy, Debug)]
pub struct UdpFrame<'a> {
    /// Destination MAC address.
    pub destination_mac: MacAddress,
    /// Source MAC address.
    pub source_mac: MacAddress,
    /// Tag, if any.
    pub tag: Option<VlanTag>,
    /// Destination IPv4 address.
    pub destination_ip: Ipv4Addr,
    /// Source IPv4 address.
    pub source_ip: Ipv4Addr,
    /// Time to live, hops.
    pub ttl: u8,
    /// Destination UDP port.
    pub destination_port: u16,
    /// Source UDP port.
    pub source_port: u16,
    /// Whether the frame has a UDP checksum.
    pub udp_checksum: UdpChecksum,
    /// First octets of the UDP payload; zeros follow up to the frame's size.
    pub payload: &'a [u8],
    /// Size of the frame with FCS, as in RFC 2544. The minimum of Ethernet is 64; smaller frames are written too.
    pub size_with_fcs: u16,
}

impl UdpFrame<'_> {
    /// Returns the offset of the UDP payload, octets from the start of the frame.
    #[must_use]
    pub fn payload_offset(&self) -> usize {
        link_length(self.tag).saturating_add(IPV4_HEADER_MIN + UDP_HEADER_LENGTH)
    }

    /// Writes the frame to the start of `buffer`; returns its length without FCS.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn write(&self, buffer: &mut [u8]) -> Result<usize, BuildError> {
        let needed = self.payload_offset().saturating_add(self.payload.len());
        let frame = frame_of(buffer, self.size_with_fcs, needed)?;
        let packet = write_link(
            frame,
            self.destination_mac,
            self.source_mac,
            self.tag,
            EtherType::IPV4,
        );
        // Neither length is ever limited: the size of the whole frame is a u16.
        let ip_length = u16::try_from(packet.len()).unwrap_or(u16::MAX);
        let (ip, datagram) = packet.split_at_mut(IPV4_HEADER_MIN);
        let udp_length = u16::try_from(datagram.len()).unwrap_or(u16::MAX);
        ip.copy_from_slice(&self.ip_header(ip_length));
        let (udp, payload) = datagram.split_at_mut(UDP_HEADER_LENGTH);
        write_padded(payload, self.payload);
        udp.copy_from_slice(&self.udp_header(udp_length, payload));
        Ok(frame.len())
    }

    fn ip_header(&self, total_length: u16) -> [u8; IPV4_HEADER_MIN] {
        let mut header = [0; IPV4_HEADER_MIN];
        header[0] = 0x45;
        header[2..4].copy_from_slice(&total_length.to_be_bytes());
        // Don't fragment: such a datagram needs no unique identification (RFC 6864, section 4.1).
        header[6] = 0x40;
        header[8] = self.ttl;
        header[9] = IpProtocol::UDP.0;
        header[12..16].copy_from_slice(&self.source_ip.octets());
        header[16..20].copy_from_slice(&self.destination_ip.octets());
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    }

    fn udp_header(&self, length: u16, payload: &[u8]) -> [u8; UDP_HEADER_LENGTH] {
        let mut header = [0; UDP_HEADER_LENGTH];
        header[0..2].copy_from_slice(&self.source_port.to_be_bytes());
        header[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        header[4..6].copy_from_slice(&length.to_be_bytes());
        if self.udp_checksum == UdpChecksum::Computed {
            let mut sum = Checksum::new();
            // The pseudo header of RFC 768.
            sum.add(&self.source_ip.octets());
            sum.add(&self.destination_ip.octets());
            sum.add(&[0, IpProtocol::UDP.0]);
            sum.add(&length.to_be_bytes());
            sum.add(&header);
            sum.add(payload);
            let sum = udp_checksum(sum.finish());
            header[6..8].copy_from_slice(&sum.to_be_bytes());
        }
        header
    }
}

fn link_length(tag: Option<VlanTag>) -> usize {
    ETHERNET_HEADER_LENGTH.saturating_add(tag.map_or(0, |_| VLAN_TAG_LENGTH))
}

/// Returns the part of `buffer` that a frame of this size fills.
fn frame_of(buffer: &mut [u8], size_with_fcs: u16, needed: usize) -> Result<&mut [u8], BuildError> {
    let length = usize::from(size_with_fcs).saturating_sub(FCS_LENGTH);
    if length < needed {
        return Err(BuildError::SizeTooSmall {
            size_with_fcs,
            needed_with_fcs: needed.saturating_add(FCS_LENGTH),
        });
    }
    let available = buffer.len();
    buffer.get_mut(..length).ok_or(BuildError::BufferTooSmall {
        buffer: available,
        needed: length,
    })
}

/// Writes the Ethernet header and the tag; returns the octets after them. The caller has checked that `frame` is long
/// enough.
fn write_link(
    frame: &mut [u8],
    destination: MacAddress,
    source: MacAddress,
    tag: Option<VlanTag>,
    ethertype: EtherType,
) -> &mut [u8] {
    let (link, rest) = frame.split_at_mut(link_length(tag));
    let tag = tag.map(|tag| (tag.tpid.0.to_be_bytes(), tag.tci.to_be_bytes()));
    let header = [&destination.0[..], &source.0[..]].into_iter();
    let header = header.chain(tag.iter().flat_map(|(tpid, tci)| [&tpid[..], &tci[..]]));
    let ethertype = ethertype.0.to_be_bytes();
    let octets = header.chain([&ethertype[..]]).flatten();
    for (to, from) in link.iter_mut().zip(octets) {
        *to = *from;
    }
    rest
}

/// Fills `to` with `payload`, which is at most as long, and zeros.
fn write_padded(to: &mut [u8], payload: &[u8]) {
    let (head, padding) = to.split_at_mut(payload.len());
    head.copy_from_slice(payload);
    padding.fill(0);
}
