// SPDX-License-Identifier: Apache-2.0
//! Replies of a running switch on its control socket. Counters never decrease while it runs.

mod connections;
mod guest;
mod kernel_forwarding;
mod objects;
mod rules;

use std::collections::BTreeMap;

use quietwire_host::CpuList;
use std::net::IpAddr;

use ipnet::IpNet;
use quietwire_packet::{MacAddress, VlanId};
use serde::{Deserialize, Serialize};

use crate::config::rules::{Action, MalformedAction};
use crate::config::steer::{SteerSetting, SteerTo};
use crate::counters::Step;
use quietwire_tables::filter::{Element, PacketMatch, SetName, SetType, in_snake_case};
use quietwire_tables::neighbour::{Origin, State};
use quietwire_tables::route::rib::Source;

pub use connections::{
    BackendReport, ConnectionCounters, ConnectionReport, ConnectionsReport, LoadBalancerReport,
    MappingReport, MappingsReport, NatReport, ReplicationPeerReport, ReplicationReport,
    RestoredConnectionsReport, RestoredMappingsReport, SavedConnectionsReport, SavedMappingsReport,
    TablePosition,
};
pub use guest::GuestReport;
pub use kernel_forwarding::{KernelForwardingReport, KernelForwardingState};
pub use objects::ObjectsReport;
pub use rules::RuleReport;

pub use quietwire_tables::drops::{PortDrop, PortDrops};
pub use quietwire_tables::filter::{RuleEffect, RuleEffects};
pub use quietwire_tables::route::Punt;

/// Role of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Polls ports.
    Forwarding,
    /// Timers and ageing.
    Service,
    /// Control socket, signals, and DPDK's own threads.
    Control,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 3] = [Self::Forwarding, Self::Service, Self::Control];

    /// Returns its name in JSON and options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forwarding => "forwarding",
            Self::Service => "service",
            Self::Control => "control",
        }
    }
}

/// One thread of the process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadReport {
    /// Its thread ID in the kernel.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// CPUs that it may use.
    pub cpus: CpuList,
    /// Its rights. `None` if it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rights: Option<ThreadRights>,
    /// Whether it waits for a receive interrupt. `None` for threads that never do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_asleep: Option<bool>,
    /// For how long a forwarding thread has not replied to an order, seconds. `None` if it replies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_s: Option<f64>,
    /// Number of its system calls that its filter denied.
    #[serde(default)]
    pub denied_calls: u64,
    /// The last of them: its name, or its number if the name is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_denied_call: Option<String>,
}

/// Rights of a thread (`/proc/PID/task/TID/status`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadRights {
    /// Number of its effective user.
    pub uid: u32,
    /// Names of its effective capabilities without `CAP_`, separated by commas; `none` for none.
    pub capabilities: String,
    /// Whether it can gain rights by executing a program.
    pub can_gain_rights: bool,
    /// Whether a filter restricts its system calls (seccomp(2)).
    pub has_seccomp_filter: bool,
}

/// Counters of one port. Octets are without FCS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCounts {
    /// Its name.
    pub name: String,
    /// Frames received.
    pub rx_frames: u64,
    /// Octets received.
    pub rx_octets: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Octets sent.
    pub tx_octets: u64,
    /// Frames sent with unsegmented TCP data. The peer segments them if necessary.
    #[serde(default)]
    pub tx_tso_frames: u64,
    /// Frames with TCP data that were cut into segments before they were sent. The segments are counted as frames sent.
    #[serde(default)]
    pub segmented: u64,
    /// TCP segments and UDP datagrams that were merged into larger frames before they were sent. The larger frames are counted as frames
    /// sent.
    #[serde(default)]
    pub merged: u64,
    /// Frames received that the kernel forwarded, among all frames received.
    #[serde(default)]
    pub kernel_forwarded: u64,
    /// Frames dropped.
    pub drops: PortDrops,
    /// Frames by effect of the filter rules.
    #[serde(default)]
    pub effects: RuleEffects,
}

/// One port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortReport {
    /// Its device URI.
    pub uri: String,
    /// `cross-connect`, or the bridge that it is in.
    pub group: String,
    /// True while a peer is connected or the carrier is up.
    pub link_up: bool,
    /// `connected` or `waiting` for a peer on a socket, `up` or `down` otherwise; `removed` if its device was removed.
    pub state: String,
    /// Why a port is waiting for its peer, if known: the reason for the end of the last connection. Or why it is out of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_reason: Option<String>,
    /// Mode of the frames between the interface and an AF_XDP port: `zero-copy` or `copy`. `None` for other ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xdp_mode: Option<String>,
    /// State of kernel forwarding, and the reason for another state than `active`. `None` for ports that take no part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_forwarding: Option<String>,
    /// Link speed, Mbit/s, if the port has one.
    pub speed_mbps: Option<u32>,
    /// Flow control that the driver of a `pci` port reports: `on`, `off`, `rx` or `tx`. Most drivers report `off` without a link. `None`
    /// for other ports, or if the driver has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_control: Option<String>,
    /// Changes of the link of a `pci` port since it was opened, read once a second.
    #[serde(default)]
    pub link_changes: u64,
    /// Former filter rules that the card of a `pci` port has kept, by name: the card drops their frames, whatever the rules are now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_card_rules: Vec<String>,
    /// Receive queues.
    pub rx_queues: u16,
    /// Transmit queues.
    pub tx_queues: u16,
    /// Descriptors of a receive queue, if the driver reports them.
    pub rx_ring_size: Option<u16>,
    /// Descriptors of a transmit queue, if the driver reports them.
    pub tx_ring_size: Option<u16>,
    /// The guest of a vhost-user port, while connected.
    pub guest: Option<GuestReport>,
    /// Its memory by NUMA node: rings and buffers that it shares with its peer, or the memory of its guest; for a device, the pool of its
    /// receive buffers. Estimated from some of the pages. Empty if it is unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<NodeMemory>,
    /// Driver counters that are not 0, by the driver's names. Some duplicate other counters under another name.
    pub driver: BTreeMap<String, u64>,
    /// Its counters.
    #[serde(flatten)]
    pub counts: PortCounts,
}

/// Memory on a NUMA node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMemory {
    /// Number of the node.
    pub node: u32,
    /// Memory, KiB.
    pub kib: u64,
}

/// An address in a bridge's filtering database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FdbReport {
    /// The bridge.
    pub bridge: String,
    /// Its VLAN. `None` in a bridge without VLANs.
    pub vlan: Option<VlanId>,
    /// The address.
    pub mac: MacAddress,
    /// Name of the port it was last observed on.
    pub port: String,
    /// Seconds since then, in whole units. 0 for a static entry.
    pub age_s: u32,
    /// True for a static entry.
    pub is_static: bool,
}

/// Counters of one forwarding thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadCounts {
    /// Its CPU.
    pub cpu: u32,
    /// Polls of receive queues.
    pub polls: u64,
    /// Polls that returned no frame.
    pub empty_polls: u64,
    /// Polls that returned frames.
    pub bursts: u64,
    /// Number of times the thread yielded the CPU or slept.
    pub yields: u64,
    /// Time for which the thread has not replied to an order, seconds. 0 if it replies.
    #[serde(default)]
    pub late_s: f64,
    /// Frames received.
    pub rx_frames: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Time by step. Every moment since the thread started belongs to one step.
    pub steps: Vec<StepCounts>,
}

/// Cost of one forwarding step of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCounts {
    /// The step, such as `idle` (turns in which all queues were empty), `bridge` or `relay` (for the service thread and for other
    /// forwarding threads).
    pub step: String,
    /// Ticks of the time stamp counter.
    pub cycles: u64,
    /// Bursts processed.
    pub bursts: u64,
    /// Frames in them.
    pub frames: u64,
}

impl StepCounts {
    /// Returns true if the step forwards frames: all steps except empty polls and orders of the control thread.
    #[must_use]
    pub fn is_forwarding(&self) -> bool {
        ![Step::Idle, Step::Control]
            .map(Step::name)
            .contains(&&*self.step)
    }

    /// Returns true for the step that receives frames. Its frames are all that the thread received.
    #[must_use]
    pub fn is_receiving(&self) -> bool {
        self.step == Step::Receive.name()
    }
}

/// Cycles of forwarding threads, and burst sizes of receive queues.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CyclesReport {
    /// Duration of the measurement, seconds.
    pub uptime_s: f64,
    /// Frequency of the time stamp counter, Hz.
    pub hz: u64,
    /// Threads by CPU.
    pub threads: Vec<ThreadCycles>,
    /// Receive queues.
    pub queues: Vec<QueueCycles>,
}

/// Cycles of one forwarding thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadCycles {
    /// Its CPU.
    pub cpu: u32,
    /// Steps, in the order in which a frame passes them. They cover all of the thread's time.
    pub steps: Vec<StepCounts>,
}

/// Burst sizes of one receive queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCycles {
    /// Name of its port.
    pub port: String,
    /// Its queue number.
    pub queue: u16,
    /// CPU of the thread that serves it.
    pub cpu: Option<u32>,
    /// Frames received.
    pub frames: u64,
    /// Non-empty polls by burst size: 1, 2, up to 4, up to 8, up to 16, up to 32, up to 64 frames.
    pub burst_sizes: [u64; 7],
}

/// A flapping address: it moves between ports more often than the flap limit allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlappingReport {
    /// The bridge.
    pub bridge: String,
    /// Its VLAN; none in a bridge that knows none.
    pub vlan: Option<VlanId>,
    /// The address.
    pub mac: MacAddress,
    /// Moves since the window began.
    pub moves: u32,
    /// Seconds since then.
    pub since_s: u32,
}

/// A VLAN of a bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VlanReport {
    /// The bridge.
    pub bridge: String,
    /// The VLAN.
    pub vlan: VlanId,
    /// Ports that transmit its frames tagged.
    pub tagged: Vec<String>,
    /// Ports that transmit its frames untagged.
    pub untagged: Vec<String>,
    /// Addresses known.
    pub entries: u32,
}

/// One receive queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueReport {
    /// Name of its port.
    pub port: String,
    /// Its queue number.
    pub queue: u16,
    /// CPU of the thread that serves it.
    pub cpu: Option<u32>,
    /// True if it is mapped to that CPU by configuration.
    pub is_mapped: bool,
    /// Share of a CPU that its frames cost, 0 to 1, over the last few seconds. `None` in the first few seconds.
    pub load: Option<f64>,
    /// Entries of the card's redirection table that select it. `None` without such a table.
    #[serde(default)]
    pub entries: Option<u16>,
    /// Polls that returned frames.
    pub bursts: u64,
    /// Non-empty polls by burst size: 1, 2, up to 4, up to 8, up to 16, up to 32, up to 64 frames.
    pub burst_sizes: [u64; 7],
    /// Frames received.
    pub frames: u64,
    /// Ticks of the time stamp counter spent on its frames.
    pub cycles: u64,
}

/// A performed or proposed move of a receive queue, or of a part of its flows, from one thread to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoveReport {
    /// Time of the move, seconds since the switch started.
    pub uptime_s: f64,
    /// Name of the port.
    pub port: String,
    /// Number of its receive queue.
    pub queue: u16,
    /// CPU of the thread that served it.
    pub from: u32,
    /// CPU of the thread that serves it.
    pub to: u32,
    /// Entries of the card's redirection table that moved to another queue. `None` if the whole queue moved.
    #[serde(default)]
    pub entries: Option<u16>,
    /// Number of that other queue.
    #[serde(default)]
    pub to_queue: Option<u16>,
    /// The reason.
    pub reason: String,
}

/// Counters of one bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgeCounts {
    /// Its name.
    pub name: String,
    /// Addresses known now. The only value here that can decrease.
    pub entries: u32,
    /// Maximum number of addresses.
    pub max_entries: u32,
    /// Frames flooded.
    pub flooded: u64,
    /// Addresses learned.
    pub learned: u64,
    /// Number of times an address moved to another port.
    pub moved: u64,
    /// Moves of flapping addresses, beyond the flap limit: a loop, or a station that uses another's address.
    pub flapped: u64,
    /// Number of times an address was not learned: table full, over the port's limit, or static on another port.
    pub not_learned: u64,
    /// Addresses not learned because of a static entry on another port.
    pub static_elsewhere: u64,
    /// Addresses aged out.
    pub aged: u64,
    /// Kernel forwarding, in a bridge with this option.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_forwarding: Option<KernelForwardingReport>,
}

/// A VRF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VrfReport {
    /// Its name.
    pub name: String,
    /// Its interfaces.
    pub interfaces: Vec<String>,
    /// Active IPv4 routes.
    pub ipv4_routes: u64,
    /// Active IPv6 routes.
    pub ipv6_routes: u64,
}

/// An interface of the router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceReport {
    /// Its name.
    pub name: String,
    /// Its VRF.
    pub vrf: String,
    /// The port that it is on.
    pub port: Option<String>,
    /// The bridge that it is on.
    pub bridge: Option<String>,
    /// Its VLAN.
    pub vlan: Option<VlanId>,
    /// Its MAC address.
    pub mac: MacAddress,
    /// Largest IP packet, octets.
    pub mtu: u16,
    /// Its addresses.
    pub addresses: Vec<IpNet>,
    /// Name of the kernel tap.
    pub kernel: Option<String>,
}

/// A next hop of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViaReport {
    /// Address of the next router. `None` if the destinations are on the link.
    pub address: Option<IpAddr>,
    /// The interface.
    pub interface: String,
    /// Its share of the flows.
    pub weight: u8,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteReport {
    /// Destination prefix.
    pub prefix: IpNet,
    /// Origin of the route.
    pub source: Source,
    /// Metric. Lower is better.
    pub metric: u32,
    /// `unicast`, `local`, `blackhole`, `unreachable` or `prohibit`.
    pub kind: String,
    /// Its next hops.
    pub via: Vec<ViaReport>,
    /// True if the route is used for forwarding.
    pub is_active: bool,
}

/// Routes of a VRF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutesReport {
    /// The VRF.
    pub vrf: String,
    /// Active IPv4 routes.
    pub ipv4_active: u64,
    /// Active IPv6 routes.
    pub ipv6_active: u64,
    /// Number of matching routes.
    pub total: u64,
    /// The last prefix of this page, if there are routes to further prefixes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<IpNet>,
    /// The first matching routes.
    pub routes: Vec<RouteReport>,
}

/// A neighbour on a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NeighbourReport {
    /// The interface.
    pub interface: String,
    /// Its IP address.
    pub address: IpAddr,
    /// Its MAC address, if known.
    pub mac: Option<MacAddress>,
    /// Its state (RFC 4861, section 7.3.2).
    pub state: State,
    /// Origin of the latest information.
    pub source: Origin,
    /// Seconds since it was last heard from.
    pub age_s: f64,
}

/// A kernel filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelFilterReport {
    /// Its name.
    pub name: String,
    /// Ingress interface to match, if set.
    pub interface: Option<String>,
    /// VRF of the ingress interface to match, if set.
    pub vrf: Option<String>,
    /// Packets to match.
    #[serde(flatten, with = "in_snake_case")]
    pub packet: PacketMatch,
    /// Frames passed to the kernel by this filter since it was created.
    pub frames: u64,
}

/// Steering of the frames of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteerReport {
    /// Port on the interface.
    pub port: String,
    /// The part that steers.
    pub by: SteeredBy,
    /// Port on the tap of the kernel, if the port itself does not steer.
    pub kernel_port: Option<String>,
    /// The rules; the first that matches decides.
    pub rules: Vec<SteerRuleReport>,
    /// Frames that matched no rule since the port had the first one. The kernel got them. 0 if the card alone steers.
    pub unmatched: u64,
}

/// The part that steers the frames of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SteeredBy {
    /// An XDP program of the switch.
    Xdp,
    /// The forwarding threads of the switch.
    Software,
    /// Flow rules of the card alone. All frames that it does not deliver elsewhere go to the switch.
    Card,
}

impl SteeredBy {
    /// Returns its name in tables and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::Software => "software",
            Self::Card => "card",
        }
    }
}

/// Whether a card delivers the frames of a rule where the rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CardState {
    /// The card has accepted the rule. No frame has shown yet that it obeys.
    Accepted,
    /// All frames of the rule came in on its queue, or the card has counted frames of the rule.
    Obeyed,
    /// Frames of the rule came in elsewhere.
    Disobeyed,
}

impl CardState {
    /// Returns its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Obeyed => "obeyed",
            Self::Disobeyed => "disobeyed",
        }
    }

    /// Returns the state of a rule by its frames, and by those that came in elsewhere. `None` if the card has no part in the rule.
    pub(crate) const fn of(rule: &SteerSetting, frames: u64, misplaced: u64) -> Option<Self> {
        match (rule.queue, rule.virtual_function) {
            (None, None) => None,
            _ if misplaced > 0 => Some(Self::Disobeyed),
            (Some(_), _) if frames > 0 => Some(Self::Obeyed),
            // The interface sees no frames that a function receives.
            _ => Some(Self::Accepted),
        }
    }

    /// Returns the state of a rule by the frames that the card has counted for it, if it counts them.
    pub(crate) const fn of_counter(frames: Option<u64>) -> Self {
        match frames {
            Some(1..) => Self::Obeyed,
            _ => Self::Accepted,
        }
    }
}

/// A steering rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteerRuleReport {
    /// Its name.
    pub name: String,
    /// Destination of matching frames.
    pub to: SteerTo,
    /// Receive queue that the card selects, if set.
    #[serde(default)]
    pub queue: Option<u16>,
    /// Virtual function that the card selects, if set.
    #[serde(default)]
    pub virtual_function: Option<u16>,
    /// Whether the card delivers the frames there.
    #[serde(default)]
    pub card: Option<CardState>,
    /// Frames that the card should have delivered to another queue or to the function.
    #[serde(default)]
    pub misplaced: u64,
    /// Source MAC address to match, if set.
    pub source_mac: Option<MacAddress>,
    /// Destination MAC address to match, if set.
    pub destination_mac: Option<MacAddress>,
    /// VLAN to match, if set.
    pub vlan: Option<VlanId>,
    /// Packets to match.
    #[serde(flatten, with = "in_snake_case")]
    pub packet: PacketMatch,
    /// Frames that the rule has decided on since it was added.
    pub frames: u64,
}

/// Filter rules of ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RulesReport {
    /// The rules; the first that matches decides.
    pub rules: Vec<RuleReport>,
    /// Default action for frames that match no rule.
    pub default: Action,
    /// Frames handled by the default action, at ports with rules, since the action was set.
    pub default_frames: u64,
    /// Action for malformed frames, at ports with rules.
    #[serde(default)]
    pub malformed: MalformedAction,
    /// Frames dropped as malformed since the switch started.
    #[serde(default)]
    pub malformed_frames: u64,
    /// Number of all rules.
    #[serde(default)]
    pub total: usize,
    /// Number of the rule behind this page, if there are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<usize>,
    /// Seconds until the former rules return, if the rules wait for a confirmation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unconfirmed_s: Option<u64>,
    /// Upper bound of the number of rules that a frame is compared with.
    #[serde(default)]
    pub comparisons_max: usize,
    /// Memory of the compiled rules, octets.
    #[serde(default)]
    pub octets: usize,
    /// Time of the last compilation, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compile_us: Option<u64>,
    /// Time from then on until all forwarding threads have the rules, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_us: Option<u64>,
}

/// A page of the sets of filter rules and their elements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetsReport {
    /// The sets.
    pub sets: Vec<SetReport>,
    /// Elements of the sets, set by set.
    pub elements: Vec<ElementReport>,
    /// Number of elements of all these sets.
    pub total: usize,
    /// Number of the element behind this page, if there are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<usize>,
}

/// A set of filter rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetReport {
    /// Its name.
    pub name: SetName,
    /// Type of its elements.
    #[serde(rename = "type")]
    pub kind: SetType,
    /// Seconds after which an element is removed, if elements are.
    pub timeout_s: Option<u32>,
    /// Number of its elements.
    pub elements: usize,
    /// Number of rules that refer to it.
    pub rules: usize,
}

/// An element of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElementReport {
    /// Name of its set.
    pub set: SetName,
    /// The element.
    pub element: Element,
    /// Seconds until it is removed, if it has a timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_s: Option<u64>,
}

/// Counters of the router.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterCounts {
    /// Packets forwarded.
    pub forwarded: u64,
    /// Packets forwarded in fragments.
    pub fragmented: u64,
    /// Frames with TCP data that were cut into segments before routing.
    #[serde(default)]
    pub segmented: u64,
    /// Packets dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packets punted to the service thread, by reason.
    pub punted: BTreeMap<String, u64>,
    /// Packets lost because the ring to the service thread was full.
    pub service_full: u64,
    /// Packets lost on transmit: no buffer, no output, or a full queue.
    pub not_sent: u64,
    /// Echo requests answered.
    pub echoed: u64,
    /// ICMP errors sent.
    pub errors: u64,
    /// Packets to the router itself without a receiver.
    pub unknown_protocol: u64,
    /// Frames passed to the kernel.
    pub to_kernel: u64,
    /// Frames that the kernel refused.
    pub kernel_refused: u64,
    /// Neighbour requests sent.
    pub neighbour_requests: u64,
    /// Neighbour requests suppressed by the rate limit.
    pub neighbour_requests_limited: u64,
    /// Neighbours evicted to make space for others.
    pub neighbours_evicted: u64,
    /// Neighbours not added because the table was full.
    pub neighbour_table_full: u64,
    /// Packets dropped because too many waited for a neighbour.
    pub neighbour_queue_drops: u64,
    /// Frames that claim one of the router's own addresses.
    pub address_conflicts: u64,
}

/// All counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatsReport {
    /// Seconds since the switch started.
    pub uptime_s: f64,
    /// Ports, in configuration order.
    pub ports: Vec<PortCounts>,
    /// Forwarding threads, by CPU.
    pub threads: Vec<ThreadCounts>,
    /// Bridges.
    pub bridges: Vec<BridgeCounts>,
    /// The router.
    #[serde(default)]
    pub router: RouterCounts,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_tables_are_those_in_json() {
        fn check<T: Serialize + Copy>(all: &[T], name: impl Fn(T) -> &'static str) {
            for one in all {
                assert_eq!(serde_json::to_value(one).unwrap(), name(*one));
            }
        }
        check(&Role::ALL, Role::name);
        check(
            &[
                Source::Local,
                Source::Connected,
                Source::Static,
                Source::Kernel,
                Source::Neighbour,
            ],
            Source::name,
        );
        check(
            &[
                State::Incomplete,
                State::Reachable,
                State::Stale,
                State::Probe,
                State::Permanent,
            ],
            State::name,
        );
        check(
            &[Origin::Found, Origin::Kernel, Origin::Static],
            Origin::name,
        );
        check(
            &[
                KernelForwardingState::Active,
                KernelForwardingState::Paused,
                KernelForwardingState::Unavailable,
            ],
            KernelForwardingState::name,
        );
        check(
            &[SteeredBy::Xdp, SteeredBy::Software, SteeredBy::Card],
            SteeredBy::name,
        );
        check(
            &[CardState::Accepted, CardState::Obeyed, CardState::Disobeyed],
            CardState::name,
        );
    }

    #[test]
    fn a_card_obeys_a_rule_only_once_frames_have_shown_it() {
        let rule = |more: &str| -> SteerSetting {
            let text = format!(r#"{{"name":"x","port":"p","to":"switch","vlan":3{more}}}"#);
            serde_json::from_str(&text).unwrap()
        };
        let (plain, queue) = (rule(""), rule(r#","queue":1"#));
        let function = rule(r#","virtual-function":1"#);
        assert_eq!(CardState::of(&plain, 5, 0), None);
        assert_eq!(CardState::of(&queue, 0, 0), Some(CardState::Accepted));
        assert_eq!(CardState::of(&queue, 5, 0), Some(CardState::Obeyed));
        assert_eq!(CardState::of(&queue, 5, 1), Some(CardState::Disobeyed));
        assert_eq!(CardState::of(&function, 0, 0), Some(CardState::Accepted));
        assert_eq!(CardState::of(&function, 5, 5), Some(CardState::Disobeyed));
        let counted = [None, Some(0), Some(1)].map(CardState::of_counter);
        let states = [CardState::Accepted, CardState::Accepted, CardState::Obeyed];
        assert_eq!(counted, states);
    }

    #[test]
    fn empty_polls_and_orders_forward_nothing_and_one_step_receives() {
        let step = |step: Step| StepCounts {
            step: step.name().to_owned(),
            ..StepCounts::default()
        };
        let is_idle = |step: &Step| matches!(step, Step::Idle | Step::Control);
        for one in Step::ALL {
            assert_eq!(step(one).is_forwarding(), !is_idle(&one), "{one:?}");
            assert_eq!(step(one).is_receiving(), one == Step::Receive, "{one:?}");
        }
    }
}
