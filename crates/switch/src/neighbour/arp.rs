// SPDX-License-Identifier: Apache-2.0
//! ARP (RFC 826).

use std::net::Ipv4Addr;
use std::time::Duration;

use quietwire_packet::{ARP_LENGTH, ArpOperation, ArpPacket, ETHERNET_HEADER_LENGTH, MacAddress};

use super::{Action, Facts, Neighbours, State};

const BROADCAST: MacAddress = MacAddress::from_u64(0xffff_ffff_ffff);

/// A question for an address: to everybody, or to the one who should have it (RFC 1122, section 2.3.2.1).
pub(super) fn request(
    mac: MacAddress,
    source: Ipv4Addr,
    target: Ipv4Addr,
    to: Option<MacAddress>,
) -> Vec<u8> {
    let nobody = MacAddress::from_u64(0);
    frame(to.unwrap_or(BROADCAST), 1, (mac, source), (nobody, target))
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
    // Shortest frame without FCS (IEEE 802.3, section 3.2.8).
    frame.resize(60, 0);
    frame
}

impl<P> Neighbours<P> {
    /// A frame with an ARP packet, without tags.
    pub fn received_arp(
        &mut self,
        now: Duration,
        facts: &Facts,
        frame: &[u8],
        out: &mut Vec<Action<P>>,
    ) {
        let packet = frame.get(ETHERNET_HEADER_LENGTH..).unwrap_or(&[]);
        let Ok(Some(arp)) = ArpPacket::read(packet) else {
            self.counts_mut().invalid += 1;
            return;
        };
        let (mac, address) = (arp.sender_mac(), arp.sender_ip());
        if mac.is_multicast() || mac.to_u64() == 0 {
            self.counts_mut().invalid += 1;
            return;
        }
        if facts.is_own(address.into()) {
            if mac != facts.mac {
                self.counts_mut().conflicts += 1;
            }
            return;
        }
        let operation = arp.operation();
        if let ArpOperation::Other(_) = operation {
            return;
        }
        let is_for_us = facts.is_own(arp.target_ip().into());
        let key = (facts.number, address.into());
        let is_reply = operation == ArpOperation::Reply;
        // Who is known already is updated by whatever it says; others are noted only when they speak to us.
        let is_known = self.known(key).is_some();
        // One that is asked for, and so is known, may be there although no address of ours says so: a gateway.
        let has_address = facts.may_be_neighbour(address.into())
            && (is_known || facts.is_on_link(address.into()));
        if has_address && (is_known || (is_for_us && !is_reply)) {
            let state = if is_reply && is_for_us {
                State::Reachable
            } else {
                State::Stale
            };
            self.learn(now, key, mac, state, out);
        }
        if is_for_us && !is_reply {
            self.counts_mut().answered += 1;
            let answer = self::frame(mac, 2, (facts.mac, arp.target_ip()), (mac, address));
            out.push(Action::Transmit {
                interface: facts.number,
                frame: answer,
            });
        }
    }
}
