// SPDX-License-Identifier: Apache-2.0
//! Frames as bytes: views of headers, one pass over a whole frame, builders of test frames, checksums.
//!
//! Contains all knowledge of field positions. Views ([`EthernetHeader`], [`Ipv4Header`], …) borrow the bytes, allocate
//! nothing and cannot read past them; [`parse`] determines in one pass what a frame is and where its parts begin, or how it
//! is damaged ([`Damage`]); [`UdpFrame`] and [`EthernetFrame`] write frames into a slice.
//!
//! Must not contain packet buffers of any library, tables, or decisions about what to do with a frame.
//!
//! Frames are as drivers pass them: from the destination address to the end of the data, without preamble and FCS. If a size
//! includes the FCS, its name has `fcs`.

// Bytes from outside: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod arp;
mod build;
mod checksum;
mod damage;
mod ethernet;
mod ip;
mod ipv4;
mod ipv6;
mod mac;
mod merge;
mod parse;
mod partial;
mod segment;
#[cfg(test)]
mod tests;
mod transport;

pub use arp::{ARP_LENGTH, ArpOperation, ArpPacket};
pub use build::{BuildError, EthernetFrame, FCS_LENGTH, UdpChecksum, UdpFrame};
pub use checksum::{
    Checksum, checksum, fold_sum, native_sum, udp_checksum, update_checksum_u16,
    update_checksum_u32,
};
pub use damage::Damage;
pub use ethernet::{
    ETHERNET_HEADER_LENGTH, EtherType, EthernetHeader, VLAN_TAG_LENGTH, VLAN_TAGS_MAX, VlanId,
    VlanIdError, VlanTag,
};
pub use ip::{Fragment, IpProtocol};
pub use ipv4::{IPV4_DESTINATION_AT, IPV4_HEADER_MIN, IPV4_SOURCE_AT, Ipv4Header, ipv4_address_at};
pub use ipv6::{
    IPV6_EXTENSIONS_MAX, IPV6_HEADER_LENGTH, Ipv6Extensions, Ipv6Header, walk_ipv6_extensions,
};
pub use mac::{MacAddress, MacAddressError};
pub use merge::{DataSegment, Merge};
pub use parse::{FRAME_MAX, Ip, Network, Parsed, Transport, parse};
pub use partial::complete_partial_checksum;
pub use segment::{LargeFrame, SEGMENT_HEADERS_MAX};
pub use transport::{
    ICMP_HEADER_LENGTH, IcmpHeader, TCP_CHECKSUM_OFFSET, TCP_HEADER_MIN, TcpHeader,
    UDP_CHECKSUM_OFFSET, UDP_HEADER_LENGTH, UdpHeader,
};

/// Returns two octets at an offset as a number in network byte order. `None` if the octets end before.
#[inline]
#[must_use]
pub fn be16_at(octets: &[u8], at: usize) -> Option<u16> {
    let two = octets.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*two))
}

/// Returns four octets at an offset like [`be16_at`].
#[inline]
#[must_use]
pub fn be32_at(octets: &[u8], at: usize) -> Option<u32> {
    let four = octets.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*four))
}

/// Returns two octets of a header at a fixed offset. The offset is a constant at every call, so the compiler removes the
/// bounds checks, and a wrong one fails every test that reads the field.
#[inline]
#[expect(
    clippy::indexing_slicing,
    reason = "constant offsets; a const function cannot use get"
)]
const fn be16<const N: usize>(header: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at.saturating_add(1)]])
}

/// Returns four octets of a header at a fixed offset.
#[inline]
#[expect(
    clippy::indexing_slicing,
    reason = "constant offsets; a const function cannot use get"
)]
const fn be32<const N: usize>(header: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([
        header[at],
        header[at.saturating_add(1)],
        header[at.saturating_add(2)],
        header[at.saturating_add(3)],
    ])
}
