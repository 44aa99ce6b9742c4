// SPDX-License-Identifier: Apache-2.0
//! Unvalidated configuration of a switch: ports, bridges, cross-connects, threads and memory.

use std::path::PathBuf;
use std::sync::Arc;

use quietwire_base::{Idle, Seccomp};
use quietwire_host::{CpuList, CpuSequence};
use serde::{Deserialize, Serialize};

use super::balance::LoadBalancerSetting;
use super::bridging::{BridgingSetting, FloodingSetting, StaticSetting};
use super::connections::{ConnectionsSetting, ReplicationSetting};
use super::kernel_filter::KernelFilterSetting;
use super::later_ports::LaterPorts;
use super::layer3::{InterfaceSetting, NeighbourSetting, RouteSetting, VrfSetting};
use super::location::{Located, Location};
use super::nat::{NatLogEvents, NatSetting};
use super::rebalance::Rules;
use super::rules::{Action, MalformedAction, RuleSetting, SetSetting};
use super::shared_list::SharedList;
use super::steer::SteerSetting;

/// Default path of the control socket.
pub const CONTROL_SOCKET_DEFAULT: &str = "/run/quietwire/switch.sock";

/// Whether threads stay on the CPUs of their roles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pinning {
    /// Pin each thread to the CPUs of its role.
    #[default]
    Roles,
    /// Leave placement to the scheduler, on all CPUs that the process may use.
    None,
}

/// Whether to use huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HugePages {
    /// Use huge pages if enough are free.
    #[default]
    Auto,
    /// Never use huge pages.
    Never,
    /// Require huge pages; too few are an error.
    Require,
}

/// Settings of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSetting {
    /// Its name, also used by other settings.
    pub name: String,
    /// Its device URI ([`quietwire_dpdk::PortUri`]).
    pub uri: String,
    /// Receive queues. Default: 1.
    pub rx_queues: Option<u16>,
    /// Transmit queues. Default: 1 if the port shares memory with a peer, otherwise one per forwarding thread.
    pub tx_queues: Option<u16>,
    /// CPUs that its receive queues are mapped to, in this order, round robin. Default: the switch chooses.
    pub rx_cpus: Option<CpuSequence>,
    /// Its bridging settings.
    pub bridging: BridgingSetting,
    /// Source location of the setting.
    pub location: Location,
}

/// A cross-connect of two ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrossConnectSetting {
    /// Names of both ports.
    pub ports: Vec<String>,
    /// Source location of the setting.
    pub location: Location,
}

/// Ports in one learning bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeSetting {
    /// Its name.
    pub name: String,
    /// Names of its ports.
    pub ports: Vec<String>,
    /// Maximum number of addresses. Default: [`Settings::max_entries`].
    pub max_entries: Option<u32>,
    /// Ageing time, seconds. Default: [`Settings::ageing_s`].
    pub ageing_s: Option<u32>,
    /// Whether the kernel forwards between its `veth` ports. Default: [`Settings::kernel_forwarding`].
    pub kernel_forwarding: Option<bool>,
    /// Kinds of frames it floods.
    pub flooding: Option<FloodingSetting>,
    /// Source location of the setting.
    pub location: Location,
}

/// All settings of a switch. `None`: not set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Ports.
    pub ports: Option<Vec<PortSetting>>,
    /// Pairs of ports.
    pub cross_connects: Option<Vec<CrossConnectSetting>>,
    /// Bridges.
    pub bridges: Option<Vec<BridgeSetting>>,
    /// Forwarding CPUs, one thread each. Default: the highest online CPU.
    pub forwarding_cpus: Option<CpuList>,
    /// CPUs for the service thread (timers, ageing). Default: all non-forwarding CPUs.
    pub service_cpus: Option<CpuList>,
    /// CPUs for the control socket and for DPDK's threads. Default: all non-forwarding CPUs.
    pub control_cpus: Option<CpuList>,
    /// Descriptors of a receive queue. Default: 1024.
    pub rx_ring_size: Option<u16>,
    /// Descriptors of a transmit queue. Default: 1024.
    pub tx_ring_size: Option<u16>,
    /// Largest frame, octets with FCS. Default: 1518.
    pub frame_size_max: Option<u16>,
    /// Idle strategy of forwarding threads.
    pub idle: Option<Idle>,
    /// Pinning of threads.
    pub pinning: Option<Pinning>,
    /// Use of huge pages.
    pub huge_pages: Option<HugePages>,
    /// Memory for packets, MiB. Default: 256.
    pub memory_mib: Option<u32>,
    /// The control socket. Default: [`CONTROL_SOCKET_DEFAULT`].
    pub control_socket: Option<PathBuf>,
    /// User that the switch becomes. Default: the user that starts it.
    pub user: Option<String>,
    /// Use of seccomp filters. Default: enforce.
    pub seccomp: Option<Seccomp>,
    /// Kinds of ports that may be added at run time. Default: any.
    pub later_ports: Option<LaterPorts>,
    /// Address of the HTTP server for metrics. Default: disabled.
    pub metrics: Option<std::net::SocketAddr>,
    /// Maximum number of addresses of each bridge. Default: 65536.
    pub max_entries: Option<u32>,
    /// Ageing time of each bridge, seconds. Default: 300 (IEEE 802.1Q, table 8-7).
    pub ageing_s: Option<u32>,
    /// Whether the kernel forwards between `veth` ports of each bridge. Default: if the switch has the rights.
    pub kernel_forwarding: Option<bool>,
    /// Static entries of bridges.
    pub statics: Option<SharedList<Located<Arc<StaticSetting>>>>,
    /// Virtual routing and forwarding tables.
    pub vrfs: Option<Vec<Located<VrfSetting>>>,
    /// Interfaces of the router.
    pub interfaces: Option<Vec<Located<InterfaceSetting>>>,
    /// Kernel filters.
    pub kernel_filters: Option<Vec<Located<KernelFilterSetting>>>,
    /// Steering rules of ports.
    pub steer: Option<Vec<Located<SteerSetting>>>,
    /// Static routes.
    pub routes: Option<Vec<Located<RouteSetting>>>,
    /// Static neighbours.
    pub neighbours: Option<Vec<Located<NeighbourSetting>>>,
    /// Filter rules of ports.
    pub rules: Option<SharedList<Located<Arc<RuleSetting>>>>,
    /// Sets that filter rules refer to.
    pub sets: Option<SharedList<Located<Arc<SetSetting>>>>,
    /// Default action for frames that match no rule. Default: accept.
    pub rule_default: Option<Action>,
    /// Action for malformed frames at ports with rules. Default: drop.
    pub rule_malformed: Option<MalformedAction>,
    /// Automatic rebalancing of receive queues between forwarding threads, by load. Default: disabled.
    pub rebalance: Option<Rules>,
    /// Connection tracking. Default: disabled.
    pub connections: Option<ConnectionsSetting>,
    /// Replication without connection tracking. Default: none.
    pub replication: Option<ReplicationSetting>,
    /// Instances of NAT.
    pub nats: Option<Vec<Located<NatSetting>>>,
    /// Load balancers.
    pub load_balancers: Option<Vec<Located<LoadBalancerSetting>>>,
    /// File for the log of NAT. Default: no log.
    pub nat_log: Option<PathBuf>,
    /// Address of an IPFIX collector that gets the same events, over UDP. Requires `nat_log`. Default: none.
    pub nat_log_collector: Option<std::net::SocketAddr>,
    /// Kinds of events in the log of NAT. Requires `nat_log`. Default: port blocks.
    pub nat_log_events: Option<NatLogEvents>,
}

impl Settings {
    /// Returns these settings, completed by `other`. A list in these settings replaces the list in `other` as a whole.
    #[must_use]
    pub fn over(self, other: Self) -> Self {
        Self {
            ports: self.ports.or(other.ports),
            cross_connects: self.cross_connects.or(other.cross_connects),
            bridges: self.bridges.or(other.bridges),
            forwarding_cpus: self.forwarding_cpus.or(other.forwarding_cpus),
            service_cpus: self.service_cpus.or(other.service_cpus),
            control_cpus: self.control_cpus.or(other.control_cpus),
            rx_ring_size: self.rx_ring_size.or(other.rx_ring_size),
            tx_ring_size: self.tx_ring_size.or(other.tx_ring_size),
            frame_size_max: self.frame_size_max.or(other.frame_size_max),
            idle: self.idle.or(other.idle),
            pinning: self.pinning.or(other.pinning),
            huge_pages: self.huge_pages.or(other.huge_pages),
            memory_mib: self.memory_mib.or(other.memory_mib),
            control_socket: self.control_socket.or(other.control_socket),
            user: self.user.or(other.user),
            seccomp: self.seccomp.or(other.seccomp),
            later_ports: self.later_ports.or(other.later_ports),
            metrics: self.metrics.or(other.metrics),
            max_entries: self.max_entries.or(other.max_entries),
            ageing_s: self.ageing_s.or(other.ageing_s),
            kernel_forwarding: self.kernel_forwarding.or(other.kernel_forwarding),
            statics: self.statics.or(other.statics),
            vrfs: self.vrfs.or(other.vrfs),
            interfaces: self.interfaces.or(other.interfaces),
            kernel_filters: self.kernel_filters.or(other.kernel_filters),
            steer: self.steer.or(other.steer),
            routes: self.routes.or(other.routes),
            neighbours: self.neighbours.or(other.neighbours),
            rules: self.rules.or(other.rules),
            sets: self.sets.or(other.sets),
            rule_default: self.rule_default.or(other.rule_default),
            rule_malformed: self.rule_malformed.or(other.rule_malformed),
            rebalance: self.rebalance.or(other.rebalance),
            connections: self.connections.or(other.connections),
            replication: self.replication.or(other.replication),
            nats: self.nats.or(other.nats),
            load_balancers: self.load_balancers.or(other.load_balancers),
            nat_log: self.nat_log.or(other.nat_log),
            nat_log_collector: self.nat_log_collector.or(other.nat_log_collector),
            nat_log_events: self.nat_log_events.or(other.nat_log_events),
        }
    }
}
