// SPDX-License-Identifier: Apache-2.0
//! What a running switch says of itself: the answers on its control socket. Counters only grow while it runs.

use std::collections::BTreeMap;

use quietwire_host::CpuList;
use std::net::IpAddr;

use ipnet::IpNet;
use quietwire_packet::{MacAddress, VlanId};
use serde::{Deserialize, Serialize};

use crate::config::rules::Action;
use quietwire_tables::filter::{PacketMatch, in_snake_case};
use quietwire_tables::neighbour::{Origin, State};
use quietwire_tables::route::rib::Source;

pub use quietwire_tables::drops::{PortDrop, PortDrops};

/// What a thread is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Polls ports.
    Forwarding,
    /// Clock and ageing.
    Service,
    /// Control socket, signals, and whatever DPDK makes threads for.
    Control,
}

/// One thread of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadReport {
    /// The kernel's number of it.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// What it is there for.
    pub role: Role,
    /// CPUs that it may use.
    pub cpus: CpuList,
    /// Whether it waits for a receive interrupt; none for threads that never do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_asleep: Option<bool>,
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
    /// Frames sent with TCP data uncut, for the peer to cut where it has to.
    #[serde(default)]
    pub uncut: u64,
    /// Frames with TCP data that were cut into segments before they were sent; the segments are among the frames sent.
    #[serde(default)]
    pub segmented: u64,
    /// Frames dropped.
    pub drops: PortDrops,
}

/// The guest of a vhost-user port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestReport {
    /// Features of virtio that both sides agreed on.
    pub features: Vec<String>,
    /// Rings that it has set up, both ways together.
    pub rings: u16,
    /// Descriptors of the first.
    pub ring_size: u16,
}

/// One port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortReport {
    /// Where it is and what drives it.
    pub uri: String,
    /// `cross-connect`, or the bridge that it is in.
    pub group: String,
    /// True while a peer is connected or the cable carries.
    pub link_up: bool,
    /// `connected` or `waiting` for a peer on a socket, `up` or `down` otherwise.
    pub state: String,
    /// Why a port is waiting for its peer, if that is known: how the last connection ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_reason: Option<String>,
    /// Speed of the cable, Mbit/s, where there is one.
    pub speed_mbps: Option<u32>,
    /// Receive queues.
    pub rx_queues: u16,
    /// Transmit queues.
    pub tx_queues: u16,
    /// Descriptors of a receive queue, where the driver says it.
    pub rx_ring_size: Option<u16>,
    /// Descriptors of a transmit queue, where the driver says it.
    pub tx_ring_size: Option<u16>,
    /// The guest of a vhost-user port, while there is one.
    pub guest: Option<GuestReport>,
    /// Counters of the driver that are not 0, by its own names; some count what others do under another name.
    pub driver: BTreeMap<String, u64>,
    /// Name and counters.
    #[serde(flatten)]
    pub counts: PortCounts,
}

/// One address that a bridge has learned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FdbReport {
    /// The bridge.
    pub bridge: String,
    /// Its VLAN; none in a bridge that knows none.
    pub vlan: Option<VlanId>,
    /// The address.
    pub mac: MacAddress,
    /// Name of the port it was last seen on.
    pub port: String,
    /// Seconds since then, in whole units; 0 for a static entry.
    pub age_s: u32,
    /// True for an entry that was set and not learned.
    pub is_static: bool,
}

/// Counters of one forwarding thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadCounts {
    /// Its CPU.
    pub cpu: u32,
    /// Looks at receive queues.
    pub polls: u64,
    /// Those that found nothing.
    pub empty_polls: u64,
    /// Those that found frames.
    pub bursts: u64,
    /// Times that the CPU was yielded, or the thread slept.
    pub yields: u64,
    /// Frames received.
    pub rx_frames: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Where its time went: everything since it started is in one of these.
    pub steps: Vec<StepCounts>,
}

/// What one step of forwarding cost a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCounts {
    /// The step, such as `idle` (turns that found nothing), `bridge` or `relay` (for the service thread and for other
    /// forwarding threads).
    pub step: String,
    /// Ticks of the time stamp counter.
    pub cycles: u64,
    /// Bursts worked on.
    pub bursts: u64,
    /// Frames in them.
    pub frames: u64,
}

/// Where forwarding threads' time went, and how frames came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CyclesReport {
    /// Time that is counted, seconds.
    pub uptime_s: f64,
    /// Ticks of the time stamp counter a second.
    pub hz: u64,
    /// Threads by CPU.
    pub threads: Vec<ThreadCycles>,
    /// Receive queues.
    pub queues: Vec<QueueCycles>,
}

/// Where one forwarding thread's time went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadCycles {
    /// Its CPU.
    pub cpu: u32,
    /// Steps, in the order in which a frame meets them. All of the thread's time is in one of these.
    pub steps: Vec<StepCounts>,
}

/// How frames came to one receive queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCycles {
    /// Name of its port.
    pub port: String,
    /// Its number there.
    pub queue: u16,
    /// CPU of the thread that serves it.
    pub cpu: Option<u32>,
    /// Frames received.
    pub frames: u64,
    /// Looks that found frames, by how many: 1, 2, up to 4, up to 8, up to 16, up to 32, up to 64.
    pub burst_sizes: [u64; 7],
}

/// An address that moves from port to port more often than it may.
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
    /// Ports that its frames leave with a tag.
    pub tagged: Vec<String>,
    /// Ports that they leave without.
    pub untagged: Vec<String>,
    /// Addresses known.
    pub entries: u32,
}

/// One receive queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueReport {
    /// Name of its port.
    pub port: String,
    /// Its number there.
    pub queue: u16,
    /// CPU of the thread that serves it.
    pub cpu: Option<u32>,
    /// It is mapped to that CPU by hand.
    pub is_mapped: bool,
    /// Share of a CPU that its frames cost, 0 to 1, over the last few seconds; none in the first ones.
    pub load: Option<f64>,
    /// Looks that found frames.
    pub bursts: u64,
    /// Those by how many they found: 1, 2, up to 4, up to 8, up to 16, up to 32, up to 64.
    pub burst_sizes: [u64; 7],
    /// Frames received.
    pub frames: u64,
    /// Ticks of the time stamp counter spent on them.
    pub cycles: u64,
}

/// A receive queue that went, or would go, from one thread to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoveReport {
    /// When: seconds since the switch started.
    pub uptime_s: f64,
    /// Name of the port.
    pub port: String,
    /// Number of its receive queue.
    pub queue: u16,
    /// CPU of the thread that served it.
    pub from: u32,
    /// CPU of the thread that serves it.
    pub to: u32,
    /// The reason.
    pub why: String,
}

/// Counters of one bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgeCounts {
    /// Its name.
    pub name: String,
    /// Addresses known at the moment: the one number here that can fall.
    pub entries: u32,
    /// Addresses that there is room for.
    pub max_entries: u32,
    /// Frames sent to all ports.
    pub flooded: u64,
    /// Addresses learned.
    pub learned: u64,
    /// Times that an address was seen on another port than before.
    pub moved: u64,
    /// Those of them of addresses that move more often than they may: a loop, or somebody who takes another's address.
    pub flapped: u64,
    /// Times that an address was not learned: no room, over a port's limit, or static on another port.
    pub not_learned: u64,
    /// Those of them of addresses that are static on another port.
    pub static_elsewhere: u64,
    /// Addresses forgotten since they were not seen for long.
    pub aged: u64,
}

/// A VRF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VrfReport {
    /// Its name.
    pub name: String,
    /// Its interfaces.
    pub interfaces: Vec<String>,
    /// IPv4 routes that packets take.
    pub ipv4_routes: u64,
    /// IPv6 routes that packets take.
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
    /// Name of the kernel's tap.
    pub kernel: Option<String>,
}

/// One way of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViaReport {
    /// The next router; none where the destination itself is on the link.
    pub address: Option<IpAddr>,
    /// The interface.
    pub interface: String,
    /// Its share of the flows.
    pub weight: u8,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteReport {
    /// The destinations.
    pub prefix: IpNet,
    /// Who it is known from.
    pub source: Source,
    /// The lower the better.
    pub metric: u32,
    /// `unicast`, `local`, `blackhole`, `unreachable` or `prohibit`.
    pub kind: String,
    /// Its ways.
    pub via: Vec<ViaReport>,
    /// True when packets take it.
    pub is_active: bool,
}

/// Routes of a VRF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutesReport {
    /// The VRF.
    pub vrf: String,
    /// IPv4 routes that packets take.
    pub ipv4_active: u64,
    /// IPv6 routes that packets take.
    pub ipv6_active: u64,
    /// Routes that were asked for.
    pub total: u64,
    /// The first of them.
    pub routes: Vec<RouteReport>,
}

/// A neighbour on a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NeighbourReport {
    /// The interface.
    pub interface: String,
    /// Its IP address.
    pub address: IpAddr,
    /// Its MAC address, where that is known.
    pub mac: Option<MacAddress>,
    /// Its state (RFC 4861, section 7.3.2).
    pub state: State,
    /// Who has told of it last.
    pub source: Origin,
    /// Seconds since it was heard of last.
    pub age_s: f64,
}

/// A rule about what the kernel gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelFilterReport {
    /// Its name.
    pub name: String,
    /// The interface that packets come in by, where it matters.
    pub interface: Option<String>,
    /// The VRF of that interface, where it matters.
    pub vrf: Option<String>,
    /// What packets it is about.
    #[serde(flatten, with = "in_snake_case")]
    pub packet: PacketMatch,
    /// Frames that were given to the kernel for it, since it was made.
    pub frames: u64,
}

/// Which frames ports let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RulesReport {
    /// The rules; the first that matches decides.
    pub rules: Vec<RuleReport>,
    /// What becomes of frames that none of them matches.
    pub default: Action,
    /// Frames that this became of, at ports that are looked at; since it was said.
    pub default_frames: u64,
}

/// A rule about which frames ports let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleReport {
    /// Its name.
    pub name: String,
    /// What becomes of the frames.
    pub action: Action,
    /// The port that they come in by, where it matters.
    pub port: Option<String>,
    /// The bridge of that port, where it matters.
    pub bridge: Option<String>,
    /// VLAN of their outermost tag, where it matters.
    pub vlan: Option<VlanId>,
    /// What packets it is about.
    #[serde(flatten, with = "in_snake_case")]
    pub packet: PacketMatch,
    /// Frames that it has decided on, since it was made.
    pub frames: u64,
}

/// Counters of the router.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterCounts {
    /// Packets that went on.
    pub forwarded: u64,
    /// Those of them that went in pieces.
    pub fragmented: u64,
    /// Frames with TCP data that were cut into segments before they were routed.
    #[serde(default)]
    pub segmented: u64,
    /// Packets dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packets handed to the service thread, by reason.
    pub punted: BTreeMap<String, u64>,
    /// Packets for the service thread that it had no room for.
    pub service_full: u64,
    /// Packets that were to go on and could not: no buffer, no output, no room.
    pub not_sent: u64,
    /// Echo requests answered.
    pub echoed: u64,
    /// Errors sent.
    pub errors: u64,
    /// Packets for the router itself that nobody here takes.
    pub unclaimed: u64,
    /// Frames given to the kernel.
    pub to_kernel: u64,
    /// Frames that the kernel did not take.
    pub kernel_refused: u64,
    /// Questions for neighbours sent.
    pub neighbours_asked: u64,
    /// Those that were not sent since too many had been.
    pub neighbours_not_asked: u64,
    /// Neighbours that made room for others.
    pub neighbours_evicted: u64,
    /// Neighbours that there was no room for.
    pub neighbours_no_room: u64,
    /// Packets dropped since too many waited for a neighbour.
    pub neighbours_overflowed: u64,
    /// Frames that claim one of the router's own addresses.
    pub address_conflicts: u64,
}

/// All counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatsReport {
    /// Seconds since the switch started.
    pub uptime_s: f64,
    /// Ports, in the order in which they were given.
    pub ports: Vec<PortCounts>,
    /// Forwarding threads, by CPU.
    pub threads: Vec<ThreadCounts>,
    /// Bridges.
    pub bridges: Vec<BridgeCounts>,
    /// The router.
    #[serde(default)]
    pub router: RouterCounts,
}
