// SPDX-License-Identifier: Apache-2.0
//! ARP for IPv4 over Ethernet (RFC 826).

use std::net::Ipv4Addr;

use crate::{Damage, EtherType, MacAddress, be16, be32};

/// Octets of an ARP packet for IPv4 over Ethernet.
pub const ARP_LENGTH: usize = 28;

/// Operation of an ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArpOperation {
    /// Request for the owner of an address.
    Request,
    /// Reply with the owner's MAC address.
    Reply,
    /// Any other operation code.
    Other(u16),
}

/// An ARP packet with Ethernet and IPv4 addresses.
#[derive(Clone, Copy, Debug)]
pub struct ArpPacket<'a>(&'a [u8; ARP_LENGTH]);

impl<'a> ArpPacket<'a> {
    /// Returns the packet, or `None` if it is not ARP for IPv4 over Ethernet: a bridge forwards it unchanged.
    ///
    /// # Errors
    /// [`Damage::TruncatedArp`] if the packet is truncated.
    #[inline]
    pub fn read(bytes: &'a [u8]) -> Result<Option<Self>, Damage> {
        // Hardware and protocol type and their address lengths come first and determine the length of the rest.
        let kind = bytes.first_chunk::<6>().ok_or(Damage::TruncatedArp)?;
        if be16(kind, 0) != 1 || be16(kind, 2) != EtherType::IPV4.0 || kind[4..] != [6, 4] {
            return Ok(None);
        }
        let packet = bytes.first_chunk().ok_or(Damage::TruncatedArp)?;
        Ok(Some(Self(packet)))
    }

    /// Returns the operation.
    #[must_use]
    pub fn operation(&self) -> ArpOperation {
        match be16(self.0, 6) {
            1 => ArpOperation::Request,
            2 => ArpOperation::Reply,
            other => ArpOperation::Other(other),
        }
    }

    /// Returns the MAC address of the sender.
    #[must_use]
    pub fn sender_mac(&self) -> MacAddress {
        self.mac(8)
    }

    /// Returns the IPv4 address of the sender.
    #[must_use]
    pub fn sender_ip(&self) -> Ipv4Addr {
        be32(self.0, 14).into()
    }

    /// Returns the MAC address of the target, which has no meaning in a request.
    #[must_use]
    pub fn target_mac(&self) -> MacAddress {
        self.mac(18)
    }

    /// Returns the IPv4 address of the target.
    #[must_use]
    pub fn target_ip(&self) -> Ipv4Addr {
        be32(self.0, 24).into()
    }

    fn mac(&self, at: usize) -> MacAddress {
        let high = u64::from(be16(self.0, at)) << 32;
        MacAddress::from_u64(high | u64::from(be32(self.0, at.saturating_add(2))))
    }
}
