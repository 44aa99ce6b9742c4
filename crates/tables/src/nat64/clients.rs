// SPDX-License-Identifier: Apache-2.0
//! Numbers of IPv6 clients. A client has one as long as it has port blocks.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::net::Ipv6Addr;

use crate::arena::{NoMemory, zeroed};
use crate::hash_index::Index;
use crate::nat::{BlockEvent, CLIENT_NUMBERS, is_client_number};

/// A client.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[repr(C)]
struct Client {
    /// The two halves of its address.
    address: [u64; 2],
    /// Port blocks.
    blocks: u32,
    /// 1 in a used entry.
    is_used: u32,
}

const fn halves(address: u128) -> [u64; 2] {
    [(address >> 64) as u64, address as u64]
}

/// All clients, by address and by number.
#[derive(Debug)]
pub(super) struct Clients {
    clients: Box<[Client]>,
    index: Index,
    /// Free entries. The one that was freed last is used last.
    free: VecDeque<u32>,
    /// The newest client, which may get no port block.
    newest: Option<u32>,
    /// Secret of the hash, so that no host can choose addresses of one bucket.
    random: RandomState,
}

impl Clients {
    pub(super) fn new(clients_max: u32) -> Result<Self, NoMemory> {
        let mut clients = zeroed::<Client>(clients_max as usize)?;
        // The kernel provides the pages now, and not when packets arrive.
        clients.fill(Client::default());
        Ok(Self {
            clients,
            index: Index::new(clients_max)?,
            free: (0..clients_max).collect(),
            newest: None,
            random: RandomState::new(),
        })
    }

    /// Returns the memory of the tables, octets.
    pub(super) fn octets(&self) -> usize {
        size_of_val(&self.clients[..]) + self.index.octets()
    }

    /// Returns the number of clients.
    pub(super) fn len(&self) -> usize {
        self.clients.len() - self.free.len()
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
    pub(super) fn number_of(&self, address: u128) -> Option<u32> {
        Some(CLIENT_NUMBERS | self.find(halves(address))?)
    }

    /// Returns the address of a client by its number.
    pub(super) fn address_of(&self, number: u32) -> Option<u128> {
        if !is_client_number(number) {
            return None;
        }
        let [high, low] = self.get(number ^ CLIENT_NUMBERS)?.address;
        Some(u128::from(high) << 64 | u128::from(low))
    }

    /// Returns the number of a client, and adds it if necessary. `None` if the table is full. A client that then gets no port block is
    /// removed by the next call.
    pub(super) fn begin(&mut self, address: u128) -> Option<u32> {
        if let Some(newest) = self.newest.take()
            && self.get(newest).is_some_and(|client| client.blocks == 0)
        {
            self.remove(newest);
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
            blocks: 0,
            is_used: 1,
        };
        self.free.pop_front();
        self.newest = Some(entry);
        Some(CLIENT_NUMBERS | entry)
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
    pub(super) fn note(&mut self, event: &BlockEvent) -> Option<Ipv6Addr> {
        let number = event.host.to_bits();
        let address = self.address_of(number)?;
        let entry = number ^ CLIENT_NUMBERS;
        let client = self.clients.get_mut(entry as usize)?;
        if event.is_assigned {
            client.blocks += 1;
        } else {
            client.blocks = client.blocks.saturating_sub(1);
            if client.blocks == 0 {
                self.remove(entry);
            }
        }
        Some(Ipv6Addr::from_bits(address))
    }
}
