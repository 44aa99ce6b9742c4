// SPDX-License-Identifier: Apache-2.0
//! The running configuration, serialised as a configuration file.

use quietwire_base::{Idle, Seccomp};
use quietwire_host::{CpuList, CpuSequence};
use serde::Serialize;

use super::balance::LoadBalancerSetting;
use super::bridging::{BridgingSetting, FloodingSetting, StaticSetting};
use super::connections::{ConnectionsSetting, ReplicationSetting};
use super::kernel_filter::KernelFilterSetting;
use super::later_ports::LaterPorts;
use super::layer3::{Attachment, InterfacePlan, InterfaceSetting, VRF_MAIN, VrfSetting};
use super::nat::{NatLogEvents, NatSetting};
use super::plan::{Group, Plan};
use super::rebalance::Rules;
use super::rules::{Action, MalformedAction, RuleSetting, SetSetting};
use super::settings::{HugePages, Pinning};
use super::steer::SteerSetting;

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct File<'plan> {
    forwarding_cpus: &'plan CpuList,
    service_cpus: &'plan CpuList,
    control_cpus: &'plan CpuList,
    rx_ring_size: u16,
    tx_ring_size: u16,
    frame_size_max: u16,
    idle: Idle,
    pinning: Pinning,
    huge_pages: HugePages,
    memory_mib: u32,
    control_socket: &'plan std::path::Path,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'plan str>,
    seccomp: Seccomp,
    later_ports: &'plan LaterPorts,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<std::net::SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nat_log: Option<&'plan std::path::Path>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nat_log_collector: Option<std::net::SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nat_log_events: Option<&'plan NatLogEvents>,
    #[serde(skip_serializing_if = "is_accept")]
    rule_default: Action,
    #[serde(skip_serializing_if = "is_drop")]
    rule_malformed: MalformedAction,
    #[serde(skip_serializing_if = "Option::is_none")]
    rebalance: Option<Rules>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<&'plan ConnectionsSetting>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replication: Option<&'plan ReplicationSetting>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    port: Vec<Port<'plan>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cross_connect: Vec<CrossConnect<'plan>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bridge: Vec<Bridge<'plan>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fdb: Vec<&'plan StaticSetting>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    vrf: Vec<VrfSetting>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    interface: Vec<InterfaceSetting>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    kernel_filter: &'plan [KernelFilterSetting],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    steer: &'plan [SteerSetting],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    set: Vec<&'plan SetSetting>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rule: Vec<&'plan RuleSetting>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    nat: &'plan [NatSetting],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    load_balancer: &'plan [LoadBalancerSetting],
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Port<'plan> {
    name: &'plan str,
    uri: String,
    rx_queues: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    tx_queues: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rx_cpus: Option<&'plan CpuSequence>,
    #[serde(skip_serializing_if = "is_default")]
    bridging: &'plan BridgingSetting,
}

fn is_default<T: Default + PartialEq>(value: &&T) -> bool {
    **value == T::default()
}

fn is_accept(action: &Action) -> bool {
    *action == Action::Accept
}

fn is_drop(action: &MalformedAction) -> bool {
    *action == MalformedAction::Drop
}

#[derive(Serialize)]
struct CrossConnect<'plan> {
    ports: Vec<&'plan str>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Bridge<'plan> {
    name: &'plan str,
    ports: Vec<&'plan str>,
    max_entries: u32,
    ageing_s: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel_forwarding: Option<bool>,
    #[serde(skip_serializing_if = "is_default")]
    flooding: &'plan FloodingSetting,
}

impl Plan {
    /// Serialises the plan as a configuration file, including defaults.
    ///
    /// # Errors
    /// The TOML library's error. No case is known.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        let names = |ports: &[usize]| -> Vec<&str> {
            ports
                .iter()
                .filter_map(|index| Some(self.ports.get(*index)?.name.as_str()))
                .collect()
        };
        let port = self.ports.iter().map(|port| Port {
            name: &port.name,
            uri: port.uri.to_string(),
            rx_queues: port.rx_queues,
            tx_queues: port.tx_queues,
            rx_cpus: (!port.rx_cpus.is_empty()).then_some(&port.rx_cpus),
            bridging: &port.bridging,
        });
        let (mut cross_connect, mut bridge, mut fdb) = (Vec::new(), Vec::new(), Vec::new());
        for group in &self.groups {
            match group {
                Group::CrossConnect(ports) => cross_connect.push(CrossConnect {
                    ports: names(ports),
                }),
                Group::Bridge(plan) => {
                    fdb.extend(plan.statics.iter().map(|entry| &**entry));
                    bridge.push(Bridge {
                        name: &plan.name,
                        ports: names(&plan.ports),
                        max_entries: plan.max_entries,
                        ageing_s: plan.ageing_s,
                        kernel_forwarding: plan.kernel_forwarding,
                        flooding: &plan.flooding,
                    })
                }
            }
        }
        toml::to_string(&File {
            forwarding_cpus: &self.forwarding_cpus,
            service_cpus: &self.service_cpus,
            control_cpus: &self.control_cpus,
            rx_ring_size: self.rx_ring_size,
            tx_ring_size: self.tx_ring_size,
            frame_size_max: self.frame_size_max,
            idle: self.idle,
            pinning: self.pinning,
            huge_pages: self.huge_pages,
            memory_mib: self.memory_mib,
            control_socket: &self.control_socket,
            user: self.user.as_deref(),
            seccomp: self.seccomp,
            later_ports: &self.later_ports,
            metrics: self.metrics,
            rebalance: self.rebalance,
            nat_log: self.nat_log.as_deref(),
            nat_log_collector: self.nat_log_collector,
            nat_log_events: (!self.nat_log_events.is_default()).then_some(&self.nat_log_events),
            connections: self.connections.as_ref(),
            replication: self.replication.as_ref(),
            port: port.collect(),
            cross_connect,
            bridge,
            fdb,
            vrf: self.written_vrfs(),
            interface: self
                .layer3
                .interfaces
                .iter()
                .map(|interface| self.written(interface))
                .collect(),
            kernel_filter: &self.layer3.kernel_filters,
            steer: &self.steer,
            rule_default: self.rules.default,
            rule_malformed: self.rules.malformed,
            set: self.rules.sets.iter().map(|set| &**set).collect(),
            rule: self.rules.rules.iter().map(|rule| &**rule).collect(),
            nat: &self.nats,
            load_balancer: &self.load_balancers,
        })
    }

    /// Returns the VRFs as settings. The main VRF is included only if it has settings of its own.
    fn written_vrfs(&self) -> Vec<VrfSetting> {
        let named = self.layer3.vrfs.iter().zip(&self.layer3.kernel_tables);
        let settings = named.map(|(name, kernel_table)| VrfSetting {
            name: name.clone(),
            kernel_table: *kernel_table,
        });
        settings
            .filter(|vrf| vrf.name != VRF_MAIN || vrf.kernel_table.is_some())
            .collect()
    }

    /// Returns an interface as settings.
    fn written(&self, interface: &InterfacePlan) -> InterfaceSetting {
        let (port, bridge) = match &interface.on {
            Attachment::Port(index) => (self.ports.get(*index).map(|port| port.name.clone()), None),
            Attachment::Bridge(name) => (None, Some(name.clone())),
        };
        InterfaceSetting {
            name: interface.name.clone(),
            port,
            bridge,
            vlan: interface.vlan,
            addresses: interface.addresses.clone(),
            vrf: self.layer3.vrfs.get(interface.vrf).cloned(),
            mac: interface.mac,
            mtu: Some(interface.mtu),
            urpf: Some(interface.urpf),
            prefix_translation: interface.prefix_translation,
            kernel: interface.kernel.clone(),
        }
    }
}
