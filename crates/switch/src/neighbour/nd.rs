// SPDX-License-Identifier: Apache-2.0
//! Neighbour discovery of IPv6 (RFC 4861, sections 4.3, 4.4, 7.1, 7.2). Routers' messages are not acted upon: this router
//! has its routes from its operator.

use std::net::Ipv6Addr;
use std::time::Duration;

use quietwire_packet::{
    Checksum, ETHERNET_HEADER_LENGTH, EthernetHeader, IPV6_HEADER_LENGTH, MacAddress,
};

use super::{Action, Facts, Neighbours, State};

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const ICMPV6: u8 = 58;
/// Nothing from another link has it (RFC 4861, section 7.1).
const HOP_LIMIT: u8 = 255;
const OPTION_SOURCE: u8 = 1;
const OPTION_TARGET: u8 = 2;
const ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
const MESSAGE: usize = 24;

/// The group that an address is asked in (RFC 4291, section 2.7.1).
fn solicited_node(target: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = target.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// The MAC address of a group (RFC 2464, section 7).
fn group_mac(group: Ipv6Addr) -> MacAddress {
    let [.., a, b, c, d] = group.octets();
    MacAddress::from_u64(0x3333_0000_0000 | u64::from(u32::from_be_bytes([a, b, c, d])))
}

/// A question for an address: to its group, or to the one who should have it.
pub(super) fn solicitation(
    mac: MacAddress,
    source: Ipv6Addr,
    target: Ipv6Addr,
    to: Option<MacAddress>,
) -> Vec<u8> {
    let destination = to.map_or_else(|| solicited_node(target), |_| target);
    let to = to.unwrap_or_else(|| group_mac(destination));
    frame(
        (to, destination),
        (mac, source),
        SOLICITATION,
        0,
        target,
        OPTION_SOURCE,
    )
}

fn frame(
    to: (MacAddress, Ipv6Addr),
    from: (MacAddress, Ipv6Addr),
    kind: u8,
    flags: u8,
    target: Ipv6Addr,
    option: u8,
) -> Vec<u8> {
    let octets = |mac: MacAddress| {
        let [_, _, octets @ ..] = mac.to_u64().to_be_bytes();
        octets
    };
    let mut message = vec![kind, 0, 0, 0, flags, 0, 0, 0];
    message.extend(target.octets());
    message.extend([option, 1]);
    message.extend(octets(from.0));
    let sum = checksum(from.1, to.1, &message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    let mut frame = Vec::new();
    frame.extend(octets(to.0));
    frame.extend(octets(from.0));
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend((message.len() as u16).to_be_bytes());
    frame.extend([ICMPV6, HOP_LIMIT]);
    frame.extend(from.1.octets());
    frame.extend(to.1.octets());
    frame.extend(message);
    frame
}

/// Over the pseudo-header too (RFC 4443, section 2.3; RFC 8200, section 8.1).
pub(crate) fn checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> u16 {
    let mut sum = Checksum::new();
    sum.add(&source.octets());
    sum.add(&destination.octets());
    sum.add(&(message.len() as u32).to_be_bytes());
    sum.add(&[0, 0, 0, ICMPV6]);
    sum.add(message);
    sum.finish()
}

/// A message that was found sound.
struct Message<'frame> {
    /// Who sent the frame.
    from: MacAddress,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    kind: u8,
    flags: u8,
    target: Ipv6Addr,
    options: &'frame [u8],
}

impl<'frame> Message<'frame> {
    /// RFC 4861, sections 7.1.1 and 7.1.2; `None` for what is not sound, and for other messages.
    fn read(frame: &'frame [u8]) -> Option<Self> {
        let (ethernet, packet) = EthernetHeader::split(frame).ok()?;
        let (header, payload) = packet.split_first_chunk::<IPV6_HEADER_LENGTH>()?;
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let message = payload.get(..length)?;
        let (fixed, options) = message.split_first_chunk::<MESSAGE>()?;
        let source = Ipv6Addr::from(*header.get(8..)?.first_chunk::<16>()?);
        let destination = Ipv6Addr::from(*header.get(24..)?.first_chunk::<16>()?);
        let target = Ipv6Addr::from(*fixed.get(8..)?.first_chunk::<16>()?);
        let is_sound = header[6] == ICMPV6
            && header[7] == HOP_LIMIT
            && matches!(fixed[0], SOLICITATION | ADVERTISEMENT)
            && fixed[1] == 0
            && !target.is_multicast()
            && checksum(source, destination, message) == 0;
        is_sound.then_some(Self {
            from: ethernet.source(),
            source,
            destination,
            kind: fixed[0],
            flags: fixed[4],
            target,
            options,
        })
    }

    /// The MAC address in an option; `Err` when the options are not sound.
    fn link_address(&self, wanted: u8) -> Result<Option<MacAddress>, ()> {
        let mut rest = self.options;
        let mut found = None;
        while let [kind, units, ..] = rest {
            let length = usize::from(*units) * 8;
            let Some((option, after)) = rest.split_at_checked(length).filter(|_| length > 0) else {
                return Err(());
            };
            if *kind == wanted
                && let Some(octets) = option.get(2..).and_then(|octets| octets.first_chunk::<6>())
            {
                let [a, b, c, d, e, f] = *octets;
                found = Some(MacAddress::from_u64(u64::from_be_bytes([
                    0, 0, a, b, c, d, e, f,
                ])));
            }
            rest = after;
        }
        if !rest.is_empty() || found.is_some_and(|mac| mac.is_multicast() || mac.to_u64() == 0) {
            return Err(());
        }
        Ok(found)
    }
}

impl<P> Neighbours<P> {
    /// A frame with an IPv6 packet, without tags; true when it is a message of neighbour discovery, sound or not.
    pub fn received_nd(
        &mut self,
        now: Duration,
        facts: &Facts,
        frame: &[u8],
        out: &mut Vec<Action<P>>,
    ) -> bool {
        let at = ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH;
        let protocol = frame.get(ETHERNET_HEADER_LENGTH + 6).copied();
        let kind = frame.get(at).copied();
        if protocol != Some(ICMPV6) || !matches!(kind, Some(133..=137)) {
            return false;
        }
        match Message::read(frame) {
            Some(message) if message.kind == SOLICITATION => {
                self.solicited(now, facts, &message, out)
            }
            Some(message) => self.advertised(now, facts, &message, out),
            // Routers' messages and redirects are for others.
            None if matches!(kind, Some(133 | 134 | 137)) => {}
            None => self.counts_mut().invalid += 1,
        }
        true
    }

    /// RFC 4861, sections 7.2.3 and 7.2.4.
    fn solicited(
        &mut self,
        now: Duration,
        facts: &Facts,
        message: &Message<'_>,
        out: &mut Vec<Action<P>>,
    ) {
        let Ok(link_address) = message.link_address(OPTION_SOURCE) else {
            self.counts_mut().invalid += 1;
            return;
        };
        let is_probe = message.source.is_unspecified();
        let in_group = message.destination == solicited_node(message.target);
        if is_probe && (link_address.is_some() || !in_group) {
            self.counts_mut().invalid += 1;
            return;
        }
        if !facts.is_own(message.target.into()) {
            return;
        }
        if facts.is_own(message.source.into()) {
            self.counts_mut().conflicts += 1;
            return;
        }
        if let Some(mac) = link_address
            && facts.is_on_link(message.source.into())
            && facts.may_be_neighbour(message.source.into())
        {
            self.learn(
                now,
                (facts.number, message.source.into()),
                mac,
                State::Stale,
                out,
            );
        }
        // Somebody about to take an address of ours is told so with everybody else (RFC 4862, section 5.4.3).
        let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        let key = (facts.number, message.source.into());
        let (to, flags) = if is_probe {
            ((group_mac(all_nodes), all_nodes), ROUTER | OVERRIDE)
        } else {
            // It need not say its address when it asks us alone (section 4.3): where the frame came from does as well as a
            // question of our own.
            let mac = link_address.or_else(|| self.mac(key.0, key.1));
            let mac = mac.unwrap_or(message.from);
            if mac.is_multicast() || mac.to_u64() == 0 {
                self.counts_mut().invalid += 1;
                return;
            }
            ((mac, message.source), ROUTER | SOLICITED | OVERRIDE)
        };
        self.counts_mut().answered += 1;
        let from = (facts.mac, message.target);
        let answer = self::frame(
            to,
            from,
            ADVERTISEMENT,
            flags,
            message.target,
            OPTION_TARGET,
        );
        out.push(Action::Transmit {
            interface: facts.number,
            frame: answer,
        });
    }

    /// RFC 4861, section 7.2.5.
    fn advertised(
        &mut self,
        now: Duration,
        facts: &Facts,
        message: &Message<'_>,
        out: &mut Vec<Action<P>>,
    ) {
        let solicited = message.flags & SOLICITED != 0;
        let Ok(link_address) = message.link_address(OPTION_TARGET) else {
            self.counts_mut().invalid += 1;
            return;
        };
        if solicited && message.destination.is_multicast() {
            self.counts_mut().invalid += 1;
            return;
        }
        if facts.is_own(message.target.into()) {
            self.counts_mut().conflicts += 1;
            return;
        }
        let key = (facts.number, message.target.into());
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
                if mac == known || message.flags & OVERRIDE != 0 {
                    self.learn(now, key, mac, confirmed, out);
                } else if state == State::Reachable {
                    // Two claim it: the one that is known is asked soon.
                    self.doubt(now, key);
                }
            }
        }
    }
}
