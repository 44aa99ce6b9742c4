// SPDX-License-Identifier: Apache-2.0
//! Reference bridge, slow and obvious, that [`super::decide_with`] is compared with.

use std::collections::{BTreeMap, HashMap};

use quietwire_packet::{EtherType, EthernetHeader, MacAddress, VlanId};

use super::{
    BridgePort, BridgeTables, Clock, Copy, Decision, Flooding, Ingress, Interface, Kind, OverLimit,
    PortVlans, Settings, TagAction, TagType, Tally,
};
use crate::drops::PortDrop;

/// Exit of a frame from the bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// The port with this number.
    Port(u16),
    /// The bridge's own interface with this number.
    Interface(u16),
}

/// Result for a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Dropped.
    Dropped(PortDrop),
    /// Leaves with these octets, through any number of exits.
    Forwarded(BTreeMap<Exit, Vec<u8>>),
}

/// Length of both addresses; a tag follows them.
const ADDRESSES: usize = 12;

#[derive(Clone, Copy, Debug)]
struct LearnedEntry {
    port: u16,
    observed_s: u32,
    is_static: bool,
}

/// A frame without the tag of its VLAN.
struct Inner {
    vlan: Option<VlanId>,
    /// Priority and drop eligible bits of its tag on arrival.
    priority: u16,
    octets: Vec<u8>,
}

/// Tokens of one kind: frames times ticks in a second.
#[derive(Clone, Copy, Debug)]
struct Tokens {
    left: u128,
    last_ticks: u64,
}

/// A bridge that follows the standard frame by frame.
#[derive(Debug)]
pub struct ReferenceBridge {
    settings: Settings,
    ageing_s: u32,
    entries_max: usize,
    ticks_per_s: u64,
    known: HashMap<(Option<VlanId>, MacAddress), LearnedEntry>,
    tokens: HashMap<(u16, usize), Tokens>,
    /// Counters, except [`Tally::flapped`].
    pub tally: Tally,
}

impl ReferenceBridge {
    /// Creates a bridge for `entries_max` addresses with an ageing time of `ageing_s` seconds. A clock of `ticks_per_s` that began at 0
    /// fills its limits.
    #[must_use]
    pub fn new(settings: Settings, entries_max: u32, ageing_s: u32, ticks_per_s: u64) -> Self {
        Self {
            settings,
            ageing_s,
            entries_max: entries_max as usize,
            ticks_per_s,
            known: HashMap::new(),
            tokens: HashMap::new(),
            tally: Tally::default(),
        }
    }

    /// Forgets an address.
    pub fn remove(&mut self, vlan: Option<VlanId>, address: MacAddress) {
        self.known.remove(&(vlan, address));
    }

    /// Sets a static entry. Returns false if there is no space.
    pub fn set_static(&mut self, vlan: Option<VlanId>, address: MacAddress, port: u16) -> bool {
        let has_space =
            self.known.contains_key(&(vlan, address)) || self.known.len() < self.entries_max;
        if has_space {
            let known = LearnedEntry {
                port,
                observed_s: 0,
                is_static: true,
            };
            self.known.insert((vlan, address), known);
        }
        has_space
    }

    /// Forgets addresses learned on a port, or on any port.
    pub fn flush(&mut self, port: Option<u16>, vlan: Option<VlanId>) {
        self.known.retain(|(in_vlan, _), known| {
            let taken =
                port.is_none_or(|port| port == known.port) && (vlan.is_none() || vlan == *in_vlan);
            known.is_static || !taken
        });
    }

    /// Forgets aged addresses. Must be called whenever time has passed.
    pub fn sweep(&mut self, now_s: u32) {
        let ageing_s = self.ageing_s;
        self.known
            .retain(|_, known| known.is_static || now_s - known.observed_s <= ageing_s);
    }

    /// Returns the number of addresses known.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.known.len()
    }

    /// Forwards one frame and learns its source.
    pub fn forward(&mut self, from: Ingress, clock: Clock, frame: &[u8]) -> Disposition {
        match self.try_forward(from, clock, frame) {
            Ok(leaves) => Disposition::Forwarded(leaves),
            Err(reason) => {
                self.tally.count(Decision::Drop(reason));
                Disposition::Dropped(reason)
            }
        }
    }

    fn try_forward(
        &mut self,
        from: Ingress,
        clock: Clock,
        frame: &[u8],
    ) -> Result<BTreeMap<Exit, Vec<u8>>, PortDrop> {
        let input = self.input(from)?;
        let (header, _) = EthernetHeader::split(frame).map_err(|_| PortDrop::Short)?;
        let (destination, source) = (header.destination(), header.source());
        let inner = self.classify(from, input.as_ref(), frame)?;
        // IEEE 802.1Q, table 8-1.
        if matches!(destination.0, [0x01, 0x80, 0xc2, 0, 0, 0..=0x0f]) {
            return Err(PortDrop::ReservedAddress);
        }
        let interface = self.interface_in(inner.vlan);
        let own = interface.map(|interface| interface.address);
        if let Some(port) = &input
            && port.learning
            && !source.is_multicast()
            && source != MacAddress::default()
            && own != Some(source)
        {
            self.learn(port, inner.vlan, source, clock.now_s)?;
        }
        if destination.is_multicast() {
            let kind = if destination.is_broadcast() {
                Kind::Broadcast
            } else {
                Kind::Multicast
            };
            return self.flood(kind, from, input.as_ref(), clock, &inner);
        }
        if let Some(interface) = interface
            && interface.address == destination
            && input.is_some()
        {
            self.tally.local += 1;
            return Ok([(Exit::Interface(interface.number), inner.octets)].into());
        }
        match self.known.get(&(inner.vlan, destination)).copied() {
            Some(known) if input.as_ref().is_some_and(|port| port.number == known.port) => {
                Err(PortDrop::Filtered)
            }
            Some(known) => {
                let output = self.port(known.port).ok_or(PortDrop::NoMember)?;
                if input.is_some_and(|input| same_group(&input, output)) {
                    return Err(PortDrop::SplitHorizon);
                }
                let octets = leaving(output, &inner).ok_or(PortDrop::NoMember)?;
                Ok([(Exit::Port(output.number), octets)].into())
            }
            None => self.flood(Kind::UnknownUnicast, from, input.as_ref(), clock, &inner),
        }
    }

    fn port(&self, number: u16) -> Option<&BridgePort> {
        self.settings
            .ports
            .iter()
            .find(|port| port.number == number)
    }

    /// Returns the ingress port; `None` if the frame is from an interface.
    fn input(&self, from: Ingress) -> Result<Option<BridgePort>, PortDrop> {
        match from {
            Ingress::Port(number) => self.port(number).cloned().map(Some),
            Ingress::Interface(number) => self.interface(number).map(|_| None),
        }
        .ok_or(PortDrop::NoInput)
    }

    fn interface(&self, number: u16) -> Option<&Interface> {
        let mut interfaces = self.settings.interfaces.iter();
        interfaces.find(|interface| interface.number == number)
    }

    fn interface_in(&self, vlan: Option<VlanId>) -> Option<Interface> {
        let mut interfaces = self.settings.interfaces.iter();
        interfaces.find(|interface| interface.vlan == vlan).copied()
    }

    /// Determines the VLAN (IEEE 802.1Q, sections 6.9, 6.9.1 and 8.6.2).
    fn classify(
        &self,
        from: Ingress,
        input: Option<&BridgePort>,
        frame: &[u8],
    ) -> Result<Inner, PortDrop> {
        let whole = |vlan| Inner {
            vlan,
            priority: 0,
            octets: frame.to_vec(),
        };
        let Some(input) = input else {
            let Ingress::Interface(number) = from else {
                return Err(PortDrop::NoInput);
            };
            return Ok(whole(self.interface(number).and_then(|own| own.vlan)));
        };
        let tag = match &input.vlans {
            PortVlans::Transparent => return Ok(whole(None)),
            PortVlans::Tunnel(tunnel) => return Ok(whole(Some(tunnel.vlan))),
            PortVlans::Access(_) => TagType::Customer,
            PortVlans::Trunk(trunk) => trunk.tag,
        };
        let native = match &input.vlans {
            PortVlans::Access(vlan) => Some(*vlan),
            PortVlans::Trunk(trunk) => trunk.native,
            _ => None,
        };
        let native = || native.ok_or(PortDrop::FrameType);
        if frame[ADDRESSES..ADDRESSES + 2] != tag.ethertype().0.to_be_bytes() {
            return Ok(whole(Some(native()?)));
        }
        if frame.len() < ADDRESSES + 6 {
            return Err(PortDrop::Short);
        }
        let tci = u16::from_be_bytes([frame[ADDRESSES + 2], frame[ADDRESSES + 3]]);
        let vlan = match tci & 0xfff {
            0 => native()?,
            _ if matches!(input.vlans, PortVlans::Access(_)) => return Err(PortDrop::FrameType),
            number => VlanId::new(number).map_err(|_| PortDrop::NotMember)?,
        };
        if !is_member(input, vlan) {
            return Err(PortDrop::NotMember);
        }
        Ok(Inner {
            vlan: Some(vlan),
            priority: tci & 0xf000,
            octets: [&frame[..ADDRESSES], &frame[ADDRESSES + 4..]].concat(),
        })
    }

    /// Learns the source address (IEEE 802.1Q, section 8.7).
    fn learn(
        &mut self,
        port: &BridgePort,
        vlan: Option<VlanId>,
        source: MacAddress,
        now_s: u32,
    ) -> Result<(), PortDrop> {
        let learned = |known: &&LearnedEntry| !known.is_static && known.port == port.number;
        let on_port = self.known.values().filter(learned).count();
        let over = port
            .learning_limit
            .is_some_and(|limit| on_port >= limit as usize);
        let full = self.known.len() >= self.entries_max;
        let before = self.known.get(&(vlan, source)).copied();
        let stays = before.is_some_and(|known| known.port == port.number);
        match before {
            Some(known) if known.is_static => {
                self.tally.not_learned += u64::from(!stays);
                self.tally.static_elsewhere += u64::from(!stays);
                return Ok(());
            }
            None if full => {
                self.tally.not_learned += 1;
                return Ok(());
            }
            _ if over && !stays => {
                self.tally.not_learned += 1;
                return match port.over_limit {
                    OverLimit::Forward => Ok(()),
                    OverLimit::Drop => Err(PortDrop::OverLimit),
                };
            }
            None => self.tally.learned += 1,
            Some(_) => self.tally.moved += u64::from(!stays),
        }
        let known = LearnedEntry {
            port: port.number,
            observed_s: now_s,
            is_static: false,
        };
        self.known.insert((vlan, source), known);
        Ok(())
    }

    fn flood(
        &mut self,
        kind: Kind,
        from: Ingress,
        input: Option<&BridgePort>,
        clock: Clock,
        inner: &Inner,
    ) -> Result<BTreeMap<Exit, Vec<u8>>, PortDrop> {
        let mut everywhere = BTreeMap::new();
        for port in &self.settings.ports {
            if floods(self.settings.flooding, kind)
                && floods(port.flooding, kind)
                && let Some(octets) = leaving(port, inner)
            {
                everywhere.insert(Exit::Port(port.number), octets);
            }
        }
        if let Some(interface) = self.interface_in(inner.vlan)
            && kind != Kind::UnknownUnicast
        {
            everywhere.insert(Exit::Interface(interface.number), inner.octets.clone());
        }
        if everywhere.is_empty() {
            return Err(PortDrop::NotFlooded);
        }
        if let Some(port) = input
            && !self.allows(port, kind, clock.ticks)
        {
            return Err(kind.storm());
        }
        self.tally.flooded += 1;
        everywhere.retain(|exit, _| match (exit, from) {
            (Exit::Port(number), Ingress::Port(port)) => {
                let output = self.port(*number);
                let grouped = input
                    .zip(output)
                    .is_some_and(|(input, output)| same_group(input, output));
                *number != port && !grouped
            }
            (Exit::Interface(_), Ingress::Interface(_)) => false,
            _ => true,
        });
        Ok(everywhere)
    }

    fn allows(&mut self, port: &BridgePort, kind: Kind, ticks: u64) -> bool {
        let (number, rate_pps) = match kind {
            Kind::UnknownUnicast => (0, port.storm.unknown_unicast_pps),
            Kind::Broadcast => (1, port.storm.broadcast_pps),
            Kind::Multicast => (2, port.storm.multicast_pps),
        };
        let Some(rate_pps) = rate_pps else {
            return true;
        };
        let frame = u128::from(self.ticks_per_s);
        let depth = frame * u128::from((rate_pps / 10).max(1));
        let full = Tokens {
            left: depth,
            last_ticks: 0,
        };
        let tokens = self.tokens.entry((port.number, number)).or_insert(full);
        let earned = u128::from(ticks - tokens.last_ticks) * u128::from(rate_pps);
        tokens.left = (tokens.left + earned).min(depth);
        tokens.last_ticks = ticks;
        let passes = tokens.left >= frame;
        if passes {
            tokens.left -= frame;
        }
        passes
    }
}

fn floods(flooding: Flooding, kind: Kind) -> bool {
    match kind {
        Kind::UnknownUnicast => flooding.unknown_unicast,
        Kind::Broadcast => flooding.broadcast,
        Kind::Multicast => flooding.multicast,
    }
}

fn same_group(input: &BridgePort, output: &BridgePort) -> bool {
    input.split_horizon.is_some() && input.split_horizon == output.split_horizon
}

fn is_member(port: &BridgePort, vlan: VlanId) -> bool {
    match &port.vlans {
        PortVlans::Transparent => false,
        PortVlans::Access(own) => *own == vlan,
        PortVlans::Tunnel(tunnel) => tunnel.vlan == vlan,
        PortVlans::Trunk(trunk) => {
            trunk.native == Some(vlan) || trunk.allowed.iter().any(|allowed| allowed == vlan)
        }
    }
}

/// Returns the frame as it leaves a port, if the port is in its VLAN (IEEE 802.1Q, sections 8.6.4 and 6.9.2).
fn leaving(port: &BridgePort, inner: &Inner) -> Option<Vec<u8>> {
    let Some(vlan) = inner.vlan else {
        return Some(inner.octets.clone());
    };
    if !is_member(port, vlan) {
        return None;
    }
    match &port.vlans {
        PortVlans::Trunk(trunk)
            if trunk.native != Some(vlan) && !trunk.untagged.contains(vlan.get()) =>
        {
            let tci = inner.priority | vlan.get();
            Some(with_tag(&inner.octets, trunk.tag.ethertype(), tci))
        }
        _ => Some(inner.octets.clone()),
    }
}

fn with_tag(octets: &[u8], tpid: EtherType, tci: u16) -> Vec<u8> {
    let (addresses, rest) = octets.split_at(ADDRESSES);
    let tag = [tpid.0.to_be_bytes(), tci.to_be_bytes()].concat();
    [addresses, &tag, rest].concat()
}

/// Executes a decision: for tests, and as an example.
#[must_use]
pub fn carry_out(
    decision: Decision,
    tables: &BridgeTables,
    from: Ingress,
    frame: &[u8],
) -> Disposition {
    let leaves = match decision {
        Decision::Drop(reason) => return Disposition::Dropped(reason),
        Decision::Forward(port) => [(Exit::Port(port), frame.to_vec())].into(),
        Decision::ForwardTag(port, action) => [(Exit::Port(port), act(action, frame))].into(),
        Decision::Local(number, action) => [(Exit::Interface(number), act(action, frame))].into(),
        Decision::Flood => tables
            .port_numbers()
            .filter(|port| Ingress::Port(*port) != from)
            .map(|port| (Exit::Port(port), frame.to_vec()))
            .collect(),
        Decision::FloodSet(flood) => tables
            .copies(flood, from)
            .map(|copy| match copy {
                Copy::Port(port, action) => (Exit::Port(port), act(action, frame)),
                Copy::Interface(number, action) => (Exit::Interface(number), act(action, frame)),
            })
            .collect(),
    };
    Disposition::Forwarded(leaves)
}

/// Returns a frame after a tag action.
fn act(action: TagAction, frame: &[u8]) -> Vec<u8> {
    let without = || [&frame[..ADDRESSES], &frame[ADDRESSES + 4..]].concat();
    match action {
        TagAction::None => frame.to_vec(),
        TagAction::Pop => without(),
        TagAction::Push(tag) => with_tag(frame, tag.tpid, tag.tci),
        TagAction::Replace(tag) => with_tag(&without(), tag.tpid, tag.tci),
    }
}
