// SPDX-License-Identifier: Apache-2.0
//! NAT: tables of forwarding threads, their place in the router, lists of mappings, and the log.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use ipnet::IpNet;
use quietwire_tables::nat::{
    FORWARDS_MAX, MappingInfo, Nat, NatDrop, NatSettings, PoolGrowth, ReplicateIpv6,
};
use quietwire_tables::nat64::Nat64;
use quietwire_tables::nat66::{Nat66, Nat66Settings};
use quietwire_tables::share::Share;
use rtrb::RingBuffer;

use super::Engine;
use super::apply::Tally;
use super::maker::step;
use super::orders::unexpected_reply;
use super::pages::{from_position, paged};
use super::threads::Forwarder;
use crate::config::layer3::InterfacePlan;
use crate::config::nat::{MappingSelection, MappingSetting, NatSetting, inside_of};
use crate::error::SwitchError;
use crate::forward::{
    EventSink, FamilyPass, Ipv6Ends, MappingFilter, Nat64Place, Nat66Place, NatBinding,
    NatIdentity, NatInstance, NatQuery, NatStage, NatTables, NatTotals, Reply, WorkerCommand,
};
use crate::layer3::{Nat64Addresses, RoutedInterface};
use crate::report::{MappingReport, MappingsReport, NatReport};

/// Events that wait for the log, of each instance and forwarding thread: without and with those of mappings.
const EVENTS: usize = 4096;
const EVENTS_OF_MAPPINGS: usize = 32_768;
/// Mappings of a page, at most.
const PAGE_MAX: usize = 16_384;
/// Entries that the forwarding thread reads for one order, in a few tens of microseconds.
const ENTRIES_AN_ORDER: usize = 4096;
/// Orders of one request. A client continues where the request ended.
const ORDERS_MAX: usize = 256;

fn wrong(name: &str, what: impl Into<String>) -> SwitchError {
    SwitchError::Config {
        location: format!("nat '{name}'"),
        what: what.into(),
    }
}

fn ipv4_bits(address: IpAddr) -> Option<u32> {
    match address {
        IpAddr::V4(address) => Some(address.to_bits()),
        IpAddr::V6(_) => None,
    }
}

/// Returns prefixes of IPv4 as address and mask.
fn ipv4_masks(nets: &[IpNet]) -> Vec<(u32, u32)> {
    let masks = nets.iter().filter_map(|net| match net {
        IpNet::V4(net) => Some((net.network().to_bits(), net.netmask().to_bits())),
        IpNet::V6(_) => None,
    });
    masks.collect()
}

/// Returns prefixes of IPv6 as address and mask.
fn ipv6_masks(nets: &[IpNet]) -> Vec<(u128, u128)> {
    let masks = nets.iter().filter_map(|net| match net {
        IpNet::V4(_) => None,
        IpNet::V6(net) => Some((net.network().to_bits(), net.netmask().to_bits())),
    });
    masks.collect()
}

/// Returns the place of an instance of NAT66 with these addresses of the router, by interface and VRF.
fn nat66_place(
    setting: &NatSetting,
    (interface, vrf): (u16, u16),
    (own, virtuals): (Vec<u128>, Vec<u128>),
) -> Nat66Place {
    Nat66Place {
        interface,
        vrf,
        sources: ipv6_masks(&setting.sources),
        excluded: ipv6_masks(&setting.excluded_destinations),
        own,
        forwards: setting.ipv6_forwards(),
        virtuals,
    }
}

/// Allocates the tables of the external addresses that an instance has and a former one does not have.
fn growth_of(place: &NatBinding, former: &NatIdentity) -> Result<PoolGrowth, SwitchError> {
    let NatIdentity {
        name,
        settings,
        share,
        ..
    } = &*place.identity;
    let known = former.settings.pool.addresses.len();
    let share = share.unwrap_or(Share::WHOLE);
    PoolGrowth::new(&settings.pool, known, share).map_err(|error| wrong(name, error.to_string()))
}

impl Engine {
    /// Sets the file for the log of NAT. Events before were kept.
    pub(crate) fn set_nat_log(&mut self, file: Option<std::fs::File>) {
        self.nat_log.set_file(file);
    }

    /// Sets where events of NAT are sent, beside the file.
    pub(crate) fn set_nat_collector(&mut self, exporter: Option<crate::nat_log::Exporter>) {
        self.nat_log.set_exporter(exporter);
    }

    /// Writes events of NAT that have arrived.
    pub(crate) fn write_nat_log(&mut self) {
        self.nat_log.turn();
    }

    /// Writes all events of NAT that have arrived, once forwarding threads have ended.
    pub(crate) fn end_nat_log(&mut self) {
        self.nat_log.end();
    }

    /// Notes the VRF of an instance for the log.
    fn note_vrf(&mut self, place: &NatBinding) {
        let of_ipv6 = place.nat66.as_ref().map(|one| one.vrf);
        let number = of_ipv6.unwrap_or(place.vrf);
        let name = self.layer3.lock().vrf_name(number).to_owned();
        self.nat_log.set_vrf(&place.identity.name, number, &name);
    }

    /// Creates the way of the events of an instance to the log, if there is a log.
    fn event_sink(&mut self, name: &str, nat: &mut Nat) -> Option<EventSink> {
        self.plan.nat_log.as_ref()?;
        let kinds = self.plan.nat_log_events.kinds();
        nat.allow_events(kinds);
        let has_many = kinds.mappings || self.plan.nat_log_events.has_sessions();
        let space = match has_many {
            true => EVENTS_OF_MAPPINGS,
            false => EVENTS,
        };
        let (sender, receiver) = RingBuffer::new(space);
        self.nat_log.add(name, receiver);
        let events = &self.plan.nat_log_events;
        let kinds = (events.has_blocks(), events.has_bindings());
        Some(EventSink::new(sender, kinds))
    }

    pub(super) fn outside_of(&self, setting: &NatSetting) -> Option<&InterfacePlan> {
        let mut interfaces = self.plan.layer3.interfaces.iter();
        interfaces.find(|one| one.name == setting.interface)
    }

    /// Returns the instances of the plan in the form of forwarding threads, without tables.
    /// The tables of each thread have the thread's share of entries.
    pub(super) fn nat_places(&self, share: Option<Share>) -> Vec<NatBinding> {
        let place = |setting: &NatSetting| {
            let outside = self.outside_of(setting)?;
            let name = self.plan.layer3.vrfs.get(outside.vrf)?;
            let mut settings = setting.tables(outside);
            let forwards = std::mem::take(&mut settings.forwards);
            if let Some(share) = share {
                settings.mappings_max = share.part(settings.mappings_max);
                // Each CPU has a part of each computed block.
                if settings.pool.deterministic.is_empty() {
                    settings.hosts_max = share.part(settings.hosts_max);
                }
            }
            let nat64 = setting.nat64.as_ref();
            let interface = self.interface_number(&setting.interface)?;
            let vrf = self.layer3.lock().vrf(name)?;
            let hosts_max = settings.hosts_max;
            let nat66 = setting.nat66();
            let nat66 = nat66.map(|one| Nat66Settings { hosts_max, ..one });
            // One of the two has the instance.
            let (of_ipv4, of_ipv6) = match &nat66 {
                None => ((interface, vrf), None),
                Some(nat66) => {
                    let own = self.own_ipv6_addresses(&nat66.externals, outside.vrf);
                    let of_router = (own, self.virtual_addresses().1);
                    let place = nat66_place(setting, (interface, vrf), of_router);
                    ((u16::MAX, u16::MAX), Some(place))
                }
            };
            Some(NatBinding {
                own: self.own_addresses(&settings, outside.vrf),
                identity: Arc::new(NatIdentity {
                    name: setting.name.clone(),
                    nat64: nat64.and_then(|one| one.tables(settings.hosts_max)),
                    nat66,
                    settings,
                    share,
                }),
                interface: of_ipv4.0,
                vrf: of_ipv4.1,
                sources: ipv4_masks(&setting.sources),
                excluded: ipv4_masks(&setting.excluded_destinations),
                forwards,
                virtuals: self.virtual_addresses().0,
                nat64: nat64.and_then(|one| {
                    let inside = inside_of(outside, &self.plan.layer3)?;
                    Some(Nat64Place {
                        inside: self.interface_number(&inside.name)?,
                        mtu: one.mtu(),
                    })
                }),
                nat66: of_ipv6,
            })
        };
        self.plan.nats.iter().filter_map(place).collect()
    }

    /// Returns the addresses of NAT64 in the service thread's form.
    pub(super) fn nat64_addresses(
        &self,
        known: &BTreeMap<u16, RoutedInterface>,
    ) -> Vec<Nat64Addresses> {
        let place = |name: &str| {
            let number = self.interface_number(name)?;
            let known = known.get(&number)?;
            Some((known.vrf, (number, known.interface_info.mac)))
        };
        let addresses = |setting: &NatSetting| {
            let prefix = setting.nat64.as_ref()?.prefix64().ok()?;
            let outside = self.outside_of(setting)?;
            let inside = inside_of(outside, &self.plan.layer3)?;
            let externals = setting.external_addresses(outside).into_iter();
            let (vrf, outside) = place(&outside.name)?;
            Some(Nat64Addresses {
                vrf,
                externals: externals.filter_map(ipv4_bits).collect(),
                prefix,
                outside,
                inside: place(&inside.name)?.1,
            })
        };
        self.plan.nats.iter().filter_map(addresses).collect()
    }

    /// Returns the external addresses of NAT without NAT64, with the numbers of their VRFs.
    pub(super) fn nat_externals(
        &self,
        known: &BTreeMap<u16, RoutedInterface>,
    ) -> BTreeSet<(u16, IpAddr)> {
        let mut externals = BTreeSet::new();
        for setting in self.plan.nats.iter().filter(|one| one.nat64.is_none()) {
            let number = self.interface_number(&setting.interface);
            let outside = self.outside_of(setting);
            let known = number.and_then(|number| known.get(&number));
            if let Some((outside, known)) = outside.zip(known) {
                let pairs = setting.one_to_one.iter();
                let pairs = pairs.map(|pair| IpAddr::V4(pair.outside));
                let all = setting.external_addresses(outside).into_iter().chain(pairs);
                externals.extend(all.map(|address| (known.vrf, address)));
            }
        }
        externals
    }

    /// Returns the external addresses that interfaces of the VRF have, in ascending order.
    fn own_addresses(&self, settings: &NatSettings, vrf: usize) -> Vec<u32> {
        let of_vrf = self.plan.layer3.interfaces.iter();
        let of_vrf = of_vrf.filter(|one| one.vrf == vrf);
        let nets: Vec<_> = of_vrf.flat_map(|one| &one.addresses).collect();
        let is_own = |address: &Ipv4Addr| nets.iter().any(|net| net.addr() == *address);
        let pairs = settings.pairs.iter().map(|pair| pair.external);
        let external = settings.pool.addresses.iter().copied().chain(pairs);
        let mut own: Vec<u32> = external.filter(is_own).map(Ipv4Addr::to_bits).collect();
        own.sort_unstable();
        own
    }

    /// Returns the external addresses of IPv6 that interfaces of the VRF have, in ascending order.
    fn own_ipv6_addresses(&self, externals: &[Ipv6Addr], vrf: usize) -> Vec<u128> {
        let of_vrf = self.plan.layer3.interfaces.iter();
        let of_vrf = of_vrf.filter(|one| one.vrf == vrf);
        let nets: Vec<_> = of_vrf.flat_map(|one| &one.addresses).collect();
        let is_own = |address: &&Ipv6Addr| nets.iter().any(|net| net.addr() == **address);
        let own = externals.iter().filter(is_own);
        let mut own: Vec<u128> = own.map(|one| one.to_bits()).collect();
        own.sort_unstable();
        own
    }

    /// Returns the virtual addresses of load balancers, of IPv4 and of IPv6, each in ascending order.
    fn virtual_addresses(&self) -> (Vec<u32>, Vec<u128>) {
        let (mut of_ipv4, mut of_ipv6) = (BTreeSet::new(), BTreeSet::new());
        for one in &self.plan.load_balancers {
            match one.address {
                IpAddr::V4(address) => of_ipv4.insert(address.to_bits()),
                IpAddr::V6(address) => of_ipv6.insert(address.to_bits()),
            };
        }
        (of_ipv4.into_iter().collect(), of_ipv6.into_iter().collect())
    }

    /// Gives all threads the instances of the plan. An unchanged instance keeps its mappings, and so does one whose published ports change
    /// or that gets further external addresses.
    pub(super) fn show_nat(&mut self, tally: &mut Tally) -> Result<(), SwitchError> {
        for cpu in self.cpus() {
            let share = self.share_of_thread(cpu);
            let wanted = self.nat_places(share);
            let mut forwarders = self.forwarders.iter();
            let known = forwarders.find(|one| one.cpu == cpu).map(|one| &one.nat);
            // A thread that is about to end keeps its tables.
            let stays = |known: &Vec<NatBinding>| share.is_none() && !known.is_empty();
            if known.is_some_and(|known| *known == wanted || stays(known)) {
                continue;
            }
            tally.note(self.order_nat(cpu, &wanted))?;
        }
        Ok(())
    }

    fn order_nat(&mut self, cpu: u32, wanted: &[NatBinding]) -> Result<(), SwitchError> {
        let mut forwarders = self.forwarders.iter();
        let forwarder = forwarders.find(|one| one.cpu == cpu);
        let known: Vec<Arc<NatIdentity>> = forwarder
            .map(|one| one.nat.iter())
            .into_iter()
            .flatten()
            .map(|place| Arc::clone(&place.identity))
            .collect();
        let maker = Arc::clone(&self.maker);
        let mut stage = NatStage::default();
        if wanted.iter().any(|place| place.nat64.is_some()) {
            stage.families = Some(Box::new(FamilyPass::new(&self.eal)));
        }
        stage.has_nat66 = wanted.iter().any(|place| place.nat66.is_some());
        for place in wanted {
            // A thread without share translates nothing, and drops what has to be translated.
            let (mut tables, mut growth) = (None, None);
            if known.contains(&place.identity) || place.identity.share.is_none() {
                // Its tables stay.
            } else if let Some(former) = known.iter().find(|one| place.identity.extends(one)) {
                let made = step(&*maker, "tables of NAT", || growth_of(place, former))?;
                growth = Some(Box::new(made));
            } else {
                let made = step(&*maker, "tables of NAT", || self.nat_tables(place))?;
                tables = Some(Box::new(made));
            }
            stage.instances.push(NatInstance {
                place: place.clone(),
                tables,
                growth,
                without_space: 0,
            });
        }
        for place in wanted {
            self.note_vrf(place);
        }
        let stage = (!wanted.is_empty()).then(|| Box::new(stage));
        let record = |forwarder: &mut Forwarder| forwarder.nat = wanted.to_vec();
        match self.send_and_record(cpu, WorkerCommand::Nat(stage), record)? {
            Reply::Nat {
                without_space: 0, ..
            } => Ok(()),
            Reply::Nat { without_space, .. } => Err(wrong(
                wanted
                    .first()
                    .map_or("", |place| place.identity.name.as_str()),
                format!("no space for {without_space} published ports (raise max-mappings)"),
            )),
            _ => Err(unexpected_reply("nat")),
        }
    }

    fn nat_tables(&mut self, place: &NatBinding) -> Result<NatTables, SwitchError> {
        let NatIdentity {
            name,
            settings,
            nat64,
            nat66,
            share,
        } = &*place.identity;
        let mut nat = Nat::with_share(settings, share.unwrap_or(Share::WHOLE))
            .map_err(|error| wrong(name, error.to_string()))?;
        let nat64 = nat64.as_ref().map(Nat64::new).transpose();
        let mut nat64 = nat64.map_err(|error| wrong(name, error.to_string()))?;
        let share = share.unwrap_or(Share::WHOLE);
        let nat66 = nat66.as_ref().map(|one| Nat66::with_share(one, share));
        let mut nat66 = nat66
            .transpose()
            .map_err(|error| wrong(name, error.to_string()))?;
        if self.plan.replication().is_some() {
            nat.allow_changes();
            if let Some(nat64) = &mut nat64 {
                nat64.allow_changes();
            }
            if let Some(nat66) = &mut nat66 {
                nat66.allow_changes();
            }
        }
        let events = self.event_sink(name, &mut nat);
        Ok(NatTables {
            nat,
            nat64: nat64.map(Box::new),
            nat66: nat66.map(Box::new),
            events,
        })
    }

    /// Returns the reports of all instances of NAT.
    ///
    /// # Errors
    /// [`SwitchError::Thread`] if the thread does not reply.
    pub(crate) fn nat_reports(&mut self) -> Result<Vec<NatReport>, SwitchError> {
        let mut reports = Vec::new();
        for number in 0..self.plan.nats.len() {
            let mut totals = NatTotals::default();
            for (_, one) in self.nat_totals(number)? {
                totals.add(&one);
            }
            let setting = self.plan.nats.get(number);
            reports.extend(setting.map(|setting| self.nat_report(setting, &totals)));
        }
        Ok(reports)
    }

    fn nat_report(&self, setting: &NatSetting, totals: &NatTotals) -> NatReport {
        let outside = self.outside_of(setting);
        let counters = &totals.counters;
        let reasons = NatDrop::ALL.into_iter().zip(counters.dropped);
        NatReport {
            name: setting.name.clone(),
            interface: setting.interface.clone(),
            addresses: outside.map_or_else(Vec::new, |outside| setting.external_addresses(outside)),
            mapping: setting.mapping.to_string(),
            filtering: setting.filtering.to_string(),
            mappings: totals.mappings,
            max_mappings: totals.mappings_max,
            published: totals.forwards,
            one_to_one: setting.one_to_one.len() as u64,
            hosts: totals.hosts,
            octets: totals.octets,
            outbound: counters.outbound,
            inbound: counters.inbound,
            hairpinned: counters.hairpinned,
            refused: reasons
                .map(|(reason, count)| (reason.name().to_owned(), count))
                .collect(),
            created: counters.created,
            expired: counters.expired,
            events_lost: counters
                .events_lost
                .saturating_add(totals.events_lost)
                .saturating_add(self.nat_log.lost(&setting.name)),
        }
    }

    /// Returns a page of the mappings of an instance: up to `limit`, from position `from` on.
    ///
    /// # Errors
    /// [`SwitchError::Config`] if there is no such instance. [`SwitchError::Thread`] if the thread does not reply.
    pub(crate) fn mappings(
        &mut self,
        nat: &str,
        limit: usize,
        from: u32,
    ) -> Result<MappingsReport, SwitchError> {
        let mut nats = self.plan.nats.iter();
        let number = nats.position(|one| one.name == nat);
        let instance = number.ok_or_else(|| wrong(nat, "no such NAT (see `switch show nat`)"))?;
        let sizes = self.nat_totals(instance)?.into_iter();
        // Published ports have entries of their own.
        let size = |one: NatTotals| one.mappings_max.saturating_add(FORWARDS_MAX as u64);
        let sizes = sizes.map(|(cpu, one)| (cpu, size(one)));
        let tables = paged(sizes);
        let limit = limit.clamp(1, PAGE_MAX);
        let (mut mappings, mut next) = (Vec::new(), None);
        let mut left = from_position(&tables, from).peekable();
        while let Some((table, start)) = left.next() {
            let list = Vec::with_capacity(limit.saturating_sub(mappings.len()));
            let query = NatQuery {
                from: Some(start),
                budget: ENTRIES_AN_ORDER,
                ipv6: Vec::with_capacity(list.capacity()),
                list,
                ..NatQuery::of(instance)
            };
            let query = self.list_mappings(table.cpu, Box::new(query))?;
            let ends = query.ipv6.iter().copied();
            let ends = ends.chain(std::iter::repeat(Ipv6Ends::default()));
            let listed = query.list.iter().zip(ends);
            mappings.extend(listed.map(|(one, ends)| report_of(nat, one, ends)));
            if let Some(position) = query.from {
                next = table.base.checked_add(position);
                break;
            }
            if mappings.len() >= limit {
                next = left.peek().map(|(table, _)| table.base);
                break;
            }
        }
        Ok(MappingsReport { mappings, next })
    }

    /// Removes mappings of NAT, without static forwards. Returns their number.
    ///
    /// # Errors
    /// [`SwitchError::Config`] if there is no such instance. [`SwitchError::Thread`] if the thread does not reply.
    pub(crate) fn flush_mappings(
        &mut self,
        selection: &MappingSelection,
    ) -> Result<u64, SwitchError> {
        let is_selected =
            |one: &NatSetting| selection.nat.as_ref().is_none_or(|nat| *nat == one.name);
        let nats = self.plan.nats.iter().enumerate();
        let selected = nats.filter(|(_, one)| is_selected(one));
        let instances: Vec<usize> = selected.map(|(instance, _)| instance).collect();
        if let (Some(nat), []) = (&selection.nat, &instances[..]) {
            return Err(wrong(nat, "no such NAT (see `switch show nat`)"));
        }
        let filter = MappingFilter {
            protocol: selection.protocol.map(|protocol| protocol.0),
            address: selection.address,
            port: selection.port,
            inside: None,
        };
        let mut removed = 0;
        for instance in instances {
            let of_instance: u64 = self.flush_instance(instance, &filter)?;
            removed = of_instance.saturating_add(removed);
        }
        Ok(removed)
    }

    /// Removes mappings of an instance on all threads, without static forwards. Returns their number.
    fn flush_instance(
        &mut self,
        instance: usize,
        filter: &MappingFilter,
    ) -> Result<u64, SwitchError> {
        let mut removed = 0;
        for cpu in self.cpus() {
            let mut query = Box::new(NatQuery {
                from: Some(0),
                budget: ENTRIES_AN_ORDER,
                flush: Some(filter.clone()),
                ..NatQuery::of(instance)
            });
            // At most as many rounds as the largest table requires.
            while query.from.is_some() {
                query = self.query_nat(cpu, query)?;
            }
            removed = query.removed.saturating_add(removed);
        }
        Ok(removed)
    }

    /// Ends the mappings that depend on remote endpoints and have an inside endpoint that these former settings do not publish. A forwarding
    /// thread finds only mappings without a remote endpoint by their inside endpoint, and ends those itself.
    pub(super) fn end_published_mappings(&mut self, former: &[NatSetting]) {
        let filter_of = |setting: &NatSetting| {
            let former = former.iter().find(|one| one.name == setting.name)?;
            let inside = setting.newly_published(former);
            let is_required = !inside.is_empty() && setting.mapping != MappingSetting::default();
            is_required.then(|| MappingFilter {
                inside: Some(inside.into()),
                ..MappingFilter::default()
            })
        };
        let filters: Vec<Option<MappingFilter>> = self.plan.nats.iter().map(filter_of).collect();
        for (instance, filter) in filters.into_iter().enumerate() {
            if let Some(filter) = filter
                && let Err(error) = self.flush_instance(instance, &filter)
            {
                tracing::warn!("mappings of published endpoints expire later: {error}");
            }
        }
    }

    /// Sends parts of a list to a thread, until it is answered, its list is full, or the maximum of orders is reached.
    fn list_mappings(
        &mut self,
        cpu: u32,
        mut query: Box<NatQuery>,
    ) -> Result<Box<NatQuery>, SwitchError> {
        for _ in 0..ORDERS_MAX {
            query = self.query_nat(cpu, query)?;
            if query.from.is_none() || query.list.len() >= query.list.capacity() {
                break;
            }
        }
        Ok(query)
    }

    /// Returns the numbers of an instance on each thread that has it.
    fn nat_totals(&mut self, instance: usize) -> Result<Vec<(u32, NatTotals)>, SwitchError> {
        let mut all = Vec::new();
        for cpu in self.cpus() {
            let query = Box::new(NatQuery::of(instance));
            let totals = self.query_nat(cpu, query)?.totals;
            all.extend(totals.map(|totals| (cpu, totals)));
        }
        Ok(all)
    }

    pub(super) fn query_nat(
        &mut self,
        cpu: u32,
        query: Box<NatQuery>,
    ) -> Result<Box<NatQuery>, SwitchError> {
        match self.send_command(cpu, WorkerCommand::NatQuery(query))? {
            Reply::NatQuery(query) => Ok(query),
            _ => Err(unexpected_reply("nat")),
        }
    }
}

fn report_of(nat: &str, info: &MappingInfo, ends: Ipv6Ends) -> MappingReport {
    let socket = |ipv4: SocketAddrV4, ipv6: Option<Ipv6Addr>| match ipv6 {
        Some(address) => SocketAddr::from((address, ipv4.port())),
        None => SocketAddr::V4(ipv4),
    };
    MappingReport {
        nat: nat.to_owned(),
        protocol: info.protocol.name().to_owned(),
        inside: socket(info.internal, ends.host),
        outside: socket(info.external, ends.external),
        remote_address: info.remote_address.map(IpAddr::V4),
        remote_port: info.remote_port,
        expires_in_s: info.expires_in_s,
    }
}
