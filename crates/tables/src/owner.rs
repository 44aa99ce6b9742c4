// SPDX-License-Identifier: Apache-2.0
//! Owners of packets: the forwarding CPU that has the state of a packet's connection, out of several. Tracker, NAT and load balancers of a
//! CPU see all packets of their connections, in both directions, if each packet is processed by its owner.
//!
//! | packet | owner |
//! |---|---|
//! | to or from the endpoint of a load balancer | that of the client's address |
//! | to an external port of NAT | that of the port block; of a forwarded port, that of the inside host; of a computed block, that of the part |
//! | to the external address of a one-to-one translation | that of the inside host; from inside, that of the sender |
//! | between an inside host of NAT and another address | that of the inside host |
//! | of an IPv6 client to an external port, by NAT64 | as to that port |
//! | of an IPv6 client to another IPv4 host, by NAT64 | that of the client |
//! | of IPv6, to an external port of NAT66, or of one of its inside hosts | as for NAT of IPv4 |
//! | of IPv6, to an external address of prefix translation | as to the inside address |
//! | between two other addresses | that of the pair, whatever the ports |
//! | ICMP error | that of an answer to the packet that it is about |
//!
//! [`Nat::with_share`](crate::nat::Nat::with_share) gives a host port blocks of its own CPU, so answers have the owner of the packets
//! that they answer. Later fragments have no ports, so fragments belong to their addresses: that CPU orders them. Then
//! [`Owners::of_ordered`] gives those to external ports the owner of the first one. Frames to group addresses have no owner, nor have
//! those without an IP packet: the CPU that receives them processes them.

mod fragments;
#[cfg(test)]
mod tests;

pub use fragments::FragmentOwners;

use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ops::BitAnd;

use quietwire_packet::{
    Fragment, IPV6_HEADER_LENGTH, IpProtocol, Ipv6Extensions, be16_at, walk_ipv6_extensions,
};

use crate::connections::SavedConnection;
use crate::filter::after_tags;
use crate::nat::packet::{ICMP_LENGTH, header};
use crate::nat::{
    Deterministic, Forward, NatProtocol, NatSettings, SavedMapping, SavedMappingIpv6,
};
use crate::nat64::Prefix64;
use crate::nat66::Nat66Settings;
use crate::nptv6::PrefixPair;
use crate::share::{owner_of_block, owner_of_client, owner_of_host, owner_of_pair};

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Offsets in an IPv6 header.
const NEXT_HEADER_AT: usize = 6;
const ADDRESSES_AT: usize = 8;
/// Types of ICMPv6 echoes (RFC 4443, section 4).
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;

/// Address, port, and number of the protocol.
type ProtocolEndpoint<A = u32> = (A, u16, u8);

/// Endpoints of a packet, whose addresses are of IPv4 (`u32`) or IPv6 (`u128`).
#[derive(Clone, Copy, Debug)]
struct Flow<A = u32> {
    source: A,
    destination: A,
    /// Protocol, source port and destination port; `None` for other protocols and fragments. Both ports of an ICMP echo are its identifier.
    ports: Option<(NatProtocol, u16, u16)>,
}

/// Address of an IP version. An IPv4 host has the same owner as an IPv6 host of the same number.
trait Address: Copy + Ord + Into<u128> + BitAnd<Output = Self> {}

impl Address for u32 {}
impl Address for u128 {}

/// External addresses of an instance of NAT.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Externals<A> {
    /// Addresses and their positions in the settings, in ascending order.
    addresses: Vec<(A, usize)>,
    first_port: u16,
    block_size: u16,
    /// Blocks of an address.
    blocks: usize,
    /// Blocks that are computed from the addresses of inside hosts.
    computed: Option<Deterministic>,
    /// External endpoints and inside hosts of static forwards, in ascending order.
    forwards: Vec<(ProtocolEndpoint<A>, A)>,
    /// External and inside addresses of one-to-one translations, in ascending order.
    pairs: Vec<(A, A)>,
}

impl<A: Address> Externals<A> {
    /// Creates those of an instance with these addresses, in the order of the settings.
    fn new(
        settings: &NatSettings,
        addresses: impl Iterator<Item = A>,
        forwards: impl Iterator<Item = (ProtocolEndpoint<A>, A)>,
        pairs: impl Iterator<Item = (A, A)>,
    ) -> Self {
        let mut addresses: Vec<(A, usize)> = addresses.zip(0..).collect();
        addresses.sort_unstable();
        let mut forwards: Vec<_> = forwards.collect();
        forwards.sort_unstable();
        let mut pairs: Vec<(A, A)> = pairs.collect();
        pairs.sort_unstable();
        let pool = &settings.pool;
        Self {
            addresses,
            first_port: pool.first_port,
            block_size: pool.block_size,
            blocks: pool.blocks(),
            computed: Deterministic::new(pool),
            forwards,
            pairs,
        }
    }

    /// Returns the position of an external address in the settings.
    #[inline]
    fn number_of(&self, address: A) -> Option<usize> {
        let addresses = &self.addresses;
        let at = addresses.binary_search_by_key(&address, |one| one.0).ok()?;
        addresses.get(at).map(|one| one.1)
    }

    /// Returns the owner of the port at an offset behind the first port, in this block of an external address. `None` if the block is not
    /// computed, or of no host.
    #[inline]
    fn owner_of_computed(
        &self,
        (external, block): (usize, usize),
        offset: u16,
        count: u16,
    ) -> Option<u16> {
        let computed = self.computed.as_ref()?;
        let place = (u16::try_from(external).ok()?, u16::try_from(block).ok()?);
        let within = offset.checked_rem(self.block_size)?;
        computed.owner_of_port(place, within, count)
    }
}

/// NAT and load balancers of an IP version.
#[derive(Clone, Debug, PartialEq, Eq)]
struct VersionOwners<A> {
    nats: Vec<Externals<A>>,
    /// Prefixes of inside hosts, as address and mask.
    sources: Vec<(A, A)>,
    /// Inside hosts of static forwards, in ascending order.
    servers: Vec<A>,
    /// Inside hosts of one-to-one translations, in ascending order.
    paired: Vec<A>,
    /// Virtual endpoints, and endpoints of backends, in ascending order.
    balanced: Vec<ProtocolEndpoint<A>>,
}

impl<A> VersionOwners<A> {
    const fn new() -> Self {
        Self {
            nats: Vec::new(),
            sources: Vec::new(),
            servers: Vec::new(),
            paired: Vec::new(),
            balanced: Vec::new(),
        }
    }
}

/// Parameters that determine the owner of each packet. The same on all forwarding CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owners {
    /// Number of forwarding CPUs.
    count: u16,
    ipv4: VersionOwners<u32>,
    ipv6: VersionOwners<u128>,
    /// Prefixes of NAT64.
    prefixes: Vec<Prefix64>,
    /// Pairs of prefix translation (NPTv6).
    prefix_pairs: Vec<PrefixPair>,
}

impl Owners {
    /// Creates those of this number of forwarding CPUs, without NAT and load balancers.
    #[must_use]
    pub const fn new(count: u16) -> Self {
        Self {
            count,
            ipv4: VersionOwners::new(),
            ipv6: VersionOwners::new(),
            prefixes: Vec::new(),
            prefix_pairs: Vec::new(),
        }
    }

    /// Adds an instance of NAT with its forwards. `sources` are the prefixes of its inside hosts, as address and mask.
    pub fn add_nat(
        &mut self,
        settings: &NatSettings,
        forwards: &[Forward],
        sources: &[(u32, u32)],
    ) {
        let addresses = settings.pool.addresses.iter().map(|one| one.to_bits());
        let forward = |one: &Forward| {
            let place = place_of(one.external, one.protocol);
            (place, one.internal.ip().to_bits())
        };
        let pairs = settings.pairs.iter();
        let pairs = pairs.map(|one| (one.external.to_bits(), one.internal.to_bits()));
        let externals = Externals::new(settings, addresses, forwards.iter().map(forward), pairs);
        self.ipv4.add(externals, sources);
    }

    /// Adds an instance of NAT66, whose NAT has these settings, with its forwards; `sources` as in [`Owners::add_nat`].
    pub fn add_nat66(
        &mut self,
        settings: &NatSettings,
        nat66: &Nat66Settings,
        forwards: &[Forward<SocketAddrV6>],
        sources: &[(u128, u128)],
    ) {
        let addresses = nat66.externals.iter().map(|one| one.to_bits());
        let forward = |one: &Forward<SocketAddrV6>| {
            let (external, internal) = (one.external, one.internal);
            let place = (external.ip().to_bits(), external.port(), one.protocol as u8);
            (place, internal.ip().to_bits())
        };
        let forwards = forwards.iter().map(forward);
        let externals = Externals::new(settings, addresses, forwards, std::iter::empty());
        self.ipv6.add(externals, sources);
    }

    /// Adds the prefix of NAT64 of an instance of NAT.
    pub fn add_nat64(&mut self, prefix: Prefix64) {
        self.prefixes.push(prefix);
    }

    /// Adds a pair of prefix translation, which has no state itself: packets to an external address have the owner of those to the inside
    /// address.
    pub fn add_prefix_pair(&mut self, pair: PrefixPair) {
        self.prefix_pairs.push(pair);
    }

    /// Adds endpoints of a load balancer: the virtual one, and those of its backends.
    pub fn add_balancer<E: Into<SocketAddr>>(
        &mut self,
        protocol: NatProtocol,
        endpoints: impl IntoIterator<Item = E>,
    ) {
        for endpoint in endpoints {
            match endpoint.into() {
                SocketAddr::V4(one) => self.ipv4.balanced.push(place_of(one, protocol)),
                SocketAddr::V6(one) => {
                    let place = (one.ip().to_bits(), one.port(), protocol as u8);
                    self.ipv6.balanced.push(place);
                }
            }
        }
        self.ipv4.sort_balanced();
        self.ipv6.sort_balanced();
    }

    /// Returns the number of forwarding CPUs.
    #[must_use]
    pub const fn count(&self) -> u16 {
        self.count
    }

    /// Returns the number of the owner of a frame, below [`Owners::count`]. `octets` are those of the first buffer. `None` if any CPU may
    /// process the frame.
    #[inline]
    #[must_use]
    pub fn of_frame(&self, octets: &[u8]) -> Option<u16> {
        let (ethertype, packet) = packet_of(octets)?;
        match ethertype {
            IPV4 => self.of_ipv4(packet),
            IPV6 => self.of_ipv6(packet),
            _ => None,
        }
    }

    /// Returns the owner of an IPv4 packet. `None` if its header is truncated.
    #[inline]
    #[must_use]
    pub fn of_ipv4(&self, packet: &[u8]) -> Option<u16> {
        let flow = flow_of(packet)?;
        Some(self.ipv4.of_flow(&flow, self.count))
    }

    /// Returns the owner of a client's connections to virtual endpoints.
    #[must_use]
    pub const fn of_client(&self, client: IpAddr) -> u16 {
        match client {
            IpAddr::V4(client) => owner_of_host(client.to_bits(), self.count),
            IpAddr::V6(client) => owner_of_client(client.to_bits(), self.count),
        }
    }

    /// Returns the owner of a mapping of NAT: that of packets from outside to its external endpoint.
    #[must_use]
    pub fn of_mapping(&self, saved: &SavedMapping) -> u16 {
        let flow = Flow {
            source: 0,
            destination: saved.external.ip().to_bits(),
            ports: Some((saved.protocol, 0, saved.external.port())),
        };
        self.ipv4.of_flow(&flow, self.count)
    }

    /// Returns the owner of a mapping of NAT66 or NAT64, as [`Owners::of_mapping`] does.
    #[must_use]
    pub fn of_mapping_ipv6(&self, saved: &SavedMappingIpv6) -> u16 {
        let external = *saved.external.ip();
        let ports = Some((saved.protocol, 0, saved.external.port()));
        if let Some(external) = external.to_ipv4_mapped() {
            let flow = Flow {
                source: 0,
                destination: external.to_bits(),
                ports,
            };
            return self.ipv4.of_flow(&flow, self.count);
        }
        let flow = Flow {
            source: 0,
            destination: external.to_bits(),
            ports,
        };
        self.ipv6.of_flow(&flow, self.count)
    }

    /// Returns the owner of a saved connection. `None` if the record is not a valid connection.
    #[must_use]
    pub fn of_saved(&self, saved: &SavedConnection) -> Option<u16> {
        let ([source, destination], protocol) = saved.endpoints()?;
        let protocol = NatProtocol::of_number(protocol);
        let ports = protocol.map(|one| (one, source.port, destination.port));
        match (source.address, destination.address) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let flow = Flow {
                    source: from.to_bits(),
                    destination: to.to_bits(),
                    ports,
                };
                Some(self.ipv4.of_flow(&flow, self.count))
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let flow = Flow {
                    source: from.to_bits(),
                    destination: to.to_bits(),
                    ports,
                };
                Some(self.ipv6.of_flow(&flow, self.count))
            }
            _ => None,
        }
    }

    /// Returns the owner of an IPv6 packet. `None` if its header is truncated.
    #[inline]
    #[must_use]
    pub fn of_ipv6(&self, packet: &[u8]) -> Option<u16> {
        let (source, destination) = addresses_of(packet)?;
        if let Some(owner) = self.of_nat64(packet, source, destination) {
            return Some(owner);
        }
        if !self.ipv6.is_empty() {
            let flow = ipv6_flow_of(packet)?;
            // As in the router, load balancers and NAT66 come before prefixes.
            let owner = self.ipv6.of_endpoint(&flow, self.count);
            return Some(owner.unwrap_or_else(|| {
                let destination = self.inside_address(flow.destination);
                let flow = Flow {
                    destination,
                    ..flow
                };
                self.ipv6.of_flow(&flow, self.count)
            }));
        }
        // The packet in an error goes in the other direction.
        let inner = inner_ipv6(packet).map(|(from, to)| (to, from));
        let (source, destination) = inner.unwrap_or((source, destination));
        let destination = self.inside_address(destination);
        Some(owner_of_pair(source, destination, self.count))
    }

    /// Returns the inside address of an external address of prefix translation. Other addresses, and those without translation, stay.
    #[inline]
    fn inside_address(&self, address: u128) -> u128 {
        let mut pairs = self.prefix_pairs.iter();
        let inside = pairs.find_map(|pair| pair.internal_of(address).ok().flatten());
        inside.unwrap_or(address)
    }

    /// Returns the owner of an IPv6 packet to an IPv4 host. An ICMP error belongs to the client that the packet in it is for. A client has
    /// port blocks of the CPU that processes its packets, so answers have the same owner.
    #[inline]
    fn of_nat64(&self, packet: &[u8], source: u128, destination: u128) -> Option<u16> {
        let mut prefixes = self.prefixes.iter();
        let prefix = prefixes.find(|one| one.contains(destination))?;
        if let Some((_, client)) = inner_ipv6(packet) {
            return Some(owner_of_client(client, self.count));
        }
        let external = prefix.ipv4_of(destination).and_then(|destination| {
            let flow = Flow {
                source: 0,
                destination,
                ports: ports_of_ipv6(packet),
            };
            self.ipv4.of_any_external(&flow, self.count)
        });
        Some(external.unwrap_or_else(|| owner_of_client(source, self.count)))
    }
}

impl<A: Address> VersionOwners<A> {
    /// Adds an instance of NAT with these prefixes of inside hosts.
    fn add(&mut self, externals: Externals<A>, sources: &[(A, A)]) {
        let forwards = externals.forwards.iter();
        self.servers.extend(forwards.map(|(_, host)| *host));
        self.servers.sort_unstable();
        let pairs = externals.pairs.iter();
        self.paired.extend(pairs.map(|(_, host)| *host));
        self.paired.sort_unstable();
        self.sources.extend(sources);
        self.nats.push(externals);
    }

    fn sort_balanced(&mut self) {
        self.balanced.sort_unstable();
        self.balanced.dedup();
    }

    /// Returns true if only the addresses determine owners.
    #[inline]
    const fn is_empty(&self) -> bool {
        self.nats.is_empty() && self.balanced.is_empty()
    }

    #[inline]
    fn of_flow(&self, flow: &Flow<A>, count: u16) -> u16 {
        let owner = self.of_endpoint(flow, count);
        owner.unwrap_or_else(|| self.of_addresses(flow, count))
    }

    /// Returns the owner of a packet of a load balancer, or to an external address of NAT.
    #[inline]
    fn of_endpoint(&self, flow: &Flow<A>, count: u16) -> Option<u16> {
        let owner = owner_of_balanced(&self.balanced, flow, count);
        owner.or_else(|| self.of_any_external(flow, count))
    }

    /// Returns the owner of a packet to an external address of any instance of NAT.
    #[inline]
    fn of_any_external(&self, flow: &Flow<A>, count: u16) -> Option<u16> {
        let mut nats = self.nats.iter();
        nats.find_map(|nat| self.of_external(nat, flow, count))
    }

    /// Returns the owner of a packet to an external address of an instance of NAT.
    #[inline]
    fn of_external(&self, nat: &Externals<A>, flow: &Flow<A>, count: u16) -> Option<u16> {
        if let Ok(at) = nat
            .pairs
            .binary_search_by_key(&flow.destination, |pair| pair.0)
        {
            let (_, internal) = *nat.pairs.get(at)?;
            // The translation has no state, but the sender's has.
            return Some(if self.paired.binary_search(&flow.source).is_ok() {
                owner_of_pair(flow.source.into(), internal.into(), count)
            } else if self.is_inside(flow.source) {
                owner_of_client(flow.source.into(), count)
            } else {
                owner_of_client(internal.into(), count)
            });
        }
        let external = nat.number_of(flow.destination)?;
        let (protocol, _, port) = flow.ports?;
        let place = (flow.destination, port, protocol as u8);
        if let Ok(at) = nat.forwards.binary_search_by_key(&place, |one| one.0) {
            let (_, host) = nat.forwards.get(at)?;
            return Some(owner_of_client((*host).into(), count));
        }
        let offset = port.checked_sub(nat.first_port)?;
        let block = usize::from(offset.checked_div(nat.block_size.max(1))?);
        let is_block = block < nat.blocks;
        let number = external.saturating_mul(nat.blocks).saturating_add(block);
        let owner = nat.owner_of_computed((external, block), offset, count);
        is_block.then(|| owner.unwrap_or_else(|| owner_of_block(number, count)))
    }

    #[inline]
    fn is_inside(&self, address: A) -> bool {
        let mut sources = self.sources.iter();
        sources.any(|(prefix, mask)| address & *mask == *prefix)
            || self.servers.binary_search(&address).is_ok()
            || self.paired.binary_search(&address).is_ok()
    }

    /// Returns the owner of a packet by its addresses.
    #[inline]
    fn of_addresses(&self, flow: &Flow<A>, count: u16) -> u16 {
        let Flow {
            source,
            destination,
            ..
        } = *flow;
        match (self.is_inside(source), self.is_inside(destination)) {
            (true, false) => owner_of_client(source.into(), count),
            (false, true) => owner_of_client(destination.into(), count),
            _ => owner_of_pair(source.into(), destination.into(), count),
        }
    }
}

fn place_of(endpoint: SocketAddrV4, protocol: NatProtocol) -> ProtocolEndpoint {
    (endpoint.ip().to_bits(), endpoint.port(), protocol as u8)
}

/// Returns the owner of a packet to or from the endpoint of a load balancer: that of the client.
#[inline]
fn owner_of_balanced<A: Address>(
    balanced: &[ProtocolEndpoint<A>],
    flow: &Flow<A>,
    count: u16,
) -> Option<u16> {
    let (protocol, from, to) = flow.ports?;
    if balanced.is_empty() {
        return None;
    }
    let is_balanced = |place: ProtocolEndpoint<A>| balanced.binary_search(&place).is_ok();
    let is_to = is_balanced((flow.destination, to, protocol as u8));
    let is_from = is_balanced((flow.source, from, protocol as u8));
    match (is_from, is_to) {
        (false, true) => Some(owner_of_client(flow.source.into(), count)),
        (true, false) => Some(owner_of_client(flow.destination.into(), count)),
        _ => None,
    }
}

/// Returns the EtherType of a frame, and the octets after it. `None` for frames to group addresses.
#[inline(always)]
fn packet_of(octets: &[u8]) -> Option<([u8; 2], &[u8])> {
    let is_group = octets.first()? & 1 != 0;
    if is_group {
        return None;
    }
    let (_, rest) = after_tags(octets)?;
    let (ethertype, packet) = rest.split_first_chunk::<2>()?;
    Some((*ethertype, packet))
}

/// Returns the endpoints of an IPv4 packet. An ICMP error has those of an answer to the packet that it is about.
#[inline]
fn flow_of(packet: &[u8]) -> Option<Flow> {
    let (flow, protocol, transport) = plain_flow(packet, 0)?;
    let is_error = protocol == Some(IpProtocol::ICMP.0)
        && packet
            .get(transport)
            .is_some_and(|kind| matches!(kind, 3 | 11 | 12));
    if !is_error {
        return Some(flow);
    }
    let inner_at = transport.saturating_add(ICMP_LENGTH);
    let Some((inner, ..)) = plain_flow(packet, inner_at) else {
        return Some(flow);
    };
    Some(Flow {
        source: inner.destination,
        destination: inner.source,
        ports: inner.ports.map(|(protocol, from, to)| (protocol, to, from)),
    })
}

/// Returns the endpoints of the IPv4 packet at an offset, its protocol unless it is a fragment, and the offset of its transport header.
#[inline]
fn plain_flow(packet: &[u8], at: usize) -> Option<(Flow, Option<u8>, usize)> {
    let header = header(packet, at)?;
    let transport = at.saturating_add(header.length);
    let flow = Flow {
        source: header.source,
        destination: header.destination,
        ports: None,
    };
    if header.is_fragment {
        return Some((flow, None, transport));
    }
    let ports = ports_at(packet, header.protocol, transport);
    let flow = Flow { ports, ..flow };
    Some((flow, Some(header.protocol), transport))
}

/// Returns protocol and ports of a transport header, or the identifier of an echo as both ports.
#[inline]
fn ports_at(packet: &[u8], protocol: u8, transport: usize) -> Option<(NatProtocol, u16, u16)> {
    match protocol {
        1 if packet
            .get(transport)
            .is_some_and(|kind| matches!(kind, 0 | 8)) =>
        {
            let identifier = be16_at(packet, transport.saturating_add(4))?;
            Some((NatProtocol::Icmp, identifier, identifier))
        }
        6 => both_ports(packet, transport).map(|(from, to)| (NatProtocol::Tcp, from, to)),
        17 => both_ports(packet, transport).map(|(from, to)| (NatProtocol::Udp, from, to)),
        _ => None,
    }
}

#[inline]
fn both_ports(packet: &[u8], transport: usize) -> Option<(u16, u16)> {
    let second_at = transport.saturating_add(2);
    Some((be16_at(packet, transport)?, be16_at(packet, second_at)?))
}

/// Returns source and destination of an IPv6 packet.
#[inline]
fn addresses_of(packet: &[u8]) -> Option<(u128, u128)> {
    let header = packet.first_chunk::<IPV6_HEADER_LENGTH>()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let address = |at: usize| {
        let octets = header.get(at..)?.first_chunk()?;
        Some(u128::from_be_bytes(*octets))
    };
    Some((address(ADDRESSES_AT)?, address(ADDRESSES_AT + 16)?))
}

/// Returns protocol and ports of an IPv6 packet that is no fragment, as they are in IPv4.
#[inline]
fn ports_of_ipv6(packet: &[u8]) -> Option<(NatProtocol, u16, u16)> {
    let (header, rest) = packet.split_first_chunk::<IPV6_HEADER_LENGTH>()?;
    let walked = walk_ipv6_extensions(IpProtocol(header[NEXT_HEADER_AT]), rest).ok()?;
    match walked.fragment {
        Fragment::Whole => ports_behind(packet, &walked),
        _ => None,
    }
}

/// Returns protocol and ports of an IPv6 packet behind its extension headers.
#[inline]
fn ports_behind(packet: &[u8], walked: &Ipv6Extensions) -> Option<(NatProtocol, u16, u16)> {
    let transport = walked.length.saturating_add(IPV6_HEADER_LENGTH);
    let (protocol, (from, to)) = match walked.protocol {
        IpProtocol::TCP => (NatProtocol::Tcp, both_ports(packet, transport)?),
        IpProtocol::UDP => (NatProtocol::Udp, both_ports(packet, transport)?),
        IpProtocol::ICMPV6 => {
            let kind = packet.get(transport).copied()?;
            if !matches!(kind, ECHO_REQUEST | ECHO_REPLY) {
                return None;
            }
            let identifier = be16_at(packet, transport.saturating_add(4))?;
            (NatProtocol::Icmp, (identifier, identifier))
        }
        _ => return None,
    };
    Some((protocol, from, to))
}

/// Returns protocol and ports of the first fragment of an IPv6 datagram. `None` for other packets.
#[cold]
fn ports_of_first_ipv6(packet: &[u8]) -> Option<(NatProtocol, u16, u16)> {
    let (header, rest) = packet.split_first_chunk::<IPV6_HEADER_LENGTH>()?;
    let walked = walk_ipv6_extensions(IpProtocol(header[NEXT_HEADER_AT]), rest).ok()?;
    match walked.fragment {
        Fragment::First => ports_behind(packet, &walked),
        _ => None,
    }
}

/// Returns the endpoints of an IPv6 packet. An ICMPv6 error has those of an answer to the packet that it is about.
#[inline]
fn ipv6_flow_of(packet: &[u8]) -> Option<Flow<u128>> {
    let inner = packet_in_error(packet);
    if let Some((packet, (source, destination))) = inner.zip(inner.and_then(addresses_of)) {
        return Some(Flow {
            source: destination,
            destination: source,
            ports: ports_of_ipv6(packet).map(|(protocol, from, to)| (protocol, to, from)),
        });
    }
    let (source, destination) = addresses_of(packet)?;
    Some(Flow {
        source,
        destination,
        ports: ports_of_ipv6(packet),
    })
}

/// Returns the addresses of the packet that an ICMPv6 error is about. `None` for other packets.
#[inline]
fn inner_ipv6(packet: &[u8]) -> Option<(u128, u128)> {
    packet_in_error(packet).and_then(addresses_of)
}

/// Returns the packet that an ICMPv6 error is about. `None` for other packets.
#[inline]
fn packet_in_error(packet: &[u8]) -> Option<&[u8]> {
    let (header, rest) = packet.split_first_chunk::<IPV6_HEADER_LENGTH>()?;
    let walked = walk_ipv6_extensions(IpProtocol(header[NEXT_HEADER_AT]), rest).ok()?;
    if walked.protocol != IpProtocol::ICMPV6 || walked.fragment != Fragment::Whole {
        return None;
    }
    let message = rest.get(walked.length..)?;
    match message.first()? {
        1..=4 => message.get(ICMP_LENGTH..),
        _ => None,
    }
}
