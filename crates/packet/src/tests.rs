// SPDX-License-Identifier: Apache-2.0
//! Tests with whole frames: compared with another parser, damaged in every way, and built.

mod built;
mod damaged;
mod datagrams;
mod fields;
mod frames;
mod merges;
mod oracle;
mod partial;
mod segments;

use crate::{Network, Parsed, Transport};

/// Fails unless every part in `parsed` lies within a frame of `length` octets.
fn assert_within(parsed: &Parsed, frame: &[u8]) {
    let network = usize::from(parsed.network_offset);
    assert!(network >= 14 && network <= frame.len());
    assert!(parsed.tags[0].is_some() || parsed.tags[1].is_none());
    assert_eq!(
        parsed.ipv4(frame).is_some(),
        matches!(parsed.network, Network::Ipv4(_))
    );
    assert_eq!(
        parsed.ipv6(frame).is_some(),
        matches!(parsed.network, Network::Ipv6(_))
    );
    assert_eq!(
        parsed.arp(frame).is_some(),
        matches!(parsed.network, Network::Arp)
    );
    let Some(ip) = parsed.ip() else { return };
    let (transport, end) = (usize::from(ip.transport_offset), usize::from(ip.end));
    assert!(network + 20 <= transport && transport <= end && end <= frame.len());
    let header = match ip.transport {
        Transport::Other => 0,
        Transport::Udp { .. } => 8,
        Transport::Tcp { .. } => 20,
        Transport::Icmp { .. } => 4,
    };
    assert!(transport + header <= end);
}
