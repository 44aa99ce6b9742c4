// SPDX-License-Identifier: Apache-2.0
//! Targets of routes: sets of next hops, stored once regardless of the number of routes, and neighbours, stored once regardless of the
//! number of sets.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use quietwire_packet::MacAddress;

use crate::arena::{Epoch, NoMemory};
use crate::route::next_hops::{MEMBERS_MAX, NextHop, NextHopError, NextHopWriter, NextHops};

/// A next hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Via {
    /// Address of the next router. `None` if the destinations are on the link.
    pub gateway: Option<IpAddr>,
    /// Number of the interface.
    pub interface: u16,
    /// Its weight in the distribution of flows.
    pub weight: u8,
}

/// Target of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Forward through one of these next hops.
    Via(Vec<Via>),
    /// Deliver to the router itself.
    Local,
    /// Drop silently.
    Blackhole,
    /// Drop and send ICMP host unreachable.
    Unreachable,
    /// Drop and send ICMP communication administratively prohibited.
    Prohibit,
}

/// Identity of a set of next hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SetId(u32);

/// Stored target of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredTarget {
    Set(SetId),
    Local,
    Blackhole,
    Unreachable,
    Prohibit,
}

#[derive(Debug)]
struct Set {
    ways: Vec<Via>,
    routes: u32,
    /// Number of the next hop; `None` while the set has no usable next hop.
    number: Option<u32>,
    /// The number is that of a group owned by the set.
    is_group: bool,
}

/// A router or station on a link.
#[derive(Debug)]
struct Neighbour {
    number: u32,
    sets: u32,
    mac: Option<MacAddress>,
}

/// All targets.
#[derive(Debug)]
pub(super) struct Targets {
    writer: NextHopWriter,
    local: u32,
    blackhole: u32,
    unreachable: u32,
    prohibit: u32,
    sets: HashMap<SetId, Set>,
    by_ways: HashMap<Vec<Via>, SetId>,
    next_set: u32,
    neighbours: HashMap<(u16, IpAddr), Neighbour>,
    by_number: HashMap<u32, (u16, IpAddr)>,
    /// Resolved neighbours, including those in no set.
    macs: BTreeMap<(u16, IpAddr), MacAddress>,
    /// Next hop of packets to hosts on a link, by interface.
    links: BTreeMap<u16, u32>,
    hosts: BTreeSet<(u16, IpAddr)>,
    wanted: BTreeSet<(u16, IpAddr)>,
}

impl Targets {
    pub(super) fn new(mut writer: NextHopWriter) -> Result<Self, NoMemory> {
        // There is space for four in any.
        let mut add = |next_hop| writer.add(next_hop).map_err(|_| NoMemory(0));
        let (local, blackhole) = (add(NextHop::Local)?, add(NextHop::Blackhole)?);
        let (unreachable, prohibit) = (add(NextHop::Unreachable)?, add(NextHop::Prohibit)?);
        Ok(Self {
            writer,
            local,
            blackhole,
            unreachable,
            prohibit,
            sets: HashMap::new(),
            by_ways: HashMap::new(),
            next_set: 0,
            neighbours: HashMap::new(),
            by_number: HashMap::new(),
            macs: BTreeMap::new(),
            links: BTreeMap::new(),
            hosts: BTreeSet::new(),
            wanted: BTreeSet::new(),
        })
    }

    pub(super) fn shared(&self) -> Arc<NextHops> {
        self.writer.shared()
    }

    pub(super) fn set_epoch(&mut self, epoch: Epoch) {
        self.writer.set_epoch(epoch);
    }

    pub(super) fn reclaim(&mut self, epoch: Epoch) {
        self.writer.reclaim(epoch);
    }

    /// Returns the next hop number; `None` while there is no usable next hop.
    pub(super) fn number(&self, target: StoredTarget) -> Option<u32> {
        match target {
            StoredTarget::Set(id) => self.sets.get(&id)?.number,
            StoredTarget::Local => Some(self.local),
            StoredTarget::Blackhole => Some(self.blackhole),
            StoredTarget::Unreachable => Some(self.unreachable),
            StoredTarget::Prohibit => Some(self.prohibit),
        }
    }

    pub(super) fn target(&self, target: StoredTarget) -> Target {
        match target {
            StoredTarget::Set(id) => Target::Via(
                self.sets
                    .get(&id)
                    .map_or_else(Vec::new, |set| set.ways.clone()),
            ),
            StoredTarget::Local => Target::Local,
            StoredTarget::Blackhole => Target::Blackhole,
            StoredTarget::Unreachable => Target::Unreachable,
            StoredTarget::Prohibit => Target::Prohibit,
        }
    }

    /// Adds a reference to a target.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "counts routes and sets in memory"
    )]
    pub(super) fn hold(&mut self, target: Target) -> Result<StoredTarget, NextHopError> {
        let mut ways = match target {
            Target::Local => return Ok(StoredTarget::Local),
            Target::Blackhole => return Ok(StoredTarget::Blackhole),
            Target::Unreachable => return Ok(StoredTarget::Unreachable),
            Target::Prohibit => return Ok(StoredTarget::Prohibit),
            Target::Via(ways) => ways,
        };
        if !(1..=MEMBERS_MAX).contains(&ways.len()) {
            return Err(NextHopError::Members(ways.len()));
        }
        ways.sort_unstable();
        ways.dedup_by_key(|via| (via.gateway, via.interface));
        if let Some(id) = self.by_ways.get(&ways) {
            if let Some(set) = self.sets.get_mut(id) {
                set.routes += 1;
            }
            return Ok(StoredTarget::Set(*id));
        }
        self.new_set(ways).map(StoredTarget::Set)
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "2^32 changes of sets take years"
    )]
    fn new_set(&mut self, ways: Vec<Via>) -> Result<SetId, NextHopError> {
        let mut held = Vec::new();
        for via in &ways {
            match self.hold_neighbour(via) {
                Ok(()) => held.push(*via),
                Err(error) => {
                    held.iter().for_each(|via| self.release_neighbour(via));
                    return Err(error);
                }
            }
        }
        let mut set = Set {
            ways,
            routes: 1,
            number: None,
            is_group: false,
        };
        if let Err(error) = self.resolve(&mut set) {
            held.iter().for_each(|via| self.release_neighbour(via));
            return Err(error);
        }
        let id = SetId(self.next_set);
        self.next_set += 1;
        self.by_ways.insert(set.ways.clone(), id);
        self.sets.insert(id, set);
        Ok(id)
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "counts routes and sets in memory"
    )]
    fn hold_neighbour(&mut self, via: &Via) -> Result<(), NextHopError> {
        let Some(gateway) = via.gateway else {
            return Ok(());
        };
        let key = (via.interface, gateway);
        if let Some(neighbour) = self.neighbours.get_mut(&key) {
            neighbour.sets += 1;
            return Ok(());
        }
        let mac = self.macs.get(&key).copied();
        let number = self.writer.add(next_hop(via.interface, mac))?;
        self.neighbours.insert(
            key,
            Neighbour {
                number,
                sets: 1,
                mac,
            },
        );
        self.by_number.insert(number, key);
        if mac.is_none() {
            self.wanted.insert(key);
        }
        Ok(())
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "it was counted when it was held"
    )]
    fn release_neighbour(&mut self, via: &Via) {
        let Some(gateway) = via.gateway else { return };
        let key = (via.interface, gateway);
        if let Some(neighbour) = self.neighbours.get_mut(&key) {
            neighbour.sets -= 1;
            if neighbour.sets == 0 {
                self.writer.remove(neighbour.number);
                self.by_number.remove(&neighbour.number);
                self.neighbours.remove(&key);
                self.wanted.remove(&key);
            }
        }
    }

    /// Updates the next hop of a set to its usable next hops.
    fn resolve(&mut self, set: &mut Set) -> Result<(), NextHopError> {
        let usable: Vec<(u32, u8)> = set
            .ways
            .iter()
            .filter_map(|via| Some((self.number_of(via)?, via.weight)))
            .collect();
        let former = set.number.filter(|_| set.is_group);
        match (usable.as_slice(), former) {
            ([_, _, ..], Some(group)) => return self.writer.set_group(group, &usable),
            ([_, _, ..], None) => {
                set.number = Some(self.writer.add_group(&usable)?);
                set.is_group = true;
            }
            (few, former) => {
                set.number = few.first().map(|(number, _)| *number);
                set.is_group = false;
                if let Some(group) = former {
                    self.writer.remove(group);
                }
            }
        }
        Ok(())
    }

    fn number_of(&self, via: &Via) -> Option<u32> {
        let link = self.links.get(&via.interface)?;
        match via.gateway {
            None => Some(*link),
            Some(gateway) => Some(self.neighbours.get(&(via.interface, gateway))?.number),
        }
    }

    /// Removes a reference to a target.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "it was counted when it was held"
    )]
    pub(super) fn release(&mut self, target: StoredTarget) {
        let StoredTarget::Set(id) = target else {
            return;
        };
        let Some(set) = self.sets.get_mut(&id) else {
            return;
        };
        set.routes -= 1;
        if set.routes > 0 {
            return;
        }
        if let Some(set) = self.sets.remove(&id) {
            self.by_ways.remove(&set.ways);
            if let Some(group) = set.number.filter(|_| set.is_group) {
                self.writer.remove(group);
            }
            set.ways.iter().for_each(|via| self.release_neighbour(via));
        }
    }

    /// Notes a new interface.
    pub(super) fn set_up(&mut self, interface: u16) -> Result<(), NextHopError> {
        if let std::collections::btree_map::Entry::Vacant(place) = self.links.entry(interface) {
            place.insert(self.writer.add(NextHop::Glean { interface })?);
        }
        self.resolve_all(interface)
    }

    /// Notes that an interface is removed.
    pub(super) fn set_down(&mut self, interface: u16) {
        let Some(number) = self.links.remove(&interface) else {
            return;
        };
        self.macs.retain(|(one, _), _| *one != interface);
        for ((one, _), neighbour) in &mut self.neighbours {
            if *one == interface {
                neighbour.mac = None;
                self.writer.set(neighbour.number, next_hop(interface, None));
            }
        }
        // A smaller group requires no more space than before, except while both exist.
        if let Err(error) = self.resolve_all(interface) {
            tracing::error!("cannot remove next hops of a removed interface: {error}");
        }
        self.writer.remove(number);
    }

    fn resolve_all(&mut self, interface: u16) -> Result<(), NextHopError> {
        let ids: Vec<SetId> = self
            .sets
            .iter()
            .filter(|(_, set)| set.ways.iter().any(|via| via.interface == interface))
            .map(|(id, _)| *id)
            .collect();
        let mut result = Ok(());
        for id in ids {
            if let Some(mut set) = self.sets.remove(&id) {
                result = result.and(self.resolve(&mut set));
                self.sets.insert(id, set);
            }
        }
        result
    }

    pub(super) fn found(&mut self, interface: u16, address: IpAddr, mac: MacAddress) {
        let key = (interface, address);
        self.macs.insert(key, mac);
        self.wanted.remove(&key);
        if let Some(neighbour) = self.neighbours.get_mut(&key) {
            neighbour.mac = Some(mac);
            self.writer
                .set(neighbour.number, next_hop(interface, Some(mac)));
        }
    }

    pub(super) fn lost(&mut self, interface: u16, address: IpAddr) {
        let key = (interface, address);
        self.macs.remove(&key);
        if let Some(neighbour) = self.neighbours.get_mut(&key) {
            neighbour.mac = None;
            self.writer.set(neighbour.number, next_hop(interface, None));
            // Routes still refer to it.
            self.wanted.insert(key);
        }
    }

    pub(super) fn note_host(&mut self, interface: u16, address: IpAddr) {
        self.hosts.insert((interface, address));
    }

    pub(super) fn forget_host(&mut self, interface: u16, address: IpAddr) -> bool {
        self.hosts.remove(&(interface, address))
    }

    /// Returns the neighbours on an interface that are used as next hops.
    pub(super) fn hosts_on(&self, interface: u16) -> impl Iterator<Item = IpAddr> + '_ {
        let hosts = self.hosts.iter().filter(move |(one, _)| *one == interface);
        hosts.map(|(_, address)| *address)
    }

    /// Returns the unresolved gateways of a next hop.
    pub(super) fn gateways_of(&self, number: u32) -> Vec<(u16, IpAddr)> {
        let sets = self
            .sets
            .values()
            .filter(|set| set.number == Some(number) && set.is_group);
        let ways = sets.flat_map(|set| &set.ways);
        let members = ways.filter_map(|via| Some((via.interface, via.gateway?)));
        let one = self.by_number.get(&number).copied();
        members
            .chain(one)
            .filter(|key| !self.macs.contains_key(key))
            .collect()
    }

    /// Returns the number of next hops in use.
    #[cfg(test)]
    pub(super) fn next_hops(&self) -> usize {
        self.writer.len()
    }

    /// Returns the unresolved gateways of routes on existing links.
    pub(super) fn missing(&self) -> Vec<(u16, IpAddr)> {
        let missing = self.neighbours.iter().filter(|((interface, _), one)| {
            one.mac.is_none() && self.links.contains_key(interface)
        });
        missing.map(|(key, _)| *key).collect()
    }

    pub(super) fn take_wanted(&mut self) -> Vec<(u16, IpAddr)> {
        std::mem::take(&mut self.wanted).into_iter().collect()
    }
}

fn next_hop(interface: u16, mac: Option<MacAddress>) -> NextHop {
    match mac {
        Some(mac) => NextHop::Adjacency { interface, mac },
        None => NextHop::Incomplete { interface },
    }
}
