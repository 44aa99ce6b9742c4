// SPDX-License-Identifier: Apache-2.0
//! What bounds the table of neighbours: places, packets that wait, and questions (RFC 6583, section 7).

use std::time::Duration;

use super::limits::Worth;
use super::table::{Entry, Key, Neighbours};
use super::{Action, State};

/// What a neighbour is worth by now.
const fn worth_of<P>(entry: &Entry<P>) -> Worth {
    match entry.state {
        State::Permanent => Worth::Set,
        State::Incomplete => Worth::AskedFor,
        _ if entry.confirmed => Worth::Confirmed,
        _ => Worth::Unconfirmed,
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
        let worth = worth_of(entry);
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
