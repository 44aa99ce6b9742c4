// SPDX-License-Identifier: Apache-2.0
//! External ports: blocks of each address, the hosts that have them, and the mapping of each port.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::net::Ipv4Addr;

use quietwire_base::random::mix;

use super::deterministic::Deterministic;
use super::event::BlockEvent;
use super::free_blocks::{FreeBlocks, PortRange};
use super::names::{NatDrop, NatProtocol, is_client_number};
use super::packet::End;
use super::settings::{
    EXTERNALS_MAX, HOST_BLOCKS_MAX, HoldDown, PortPool, block_of_port, ports_of_block,
};
use crate::arena::{NoMemory, zeroed};
use crate::hash_index::Index;
use crate::share::Share;

const PORTS: usize = 1 << 16;
const PROTOCOLS: usize = NatProtocol::ALL.len();

/// Number in place of a mapping for an external port whose mapping is a static forward on another forwarding CPU. No mapping has it.
pub(super) const ELSEWHERE: u32 = u32::MAX - 1;

/// Blocks whose hold-down ends while a host gets a block, at most.
const HOLDS_A_TURN: usize = 4;
/// Held blocks that are compared with a host that needs a block, at most: the newest ones.
const OWN_HOLDS_MAX: usize = 64;

/// A host with port blocks.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[repr(C)]
struct Host {
    address: u32,
    external: u16,
    /// Blocks in use.
    count: u16,
    blocks: [u16; HOST_BLOCKS_MAX],
}

/// A block that its host has returned, and that no other host gets yet.
#[derive(Clone, Copy, Debug)]
struct Held {
    block: u16,
    /// Address of the host.
    host: u32,
    /// First second in which other hosts can have the block.
    until: u32,
}

/// An external address and its ports.
#[derive(Debug)]
struct External {
    address: u32,
    /// Number of the table in [`Pool::ports`], and the position of the first port in it.
    table: u16,
    first_at: usize,
    /// Number of used ports of each block and protocol.
    used: Box<[[u16; PROTOCOLS]]>,
    /// Number of static forwards in each block.
    reserved: Box<[u16]>,
    /// Free blocks that hosts here can have. Empty if blocks are computed.
    free: FreeBlocks,
    /// Held blocks, the oldest first. Has space for `held_max`.
    held: VecDeque<Held>,
    held_max: usize,
}

impl External {
    /// Creates the tables of the address at a position of the pool, without its ports.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "blocks of at most EXTERNALS_MAX addresses"
    )]
    fn new(pool: &PortPool, number: usize, share: Share) -> Result<Self, NoMemory> {
        let blocks = pool.blocks();
        let is_free = |block: &usize| {
            pool.deterministic.is_empty() && share.has_block(number * blocks + block)
        };
        let own = (0..blocks).filter(is_free);
        let free = FreeBlocks::new(pool, own.filter_map(|block| u16::try_from(block).ok()));
        let HoldDown {
            seconds,
            blocks_max,
        } = pool.hold_down;
        // The share of this CPU, rounded down.
        let held_max = usize::from(blocks_max).min(blocks) * free.count(None);
        let held_max = if seconds > 0 {
            held_max.checked_div(blocks).unwrap_or(0)
        } else {
            0
        };
        Ok(Self {
            address: pool.addresses.get(number).map_or(0, |one| one.to_bits()),
            table: 0,
            first_at: 0,
            used: zeroed(blocks)?,
            reserved: zeroed(blocks)?,
            free,
            held: VecDeque::with_capacity(held_max),
            held_max,
        })
    }

    /// Returns a block to the free ones, or holds it. The free ones have space for all blocks of the share.
    fn give_back(&mut self, returned: Held) {
        if self.held_max == 0 {
            self.free.push(returned.block);
            return;
        }
        if self.held.len() >= self.held_max
            && let Some(oldest) = self.held.pop_front()
        {
            self.free.push(oldest.block);
        }
        self.held.push_back(returned);
    }

    /// Frees blocks whose hold-down is over, a few of them at a time.
    fn end_holds(&mut self, now: u32) {
        for _ in 0..HOLDS_A_TURN {
            let Some(oldest) = self.held.front().filter(|one| one.until <= now) else {
                return;
            };
            self.free.push(oldest.block);
            self.held.pop_front();
        }
    }

    /// Returns true if any host can have a block.
    fn has_free(&self, now: u32) -> bool {
        self.free.count(None) > 0 || self.held.front().is_some_and(|one| one.until <= now)
    }

    /// Returns the position of a held block, of a range if one is wanted, that a host has returned itself. Returns `None` for the number of
    /// a client, which may have belonged to another client before.
    fn own_held(&self, host: u32, wanted: Option<PortRange>) -> Option<usize> {
        if is_client_number(host) {
            return None;
        }
        let first = self.held.len().saturating_sub(OWN_HOLDS_MAX);
        let is_own = |one: &Held| {
            one.host == host && wanted.is_none_or(|range| self.free.range_of(one.block) == range)
        };
        let found = self.held.range(first..).rposition(is_own);
        found?.checked_add(first)
    }

    /// Returns true if a block is free or held.
    fn has_block(&self, block: u16) -> bool {
        self.free.contains(block) || self.held.iter().any(|one| one.block == block)
    }

    /// Takes a block out of the free or the held ones.
    fn take_block(&mut self, block: u16) {
        if !self.free.remove(block) {
            self.held.retain(|one| one.block != block);
        }
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "octets of memory that exists"
    )]
    fn octets(&self) -> usize {
        size_of_val(&self.used[..])
            + size_of_val(&self.reserved[..])
            + self.held_max * size_of::<Held>()
    }
}

/// External addresses to add to a pool, with their tables: [`Nat::grow`](super::Nat::grow).
#[derive(Debug)]
pub struct PoolGrowth {
    /// Number of addresses that the pool has before.
    known: usize,
    externals: Vec<External>,
    /// Ports of all these addresses.
    ports: Box<[u32]>,
}

impl PoolGrowth {
    /// Allocates the tables of the addresses of a pool behind the first `known` ones, for the share of a forwarding CPU.
    ///
    /// # Errors
    /// [`NoMemory`].
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "ports of at most EXTERNALS_MAX addresses"
    )]
    pub fn new(pool: &PortPool, known: usize, share: Share) -> Result<Self, NoMemory> {
        let added = known..pool.addresses.len();
        let mut ports = zeroed::<u32>(added.len() * PROTOCOLS * PORTS)?;
        // Its memory is there before the first packet.
        ports.fill(0);
        let added = added.map(|number| External::new(pool, number, share));
        Ok(Self {
            known,
            externals: added.collect::<Result<_, _>>()?,
            ports,
        })
    }
}

/// External addresses, their ports, and the hosts that have blocks of them.
#[derive(Debug)]
pub(super) struct Pool {
    /// In the order of the settings. Has space for all that a pool can have.
    externals: Vec<External>,
    /// Addresses and their positions, by address. Has space for all that a pool can have.
    by_address: Vec<(u32, u16)>,
    /// Number of the mapping of each address, protocol and port, plus 1; 0 if there is none. One table for the first addresses, and one for
    /// those of each growth. Has space for one of each address.
    ports: Vec<Box<[u32]>>,
    first_port: u16,
    block_size: u16,
    blocks: usize,
    /// True if the blocks have well-known ports and others.
    has_both_ranges: bool,
    blocks_per_host: usize,
    /// Blocks that are computed from the addresses of hosts.
    deterministic: Option<Deterministic>,
    /// Duration of hold-downs, seconds.
    hold_down_s: u32,
    /// Blocks that hosts here can have.
    share: Share,
    hosts: Box<[Host]>,
    host_index: Index,
    free_hosts: Vec<u32>,
    /// Hash of the next new host, if its address is a number, which differs between CPUs.
    spread: Option<u64>,
    /// Draws ports and blocks that no remote host can predict (RFC 6056).
    random: RandomState,
    drawn: u64,
}

/// A port of a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Port {
    pub(super) external: u16,
    pub(super) end: End,
    pub(super) host: u32,
}

impl Pool {
    pub(super) fn new(pool: &PortPool, hosts_max: u32, share: Share) -> Result<Self, NoMemory> {
        let mut hosts = zeroed::<Host>(hosts_max as usize)?;
        hosts.fill(Host::default());
        let mut made = Self {
            externals: Vec::with_capacity(EXTERNALS_MAX),
            by_address: Vec::with_capacity(EXTERNALS_MAX),
            ports: Vec::with_capacity(EXTERNALS_MAX),
            first_port: pool.first_port,
            block_size: pool.block_size,
            blocks: pool.blocks(),
            has_both_ranges: PortRange::are_both_of(pool),
            blocks_per_host: usize::from(pool.blocks_per_host),
            deterministic: Deterministic::new(pool),
            hold_down_s: pool.hold_down.seconds,
            share,
            hosts,
            host_index: Index::new(hosts_max)?,
            free_hosts: (0..hosts_max).rev().collect(),
            spread: None,
            random: RandomState::new(),
            drawn: 0,
        };
        made.grow(&mut PoolGrowth::new(pool, 0, share)?);
        Ok(made)
    }

    /// Adds external addresses behind those that are there. Returns false, and adds none, if the growth is of another pool. Allocates nothing.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "at most EXTERNALS_MAX addresses"
    )]
    pub(super) fn grow(&mut self, growth: &mut PoolGrowth) -> bool {
        let count = self.externals.len();
        let is_new = |one: &External| self.external(one.address).is_none();
        let added = growth.externals.len();
        let is_new = growth.externals.iter().all(is_new);
        if growth.known != count || added == 0 || count + added > EXTERNALS_MAX || !is_new {
            return false;
        }
        let table = u16::try_from(self.ports.len()).unwrap_or(u16::MAX);
        self.ports.push(std::mem::take(&mut growth.ports));
        for (at, mut external) in growth.externals.drain(..).enumerate() {
            external.table = table;
            external.first_at = at * PROTOCOLS * PORTS;
            let number = u16::try_from(count + at).unwrap_or(u16::MAX);
            let address = external.address;
            let place = self.by_address.partition_point(|one| one.0 < address);
            self.by_address.insert(place, (address, number));
            self.externals.push(external);
        }
        if let Some(deterministic) = &mut self.deterministic {
            deterministic.grow(self.externals.len());
        }
        true
    }

    /// Returns the number of an external address.
    #[inline(always)]
    pub(super) fn external(&self, address: u32) -> Option<u16> {
        let known = &self.by_address;
        let at = known.binary_search_by_key(&address, |one| one.0).ok()?;
        known.get(at).map(|one| one.1)
    }

    /// Returns the block of a port; `None` for a port of no block.
    fn block_at(&self, port: u16) -> Option<u16> {
        block_of_port(self.first_port, self.block_size, self.blocks, port)
    }

    /// Returns true if hosts here can have a block of an external address.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "blocks of at most EXTERNALS_MAX addresses"
    )]
    fn has_block(&self, external: u16, block: u16) -> bool {
        let at = usize::from(external) * self.blocks + usize::from(block);
        self.share.has_block(at)
    }

    /// Excludes the block of a port from those of hosts, for a static forward. A host that has the block keeps it.
    pub(super) fn reserve(&mut self, external: u16, port: u16) {
        let Some(block) = self.block_at(port) else {
            return;
        };
        let Some(external) = self.externals.get_mut(usize::from(external)) else {
            return;
        };
        if let Some(count) = external.reserved.get_mut(usize::from(block)) {
            *count = count.saturating_add(1);
        }
        external.free.remove(block);
        external.held.retain(|one| one.block != block);
    }

    /// Ends the exclusion of the block of a port by one static forward.
    pub(super) fn unreserve(&mut self, external: u16, port: u16) {
        let Some(block) = self.block_at(port) else {
            return;
        };
        let is_of_share = self.has_block(external, block);
        let Some(external) = self.externals.get_mut(usize::from(external)) else {
            return;
        };
        let Some(count) = external.reserved.get_mut(usize::from(block)) else {
            return;
        };
        *count = count.saturating_sub(1);
        // A block of a host has a used port.
        let is_of_host = external
            .used
            .get(usize::from(block))
            .is_some_and(|used| *used != [0; PROTOCOLS]);
        if *count == 0 && !is_of_host && is_of_share && self.deterministic.is_none() {
            // Has space for all blocks of the share.
            external.free.push(block);
        }
    }

    /// Returns the memory of the tables, octets.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "octets of memory that exists"
    )]
    pub(super) fn octets(&self) -> usize {
        let externals = self.externals.iter().map(External::octets);
        let ports = self.ports.iter().map(|ports| size_of_val(&ports[..]));
        externals.sum::<usize>()
            + ports.sum::<usize>()
            + size_of_val(&self.hosts[..])
            + self.host_index.octets()
    }

    /// Sets the hash of the next new host, whose address is a number.
    #[inline]
    pub(super) const fn spread_by(&mut self, hash: u64) {
        self.spread = Some(hash);
    }

    /// Returns the maximum number of hosts.
    pub(super) fn hosts_max(&self) -> u32 {
        u32::try_from(self.hosts.len()).unwrap_or(u32::MAX)
    }

    /// Returns the maximum number of ports of a host here, for each protocol.
    pub(super) fn ports_of_host_max(&self, host: u32) -> u32 {
        let blocks = u32::try_from(self.blocks_per_host).unwrap_or(u32::MAX);
        blocks.saturating_mul(u32::from(self.part_of(host).1))
    }

    /// Returns the offset of the first port that a host can have here in each of its blocks, and the number of these ports.
    #[inline]
    fn part_of(&self, host: u32) -> (u16, u16) {
        match &self.deterministic {
            None => (0, self.block_size),
            Some(deterministic) => deterministic.part_of(host, self.share),
        }
    }

    /// Returns true if blocks are computed from the addresses of hosts.
    pub(super) const fn is_computed(&self) -> bool {
        self.deterministic.is_some()
    }

    /// Returns the external address of a host; `None` for a host without blocks.
    pub(super) fn external_of(&self, address: u32) -> Option<Ipv4Addr> {
        let host = self.hosts.get(self.find_host(address)? as usize)?;
        let external = self.externals.get(usize::from(host.external))?;
        Some(Ipv4Addr::from_bits(external.address))
    }

    /// Returns the number of hosts with blocks.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "each free host is one of the hosts"
    )]
    pub(super) fn hosts(&self) -> usize {
        self.hosts.len() - self.free_hosts.len()
    }

    /// Returns a number below `limit` that is hard to predict.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "the counter has 64 bits, and the product of 64 and 64 bits fits in 128, with an upper half below the limit"
    )]
    fn draw(&mut self, limit: usize) -> usize {
        self.drawn += 1;
        let word = self.random.hash_one(self.drawn);
        // The high half of the product is uniform enough for limits far below 2^64.
        ((u128::from(word) * limit as u128) >> 64) as usize
    }

    /// Returns the table of an external port, and the port's position in it.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "ports of at most EXTERNALS_MAX addresses"
    )]
    #[inline(always)]
    fn port_at(&self, external: u16, protocol: NatProtocol, port: u16) -> Option<(usize, usize)> {
        let external = self.externals.get(usize::from(external))?;
        let at = external.first_at + protocol as usize * PORTS + usize::from(port);
        Some((usize::from(external.table), at))
    }

    /// Returns the mapping of an external port.
    #[inline(always)]
    pub(super) fn mapping(&self, external: u16, protocol: NatProtocol, port: u16) -> Option<u32> {
        let (table, at) = self.port_at(external, protocol, port)?;
        self.ports.get(table)?.get(at)?.checked_sub(1)
    }

    /// Notes the mapping of an external port.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "numbers of mappings are far below 2^32"
    )]
    pub(super) fn set_mapping(
        &mut self,
        external: u16,
        protocol: NatProtocol,
        port: u16,
        mapping: Option<u32>,
    ) {
        let Some((table, at)) = self.port_at(external, protocol, port) else {
            return;
        };
        let ports = self.ports.get_mut(table);
        if let Some(place) = ports.and_then(|ports| ports.get_mut(at)) {
            *place = mapping.map_or(0, |number| number + 1);
        }
    }

    fn host_hash(&self, address: u32) -> u64 {
        self.random.hash_one(address)
    }

    fn find_host(&self, address: u32) -> Option<u32> {
        let is_host = |number: u32| {
            self.hosts
                .get(number as usize)
                .is_some_and(|host| host.address == address && host.count > 0)
        };
        self.host_index.find(self.host_hash(address), is_host)
    }

    /// Returns the range of the external port for an inside port (RFC 4787, REQ-3a). `None` if all ports of the pool are of one range.
    fn range_for(&self, protocol: NatProtocol, internal: u16) -> Option<PortRange> {
        self.has_both_ranges.then(|| match protocol {
            NatProtocol::Tcp | NatProtocol::Udp => PortRange::of(internal),
            // Identifiers of echoes have no ranges. They leave the blocks of well-known ports to others.
            NatProtocol::Icmp => PortRange::Other,
        })
    }

    /// Takes a free port for an inside endpoint, and a block for its host if necessary: of the range of the inside port if the host can have
    /// such a port, otherwise of the other range.
    pub(super) fn take(
        &mut self,
        internal: End,
        protocol: NatProtocol,
        now: u32,
        note: &mut impl FnMut(BlockEvent),
    ) -> Result<Port, NatDrop> {
        let wanted = self.range_for(protocol, internal.port);
        let host = match self.find_host(internal.address) {
            Some(host) => host,
            None => self.add_host(internal.address, wanted, now, note)?,
        };
        if let Some(port) = self.take_of(host, protocol, internal.port, wanted) {
            return Ok(port);
        }
        if wanted.is_some() {
            let has_more = self.add_block(host, wanted, now, note).is_ok();
            let range = wanted.filter(|_| has_more);
            if let Some(port) = self.take_of(host, protocol, internal.port, range) {
                return Ok(port);
            }
        }
        self.add_block(host, None, now, note)?;
        self.take_of(host, protocol, internal.port, None)
            .ok_or(NatDrop::NoPorts)
    }

    /// Adds a host with one block, of a range if one is wanted and its address has such a block. Hosts are spread over external addresses.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "any bits of the hash do, and there are few addresses"
    )]
    fn add_host(
        &mut self,
        address: u32,
        wanted: Option<PortRange>,
        now: u32,
        note: &mut impl FnMut(BlockEvent),
    ) -> Result<u32, NatDrop> {
        if let Some(deterministic) = &self.deterministic {
            let place = deterministic.block_of(address);
            let (external, block) = place.ok_or(NatDrop::NoPorts)?;
            let number = self.begin_host(address, external)?;
            self.give_block(number, block, note);
            return Ok(number);
        }
        let count = self.externals.len();
        // A host that has state on several CPUs has one external address nevertheless.
        let start = match self.share.is_whole() {
            true if self.hold_down_s == 0 => self.draw(count),
            // A host that returns finds the blocks that are held for it.
            true => self.host_hash(address) as usize % count.max(1),
            false => mix(self.spread.unwrap_or(u64::from(address))) as usize % count.max(1),
        };
        let order = || (0..count).map(|step| (start + step) % count);
        let has_block = |external: &usize| {
            let is_first = *external == start;
            let external = self.externals.get(*external);
            external.is_some_and(|one| {
                one.has_free(now) || (is_first && one.own_held(address, None).is_some())
            })
        };
        // All mappings of a host have one external address (REQ-2), so it should have a block of the range.
        let is_free_choice = self.hold_down_s == 0 && self.share.is_whole();
        let has_range = |external: &usize| {
            let external = self.externals.get(*external);
            external.is_some_and(|one| one.free.count(wanted) > 0)
        };
        let prefers_range = is_free_choice && wanted.is_some();
        let preferred = prefers_range.then(|| order().find(has_range)).flatten();
        let external = preferred.or_else(|| order().find(has_block));
        let external = external.ok_or(NatDrop::NoPorts)?;
        let number = self.begin_host(address, u16::try_from(external).unwrap_or(0))?;
        // Its address has a block for it, perhaps of the other range.
        if wanted.is_none() || self.add_block(number, wanted, now, note).is_err() {
            self.add_block(number, None, now, note)?;
        }
        Ok(number)
    }

    /// Adds a host, which is to get a block of an external address.
    fn begin_host(&mut self, address: u32, external: u16) -> Result<u32, NatDrop> {
        let number = *self.free_hosts.last().ok_or(NatDrop::TableFull)?;
        if !self.host_index.insert(self.host_hash(address), number) {
            return Err(NatDrop::TableFull);
        }
        self.free_hosts.pop();
        if let Some(host) = self.hosts.get_mut(number as usize) {
            *host = Host {
                address,
                external,
                count: 0,
                blocks: [0; HOST_BLOCKS_MAX],
            };
        }
        Ok(number)
    }

    /// Returns the first and the last port of the block of a port; `None` for a port of no block.
    pub(super) fn block_of(&self, port: u16) -> Option<(u16, u16)> {
        self.block_at(port).map(|block| self.ports_of(block))
    }

    /// Returns true if a host here can have a port: it is of a block of this share, or of the part of this share in the computed block of
    /// the host.
    pub(super) fn can_have(&self, address: u32, external: u16, port: u16) -> bool {
        let block = self.block_at(port);
        block.is_some_and(|block| match &self.deterministic {
            None => self.has_block(external, block),
            Some(deterministic) => {
                let (first, _) = self.ports_of(block);
                let (skipped, count) = deterministic.part_of(address, self.share);
                let offset = port.saturating_sub(first).checked_sub(skipped);
                deterministic.block_of(address) == Some((external, block))
                    && offset.is_some_and(|offset| offset < count)
            }
        })
    }

    /// Returns the external address of a host, and the first and the last port of its first block. `None` for a host without blocks.
    pub(super) fn first_block_of(&self, address: u32) -> Option<(u16, (u16, u16))> {
        let host = self.hosts.get(self.find_host(address)? as usize)?;
        Some((host.external, self.ports_of(*host.blocks.first()?)))
    }

    /// Takes a port without mapping for a host, and its block if necessary, as another switch has given it. Returns the number of the host.
    ///
    /// # Errors
    /// [`NatDrop::NoPorts`] if the block is not free, [`NatDrop::HostLimit`] and [`NatDrop::TableFull`] without space, and
    /// [`NatDrop::NoMapping`] if a host here cannot have the port.
    #[expect(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "each protocol has its count, at most one for each port of the block"
    )]
    pub(super) fn take_exact(
        &mut self,
        address: u32,
        protocol: NatProtocol,
        (external, port): (u16, u16),
        note: &mut impl FnMut(BlockEvent),
    ) -> Result<u32, NatDrop> {
        let block = self.block_at(port).ok_or(NatDrop::NoMapping)?;
        let known = self.find_host(address);
        let host = known.and_then(|number| self.hosts.get(number as usize).copied());
        // RFC 4787, REQ-2: all blocks of a host are of one address.
        let is_other = host.is_some_and(|host| host.external != external);
        if is_other || !self.can_have(address, external, port) {
            return Err(NatDrop::NoMapping);
        }
        let has_block = host.is_some_and(|host| {
            let mut blocks = host.blocks.iter().take(usize::from(host.count));
            blocks.any(|one| *one == block)
        });
        let number = match known {
            Some(number) if has_block => number,
            None if self.deterministic.is_some() => self.add_host(address, None, 0, note)?,
            _ => {
                let place = self.externals.get(usize::from(external));
                if place.is_none_or(|one| !one.has_block(block)) {
                    return Err(NatDrop::NoPorts);
                }
                if host.is_some_and(|host| usize::from(host.count) >= self.blocks_per_host) {
                    return Err(NatDrop::HostLimit);
                }
                let number = match known {
                    Some(number) => number,
                    None => self.begin_host(address, external)?,
                };
                if let Some(place) = self.externals.get_mut(usize::from(external)) {
                    place.take_block(block);
                }
                self.give_block(number, block, note);
                number
            }
        };
        let place = self.externals.get_mut(usize::from(external));
        if let Some(used) = place.and_then(|one| one.used.get_mut(usize::from(block))) {
            used[protocol as usize] += 1;
        }
        Ok(number)
    }

    /// Gives a host one more block of its external address (RFC 4787, REQ-2: paired), of a range if one is wanted.
    fn add_block(
        &mut self,
        number: u32,
        wanted: Option<PortRange>,
        now: u32,
        note: &mut impl FnMut(BlockEvent),
    ) -> Result<(), NatDrop> {
        let host = *self.hosts.get(number as usize).ok_or(NatDrop::NoPorts)?;
        if usize::from(host.count) >= self.blocks_per_host {
            return Err(NatDrop::HostLimit);
        }
        let external = usize::from(host.external);
        let place = self.externals.get_mut(external).ok_or(NatDrop::NoPorts)?;
        place.end_holds(now);
        let own = place.own_held(host.address, wanted);
        let own = own.and_then(|at| place.held.remove(at));
        let left = place.free.count(wanted);
        let block = match own {
            Some(own) => own.block,
            None if left == 0 => return Err(NatDrop::NoPorts),
            None => {
                let drawn = self.draw(left);
                let place = self.externals.get_mut(external).ok_or(NatDrop::NoPorts)?;
                place.free.take_at(wanted, drawn).ok_or(NatDrop::NoPorts)?
            }
        };
        self.give_block(number, block, note);
        Ok(())
    }

    /// Adds a block to those of a host, which has space for it.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "hosts have at most HOST_BLOCKS_MAX blocks"
    )]
    fn give_block(&mut self, number: u32, block: u16, note: &mut impl FnMut(BlockEvent)) {
        let Some(host) = self.hosts.get_mut(number as usize) else {
            return;
        };
        if let Some(place) = host.blocks.get_mut(usize::from(host.count)) {
            *place = block;
        }
        host.count += 1;
        let host = *host;
        if self.deterministic.is_none() {
            note(self.event(true, &host, block));
        }
    }

    fn event(&self, is_assigned: bool, host: &Host, block: u16) -> BlockEvent {
        let external = self.externals.get(usize::from(host.external));
        let (first_port, last_port) = self.ports_of(block);
        BlockEvent {
            is_assigned,
            is_first_or_last: host.count == 1,
            host: Ipv4Addr::from_bits(host.address),
            external: Ipv4Addr::from_bits(external.map_or(0, |one| one.address)),
            first_port,
            last_port,
        }
    }

    const fn ports_of(&self, block: u16) -> (u16, u16) {
        ports_of_block(self.first_port, self.block_size, block)
    }

    /// Takes a free port out of the blocks of a host, of a range if one is wanted: one of the parity of the inside port if there is one
    /// (RFC 4787, REQ-4).
    #[allow(
        clippy::cast_possible_truncation,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "each protocol has its count, and ports of the block are below 2^16"
    )]
    fn take_of(
        &mut self,
        number: u32,
        protocol: NatProtocol,
        internal: u16,
        wanted: Option<PortRange>,
    ) -> Option<Port> {
        let host = *self.hosts.get(number as usize)?;
        let (skipped, count) = self.part_of(host.address);
        let size = usize::from(count);
        let start = self.draw(size);
        let blocks = host.blocks.get(..usize::from(host.count))?;
        let external = usize::from(host.external);
        for has_parity in [true, false] {
            for block in blocks {
                let at = usize::from(*block);
                let place = self.externals.get(external)?;
                if place.used.get(at)?[protocol as usize] >= count {
                    continue;
                }
                let (first, last) = self.ports_of(*block);
                if wanted.is_some_and(|range| !range.has_some_of(first, last)) {
                    continue;
                }
                let first = first + skipped;
                let free = (0..size)
                    .map(|step| first + ((start + step) % size) as u16)
                    .find(|port| {
                        (port % 2 == internal % 2) == has_parity
                            && wanted.is_none_or(|range| PortRange::of(*port) == range)
                            && self.mapping(host.external, protocol, *port).is_none()
                    });
                if let Some(port) = free {
                    let place = self.externals.get_mut(external)?;
                    place.used.get_mut(at)?[protocol as usize] += 1;
                    let address = place.address;
                    return Some(Port {
                        external: host.external,
                        end: End { address, port },
                        host: number,
                    });
                }
            }
        }
        None
    }

    /// Returns a port of a host. An unused block goes back to the pool, where other hosts get it after its hold-down. A host without blocks is
    /// forgotten.
    #[expect(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "each protocol has its count, and a block has at least one port"
    )]
    pub(super) fn release(
        &mut self,
        number: u32,
        protocol: NatProtocol,
        port: u16,
        now: u32,
        note: &mut impl FnMut(BlockEvent),
    ) {
        let Some(host) = self.hosts.get(number as usize).copied() else {
            return;
        };
        let block = port.wrapping_sub(self.first_port) / self.block_size;
        let at = usize::from(block);
        let Some(place) = self.externals.get_mut(usize::from(host.external)) else {
            return;
        };
        let Some(used) = place.used.get_mut(at) else {
            return;
        };
        used[protocol as usize] = used[protocol as usize].saturating_sub(1);
        if *used != [0; PROTOCOLS] {
            return;
        }
        let is_deterministic = self.deterministic.is_some();
        if !is_deterministic && place.reserved.get(at).is_none_or(|count| *count == 0) {
            place.give_back(Held {
                block,
                host: host.address,
                until: now.saturating_add(self.hold_down_s),
            });
        }
        self.remove_block(number, block);
        if !is_deterministic {
            note(self.event(false, &host, block));
        }
        if host.count == 1 {
            self.host_index.remove(self.host_hash(host.address), number);
            // Has space for all hosts.
            self.free_hosts.push(number);
        }
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "the host has the block that was found"
    )]
    fn remove_block(&mut self, number: u32, block: u16) {
        let Some(host) = self.hosts.get_mut(number as usize) else {
            return;
        };
        let count = usize::from(host.count).min(HOST_BLOCKS_MAX);
        let found = host.blocks.iter().take(count).position(|one| *one == block);
        if let Some(at) = found {
            host.blocks.swap(at, count - 1);
            host.count -= 1;
        }
    }
}
