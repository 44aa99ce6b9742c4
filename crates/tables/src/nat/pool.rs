// SPDX-License-Identifier: Apache-2.0
//! External ports: blocks of each address, the hosts that have them, and the mapping of each port.

use std::hash::{BuildHasher, RandomState};
use std::net::Ipv4Addr;

use quietwire_base::random::mix;

use super::names::{NatDrop, NatProtocol};
use super::packet::End;
use super::settings::{HOST_BLOCKS_MAX, PortPool};
use crate::arena::{NoMemory, zeroed};
use crate::hash_index::Index;
use crate::share::Share;

const PORTS: usize = 1 << 16;
const PROTOCOLS: usize = NatProtocol::ALL.len();

/// Number in place of a mapping for an external port whose mapping is a static forward on another forwarding CPU. No mapping has it.
pub(super) const ELSEWHERE: u32 = u32::MAX - 1;

/// A block was given to a host, or taken from it: what a log needs to name the host of an external endpoint (RFC 6888, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEvent {
    /// True if the host received the block; false if it returned it.
    pub is_assigned: bool,
    /// Inside address of the host.
    pub host: Ipv4Addr,
    /// External address.
    pub external: Ipv4Addr,
    /// First port of the block.
    pub first_port: u16,
    /// Last port of the block.
    pub last_port: u16,
}

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

/// External addresses, their ports, and the hosts that have blocks of them.
#[derive(Debug)]
pub(super) struct Pool {
    /// In ascending order.
    externals: Vec<u32>,
    first_port: u16,
    block_size: u16,
    blocks: usize,
    blocks_per_host: usize,
    /// Number of the mapping of each address, protocol and port, plus 1; 0 if there is none.
    ports: Box<[u32]>,
    /// Number of used ports of each block and protocol.
    used: Box<[[u16; PROTOCOLS]]>,
    /// Number of static forwards in each block.
    reserved: Box<[u16]>,
    /// Blocks that hosts here can have.
    share: Share,
    /// Free blocks of each address.
    free: Vec<Vec<u16>>,
    hosts: Box<[Host]>,
    host_index: Index,
    free_hosts: Vec<u32>,
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
        let mut externals: Vec<u32> = pool.addresses.iter().map(|one| one.to_bits()).collect();
        externals.sort_unstable();
        let (count, blocks) = (externals.len(), pool.blocks());
        let mut ports = zeroed::<u32>(count * PROTOCOLS * PORTS)?;
        ports.fill(0);
        let mut hosts = zeroed::<Host>(hosts_max as usize)?;
        hosts.fill(Host::default());
        let own = |external: usize| -> Vec<u16> {
            let own = (0..blocks).filter(|block| share.has_block(external * blocks + block));
            own.filter_map(|block| u16::try_from(block).ok()).collect()
        };
        Ok(Self {
            first_port: pool.first_port,
            block_size: pool.block_size,
            blocks,
            blocks_per_host: usize::from(pool.blocks_per_host),
            ports,
            used: zeroed(count * blocks)?,
            reserved: zeroed(count * blocks)?,
            share,
            // A list has space for its elements at least, and never gets others.
            free: (0..count).map(own).collect(),
            externals,
            hosts,
            host_index: Index::new(hosts_max)?,
            free_hosts: (0..hosts_max).rev().collect(),
            random: RandomState::new(),
            drawn: 0,
        })
    }

    /// Returns the number of an external address.
    #[inline(always)]
    pub(super) fn external(&self, address: u32) -> Option<u16> {
        let number = self.externals.binary_search(&address).ok()?;
        u16::try_from(number).ok()
    }

    /// Returns the position of the block of a port; `None` for a port of no block.
    fn block_at(&self, external: u16, port: u16) -> Option<(usize, u16)> {
        let block = port.checked_sub(self.first_port)? / self.block_size;
        let is_block = usize::from(block) < self.blocks;
        is_block.then_some((
            usize::from(external) * self.blocks + usize::from(block),
            block,
        ))
    }

    /// Excludes the block of a port from those of hosts, for a static forward. A host that has the block keeps it.
    pub(super) fn reserve(&mut self, external: u16, port: u16) {
        let Some((at, block)) = self.block_at(external, port) else {
            return;
        };
        if let Some(count) = self.reserved.get_mut(at) {
            *count = count.saturating_add(1);
        }
        if let Some(free) = self.free.get_mut(usize::from(external)) {
            free.retain(|one| *one != block);
        }
    }

    /// Ends the exclusion of the block of a port by one static forward.
    pub(super) fn unreserve(&mut self, external: u16, port: u16) {
        let Some((at, block)) = self.block_at(external, port) else {
            return;
        };
        let Some(count) = self.reserved.get_mut(at) else {
            return;
        };
        *count = count.saturating_sub(1);
        // A block of a host has a used port.
        let is_of_host = self
            .used
            .get(at)
            .is_some_and(|used| *used != [0; PROTOCOLS]);
        if *count == 0
            && !is_of_host
            && self.share.has_block(at)
            && let Some(free) = self.free.get_mut(usize::from(external))
        {
            // Has space for all blocks of the share.
            free.push(block);
        }
    }

    /// Returns the memory of the tables, octets.
    pub(super) fn octets(&self) -> usize {
        size_of_val(&self.ports[..])
            + size_of_val(&self.used[..])
            + size_of_val(&self.reserved[..])
            + size_of_val(&self.hosts[..])
            + self.host_index.octets()
    }

    /// Returns the number of hosts with blocks.
    pub(super) fn hosts(&self) -> usize {
        self.hosts.len() - self.free_hosts.len()
    }

    /// Returns a number below `limit` that is hard to predict.
    fn draw(&mut self, limit: usize) -> usize {
        self.drawn += 1;
        let word = self.random.hash_one(self.drawn);
        // The high half of the product is uniform enough for limits far below 2^64.
        ((u128::from(word) * limit as u128) >> 64) as usize
    }

    #[inline(always)]
    const fn port_at(external: u16, protocol: NatProtocol, port: u16) -> usize {
        (external as usize * PROTOCOLS + protocol as usize) * PORTS + port as usize
    }

    /// Returns the mapping of an external port.
    #[inline(always)]
    pub(super) fn mapping(&self, external: u16, protocol: NatProtocol, port: u16) -> Option<u32> {
        let at = Self::port_at(external, protocol, port);
        self.ports.get(at)?.checked_sub(1)
    }

    /// Notes the mapping of an external port.
    pub(super) fn set_mapping(
        &mut self,
        external: u16,
        protocol: NatProtocol,
        port: u16,
        mapping: Option<u32>,
    ) {
        if let Some(place) = self.ports.get_mut(Self::port_at(external, protocol, port)) {
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

    /// Takes a free port for an inside endpoint, and a block for its host if necessary.
    pub(super) fn take(
        &mut self,
        internal: End,
        protocol: NatProtocol,
        note: &mut impl FnMut(BlockEvent),
    ) -> Result<Port, NatDrop> {
        let host = match self.find_host(internal.address) {
            Some(host) => host,
            None => self.add_host(internal.address, note)?,
        };
        if let Some(port) = self.take_of(host, protocol, internal.port) {
            return Ok(port);
        }
        self.add_block(host, note)?;
        self.take_of(host, protocol, internal.port)
            .ok_or(NatDrop::NoPorts)
    }

    /// Adds a host with one block. Hosts are spread over external addresses.
    fn add_host(
        &mut self,
        address: u32,
        note: &mut impl FnMut(BlockEvent),
    ) -> Result<u32, NatDrop> {
        let count = self.externals.len();
        // A host that has state on several CPUs has one external address nevertheless.
        let start = match self.share.is_whole() {
            true => self.draw(count),
            false => mix(u64::from(address)) as usize % count.max(1),
        };
        let external = (0..count)
            .map(|step| (start + step) % count)
            .find(|external| {
                self.free
                    .get(*external)
                    .is_some_and(|free| !free.is_empty())
            })
            .ok_or(NatDrop::NoPorts)?;
        let number = self.begin_host(address, u16::try_from(external).unwrap_or(0))?;
        // Its address has a free block.
        self.add_block(number, note)?;
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
    pub(super) fn block_of(&self, external: u16, port: u16) -> Option<(u16, u16)> {
        let (_, block) = self.block_at(external, port)?;
        Some(self.ports_of(block))
    }

    /// Returns true if hosts here can have a port: it is of a block of this share.
    pub(super) fn has_port(&self, external: u16, port: u16) -> bool {
        let place = self.block_at(external, port);
        place.is_some_and(|(at, _)| self.share.has_block(at))
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
    pub(super) fn take_exact(
        &mut self,
        address: u32,
        protocol: NatProtocol,
        (external, port): (u16, u16),
        note: &mut impl FnMut(BlockEvent),
    ) -> Result<u32, NatDrop> {
        let place = self.block_at(external, port);
        let (at, block) = place.ok_or(NatDrop::NoMapping)?;
        let known = self.find_host(address);
        let host = known.and_then(|number| self.hosts.get(number as usize).copied());
        // RFC 4787, REQ-2: all blocks of a host are of one address.
        if !self.share.has_block(at) || host.is_some_and(|host| host.external != external) {
            return Err(NatDrop::NoMapping);
        }
        let has_block = host.is_some_and(|host| {
            let mut blocks = host.blocks.iter().take(usize::from(host.count));
            blocks.any(|one| *one == block)
        });
        let number = match known {
            Some(number) if has_block => number,
            _ => {
                let free = self.free.get(usize::from(external));
                let free_at = free.and_then(|free| free.iter().position(|one| *one == block));
                let free_at = free_at.ok_or(NatDrop::NoPorts)?;
                if host.is_some_and(|host| usize::from(host.count) >= self.blocks_per_host) {
                    return Err(NatDrop::HostLimit);
                }
                let number = match known {
                    Some(number) => number,
                    None => self.begin_host(address, external)?,
                };
                if let Some(free) = self.free.get_mut(usize::from(external)) {
                    free.swap_remove(free_at);
                }
                self.give_block(number, block, note);
                number
            }
        };
        if let Some(used) = self.used.get_mut(at) {
            used[protocol as usize] += 1;
        }
        Ok(number)
    }

    /// Gives a host one more block of its external address (RFC 4787, REQ-2: paired).
    fn add_block(&mut self, number: u32, note: &mut impl FnMut(BlockEvent)) -> Result<(), NatDrop> {
        let host = *self.hosts.get(number as usize).ok_or(NatDrop::NoPorts)?;
        if usize::from(host.count) >= self.blocks_per_host {
            return Err(NatDrop::HostLimit);
        }
        let external = usize::from(host.external);
        let left = self.free.get(external).map_or(0, Vec::len);
        if left == 0 {
            return Err(NatDrop::NoPorts);
        }
        let drawn = self.draw(left);
        let free = self.free.get_mut(external).ok_or(NatDrop::NoPorts)?;
        let block = free.swap_remove(drawn);
        self.give_block(number, block, note);
        Ok(())
    }

    /// Adds a block to those of a host, which has space for it.
    fn give_block(&mut self, number: u32, block: u16, note: &mut impl FnMut(BlockEvent)) {
        let Some(host) = self.hosts.get_mut(number as usize) else {
            return;
        };
        if let Some(place) = host.blocks.get_mut(usize::from(host.count)) {
            *place = block;
        }
        host.count += 1;
        let host = *host;
        note(self.event(true, &host, block));
    }

    fn event(&self, is_assigned: bool, host: &Host, block: u16) -> BlockEvent {
        let external = self.externals.get(usize::from(host.external));
        let (first_port, last_port) = self.ports_of(block);
        BlockEvent {
            is_assigned,
            host: Ipv4Addr::from_bits(host.address),
            external: Ipv4Addr::from_bits(external.copied().unwrap_or(0)),
            first_port,
            last_port,
        }
    }

    const fn ports_of(&self, block: u16) -> (u16, u16) {
        let first = self
            .first_port
            .wrapping_add(block.wrapping_mul(self.block_size));
        (first, first.wrapping_add(self.block_size - 1))
    }

    /// Takes a free port out of the blocks of a host: one of the parity of the inside port if there is one (RFC 4787, REQ-4).
    fn take_of(&mut self, number: u32, protocol: NatProtocol, internal: u16) -> Option<Port> {
        let host = *self.hosts.get(number as usize)?;
        let size = usize::from(self.block_size);
        let start = self.draw(size);
        let blocks = host.blocks.get(..usize::from(host.count))?;
        for has_parity in [true, false] {
            for block in blocks {
                let at = usize::from(host.external) * self.blocks + usize::from(*block);
                if self.used.get(at)?[protocol as usize] >= self.block_size {
                    continue;
                }
                let (first, _) = self.ports_of(*block);
                let free = (0..size)
                    .map(|step| first + ((start + step) % size) as u16)
                    .find(|port| {
                        (port % 2 == internal % 2) == has_parity
                            && self.mapping(host.external, protocol, *port).is_none()
                    });
                if let Some(port) = free {
                    self.used.get_mut(at)?[protocol as usize] += 1;
                    let address = *self.externals.get(usize::from(host.external))?;
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

    /// Returns a port of a host. An unused block goes back to the pool, and a host without blocks is forgotten.
    pub(super) fn release(
        &mut self,
        number: u32,
        protocol: NatProtocol,
        port: u16,
        note: &mut impl FnMut(BlockEvent),
    ) {
        let Some(host) = self.hosts.get(number as usize).copied() else {
            return;
        };
        let block = port.wrapping_sub(self.first_port) / self.block_size;
        let at = usize::from(host.external) * self.blocks + usize::from(block);
        let Some(used) = self.used.get_mut(at) else {
            return;
        };
        used[protocol as usize] = used[protocol as usize].saturating_sub(1);
        if *used != [0; PROTOCOLS] {
            return;
        }
        self.remove_block(number, block);
        let is_reserved = self.reserved.get(at).is_some_and(|count| *count > 0);
        if let Some(free) = self.free.get_mut(usize::from(host.external))
            && !is_reserved
        {
            free.push(block);
        }
        note(self.event(false, &host, block));
        if host.count == 1 {
            self.host_index.remove(self.host_hash(host.address), number);
            // Has space for all hosts.
            self.free_hosts.push(number);
        }
    }

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
