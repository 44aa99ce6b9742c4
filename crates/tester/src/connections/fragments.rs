// SPDX-License-Identifier: Apache-2.0
//! Fragmented datagrams beside the conversations (RFC 3511, section 5.9). Settings and result.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// Bounds of the number of fragments of a datagram.
pub(super) const FRAGMENTS: (u8, u8) = (2, 16);
/// Bounds of the data of a fragment, octets.
pub(super) const OCTETS: (u16, u16) = (16, 1400);

/// `[connections.fragments]`: datagrams in fragments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all(deserialize = "kebab-case"))]
pub struct Fragments {
    /// Datagrams per second.
    pub rate: f64,
    /// Fragments of a datagram.
    #[serde(default = "usual_fragments")]
    pub fragments: u8,
    /// Data of each fragment, octets, a multiple of 8. The first one has the UDP header in addition.
    #[serde(default = "usual_octets")]
    pub octets: u16,
    /// First source address. Default: 198.19.201.1, or 2001:2:0:21::1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Number of consecutive source addresses.
    #[serde(default = "usual_count")]
    pub count: u32,
    /// Port of the server. Default: the port of the discard service (RFC 863).
    #[serde(default = "usual_port")]
    pub port: u16,
}

const fn usual_fragments() -> u8 {
    2
}

const fn usual_octets() -> u16 {
    512
}

const fn usual_count() -> u32 {
    250
}

const fn usual_port() -> u16 {
    9
}

impl Fragments {
    /// Returns the first source address, given the version of the servers' addresses.
    #[must_use]
    pub fn first_address(&self, is_ipv4: bool) -> IpAddr {
        let usual = match is_ipv4 {
            true => IpAddr::V4(Ipv4Addr::new(198, 19, 201, 1)),
            false => IpAddr::V6(Ipv6Addr::new(0x2001, 2, 0, 0x21, 0, 0, 0, 1)),
        };
        self.address.unwrap_or(usual)
    }
}

/// Counters of fragmented datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FragmentsResult {
    /// Datagrams of the schedule.
    pub scheduled: u64,
    /// Datagrams sent.
    pub sent: u64,
    /// Fragments sent.
    pub sent_fragments: u64,
    /// Counters of the server; `None` if the tester had no server.
    pub arrived: Option<ArrivedFragments>,
}

impl FragmentsResult {
    /// Returns the number of datagrams that did not arrive completely.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let complete = self.arrived.map(|arrived| arrived.complete);
        complete.map_or(0, |complete| self.sent.saturating_sub(complete))
    }
}

/// Fragmented datagrams that arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrivedFragments {
    /// Fragments.
    pub fragments: u64,
    /// Datagrams that the device has reassembled.
    pub reassembled: u64,
    /// Fragments and reassembled datagrams with other contents, or cut otherwise than they were sent.
    pub damaged: u64,
    /// Datagrams of which all octets arrived, in fragments or reassembled.
    pub complete: u64,
}
