// SPDX-License-Identifier: Apache-2.0
//! Router state of the engine: numbers of interfaces, the tables published to forwarding threads, and the release of former tables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quietwire_dpdk::ring;
use quietwire_packet::MacAddress;

use super::Engine;
use super::apply::Tally;
use crate::config::layer3::{Attachment, InterfacePlan, Urpf as UrpfSetting};
use crate::config::{Group, Plan};
use crate::error::SwitchError;
use crate::forward::{BridgeContext, Domain, RouteStage, Stage, WorkerCommand};
use crate::layer3::{FollowedTables, RoutedInterface, derived_mac};
use crate::report::{InterfaceReport, VrfReport};
use quietwire_tables::bridge;
use quietwire_tables::neighbour::InterfaceInfo;
use quietwire_tables::nptv6::PrefixTranslation;
use quietwire_tables::route::{
    Interface, InterfaceBinding, Interfaces, PortInterfaces, Router, Urpf,
};

/// Maximum number of frames from the service thread that wait for a forwarding thread.
const INJECTED_FRAMES: usize = 1024;

impl Engine {
    /// Assigns numbers to the interfaces of a plan. Existing interfaces keep theirs.
    pub(super) fn number_interfaces(&mut self, plan: &Plan) {
        let names: BTreeSet<&str> = names_of(plan).collect();
        for slot in &mut self.interfaces {
            if slot.as_deref().is_some_and(|name| !names.contains(name)) {
                *slot = None;
            }
        }
        for name in names_of(plan) {
            if self.interface_number(name).is_some() {
                continue;
            }
            match self.interfaces.iter_mut().find(|slot| slot.is_none()) {
                Some(slot) => *slot = Some(name.to_owned()),
                None => self.interfaces.push(Some(name.to_owned())),
            }
        }
    }

    pub(super) fn interface_number(&self, name: &str) -> Option<u16> {
        let mut slots = self.interfaces.iter();
        let at = slots.position(|slot| slot.as_deref() == Some(name))?;
        u16::try_from(at).ok()
    }

    /// Returns the interfaces of a plan with their numbers.
    fn numbered<'plan>(&self, plan: &'plan Plan) -> Vec<(u16, &'plan InterfacePlan)> {
        let all = plan.layer3.interfaces.iter();
        all.filter_map(|one| Some((self.interface_number(&one.name)?, one)))
            .collect()
    }

    /// Returns the router interfaces on a bridge, in the bridge's form.
    pub(super) fn interfaces_on(&self, bridge: &str, plan: &Plan) -> Vec<bridge::Interface> {
        let is_there = |one: &InterfacePlan| one.on == Attachment::Bridge(bridge.to_owned());
        self.numbered(plan)
            .into_iter()
            .filter(|(_, one)| is_there(one))
            .map(|(number, one)| bridge::Interface {
                number,
                vlan: one.vlan,
                address: mac_of(one, plan),
            })
            .collect()
    }

    /// Returns the interfaces in the service thread's form.
    fn known(&self) -> BTreeMap<u16, RoutedInterface> {
        let layer3 = self.layer3.lock();
        let known = |one: &InterfacePlan, number| {
            let vrf = self.plan.layer3.vrfs.get(one.vrf)?;
            Some(RoutedInterface {
                name: one.name.clone(),
                interface_info: InterfaceInfo {
                    number,
                    mac: mac_of(one, &self.plan),
                    addresses: one.addresses.clone(),
                },
                vrf: layer3.vrf(vrf)?,
                mtu: one.mtu,
                kernel: one.kernel.clone(),
            })
        };
        self.numbered(&self.plan)
            .into_iter()
            .filter_map(|(number, one)| Some((number, known(one, number)?)))
            .collect()
    }

    fn place_of(&self, on: &Attachment) -> Option<InterfaceBinding> {
        match on {
            Attachment::Port(index) => {
                let name = &self.plan.ports.get(*index)?.name;
                Some(InterfaceBinding::Port(self.number(name)?))
            }
            Attachment::Bridge(name) => {
                let at = self.bridges.iter().position(|view| view.name == *name)?;
                Some(InterfaceBinding::Bridge(u16::try_from(at).ok()?))
            }
        }
    }

    /// Returns the router state for forwarding threads.
    fn domain_of(&self, known: &BTreeMap<u16, RoutedInterface>) -> Domain {
        let interface = |number: u16, one: &InterfacePlan| {
            let place = self.place_of(&one.on)?;
            let known = known.get(&number)?;
            let vlan = one
                .vlan
                .filter(|_| matches!(place, InterfaceBinding::Port(_)));
            let interface = Interface {
                place,
                vlan,
                mac: known.interface_info.mac,
                mtu: known.mtu,
                vrf: known.vrf,
                urpf: match one.urpf {
                    UrpfSetting::Off => Urpf::Off,
                    UrpfSetting::Loose => Urpf::Loose,
                    UrpfSetting::Strict => Urpf::Strict,
                },
                ipv4: one.addresses.iter().any(|net| net.addr().is_ipv4()),
                ipv6: known.interface_info.has_ipv6(),
            };
            Some((number, interface))
        };
        let all = self.numbered(&self.plan);
        let interfaces = all
            .into_iter()
            .filter_map(|(number, one)| interface(number, one));
        let interfaces = Interfaces::new(interfaces);
        let with_router: BTreeSet<u16> = interfaces
            .iter()
            .filter_map(|(_, one)| match one.place {
                InterfaceBinding::Bridge(bridge) => Some(bridge),
                InterfaceBinding::Port(_) => None,
            })
            .collect();
        let inside = |(number, view): (u16, &crate::bridge_view::BridgeView)| {
            with_router.contains(&number).then(|| BridgeContext {
                fdb: Arc::clone(&view.fdb),
                tables: Arc::clone(&view.tables),
            })
        };
        let pairs = self.numbered(&self.plan).into_iter();
        let pairs = pairs.filter_map(|(number, one)| {
            let vrf = known.get(&number)?.vrf;
            Some((number, vrf, one.prefix_translation?.pair().ok()?))
        });
        let prefixes = PrefixTranslation::new(pairs);
        let layer3 = self.layer3.lock();
        Domain {
            router: Router {
                interfaces,
                vrfs: layer3.tables(),
                next_hops: layer3.rib.next_hops(),
                kernel_filter: self.kernel_filter(&layer3, known),
            },
            bridges: (0u16..).zip(&self.bridges).map(inside).collect(),
            prefixes,
        }
    }

    /// Creates what the router part of a plan requires: VRFs, taps, and the reader of kernel routes if other kernel tables must be
    /// followed. Returns the latter with its tables.
    pub(super) fn prepare_router(
        &mut self,
        plan: &Plan,
    ) -> Result<Option<FollowedTables>, SwitchError> {
        let mut layer3 = self.layer3.lock();
        layer3.add_vrfs(&plan.layer3.vrfs)?;
        let taps = plan.layer3.interfaces.iter().filter_map(|one| {
            let name = one.kernel.as_deref()?;
            Some((name, one.addresses.as_slice(), mac_of(one, plan), one.mtu))
        });
        layer3.prepare_taps(taps)?;
        let followed = plan.layer3.vrfs.iter().zip(&plan.layer3.kernel_tables);
        let tables = followed
            .filter_map(|(name, table)| Some(((*table)?, layer3.vrf(name)?)))
            .collect();
        layer3.prepare_follow(tables)
    }

    /// Builds the router state of forwarding threads from the plan. Returns the interfaces in the service thread's form.
    pub(super) fn publish_router(&mut self) -> BTreeMap<u16, RoutedInterface> {
        self.count_filters();
        let known = self.known();
        self.domain = Arc::new(self.domain_of(&known));
        let nat64 = self.nat64_addresses(&known);
        let externals = self.nat_externals(&known);
        let mut layer3 = self.layer3.lock();
        layer3.set_nat64(nat64);
        layer3.set_externals(externals);
        drop(layer3);
        known
    }

    /// Publishes the router state to forwarding threads, and selects the thread that sends for the service thread.
    pub(super) fn show_router(&mut self, tally: &mut Tally) -> Result<(), SwitchError> {
        let has_interfaces = !self.plan.layer3.interfaces.is_empty();
        for cpu in self.cpus() {
            let domain = has_interfaces.then(|| Arc::clone(&self.domain));
            // The previous state is dropped here.
            tally.note(self.send_command(cpu, WorkerCommand::Domain(domain)))?;
        }
        let wanted = self.plan.forwarding_cpus.iter().next().map(|cpu| cpu.0);
        tally.note(self.choose_injecting(wanted.filter(|_| has_interfaces)))
    }

    /// Makes one thread send for the service thread, or none.
    fn choose_injecting(&mut self, wanted: Option<u32>) -> Result<(), SwitchError> {
        if let Some(former) = self.injects.filter(|former| wanted != Some(*former)) {
            self.layer3.lock().exchange().set_injected(None);
            self.injects = None;
            self.loose.injecting.insert(former);
        }
        if let Some(cpu) = wanted.filter(|_| self.injects.is_none()) {
            let bell = self.bell(cpu);
            let (sender, frames) = ring::channel_with_bell(&self.eal, INJECTED_FRAMES, bell);
            drop(self.send_command(cpu, WorkerCommand::Inject(Some(Box::new(frames))))?);
            self.layer3.lock().exchange().set_injected(Some(sender));
            self.injects = Some(cpu);
            self.loose.injecting.remove(&cpu);
        }
        // Former threads return their rings.
        for cpu in self.loose.injecting.clone() {
            if self.cpus().contains(&cpu) {
                drop(self.send_command(cpu, WorkerCommand::Inject(None))?);
            }
            self.loose.injecting.remove(&cpu);
        }
        Ok(())
    }

    /// Reclaims memory of the router's tables that forwarding threads no longer read. Checks that all threads reply, even without memory to
    /// reclaim, so that a late thread is noticed.
    ///
    /// # Errors
    /// [`SwitchError::Thread`] if a thread does not reply.
    pub(crate) fn reclaim(&mut self) -> Result<(), SwitchError> {
        if !self.layer3.lock().has_interfaces() {
            return self.check_threads();
        }
        let epoch = self.layer3.lock().begin_epoch();
        self.check_threads()?;
        self.layer3.lock().end_epoch(epoch);
        Ok(())
    }

    /// Returns the stage of a port with interfaces.
    pub(super) fn route_stage(&self, number: u16) -> Option<Stage> {
        let on =
            |one: &InterfacePlan| self.place_of(&one.on) == Some(InterfaceBinding::Port(number));
        let of_port: Vec<_> = self
            .numbered(&self.plan)
            .into_iter()
            .filter(|(_, one)| on(one))
            .map(|(interface, one)| (one.vlan, interface))
            .collect();
        (!of_port.is_empty()).then(|| {
            Stage::Route(RouteStage {
                interfaces: PortInterfaces::new(of_port),
                domain: Arc::clone(&self.domain),
            })
        })
    }

    /// Returns the ports that routed frames can leave by.
    pub(super) fn routed_ports(&self) -> BTreeSet<u16> {
        let mut ports = BTreeSet::new();
        for interface in &self.plan.layer3.interfaces {
            match &interface.on {
                Attachment::Port(_) => {
                    if let Some(InterfaceBinding::Port(port)) = self.place_of(&interface.on) {
                        ports.insert(port);
                    }
                }
                Attachment::Bridge(name) => {
                    let group = self.plan.groups.iter().find(
                        |group| matches!(group, Group::Bridge(bridge) if bridge.name == *name),
                    );
                    ports.extend(group.map(|group| self.members(group)).unwrap_or_default());
                }
            }
        }
        ports
    }

    /// Returns the reports of VRFs.
    pub(crate) fn vrf_reports(&self) -> Vec<VrfReport> {
        let layer3 = self.layer3.lock();
        layer3
            .vrfs()
            .map(|(number, name)| {
                let (ipv4, ipv6) = layer3.rib.len(number);
                let of_vrf = |one: &&InterfacePlan| {
                    self.plan
                        .layer3
                        .vrfs
                        .get(one.vrf)
                        .is_some_and(|vrf| vrf == name)
                };
                let interfaces = self.plan.layer3.interfaces.iter().filter(of_vrf);
                VrfReport {
                    name: name.to_owned(),
                    interfaces: interfaces.map(|one| one.name.clone()).collect(),
                    ipv4_routes: ipv4 as u64,
                    ipv6_routes: ipv6 as u64,
                }
            })
            .collect()
    }

    /// Returns the reports of interfaces.
    pub(crate) fn interface_reports(&self) -> Vec<InterfaceReport> {
        let report = |one: &InterfacePlan| {
            let (port, bridge) = match &one.on {
                Attachment::Port(index) => (
                    self.plan.ports.get(*index).map(|port| port.name.clone()),
                    None,
                ),
                Attachment::Bridge(name) => (None, Some(name.clone())),
            };
            InterfaceReport {
                name: one.name.clone(),
                vrf: self
                    .plan
                    .layer3
                    .vrfs
                    .get(one.vrf)
                    .cloned()
                    .unwrap_or_default(),
                port,
                bridge,
                vlan: one.vlan,
                mac: mac_of(one, &self.plan),
                mtu: one.mtu,
                addresses: one.addresses.clone(),
                kernel: one.kernel.clone(),
            }
        };
        self.plan.layer3.interfaces.iter().map(report).collect()
    }

    /// Returns the configuration file, including routes and neighbours.
    pub(crate) fn config_text(&self) -> Result<String, toml::ser::Error> {
        let (routes, neighbours) = self.layer3.settings();
        let text = self.plan.to_toml()?;
        Ok(text + &crate::config::layer3::to_toml(&routes, &neighbours)?)
    }
}

fn names_of(plan: &Plan) -> impl Iterator<Item = &str> {
    plan.layer3.interfaces.iter().map(|one| one.name.as_str())
}

/// Returns the MAC address of an interface: the configured one, or the derived one. Without a machine ID, the derived address is the same on
/// all machines.
fn mac_of(interface: &InterfacePlan, plan: &Plan) -> MacAddress {
    interface.mac.unwrap_or_else(|| {
        let machine_id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
        derived_mac(&machine_id, &plan.control_socket, &interface.name)
    })
}
