// SPDX-License-Identifier: Apache-2.0
//! NAT of a forwarding thread, around the router: destinations before the routing decision, sources behind it.
//!
//! The control thread makes all memory. An order carries a complete set of instances; an instance with the identity of a former one
//! continues with its tables.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::sync::Arc;

use ipnet::IpNet;
use quietwire_dpdk::{Burst, Eal, cycles};
use quietwire_packet::{
    ETHERNET_HEADER_LENGTH, IPV4_DESTINATION_AT, IPV4_SOURCE_AT, VLAN_TAG_LENGTH, ipv4_address_at,
};
use quietwire_tables::changes::{Applied, ApplyError, Replicate};
use quietwire_tables::nat::{
    Forward, MappingChange, MappingInfo, Nat, NatCounters, NatDrop, NatEvent, NatOutcome,
    NatProtocol, NatSettings, PoolGrowth, ReplicateIpv6, SavedMappingIpv6, is_client_number,
};
use quietwire_tables::nat64::{Nat64, Nat64Settings};
use quietwire_tables::nat66::{Nat66, Nat66Settings};
use quietwire_tables::share::Share;

use super::nat_events::{EventSink, Ipv6Ends, ipv6_ends};
use super::replicated::Replicated;

/// Entries of each table that are checked for expiry per burst, and when the thread gets an order without effect, which is every other
/// second.
const EXPIRY_STEPS: usize = 16;
const EXPIRY_STEPS_OF_ORDER: usize = 4096;
/// Octets of a frame that its classification reads at most: headers, and for ICMP errors the whole packet.
const COPY_HEADERS: usize = 192;
const COPY_MAX: usize = 2048;
/// Offset of the protocol in an IPv4 header.
const PROTOCOL_AT: usize = 9;
const ICMP: u8 = 1;

/// Identity of an instance over changes: its name, and its settings without static forwards.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NatIdentity {
    pub(crate) name: String,
    /// Without forwards, and with the thread's share of entries.
    pub(crate) settings: NatSettings,
    /// NAT64, if there is any.
    pub(crate) nat64: Option<Nat64Settings>,
    /// NAT66, if IPv6 is translated.
    pub(crate) nat66: Option<Nat66Settings>,
    /// Share of the thread; `None` for one that is about to end.
    pub(crate) share: Option<Share>,
}

impl NatIdentity {
    /// Returns true if this instance is the other one with further external addresses behind its own, so that its tables can grow.
    pub(crate) fn extends(&self, other: &Self) -> bool {
        let Self {
            name,
            settings,
            nat64,
            nat66,
            share,
        } = self;
        let extends_nat66 = match (nat66, &other.nat66) {
            (None, None) => true,
            (Some(one), Some(other)) => one.extends(other),
            (None, Some(_)) | (Some(_), None) => false,
        };
        settings.extends(&other.settings)
            && extends_nat66
            && *name == other.name
            && *nat64 == other.nat64
            && *share == other.share
    }
}

/// Tables of an instance.
#[derive(Debug)]
pub(crate) struct NatTables {
    pub(crate) nat: Nat,
    pub(crate) nat64: Option<Box<Nat64>>,
    pub(crate) nat66: Option<Box<Nat66>>,
    /// To the log, if there is one.
    pub(crate) events: Option<EventSink>,
}

/// Place of an instance in the router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NatBinding {
    pub(crate) identity: Arc<NatIdentity>,
    /// Number of the outside interface of IPv4; `u16::MAX` for NAT66.
    pub(crate) interface: u16,
    /// Number of its VRF; `u16::MAX` for NAT66.
    pub(crate) vrf: u16,
    /// Prefixes of translated sources, as address and mask. Empty: all.
    pub(crate) sources: Vec<(u32, u32)>,
    /// Prefixes of destinations whose packets leave without translation, as address and mask (RFC 6888, REQ-6).
    pub(crate) excluded: Vec<(u32, u32)>,
    /// External addresses that the router itself has, in ascending order. Packets to them without mapping are for the router.
    pub(crate) own: Vec<u32>,
    /// Static forwards, in ascending order.
    pub(crate) forwards: Vec<Forward>,
    /// Virtual addresses of load balancers, in ascending order: sources that stay.
    pub(crate) virtuals: Vec<u32>,
    /// Place at which packets of NAT64 continue.
    pub(crate) nat64: Option<Nat64Place>,
    /// Place of NAT66. It has none of IPv4.
    pub(crate) nat66: Option<Nat66Place>,
}

/// Place at which translated packets of NAT64 continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nat64Place {
    /// Number of the interface that IPv6 packets seem to come from.
    pub(crate) inside: u16,
    /// Longest IPv6 packet made of an IPv4 packet that may be fragmented.
    pub(crate) mtu: u16,
}

/// Place of an instance of NAT66 in the router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nat66Place {
    /// Number of the outside interface.
    pub(crate) interface: u16,
    /// Number of its VRF.
    pub(crate) vrf: u16,
    /// Prefixes of translated sources, as address and mask. Empty: all.
    pub(crate) sources: Vec<(u128, u128)>,
    /// Prefixes of destinations whose packets leave without translation, as address and mask.
    pub(crate) excluded: Vec<(u128, u128)>,
    /// External addresses that the router itself has, in ascending order. Packets to them without mapping are for the router.
    pub(crate) own: Vec<u128>,
    /// Static forwards, in ascending order.
    pub(crate) forwards: Vec<Forward<SocketAddrV6>>,
    /// Virtual addresses of load balancers, in ascending order: sources that stay.
    pub(crate) virtuals: Vec<u128>,
}

impl Nat66Place {
    /// Returns true if packets of this source are translated.
    pub(super) fn concerns_source(&self, source: u128) -> bool {
        let mut sources = self.sources.iter();
        self.sources.is_empty() || sources.any(|(address, mask)| source & mask == *address)
    }

    /// Returns true if packets to this destination leave without translation.
    pub(super) fn excludes(&self, destination: u128) -> bool {
        let mut excluded = self.excluded.iter();
        excluded.any(|(address, mask)| destination & mask == *address)
    }

    pub(super) fn is_own(&self, address: u128) -> bool {
        self.own.binary_search(&address).is_ok()
    }

    /// Returns true for a source of the router itself.
    pub(super) fn is_of_router(&self, source: u128) -> bool {
        self.is_own(source) || self.virtuals.binary_search(&source).is_ok()
    }
}

/// Frames of a pass of NAT64, before they are translated.
#[derive(Debug)]
pub(crate) struct FamilyPass {
    pub(super) whole: Burst,
}

impl FamilyPass {
    pub(crate) fn new(eal: &Eal) -> Self {
        Self {
            whole: Burst::new(eal),
        }
    }
}

/// An instance.
#[derive(Debug)]
pub(crate) struct NatInstance {
    pub(crate) place: NatBinding,
    /// New tables, for a thread that has none of this identity.
    pub(crate) tables: Option<Box<NatTables>>,
    /// Further external addresses, for a thread that has tables of an instance without them.
    pub(crate) growth: Option<Box<PoolGrowth>>,
    /// Static forwards for which there was no space.
    pub(crate) without_space: usize,
}

/// All instances of a thread.
#[derive(Debug, Default)]
pub(crate) struct NatStage {
    pub(crate) instances: Vec<NatInstance>,
    /// Resources of NAT64, if an instance has it. A pass takes them.
    pub(crate) families: Option<Box<FamilyPass>>,
    /// Whether an instance is of NAT66.
    pub(crate) has_nat66: bool,
}

/// A request of the control thread about an instance. Its list has space for the results.
#[derive(Debug)]
pub(crate) struct NatQuery {
    /// Number of the instance.
    pub(crate) instance: usize,
    /// Position in the table; `None` at the end.
    pub(crate) from: Option<u32>,
    /// Entries to read.
    pub(crate) budget: usize,
    /// Listed mappings. The forwarding thread never exceeds its capacity.
    pub(crate) list: Vec<MappingInfo>,
    /// IPv6 addresses of each listed mapping; empty without NAT64 and NAT66. The forwarding thread never exceeds its capacity.
    pub(crate) ipv6: Vec<Ipv6Ends>,
    /// Mappings of an active switch and its standby, instead of the list.
    pub(crate) replicated: Option<Replicated<MappingChange>>,
    /// Those of NAT64 and NAT66, instead.
    pub(crate) replicated_ipv6: Option<Replicated<MappingChange<SavedMappingIpv6>>>,
    /// Mappings to remove, instead.
    pub(crate) flush: Option<MappingFilter>,
    /// Removed mappings.
    pub(crate) removed: u64,
    /// Numbers of the instance; `None` if the thread does not have it.
    pub(crate) totals: Option<NatTotals>,
}

impl NatQuery {
    /// Returns a request for the numbers of an instance.
    pub(crate) const fn of(instance: usize) -> Self {
        Self {
            instance,
            from: None,
            budget: 0,
            list: Vec::new(),
            ipv6: Vec::new(),
            replicated: None,
            replicated_ipv6: None,
            flush: None,
            removed: 0,
            totals: None,
        }
    }
}

/// Mappings that match all given fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MappingFilter {
    /// Number of the IP protocol.
    pub(crate) protocol: Option<u8>,
    /// Prefix of the inside or the external address, or of the remote one that the mapping depends on.
    pub(crate) address: Option<IpNet>,
    /// Inside or external port, or remote one that the mapping depends on.
    pub(crate) port: Option<u16>,
    /// Inside endpoints of IPv4, in ascending order.
    pub(crate) inside: Option<Arc<[(NatProtocol, SocketAddrV4)]>>,
}

impl MappingFilter {
    /// Returns true for a mapping with these IPv6 addresses, if it has some.
    fn matches(&self, info: &MappingInfo, ends: Ipv6Ends) -> bool {
        let (inside, outside) = (info.internal, info.external);
        let host = ends.host.map_or(IpAddr::V4(*inside.ip()), IpAddr::V6);
        let external = ends.external.map_or(IpAddr::V4(*outside.ip()), IpAddr::V6);
        let remote = info.remote_address.map(IpAddr::V4);
        let mut protocol = self.protocol.iter();
        protocol.all(|number| NatProtocol::of_number(*number) == Some(info.protocol))
            && self.address.is_none_or(|net| {
                let mut all = [host, external].into_iter().chain(remote);
                all.any(|address| net.contains(&address))
            })
            && self.port.is_none_or(|port| {
                port == inside.port() || port == outside.port() || info.remote_port == Some(port)
            })
            && self
                .inside
                .as_ref()
                .is_none_or(|all| all.binary_search(&(info.protocol, inside)).is_ok())
    }
}

/// Numbers of an instance.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NatTotals {
    pub(crate) mappings: u64,
    pub(crate) forwards: u64,
    pub(crate) mappings_max: u64,
    pub(crate) hosts: u64,
    pub(crate) octets: u64,
    pub(crate) counters: NatCounters,
    /// Events that did not fit into the ring to the log.
    pub(crate) events_lost: u64,
}

impl NatTotals {
    /// Adds the numbers of another thread.
    pub(crate) fn add(&mut self, other: &Self) {
        self.mappings = self.mappings.saturating_add(other.mappings);
        self.forwards = self.forwards.saturating_add(other.forwards);
        self.mappings_max = self.mappings_max.saturating_add(other.mappings_max);
        self.hosts = self.hosts.saturating_add(other.hosts);
        self.octets = self.octets.saturating_add(other.octets);
        self.counters.add(&other.counters);
        self.events_lost = self.events_lost.saturating_add(other.events_lost);
    }
}

/// Returns the IPv4 packet in an untagged frame.
#[inline(always)]
pub(super) fn ipv4(frame: &[u8]) -> Option<&[u8]> {
    let (ethernet, packet) = frame.split_first_chunk::<ETHERNET_HEADER_LENGTH>()?;
    let [.., high, low] = *ethernet;
    ([high, low] == [0x08, 0x00]).then_some(packet)
}

impl NatBinding {
    /// Returns true if packets of this source are translated.
    #[inline(always)]
    fn concerns_source(&self, source: u32) -> bool {
        let mut sources = self.sources.iter();
        self.sources.is_empty() || sources.any(|(address, mask)| source & mask == *address)
    }

    /// Returns true if a packet leaves without translation because of its destination.
    #[inline(always)]
    fn excludes(&self, packet: &[u8]) -> bool {
        let to = ipv4_address_at(packet, IPV4_DESTINATION_AT);
        !self.excluded.is_empty() && to.is_some_and(|to| self.excludes_address(to))
    }

    fn excludes_address(&self, to: u32) -> bool {
        let mut excluded = self.excluded.iter();
        excluded.any(|(address, mask)| to & mask == *address)
    }

    /// Returns true for a source of the router itself.
    #[inline(always)]
    fn is_of_router(&self, source: u32) -> bool {
        self.is_own(source) || self.virtuals.binary_search(&source).is_ok()
    }

    #[inline(always)]
    fn is_own(&self, address: u32) -> bool {
        self.own.binary_search(&address).is_ok()
    }
}

impl NatInstance {
    #[inline(always)]
    fn is_external(&self, address: u32) -> bool {
        let tables = self.tables.as_ref();
        tables.is_some_and(|tables| tables.nat.is_external(address))
    }
}

/// Returns the result of a received packet. `is_own` returns true if its destination is an address of the router too.
#[inline(always)]
pub(super) fn received(outcome: NatOutcome, is_own: impl Fn() -> bool) -> Result<(), NatDrop> {
    match outcome {
        NatOutcome::Untouched | NatOutcome::Translated | NatOutcome::Hairpinned => Ok(()),
        // The router receives its own packets, and answers as without NAT.
        NatOutcome::Dropped(
            NatDrop::NoMapping
            | NatDrop::Malformed
            | NatDrop::Fragment
            | NatDrop::Protocol
            | NatDrop::IcmpType
            | NatDrop::Checksum,
        ) if is_own() => Ok(()),
        NatOutcome::Dropped(reason) => Err(reason),
    }
}

/// Returns the result of a packet that leaves.
#[inline(always)]
pub(super) fn sent(outcome: NatOutcome) -> Result<(), NatDrop> {
    match outcome {
        NatOutcome::Untouched | NatOutcome::Translated => Ok(()),
        // Packets to external addresses never come here: they were translated before the decision.
        NatOutcome::Hairpinned => Err(NatDrop::NoMapping),
        NatOutcome::Dropped(reason) => Err(reason),
    }
}

impl NatTables {
    /// Returns the memory of the tables, octets.
    fn octets(&self) -> usize {
        let nat64 = self.nat64.as_ref().map_or(0, |nat64| nat64.octets());
        let nat66 = self.nat66.as_ref().map_or(0, |nat66| nat66.octets());
        self.nat
            .octets()
            .saturating_add(nat64)
            .saturating_add(nat66)
    }

    /// Returns the IPv6 addresses that the addresses of a mapping stand for.
    fn ipv6_ends(&self, internal: Ipv4Addr, external: Ipv4Addr) -> Ipv6Ends {
        let (nat64, nat66) = (self.nat64.as_deref(), self.nat66.as_deref());
        ipv6_ends(nat64, nat66, internal, external)
    }

    /// Notes an event for NAT64 and NAT66. Returns the IPv6 addresses in it.
    fn note(&mut self, event: &NatEvent) -> Ipv6Ends {
        if let Some(nat66) = &mut self.nat66 {
            return Ipv6Ends {
                host: nat66.note(&mut self.nat, event),
                external: event.external().and_then(|one| nat66.external(one)),
            };
        }
        let nat64 = self.nat64.as_mut();
        Ipv6Ends {
            host: nat64.and_then(|nat64| nat64.note(&mut self.nat, event)),
            external: None,
        }
    }

    /// Sets the static forwards. Returns the number of those without space. Allocates nothing.
    fn set_forwards(&mut self, place: &NatBinding) -> usize {
        match (&mut self.nat66, &place.nat66) {
            (Some(nat66), Some(place)) => nat66.set_forwards(&mut self.nat, &place.forwards),
            _ => self.nat.set_forwards(&place.forwards),
        }
    }

    /// Passes events on to the log.
    #[inline(always)]
    pub(super) fn pass_events(&mut self) {
        if self.nat.has_events() {
            self.pass_some_events();
        }
    }

    /// Returns the translator of IPv6, if there is one, and its NAT.
    fn of_ipv6(&mut self) -> Option<(&mut dyn ReplicateIpv6, &mut Nat)> {
        let (nat66, nat64) = (self.nat66.as_deref_mut(), self.nat64.as_deref_mut());
        let translator: &mut dyn ReplicateIpv6 = match (nat66, nat64) {
            (Some(nat66), _) => nat66,
            (None, Some(nat64)) => nat64,
            (None, None) => return None,
        };
        Some((translator, &mut self.nat))
    }

    #[cold]
    fn pass_some_events(&mut self) {
        let now = cycles::now();
        self.report_loss(now);
        // The queue of events never grows.
        while let Some(event) = self.nat.take_event() {
            let ends = self.note(&event);
            if let Some(events) = &mut self.events {
                events.push(now, event, ends);
            }
        }
    }

    /// Passes the number of lost events on to the log, if some were lost since the last time.
    fn report_loss(&mut self, now: u64) {
        if let Some(events) = &mut self.events {
            events.report_loss(now, self.nat.events_lost());
        }
    }
}

/// Mappings of NAT64 and NAT66 for a standby.
struct MappingsIpv6<'tables>(&'tables mut NatTables);

impl Replicate for MappingsIpv6<'_> {
    type Change = MappingChange<SavedMappingIpv6>;

    fn take_changes(&mut self, limits: (usize, usize), list: &mut Vec<Self::Change>) -> bool {
        let tables = self.0.of_ipv6();
        tables.is_some_and(|(translator, nat)| translator.take_changes(nat, limits, list))
    }

    fn take_lost_changes(&mut self) -> u64 {
        let tables = self.0.of_ipv6();
        tables.map_or(0, |(translator, nat)| translator.take_lost_changes(nat))
    }

    fn end_changes(&mut self) {
        if let Some((translator, nat)) = self.0.of_ipv6() {
            translator.end_changes(nat);
        }
    }

    fn share_into(
        &mut self,
        from: u32,
        limits: (usize, usize),
        list: &mut Vec<Self::Change>,
    ) -> Option<u32> {
        let (translator, nat) = self.0.of_ipv6()?;
        translator.share_into(nat, from, limits, list)
    }

    fn apply(&mut self, change: &Self::Change, now_s: u32) -> Result<Applied, ApplyError> {
        let (translator, nat) = self.0.of_ipv6().ok_or(ApplyError::Invalid)?;
        let applied = translator.apply(nat, change, now_s);
        self.0.pass_events();
        applied
    }
}

impl NatStage {
    /// Continues with the tables of a former stage for instances that it had, and sets their forwards. Allocates nothing.
    pub(super) fn inherit(&mut self, former: &mut Self) {
        for instance in &mut self.instances {
            let identity = &instance.place.identity;
            let mut others = former.instances.iter_mut();
            let has_growth = instance.growth.is_some();
            let is_former = |other: &&mut NatInstance| {
                let other = &other.place.identity;
                *other == *identity || has_growth && identity.extends(other)
            };
            if let Some(other) = others.find(is_former) {
                std::mem::swap(&mut instance.tables, &mut other.tables);
            }
            if let (Some(growth), Some(tables)) = (&mut instance.growth, &mut instance.tables) {
                // The control thread made it for these tables.
                tables.grow(growth, identity.nat66.as_ref());
            }
        }
        self.begin();
    }

    /// Sets the forwards of all instances. Allocates nothing.
    pub(super) fn begin(&mut self) {
        for instance in &mut self.instances {
            if let Some(tables) = &mut instance.tables {
                instance.without_space = tables.set_forwards(&instance.place);
                tables.pass_events();
            }
        }
    }

    /// Returns the number of static forwards for which there was no space.
    pub(super) fn without_space(&self) -> usize {
        self.instances.iter().map(|one| one.without_space).sum()
    }

    /// Removes some expired mappings, and passes events on.
    #[inline(always)]
    pub(super) fn end_burst(&mut self, now_s: u32) {
        self.expire(now_s, EXPIRY_STEPS);
    }

    /// Removes more expired mappings, for an order without effect.
    pub(super) fn rest(&mut self, now_s: u32) {
        self.expire(now_s, EXPIRY_STEPS_OF_ORDER);
        for instance in &mut self.instances {
            if let Some(tables) = &mut instance.tables {
                tables.report_loss(cycles::now());
            }
        }
    }

    #[inline(always)]
    fn expire(&mut self, now_s: u32, budget: usize) {
        for instance in &mut self.instances {
            if let Some(tables) = &mut instance.tables {
                tables.nat.expire(now_s, budget);
                tables.pass_events();
            }
        }
    }

    /// Returns true if an untagged frame of a VRF is to an external address.
    #[inline(always)]
    pub(super) fn concerns(&self, frame: &[u8], vrf: u16) -> bool {
        let Some(destination) =
            ipv4(frame).and_then(|packet| ipv4_address_at(packet, IPV4_DESTINATION_AT))
        else {
            return self.has_nat66 && self.concerns_ipv6(frame, vrf);
        };
        let mut instances = self.instances.iter();
        instances.any(|one| one.place.vrf == vrf && one.is_external(destination))
    }

    /// Returns true if an instance may translate the packet in a frame, by its addresses alone.
    pub(super) fn may_translate(&self, frame: &[u8]) -> bool {
        let Some(packet) = ipv4_offset(frame).and_then(|at| frame.get(at..)) else {
            return self.may_translate_ipv6(frame);
        };
        let address = |at| ipv4_address_at(packet, at);
        let (Some(source), Some(destination)) =
            (address(IPV4_SOURCE_AT), address(IPV4_DESTINATION_AT))
        else {
            return false;
        };
        let of_ipv4 = self.instances.iter();
        let mut of_ipv4 = of_ipv4.filter(|one| one.place.nat66.is_none());
        of_ipv4.any(|one| one.is_external(destination) || one.place.concerns_source(source))
    }

    /// Returns true if an interface is the outside of an instance.
    #[inline(always)]
    pub(super) fn is_outside(&self, interface: u16) -> bool {
        let mut instances = self.instances.iter();
        instances.any(|one| one.place.interface == interface)
            || self.has_nat66 && self.is_outside_ipv6(interface)
    }

    /// Translates the destination of a packet to an external address, in an untagged frame received on an interface of a VRF. `length` is
    /// that of the frame.
    ///
    /// # Errors
    /// The reason to drop the frame.
    pub(super) fn receive(
        &mut self,
        frame: &mut [u8],
        length: usize,
        (from, vrf): (u16, u16),
        now_s: u32,
    ) -> Result<(), NatDrop> {
        let Some(destination) =
            ipv4(frame).and_then(|packet| ipv4_address_at(packet, IPV4_DESTINATION_AT))
        else {
            return match self.has_nat66 {
                true => self.receive_ipv6(frame, length, (from, vrf), now_s),
                false => Ok(()),
            };
        };
        let mut instances = self.instances.iter_mut();
        let instance = instances.find(|one| one.place.vrf == vrf && one.is_external(destination));
        let Some(NatInstance {
            place,
            tables: Some(tables),
            ..
        }) = instance
        else {
            return Ok(());
        };
        let packet = frame.get_mut(ETHERNET_HEADER_LENGTH..).unwrap_or_default();
        // The source of a client's packet, which no packet from outside has.
        if tables.nat64.is_some()
            && ipv4_address_at(packet, IPV4_SOURCE_AT).is_some_and(is_client_number)
        {
            return Err(NatDrop::Malformed);
        }
        let length = length.saturating_sub(ETHERNET_HEADER_LENGTH);
        let outcome = if from == place.interface {
            tables.nat.inbound(packet, length, now_s)
        } else {
            tables.nat.hairpin(packet, length, now_s)
        };
        tables.pass_events();
        received(outcome, || place.is_own(destination))
    }

    /// Loads what [`Self::send`] of a packet reads first.
    #[inline(always)]
    pub(super) fn prefetch(&self, frame: &[u8], interface: u16) {
        let mut instances = self.instances.iter();
        if let Some(instance) = instances.find(|one| one.place.interface == interface)
            && let (Some(tables), Some(packet)) = (&instance.tables, ipv4(frame))
        {
            tables.nat.prefetch_outbound(packet);
        }
    }

    /// Translates the source of a packet that leaves by an outside interface, in an untagged frame that was received on an interface of a
    /// VRF. `length` is that of the frame.
    ///
    /// # Errors
    /// The reason to drop the frame.
    #[inline]
    pub(super) fn send(
        &mut self,
        frame: &mut [u8],
        length: usize,
        interface: u16,
        (from, vrf): (u16, u16),
        now_s: u32,
    ) -> Result<(), NatDrop> {
        if from == interface {
            return Ok(());
        }
        let Some(source) = ipv4(frame).and_then(|packet| ipv4_address_at(packet, IPV4_SOURCE_AT))
        else {
            return match self.has_nat66 {
                true => self.send_ipv6(frame, length, (interface, vrf), now_s),
                false => Ok(()),
            };
        };
        let mut instances = self.instances.iter_mut();
        let instance = instances.find(|one| one.place.interface == interface);
        let Some(NatInstance { place, tables, .. }) = instance else {
            return Ok(());
        };
        if !place.concerns_source(source) || place.is_of_router(source) {
            return Ok(());
        }
        let packet = frame.get_mut(ETHERNET_HEADER_LENGTH..).unwrap_or_default();
        if place.excludes(packet) {
            return Ok(());
        }
        if place.vrf != vrf {
            return Err(NatDrop::OtherVrf);
        }
        // Without tables, packets must not leave with inside addresses.
        let tables = tables.as_mut().ok_or(NatDrop::TableFull)?;
        let length = length.saturating_sub(ETHERNET_HEADER_LENGTH);
        let outcome = tables.nat.outbound(packet, length, now_s);
        tables.pass_events();
        sent(outcome)
    }

    /// Translates the packet in an ICMP error of the router itself that leaves by an outside interface.
    pub(super) fn send_own(&self, frame: &mut [u8], interface: u16) {
        if self.has_nat66 {
            self.send_own_ipv6(frame, interface);
        }
        let mut instances = self.instances.iter();
        let instance = instances.find(|one| one.place.interface == interface);
        let tables = instance.and_then(|one| one.tables.as_ref());
        if let Some(tables) = tables
            && ipv4(frame).and_then(|packet| packet.get(PROTOCOL_AT)) == Some(&ICMP)
        {
            let length = frame.len().saturating_sub(ETHERNET_HEADER_LENGTH);
            let packet = frame.get_mut(ETHERNET_HEADER_LENGTH..).unwrap_or_default();
            tables.nat.translate_own_error(packet, length);
        }
    }

    /// Returns a copy of a received frame with its inside destination, for the tracker: both directions of a connection have the inside
    /// endpoints there. `None` for frames that are not translated. `length` is that of the frame.
    pub(super) fn inside_copy<'copy>(
        &self,
        frame: &[u8],
        length: usize,
        copy: &'copy mut NatCopy,
    ) -> Option<&'copy [u8]> {
        let Some(at) = ipv4_offset(frame) else {
            return match self.has_nat66 {
                true => self.inside_copy_ipv6(frame, length, copy),
                false => None,
            };
        };
        let packet = frame.get(at..)?;
        let destination = ipv4_address_at(packet, IPV4_DESTINATION_AT)?;
        let of_ipv4 = self.instances.iter();
        let mut of_ipv4 = of_ipv4.filter(|one| one.place.nat66.is_none());
        let instance = of_ipv4.find(|one| one.is_external(destination))?;
        let space = copy.of(frame, at)?;
        let tables = instance.tables.as_ref()?;
        let packet = space.get_mut(at..)?;
        let outcome = tables.nat.show_inside(packet, length.saturating_sub(at));
        (outcome == NatOutcome::Translated).then_some(&*space)
    }

    /// Returns the external endpoint of an inside one for packets to a remote endpoint, unless they leave without translation.
    pub(super) fn external_of(
        &self,
        protocol: u8,
        internal: SocketAddr,
        remote: SocketAddr,
    ) -> Option<SocketAddr> {
        let (internal, remote) = match (internal, remote) {
            (SocketAddr::V4(internal), SocketAddr::V4(remote)) => (internal, remote),
            (SocketAddr::V4(_), SocketAddr::V6(_)) => return None,
            (SocketAddr::V6(internal), remote) => {
                return self.external_of_ipv6(protocol, internal, remote.ip());
            }
        };
        let protocol = NatProtocol::of_number(protocol)?;
        let of_ipv4 = self.instances.iter().filter(|one| {
            one.place.nat66.is_none() && !one.place.excludes_address(remote.ip().to_bits())
        });
        let mut tables = of_ipv4.filter_map(|one| one.tables.as_ref());
        let external =
            tables.find_map(|tables| tables.nat.external_of(protocol, internal, remote))?;
        Some(SocketAddr::V4(external))
    }

    /// Executes a part of a request. Allocates nothing.
    pub(super) fn answer(&mut self, query: &mut NatQuery, now_s: u32) {
        let instance = self.instances.get_mut(query.instance);
        let Some(tables) = instance.and_then(|one| one.tables.as_mut()) else {
            query.from = None;
            return;
        };
        if let (Some(from), Some(replicated)) = (query.from, &mut query.replicated) {
            query.from = replicated.run(&mut tables.nat, (from, query.budget), now_s);
            tables.pass_events();
        } else if let (Some(from), Some(replicated)) = (query.from, &mut query.replicated_ipv6) {
            let mut mappings = MappingsIpv6(tables);
            query.from = replicated.run(&mut mappings, (from, query.budget), now_s);
        } else if let (Some(from), Some(filter)) = (query.from, &query.flush) {
            let NatTables {
                nat, nat64, nat66, ..
            } = &mut **tables;
            let ends = |info: &MappingInfo| {
                let (internal, external) = (*info.internal.ip(), *info.external.ip());
                ipv6_ends(nat64.as_deref(), nat66.as_deref(), internal, external)
            };
            let matches = |info: &MappingInfo| filter.matches(info, ends(info));
            let (removed, next) = nat.flush(matches, from, query.budget);
            query.removed = query.removed.saturating_add(removed as u64);
            query.from = next;
            tables.pass_events();
        } else if let Some(from) = query.from {
            let limits = (query.list.capacity(), query.budget);
            query.from = tables.nat.list_into(from, limits, &mut query.list);
            if tables.nat64.is_some() || tables.nat66.is_some() {
                let known = query.ipv6.len();
                let space = query.ipv6.capacity().saturating_sub(known);
                let listed = query
                    .list
                    .get(known..)
                    .unwrap_or_default()
                    .iter()
                    .take(space);
                let ends =
                    listed.map(|one| tables.ipv6_ends(*one.internal.ip(), *one.external.ip()));
                query.ipv6.extend(ends);
            }
        }
        let forwards = tables.nat.forwards() as u64;
        query.totals = Some(NatTotals {
            mappings: (tables.nat.len() as u64).saturating_sub(forwards),
            forwards,
            mappings_max: tables.nat.mappings_max() as u64,
            hosts: tables.nat.hosts() as u64,
            octets: tables.octets() as u64,
            counters: tables.nat.counters(),
            events_lost: tables.events.as_ref().map_or(0, EventSink::lost),
        });
    }
}

/// Returns the offset of the IPv4 packet in a frame, behind up to two tags.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "from the end of an Ethernet header to that of three tags"
)]
#[inline(always)]
pub(super) fn ipv4_offset(frame: &[u8]) -> Option<usize> {
    let mut at = ETHERNET_HEADER_LENGTH;
    for _ in 0..3 {
        let ethertype = frame.get(at - 2..)?.first_chunk::<2>()?;
        match *ethertype {
            [0x08, 0x00] => return Some(at),
            [0x81, 0x00] | [0x88, 0xa8] => at += VLAN_TAG_LENGTH,
            _ => return None,
        }
    }
    None
}

/// Space for the copy of a frame.
#[derive(Debug)]
pub(super) struct NatCopy {
    octets: Box<[u8; COPY_MAX]>,
    length: usize,
}

impl NatCopy {
    pub(super) fn new() -> Self {
        Self {
            octets: Box::new([0; COPY_MAX]),
            length: 0,
        }
    }

    /// Returns the copy of a frame.
    pub(super) fn get(&self, frame: &[u8]) -> Option<&[u8]> {
        self.octets.get(..self.length.min(frame.len()))
    }

    /// Copies the octets that the classification of a frame reads. `at` is the offset of its IPv4 packet. `None` if there is no space.
    #[expect(clippy::arithmetic_side_effects, reason = "an offset in a frame")]
    pub(super) fn of(&mut self, frame: &[u8], at: usize) -> Option<&mut [u8]> {
        self.of_protocol(frame, frame.get(at + PROTOCOL_AT) == Some(&ICMP))
    }

    /// Copies what the classification of a frame reads. A packet of ICMP may be an error, which is read to its end. `None` if there is not
    /// enough space.
    pub(super) fn of_protocol(&mut self, frame: &[u8], is_icmp: bool) -> Option<&mut [u8]> {
        let octets_max = match is_icmp {
            true => COPY_MAX,
            false => COPY_HEADERS,
        };
        let octets = frame.get(..octets_max.min(frame.len()))?;
        self.length = octets.len();
        let space = self.octets.get_mut(..self.length)?;
        space.copy_from_slice(octets);
        Some(space)
    }
}
