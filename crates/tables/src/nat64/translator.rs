// SPDX-License-Identifier: Apache-2.0
//! Translation of packets between both versions of IP, around NAT.

mod standby;

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::Ipv6Net;
use quietwire_packet::{IPV4_SOURCE_AT, ipv4_address_at};

use super::clients::Clients;
use super::error::{
    Addresses, Span, error_to_v4, error_to_v6, is_error_v4, is_error_v6, read_inner_v4,
    read_inner_v6,
};
use super::header::{Ip, check_v4, read_v4, read_v6, write_v4, write_v6};
use super::prefix::Prefix64;
use super::transport::{Nesting, transport_to_v4, transport_to_v6};
use crate::arena::NoMemory;
use crate::nat::{ChangesIpv6, Nat, NatDrop, NatEvent, NatOutcome, ReplicateIpv6};

/// Octets that a buffer has in front of an IPv4 packet that [`Nat64::receive`] translates: two headers of IPv6 in an error, one with a
/// fragment header, are longer than those of IPv4 by 48.
pub const HEADROOM: usize = 48;

/// Settings of NAT64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nat64Settings {
    /// The prefix of IPv4 hosts.
    pub prefix: Prefix64,
    /// Prefixes of the clients. Empty: all.
    pub clients: Vec<Ipv6Net>,
    /// Maximum number of clients: the maximum number of hosts of NAT, up to 2^24.
    pub clients_max: u32,
}

/// NAT64 of one forwarding thread, beside its NAT. [`Nat64::new`] makes all allocations.
#[derive(Debug)]
pub struct Nat64 {
    prefix: Prefix64,
    /// Prefixes of clients, as address and mask.
    allowed: Box<[(u128, u128)]>,
    clients: Clients,
    /// Changes for a standby, if they are wanted.
    changes: ChangesIpv6,
}

/// A translated packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translated {
    /// Offset of the packet in the buffer.
    pub start: usize,
    /// Its end.
    pub end: usize,
    /// Its version.
    pub is_ipv6: bool,
    /// Identification for fragments, if the sender has allowed them: of a packet from IPv4.
    pub may_fragment: Option<u32>,
}

impl Nat64 {
    /// Creates the tables.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new(settings: &Nat64Settings) -> Result<Self, NoMemory> {
        let net = |net: &Ipv6Net| (net.network().to_bits(), net.netmask().to_bits());
        Ok(Self {
            prefix: settings.prefix,
            allowed: settings.clients.iter().map(net).collect(),
            clients: Clients::new(settings.clients_max)?,
            changes: ChangesIpv6::default(),
        })
    }

    /// Returns true if an IPv6 address is of the prefix.
    #[inline(always)]
    #[must_use]
    pub const fn concerns(&self, address: u128) -> bool {
        self.prefix.contains(address)
    }

    /// Returns the memory of the tables, octets.
    #[must_use]
    pub fn octets(&self) -> usize {
        self.clients.octets()
    }

    /// Returns the number of clients.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Returns the address of a client by its number, the inside address of its mappings.
    #[must_use]
    pub fn client(&self, number: Ipv4Addr) -> Option<Ipv6Addr> {
        let address = self.clients.address_of(number.to_bits())?;
        Some(Ipv6Addr::from_bits(address))
    }

    /// Notes an event of the NAT, which must be passed here before the next packet. Returns the client that it is about.
    pub fn note(&mut self, nat: &mut Nat, event: &NatEvent) -> Option<Ipv6Addr> {
        self.keep_changes(nat);
        match event {
            NatEvent::Block(event) => self.clients.note(event),
            NatEvent::Mapping(_) | NatEvent::Limit(_) => self.client(event.host()?),
        }
    }

    /// Returns true for an address that a host behind a router can have. IPv4-mapped addresses are those of IPv4 hosts
    /// ([`crate::nat::SavedMappingIpv6`]).
    fn is_host(&self, address: Ipv6Addr) -> bool {
        !address.is_multicast()
            && !address.is_unspecified()
            && !address.is_loopback()
            && !address.is_unicast_link_local()
            && address.to_ipv4_mapped().is_none()
            && !self.prefix.contains(address.to_bits())
    }

    fn is_allowed(&self, address: u128) -> bool {
        let mut allowed = self.allowed.iter();
        self.allowed.is_empty() || allowed.any(|(net, mask)| address & mask == *net)
    }

    /// Translates an IPv6 packet of a client at offset `at` of a buffer. The destination is of the prefix. `length` is the number of octets
    /// from there to the end of the frame. The result is an IPv4 packet, or an IPv6 packet to another client (hairpinning).
    ///
    /// # Errors
    /// The reason to drop the packet, which is counted. The buffer may be changed.
    pub fn send(
        &mut self,
        nat: &mut Nat,
        buffer: &mut [u8],
        (at, length): (usize, usize),
        now: u32,
    ) -> Result<Translated, NatDrop> {
        self.keep_changes(nat);
        let span = self.translate_v6(nat, buffer, at, length);
        let Span { start, end } = span.inspect_err(|reason| nat.note_drop(*reason))?;
        let packet = buffer.get_mut(start..end).ok_or(NatDrop::Malformed)?;
        let length = packet.len();
        match nat.outbound(packet, length, now) {
            NatOutcome::Dropped(reason) => Err(reason),
            NatOutcome::Hairpinned if self.is_to_client(buffer, start) => {
                self.receive(nat, buffer, (start, length))
            }
            NatOutcome::Hairpinned | NatOutcome::Translated | NatOutcome::Untouched => {
                Ok(Translated {
                    start,
                    end,
                    is_ipv6: false,
                    may_fragment: None,
                })
            }
        }
    }

    /// Returns true if a packet of an inside IPv4 host to a client keeps its source: this has an address of the prefix and no external
    /// endpoint. The client may have addressed the host itself, and expects its answers from there. Parameters as in [`Nat::inside_of`].
    #[must_use]
    pub fn keeps_source(&self, nat: &Nat, packet: &[u8], length: usize) -> bool {
        let source = ipv4_address_at(packet, IPV4_SOURCE_AT);
        let in_prefix = source.and_then(|source| self.prefix.ipv6_of(source));
        in_prefix.is_some() && !nat.has_external(packet, length)
    }

    /// Returns true if the IPv4 packet at an offset is to a client, by its number.
    #[must_use]
    pub fn is_to_client(&self, buffer: &[u8], at: usize) -> bool {
        let ip = read_v4(buffer, at);
        ip.is_ok_and(|ip| self.clients.address_of(ip.destination).is_some())
    }

    /// Translates an IPv4 packet to a client, whose number NAT has made the destination, at offset `at` of a buffer; parameters as in
    /// [`Self::send`]. The buffer has [`HEADROOM`] in front of the packet.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn receive(
        &self,
        nat: &mut Nat,
        buffer: &mut [u8],
        (at, length): (usize, usize),
    ) -> Result<Translated, NatDrop> {
        let translated = self.translate_v4(buffer, at, length);
        translated.inspect_err(|reason| nat.note_drop(*reason))
    }

    fn translate_v6(
        &mut self,
        nat: &mut Nat,
        buffer: &mut [u8],
        at: usize,
        length: usize,
    ) -> Result<Span, NatDrop> {
        let ip = read_v6(buffer, at)?;
        if ip.end > at.saturating_add(length) || ip.end > buffer.len() {
            return Err(NatDrop::Malformed);
        }
        if !self.is_host(Ipv6Addr::from_bits(ip.source)) {
            return Err(NatDrop::Malformed);
        }
        let destination = self.prefix.ipv4_of(ip.destination);
        let destination = destination.ok_or(NatDrop::NoMapping)?;
        if is_error_v6(buffer, &ip) {
            let identification = nat.next_identification();
            return self.error_to_v4(buffer, &ip, destination, identification);
        }
        if !self.is_allowed(ip.source) {
            return Err(NatDrop::NoMapping);
        }
        let number = self.clients.begin(ip.source);
        let number = number.ok_or_else(|| nat.note_hosts_full())?;
        // An atomic fragment is a whole datagram (RFC 6946).
        let part = ip.part.filter(|part| part.offset > 0 || part.has_more);
        // Without a fragment header, by the length (RFC 7915, section 5.1); with one, routers may fragment further (section 5.1.1).
        let may_fragment = ip.part.is_some() || ip.is_short();
        let mut new = Ip {
            source: number,
            destination,
            class: ip.class,
            ttl: ip.ttl,
            protocol: ip.protocol,
            payload: ip.payload,
            end: ip.end,
            part,
            identification: match may_fragment {
                true => nat.next_identification(),
                false => 0,
            },
            dont_fragment: !may_fragment,
        };
        let whole = Ip { part, ..ip };
        let packet = buffer.get_mut(..ip.end).ok_or(NatDrop::Malformed)?;
        new.protocol = transport_to_v4(packet, &whole, &new, Nesting::Outer)?;
        Ok(Span {
            start: write_v4(packet, &new)?,
            end: ip.end,
        })
    }

    /// Translates an ICMPv6 error about a packet to a client. Its sender is the client, or a router on the way to it.
    fn error_to_v4(
        &self,
        buffer: &mut [u8],
        ip: &Ip<u128>,
        destination: u32,
        identification: u16,
    ) -> Result<Span, NatDrop> {
        let inner = read_inner_v6(buffer, ip)?;
        let remote = self.prefix.ipv4_of(inner.source);
        let client = self.clients.number_of(inner.destination);
        let addresses = Addresses {
            // NAT sets the external address.
            source: 0,
            destination,
            inner_source: remote.ok_or(NatDrop::NoMapping)?,
            inner_destination: client.ok_or(NatDrop::NoMapping)?,
        };
        error_to_v4(buffer, ip, &inner, (&addresses, identification))
    }

    fn translate_v4(
        &self,
        buffer: &mut [u8],
        at: usize,
        length: usize,
    ) -> Result<Translated, NatDrop> {
        let ip = read_v4(buffer, at)?;
        if ip.end > at.saturating_add(length) || ip.end > buffer.len() {
            return Err(NatDrop::Malformed);
        }
        check_v4(buffer, at, &ip)?;
        let source = self.prefix.ipv6_of(ip.source);
        let client = self.clients.address_of(ip.destination);
        let destination = client.ok_or(NatDrop::NoMapping)?;
        if is_error_v4(buffer, &ip) {
            let Span { start, end } = self.error_to_v6(buffer, &ip, source, destination)?;
            return Ok(Translated {
                start,
                end,
                is_ipv6: true,
                may_fragment: None,
            });
        }
        let mut new = Ip {
            source: source.ok_or(NatDrop::NoMapping)?,
            destination,
            class: ip.class,
            ttl: ip.ttl,
            protocol: ip.protocol,
            payload: ip.payload,
            end: ip.end,
            part: ip.part,
            identification: 0,
            dont_fragment: true,
        };
        let packet = buffer.get_mut(..ip.end).ok_or(NatDrop::Malformed)?;
        new.protocol = transport_to_v6(packet, &ip, &new, Nesting::Outer)?;
        Ok(Translated {
            start: write_v6(packet, &new)?,
            end: ip.end,
            is_ipv6: true,
            may_fragment: (!ip.dont_fragment).then_some(u32::from(ip.identification)),
        })
    }

    /// Translates an ICMPv4 error about a packet of a client. A sender that has no address of the prefix, such as a router with a private
    /// address, gets that of the packet's destination: the MTU of the path depends on its errors.
    fn error_to_v6(
        &self,
        buffer: &mut [u8],
        ip: &Ip<u32>,
        source: Option<u128>,
        destination: u128,
    ) -> Result<Span, NatDrop> {
        let inner = read_inner_v4(buffer, ip)?;
        let client = self.clients.address_of(inner.source);
        let remote = self.prefix.ipv6_of(inner.destination);
        let remote = remote.ok_or(NatDrop::NoMapping)?;
        let addresses = Addresses {
            source: source.unwrap_or(remote),
            destination,
            inner_source: client.ok_or(NatDrop::NoMapping)?,
            inner_destination: remote,
        };
        error_to_v6(buffer, ip, &inner, &addresses)
    }
}
