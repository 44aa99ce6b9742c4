// SPDX-License-Identifier: Apache-2.0
//! The running switch, owned by the control thread: ports by number, forwarding threads by CPU, tables. A changed plan is applied
//! completely or not at all, while frames are forwarded ([`apply`]).

mod apply;
mod assign;
mod balance;
mod buffers;
mod cards;
mod clean_up;
mod connections;
mod counted;
mod driver_drops;
#[cfg(test)]
mod faults;
mod filter_offload;
mod fragments;
mod inspection;
mod kernel_bridge;
mod kernel_filter;
mod kernel_forwarding;
mod links;
mod load_balancers;
mod loose;
mod maker;
mod moves;
mod nat;
mod offloaded;
mod orders;
mod pages;
mod port_counts;
mod queues;
mod removed;
mod replicated;
mod router;
mod rules;
mod saved_connections;
mod share;
mod slot;
mod steer;
mod threads;
mod tracking;
mod tx_paths;
mod undo;
mod wiring;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use quietwire_dpdk::{Bell, Eal, Mempool, RingStock};
use quietwire_packet::VlanId;

use crate::bridge_view::{AskedStatics, BridgeView, History, Statics};
use crate::config::bridging::BridgingSetting;
use crate::config::{BridgePlan, Group, Plan};
use crate::counters::ThreadCounters;
use crate::error::SwitchError;
use crate::forward::{
    BridgeStage, Domain, Doze, FilteredStage, HeldBudget, Segmenter, Shared, Stage, SteeredStage,
};
use crate::layer3::{Exchange, SharedLayer3};
use crate::nat_log::NatLog;
use crate::observe::Watches;
use crate::report::MoveReport;
use crate::rights::Rights;
use balance::Loads;
use buffers::SharedPools;
use counted::{CountedFilter, CountedRules, CountedSteering};
use kernel_bridge::KernelBridges;
use loose::Loose;
use maker::{Maker, System};
use offloaded::OffloadedFilter;
use quietwire_tables::bridge::{BridgeTables, StormLimits};
use quietwire_tables::fdb::{Fdb, Selection};
use quietwire_tables::filter::{Fallback, SourceGuard};
use quietwire_tables::nptv6::PrefixTranslation;
use quietwire_tables::route::{Interfaces, Router};
use removed::RemovedPorts;
use wiring::Wiring;

pub(crate) use balance::Part;
pub(crate) use slot::Slot;
pub(crate) use threads::Forwarder;

/// Ports of bridges by the name of the bridge, with their settings.
type BridgePorts = Vec<(String, Vec<(u16, BridgingSetting)>)>;

/// State of the control thread.
// Fields are dropped in this order: threads before the ports whose queues they hold.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) forwarders: Vec<Forwarder>,
    /// Programs on interfaces of the ports.
    kernel_forwarding: KernelBridges,
    /// True if the kernel forwards for bridges without a setting.
    forwards_in_kernel: bool,
    /// Threads that were ordered to end.
    ending: Vec<Forwarder>,
    /// Queues and rings on their way between threads.
    loose: Loose,
    /// By number of the port.
    pub(crate) slots: Vec<Option<Slot>>,
    removed: RemovedPorts,
    pub(crate) bridges: Vec<BridgeView>,
    pub(crate) plan: Plan,
    /// Counters of threads that have ended, by CPU. A new thread on the same CPU continues with them.
    pub(crate) ended: BTreeMap<u32, Arc<ThreadCounters>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) started: Instant,
    pub(crate) moved: Vec<MoveReport>,
    pub(crate) layer3: SharedLayer3,
    /// Names of interfaces by number.
    interfaces: Vec<Option<String>>,
    kernel_filters: Vec<CountedFilter>,
    steering: CountedSteering,
    rules: CountedRules,
    offloaded: OffloadedFilter,
    domain: Arc<Domain>,
    /// Former stages of ports, which a forwarding thread may still use.
    former_stages: Vec<Arc<Stage>>,
    /// CPU of the thread that sends for the service thread.
    injects: Option<u32>,
    /// Rings between threads that share the state of connections.
    wiring: Wiring,
    /// Log of NAT.
    nat_log: NatLog,
    loads: Loads,
    pub(crate) watches: Watches,
    pools: u32,
    shared_pools: SharedPools,
    /// Pool for copies of flooded frames with different tags. Created with the first thread.
    copies: Option<Mempool>,
    /// Copies that wait for inspectors.
    held: Arc<HeldBudget>,
    /// Number of fragments that may wait for the first one of their datagram, at all threads together.
    held_fragments: Arc<HeldBudget>,
    /// Resources for segmenting TCP data. Created with the first port that can yield such frames.
    segmenter: Option<Segmenter>,
    /// Sleep state of the service thread until it starts, and its bell, if threads wait instead of polling without frames.
    service_doze: Option<Doze>,
    service_bell: Option<Arc<Bell>>,
    /// Rings for ports that are added at run time.
    ring_stock: Option<RingStock>,
    maker: Arc<dyn Maker>,
    eal: Eal,
}

impl Engine {
    /// Opens the ports of a plan, starts its threads and starts forwarding.
    ///
    /// # Errors
    /// A port or machine error. All resources are released in that case.
    pub(crate) fn start(eal: &Eal, plan: &Plan, shared: &Arc<Shared>) -> Result<Self, SwitchError> {
        Self::start_with(Arc::new(System), eal, plan, shared)
    }

    fn start_with(
        maker: Arc<dyn Maker>,
        eal: &Eal,
        plan: &Plan,
        shared: &Arc<Shared>,
    ) -> Result<Self, SwitchError> {
        let started = Instant::now();
        let layer3 = SharedLayer3::new(Exchange::new(eal), started)?;
        let domain = Arc::new(without_interfaces(&layer3));
        let service_doze = threads::doze_of(crate::threads::SERVICE, plan.idle)?;
        let mut engine = Self {
            forwarders: Vec::new(),
            kernel_forwarding: KernelBridges::default(),
            forwards_in_kernel: Rights::of(plan).has_kernel_forwarding(),
            ending: Vec::new(),
            loose: Loose::default(),
            slots: (0..crate::counters::PORTS_MAX).map(|_| None).collect(),
            removed: RemovedPorts::default(),
            bridges: Vec::new(),
            plan: plan.without_work(),
            ended: BTreeMap::new(),
            shared: Arc::clone(shared),
            started,
            moved: Vec::new(),
            layer3,
            interfaces: Vec::new(),
            kernel_filters: Vec::new(),
            steering: CountedSteering::default(),
            rules: CountedRules {
                fallback: Fallback::counted_in(&shared.rule_counters),
                ..CountedRules::default()
            },
            offloaded: OffloadedFilter::default(),
            domain,
            former_stages: Vec::new(),
            injects: None,
            wiring: Wiring::default(),
            nat_log: NatLog::default(),
            loads: Loads::default(),
            watches: Watches::default(),
            pools: 0,
            shared_pools: SharedPools::default(),
            copies: None,
            held: Arc::new(HeldBudget::default()),
            held_fragments: Arc::new(HeldBudget::default()),
            segmenter: None,
            service_bell: service_doze.as_ref().map(|doze| Arc::clone(doze.bell())),
            service_doze,
            ring_stock: None,
            maker,
            eal: eal.clone(),
        };
        engine.apply(plan.clone())?;
        engine.ring_stock = Some(RingStock::default());
        Ok(engine)
    }

    /// Returns the sleep state for the service thread, once.
    pub(crate) fn take_service_doze(&mut self) -> Option<Doze> {
        self.service_doze.take()
    }

    /// Returns the counters of all current and ended threads.
    pub(crate) fn counters(&self) -> impl Iterator<Item = &ThreadCounters> {
        let running = self.forwarders.iter().map(|one| &*one.counters);
        running.chain(self.ended.values().map(|one| &**one))
    }

    /// Returns the number of a port.
    pub(crate) fn number(&self, name: &str) -> Option<u16> {
        let index = self
            .slots
            .iter()
            .position(|slot| slot.as_ref().is_some_and(|slot| slot.plan.name == name))?;
        u16::try_from(index).ok()
    }

    pub(crate) fn slot(&self, number: u16) -> Option<&Slot> {
        self.slots.get(usize::from(number))?.as_ref()
    }

    fn slot_mut(&mut self, number: u16) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(number))?.as_mut()
    }

    /// Returns the names of interfaces by number.
    pub(crate) fn interface_names(&self) -> &[Option<String>] {
        &self.interfaces
    }

    /// Returns the open ports with their numbers.
    pub(crate) fn ports(&self) -> impl Iterator<Item = (u16, &Slot)> {
        (0..)
            .zip(&self.slots)
            .filter_map(|(number, slot)| Some((number, slot.as_ref()?)))
    }

    /// Returns the number of a port, unless it is being closed.
    fn number_in_use(&self, name: &str) -> Option<u16> {
        let number = self.number(name)?;
        self.slot(number)
            .is_some_and(|slot| !slot.is_closing)
            .then_some(number)
    }

    /// Returns the numbers of the ports of a group.
    pub(crate) fn members(&self, group: &Group) -> Vec<u16> {
        let open = self.ports().filter(|(_, slot)| !slot.is_closing);
        // A search for each name would take too long: the members are determined for each port.
        let numbers: HashMap<&str, u16> = open
            .map(|(number, slot)| (slot.plan.name.as_str(), number))
            .collect();
        let number = |index: &usize| {
            let port = self.plan.ports.get(*index)?;
            numbers.get(port.name.as_str()).copied()
        };
        group.ports().iter().filter_map(number).collect()
    }

    /// Returns the numbers of the ports of each group of the plan.
    fn members_of_groups(&self) -> Vec<Vec<u16>> {
        let groups = self.plan.groups.iter();
        groups.map(|group| self.members(group)).collect()
    }

    /// Returns the ports that a frame of this port can leave by, and those that filter rules send copies and answers to.
    pub(crate) fn reach(&self, number: u16) -> BTreeSet<u16> {
        self.reach_within(number, &self.members_of_groups(), &self.routed_ports())
    }

    /// Like [`Self::reach`], with the numbers of the ports of each group, and those of the ports that routed frames can leave by.
    fn reach_within(
        &self,
        number: u16,
        members: &[Vec<u16>],
        routed: &BTreeSet<u16>,
    ) -> BTreeSet<u16> {
        let mut ports = self.reach_of_switch(number, members, routed);
        ports.extend(self.ports_of_effects(number));
        ports.extend(self.kernel_port(number));
        ports.extend(self.steered_port(number));
        let copies = self.ports_of_copies(&ports);
        ports.extend(copies);
        ports
    }

    /// Returns the ports that a frame of this port can leave by, without steering rules and filter rules.
    fn reach_of_switch(
        &self,
        number: u16,
        members: &[Vec<u16>],
        routed: &BTreeSet<u16>,
    ) -> BTreeSet<u16> {
        if routed.contains(&number) {
            return routed.clone();
        }
        let name = self.slot(number).map(|slot| slot.plan.name.as_str());
        let group = name.and_then(|name| self.group_index(name));
        let group = group.and_then(|index| members.get(index));
        let mut ports: BTreeSet<u16> = group.into_iter().flatten().copied().collect();
        ports.remove(&number);
        ports
    }

    /// Returns the group that a port is in.
    pub(crate) fn group_of(&self, name: &str) -> Option<&Group> {
        self.plan.groups.get(self.group_index(name)?)
    }

    /// Returns the place of the group that a port is in.
    fn group_index(&self, name: &str) -> Option<usize> {
        let index = self.plan.ports.iter().position(|port| port.name == name)?;
        let mut groups = self.plan.groups.iter();
        groups.position(|group| group.ports().contains(&index))
    }

    /// Returns the bridges of a plan. Existing bridges keep their addresses. Others get their table of `fdbs`, by name.
    ///
    /// # Errors
    /// [`SwitchError::Config`] for invalid bridge settings.
    fn bridges_of(
        &self,
        plan: &Plan,
        fdbs: &BTreeMap<String, Arc<Fdb>>,
    ) -> Result<Vec<BridgeView>, SwitchError> {
        let mut views = Vec::new();
        for group in &plan.groups {
            let Group::Bridge(bridge) = group else {
                continue;
            };
            let tables = Arc::new(self.tables_of(bridge, plan)?);
            let kept = self.bridges.iter().find(|view| view.suits(bridge));
            // Counters continue even if the tables are replaced.
            let former = self.bridges.iter().find(|view| view.name == bridge.name);
            views.push(match (kept, fdbs.get(&bridge.name)) {
                (Some(view), _) => BridgeView {
                    tables,
                    ..view.clone()
                },
                (None, None) => {
                    return Err(SwitchError::Config {
                        location: format!("bridge '{}'", bridge.name),
                        what: "the bridge has no table (this is a bug in the switch)".to_owned(),
                    });
                }
                (None, Some(fdb)) => BridgeView {
                    name: bridge.name.clone(),
                    fdb: Arc::clone(fdb),
                    ageing_s: bridge.ageing_s,
                    aged: former.map_or_else(Arc::default, |view| Arc::clone(&view.aged)),
                    tables,
                    statics: Statics::default(),
                    history: former.map_or_else(History::default, |view| view.history.clone()),
                },
            });
        }
        Ok(views)
    }

    fn tables_of(&self, bridge: &BridgePlan, plan: &Plan) -> Result<BridgeTables, SwitchError> {
        let number_of = |index: usize| self.number_in_use(&plan.ports.get(index)?.name);
        let interfaces = self.interfaces_on(&bridge.name, plan);
        let settings = bridge.settings(&plan.ports, number_of, interfaces);
        settings
            .and_then(|settings| {
                if settings.ports.is_empty() {
                    return Ok(BridgeTables::without_ports());
                }
                BridgeTables::new(&settings).map_err(|error| error.to_string())
            })
            .map_err(|what| SwitchError::Config {
                location: format!("bridge '{}'", bridge.name),
                what,
            })
    }

    /// Sets each bridge's static entries.
    fn set_statics(&mut self) -> Result<(), SwitchError> {
        let mut bridges = std::mem::take(&mut self.bridges);
        let mut outcome = Ok(());
        for view in &mut bridges {
            let wanted = self.statics_of(&view.name);
            let set = view
                .set_statics(wanted)
                .map_err(|error| SwitchError::Config {
                    location: format!("bridge '{}'", view.name),
                    what: error.to_string(),
                });
            outcome = outcome.and(set);
        }
        self.bridges = bridges;
        outcome
    }

    /// Forgets addresses learned on ports that left their bridge or whose settings changed.
    fn settle_addresses(&mut self, before: &BridgePorts) {
        let mut bridges = std::mem::take(&mut self.bridges);
        for view in &mut bridges {
            let now = self.bridge_ports(&view.name);
            let former = before.iter().find(|(name, _)| *name == view.name);
            for (port, bridging) in former.map_or(&[][..], |(_, ports)| ports) {
                if !now.contains(&(*port, bridging.clone())) {
                    view.forget_port(*port);
                }
            }
            let ports = now.iter().map(|(port, _)| *port).collect();
            view.history.settle(&ports, |port| self.sums_of(port));
        }
        self.bridges = bridges;
    }

    /// Forgets learned addresses of a bridge. Returns their number.
    ///
    /// # Errors
    /// [`SwitchError::Config`] if the bridge or the port does not exist.
    pub(crate) fn flush_fdb(
        &mut self,
        bridge: &str,
        port: Option<&str>,
        vlan: Option<VlanId>,
    ) -> Result<u32, SwitchError> {
        let absent = |what: &str, name: &str| SwitchError::Config {
            location: "fdb".to_owned(),
            what: format!("no such {what}: '{name}'"),
        };
        let view = self
            .bridges
            .iter()
            .find(|view| view.name == bridge)
            .ok_or_else(|| absent("bridge", bridge))?;
        let port = match port {
            Some(name) => Some(self.number(name).ok_or_else(|| absent("port", name))?),
            None => None,
        };
        let flushed = view.fdb.flush(Selection { port, vlan });
        self.settle_kernel_forwarding();
        Ok(flushed)
    }

    /// Returns the ports of a bridge and their bridging settings.
    fn bridge_ports(&self, name: &str) -> Vec<(u16, BridgingSetting)> {
        let Some(plan) = self.bridge_plan(name) else {
            return Vec::new();
        };
        plan.ports
            .iter()
            .filter_map(|index| {
                let port = self.plan.ports.get(*index)?;
                Some((self.number_in_use(&port.name)?, port.bridging.clone()))
            })
            .collect()
    }

    fn bridge_plan(&self, name: &str) -> Option<&BridgePlan> {
        self.plan.groups.iter().find_map(|group| match group {
            Group::Bridge(plan) if plan.name == name => Some(plan),
            _ => None,
        })
    }

    /// Returns the static entries of a bridge, and the numbers of its ports.
    fn statics_of(&self, name: &str) -> AskedStatics {
        let Some(plan) = self.bridge_plan(name) else {
            return AskedStatics::default();
        };
        let port = |index: &usize| {
            let name = &self.plan.ports.get(*index)?.name;
            Some((name.clone(), self.number_in_use(name)?))
        };
        (
            plan.statics.clone(),
            plan.ports.iter().filter_map(port).collect(),
        )
    }

    /// Returns the stage for frames of a port. `members` are the numbers of the ports of each group.
    fn stage_of(&self, number: u16, members: &[Vec<u16>]) -> Stage {
        if let Some(stage) = self.inspector_stage(number) {
            return stage;
        }
        let then = self.stage_behind_rules(number, members);
        let guard = self.guard_of(number);
        let then = match (guard, self.port_rules(number)) {
            (None, None) => then,
            (guard, rules) => Stage::Filtered(Box::new(FilteredStage {
                guard,
                rules,
                zone: self.zone_of(number),
                then,
            })),
        };
        match self.steering(number) {
            None => then,
            Some((rules, kernel)) => Stage::Steered(Box::new(SteeredStage {
                rules,
                kernel,
                then,
            })),
        }
    }

    /// Returns the source guard of a port.
    fn guard_of(&self, number: u16) -> Option<SourceGuard> {
        let setting = self.slot(number)?.plan.bridging.source_guard.as_ref()?;
        (!setting.is_empty()).then(|| SourceGuard::new(setting))
    }

    /// Returns the zone of a port's connections.
    fn zone_of(&self, number: u16) -> u16 {
        let slot = self.slot(number);
        let zone = slot.zip(self.plan.connections.as_ref());
        zone.map_or(0, |(slot, setting)| setting.zone_of(&slot.plan.name))
    }

    fn stage_behind_rules(&self, number: u16, members: &[Vec<u16>]) -> Stage {
        let Some(slot) = self.slot(number) else {
            return Stage::Drop;
        };
        if let Some(stage) = self.route_stage(number) {
            return stage;
        }
        if let Some(output) = self.steered_port(number) {
            return Stage::CrossConnect {
                output: usize::from(output),
            };
        }
        let index = self.group_index(&slot.plan.name);
        let group = index.and_then(|index| self.plan.groups.get(index).zip(members.get(index)));
        let Some((group, members)) = group else {
            return Stage::Drop;
        };
        let others: Vec<usize> = members
            .iter()
            .filter(|other| **other != number)
            .map(|other| usize::from(*other))
            .collect();
        match group {
            Group::CrossConnect(_) => match others.as_slice() {
                [output] => Stage::CrossConnect { output: *output },
                _ => Stage::Drop,
            },
            Group::Bridge(plan) => match self.bridges.iter().find(|view| view.name == plan.name) {
                Some(view) => Stage::Bridge(BridgeStage {
                    fdb: Arc::clone(&view.fdb),
                    tables: Arc::clone(&view.tables),
                    others,
                    storm: share(view.tables.storm_limits(number), slot.queues.len()),
                }),
                None => Stage::Drop,
            },
        }
    }
}

/// Returns the router state of forwarding threads while the router has no interfaces.
fn without_interfaces(layer3: &SharedLayer3) -> Domain {
    let layer3 = layer3.lock();
    Domain {
        router: Router {
            interfaces: Interfaces::default(),
            vrfs: layer3.tables(),
            next_hops: layer3.rib.next_hops(),
            kernel_filter: None,
        },
        bridges: Vec::new(),
        prefixes: PrefixTranslation::default(),
    }
}

/// Returns the share of a port's storm limits for one of `queues` receive queues.
fn share(limits: StormLimits, queues: usize) -> StormLimits {
    let queues = u32::try_from(queues).unwrap_or(u32::MAX);
    let part =
        |limit: Option<u32>| limit.map(|limit| limit.checked_div(queues).unwrap_or(limit).max(1));
    StormLimits {
        unknown_unicast_pps: part(limits.unknown_unicast_pps),
        broadcast_pps: part(limits.broadcast_pps),
        multicast_pps: part(limits.multicast_pps),
    }
}
