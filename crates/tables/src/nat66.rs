// SPDX-License-Identifier: Apache-2.0
//! NAT66: IPv6 hosts share external IPv6 addresses, with translated ports, and publish services there.
//!
//! Hosts and external addresses have numbers, and [`crate::nat::Nat`] translates these like the addresses of NAT44. So its requirements,
//! port blocks, limits, timeouts and events hold here too: endpoint-independent mapping and filtering, hairpinning, errors that change no
//! mapping, and fragments behind the first one of their datagram. A host keeps its number as long as it has port blocks or static forwards.
//! With several forwarding CPUs, a host has numbers only on those that translate its packets ([`crate::owner`]). A standby and a saved file
//! have the addresses of hosts ([`crate::nat::SavedMappingIpv6`]).
//!
//! Packets keep their lengths and extension headers. Checksums of TCP, UDP and ICMPv6 contain the addresses (RFC 8200, section 8.1), and
//! are updated. Dropped are packets with a routing header that has segments left, whose checksum contains another destination, and those
//! with authentication, which contains the addresses (RFC 4302, section 3.3.3.1.2).

mod joined;
pub(crate) mod packet;
pub(crate) mod rewrite;
mod settings;
#[cfg(test)]
mod tests;
mod translator;

pub use settings::{Nat66Settings, Nat66SettingsError, external_number, is_host};
pub use translator::Nat66;
