// SPDX-License-Identifier: Apache-2.0
//! Received ARP (RFC 826) and IPv6 neighbour discovery (RFC 4861, section 7.2). Router advertisements are ignored: this router gets its
//! routes from its operator.

use std::net::Ipv6Addr;
use std::time::Duration;

use quietwire_packet::{ArpOperation, ArpPacket, ETHERNET_HEADER_LENGTH, IPV6_HEADER_LENGTH};

use super::table::Neighbours;
use super::{Action, InterfaceInfo, State, arp, nd};

fn count(counter: &mut u64) {
    *counter = counter.saturating_add(1);
}

impl<P> Neighbours<P> {
    /// Handles an untagged frame with an ARP packet.
    pub fn received_arp(
        &mut self,
        now: Duration,
        interface_info: &InterfaceInfo,
        frame: &[u8],
        out: &mut Vec<Action<P>>,
    ) {
        let octets = frame.get(ETHERNET_HEADER_LENGTH..).unwrap_or(&[]);
        let Ok(Some(packet)) = ArpPacket::read(octets) else {
            count(&mut self.counts_mut().invalid);
            return;
        };
        let (mac, address) = (packet.sender_mac(), packet.sender_ip());
        if mac.is_multicast() || mac.to_u64() == 0 {
            count(&mut self.counts_mut().invalid);
            return;
        }
        if interface_info.is_own(address.into()) {
            if mac != interface_info.mac {
                count(&mut self.counts_mut().conflicts);
            }
            return;
        }
        let operation = packet.operation();
        if let ArpOperation::Other(_) = operation {
            return;
        }
        let is_for_us = interface_info.is_own(packet.target_ip().into());
        let key = (interface_info.number, address.into());
        let is_reply = operation == ArpOperation::Reply;
        // A known neighbour is updated by any of its messages; an unknown one is added only if it sends to us.
        let is_known = self.known(key).is_some();
        // A neighbour being resolved is known and may be off our prefixes: a gateway.
        let has_address = interface_info.may_be_neighbour(address.into())
            && (is_known || interface_info.is_on_link(address.into()));
        if has_address && (is_known || (is_for_us && !is_reply)) {
            let state = if is_reply && is_for_us {
                State::Reachable
            } else {
                State::Stale
            };
            self.learn(now, key, mac, state, out);
        }
        if is_for_us && !is_reply {
            count(&mut self.counts_mut().answered);
            let answer = arp::reply((interface_info.mac, packet.target_ip()), (mac, address));
            out.push(Action::Transmit {
                interface: interface_info.number,
                frame: answer,
            });
        }
    }
}

impl<P> Neighbours<P> {
    /// Handles an untagged frame with an IPv6 packet. Returns true if it is a neighbour discovery message, valid or not.
    pub fn received_nd(
        &mut self,
        now: Duration,
        interface_info: &InterfaceInfo,
        frame: &[u8],
        out: &mut Vec<Action<P>>,
    ) -> bool {
        let at = ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH;
        let protocol = frame.get(ETHERNET_HEADER_LENGTH + 6).copied();
        let kind = frame.get(at).copied();
        if protocol != Some(nd::ICMPV6) || !matches!(kind, Some(133..=137)) {
            return false;
        }
        match nd::Message::read(frame) {
            Some(message) if message.kind == nd::SOLICITATION => {
                self.solicited(now, interface_info, &message, out)
            }
            Some(message) => self.advertised(now, interface_info, &message, out),
            // Router messages and redirects are not for this router.
            None if matches!(kind, Some(133 | 134 | 137)) => {}
            None => count(&mut self.counts_mut().invalid),
        }
        true
    }

    /// Handles a neighbour solicitation (RFC 4861, sections 7.2.3 and 7.2.4).
    fn solicited(
        &mut self,
        now: Duration,
        interface_info: &InterfaceInfo,
        message: &nd::Message<'_>,
        out: &mut Vec<Action<P>>,
    ) {
        let Ok(link_address) = message.link_address(nd::OPTION_SOURCE) else {
            count(&mut self.counts_mut().invalid);
            return;
        };
        let is_probe = message.source.is_unspecified();
        let in_group = message.destination == nd::solicited_node(message.target);
        if is_probe && (link_address.is_some() || !in_group) {
            count(&mut self.counts_mut().invalid);
            return;
        }
        if !interface_info.is_own(message.target.into()) {
            return;
        }
        if interface_info.is_own(message.source.into()) {
            count(&mut self.counts_mut().conflicts);
            return;
        }
        if let Some(mac) = link_address
            && interface_info.is_on_link(message.source.into())
            && interface_info.may_be_neighbour(message.source.into())
        {
            self.learn(
                now,
                (interface_info.number, message.source.into()),
                mac,
                State::Stale,
                out,
            );
        }
        // A host that probes one of our addresses gets a reply to all nodes (RFC 4862, section 5.4.3).
        let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        let key = (interface_info.number, message.source.into());
        let (to, flags) = if is_probe {
            (
                (nd::group_mac(all_nodes), all_nodes),
                nd::ROUTER | nd::OVERRIDE,
            )
        } else {
            // A unicast solicitation may omit its address option (section 4.3): the source of the frame serves as well as a request of our
            // own.
            let mac = link_address.or_else(|| self.mac(key.0, key.1));
            let mac = mac.unwrap_or(message.from);
            if mac.is_multicast() || mac.to_u64() == 0 {
                count(&mut self.counts_mut().invalid);
                return;
            }
            (
                (mac, message.source),
                nd::ROUTER | nd::SOLICITED | nd::OVERRIDE,
            )
        };
        count(&mut self.counts_mut().answered);
        let answer = nd::advertisement(to, (interface_info.mac, message.target), flags);
        out.push(Action::Transmit {
            interface: interface_info.number,
            frame: answer,
        });
    }

    /// Handles a neighbour advertisement (RFC 4861, section 7.2.5).
    fn advertised(
        &mut self,
        now: Duration,
        interface_info: &InterfaceInfo,
        message: &nd::Message<'_>,
        out: &mut Vec<Action<P>>,
    ) {
        let solicited = message.flags & nd::SOLICITED != 0;
        let Ok(link_address) = message.link_address(nd::OPTION_TARGET) else {
            count(&mut self.counts_mut().invalid);
            return;
        };
        if solicited && message.destination.is_multicast() {
            count(&mut self.counts_mut().invalid);
            return;
        }
        if interface_info.is_own(message.target.into()) {
            count(&mut self.counts_mut().conflicts);
            return;
        }
        let key = (interface_info.number, message.target.into());
        let confirmed = if solicited {
            State::Reachable
        } else {
            State::Stale
        };
        match (self.known(key), link_address) {
            (None, _) | (Some((_, None)), None) => {}
            (Some((_, None)), Some(mac)) => self.learn(now, key, mac, confirmed, out),
            (Some((_, Some(mac))), None) if solicited => {
                self.learn(now, key, mac, State::Reachable, out);
            }
            (Some((_, Some(_))), None) => {}
            (Some((state, Some(known))), Some(mac)) => {
                if mac == known || message.flags & nd::OVERRIDE != 0 {
                    self.learn(now, key, mac, confirmed, out);
                } else if state == State::Reachable {
                    // Two stations claim the address: the known one is probed soon.
                    self.start_probe(now, key);
                }
            }
        }
    }
}
