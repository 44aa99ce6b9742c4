// SPDX-License-Identifier: Apache-2.0
//! One virtual endpoint: its backends and connections.

mod standby;

use std::hash::{BuildHasher, RandomState};
use std::net::{SocketAddr, SocketAddrV4};

use quietwire_base::random::mix;

use super::backend::{BackendSet, BackendUse};
use super::endpoint::BalanceEndpoint;
use super::saved::BalancedChange;
use crate::arena::{NoMemory, zeroed};
use crate::changes::ChangeRing;
use crate::drops::RouterDrop;
use crate::hash_index::Index;
use crate::named;
use crate::nat::NatProtocol;

/// Maximum number of connections of a virtual endpoint.
pub const BALANCED_MAX: u32 = 1 << 24;
/// Entries that are checked for one to replace when the table is full.
const REPLACE_STEPS: usize = 64;

/// Timeouts, seconds. TCP: RFC 5382, REQ-5. UDP: RFC 4787, REQ-5.
const EMBRYONIC_S: u32 = 60;
const OPEN_S: u32 = 7440;
/// Timeout of open TCP connections if backends answer directly: the switch does not receive their FIN and RST segments.
const OPEN_DIRECT_S: u32 = 900;
const CLOSING_S: u32 = 240;
const UDP_S: u32 = 300;

/// TCP control bits (RFC 9293, section 3.1).
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

named! {
    /// Reason for dropping a packet to a virtual endpoint.
    pub enum BalanceDrop {
        /// No backend is up.
        NoBackend = "no_backend", "no backend is up";
        /// The table is full of established connections.
        TableFull = "table_full", "table of connections full";
    }
}

impl BalanceDrop {
    /// Returns the reason as a drop of the router.
    #[must_use]
    pub const fn router_drop(self) -> RouterDrop {
        match self {
            Self::NoBackend => RouterDrop::BalancerNoBackend,
            Self::TableFull => RouterDrop::BalancerTableFull,
        }
    }
}

/// Settings of a virtual endpoint, which is of one IP version, or [`SocketAddr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalanceSettings<E = SocketAddrV4> {
    /// Protocol: TCP or UDP.
    pub protocol: NatProtocol,
    /// The virtual endpoint.
    pub endpoint: E,
    /// Maximum number of connections.
    pub connections_max: u32,
    /// Packets keep the virtual endpoint as their destination on the way to a backend, which answers clients directly.
    pub is_direct: bool,
}

impl BalanceSettings<SocketAddr> {
    /// Returns settings of an IP version; `None` for those of the other.
    #[must_use]
    pub fn of_version<E: BalanceEndpoint>(&self) -> Option<BalanceSettings<E>> {
        Some(BalanceSettings {
            protocol: self.protocol,
            endpoint: E::of_socket(self.endpoint)?,
            connections_max: self.connections_max,
            is_direct: self.is_direct,
        })
    }
}

impl<E> BalanceSettings<E> {
    /// Returns the timeout of an established TCP connection, seconds.
    const fn tcp_open_s(&self) -> u32 {
        if self.is_direct {
            OPEN_DIRECT_S
        } else {
            OPEN_S
        }
    }
}

/// Error of creating a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BalanceError {
    /// Number of connections out of range.
    #[error("{0} connections are out of range (allowed: 1 to {BALANCED_MAX})")]
    Connections(u32),
    /// Out of memory.
    #[error(transparent)]
    Memory(#[from] NoMemory),
}

/// Counters of a virtual endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BalanceCounters {
    /// New connections.
    pub created: u64,
    /// Connections that went to another backend, because theirs is down.
    pub moved: u64,
    /// Connections that were not complete or were closed, and gave their space to others.
    pub replaced: u64,
    /// Dropped packets by reason.
    pub dropped: [u64; BalanceDrop::ALL.len()],
}

impl BalanceCounters {
    /// Adds the counts of another table.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "counts of 64 bits do not overflow"
    )]
    pub fn add(&mut self, other: &Self) {
        self.created += other.created;
        self.moved += other.moved;
        self.replaced += other.replaced;
        for (count, more) in self.dropped.iter_mut().zip(other.dropped) {
            *count += more;
        }
    }
}

/// State of a connection, from its packets.
const UNUSED: u8 = 0;
/// The backend has not answered, or the client has not sent a further packet then: spoofed packets come no further.
const EMBRYONIC: u8 = 1;
const OPEN: u8 = 2;
/// TCP: one side has closed or reset it.
const CLOSING: u8 = 3;

/// A connection.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[repr(C)]
struct Entry<A> {
    client: A,
    backend: A,
    client_port: u16,
    backend_port: u16,
    /// First second at which the connection has expired.
    expires_at: u32,
    /// Set of backends that the connection was last checked with.
    generation: u32,
    state: u8,
    /// 1 once the backend has answered, or if answers do not pass the switch.
    is_answered: u8,
    reserved: [u8; 2],
}

const _: () = assert!(size_of::<Entry<u32>>() == 24 && size_of::<Entry<u128>>() == 48);

impl<A: Copy> Entry<A> {
    #[inline(always)]
    fn client<E: BalanceEndpoint<Address = A>>(&self) -> E {
        E::of_parts(self.client, self.client_port)
    }

    #[inline(always)]
    fn backend<E: BalanceEndpoint<Address = A>>(&self) -> E {
        E::of_parts(self.backend, self.backend_port)
    }

    const fn is_live(&self, now: u32) -> bool {
        self.state != UNUSED && self.expires_at > now
    }
}

/// A virtual endpoint on a forwarding thread.
#[derive(Debug)]
pub struct Balancer<E: BalanceEndpoint = SocketAddrV4> {
    settings: BalanceSettings<E>,
    set: BackendSet<E>,
    generation: u32,
    entries: Box<[Entry<E::Address>]>,
    index: Index,
    free: Vec<u32>,
    /// Secret of the index, so that no client can choose connections of one bucket.
    secret: [u64; 2],
    now: u32,
    /// Next entry that [`Balancer::expire`] reads.
    hand: usize,
    /// Changes for a standby, if they are wanted.
    changes: Option<Box<ChangeRing<BalancedChange<E>>>>,
    counters: BalanceCounters,
}

impl<E: BalanceEndpoint> Balancer<E> {
    /// Creates the table, without connections.
    ///
    /// # Errors
    /// [`BalanceError`].
    pub fn new(settings: &BalanceSettings<E>, set: BackendSet<E>) -> Result<Self, BalanceError> {
        let count = settings.connections_max;
        if !(1..=BALANCED_MAX).contains(&count) {
            return Err(BalanceError::Connections(count));
        }
        let mut entries = zeroed::<Entry<E::Address>>(count as usize)?;
        // The kernel provides the pages now, and not when packets arrive.
        entries.fill(Entry::default());
        Ok(Self {
            settings: *settings,
            set,
            generation: 0,
            entries,
            index: Index::new(count)?,
            free: (0..count).rev().collect(),
            secret: std::array::from_fn(|n| RandomState::new().hash_one(n)),
            now: 0,
            hand: 0,
            changes: None,
            counters: BalanceCounters::default(),
        })
    }

    /// Creates one without space for connections, to give [`super::Balancers::inherit`] new backends for those of a former one.
    ///
    /// # Errors
    /// [`BalanceError::Memory`].
    pub fn without_space(
        settings: &BalanceSettings<E>,
        set: BackendSet<E>,
    ) -> Result<Self, BalanceError> {
        let smallest = BalanceSettings {
            connections_max: 1,
            ..*settings
        };
        let balancer = Self::new(&smallest, set)?;
        Ok(Self {
            settings: *settings,
            ..balancer
        })
    }

    /// Returns the settings.
    #[must_use]
    pub const fn settings(&self) -> &BalanceSettings<E> {
        &self.settings
    }

    /// Returns the number of connections, including expired ones that [`Balancer::expire`] has not yet removed.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "each free entry is one of the entries"
    )]
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Returns true if there are no connections.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the backends and their connections.
    #[must_use]
    pub fn backends(&self) -> &[BackendUse<E>] {
        &self.set.backends
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &BalanceCounters {
        &self.counters
    }

    /// Exchanges the connections with those of another one, and keeps the backends. Connections stay with backends that both have and that
    /// are not down. Allocates nothing.
    pub(super) fn exchange(&mut self, other: &mut Self) {
        std::mem::swap(self, other);
        std::mem::swap(&mut self.set, &mut other.set);
        self.generation = self.generation.wrapping_add(1);
        for one in &mut self.set.backends {
            let former = other.set.position(one.backend.endpoint);
            if let Some(former) = former.and_then(|at| other.set.backends.get(at)) {
                one.connections = former.connections;
                one.packets_in = former.packets_in;
                one.packets_out = former.packets_out;
            }
        }
    }

    #[inline]
    fn hash(&self, client: E) -> u64 {
        client.keyed_hash(self.secret)
    }

    #[inline]
    fn find(&self, client: E) -> Option<u32> {
        let is_entry = |number: u32| {
            self.entries
                .get(number as usize)
                .is_some_and(|entry| entry.client::<E>() == client)
        };
        self.index.find(self.hash(client), is_entry)
    }

    /// Returns the backend of a client's connection, if there is one.
    #[must_use]
    pub fn backend_of(&self, client: E) -> Option<E> {
        let entry = self.entries.get(self.find(client)? as usize)?;
        entry.is_live(self.now).then(|| entry.backend())
    }

    /// Returns the backend that the next packet of a client goes to, and begins nothing.
    #[must_use]
    pub fn next_backend(&self, client: E) -> Option<E> {
        let current = self.backend_of(client).filter(|one| self.set.keeps(*one));
        current.or_else(|| self.chosen(client))
    }

    /// Returns the backend for a packet of a client with these TCP control bits, and begins its connection if it is new. Counts the packet.
    ///
    /// # Errors
    /// The reason to drop the packet.
    #[expect(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "each reason has its count, of 64 bits"
    )]
    pub fn to_backend(&mut self, client: E, flags: u8, now: u32) -> Result<E, BalanceDrop> {
        self.now = self.now.max(now);
        let found = self.try_to_backend(client, flags);
        if let Err(reason) = found {
            self.counters.dropped[reason as usize] += 1;
        }
        found
    }

    fn try_to_backend(&mut self, client: E, flags: u8) -> Result<E, BalanceDrop> {
        let is_opening = flags & (SYN | ACK) == SYN;
        if let Some(number) = self.find(client) {
            let entry = self.entries.get(number as usize).copied();
            let entry = entry.unwrap_or_default();
            let is_over = entry.state == CLOSING && is_opening;
            if entry.is_live(self.now) && !is_over {
                return self.apply_further(number, entry, flags);
            }
            self.remove(number);
        }
        let backend = self.chosen(client).ok_or(BalanceDrop::NoBackend)?;
        self.create(client, backend, flags)?;
        self.count_in(backend);
        Ok(backend)
    }

    #[inline]
    fn chosen(&self, client: E) -> Option<E> {
        self.set.choose(mix(client.identity()))
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "counts of 64 bits do not overflow"
    )]
    #[inline]
    fn count_in(&mut self, backend: E) {
        if let Some(one) = self.set.find_mut(backend) {
            one.packets_in += 1;
        }
    }

    /// Applies a further packet of a client.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "counts of 64 bits do not overflow, and there are fewer connections than 2^32"
    )]
    #[inline]
    fn apply_further(
        &mut self,
        number: u32,
        entry: Entry<E::Address>,
        flags: u8,
    ) -> Result<E, BalanceDrop> {
        let mut backend: E = entry.backend();
        let (former_state, former_backend) = (entry.state, backend);
        if entry.generation != self.generation && !self.set.keeps(backend) {
            let former = backend;
            backend = self.chosen(entry.client()).ok_or(BalanceDrop::NoBackend)?;
            self.counters.moved += 1;
            if let Some(one) = self.set.find_mut(former) {
                one.connections = one.connections.saturating_sub(1);
            }
            if let Some(one) = self.set.find_mut(backend) {
                one.connections += 1;
            }
        }
        let (generation, now) = (self.generation, self.now);
        if let Some(entry) = self.entries.get_mut(number as usize) {
            (entry.backend, entry.backend_port) = backend.parts();
            entry.generation = generation;
            apply_flags(entry, &self.settings, flags, now);
            let is_changed = entry.state != former_state || backend != former_backend;
            if is_changed {
                self.note_change(number);
            }
        }
        self.count_in(backend);
        Ok(backend)
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "counts of 64 bits do not overflow, and there are fewer connections than 2^32"
    )]
    fn create(&mut self, client: E, backend: E, flags: u8) -> Result<(), BalanceDrop> {
        if self.free.is_empty() {
            self.make_space();
        }
        let number = *self.free.last().ok_or(BalanceDrop::TableFull)?;
        if !self.index.insert(self.hash(client), number) {
            return Err(BalanceDrop::TableFull);
        }
        self.free.pop();
        let (client, client_port) = client.parts();
        let (backend_address, backend_port) = backend.parts();
        let mut entry = Entry {
            client,
            client_port,
            backend: backend_address,
            backend_port,
            generation: self.generation,
            state: EMBRYONIC,
            ..Entry::default()
        };
        apply_flags(&mut entry, &self.settings, flags, self.now);
        // The first packet does not complete a connection, whatever its flags.
        entry.is_answered = u8::from(self.settings.is_direct);
        if let Some(place) = self.entries.get_mut(number as usize) {
            *place = entry;
        }
        self.counters.created += 1;
        if let Some(one) = self.set.find_mut(backend) {
            one.connections += 1;
        }
        Ok(())
    }

    /// Removes one of the next entries that has expired, is not complete or is closed.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "entries have numbers of 32 bits, and counts 64"
    )]
    #[cold]
    fn make_space(&mut self) {
        let capacity = self.entries.len();
        for _ in 0..REPLACE_STEPS.min(capacity) {
            let number = self.hand;
            self.hand = (self.hand + 1) % capacity;
            let Some(entry) = self.entries.get(number) else {
                return;
            };
            let is_live = entry.is_live(self.now);
            if !is_live || entry.state != OPEN {
                self.counters.replaced += u64::from(is_live);
                self.remove(number as u32);
                return;
            }
        }
    }

    /// Returns true if a packet from a backend to a client, with these TCP control bits, is of a connection to the virtual endpoint. Counts
    /// the packet.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "seconds since the start are far below 2^32, and counts of 64 bits do not overflow"
    )]
    pub fn to_client(&mut self, backend: E, client: E, flags: u8, now: u32) -> bool {
        self.now = self.now.max(now);
        let now = self.now;
        let Some(number) = self.find(client) else {
            return false;
        };
        let entry = self.entries.get_mut(number as usize);
        let entry = entry.filter(|one| one.is_live(now) && one.backend::<E>() == backend);
        let Some(entry) = entry else {
            return false;
        };
        if flags & RST == 0 {
            entry.is_answered = 1;
        }
        let is_closing = self.settings.protocol == NatProtocol::Tcp && flags & (FIN | RST) != 0;
        let closes = is_closing && entry.state == OPEN;
        if closes {
            entry.state = CLOSING;
            entry.expires_at = now + CLOSING_S + 1;
            self.note_change(number);
        }
        if let Some(one) = self.set.find_mut(backend) {
            one.packets_out += 1;
        }
        true
    }

    fn remove(&mut self, number: u32) {
        let Some(place) = self.entries.get_mut(number as usize) else {
            return;
        };
        let entry = std::mem::take(place);
        if entry.state == UNUSED {
            return;
        }
        self.note_end(&entry);
        self.index.remove(self.hash(entry.client()), number);
        // Has space for all entries.
        self.free.push(number);
        if let Some(one) = self.set.find_mut(entry.backend()) {
            one.connections = one.connections.saturating_sub(1);
        }
    }

    /// Removes expired connections: reads the next `budget` entries of the table, in a circle.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "entries have numbers of 32 bits"
    )]
    pub fn expire(&mut self, now: u32, budget: usize) {
        self.now = self.now.max(now);
        let capacity = self.entries.len();
        for _ in 0..budget.min(capacity) {
            let number = self.hand;
            self.hand = (self.hand + 1) % capacity;
            let entry = self.entries.get(number);
            if entry.is_some_and(|one| one.state != UNUSED && !one.is_live(self.now)) {
                self.remove(number as u32);
            }
        }
    }
}

/// Applies a packet of the client to the state of its connection, and begins its timeout again.
#[inline]
fn apply_flags<E: BalanceEndpoint>(
    entry: &mut Entry<E::Address>,
    settings: &BalanceSettings<E>,
    flags: u8,
    now: u32,
) {
    let flags = if settings.protocol == NatProtocol::Tcp {
        flags
    } else {
        0
    };
    entry.state = match entry.state {
        EMBRYONIC if entry.is_answered != 0 && flags & SYN == 0 => OPEN,
        state => state,
    };
    if entry.state == OPEN && flags & (FIN | RST) != 0 {
        entry.state = CLOSING;
    }
    let timeout_s = match (entry.state, settings.protocol) {
        (EMBRYONIC, _) => EMBRYONIC_S,
        (CLOSING, _) => CLOSING_S,
        (_, NatProtocol::Tcp) => settings.tcp_open_s(),
        _ => UDP_S,
    };
    entry.expires_at = now.saturating_add(timeout_s).saturating_add(1);
}
