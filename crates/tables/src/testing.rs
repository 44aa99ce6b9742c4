// SPDX-License-Identifier: Apache-2.0
//! Helpers of the tests of several tables.

use std::net::{Ipv4Addr, SocketAddrV4};

/// Returns source and destination of an IPv4 packet; the ports of an echo are its identifier.
pub(crate) fn ends(octets: &[u8]) -> (SocketAddrV4, SocketAddrV4) {
    let address = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&octets[at..at + 4]).unwrap());
    let port = |at: usize| u16::from_be_bytes([octets[at], octets[at + 1]]);
    let (from, to) = if octets[9] == 1 { (24, 24) } else { (20, 22) };
    (
        SocketAddrV4::new(address(12), port(from)),
        SocketAddrV4::new(address(16), port(to)),
    )
}
