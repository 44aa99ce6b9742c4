// SPDX-License-Identifier: Apache-2.0
//! Protocols and drop reasons of NAT. Counters, JSON and texts are generated from these lists.

use crate::drops::RouterDrop;
use crate::named;

/// First of the inside addresses that stand for IPv6 clients: reserved ones, 240.0.0.0/8 (RFC 1112, section 4), which no host has.
pub(crate) const CLIENT_NUMBERS: u32 = 240 << 24;

/// Inside address of a static forward to a host of another forwarding CPU, which has no number here. No host has it.
pub(crate) const HOST_ELSEWHERE: u32 = 0;

/// Returns true for an inside address that stands for an IPv6 client.
#[inline(always)]
#[must_use]
pub const fn is_client_number(address: u32) -> bool {
    address >> 24 == CLIENT_NUMBERS >> 24
}

named! {
    /// Reason for dropping a packet that requires translation.
    pub enum NatDrop {
        /// Headers are truncated, or their lengths are inconsistent.
        Malformed = "malformed", "malformed headers";
        /// A later fragment of a datagram whose first one, which has the ports, is not known.
        Fragment = "fragment", "fragment without the first one";
        /// Neither TCP nor UDP nor ICMP.
        Protocol = "protocol", "protocol without ports";
        /// ICMP message other than an echo or an error.
        IcmpType = "icmp_type", "ICMP type";
        /// The checksum of an ICMP error, or of the IP header in it, is wrong (RFC 5508, REQ-3).
        Checksum = "checksum", "checksum of an ICMP error";
        /// No mapping.
        NoMapping = "no_mapping", "no mapping";
        /// The mapping depends on another remote endpoint than that of the packet.
        Filtered = "filtered", "mapping of another remote host";
        /// The host has the maximum number of port blocks, and no free port in them.
        HostLimit = "host_limit", "host at its limit of port blocks";
        /// No free port block.
        NoPorts = "no_ports", "no free port block";
        /// The table is full.
        TableFull = "table_full", "mapping table full";
        /// The packet is of another VRF than the outside interface.
        OtherVrf = "other_vrf", "another VRF";
    }
}

impl NatDrop {
    /// Returns the reason as a drop of the router.
    #[must_use]
    pub const fn router_drop(self) -> RouterDrop {
        match self {
            Self::Malformed => RouterDrop::NatMalformed,
            Self::Fragment => RouterDrop::NatFragment,
            Self::Protocol => RouterDrop::NatProtocol,
            Self::IcmpType => RouterDrop::NatIcmpType,
            Self::Checksum => RouterDrop::NatChecksum,
            Self::NoMapping => RouterDrop::NatNoMapping,
            Self::Filtered => RouterDrop::NatFiltered,
            Self::HostLimit => RouterDrop::NatHostLimit,
            Self::NoPorts => RouterDrop::NatNoPorts,
            Self::TableFull => RouterDrop::NatTableFull,
            Self::OtherVrf => RouterDrop::NatOtherVrf,
        }
    }
}

named! {
    /// Protocol of a mapping.
    pub enum NatProtocol {
        /// TCP.
        Tcp = "tcp";
        /// UDP.
        Udp = "udp";
        /// ICMP echo, whose identifier is the port (RFC 5508, REQ-1).
        Icmp = "icmp";
    }
}

impl NatProtocol {
    /// Returns the protocol with this IP protocol number (IANA), if NAT knows it.
    #[must_use]
    pub const fn of_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Icmp),
            6 => Some(Self::Tcp),
            17 => Some(Self::Udp),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_one_of_the_router() {
        for reason in NatDrop::ALL {
            let name = reason.name().replace('_', "-");
            assert_eq!(reason.router_drop().name(), format!("nat-{name}"));
        }
    }
}
