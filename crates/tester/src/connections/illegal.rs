// SPDX-License-Identifier: Apache-2.0
//! Illegal traffic beside the conversations (RFC 3511, section 5.8): SYNs that a rule of the device has to drop. Settings and result.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// `[connections.illegal]`: SYNs that the device has to drop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all(deserialize = "kebab-case"))]
pub struct Illegal {
    /// SYNs per second.
    pub rate: f64,
    /// First source address. Default: 198.19.200.1, or 2001:2:0:20::1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Number of consecutive source addresses.
    #[serde(default = "usual_count")]
    pub count: u32,
    /// Port of the server. Default: that of the first entry of the mix over TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

const fn usual_count() -> u32 {
    250
}

impl Illegal {
    /// Returns the first source address, given the version of the servers' addresses.
    #[must_use]
    pub fn first_address(&self, is_ipv4: bool) -> IpAddr {
        let usual = match is_ipv4 {
            true => IpAddr::V4(Ipv4Addr::new(198, 19, 200, 1)),
            false => IpAddr::V6(Ipv6Addr::new(0x2001, 2, 0, 0x20, 0, 0, 0, 1)),
        };
        self.address.unwrap_or(usual)
    }
}

/// Counters of illegal traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IllegalResult {
    /// SYNs of the schedule.
    pub scheduled: u64,
    /// SYNs sent.
    pub sent: u64,
    /// SYNs that the device has forwarded to the server; `None` if the tester had no server.
    pub forwarded: Option<u64>,
}
