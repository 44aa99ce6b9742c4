// SPDX-License-Identifier: Apache-2.0
//! ARP packets (RFC 826).

use std::net::Ipv4Addr;

use quietwire_packet::{ARP_LENGTH, ETHERNET_HEADER_LENGTH, MacAddress};

const BROADCAST: MacAddress = MacAddress::from_u64(0xffff_ffff_ffff);

/// Builds an ARP request: broadcast, or unicast to a known neighbour (RFC 1122, section 2.3.2.1).
pub(super) fn request(
    mac: MacAddress,
    source: Ipv4Addr,
    target: Ipv4Addr,
    to: Option<MacAddress>,
) -> Vec<u8> {
    let nobody = MacAddress::from_u64(0);
    frame(to.unwrap_or(BROADCAST), 1, (mac, source), (nobody, target))
}

/// Builds an ARP reply for one of our addresses.
pub(super) fn reply(from: (MacAddress, Ipv4Addr), to: (MacAddress, Ipv4Addr)) -> Vec<u8> {
    frame(to.0, 2, from, to)
}

fn frame(
    to: MacAddress,
    operation: u16,
    sender: (MacAddress, Ipv4Addr),
    target: (MacAddress, Ipv4Addr),
) -> Vec<u8> {
    let mut frame = Vec::with_capacity(ETHERNET_HEADER_LENGTH + ARP_LENGTH);
    let mut mac = |mac: MacAddress| frame.extend(&mac.to_u64().to_be_bytes()[2..]);
    mac(to);
    mac(sender.0);
    // Ethernet and IPv4.
    frame.extend([0x08, 0x06, 0, 1, 0x08, 0x00, 6, 4]);
    frame.extend(operation.to_be_bytes());
    for (mac, address) in [sender, target] {
        frame.extend(&mac.to_u64().to_be_bytes()[2..]);
        frame.extend(address.octets());
    }
    // Minimum frame without FCS (IEEE 802.3, section 3.2.8).
    frame.resize(60, 0);
    frame
}
