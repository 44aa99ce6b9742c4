// SPDX-License-Identifier: Apache-2.0
//! What bounds the table of neighbours: places, packets that wait, and questions (RFC 6583, section 7).

use std::time::Duration;

use super::State;
use super::table::{Entry, Key, Neighbours};
use crate::neighbour::Action;

/// What a neighbour is worth. When the table is full one takes the place of another that is worth no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Worth {
    /// It spoke to us, and has answered no question: anybody can make up any number of these.
    Unconfirmed,
    /// Packets are for it, and it has not answered yet.
    AskedFor,
    /// It has answered. Only what an operator sets takes its place: a scan must not cost neighbours that are in use.
    Confirmed,
    /// An operator set it.
    Set,
}

impl Worth {
    const fn of<P>(entry: &Entry<P>) -> Self {
        match entry.state {
            State::Permanent => Self::Set,
            State::Incomplete => Self::AskedFor,
            _ if entry.confirmed => Self::Confirmed,
            _ => Self::Unconfirmed,
        }
    }

    /// Whether one of this worth takes the place of another.
    fn displaces(self, other: Self) -> bool {
        match self {
            Self::Unconfirmed | Self::AskedFor => other <= self,
            Self::Confirmed | Self::Set => other < self,
        }
    }
}

impl<P> Neighbours<P> {
    /// Puts a neighbour into the order of worth, or where it belongs by now.
    pub(super) fn rank(&mut self, key: Key) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        if let Some((worth, heard)) = entry.ranked.take() {
            self.ranks.remove(&(worth, heard, key));
        }
        let worth = Worth::of(entry);
        if worth != Worth::Set {
            entry.ranked = Some((worth, entry.heard));
            self.ranks.insert((worth, entry.heard, key));
        }
    }

    /// Makes room for one of this worth, at the cost of another if need be; false when there is none.
    pub(super) fn make_room(&mut self, worth: Worth, out: &mut Vec<Action<P>>) -> bool {
        if self.entries.len() < self.limits.neighbours {
            return true;
        }
        match self.ranks.first().copied() {
            Some((other, _, (interface, address))) if worth.displaces(other) => {
                self.counts.evicted += 1;
                self.remove(interface, address, out);
                true
            }
            _ => {
                self.counts.no_room += 1;
                false
            }
        }
    }

    /// Keeps a packet until the neighbour is found. The oldest one gives way, since its sender has given it up first (RFC
    /// 1122, section 2.3.2.2).
    pub(super) fn wait(&mut self, key: Key, packet: P) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let is_full =
            entry.waiting.len() >= self.limits.waiting || self.held >= self.limits.waiting_in_all;
        if is_full {
            self.counts.overflowed += 1;
            if entry.waiting.pop_front().is_none() {
                return;
            }
            self.held -= 1;
        }
        entry.waiting.push_back(packet);
        self.held += 1;
    }

    /// Whether a question for a neighbour that is not known may be sent.
    pub(super) fn may_ask(&mut self, now: Duration) -> bool {
        let may = self.rate.take(now);
        self.counts.not_asked += u64::from(!may);
        may
    }
}

/// So many a second, and as many at once.
#[derive(Debug)]
pub(super) struct Rate {
    per_second: u64,
    /// Millionths.
    tokens: u64,
    filled: Duration,
}

impl Rate {
    pub(super) fn new(per_second: u32) -> Self {
        let per_second = u64::from(per_second);
        Self {
            per_second,
            tokens: per_second * 1_000_000,
            filled: Duration::ZERO,
        }
    }

    fn take(&mut self, now: Duration) -> bool {
        let since = now.saturating_sub(self.filled).as_micros() as u64;
        // Parts of a microsecond count the next time.
        self.filled += Duration::from_micros(since);
        let more = since.saturating_mul(self.per_second);
        let most = self.per_second * 1_000_000;
        self.tokens = self.tokens.saturating_add(more).min(most);
        let may = self.tokens >= 1_000_000;
        if may {
            self.tokens -= 1_000_000;
        }
        may
    }
}
