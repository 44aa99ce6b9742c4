// SPDX-License-Identifier: Apache-2.0
//! Both MAC addresses of a frame, and their hashes.

use quietwire_packet::ETHERNET_HEADER_LENGTH;

use crate::fdb::{Fdb, Hash, Key};

/// Both addresses of a frame, as numbers; [`Addresses::NONE`] for a frame too short for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Addresses {
    pub(super) destination: u64,
    pub(super) source: u64,
}

impl Addresses {
    pub(super) const NONE: Self = Self {
        destination: u64::MAX,
        source: u64::MAX,
    };

    #[inline(always)]
    pub(super) fn read(frame: &[u8]) -> Self {
        frame.first_chunk().map_or(Self::NONE, Self::of_header)
    }

    #[inline(always)]
    pub(super) fn of_header(header: &[u8; ETHERNET_HEADER_LENGTH]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *header;
        // Equivalent to MacAddress::to_u64, with one load of eight octets each.
        Self {
            destination: u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 16,
            source: u64::from_be_bytes([e, f, g, h, i, j, k, l]) & ADDRESS_MASK,
        }
    }

    #[inline(always)]
    pub(super) fn is_reserved(self) -> bool {
        self.destination & RESERVED_MASK == RESERVED
    }

    /// Returns true if the source is a unicast address, as it must be.
    #[inline(always)]
    pub(super) fn has_station(self) -> bool {
        self.source & GROUP == 0 && self.source != 0
    }

    #[inline(always)]
    pub(super) fn is_to_group(self) -> bool {
        self.destination & GROUP != 0
    }
}

const ADDRESS_MASK: u64 = 0xffff_ffff_ffff;
/// ff:ff:ff:ff:ff:ff.
pub(super) const BROADCAST: u64 = ADDRESS_MASK;

/// First bit on the wire of an address given as a number: set for group addresses.
const GROUP: u64 = 1 << 40;

/// 01:80:C2:00:00:00, and the mask of reserved addresses (IEEE 802.1Q, table 8-1).
const RESERVED: u64 = 0x0180_c200_0000;
const RESERVED_MASK: u64 = 0xffff_ffff_fff0;

/// Hashes of both addresses in the address table.
#[derive(Clone, Copy)]
pub(super) struct Hashes {
    pub(super) destination: Hash,
    pub(super) source: Hash,
}

impl Hashes {
    #[inline(always)]
    pub(super) fn new(fdb: &Fdb, vlan: u16, addresses: Addresses) -> Self {
        Self {
            destination: fdb.hash(Key::in_vlan(vlan, addresses.destination)),
            source: fdb.hash(Key::in_vlan(vlan, addresses.source)),
        }
    }

    #[inline(always)]
    pub(super) fn prefetch(self, fdb: &Fdb) -> Self {
        fdb.prefetch(self.destination);
        fdb.prefetch(self.source);
        self
    }
}
