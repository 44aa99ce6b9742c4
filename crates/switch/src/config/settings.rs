// SPDX-License-Identifier: Apache-2.0
//! What a switch is asked to do, as it was written: ports, bridges, cross-connects, threads and memory.

use std::path::PathBuf;

use quietwire_base::Idle;
use quietwire_host::{CpuList, CpuSequence};
use serde::{Deserialize, Serialize};

use super::bridging::{BridgingSetting, FloodingSetting, StaticSetting};
use super::kernel_filter::KernelFilterSetting;
use super::layer3::{InterfaceSetting, NeighbourSetting, RouteSetting, VrfSetting};
use super::place::{Place, Placed};
use super::rebalance::Rules;
use super::rules::{Action, RuleSetting};

/// Where the control socket is unless told otherwise.
pub const CONTROL_SOCKET_DEFAULT: &str = "/run/quietwire/switch.sock";

/// Whether threads stay on the CPUs of their roles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pinning {
    /// Each thread on the CPUs of its role.
    #[default]
    Roles,
    /// All threads on all CPUs that the process may use, where the scheduler puts them.
    None,
}

/// Whether to use huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HugePages {
    /// Where enough are free.
    #[default]
    Auto,
    /// Never.
    Never,
    /// Always; too few are an error.
    Require,
}

/// A port as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSetting {
    /// Name for people, and for the other settings.
    pub name: String,
    /// Where it is and what drives it ([`quietwire_dpdk::PortUri`]).
    pub uri: String,
    /// Receive queues; 1 when not said.
    pub rx_queues: Option<u16>,
    /// Transmit queues; when not said 1 where memory is shared with a peer, else one for each forwarding thread.
    pub tx_queues: Option<u16>,
    /// CPUs that its receive queues are mapped to, in this order and in turn; the switch chooses when not said.
    pub rx_cpus: Option<CpuSequence>,
    /// How it behaves in its bridge.
    pub bridging: BridgingSetting,
    /// Where that was written.
    pub place: Place,
}

/// Two ports joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrossConnectSetting {
    /// Their names.
    pub ports: Vec<String>,
    /// Where that was written.
    pub place: Place,
}

/// Ports in one learning bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeSetting {
    /// Name for people.
    pub name: String,
    /// Names of its ports.
    pub ports: Vec<String>,
    /// Addresses that it can learn; [`Settings::max_entries`] when not given.
    pub max_entries: Option<u32>,
    /// Seconds after which an address is forgotten; [`Settings::ageing_s`] when not given.
    pub ageing_s: Option<u32>,
    /// What it floods.
    pub flooding: Option<FloodingSetting>,
    /// Where that was written.
    pub place: Place,
}

/// Everything that can be asked for. What is `None` was not said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Ports.
    pub ports: Option<Vec<PortSetting>>,
    /// Pairs of ports.
    pub cross_connects: Option<Vec<CrossConnectSetting>>,
    /// Bridges.
    pub bridges: Option<Vec<BridgeSetting>>,
    /// CPUs that poll ports, one thread each. The highest CPU that is online when not said.
    pub forwarding_cpus: Option<CpuList>,
    /// CPUs for what may wait: the clock, ageing. All but the forwarding ones when not said.
    pub service_cpus: Option<CpuList>,
    /// CPUs for the control socket and the threads that DPDK makes. All but the forwarding ones when not said.
    pub control_cpus: Option<CpuList>,
    /// Descriptors of a receive queue; 1024 when not said.
    pub rx_ring_size: Option<u16>,
    /// Descriptors of a transmit queue; 1024 when not said.
    pub tx_ring_size: Option<u16>,
    /// Largest frame, octets with FCS; 1518 when not said.
    pub frame_size_max: Option<u16>,
    /// What to do when there is nothing to do.
    pub idle: Option<Idle>,
    /// Whether threads are pinned.
    pub pinning: Option<Pinning>,
    /// Whether to use huge pages.
    pub huge_pages: Option<HugePages>,
    /// Memory for packets, MiB; 256 when not said.
    pub memory_mib: Option<u32>,
    /// The control socket; [`CONTROL_SOCKET_DEFAULT`] when not said.
    pub control_socket: Option<PathBuf>,
    /// Where metrics are asked for over HTTP; nowhere when not said.
    pub metrics: Option<std::net::SocketAddr>,
    /// Addresses that each bridge can learn; 65536 when not said.
    pub max_entries: Option<u32>,
    /// Seconds after which a bridge forgets an address; 300 when not said (IEEE 802.1Q, table 8-7).
    pub ageing_s: Option<u32>,
    /// Static entries of bridges.
    pub statics: Option<Vec<Placed<StaticSetting>>>,
    /// Virtual routing and forwarding tables.
    pub vrfs: Option<Vec<Placed<VrfSetting>>>,
    /// Interfaces of the router.
    pub interfaces: Option<Vec<Placed<InterfaceSetting>>>,
    /// What the kernel gets beside what is for the router itself.
    pub kernel_filters: Option<Vec<Placed<KernelFilterSetting>>>,
    /// Static routes.
    pub routes: Option<Vec<Placed<RouteSetting>>>,
    /// Static neighbours.
    pub neighbours: Option<Vec<Placed<NeighbourSetting>>>,
    /// Which frames ports let in.
    pub rules: Option<Vec<Placed<RuleSetting>>>,
    /// What becomes of frames that no rule matches; they are let in when not said.
    pub rule_default: Option<Action>,
    /// When to move receive queues between forwarding threads by their loads; never by itself when not said.
    pub rebalance: Option<Rules>,
}

impl Settings {
    /// These settings, and those of `other` that these do not say. A list that is said here replaces the
    /// other's as a whole.
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
            metrics: self.metrics.or(other.metrics),
            max_entries: self.max_entries.or(other.max_entries),
            ageing_s: self.ageing_s.or(other.ageing_s),
            statics: self.statics.or(other.statics),
            vrfs: self.vrfs.or(other.vrfs),
            interfaces: self.interfaces.or(other.interfaces),
            kernel_filters: self.kernel_filters.or(other.kernel_filters),
            routes: self.routes.or(other.routes),
            neighbours: self.neighbours.or(other.neighbours),
            rules: self.rules.or(other.rules),
            rule_default: self.rule_default.or(other.rule_default),
            rebalance: self.rebalance.or(other.rebalance),
        }
    }
}
