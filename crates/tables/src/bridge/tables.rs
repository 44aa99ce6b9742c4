// SPDX-License-Identifier: Apache-2.0
//! Bridge tables that forwarding threads read. The control thread builds them for each generation of the configuration and never changes
//! them.

use std::collections::BTreeMap;

use quietwire_packet::MacAddress;

use super::decision::Flood;
use super::settings::{
    BridgePort, Flooding, OverLimit, PortVlans, Settings, SettingsError, StormLimits,
};
use super::storm::Kind;
use super::vlans::{Arrival, Egress, Membership, TagAction, VlanSet};
use crate::drops::PortDrop;

/// Number of VLAN rows. Row 0 is for frames of a bridge without VLANs.
const VLANS: usize = 4096;
/// No EtherType: the port recognises no tags.
const NO_TAG: u16 = 0;
/// Port number of frames from the bridge's own interfaces; no port has it.
const NO_PORT: u16 = u16::MAX;

/// Egress tagging of the bridge's own interfaces.
pub(super) const INSIDE: Egress = Egress::Untagged;

/// Source of a frame that enters a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ingress {
    /// By the port with this number.
    Port(u16),
    /// The bridge's own interface with this number, that is the router. The frame has no tag of the interface's VLAN.
    Interface(u16),
}

/// Ingress settings of a port.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) port: u16,
    /// VLAN of frames without a VLAN tag; 0 if such frames are not admitted.
    pvid: u16,
    /// EtherType of the tags that the port recognises.
    tag: u16,
    admits_tagged: bool,
    members: VlanSet,
    aware: bool,
    pub(super) learns: bool,
    pub(super) learning_limit: u32,
    pub(super) over_limit: OverLimit,
    pub(super) group: u32,
    pub(super) is_interface: bool,
}

/// Egress settings of a port.
#[derive(Clone, Debug)]
struct Output {
    members: VlanSet,
    untagged: VlanSet,
    tagged: Egress,
    aware: bool,
    group: u32,
}

#[derive(Clone, Debug)]
struct Port {
    input: Input,
    output: Output,
    storm: StormLimits,
}

/// A VLAN, or the whole of a bridge without VLANs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vlan {
    /// Numbers of its flood sets, by [`Kind`].
    floods: [u32; 3],
    /// Address of the bridge's interface; no address if there is none.
    pub(super) address: u64,
    pub(super) interface: u16,
}

impl Vlan {
    const NONE: Self = Self {
        floods: [0; 3],
        address: u64::MAX,
        interface: 0,
    };

    #[inline(always)]
    pub(super) const fn flood(&self, kind: Kind) -> u32 {
        match kind {
            Kind::UnknownUnicast => self.floods[0],
            Kind::Broadcast => self.floods[1],
            Kind::Multicast => self.floods[2],
        }
    }
}

/// An output of a flood set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FloodPort {
    port: u16,
    group: u32,
    egress: Egress,
}

/// Outputs of floods of one kind in one VLAN, including the input.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct FloodSet {
    ports: Vec<FloodPort>,
    interface: Option<u16>,
}

/// Destination of one copy of a flooded frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copy {
    /// A port, after this tag action.
    Port(u16, TagAction),
    /// The bridge's own interface with this number, after this tag action.
    Interface(u16, TagAction),
}

/// Bridge settings in the form of forwarding threads.
#[derive(Debug)]
pub struct BridgeTables {
    /// Ports by number.
    ports: Vec<Option<Box<Port>>>,
    interfaces: BTreeMap<u16, Input>,
    vlans: Box<[Vlan]>,
    floods: Vec<FloodSet>,
    plain: bool,
}

impl BridgeTables {
    /// Builds the tables.
    ///
    /// # Errors
    /// [`SettingsError`] for invalid settings.
    pub fn new(settings: &Settings) -> Result<Self, SettingsError> {
        settings.validate()?;
        let last = settings.ports.iter().map(|port| port.number).max();
        let count = usize::from(last.unwrap_or(0)).saturating_add(1);
        let mut ports = vec![None; count];
        for port in &settings.ports {
            if let Some(place) = ports.get_mut(usize::from(port.number)) {
                *place = Some(Box::new(Port::new(port)));
            }
        }
        let (vlans, floods) = floods(settings);
        let aware = settings.is_vlan_aware();
        let interfaces = settings.interfaces.iter().map(|interface| {
            let vlan = interface.vlan.map_or(0, |vlan| vlan.get());
            (interface.number, Input::of_interface(vlan, aware))
        });
        Ok(Self {
            ports,
            interfaces: interfaces.collect(),
            vlans,
            floods,
            plain: is_plain(settings),
        })
    }

    /// Returns the tables of a bridge without ports, which receives no frames.
    #[must_use]
    pub fn without_ports() -> Self {
        Self {
            ports: Vec::new(),
            interfaces: BTreeMap::new(),
            vlans: Box::default(),
            floods: Vec::new(),
            plain: true,
        }
    }

    /// Returns true if the bridge only learns, forwards and floods to all other ports. [`super::decide`] is sufficient in that case.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// Returns the storm limits of a port.
    #[must_use]
    pub fn storm_limits(&self, port: u16) -> StormLimits {
        self.port(port).map(|port| port.storm).unwrap_or_default()
    }

    /// Returns the numbers of the bridge's ports, lowest first.
    pub fn port_numbers(&self) -> impl Iterator<Item = u16> + '_ {
        self.ports.iter().flatten().map(|port| port.input.port)
    }

    /// Returns the destinations of a flooded frame's copies: all members of its VLAN that such frames are flooded to, except the input and
    /// other ports of the same split-horizon group.
    #[inline]
    pub fn copies(&self, flood: Flood, from: Ingress) -> impl Iterator<Item = Copy> + '_ {
        let input = self.input(from);
        let port = input.map_or(NO_PORT, |input| input.port);
        let group = input.map_or(0, |input| input.group);
        let set = self.floods.get(flood.set as usize);
        let interface = set
            .and_then(|set| set.interface)
            .filter(|_| port != NO_PORT)
            .map(|number| Copy::Interface(number, flood.membership.action(INSIDE)));
        set.into_iter()
            .flat_map(|set| &set.ports)
            .filter(move |output| output.port != port && (group == 0 || output.group != group))
            .map(move |output| Copy::Port(output.port, flood.membership.action(output.egress)))
            .chain(interface)
    }

    #[inline(always)]
    pub(super) fn input(&self, from: Ingress) -> Option<&Input> {
        match from {
            Ingress::Port(number) => self.port(number).map(|port| &port.input),
            Ingress::Interface(number) => self.interfaces.get(&number),
        }
    }

    #[inline(always)]
    fn port(&self, number: u16) -> Option<&Port> {
        self.ports.get(usize::from(number))?.as_deref()
    }

    #[inline(always)]
    pub(super) fn vlan(&self, number: u16) -> &Vlan {
        self.vlans.get(usize::from(number)).unwrap_or(&Vlan::NONE)
    }

    /// Returns the egress tagging of a VLAN's frames at a port.
    ///
    /// # Errors
    /// [`PortDrop::NoMember`] if the port is no longer in the VLAN (IEEE 802.1Q, section 8.6.4), [`PortDrop::SplitHorizon`].
    #[inline(always)]
    pub(super) fn egress(&self, input: &Input, vlan: u16, port: u16) -> Result<Egress, PortDrop> {
        let output = &self.port(port).ok_or(PortDrop::NoMember)?.output;
        if input.group != 0 && output.group == input.group {
            return Err(PortDrop::SplitHorizon);
        }
        output.egress(vlan).ok_or(PortDrop::NoMember)
    }

    /// Returns true if the flood set is empty.
    #[inline(always)]
    pub(super) fn is_silent(&self, set: u32) -> bool {
        self.floods
            .get(set as usize)
            .is_none_or(|set| set.ports.is_empty() && set.interface.is_none())
    }
}

impl Input {
    fn of_interface(vlan: u16, aware: bool) -> Self {
        Self {
            port: NO_PORT,
            pvid: vlan,
            tag: NO_TAG,
            admits_tagged: false,
            members: VlanSet::all(),
            aware,
            learns: false,
            learning_limit: u32::MAX,
            over_limit: OverLimit::Forward,
            group: 0,
            is_interface: true,
        }
    }

    /// Returns the frame's VLAN (IEEE 802.1Q, section 6.9.1), if the port admits the frame (section 6.9) and is in the VLAN (section
    /// 8.6.2). `header` is the first 14 octets of the frame.
    #[inline(always)]
    pub(super) fn classify(&self, header: &[u8; 14], frame: &[u8]) -> Result<Membership, PortDrop> {
        if !self.aware {
            return Ok(Membership::NONE);
        }
        let [.., a, b] = *header;
        let ethertype = u16::from_be_bytes([a, b]);
        if ethertype != self.tag || self.tag == NO_TAG {
            return self.in_own_vlan(Arrival::Untagged, 0);
        }
        let Some(&[_, _, _, _, _, _, _, _, _, _, _, _, _, _, c, d, _, _]) = frame.first_chunk()
        else {
            return Err(PortDrop::Short);
        };
        let tci = u16::from_be_bytes([c, d]);
        match tci & 0xfff {
            0 => self.in_own_vlan(Arrival::PriorityTagged, tci),
            _ if !self.admits_tagged => Err(PortDrop::FrameType),
            vlan if self.members.contains(vlan) => Ok(Membership {
                arrival: Arrival::Tagged(quietwire_packet::EtherType(ethertype)),
                tci,
            }),
            _ => Err(PortDrop::NotMember),
        }
    }

    #[inline(always)]
    fn in_own_vlan(&self, arrival: Arrival, tci: u16) -> Result<Membership, PortDrop> {
        if self.pvid == 0 {
            return Err(PortDrop::FrameType);
        }
        Ok(Membership {
            arrival,
            tci: tci & 0xf000 | self.pvid,
        })
    }
}

impl Output {
    #[inline(always)]
    fn egress(&self, vlan: u16) -> Option<Egress> {
        if !self.aware {
            Some(Egress::AsIs)
        } else if !self.members.contains(vlan) {
            None
        } else if self.untagged.contains(vlan) {
            Some(Egress::Untagged)
        } else {
            Some(self.tagged)
        }
    }
}

impl Port {
    fn new(port: &BridgePort) -> Self {
        let aware = port.vlans != PortVlans::Transparent;
        let mut members = VlanSet::NONE;
        let mut untagged = VlanSet::NONE;
        let mut tagged = Egress::AsIs;
        let (mut pvid, mut tag, mut admits_tagged) = (0, NO_TAG, false);
        match &port.vlans {
            PortVlans::Transparent => {}
            PortVlans::Access(vlan) => {
                members.insert(*vlan);
                untagged = members;
                pvid = vlan.get();
                tag = super::vlans::TagType::Customer.ethertype().0;
            }
            PortVlans::Tunnel(tunnel) => {
                members.insert(tunnel.vlan);
                untagged = members;
                pvid = tunnel.vlan.get();
            }
            PortVlans::Trunk(trunk) => {
                members = trunk.allowed;
                untagged = trunk.untagged;
                if let Some(native) = trunk.native {
                    members.insert(native);
                    untagged.insert(native);
                    pvid = native.get();
                }
                tagged = Egress::Tagged(trunk.tag);
                tag = trunk.tag.ethertype().0;
                admits_tagged = true;
            }
        }
        // 0 means no group, so groups are counted from 1.
        let group = port
            .split_horizon
            .map_or(0, |group| u32::from(group).saturating_add(1));
        Self {
            input: Input {
                port: port.number,
                pvid,
                tag,
                admits_tagged,
                members,
                aware,
                learns: port.learning,
                learning_limit: port.learning_limit.unwrap_or(u32::MAX),
                over_limit: port.over_limit,
                group,
                is_interface: false,
            },
            output: Output {
                members,
                untagged,
                tagged,
                aware,
                group,
            },
            storm: port.storm,
        }
    }
}

fn is_plain(settings: &Settings) -> bool {
    let plain = |port: &BridgePort| {
        *port
            == BridgePort {
                number: port.number,
                ..BridgePort::new(port.number)
            }
    };
    settings.interfaces.is_empty()
        && settings.flooding == Flooding::default()
        && settings.ports.iter().all(plain)
}

/// Returns the VLANs and the deduplicated flood sets that they refer to.
fn floods(settings: &Settings) -> (Box<[Vlan]>, Vec<FloodSet>) {
    let ports: Vec<(&BridgePort, Port)> = settings
        .ports
        .iter()
        .map(|port| (port, Port::new(port)))
        .collect();
    let mut numbers = BTreeMap::from([(FloodSet::default(), 0)]);
    let mut vlans = vec![Vlan::NONE; VLANS];
    for (number, vlan) in (0u16..).zip(&mut vlans) {
        let interface = settings
            .interfaces
            .iter()
            .find(|interface| interface.vlan.map_or(0, |vlan| vlan.get()) == number);
        if let Some(interface) = interface {
            vlan.address = MacAddress::to_u64(interface.address);
            vlan.interface = interface.number;
        }
        for (kind, flood) in Kind::ALL.into_iter().zip(&mut vlan.floods) {
            let floods =
                |port: &BridgePort| is_on(settings.flooding, kind) && is_on(port.flooding, kind);
            let outputs = ports.iter().filter(|(port, _)| floods(port));
            let set = FloodSet {
                ports: outputs
                    .filter_map(|(port, Port { output, .. })| {
                        Some(FloodPort {
                            port: port.number,
                            group: output.group,
                            egress: output.egress(number)?,
                        })
                    })
                    .collect(),
                interface: interface
                    .filter(|_| kind != Kind::UnknownUnicast)
                    .map(|interface| interface.number),
            };
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            *flood = *numbers.entry(set).or_insert(next);
        }
        // A bridge without VLANs uses the first row only.
        if number == 0 && !settings.is_vlan_aware() {
            break;
        }
    }
    let mut sets: Vec<(u32, FloodSet)> = numbers
        .into_iter()
        .map(|(set, number)| (number, set))
        .collect();
    sets.sort_unstable();
    (
        vlans.into_boxed_slice(),
        sets.into_iter().map(|(_, set)| set).collect(),
    )
}

fn is_on(flooding: Flooding, kind: Kind) -> bool {
    match kind {
        Kind::UnknownUnicast => flooding.unknown_unicast,
        Kind::Broadcast => flooding.broadcast,
        Kind::Multicast => flooding.multicast,
    }
}
