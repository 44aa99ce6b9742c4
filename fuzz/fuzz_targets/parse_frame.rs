// SPDX-License-Identifier: Apache-2.0
//! Any bytes as a frame: the parser must not panic, and every offset that it gives must lie in the frame, where the
//! views then find the same headers again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quietwire_packet::{Network, Transport, parse};

fuzz_target!(|frame: &[u8]| {
    let Ok(parsed) = parse(frame) else { return };
    let network = usize::from(parsed.network_offset);
    assert!(network >= 14 && network <= frame.len());
    let found = (
        parsed.ipv4(frame).is_some(),
        parsed.ipv6(frame).is_some(),
        parsed.arp(frame).is_some(),
    );
    let expected = match parsed.network {
        Network::Ipv4(_) => (true, false, false),
        Network::Ipv6(_) => (false, true, false),
        Network::Arp => (false, false, true),
        Network::Other => (false, false, false),
    };
    assert_eq!(found, expected);
    if let Some(header) = parsed.ipv4(frame) {
        std::hint::black_box(header.checksum_is_right());
    }
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
});
