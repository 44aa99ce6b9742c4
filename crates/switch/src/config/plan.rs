// SPDX-License-Identifier: Apache-2.0
//! Settings to plan: fills in defaults, resolves names, refuses contradictions.

mod fixed;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use quietwire_base::{Idle, Seccomp};
use quietwire_dpdk::{DEVICES_MAX, PortUri, SteerRule, too_many_devices};
use quietwire_host::{CpuList, CpuSequence};
use quietwire_packet::{MacAddress, VlanId};

use super::balance::{self, LoadBalancerSetting};
use super::bridging::{
    BridgingSetting, FloodingSetting, StaticBridge, StaticSetting, plan_statics,
};
use super::connections::{self, ConnectionsSetting, ReplicationSetting};
use super::later_ports::LaterPorts;
use super::layer3::{self, Layer3Plan};
use super::location::Location;
use super::nat::{self, NatLogEvents, NatSetting};
use super::ports::check_port_name;
use super::rebalance::Rules;
use super::role_cpus::RoleCpus;
use super::rules;
use super::settings::{
    BridgeSetting, CONTROL_SOCKET_DEFAULT, CrossConnectSetting, HugePages, Pinning, PortSetting,
    Settings,
};
use super::shared_list::{SharedList, are_shared};
use super::steer::{self, SteerSetting};
use crate::counters::PORTS_MAX;
use crate::error::SwitchError;
use quietwire_tables::bridge::{self, BridgePort, PortVlans, TagType, Trunk, VlanSet};

const RING_SIZE: u16 = 1024;
/// Largest untagged frame of IEEE 802.3, with FCS.
const FRAME_SIZE_MAX: u16 = 1518;
const MEMORY_MIB: u32 = 256;
const MAX_ENTRIES: u32 = 65_536;
/// Sixteen million addresses take 256 MiB.
const MAX_ENTRIES_LIMIT: u32 = 1 << 24;
/// IEEE 802.1Q, table 8-7: recommended default, and range.
const AGEING_S: u32 = 300;
const AGEING_RANGE_S: std::ops::RangeInclusive<u32> = 1..=1_000_000;

/// A planned port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortPlan {
    /// Its name.
    pub name: String,
    /// Its device URI.
    pub uri: PortUri,
    /// Receive queues.
    pub rx_queues: u16,
    /// Transmit queues, if configured.
    pub tx_queues: Option<u16>,
    /// CPUs that its receive queues are mapped to, round robin. Empty: the switch chooses.
    pub rx_cpus: CpuSequence,
    /// Its bridging settings.
    pub bridging: BridgingSetting,
}

impl PortPlan {
    /// Returns true if both describe the same device opened with the same options.
    #[must_use]
    pub fn is_same_device(&self, other: &Self) -> bool {
        (&self.name, &self.uri, self.rx_queues, self.tx_queues)
            == (&other.name, &other.uri, other.rx_queues, other.tx_queues)
    }

    /// Returns true if the port itself divides the frames of its interface between the switch and the kernel.
    #[must_use]
    pub fn steers(&self) -> bool {
        matches!(self.uri, PortUri::AfXdp { .. })
    }

    /// Returns true if the port is on a card with a DPDK driver.
    #[must_use]
    pub const fn is_card(&self) -> bool {
        matches!(self.uri, PortUri::Pci { .. })
    }

    /// Returns the CPU that a receive queue is mapped to.
    #[must_use]
    pub fn cpu_of(&self, queue: usize) -> Option<u32> {
        let count = self.rx_cpus.iter().len();
        self.rx_cpus
            .iter()
            .nth(queue.checked_rem(count)?)
            .map(|cpu| cpu.0)
    }

    /// Returns the number of transmit queues to open for this number of forwarding threads. A peer that shares its memory must provide the
    /// same number.
    #[must_use]
    pub fn tx_queues(&self, threads: usize) -> u16 {
        self.tx_queues.unwrap_or_else(|| match self.uri {
            PortUri::Null | PortUri::Pci { .. } => {
                u16::try_from(threads).unwrap_or(u16::MAX).max(1)
            }
            PortUri::Pcap { .. } => 1,
            // DPDK's driver refuses other numbers than that of receive queues.
            PortUri::AfXdp { .. } => self.uri.queues(),
            // These devices have their queues in pairs, or the peer provides a fixed number.
            _ => u16::try_from(threads)
                .unwrap_or(u16::MAX)
                .clamp(1, self.uri.queues()),
        })
    }
}

/// Maximum number of queues per direction (ETH_MEMIF_MAX_NUM_Q_PAIRS of DPDK is 255).
const QUEUES_MAX: u16 = 64;

/// A planned bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgePlan {
    /// Its name.
    pub name: String,
    /// Its ports: indexes into [`Plan::ports`].
    pub ports: Vec<usize>,
    /// Maximum number of addresses.
    pub max_entries: u32,
    /// Ageing time, seconds.
    pub ageing_s: u32,
    /// Whether the kernel forwards between its `veth` ports. `None`: if the switch has the rights, which it does not keep for this.
    pub kernel_forwarding: Option<bool>,
    /// Kinds of frames it floods.
    pub flooding: FloodingSetting,
    /// Its static entries.
    pub statics: SharedList<Arc<StaticSetting>>,
}

impl BridgePlan {
    /// Converts to the bridge's settings, including the router interfaces on the bridge. `number_of` returns the number of a port by its
    /// index in [`Plan::ports`].
    ///
    /// # Errors
    /// A message that describes invalid settings and names ports by number.
    pub(crate) fn settings(
        &self,
        ports: &[PortPlan],
        number_of: impl Fn(usize) -> Option<u16>,
        interfaces: Vec<bridge::Interface>,
    ) -> Result<bridge::Settings, String> {
        let mut settings = bridge::Settings {
            flooding: self.flooding.flooding(),
            interfaces,
            ..bridge::Settings::default()
        };
        for index in &self.ports {
            if let (Some(number), Some(port)) = (number_of(*index), ports.get(*index)) {
                let port = port
                    .bridging
                    .port(number)
                    .map_err(|what| format!("port {number}: {what}"))?;
                settings.ports.push(port);
            }
        }
        if settings.is_vlan_aware() {
            for port in &mut settings.ports {
                join_all_vlans(port);
            }
        }
        Ok(settings)
    }
}

/// Makes a port without VLAN settings a member of all VLANs of a VLAN-aware bridge: tagged, with untagged frames in VLAN 1 (IEEE 802.1Q,
/// table 9-2).
fn join_all_vlans(port: &mut BridgePort) {
    if port.vlans == PortVlans::Transparent {
        port.vlans = PortVlans::Trunk(Box::new(Trunk {
            allowed: VlanSet::all(),
            native: VlanId::new(1).ok(),
            untagged: VlanSet::NONE,
            tag: TagType::Customer,
        }));
    }
}

/// A group of ports that forward to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Group {
    /// A cross-connect of two ports: indexes into [`Plan::ports`].
    CrossConnect([usize; 2]),
    /// A learning bridge.
    Bridge(BridgePlan),
}

impl Group {
    /// Returns its ports: indexes into [`Plan::ports`].
    #[must_use]
    pub fn ports(&self) -> &[usize] {
        match self {
            Self::CrossConnect(ports) => ports,
            Self::Bridge(bridge) => &bridge.ports,
        }
    }
}

/// The validated configuration of a switch. A port is in at most one group; frames of a port without group are dropped.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Ports, in configuration order.
    pub ports: Vec<PortPlan>,
    /// Bridges and cross-connects.
    pub groups: Vec<Group>,
    /// Forwarding CPUs, one thread each.
    pub forwarding_cpus: CpuList,
    /// CPUs of the service thread.
    pub service_cpus: CpuList,
    /// CPUs of the control thread and of DPDK's own threads.
    pub control_cpus: CpuList,
    /// Descriptors of a receive queue.
    pub rx_ring_size: u16,
    /// Descriptors of a transmit queue.
    pub tx_ring_size: u16,
    /// Largest frame, octets with FCS.
    pub frame_size_max: u16,
    /// Idle strategy of forwarding threads.
    pub idle: Idle,
    /// Pinning of threads.
    pub pinning: Pinning,
    /// Use of huge pages.
    pub huge_pages: HugePages,
    /// Memory for packets, MiB.
    pub memory_mib: u32,
    /// The control socket.
    pub control_socket: PathBuf,
    /// User that the switch becomes.
    pub user: Option<String>,
    /// Use of seccomp filters.
    pub seccomp: Seccomp,
    /// Kinds of ports that may be added at run time.
    pub later_ports: LaterPorts,
    /// Address of the metrics server.
    pub metrics: Option<std::net::SocketAddr>,
    /// Layer 3.
    pub layer3: Layer3Plan,
    /// Steering rules of ports.
    pub steer: Vec<SteerSetting>,
    /// Filter rules of ports.
    pub rules: Arc<rules::Rules>,
    /// Automatic rebalancing of receive queues.
    pub rebalance: Option<Rules>,
    /// Connection tracking.
    pub connections: Option<ConnectionsSetting>,
    /// Replication without connection tracking.
    pub replication: Option<ReplicationSetting>,
    /// Instances of NAT.
    pub nats: Vec<NatSetting>,
    /// Load balancers.
    pub load_balancers: Vec<LoadBalancerSetting>,
    /// File for the log of NAT.
    pub nat_log: Option<PathBuf>,
    /// IPFIX collector of the same events.
    pub nat_log_collector: Option<std::net::SocketAddr>,
    /// Kinds of events in the log.
    pub nat_log_events: NatLogEvents,
}

impl Settings {
    /// Builds the plan. `online` is the list of online CPUs.
    ///
    /// # Errors
    /// [`SwitchError::Config`] for invalid settings, [`SwitchError::MissingPrerequisite`] if the machine has too few CPUs.
    pub fn plan(self, online: &CpuList) -> Result<Plan, SwitchError> {
        self.plan_after(online, None)
    }

    /// Builds the plan of changed settings. `former` are the settings before the change and their plan, whose filter rules are used again
    /// if the change does not concern them: there may be 100,000.
    ///
    /// # Errors
    /// As [`Self::plan`].
    pub(crate) fn plan_after(
        self,
        online: &CpuList,
        former: Option<(&Self, &Plan)>,
    ) -> Result<Plan, SwitchError> {
        let pinning = self.pinning.unwrap_or_default();
        let idle = self.idle.unwrap_or_default();
        let cpus = RoleCpus::choose(&self, online, pinning)?;
        let ports = plan_ports(self.ports.as_deref().unwrap_or_default(), &cpus.forwarding)?;
        check_idle(idle, self.ports.as_deref().unwrap_or_default(), &ports)?;
        let mut members = Members::new(&ports);
        let (mut groups, names) = self.plan_groups(&mut members)?;
        self.plan_statics(&mut groups, &ports, former)?;
        let layer3 = plan_layer3(&self, &ports, &names, &mut members)?;
        let uri_of = |name: &str| {
            let port = ports.iter().find(|port| port.name == name);
            port.map(|port| &port.uri)
        };
        let asked = self.steer.as_deref().unwrap_or_default();
        let steer = steer::plan(asked, uri_of)?;
        self.reserve_ports(&mut members)?;
        drop(members);
        check_bridges(&groups, &ports, &layer3, &names)?;
        let rules = self.plan_rules(&ports, &names.into_keys().collect(), former)?;
        let threads = cpus.forwarding.iter().count();
        layer3.check_tracking(self.connections.is_some())?;
        nat::check_collector(self.nat_log.is_some(), self.nat_log_collector)?;
        let has_log = (self.nat_log.is_some(), self.connections.is_some());
        nat::check_log_events(has_log, self.nat_log_events.as_ref())?;
        let nats = nat::check(self.nats.as_deref().unwrap_or_default(), &layer3, threads)?;
        let tracking = self.connections.as_ref();
        connections::check_replication(self.replication.as_ref(), tracking.is_some())?;
        nat::check_tracking(&nats, &layer3, tracking.is_some())?;
        let load_balancers = self.load_balancers.as_deref().unwrap_or_default();
        let load_balancers = balance::check(load_balancers, self.connections.is_some())?;
        Ok(Plan {
            ports,
            groups,
            forwarding_cpus: cpus.forwarding,
            service_cpus: cpus.service,
            control_cpus: cpus.control,
            rx_ring_size: self.rx_ring_size.unwrap_or(RING_SIZE),
            tx_ring_size: self.tx_ring_size.unwrap_or(RING_SIZE),
            frame_size_max: self.frame_size_max.unwrap_or(FRAME_SIZE_MAX),
            idle,
            pinning,
            huge_pages: self.huge_pages.unwrap_or_default(),
            memory_mib: self.memory_mib.unwrap_or(MEMORY_MIB),
            user: self.user.clone(),
            seccomp: self.seccomp.unwrap_or_default(),
            later_ports: self.later_ports.unwrap_or_default(),
            metrics: self.metrics,
            control_socket: self
                .control_socket
                .unwrap_or_else(|| PathBuf::from(CONTROL_SOCKET_DEFAULT)),
            layer3,
            steer,
            rules,
            rebalance: self.rebalance,
            connections: self.connections,
            replication: self.replication,
            nats,
            load_balancers,
            nat_log: self.nat_log,
            nat_log_collector: self.nat_log_collector,
            nat_log_events: self.nat_log_events.unwrap_or_default(),
        })
    }

    /// Plans cross-connects and bridges. Returns them, and the places of the bridges in the configuration.
    fn plan_groups(
        &self,
        members: &mut Members<'_>,
    ) -> Result<(Vec<Group>, BridgePlaces<'_>), SwitchError> {
        let mut groups = Vec::new();
        for pair in self.cross_connects.iter().flatten() {
            groups.push(plan_cross_connect(pair, members)?);
        }
        let defaults = (
            self.max_entries.unwrap_or(MAX_ENTRIES),
            self.ageing_s.unwrap_or(AGEING_S),
            self.kernel_forwarding,
        );
        let mut names = BridgePlaces::new();
        for bridge in self.bridges.iter().flatten() {
            if let Some(other) = names.insert(&bridge.name, &bridge.location) {
                return Err(bridge.location.wrong(format!(
                    "duplicate bridge '{}' (also defined at {other}; use unique names)",
                    bridge.name
                )));
            }
            groups.push(plan_bridge(bridge, defaults, members)?);
        }
        Ok((groups, names))
    }

    /// Reserves the ports of steering to the kernel and of inspectors, which are in no group.
    fn reserve_ports(&self, members: &mut Members<'_>) -> Result<(), SwitchError> {
        let steer = self.steer.as_deref().unwrap_or_default();
        for (kernel_port, port, location) in steer::kernel_ports(steer) {
            members.take(
                kernel_port,
                &format!("the steering of port '{port}'"),
                location,
            )?;
        }
        let inspectors: Vec<_> = rules::inspectors(self).collect();
        for (port, rule, location) in &inspectors {
            members.take(port, &format!("the inspection of rule '{rule}'"), location)?;
        }
        rules::check_inspectors(self, &inspectors)
    }

    /// Assigns static entries to their bridges. Those of the former plan stay if neither the entries nor the bridges have changed.
    fn plan_statics(
        &self,
        groups: &mut [Group],
        ports: &[PortPlan],
        former: Option<(&Self, &Plan)>,
    ) -> Result<(), SwitchError> {
        let lists: Vec<SharedList<Arc<StaticSetting>>> = {
            let bridges = static_bridges(groups, ports);
            let same = former.filter(|(settings, plan)| {
                are_shared(self.statics.as_ref(), settings.statics.as_ref())
                    && static_bridges(&plan.groups, &plan.ports) == bridges
            });
            let entries = self.statics.as_deref().map(Vec::as_slice);
            match same {
                Some((_, plan)) => bridges_of(&plan.groups)
                    .map(|one| one.statics.clone())
                    .collect(),
                None => plan_statics(entries.unwrap_or_default(), &bridges)?,
            }
        };
        let bridges = groups.iter_mut().filter_map(|group| match group {
            Group::Bridge(bridge) => Some(bridge),
            Group::CrossConnect(_) => None,
        });
        for (bridge, list) in bridges.zip(lists) {
            bridge.statics = list;
        }
        Ok(())
    }

    /// Plans the filter rules, but for those of the former settings that name no port or bridge that was removed since.
    fn plan_rules(
        &self,
        ports: &[PortPlan],
        bridges: &BTreeSet<&str>,
        former: Option<(&Self, &Plan)>,
    ) -> Result<Arc<rules::Rules>, SwitchError> {
        let ports: BTreeSet<&str> = ports.iter().map(|port| port.name.as_str()).collect();
        let known = former.map(|(settings, plan)| (settings, &*plan.rules));
        let rules = match former.filter(|(_, plan)| !plan.has_rules_beyond(&ports, bridges)) {
            Some((settings, plan)) if self.has_rules_of(settings) => Arc::clone(&plan.rules),
            kept => Arc::new(rules::plan(self, &ports, bridges, kept.and(known))?),
        };
        connections::check(self.connections.as_ref(), self.new_rules(known, &rules))?;
        Ok(rules)
    }
}

impl Plan {
    /// Returns true if a filter rule names a port or a bridge of this plan that is not among these.
    fn has_rules_beyond(&self, ports: &BTreeSet<&str>, bridges: &BTreeSet<&str>) -> bool {
        let mut removed_ports: Vec<&str> = self.ports.iter().map(|port| &*port.name).collect();
        removed_ports.retain(|name| !ports.contains(name));
        let names = bridges_of(&self.groups).map(|bridge| bridge.name.as_str());
        let removed: Vec<&str> = names.filter(|name| !bridges.contains(name)).collect();
        self.rules.name_one_of(&removed_ports, &removed)
    }

    /// Describes the ports and the CPUs in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        format!(
            "forwarding between {} ports on CPUs {}",
            self.ports.len(),
            self.forwarding_cpus
        )
    }

    /// Returns the same plan without ports and threads.
    #[must_use]
    pub(crate) fn without_work(&self) -> Self {
        Self {
            ports: Vec::new(),
            groups: Vec::new(),
            layer3: Layer3Plan::default(),
            steer: Vec::new(),
            rules: Arc::default(),
            nats: Vec::new(),
            load_balancers: Vec::new(),
            forwarding_cpus: CpuList::new(),
            ..self.clone()
        }
    }

    /// Returns the steering rules of a port, in order.
    pub fn steering_of(&self, port: &str) -> impl Iterator<Item = &SteerSetting> {
        self.steer.iter().filter(move |rule| rule.port == port)
    }

    /// Returns the steering rules of a port in the form of its device; of a card with a DPDK driver, those that select a queue or a
    /// function.
    pub(crate) fn device_rules(&self, port: &PortPlan) -> Vec<SteerRule> {
        let is_of_device =
            |rule: &&SteerSetting| port.steers() || port.is_card() && rule.card().is_some();
        let rules = self.steering_of(&port.name).filter(is_of_device);
        rules.map(SteerSetting::rule).collect()
    }

    fn is_kernel_port(&self, index: usize) -> bool {
        let name = self.ports.get(index).map(|port| &port.name);
        let mut rules = self.steer.iter();
        rules.any(|rule| rule.kernel_port.is_some() && rule.kernel_port.as_ref() == name)
    }

    /// Returns the names of ports that are in no group.
    pub fn idle_ports(&self) -> impl Iterator<Item = &str> {
        let is_idle = |index: usize| {
            let on = layer3::Attachment::Port(index);
            !self
                .groups
                .iter()
                .any(|group| group.ports().contains(&index))
                && !self.layer3.interfaces.iter().any(|one| one.on == on)
                && !self.is_kernel_port(index)
        };
        self.ports
            .iter()
            .enumerate()
            .filter(move |(index, _)| is_idle(*index))
            .map(|(_, port)| port.name.as_str())
    }
}

/// Checks that all ports support receive interrupts if the idle strategy requires them.
fn check_idle(idle: Idle, settings: &[PortSetting], ports: &[PortPlan]) -> Result<(), SwitchError> {
    let mut both = settings.iter().zip(ports);
    let without = both.find(|(_, port)| !port.uri.may_have_interrupts());
    match without.filter(|_| idle == Idle::Interrupt) {
        Some((setting, port)) => Err(setting.location.wrong(format!(
            "port '{}': {} has no receive interrupts, which idle = \"interrupt\" requires (use idle = \"sleep\")",
            port.name, port.uri
        ))),
        None => Ok(()),
    }
}

fn plan_ports(
    settings: &[PortSetting],
    forwarding_cpus: &CpuList,
) -> Result<Vec<PortPlan>, SwitchError> {
    let mut ports: Vec<PortPlan> = Vec::new();
    for setting in settings {
        let PortSetting {
            name,
            uri,
            location,
            ..
        } = setting;
        if name.is_empty() {
            return Err(location.wrong(format!("port {uri} has no name (use NAME=URI)")));
        }
        check_port_name(name).map_err(|what| location.wrong(what))?;
        let uri: PortUri = uri
            .parse()
            .map_err(|error| location.wrong(format!("port '{name}': {error}")))?;
        for other in &ports {
            if other.name == *name {
                return Err(location.wrong(format!("duplicate port '{name}' (use unique names)")));
            }
            if other.uri == uri && uri != PortUri::Null {
                return Err(location.wrong(format!(
                    "ports '{}' and '{name}' use the same URI {uri} (use unique URIs)",
                    other.name
                )));
            }
        }
        if ports.len() == PORTS_MAX {
            return Err(location.wrong(format!(
                "port '{name}': too many ports (maximum: {PORTS_MAX})"
            )));
        }
        let devices = ports.iter().filter(|port| port.uri.kind().is_device());
        if uri.kind().is_device() && devices.count() >= DEVICES_MAX {
            return Err(location.wrong(format!("port '{name}': {}", too_many_devices())));
        }
        for (what, queues) in [("rx", setting.rx_queues), ("tx", setting.tx_queues)] {
            if queues.is_some_and(|queues| !(1..=QUEUES_MAX).contains(&queues)) {
                return Err(location.wrong(format!(
                    "port '{name}': {what}-queues is out of range (allowed: 1 to {QUEUES_MAX})"
                )));
            }
        }
        if let Some(queues) = setting.rx_queues
            && uri.queues() != 1
            && uri.queues() != queues
        {
            return Err(location.wrong(format!(
                "port '{name}': rx-queues is {queues}, but the URI is {uri} (set the number of queues in one place)"
            )));
        }
        setting
            .bridging
            .check_guard()
            .map_err(|what| location.wrong(format!("port '{name}': {what}")))?;
        let rx_cpus = setting.rx_cpus.clone().unwrap_or_default();
        if setting.rx_cpus.is_some() && !rx_cpus.to_list().difference(forwarding_cpus).is_empty() {
            return Err(location.wrong(format!(
                "port '{name}': rx-cpus {rx_cpus} must be forwarding CPUs ({forwarding_cpus})"
            )));
        }
        ports.push(PortPlan {
            name: name.clone(),
            rx_queues: setting.rx_queues.unwrap_or(uri.queues()),
            uri,
            tx_queues: setting.tx_queues,
            rx_cpus,
            bridging: setting.bridging.clone(),
        });
    }
    Ok(ports)
}

/// Places of bridges in the configuration, by name.
type BridgePlaces<'plan> = BTreeMap<&'plan str, &'plan Location>;

/// Number of each port, and the group that it is already assigned to.
struct Members<'plan> {
    places: BTreeMap<&'plan str, (usize, Option<String>)>,
}

impl<'plan> Members<'plan> {
    fn new(ports: &'plan [PortPlan]) -> Self {
        Self {
            places: ports
                .iter()
                .enumerate()
                .map(|(index, port)| (port.name.as_str(), (index, None)))
                .collect(),
        }
    }

    fn take(&mut self, name: &str, group: &str, location: &Location) -> Result<usize, SwitchError> {
        let Some((index, taken_by)) = self.places.get_mut(name) else {
            let known: Vec<&str> = self.places.keys().copied().collect();
            let known = if known.is_empty() {
                "no ports are defined".to_owned()
            } else {
                format!("defined ports: {}", known.join(", "))
            };
            return Err(location.wrong(format!(
                "no such port: '{name}' ({known}; define it with --port {name}=URI or [[port]])"
            )));
        };
        if let Some(other) = taken_by {
            return Err(location.wrong(format!(
                "port '{name}' already belongs to {other} (a port can be in one place only)"
            )));
        }
        *taken_by = Some(group.to_owned());
        Ok(*index)
    }
}

/// Validates bridges and the bridging settings of their ports.
fn check_bridges(
    groups: &[Group],
    ports: &[PortPlan],
    layer3: &Layer3Plan,
    places: &BTreeMap<&str, &Location>,
) -> Result<(), SwitchError> {
    for group in groups {
        let Group::Bridge(plan) = group else { continue };
        let checked = plan
            .settings(
                ports,
                |index| u16::try_from(index).ok(),
                interfaces_on(&plan.name, layer3),
            )
            .and_then(|settings| match settings.ports.is_empty() {
                // An empty bridge waits for ports to be added.
                true => Ok(()),
                false => settings.validate().map_err(|error| error.to_string()),
            });
        if let Err(what) = checked {
            let what = with_names(what, plan, ports);
            let what = format!("bridge '{}': {what}", plan.name);
            return Err(match places.get(plan.name.as_str()) {
                Some(location) => location.wrong(what),
                None => SwitchError::Config {
                    location: "bridge".to_owned(),
                    what,
                },
            });
        }
    }
    Ok(())
}

/// Returns the interfaces of a bridge with placeholder numbers and addresses, to validate them together with its ports.
fn interfaces_on(bridge: &str, layer3: &Layer3Plan) -> Vec<bridge::Interface> {
    let all = (0u16..).zip(&layer3.interfaces);
    let on_it = |one: &layer3::InterfacePlan| match &one.on {
        layer3::Attachment::Bridge(name) => name == bridge,
        layer3::Attachment::Port(_) => false,
    };
    all.filter(|(_, one)| on_it(one))
        .map(|(number, one)| bridge::Interface {
            number,
            vlan: one.vlan,
            address: MacAddress::from_u64(0x0200_0000_0000 | u64::from(number)),
        })
        .collect()
}

/// Replaces port indexes by port names in a message.
fn with_names(mut what: String, plan: &BridgePlan, ports: &[PortPlan]) -> String {
    // The highest index first: 'port 1' is a prefix of 'port 12'.
    let mut members = plan.ports.clone();
    members.sort_unstable();
    for index in members.into_iter().rev() {
        if let Some(port) = ports.get(index) {
            what = what.replace(&format!("port {index}"), &format!("port '{}'", port.name));
        }
    }
    what
}

/// Returns the bridges.
fn bridges_of(groups: &[Group]) -> impl Iterator<Item = &BridgePlan> {
    groups.iter().filter_map(|group| match group {
        Group::Bridge(bridge) => Some(bridge),
        Group::CrossConnect(_) => None,
    })
}

/// Returns the bridges as their static entries require them.
fn static_bridges<'plan>(
    groups: &'plan [Group],
    ports: &'plan [PortPlan],
) -> Vec<StaticBridge<'plan>> {
    let name = |index: &usize| Some(ports.get(*index)?.name.as_str());
    let bridges = bridges_of(groups).map(|bridge| StaticBridge {
        name: &bridge.name,
        ports: bridge.ports.iter().filter_map(name).collect(),
        max_entries: bridge.max_entries,
    });
    bridges.collect()
}

/// Plans layer 3. A port with an interface of its own is in no bridge and in no cross-connect.
fn plan_layer3(
    settings: &Settings,
    ports: &[PortPlan],
    bridges: &BTreeMap<&str, &Location>,
    members: &mut Members<'_>,
) -> Result<Layer3Plan, SwitchError> {
    let interfaces = settings.interfaces.as_deref().unwrap_or_default();
    let names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    let places = layer3::AttachmentPoints {
        ports: &names,
        bridges: &bridges.keys().copied().collect(),
    };
    let plan = layer3::plan(
        settings.vrfs.as_deref().unwrap_or_default(),
        interfaces,
        settings.kernel_filters.as_deref().unwrap_or_default(),
        &places,
    )?;
    let mut routed = BTreeSet::new();
    for layer3::Located { value, location } in interfaces {
        if let Some(port) = value.port.as_deref()
            && routed.insert(port)
        {
            members.take(port, "the router", location)?;
        }
    }
    Ok(plan)
}

fn plan_cross_connect(
    setting: &CrossConnectSetting,
    members: &mut Members<'_>,
) -> Result<Group, SwitchError> {
    let [a, b] = setting.ports.as_slice() else {
        return Err(setting.location.wrong(format!(
            "a cross-connect requires two ports ({} given)",
            setting.ports.len()
        )));
    };
    let group = format!("the cross-connect {a},{b}");
    let mut take = |name: &str| members.take(name, &group, &setting.location);
    Ok(Group::CrossConnect([take(a)?, take(b)?]))
}

fn plan_bridge(
    setting: &BridgeSetting,
    (max_entries, ageing_s, kernel_forwarding): (u32, u32, Option<bool>),
    members: &mut Members<'_>,
) -> Result<Group, SwitchError> {
    let BridgeSetting { name, location, .. } = setting;
    if name.is_empty() {
        return Err(location.wrong("the bridge has no name (use NAME=A,B,…)"));
    }
    let max_entries = setting.max_entries.unwrap_or(max_entries);
    if !(1..=MAX_ENTRIES_LIMIT).contains(&max_entries) {
        return Err(location.wrong(format!(
            "bridge '{name}': max-entries is {max_entries} (allowed: 1 to {MAX_ENTRIES_LIMIT})"
        )));
    }
    let ageing_s = setting.ageing_s.unwrap_or(ageing_s);
    if !AGEING_RANGE_S.contains(&ageing_s) {
        return Err(location.wrong(format!(
            "bridge '{name}': ageing-s is {ageing_s} (allowed: 1 to 1000000 s)"
        )));
    }
    let group = format!("the bridge '{name}'");
    let ports = setting
        .ports
        .iter()
        .map(|port| members.take(port, &group, location))
        .collect::<Result<_, _>>()?;
    Ok(Group::Bridge(BridgePlan {
        name: name.clone(),
        ports,
        max_entries,
        ageing_s,
        kernel_forwarding: setting.kernel_forwarding.or(kernel_forwarding),
        flooding: setting.flooding.clone().unwrap_or_default(),
        statics: SharedList::default(),
    }))
}
