// SPDX-License-Identifier: Apache-2.0
//! Neighbours on links: which MAC address an IP address has (RFC 826 for IPv4, RFC 4861 for IPv6).
//!
//! A state machine without clock and without I/O: the time comes in with each event, and what is to be done comes out as
//! [`Action`]s. States are those of RFC 4861, section 7.3.2, for both versions of IP. A neighbour that was found counts as
//! in use: when it has not been heard of for the reachable time, it is asked again, while packets go on.
//!
//! Memory is bounded: so many neighbours, so many packets waiting for one that is asked for, and so many questions a second
//! (RFC 6583 tells what happens otherwise when somebody scans a large prefix).

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

/// What is known of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its number.
    pub number: u16,
    /// Its address on the link.
    pub mac: MacAddress,
    /// Its IP addresses, each with the length of its link's prefix.
    pub addresses: Vec<IpNet>,
}

impl Facts {
    /// The link-local address, made of the MAC address (RFC 4291, appendix A).
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

    /// True when an address is the interface's own.
    #[must_use]
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|net| net.addr() == address)
            || (self.has_ipv6() && address == self.link_local())
    }

    /// True with an IPv6 address.
    #[must_use]
    pub fn has_ipv6(&self) -> bool {
        self.addresses.iter().any(|net| net.addr().is_ipv6())
    }

    /// True when an address is on the interface's link.
    #[must_use]
    pub fn is_on_link(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V6(address) if address.is_unicast_link_local() => self.has_ipv6(),
            _ => self.addresses.iter().any(|net| net.contains(&address)),
        }
    }

    /// True when a single other host on the interface's link can have an address: it is no group's, no broadcast address of
    /// the link (RFC 1122, section 3.2.1.3; on links of two, RFC 3021, there is none), and not our own.
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

    /// The interface's address to ask for another with: on the same link, or any of its version.
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

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<P> {
    /// Send a frame without tags out of an interface.
    Transmit {
        /// Number of the interface.
        interface: u16,
        /// The frame, without FCS.
        frame: Vec<u8>,
    },
    /// A neighbour was found, or has another MAC address: these packets can go to it.
    Found {
        /// Number of the interface.
        interface: u16,
        /// Its IP address.
        address: IpAddr,
        /// Its MAC address.
        mac: MacAddress,
        /// What waited for it.
        packets: Vec<P>,
    },
    /// A neighbour that had been found does not answer any more.
    Lost {
        /// Number of the interface.
        interface: u16,
        /// Its IP address.
        address: IpAddr,
    },
    /// Nobody answers: these packets cannot be delivered (RFC 1812, section 4.3.3.1).
    Unreachable {
        /// Number of the interface.
        interface: u16,
        /// The IP address that nobody has.
        address: IpAddr,
        /// What waited for it.
        packets: Vec<P>,
    },
}

/// State of a neighbour (RFC 4861, section 7.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is asked for, and nothing is known of it.
    Incomplete,
    /// It has answered not long ago.
    Reachable,
    /// It has spoken of itself, or another has, without having been asked.
    Stale,
    /// It has not been heard of for long, and is asked.
    Probe,
    /// It was set, here or in the kernel, and is not asked.
    Permanent,
}

/// Who has told of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// It was asked for, or spoke by itself.
    Found,
    /// The kernel knows it, on the other side of a tap.
    Kernel,
    /// An operator set it.
    Static,
}

/// A neighbour as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Number of the interface.
    pub interface: u16,
    /// Its IP address.
    pub address: IpAddr,
    /// Its MAC address, where that is known.
    pub mac: Option<MacAddress>,
    /// Its state.
    pub state: State,
    /// Who has told of it last.
    pub origin: Origin,
    /// Time since it was heard of last, or asked for first.
    pub age: Duration,
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Questions sent.
    pub asked: u64,
    /// Questions that were not sent since too many had been.
    pub not_asked: u64,
    /// Answers to questions for our own addresses.
    pub answered: u64,
    /// Packets dropped since too many waited, or since their neighbour could not be asked for.
    pub overflowed: u64,
    /// Neighbours that there was no room for.
    pub no_room: u64,
    /// Neighbours whose place another took.
    pub evicted: u64,
    /// Packets dropped since no neighbour can have the address that they were to go to.
    pub refused: u64,
    /// Frames that claim one of our own addresses (RFC 5227).
    pub conflicts: u64,
    /// Messages that are not as they have to be.
    pub invalid: u64,
}
