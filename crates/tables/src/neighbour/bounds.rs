// SPDX-License-Identifier: Apache-2.0
//! Limits of the neighbour table: entries, waiting packets, and requests (RFC 6583, section 7).

use std::time::Duration;

use super::limits::EvictionRank;
use super::table::{Entry, Key, Neighbours};
use super::{Action, State};

/// Returns the current worth of a neighbour.
const fn eviction_rank_of<P>(entry: &Entry<P>) -> EvictionRank {
    match entry.state {
        State::Permanent => EvictionRank::Set,
        State::Incomplete => EvictionRank::Solicited,
        _ if entry.confirmed => EvictionRank::Confirmed,
        _ => EvictionRank::Unconfirmed,
    }
}

impl<P> Neighbours<P> {
    /// Updates the position of a neighbour in the order of worth.
    pub(super) fn rank(&mut self, key: Key) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        if let Some((eviction_rank, heard)) = entry.ranked.take() {
            self.ranks.remove(&(eviction_rank, heard, key));
        }
        let eviction_rank = eviction_rank_of(entry);
        if eviction_rank != EvictionRank::Set {
            entry.ranked = Some((eviction_rank, entry.heard));
            self.ranks.insert((eviction_rank, entry.heard, key));
        }
    }

    /// Makes space for a neighbour of this worth, if necessary by evicting another. Returns false if there is no space.
    pub(super) fn make_space(
        &mut self,
        eviction_rank: EvictionRank,
        out: &mut Vec<Action<P>>,
    ) -> bool {
        if self.entries.len() < self.limits.neighbours {
            return true;
        }
        match self.ranks.first().copied() {
            Some((other, _, (interface, address))) if eviction_rank.displaces(other) => {
                self.counts.evicted = self.counts.evicted.saturating_add(1);
                self.remove(interface, address, out);
                true
            }
            _ => {
                self.counts.no_space = self.counts.no_space.saturating_add(1);
                false
            }
        }
    }

    /// Holds a packet until the neighbour is resolved. If the queue is full, the oldest packet is dropped, since its sender times out first
    /// (RFC 1122, section 2.3.2.2).
    pub(super) fn wait(&mut self, key: Key, packet: P) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let is_full =
            entry.waiting.len() >= self.limits.waiting || self.held >= self.limits.waiting_in_all;
        if is_full {
            self.counts.overflowed = self.counts.overflowed.saturating_add(1);
            if entry.waiting.pop_front().is_none() {
                return;
            }
            self.held = self.held.saturating_sub(1);
        }
        entry.waiting.push_back(packet);
        self.held = self.held.saturating_add(1);
    }

    /// Returns true if the rate limit of an interface allows a request for an unknown neighbour.
    pub(super) fn may_ask(&mut self, now: Duration, interface: u16) -> bool {
        let may = self.rates.take(interface, now);
        self.counts.not_asked = self.counts.not_asked.saturating_add(u64::from(!may));
        may
    }
}
