// SPDX-License-Identifier: Apache-2.0
//! A flood beside the conversations (RFC 3511, section 5.5): SYNs of clients that answer nothing. Settings and result.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// `[connections.flood]`: SYNs to the servers beside the conversations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all(deserialize = "kebab-case"))]
pub struct Flood {
    /// SYNs per second.
    pub rate: f64,
    /// First source address. Default: 198.19.0.1, or 2001:2:0:19::1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Number of consecutive source addresses.
    #[serde(default = "usual_count")]
    pub count: u32,
}

/// Returns the maximum number of addresses from the first one on that are for benchmarks (RFC 2544, appendix C.2.2), rounded down.
const fn usual_count() -> u32 {
    50_000
}

impl Flood {
    /// Returns the first source address, given the version of the servers' addresses.
    #[must_use]
    pub fn first_address(&self, is_ipv4: bool) -> IpAddr {
        let usual = match is_ipv4 {
            true => IpAddr::V4(Ipv4Addr::new(198, 19, 0, 1)),
            // RFC 5180, section 8.
            false => IpAddr::V6(Ipv6Addr::new(0x2001, 2, 0, 0x19, 0, 0, 0, 1)),
        };
        self.address.unwrap_or(usual)
    }
}

/// Counters of a flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FloodResult {
    /// SYNs of the schedule.
    pub scheduled: u64,
    /// SYNs sent.
    pub sent: u64,
    /// SYNs that arrived at the server, which does not answer them; `None` if the tester had no server.
    pub arrived: Option<u64>,
}
