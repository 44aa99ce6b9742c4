// SPDX-License-Identifier: Apache-2.0
//! One turn of the service thread: punted packets, and neighbour timers.

use std::net::IpAddr;
use std::time::Duration;

use quietwire_packet::{ETHERNET_HEADER_LENGTH, Ipv6Header, MacAddress, walk_ipv6_extensions};

use super::{Layer3, PacketOrigin, Waiting};
use crate::forward::Mark;
use quietwire_tables::icmp;
use quietwire_tables::neighbour::Action;
use quietwire_tables::route::{NextHop, Punt};

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// Offsets in untagged frames: the second octet of the ARP operation, the type of an ICMPv6 message.
const ARP_OPERATION: usize = ETHERNET_HEADER_LENGTH + 7;
const ARP_REPLY: u8 = 2;
const ND_TYPE: usize = ETHERNET_HEADER_LENGTH + 40;
const ND_SOLICITATION: u8 = 135;
const NO_NEXT_HEADER: u8 = 59;

impl Layer3 {
    /// Does all pending work. Returns true if there was any.
    pub(crate) fn turn(&mut self) -> bool {
        let received = self.exchange.receive(self.tracer.as_ref());
        let now = self.now();
        let busy = !received.is_empty() | self.receive_from_kernel();
        self.follow_kernel();
        self.follow_neighbours();
        for (mark, frame, followed) in received {
            self.counts.received = self.counts.received.saturating_add(1);
            if let Mark::Punt(punt, interface, is_as_sent) = mark {
                let before = self.counts;
                let from = PacketOrigin {
                    interface,
                    is_as_sent,
                };
                self.take(now, punt, from, &frame);
                if let Some(packet) = followed {
                    self.record_outcome(packet, punt, &before);
                }
            }
        }
        for (interface, address) in self.rib.take_wanted() {
            self.resolve(now, interface, address, None);
        }
        let rib = &self.rib;
        if let Some((interface, address)) = self.missing.next(now, || rib.missing_gateways()) {
            self.resolve(now, interface, address, None);
        }
        self.tick(now);
        self.act(now);
        self.counts.not_sent = self.counts.not_sent.saturating_add(self.exchange.send());
        busy
    }

    /// Executes requested actions at once.
    pub(super) fn settle(&mut self) {
        self.act(self.now());
        self.counts.not_sent = self.counts.not_sent.saturating_add(self.exchange.send());
    }

    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn tick(&mut self, now: Duration) {
        let interfaces = &self.interfaces;
        let interface_info = |number| interfaces.get(&number).map(|known| &known.interface_info);
        self.neighbours.tick(now, interface_info, &mut self.actions);
    }

    fn resolve(
        &mut self,
        now: Duration,
        interface: u16,
        address: IpAddr,
        waiting: Option<Waiting>,
    ) {
        if let Some(known) = self.interfaces.get(&interface) {
            self.neighbours.resolve(
                now,
                &known.interface_info,
                address,
                waiting,
                &mut self.actions,
            );
        }
    }

    /// Handles a punted frame.
    fn take(&mut self, now: Duration, punt: Punt, from: PacketOrigin, frame: &[u8]) {
        let interface = from.interface;
        let Some(known) = self.interfaces.get(&interface) else {
            return;
        };
        let packet = frame.get(ETHERNET_HEADER_LENGTH..).unwrap_or(&[]);
        match punt {
            Punt::Arp => {
                self.neighbours
                    .received_arp(now, &known.interface_info, frame, &mut self.actions);
                // The router answers requests itself, so the kernel must not answer them again.
                if frame.get(ARP_OPERATION) == Some(&ARP_REPLY) {
                    self.send_to_kernel(interface, frame);
                }
            }
            Punt::ForUs => self.take_own(now, from, frame),
            Punt::Neighbour => self.wait_for_neighbour(now, from, frame),
            Punt::NoRoute => self.report(now, from, packet, icmp::Error::NetUnreachable),
            Punt::Unreachable => self.report(now, from, packet, icmp::Error::HostUnreachable),
            Punt::Prohibited => self.report(now, from, packet, icmp::Error::Prohibited),
            Punt::TimeExceeded => self.report(now, from, packet, icmp::Error::TimeExceeded),
            Punt::TooBig => {
                let mtu = self.mtu_towards(known.vrf, packet).unwrap_or(known.mtu);
                self.report(now, from, packet, icmp::Error::TooBig(mtu));
            }
            Punt::KernelFilter => {
                // The tap may have been removed while the packet was in flight.
                if !self.send_to_kernel(interface, frame) {
                    self.counts.unknown_protocol = self.counts.unknown_protocol.saturating_add(1);
                }
            }
        }
    }

    /// Handles a packet to the router itself, or to a group.
    fn take_own(&mut self, now: Duration, from: PacketOrigin, frame: &[u8]) {
        let interface = from.interface;
        let Some(known) = self.interfaces.get(&interface) else {
            return;
        };
        if self
            .neighbours
            .received_nd(now, &known.interface_info, frame, &mut self.actions)
        {
            if frame.get(ND_TYPE) != Some(&ND_SOLICITATION) {
                self.send_to_kernel(interface, frame);
            }
            return;
        }
        if self.send_to_kernel(interface, frame) {
            return;
        }
        let packet = frame.get(ETHERNET_HEADER_LENGTH..).unwrap_or(&[]);
        let is_own = addresses_of(packet).is_some_and(|(_, to)| self.is_own(interface, to));
        if !is_own {
            self.counts.unknown_protocol = self.counts.unknown_protocol.saturating_add(1);
            return;
        }
        if let Some(reply) = icmp::echo_reply(packet) {
            self.counts.echoed = self.counts.echoed.saturating_add(1);
            self.send_packet(now, from, reply);
            return;
        }
        self.counts.unknown_protocol = self.counts.unknown_protocol.saturating_add(1);
        if is_to_group(frame) {
            return;
        }
        match protocol_of(packet) {
            // The sender to a closed port gets an error.
            Some(17) => self.report(now, from, packet, icmp::Error::PortUnreachable),
            // An ICMP message is information for the router or a damaged request. TCP connections time out without an error.
            Some(1 | 6 | 58) | None => {}
            Some(_) => self.report(now, from, packet, icmp::Error::ProtocolUnreachable),
        }
    }

    fn is_own(&self, interface: u16, address: IpAddr) -> bool {
        let Some(known) = self.interfaces.get(&interface) else {
            return false;
        };
        let of_vrf = self.interfaces.values().filter(|one| one.vrf == known.vrf);
        known.interface_info.is_own(address)
            || of_vrf.into_iter().any(|one| {
                one.interface_info
                    .addresses
                    .iter()
                    .any(|net| net.addr() == address)
            })
    }

    fn wait_for_neighbour(&mut self, now: Duration, from: PacketOrigin, frame: &[u8]) {
        let packet = frame.get(ETHERNET_HEADER_LENGTH..).unwrap_or(&[]);
        let Some(known) = self.interfaces.get(&from.interface) else {
            return;
        };
        let Some((_, to)) = addresses_of(packet) else {
            return;
        };
        let neighbours = self.rib.neighbours_for(known.vrf, to);
        if neighbours.is_empty() {
            // The neighbour was resolved or removed meanwhile: the forwarding thread decides again.
            self.route_again(from.interface, frame);
        }
        for (at, (out, address)) in neighbours.into_iter().enumerate() {
            // Of several next hops, the one that is resolved first.
            let waiting = (at == 0).then(|| Waiting::Frame(from, frame.to_vec()));
            self.resolve(now, out, address, waiting);
        }
    }

    /// Returns a frame to a forwarding thread for routing.
    fn route_again(&mut self, interface: u16, frame: &[u8]) {
        self.push(Mark::Route(interface), frame);
    }

    pub(super) fn push(&mut self, mark: Mark, frame: &[u8]) {
        if self.exchange.is_full() {
            self.counts.not_sent = self.counts.not_sent.saturating_add(self.exchange.send());
        }
        if !self.exchange.push(mark, frame) {
            self.counts.not_sent = self.counts.not_sent.saturating_add(1);
        }
    }

    /// Returns the MTU of the interface that a packet would leave by.
    fn mtu_towards(&self, vrf: u16, packet: &[u8]) -> Option<u16> {
        let (_, to) = addresses_of(packet)?;
        let out = self.rib.next_hop(vrf, to).interface()?;
        Some(self.interfaces.get(&out)?.mtu)
    }

    /// Sends an ICMP error about a packet, within the rate limits.
    fn report(&mut self, now: Duration, from: PacketOrigin, packet: &[u8], error: icmp::Error) {
        let Some(known) = self.interfaces.get(&from.interface) else {
            return;
        };
        let Some((sender, _)) = addresses_of(packet) else {
            return;
        };
        let Some(source) = known.interface_info.source_for(sender) else {
            return;
        };
        if let Some(answer) = icmp::error(packet, error, source)
            && self.errors.take(from.interface, now)
        {
            self.counts.errors = self.counts.errors.saturating_add(1);
            self.send_packet(now, from, answer);
        }
    }

    /// Sends a packet of the router itself. `from` is the origin of the packet it replies to. Link-local destinations are on its interface.
    fn send_packet(&mut self, now: Duration, from: PacketOrigin, packet: Vec<u8>) {
        let PacketOrigin {
            interface,
            is_as_sent,
        } = from;
        let Some((_, to)) = addresses_of(&packet) else {
            return;
        };
        let Some(known) = self.interfaces.get(&interface) else {
            return;
        };
        if let IpAddr::V6(address) = to
            && address.is_unicast_link_local()
        {
            let waiting = Waiting::Packet(packet, is_as_sent);
            self.resolve(now, interface, to, Some(waiting));
            return;
        }
        let (vrf, own) = (known.vrf, (interface, known.interface_info.mac));
        // A forwarding thread translates it. An inside host whose packet goes to another one has an external address there.
        let mut nat64 = self.nat64.iter();
        let ingress = nat64.find_map(|one| one.ingress(vrf, to));
        let is_external = self.externals.contains(&(vrf, to));
        if let Some((from, mac)) = ingress.or(is_external.then_some(own)) {
            return self.push(Mark::Route(from), &framed(mac, mac, &packet));
        }
        match self.rib.next_hop(vrf, to) {
            NextHop::Adjacency { interface, mac } => {
                self.send_to(interface, mac, (&packet, is_as_sent));
            }
            NextHop::Glean { .. } | NextHop::Incomplete { .. } => {
                match self.rib.neighbours_for(vrf, to).first().copied() {
                    Some((out, address)) => {
                        let waiting = Waiting::Packet(packet, is_as_sent);
                        self.resolve(now, out, address, Some(waiting));
                    }
                    None => self.counts.not_sent = self.counts.not_sent.saturating_add(1),
                }
            }
            _ => self.counts.not_sent = self.counts.not_sent.saturating_add(1),
        }
    }

    /// Sends a packet to a neighbour. `is_as_sent` is that of the packet in an error.
    fn send_to(&mut self, interface: u16, mac: MacAddress, (packet, is_as_sent): (&[u8], bool)) {
        let Some(known) = self.interfaces.get(&interface) else {
            return;
        };
        let frame = framed(mac, known.interface_info.mac, packet);
        self.push(Mark::Send(interface, is_as_sent), &frame);
    }

    /// Executes the actions of the neighbour table.
    fn act(&mut self, now: Duration) {
        // An action can cause further actions, each one closer to completion.
        for _ in 0..4 {
            for action in std::mem::take(&mut self.actions) {
                self.carry_out(now, action);
            }
        }
    }

    fn carry_out(&mut self, now: Duration, action: Action<Waiting>) {
        match action {
            Action::Transmit { interface, frame } => {
                self.push(Mark::Send(interface, false), &frame);
            }
            Action::Found {
                interface,
                address,
                mac,
                packets,
            } => {
                if let Err(error) = self.rib.found(interface, address, mac) {
                    tracing::warn!("{address} on {}: {error}", self.interface_name(interface));
                }
                for waiting in packets {
                    match waiting {
                        Waiting::Frame(from, frame) => self.route_again(from.interface, &frame),
                        Waiting::Packet(packet, is_as_sent) => {
                            self.send_to(interface, mac, (&packet, is_as_sent));
                        }
                    }
                }
            }
            Action::Lost { interface, address } => self.rib.lost(interface, address),
            Action::Unreachable { packets, .. } => {
                for waiting in packets {
                    if let Waiting::Frame(from, frame) = waiting {
                        let packet = frame.get(ETHERNET_HEADER_LENGTH..).unwrap_or(&[]);
                        self.report(now, from, packet, icmp::Error::HostUnreachable);
                    }
                }
            }
        }
    }
}

/// Returns a packet in a frame from one station to another.
fn framed(to: MacAddress, from: MacAddress, packet: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(packet.len().saturating_add(ETHERNET_HEADER_LENGTH));
    for mac in [to, from] {
        let [_, _, octets @ ..] = mac.to_u64().to_be_bytes();
        frame.extend(octets);
    }
    frame.extend(match packet.first() {
        Some(first) if first >> 4 == 6 => ETHERTYPE_IPV6,
        _ => ETHERTYPE_IPV4,
    });
    frame.extend(packet);
    frame
}

/// Returns source and destination of a packet.
fn addresses_of(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    match packet.first()? >> 4 {
        4 => {
            let at = |at| {
                packet
                    .get(at..)?
                    .first_chunk::<4>()
                    .copied()
                    .map(IpAddr::from)
            };
            Some((at(12)?, at(16)?))
        }
        6 => {
            let at = |at| {
                packet
                    .get(at..)?
                    .first_chunk::<16>()
                    .copied()
                    .map(IpAddr::from)
            };
            Some((at(8)?, at(24)?))
        }
        _ => None,
    }
}

/// Returns the payload protocol of a packet, behind extension headers too.
fn protocol_of(packet: &[u8]) -> Option<u8> {
    match packet.first()? >> 4 {
        4 => packet.get(9).copied(),
        6 => {
            let (header, payload) = Ipv6Header::split(packet).ok()?;
            let walked = walk_ipv6_extensions(header.next_header(), payload).ok()?;
            // No next header: receivers ignore what follows (RFC 8200, section 4.7).
            (walked.protocol.0 != NO_NEXT_HEADER).then_some(walked.protocol.0)
        }
        _ => None,
    }
}

/// Returns true for a frame to a group address. Packets in such frames cause no error (RFC 1812, section 4.3.2.7).
fn is_to_group(frame: &[u8]) -> bool {
    frame.first().is_some_and(|octet| octet & 1 == 1)
}
