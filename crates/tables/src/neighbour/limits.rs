// SPDX-License-Identifier: Apache-2.0
//! Limits of the table of neighbours: how many there can be, which of them gives way, how many questions a second.

use std::time::Duration;

/// Bounds of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Neighbours in all.
    pub neighbours: usize,
    /// Packets that wait for one.
    pub waiting: usize,
    /// Packets that wait for all of them.
    pub waiting_in_all: usize,
    /// Questions a second for neighbours that are not known, repeated ones too.
    pub asks_per_second: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            neighbours: 65_536,
            waiting: 16,
            waiting_in_all: 8_192,
            asks_per_second: 2_000,
        }
    }
}

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
    /// Whether one of this worth takes the place of another.
    pub(super) fn displaces(self, other: Self) -> bool {
        match self {
            Self::Unconfirmed | Self::AskedFor => other <= self,
            Self::Confirmed | Self::Set => other < self,
        }
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

    pub(super) fn take(&mut self, now: Duration) -> bool {
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
