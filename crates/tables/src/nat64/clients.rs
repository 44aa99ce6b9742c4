// SPDX-License-Identifier: Apache-2.0
//! Numbers of IPv6 clients. A client has one as long as it has port blocks or, as a host of NAT66, static forwards.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::net::Ipv6Addr;

use crate::arena::{NoMemory, zeroed};
use crate::changes::ApplyError;
use crate::hash_index::Index;
use crate::nat::{BlockEvent, CLIENT_NUMBERS, MappingChange, is_client_number};

/// A client.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[repr(C)]
struct Client {
    /// The two halves of its address.
    address: [u64; 2],
    /// Port blocks.
    blocks: u16,
    /// Static forwards to it.
    forwards: u16,
    /// 1 in a used entry.
    is_used: u32,
}

impl Client {
    /// Returns true if nothing requires the number of the client.
    const fn is_idle(&self) -> bool {
        self.blocks == 0 && self.forwards == 0
    }
}

#[expect(clippy::cast_possible_truncation, reason = "both halves count")]
const fn halves(address: u128) -> [u64; 2] {
    [(address >> 64) as u64, address as u64]
}

/// All clients, by address and by number.
#[derive(Debug)]
pub(crate) struct Clients {
    clients: Box<[Client]>,
    index: Index,
    /// Free entries. The one that was freed last is used last.
    free: VecDeque<u32>,
    /// A client that may have no port block: the last one that has returned all. One packet may return the last block of a client, with an
    /// expired mapping, and assign it another.
    idle: Option<u32>,
    /// Another one: the newest. It gets its first block after the former client has returned that block, with a mapping of an active switch.
    newest: Option<u32>,
    /// Secret of the hash, so that no host can choose addresses of one bucket.
    random: RandomState,
}

impl Clients {
    pub(crate) fn new(clients_max: u32) -> Result<Self, NoMemory> {
        let mut clients = zeroed::<Client>(clients_max as usize)?;
        // The kernel provides the pages now, and not when packets arrive.
        clients.fill(Client::default());
        Ok(Self {
            clients,
            index: Index::new(clients_max)?,
            free: (0..clients_max).collect(),
            idle: None,
            newest: None,
            random: RandomState::new(),
        })
    }

    /// Returns the memory of the tables, octets.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "octets of memory that exists"
    )]
    pub(crate) fn octets(&self) -> usize {
        size_of_val(&self.clients[..]) + self.index.octets()
    }

    /// Returns the number of clients with port blocks or static forwards.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "free and idle clients are some of the clients"
    )]
    pub(crate) fn len(&self) -> usize {
        let is_idle = |entry: u32| self.get(entry).is_some_and(Client::is_idle);
        let newest = self.newest.filter(|newest| self.idle != Some(*newest));
        let idle = self.idle.into_iter().chain(newest);
        let idle = idle.filter(|entry| is_idle(*entry)).count();
        self.clients.len() - self.free.len() - idle
    }

    fn get(&self, entry: u32) -> Option<&Client> {
        let client = self.clients.get(entry as usize)?;
        (client.is_used != 0).then_some(client)
    }

    fn hash(&self, address: [u64; 2]) -> u64 {
        self.random.hash_one(address)
    }

    fn find(&self, address: [u64; 2]) -> Option<u32> {
        let is_client = |entry| self.get(entry).is_some_and(|one| one.address == address);
        self.index.find(self.hash(address), is_client)
    }

    /// Returns the number of a client.
    pub(crate) fn number_of(&self, address: u128) -> Option<u32> {
        Some(CLIENT_NUMBERS | self.find(halves(address))?)
    }

    /// Returns the address of a client by its number.
    pub(crate) fn address_of(&self, number: u32) -> Option<u128> {
        if !is_client_number(number) {
            return None;
        }
        let [high, low] = self.get(number ^ CLIENT_NUMBERS)?.address;
        Some(u128::from(high) << 64 | u128::from(low))
    }

    /// Returns the number of a client, and adds it if necessary. `None` if the table is full. A client that then gets no port block is
    /// removed by the next call.
    pub(crate) fn begin(&mut self, address: u128) -> Option<u32> {
        for entry in [self.idle.take(), self.newest.take()].into_iter().flatten() {
            if self.get(entry).is_some_and(Client::is_idle) {
                self.remove(entry);
            }
        }
        let address = halves(address);
        if let Some(entry) = self.find(address) {
            return Some(CLIENT_NUMBERS | entry);
        }
        let entry = *self.free.front()?;
        if !self.index.insert(self.hash(address), entry) {
            return None;
        }
        *self.clients.get_mut(entry as usize)? = Client {
            address,
            is_used: 1,
            ..Client::default()
        };
        self.free.pop_front();
        self.newest = Some(entry);
        Some(CLIENT_NUMBERS | entry)
    }

    /// Returns the number of the client of a mapping of an active switch. A new mapping adds the client if necessary; `None` if the mapping
    /// has ended and the client has no number.
    ///
    /// # Errors
    /// [`ApplyError::Full`].
    pub(crate) fn number_for<S>(
        &mut self,
        change: &MappingChange<S>,
        address: u128,
    ) -> Result<Option<u32>, ApplyError> {
        match change {
            MappingChange::Present(_) => self.begin(address).map(Some).ok_or(ApplyError::Full),
            MappingChange::Ended(_) => Ok(self.number_of(address)),
        }
    }

    /// Returns the number of a client with one more static forward, and adds it if necessary. `None` if the table is full. Each call
    /// requires one of [`Self::release`].
    pub(crate) fn hold(&mut self, address: u128) -> Option<u32> {
        let number = self.begin(address)?;
        let client = self.clients.get_mut((number ^ CLIENT_NUMBERS) as usize)?;
        client.forwards = client.forwards.checked_add(1)?;
        Some(number)
    }

    /// Notes that a client has one static forward less.
    pub(crate) fn release(&mut self, address: u128) {
        let Some(entry) = self.find(halves(address)) else {
            return;
        };
        let Some(client) = self.clients.get_mut(entry as usize) else {
            return;
        };
        client.forwards = client.forwards.saturating_sub(1);
        if client.is_idle() {
            self.remove(entry);
        }
    }

    /// Keeps a client without port blocks for the next event, and removes the former one. The newest one stays: its event may follow.
    fn keep_idle(&mut self, entry: u32) {
        let former = self.idle.replace(entry);
        let is_kept = |former: u32| former == entry || self.newest == Some(former);
        if let Some(former) = former.filter(|former| !is_kept(*former))
            && self.get(former).is_some_and(Client::is_idle)
        {
            self.remove(former);
        }
    }

    fn remove(&mut self, entry: u32) {
        let Some(client) = self.get(entry).copied() else {
            return;
        };
        self.index.remove(self.hash(client.address), entry);
        if let Some(place) = self.clients.get_mut(entry as usize) {
            *place = Client::default();
        }
        // Has space for all clients.
        self.free.push_back(entry);
    }

    /// Notes that a client got a port block, or returned one. Returns the address of the client; `None` for an IPv4 host.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "a client has at most HOST_BLOCKS_MAX blocks"
    )]
    pub(crate) fn note(&mut self, event: &BlockEvent) -> Option<Ipv6Addr> {
        let number = event.host.to_bits();
        let address = self.address_of(number)?;
        let entry = number ^ CLIENT_NUMBERS;
        let client = self.clients.get_mut(entry as usize)?;
        if event.is_assigned {
            client.blocks += 1;
        } else {
            client.blocks = client.blocks.saturating_sub(1);
            if client.is_idle() {
                self.keep_idle(entry);
            }
        }
        Some(Ipv6Addr::from_bits(address))
    }
}
