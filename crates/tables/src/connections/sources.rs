// SPDX-License-Identifier: Apache-2.0
//! Numbers of connections that each source has begun, for limits.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};

use super::names::{Refusal, State};
use super::settings::SourceLimits;
use crate::arena::NoMemory;
use crate::hash_index::Index;

/// A source address in a zone.
pub(super) type SourceId = (IpAddr, u16);

/// A source with connections.
#[derive(Clone, Copy, Debug)]
struct Source {
    id: SourceId,
    /// Connections; 0 in an unused entry.
    count: u32,
    /// Half-open ones among them.
    half_open: u32,
}

/// All sources that have connections. Never more than there are connections.
#[derive(Debug)]
pub(super) struct Sources {
    limits: SourceLimits,
    sources: Vec<Source>,
    index: Index,
    free: Vec<u32>,
    /// Secret of the hash, so that no sender can choose sources of one bucket.
    secret: RandomState,
}

impl Sources {
    /// Creates the table for so many connections.
    pub(super) fn new(limits: SourceLimits, entries_max: u32) -> Result<Self, NoMemory> {
        let unused = Source {
            id: (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
            count: 0,
            half_open: 0,
        };
        let count = entries_max as usize;
        let mut sources = Vec::new();
        let reserved = sources.try_reserve_exact(count);
        reserved.map_err(|_| NoMemory(count.saturating_mul(size_of::<Source>())))?;
        sources.resize(count, unused);
        Ok(Self {
            limits,
            sources,
            index: Index::new(entries_max)?,
            free: (0..entries_max).rev().collect(),
            secret: RandomState::new(),
        })
    }

    /// Returns the memory of the table, octets.
    pub(super) fn octets(&self) -> usize {
        let free = self.free.capacity().saturating_mul(size_of::<u32>());
        size_of_val(self.sources.as_slice())
            .saturating_add(self.index.octets())
            .saturating_add(free)
    }

    fn find(&self, id: SourceId) -> Option<u32> {
        let is_source = |number: u32| {
            let source = self.sources.get(number as usize);
            source.is_some_and(|one| one.count > 0 && one.id == id)
        };
        self.index.find(self.secret.hash_one(id), is_source)
    }

    /// Checks that a source may begin another connection, which is half-open.
    ///
    /// # Errors
    /// [`Refusal::SourceFull`], [`Refusal::SourceHalfOpen`].
    pub(super) fn check(&self, id: SourceId) -> Result<(), Refusal> {
        let number = self.find(id);
        match number.and_then(|number| self.sources.get(number as usize)) {
            Some(one) if one.count >= self.limits.connections => Err(Refusal::SourceFull),
            Some(one) if one.half_open >= self.limits.half_open => Err(Refusal::SourceHalfOpen),
            _ => Ok(()),
        }
    }

    /// Counts a new connection. There are at least as many entries as connections.
    pub(super) fn add(&mut self, id: SourceId, state: State) {
        let half_open = u32::from(state.is_half_open());
        if let Some(number) = self.find(id) {
            if let Some(source) = self.sources.get_mut(number as usize) {
                source.count = source.count.saturating_add(1);
                source.half_open = source.half_open.saturating_add(half_open);
            }
            return;
        }
        let Some(number) = self.free.last().copied() else {
            return;
        };
        // A source without entry is not limited, which does not happen before the index is full.
        if self.index.insert(self.secret.hash_one(id), number)
            && let Some(source) = self.sources.get_mut(number as usize)
        {
            self.free.pop();
            *source = Source {
                id,
                count: 1,
                half_open,
            };
        }
    }

    /// Notes that a connection enters another state.
    pub(super) fn change(&mut self, id: SourceId, former: State, next: State) {
        if former.is_half_open() == next.is_half_open() {
            return;
        }
        let number = self.find(id);
        let Some(source) = number.and_then(|number| self.sources.get_mut(number as usize)) else {
            return;
        };
        source.half_open = if next.is_half_open() {
            source.half_open.saturating_add(1)
        } else {
            source.half_open.saturating_sub(1)
        };
    }

    /// Counts a connection that has ended in this state.
    pub(super) fn remove(&mut self, id: SourceId, state: State) {
        let Some(number) = self.find(id) else {
            return;
        };
        let Some(source) = self.sources.get_mut(number as usize) else {
            return;
        };
        source.count = source.count.saturating_sub(1);
        let half_open = u32::from(state.is_half_open());
        source.half_open = source.half_open.saturating_sub(half_open);
        if source.count == 0 {
            self.index.remove(self.secret.hash_one(id), number);
            // Has space for all sources.
            self.free.push(number);
        }
    }
}
