// SPDX-License-Identifier: Apache-2.0
//! From settings to a plan: defaults filled in, names resolved, contradictions refused.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use quietwire_base::Idle;
use quietwire_dpdk::PortUri;
use quietwire_host::{CpuId, CpuList, CpuSequence};
use quietwire_packet::{MacAddress, VlanId};

use super::bridging::{BridgingSetting, FloodingSetting, StaticSetting};
use super::layer3::{self, Layer3Plan};
use super::place::Place;
use super::rebalance::Rules;
use super::rules;
use super::settings::{
    BridgeSetting, CONTROL_SOCKET_DEFAULT, CrossConnectSetting, HugePages, Pinning, PortSetting,
    Settings,
};
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
/// Numbers of ports have 16 bits in the address table; DPDK's own limit (RTE_MAX_ETHPORTS) is lower by far.
const PORTS_MAX: usize = 1024;

/// A port to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortPlan {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub uri: PortUri,
    /// Receive queues.
    pub rx_queues: u16,
    /// Transmit queues, where that was said.
    pub tx_queues: Option<u16>,
    /// CPUs that its receive queues are mapped to, in turn; empty where the switch chooses.
    pub rx_cpus: CpuSequence,
    /// How it behaves in its bridge.
    pub bridging: BridgingSetting,
}

impl PortPlan {
    /// True when both are one device opened in the same way.
    #[must_use]
    pub fn is_same_device(&self, other: &Self) -> bool {
        (&self.name, &self.uri, self.rx_queues, self.tx_queues)
            == (&other.name, &other.uri, other.rx_queues, other.tx_queues)
    }

    /// The CPU that a receive queue is mapped to.
    #[must_use]
    pub fn cpu_of(&self, queue: usize) -> Option<u32> {
        let count = self.rx_cpus.iter().len();
        self.rx_cpus
            .iter()
            .nth(queue.checked_rem(count)?)
            .map(|cpu| cpu.0)
    }

    /// Transmit queues to open for so many forwarding threads. A peer that shares its memory has to serve as many.
    #[must_use]
    pub fn tx_queues(&self, threads: usize) -> u16 {
        self.tx_queues.unwrap_or_else(|| match self.uri {
            PortUri::Null | PortUri::Pci { .. } => {
                u16::try_from(threads).unwrap_or(u16::MAX).max(1)
            }
            PortUri::Pcap { .. } => 1,
            // These have their queues in pairs, or the peer was told to serve as many.
            _ => u16::try_from(threads)
                .unwrap_or(u16::MAX)
                .clamp(1, self.uri.queues()),
        })
    }
}

/// Most queues of a port either way (ETH_MEMIF_MAX_NUM_Q_PAIRS of DPDK is 255).
const QUEUES_MAX: u16 = 64;

/// A bridge to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgePlan {
    /// Its name.
    pub name: String,
    /// Its ports: places in [`Plan::ports`].
    pub ports: Vec<usize>,
    /// Addresses that it can learn.
    pub max_entries: u32,
    /// Seconds after which it forgets one.
    pub ageing_s: u32,
    /// What it floods.
    pub flooding: FloodingSetting,
    /// Its static entries.
    pub statics: Vec<StaticSetting>,
}

impl BridgePlan {
    /// As the bridge takes it, with the router's interfaces to it; `number_of` gives the number of a port by its place in [`Plan::ports`].
    ///
    /// # Errors
    /// What makes no sense, in words; ports are named by their numbers there.
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

/// A port of which nothing was said about VLANs, in a bridge that has some: all of them with tags, and frames without a
/// tag are of VLAN 1 (IEEE 802.1Q, table 9-2).
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

/// Ports that frames go between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Group {
    /// Two ports joined: places in [`Plan::ports`].
    CrossConnect([usize; 2]),
    /// A learning bridge.
    Bridge(BridgePlan),
}

impl Group {
    /// Its ports: places in [`Plan::ports`].
    #[must_use]
    pub fn ports(&self) -> &[usize] {
        match self {
            Self::CrossConnect(ports) => ports,
            Self::Bridge(bridge) => &bridge.ports,
        }
    }
}

/// What a switch is going to do. A port is in one group, or in none and its frames are dropped.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Ports, in the order in which they were given.
    pub ports: Vec<PortPlan>,
    /// Where their frames go.
    pub groups: Vec<Group>,
    /// CPUs that poll ports, one thread each.
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
    /// What to do when there is nothing to do.
    pub idle: Idle,
    /// Whether threads are pinned.
    pub pinning: Pinning,
    /// Whether to use huge pages.
    pub huge_pages: HugePages,
    /// Memory for packets, MiB.
    pub memory_mib: u32,
    /// The control socket.
    pub control_socket: PathBuf,
    /// Where metrics are asked for.
    pub metrics: Option<std::net::SocketAddr>,
    /// Layer 3.
    pub layer3: Layer3Plan,
    /// Which frames ports let in.
    pub rules: rules::Rules,
    /// When to move receive queues between forwarding threads.
    pub rebalance: Option<Rules>,
}

impl Settings {
    /// Makes the plan, given the CPUs that are online.
    ///
    /// # Errors
    /// [`SwitchError::Config`] for what makes no sense, [`SwitchError::Lacks`] when the machine has too few CPUs.
    pub fn plan(self, online: &CpuList) -> Result<Plan, SwitchError> {
        let pinning = self.pinning.unwrap_or_default();
        let idle = self.idle.unwrap_or_default();
        let cpus = Cpus::choose(&self, online, pinning)?;
        let ports = plan_ports(self.ports.as_deref().unwrap_or_default(), &cpus.forwarding)?;
        check_idle(idle, self.ports.as_deref().unwrap_or_default(), &ports)?;
        let mut members = Members::new(&ports);
        let mut groups = Vec::new();
        for pair in self.cross_connects.iter().flatten() {
            groups.push(plan_cross_connect(pair, &mut members)?);
        }
        let defaults = (
            self.max_entries.unwrap_or(MAX_ENTRIES),
            self.ageing_s.unwrap_or(AGEING_S),
        );
        let mut names: BTreeMap<&str, &Place> = BTreeMap::new();
        for bridge in self.bridges.iter().flatten() {
            if let Some(other) = names.insert(&bridge.name, &bridge.place) {
                return Err(bridge.place.wrong(format!(
                    "there is a bridge '{}' already ({other}); give each its own name",
                    bridge.name
                )));
            }
            groups.push(plan_bridge(bridge, defaults, &mut members)?);
        }
        plan_statics(
            self.statics.as_deref().unwrap_or_default(),
            &mut groups,
            &ports,
        )?;
        let layer3 = plan_layer3(&self, &ports, &names, &mut members)?;
        drop(members);
        check_bridges(&groups, &ports, &layer3, &names)?;
        let rules = rules::plan(
            &self,
            &ports.iter().map(|port| port.name.as_str()).collect(),
            &names.keys().copied().collect(),
        )?;
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
            metrics: self.metrics,
            control_socket: self
                .control_socket
                .unwrap_or_else(|| PathBuf::from(CONTROL_SOCKET_DEFAULT)),
            layer3,
            rules,
            rebalance: self.rebalance,
        })
    }
}

impl Plan {
    /// The same switch without ports and threads.
    #[must_use]
    pub(crate) fn without_work(&self) -> Self {
        Self {
            ports: Vec::new(),
            groups: Vec::new(),
            layer3: Layer3Plan::default(),
            rules: rules::Rules::default(),
            forwarding_cpus: CpuList::new(),
            ..self.clone()
        }
    }

    /// Refuses to change what is settled when the switch starts.
    pub(crate) fn check_changeable(&self, next: &Self) -> Result<(), SwitchError> {
        let same = [
            ("service-cpus", self.service_cpus == next.service_cpus),
            ("control-cpus", self.control_cpus == next.control_cpus),
            ("rx-ring-size", self.rx_ring_size == next.rx_ring_size),
            ("tx-ring-size", self.tx_ring_size == next.tx_ring_size),
            ("frame-size-max", self.frame_size_max == next.frame_size_max),
            ("idle", self.idle == next.idle),
            ("pinning", self.pinning == next.pinning),
            ("huge-pages", self.huge_pages == next.huge_pages),
            ("memory-mib", self.memory_mib == next.memory_mib),
            ("metrics", self.metrics == next.metrics),
            ("control-socket", self.control_socket == next.control_socket),
        ];
        match same.iter().find(|(_, same)| !same) {
            None => Ok(()),
            Some((key, _)) => Err(SwitchError::Config {
                place: (*key).to_owned(),
                what: "this is settled when the switch starts; start it anew to change it"
                    .to_owned(),
            }),
        }
    }

    /// Names of ports whose frames go nowhere.
    pub fn idle_ports(&self) -> impl Iterator<Item = &str> {
        let is_idle = |index: usize| {
            let on = layer3::Attachment::Port(index);
            !self
                .groups
                .iter()
                .any(|group| group.ports().contains(&index))
                && !self.layer3.interfaces.iter().any(|one| one.on == on)
        };
        self.ports
            .iter()
            .enumerate()
            .filter(move |(index, _)| is_idle(*index))
            .map(|(_, port)| port.name.as_str())
    }
}

struct Cpus {
    forwarding: CpuList,
    service: CpuList,
    control: CpuList,
}

impl Cpus {
    fn choose(
        settings: &Settings,
        online: &CpuList,
        pinning: Pinning,
    ) -> Result<Self, SwitchError> {
        // CPUs that are spoken for are no default for another role.
        let spoken_for = [&settings.service_cpus, &settings.control_cpus]
            .into_iter()
            .flatten()
            .fold(CpuList::new(), |all, cpus| all.union(cpus));
        let highest = || {
            let free = online.difference(&spoken_for);
            let highest: Option<CpuId> = free.iter().next_back().or(online.iter().next_back());
            highest.into_iter().collect::<CpuList>()
        };
        let forwarding = settings.forwarding_cpus.clone().unwrap_or_else(highest);
        let rest = online.difference(&forwarding);
        let rest = if rest.is_empty() && pinning == Pinning::None {
            online.clone()
        } else {
            rest
        };
        let cpus = Self {
            service: settings.service_cpus.clone().unwrap_or(rest.clone()),
            control: settings.control_cpus.clone().unwrap_or(rest),
            forwarding,
        };
        cpus.check(settings, online, pinning)?;
        Ok(cpus)
    }

    fn check(
        &self,
        settings: &Settings,
        online: &CpuList,
        pinning: Pinning,
    ) -> Result<(), SwitchError> {
        let wrong = |role: &str, what: String| {
            Err(SwitchError::Config {
                place: format!("{role}-cpus"),
                what,
            })
        };
        let roles = [
            ("forwarding", &self.forwarding, &settings.forwarding_cpus),
            ("service", &self.service, &settings.service_cpus),
            ("control", &self.control, &settings.control_cpus),
        ];
        for (role, cpus, given) in roles {
            let absent = cpus.difference(online);
            if !absent.is_empty() {
                return wrong(
                    role,
                    format!("CPU {absent} is not online; this machine has {online} online"),
                );
            }
            if cpus.is_empty() && given.is_some() {
                return wrong(role, format!("no CPU is given; choose from {online}"));
            }
            if cpus.is_empty() {
                return Err(SwitchError::Lacks(format!(
                    "no CPU is left for {role} threads beside the forwarding CPUs {}, and this machine has {online} online; give fewer --forwarding-cpus, or give up pinning with --pinning none",
                    self.forwarding
                )));
            }
        }
        if pinning == Pinning::Roles {
            for (role, cpus, _) in &roles[1..] {
                let both = cpus.intersection(&self.forwarding);
                if !both.is_empty() {
                    return wrong(
                        role,
                        format!(
                            "CPU {both} is a forwarding CPU too, and a forwarding CPU does nothing else; choose from {}",
                            online.difference(&self.forwarding)
                        ),
                    );
                }
            }
        }
        Ok(())
    }
}

/// Sees whether threads can wait for frames of all ports, if they are to.
fn check_idle(idle: Idle, settings: &[PortSetting], ports: &[PortPlan]) -> Result<(), SwitchError> {
    let mut both = settings.iter().zip(ports);
    let without = both.find(|(_, port)| !port.uri.may_have_interrupts());
    match without.filter(|_| idle == Idle::Interrupt) {
        Some((setting, port)) => Err(setting.place.wrong(format!(
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
            name, uri, place, ..
        } = setting;
        if name.is_empty() {
            return Err(place.wrong(format!("the port {uri} has no name; write NAME=URI")));
        }
        let uri: PortUri = uri
            .parse()
            .map_err(|error| place.wrong(format!("port '{name}': {error}")))?;
        for other in &ports {
            if other.name == *name {
                return Err(place.wrong(format!(
                    "there are two ports '{name}'; give each its own name"
                )));
            }
            if other.uri == uri && uri != PortUri::Null {
                return Err(place.wrong(format!(
                    "the ports '{}' and '{name}' are both {uri}; give each its own place",
                    other.name
                )));
            }
        }
        if ports.len() == PORTS_MAX {
            return Err(place.wrong(format!("there are more than {PORTS_MAX} ports")));
        }
        for (what, queues) in [("rx", setting.rx_queues), ("tx", setting.tx_queues)] {
            if queues.is_some_and(|queues| !(1..=QUEUES_MAX).contains(&queues)) {
                return Err(place.wrong(format!(
                    "port '{name}': {what}-queues has to be 1 to {QUEUES_MAX}"
                )));
            }
        }
        if let Some(queues) = setting.rx_queues
            && uri.queues() != 1
            && uri.queues() != queues
        {
            return Err(place.wrong(format!(
                "port '{name}': rx-queues is {queues}, and the port is {uri}; say it in one place"
            )));
        }
        let rx_cpus = setting.rx_cpus.clone().unwrap_or_default();
        if setting.rx_cpus.is_some() && !rx_cpus.to_list().difference(forwarding_cpus).is_empty() {
            return Err(place.wrong(format!(
                "port '{name}': rx-cpus {rx_cpus} are not all among the forwarding CPUs, {forwarding_cpus}"
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

/// Which port is in which group already.
struct Members<'plan> {
    places: BTreeMap<&'plan str, usize>,
    taken_by: Vec<Option<String>>,
}

impl<'plan> Members<'plan> {
    fn new(ports: &'plan [PortPlan]) -> Self {
        Self {
            places: ports
                .iter()
                .enumerate()
                .map(|(index, port)| (port.name.as_str(), index))
                .collect(),
            taken_by: vec![None; ports.len()],
        }
    }

    fn take(&mut self, name: &str, group: &str, place: &Place) -> Result<usize, SwitchError> {
        let Some(index) = self.places.get(name).copied() else {
            let known: Vec<&str> = self.places.keys().copied().collect();
            let known = if known.is_empty() {
                "no port is defined".to_owned()
            } else {
                format!("ports are: {}", known.join(", "))
            };
            return Err(place.wrong(format!(
                "there is no port '{name}'; {known}. Define it with --port {name}=URI or [[port]]"
            )));
        };
        if let Some(other) = &self.taken_by[index] {
            return Err(place.wrong(format!(
                "port '{name}' is in {other} already, and a port can be in one place only"
            )));
        }
        self.taken_by[index] = Some(group.to_owned());
        Ok(index)
    }
}

/// Checks what bridges and their ports are told to do.
fn check_bridges(
    groups: &[Group],
    ports: &[PortPlan],
    layer3: &Layer3Plan,
    places: &BTreeMap<&str, &Place>,
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
                // It waits for ports to be added.
                true => Ok(()),
                false => settings.validate().map_err(|error| error.to_string()),
            });
        if let Err(what) = checked {
            let what = with_names(what, plan, ports);
            let what = format!("bridge '{}': {what}", plan.name);
            return Err(match places.get(plan.name.as_str()) {
                Some(place) => place.wrong(what),
                None => SwitchError::Config {
                    place: "bridge".to_owned(),
                    what,
                },
            });
        }
    }
    Ok(())
}

/// Interfaces of a bridge with any numbers and addresses: to find out whether they go together with its ports.
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

/// Names ports by their names where a message has their places in the plan.
fn with_names(mut what: String, plan: &BridgePlan, ports: &[PortPlan]) -> String {
    // The highest first: port 1 is not the beginning of port 12.
    let mut members = plan.ports.clone();
    members.sort_unstable();
    for index in members.into_iter().rev() {
        if let Some(port) = ports.get(index) {
            what = what.replace(&format!("port {index}"), &format!("port '{}'", port.name));
        }
    }
    what
}

/// Gives static entries to their bridges.
fn plan_statics(
    statics: &[layer3::Placed<StaticSetting>],
    groups: &mut [Group],
    ports: &[PortPlan],
) -> Result<(), SwitchError> {
    for layer3::Placed { value, place } in statics {
        let bridge = groups.iter_mut().find_map(|group| match group {
            Group::Bridge(plan) if plan.name == value.bridge => Some(plan),
            _ => None,
        });
        let Some(bridge) = bridge else {
            return Err(place.wrong(format!("there is no bridge '{}'", value.bridge)));
        };
        let is_member = |index: &usize| {
            ports
                .get(*index)
                .is_some_and(|port| port.name == value.port)
        };
        if !bridge.ports.iter().any(is_member) {
            return Err(place.wrong(format!(
                "port '{}' is not in bridge '{}'",
                value.port, value.bridge
            )));
        }
        if value.mac.is_multicast() {
            return Err(place.wrong(format!(
                "{} is the address of a group, and a static entry is about one station",
                value.mac
            )));
        }
        bridge.statics.push(value.clone());
    }
    Ok(())
}

/// Plans layer 3. A port with an interface of its own is in no bridge and no cross-connect.
fn plan_layer3(
    settings: &Settings,
    ports: &[PortPlan],
    bridges: &BTreeMap<&str, &Place>,
    members: &mut Members<'_>,
) -> Result<Layer3Plan, SwitchError> {
    let interfaces = settings.interfaces.as_deref().unwrap_or_default();
    let names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    let places = layer3::Places {
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
    for layer3::Placed { value, place } in interfaces {
        if let Some(port) = value.port.as_deref()
            && routed.insert(port)
        {
            members.take(port, "the router", place)?;
        }
    }
    Ok(plan)
}

fn plan_cross_connect(
    setting: &CrossConnectSetting,
    members: &mut Members<'_>,
) -> Result<Group, SwitchError> {
    let [a, b] = setting.ports.as_slice() else {
        return Err(setting.place.wrong(format!(
            "a cross-connect joins two ports, and {} were given",
            setting.ports.len()
        )));
    };
    let group = format!("the cross-connect {a},{b}");
    let mut take = |name: &str| members.take(name, &group, &setting.place);
    Ok(Group::CrossConnect([take(a)?, take(b)?]))
}

fn plan_bridge(
    setting: &BridgeSetting,
    (max_entries, ageing_s): (u32, u32),
    members: &mut Members<'_>,
) -> Result<Group, SwitchError> {
    let BridgeSetting { name, place, .. } = setting;
    if name.is_empty() {
        return Err(place.wrong("the bridge has no name; write NAME=A,B,…"));
    }
    let max_entries = setting.max_entries.unwrap_or(max_entries);
    if !(1..=MAX_ENTRIES_LIMIT).contains(&max_entries) {
        return Err(place.wrong(format!(
            "bridge '{name}': max-entries is {max_entries}, and has to be 1 to {MAX_ENTRIES_LIMIT}"
        )));
    }
    let ageing_s = setting.ageing_s.unwrap_or(ageing_s);
    if !AGEING_RANGE_S.contains(&ageing_s) {
        return Err(place.wrong(format!(
            "bridge '{name}': ageing-s is {ageing_s}, and has to be 1 to 1000000 seconds"
        )));
    }
    let group = format!("the bridge '{name}'");
    let ports = setting
        .ports
        .iter()
        .map(|port| members.take(port, &group, place))
        .collect::<Result<_, _>>()?;
    Ok(Group::Bridge(BridgePlan {
        name: name.clone(),
        ports,
        max_entries,
        ageing_s,
        flooding: setting.flooding.clone().unwrap_or_default(),
        statics: Vec::new(),
    }))
}
