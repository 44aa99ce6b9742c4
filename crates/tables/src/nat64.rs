// SPDX-License-Identifier: Apache-2.0
//! NAT64: IPv6 clients reach IPv4 servers by addresses in a prefix (RFC 6146), with translated headers (RFC 7915).
//!
//! A client has a number, an IPv4 address of 240.0.0.0/8 that never leaves the switch. Headers are translated to IPv4 with this number as
//! the source, and [`crate::nat::Nat`] then translates the number like the address of an inside host. So IPv6 clients and IPv4 hosts share
//! external addresses, port blocks, limits, timeouts, fragments and the log, and the mappings of NAT are the binding information bases of
//! RFC 6146, section 3.1. There is no table of sessions: filtering is endpoint-independent, so a session decides nothing.
//!
//! A standby and a saved file have the addresses of clients ([`crate::nat::SavedMappingIpv6`]), because the numbers of another switch are
//! others.
//!
//! Packets are translated in place. Their data stays, and headers are written in front of it.
//!
//! | requirement | here |
//! |---|---|
//! | RFC 6146, section 3.1: bindings for UDP, TCP and ICMP queries | mappings of [`crate::nat::Nat`] |
//! | RFC 6146, section 3: pool of IPv4 addresses, prefix | [`crate::nat::PortPool`], [`Prefix64`] |
//! | RFC 6146, section 3.2: session tables | none |
//! | RFC 6146, section 3.4: fragments | those behind the first one of their datagram; others are dropped |
//! | RFC 6146, section 3.4: UDP fragments over IPv4 without checksum | dropped |
//! | RFC 6146, section 3.5.1, 3.5.2, 3.5.3: endpoint-independent mapping | yes |
//! | RFC 6146, section 3.5.1, 3.5.2: endpoint-independent filtering; address-dependent filtering is an option | the former only |
//! | RFC 6146, section 3.5.1, 3.5.2: packets of both directions refresh | yes, unlike those of NAT44 |
//! | RFC 6146, section 3.5.2: states of TCP | whether the server has answered, and FIN and RST, choose the timeout |
//! | RFC 6146, section 3.5.2.2: SYNs from IPv4 without binding | dropped; none is stored |
//! | RFC 6146, section 3.5.3: bindings of ICMP queries; errors change none | yes |
//! | RFC 6146, section 3.5: errors about packets without binding | none is sent |
//! | RFC 6146, section 3.5.1.1: port parity preserved | if the client has a port of that parity left |
//! | RFC 6146, section 3.5 and 5.4: sources in the prefix are dropped | yes, which also ends loops |
//! | RFC 6146, section 3.8: hairpinning | yes |
//! | RFC 6146, section 4: timeouts | [`crate::nat::NatTimeouts`] |
//! | RFC 6146, section 5.3: limits for each client | port blocks of a client |
//! | RFC 6052, section 2.2: address formats | [`Prefix64`] |
//! | RFC 6052, section 3.1: no private address in the well-known prefix | packets are dropped |
//! | RFC 7915, section 4.1, 5.1: headers | yes; IPv4 options and IPv6 extension headers are left out |
//! | RFC 7915, section 4.1: datagrams without DF in fragments of 1280 octets | [`pieces`] |
//! | RFC 7915, section 4.2, 4.3, 5.2, 5.3: ICMP messages, and the packets in errors | yes |
//! | RFC 7915, section 4.5: UDP without checksum gets one | yes |
//! | RFC 7915, section 5.1: identification and DF by the length | yes |
//! | RFC 7915, section 4.2, 5.2: extensions of errors (RFC 4884) | left out |
//! | RFC 7915, section 4.2, 5.2: the MTU in an error is at most that of both next hops | no limit; hosts ignore an MTU larger than theirs |
//! | RFC 7915, section 4.4, 5.4: errors about packets without translation | none is sent |
//! | RFC 7915, section 4.6, 5.6: more specific routes | packets to the prefix and to mappings are translated, whatever the routes |
//! | RFC 7915, section 5.1.1: extension headers behind that of a fragment | dropped |
//! | fragmented ICMP messages, whose checksum covers a length that no fragment has | dropped |
//!
//! Static bindings to IPv6 hosts are left out: connections from IPv4 begin with a mapping that a client has opened.

pub(crate) mod clients;
mod error;
mod header;
mod icmp;
mod piece;
mod prefix;
#[cfg(test)]
pub(crate) mod tests;
mod translator;
mod transport;

pub use piece::{MTU_MIN, Piece, pieces};
pub use prefix::{Prefix64, Prefix64Error};
pub use translator::{HEADROOM, Nat64, Nat64Settings, Translated};
