// SPDX-License-Identifier: Apache-2.0
//! Flap detection. An address that moves between ports more often than a relocated station indicates a loop in the network, or a station
//! that uses another's address.

use std::sync::atomic::{AtomicU64, Ordering};

use quietwire_packet::{MacAddress, VlanId};

use super::hash::Hash;
use super::word::Key;

/// Maximum frequency of moves of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlapLimit {
    /// Number of moves within the window that are tolerated.
    pub moves: u32,
    /// Length of the window, which begins with the first move, seconds.
    pub window_s: u32,
}

impl Default for FlapLimit {
    /// Returns five moves in 180 seconds, as in RFC 7432, section 15.1.
    fn default() -> Self {
        Self {
            moves: 5,
            window_s: 180,
        }
    }
}

/// A flapping address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flapping {
    /// The address.
    pub address: MacAddress,
    /// Its VLAN; none in a bridge that knows none.
    pub vlan: Option<VlanId>,
    /// Moves in the current window.
    pub moves: u32,
    /// Seconds since the window began.
    pub since_s: u32,
}

/// Number of addresses watched at a time. A loop is visible in a sample of addresses as well as in all.
const WATCHED: usize = 1024;
/// Set in the key word of a record in use, so that every key differs from an empty record.
const USED: u64 = 1 << 63;

#[derive(Debug, Default)]
struct Record {
    key: AtomicU64,
    /// Start of the window, seconds, and moves since then. Two threads that see the same address move at the same time may count one move.
    state: AtomicU64,
}

/// Recent moves. A record belongs to one address until its window ends.
#[derive(Debug)]
pub(super) struct Moves {
    records: Box<[Record]>,
    limit: FlapLimit,
}

impl Moves {
    pub(super) fn new(limit: FlapLimit) -> Self {
        Self {
            records: (0..WATCHED).map(|_| Record::default()).collect(),
            limit,
        }
    }

    /// Counts a move. Returns true if it exceeds the limit.
    #[expect(clippy::cast_possible_truncation, reason = "any bits of the hash do")]
    pub(super) fn note(&self, key: Key, hash: Hash, now_s: u32) -> bool {
        let Some(record) = self.records.get(hash.folded() as usize % WATCHED) else {
            return false;
        };
        let me = key.number() | USED;
        let tenant = record.key.load(Ordering::Relaxed);
        let (since_s, moves) = unpack(record.state.load(Ordering::Relaxed));
        let over = now_s.wrapping_sub(since_s) > self.limit.window_s;
        if tenant != me && tenant != 0 && !over {
            return false;
        }
        let (since_s, moves) = if tenant == me && !over {
            (since_s, moves.saturating_add(1))
        } else {
            (now_s, 1)
        };
        record.state.store(pack(since_s, moves), Ordering::Relaxed);
        record.key.store(me, Ordering::Relaxed);
        moves > self.limit.moves
    }

    pub(super) fn flapping(&self, now_s: u32) -> impl Iterator<Item = Flapping> + '_ {
        self.records.iter().filter_map(move |record| {
            let number = record.key.load(Ordering::Relaxed);
            let (since, moves) = unpack(record.state.load(Ordering::Relaxed));
            let since_s = now_s.wrapping_sub(since);
            let key = Key::from_number(number & !USED);
            let flaps = number != 0 && moves > self.limit.moves && since_s <= self.limit.window_s;
            flaps.then(|| Flapping {
                address: key.address(),
                vlan: key.vlan(),
                moves,
                since_s,
            })
        })
    }
}

const fn pack(since_s: u32, moves: u32) -> u64 {
    (since_s as u64) << 32 | moves as u64
}

#[allow(clippy::cast_possible_truncation, reason = "both halves are returned")]
const fn unpack(state: u64) -> (u32, u32) {
    ((state >> 32) as u32, state as u32)
}
