// SPDX-License-Identifier: Apache-2.0
//! Ethernet header and VLAN tags (IEEE 802.3, clause 3; IEEE 802.1Q, clause 9).

use std::fmt;

use crate::{Damage, MacAddress, be16};

/// Octets of an Ethernet header without tags.
pub const ETHERNET_HEADER_LENGTH: usize = 14;
/// Octets of one VLAN tag.
pub const VLAN_TAG_LENGTH: usize = 4;
/// Maximum number of parsed VLAN tags; a third one is payload.
pub const VLAN_TAGS_MAX: usize = 2;

/// The type field of Ethernet, or a length in an 802.3 frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: Self = Self(0x0800);
    /// ARP.
    pub const ARP: Self = Self(0x0806);
    /// Customer VLAN tag (802.1Q).
    pub const VLAN: Self = Self(0x8100);
    /// Service VLAN tag (802.1ad).
    pub const SERVICE_VLAN: Self = Self(0x88a8);
    /// IPv6.
    pub const IPV6: Self = Self(0x86dd);
    /// For local experiments (IEEE 802, clause 9.2.3).
    pub const LOCAL_EXPERIMENTAL: Self = Self(0x88b5);

    /// Returns true for the type of a customer or service VLAN tag.
    #[must_use]
    #[inline]
    pub const fn is_vlan(self) -> bool {
        matches!(self, Self::VLAN | Self::SERVICE_VLAN)
    }

    /// Returns true if the field is the length of an 802.3 frame, and LLC follows.
    #[must_use]
    pub const fn is_length(self) -> bool {
        self.0 <= 1500
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:04x}", self.0)
    }
}

/// VLAN ID, 1 to 4094.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(try_from = "u16", into = "u16")]
pub struct VlanId(u16);

impl TryFrom<u16> for VlanId {
    type Error = VlanIdError;

    fn try_from(number: u16) -> Result<Self, VlanIdError> {
        Self::new(number)
    }
}

impl From<VlanId> for u16 {
    fn from(vlan: VlanId) -> Self {
        vlan.0
    }
}

/// Error: a number outside the range of VLAN IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a VLAN ID (use 1 to 4094; 0 means none, 4095 is reserved)")]
pub struct VlanIdError(pub u16);

impl VlanId {
    /// Creates a VLAN ID.
    ///
    /// # Errors
    /// [`VlanIdError`] for 0, which marks a priority tag, and for 4095 and above
    /// (IEEE 802.1Q, table 9-2).
    pub const fn new(number: u16) -> Result<Self, VlanIdError> {
        match number {
            1..=4094 => Ok(Self(number)),
            _ => Err(VlanIdError(number)),
        }
    }

    /// Returns the ID as a number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for VlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One VLAN tag, as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VlanTag {
    /// Type of the tag: [`EtherType::VLAN`] or [`EtherType::SERVICE_VLAN`].
    pub tpid: EtherType,
    /// Tag control information: priority (3 bits), drop eligible (1 bit), number (12 bits).
    pub tci: u16,
}

impl VlanTag {
    /// Returns a customer tag with priority 0.
    #[must_use]
    pub const fn customer(id: VlanId) -> Self {
        Self {
            tpid: EtherType::VLAN,
            tci: id.0,
        }
    }

    /// Returns the VLAN; `None` for 0 (a priority tag) and for the reserved 4095.
    #[must_use]
    #[inline]
    pub const fn id(self) -> Option<VlanId> {
        match self.tci & 0x0fff {
            0 | 0x0fff => None,
            number => Some(VlanId(number)),
        }
    }

    /// Returns the priority code point, 0 to 7.
    #[must_use]
    pub const fn priority(self) -> u8 {
        (self.tci >> 13) as u8
    }

    /// Returns the drop eligible indicator.
    #[must_use]
    pub const fn drop_eligible(self) -> bool {
        self.tci & 0x1000 != 0
    }
}

/// An Ethernet header: the first 14 octets of a frame.
#[derive(Clone, Copy, Debug)]
pub struct EthernetHeader<'a>(&'a [u8; ETHERNET_HEADER_LENGTH]);

impl<'a> EthernetHeader<'a> {
    /// Splits a frame into the header and the octets after it.
    ///
    /// # Errors
    /// [`Damage::Short`].
    #[inline]
    pub fn split(frame: &'a [u8]) -> Result<(Self, &'a [u8]), Damage> {
        let (header, rest) = frame.split_first_chunk().ok_or(Damage::Short)?;
        Ok((Self(header), rest))
    }

    /// Returns the destination address.
    #[must_use]
    #[inline]
    pub fn destination(&self) -> MacAddress {
        let [a, b, c, d, e, f, ..] = *self.0;
        MacAddress([a, b, c, d, e, f])
    }

    /// Returns the source address.
    #[must_use]
    #[inline]
    pub fn source(&self) -> MacAddress {
        let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = *self.0;
        MacAddress([a, b, c, d, e, f])
    }

    /// Returns the type field; in a tagged frame, that of the tag.
    #[must_use]
    #[inline]
    pub fn ethertype(&self) -> EtherType {
        EtherType(be16(self.0, 12))
    }
}

/// Result of [`split_tags`].
pub(crate) struct Untagged<'a> {
    pub(crate) tags: [Option<VlanTag>; VLAN_TAGS_MAX],
    /// Type after the tags.
    pub(crate) ethertype: EtherType,
    /// Octets after the tags.
    pub(crate) payload: &'a [u8],
}

/// Skips at most [`VLAN_TAGS_MAX`] tags. `ethertype` is the type in the Ethernet header, `payload` the octets after it.
#[inline]
pub(crate) fn split_tags(
    mut ethertype: EtherType,
    mut payload: &[u8],
) -> Result<Untagged<'_>, Damage> {
    let mut tags = [None; VLAN_TAGS_MAX];
    for tag in &mut tags {
        if !ethertype.is_vlan() {
            break;
        }
        let (header, rest) = payload
            .split_first_chunk::<VLAN_TAG_LENGTH>()
            .ok_or(Damage::TruncatedVlan)?;
        *tag = Some(VlanTag {
            tpid: ethertype,
            tci: be16(header, 0),
        });
        ethertype = EtherType(be16(header, 2));
        payload = rest;
    }
    Ok(Untagged {
        tags,
        ethertype,
        payload,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlan_numbers() {
        assert_eq!(VlanId::new(0), Err(VlanIdError(0)));
        assert_eq!(VlanId::new(4095), Err(VlanIdError(4095)));
        assert_eq!(VlanId::new(4094).unwrap().get(), 4094);
        let tag = VlanTag {
            tpid: EtherType::VLAN,
            tci: 0xb064,
        };
        assert_eq!(tag.id(), VlanId::new(100).ok());
        assert_eq!((tag.priority(), tag.drop_eligible()), (5, true));
        assert_eq!(VlanTag { tci: 0xf000, ..tag }.id(), None);
        assert_eq!(VlanTag { tci: 0x0fff, ..tag }.id(), None);
    }
}
