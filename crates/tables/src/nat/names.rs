// SPDX-License-Identifier: Apache-2.0
//! Protocols and drop reasons of NAT. Counters, JSON and texts are generated from these lists.

use crate::named;

named! {
    /// Reason for dropping a packet that requires translation.
    pub enum NatDrop {
        /// Headers are truncated, or their lengths are inconsistent.
        Malformed = "malformed", "malformed headers";
        /// A fragment: ports are in the first fragment only.
        Fragment = "fragment", "fragment";
        /// Neither TCP nor UDP nor ICMP.
        Protocol = "protocol", "protocol without ports";
        /// ICMP message other than an echo or an error.
        IcmpType = "icmp_type", "ICMP type";
        /// The checksum of an ICMP error, or of the IP header in it, is wrong (RFC 5508, REQ-3).
        Checksum = "checksum", "checksum of an ICMP error";
        /// No mapping.
        NoMapping = "no_mapping", "no mapping";
        /// The host has the maximum number of port blocks, and no free port in them.
        HostLimit = "host_limit", "host at its limit of port blocks";
        /// No free port block.
        NoPorts = "no_ports", "no free port block";
        /// The table is full.
        TableFull = "table_full", "mapping table full";
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
