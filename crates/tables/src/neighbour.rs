// SPDX-License-Identifier: Apache-2.0
//! Neighbour resolution: maps IP addresses to MAC addresses (RFC 826 for IPv4, RFC 4861 for IPv6).
//!
//! A state machine without clock and I/O: each event carries the time, and the results are [`Action`]s. Both IP versions have the states of
//! RFC 4861, section 7.3.2. A resolved neighbour counts as in use: if it is not heard from within the reachable time, it is probed while
//! packets continue to flow.
//!
//! Memory is bounded: neighbours, packets waiting for resolution, and requests per second have limits. RFC 6583 describes the effects of a
//! scan of a large prefix without such limits.

mod arp;
mod bounds;
mod kernel;
mod limits;
mod nd;
mod received;
mod table;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use ipnet::IpNet;
use quietwire_packet::MacAddress;

pub use limits::Limits;
pub(crate) use nd::checksum as icmpv6_checksum;
pub use table::Neighbours;

/// Addresses of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceInfo {
    /// Its number.
    pub number: u16,
    /// Its address on the link.
    pub mac: MacAddress,
    /// Its IP addresses, each with the length of its link's prefix.
    pub addresses: Vec<IpNet>,
}

impl InterfaceInfo {
    /// Returns the link-local address, derived from the MAC address (RFC 4291, appendix A).
    #[must_use]
    pub fn link_local(&self) -> Ipv6Addr {
        let [_, _, a, b, c, d, e, f] = self.mac.to_u64().to_be_bytes();
        Ipv6Addr::from([
            0xfe,
            0x80,
            0,
            0,
            0,
            0,
            0,
            0,
            a ^ 2,
            b,
            c,
            0xff,
            0xfe,
            d,
            e,
            f,
        ])
    }

    /// Returns true if an address is the interface's own.
    #[must_use]
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|net| net.addr() == address)
            || (self.has_ipv6() && address == self.link_local())
    }

    /// Returns true if the interface has an IPv6 address.
    #[must_use]
    pub fn has_ipv6(&self) -> bool {
        self.addresses.iter().any(|net| net.addr().is_ipv6())
    }

    /// Returns true if an address is on the interface's link.
    #[must_use]
    pub fn is_on_link(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V6(address) if address.is_unicast_link_local() => self.has_ipv6(),
            _ => self.addresses.iter().any(|net| net.contains(&address)),
        }
    }

    /// Returns true if another host on the interface's link can have an address: not a multicast address, not a broadcast address of the
    /// link (RFC 1122, section 3.2.1.3; /31 links have none, RFC 3021), and not our own.
    #[must_use]
    pub fn may_be_neighbour(&self, address: IpAddr) -> bool {
        let is_broadcast = |net: &IpNet| match net {
            IpNet::V4(net) => {
                net.prefix_len() < 31
                    && [net.broadcast(), net.network()]
                        .map(IpAddr::V4)
                        .contains(&address)
            }
            IpNet::V6(_) => false,
        };
        !address.is_multicast()
            && !address.is_unspecified()
            && address != IpAddr::V4(std::net::Ipv4Addr::BROADCAST)
            && !self.addresses.iter().any(is_broadcast)
            && !self.is_own(address)
    }

    /// Returns the source address of a request for another address: on the same link, or any of the same IP version.
    #[must_use]
    pub fn source_for(&self, address: IpAddr) -> Option<IpAddr> {
        let is_same = |net: &&IpNet| net.addr().is_ipv4() == address.is_ipv4();
        match address {
            IpAddr::V6(to) if to.is_unicast_link_local() => Some(self.link_local().into()),
            _ => {
                let of_link = self.addresses.iter().find(|net| net.contains(&address));
                let any = || self.addresses.iter().find(is_same);
                of_link.or_else(any).map(IpNet::addr)
            }
        }
    }
}

/// Action requested by the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<P> {
    /// Send an untagged frame out of an interface.
    Transmit {
        /// Number of the interface.
        interface: u16,
        /// The frame, without FCS.
        frame: Vec<u8>,
    },
    /// A neighbour is resolved, or its MAC address changed: these packets can be sent.
    Found {
        /// Number of the interface.
        interface: u16,
        /// Its IP address.
        address: IpAddr,
        /// Its MAC address.
        mac: MacAddress,
        /// Packets that waited for it.
        packets: Vec<P>,
    },
    /// A resolved neighbour no longer answers.
    Lost {
        /// Number of the interface.
        interface: u16,
        /// Its IP address.
        address: IpAddr,
    },
    /// Resolution failed: these packets cannot be delivered (RFC 1812, section 4.3.3.1).
    Unreachable {
        /// Number of the interface.
        interface: u16,
        /// The unresolved IP address.
        address: IpAddr,
        /// Packets that waited for it.
        packets: Vec<P>,
    },
}

/// State of a neighbour (RFC 4861, section 7.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Resolution is in progress.
    Incomplete,
    /// Recently confirmed.
    Reachable,
    /// Learned from an unsolicited message, or reported by a third party.
    Stale,
    /// Not confirmed for the reachable time, and being probed.
    Probe,
    /// Configured here or in the kernel, and never probed.
    Permanent,
}

impl State {
    /// Returns its name in JSON and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Incomplete => "incomplete",
            Self::Reachable => "reachable",
            Self::Stale => "stale",
            Self::Probe => "probe",
            Self::Permanent => "permanent",
        }
    }
}

/// Origin of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Resolved, or learned from its own message.
    Found,
    /// Known to the kernel, on the other side of a tap.
    Kernel,
    /// Set by an operator.
    Static,
}

impl Origin {
    /// Returns its name in JSON and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::Kernel => "kernel",
            Self::Static => "static",
        }
    }
}

/// A neighbour in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourInfo {
    /// Number of the interface.
    pub interface: u16,
    /// Its IP address.
    pub address: IpAddr,
    /// Its MAC address, if known.
    pub mac: Option<MacAddress>,
    /// Its state.
    pub state: State,
    /// Origin of its latest information.
    pub origin: Origin,
    /// Time since it was last heard from, or since the first request.
    pub age: Duration,
}

/// Counters of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests sent.
    pub asked: u64,
    /// Requests suppressed by the rate limit.
    pub not_asked: u64,
    /// Replies to requests for our own addresses.
    pub answered: u64,
    /// Packets dropped because too many waited, or because no request could be sent.
    pub overflowed: u64,
    /// Neighbours not added because the table was full.
    pub no_space: u64,
    /// Neighbours evicted by another.
    pub evicted: u64,
    /// Packets dropped because no neighbour can have their next-hop address.
    pub refused: u64,
    /// Frames that claim one of our own addresses (RFC 5227).
    pub conflicts: u64,
    /// Invalid messages.
    pub invalid: u64,
}
