// SPDX-License-Identifier: Apache-2.0
//! Entries of a tracker, and the lists that they are in.

use super::key::{Endpoint, Key};
use super::names::{CtState, Direction, State};
use super::settings::{ENTRY_OCTETS, Seconds};
use super::tcp::Side;

/// No entry.
pub(super) const NONE: u32 = u32::MAX;

/// Neighbours in a list.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[repr(C)]
pub(super) struct Links {
    previous: u32,
    next: u32,
}

/// The original sender is the higher endpoint of the key.
const IS_FROM_HIGHER: u8 = 1;
/// Both sides have sent packets.
const IS_REPLIED: u8 = 2;
/// A standby may have the connection.
const IS_SHARED: u8 = 4;
/// A helper expected the connection.
const IS_EXPECTED: u8 = 8;
/// The connection has a label, in another table.
const IS_LABELLED: u8 = 16;

/// A connection: both directions, in two cache lines. The second is used by counters, by TCP, and by changes of the state.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[repr(C, align(64))]
pub(super) struct Entry {
    pub(super) key: Key,
    by_time: Links,
    /// First second at which the connection has expired.
    pub(super) expires_at: Seconds,
    /// Second of the wheel's slot that the entry is in, at most `expires_at` when it was put there.
    pub(super) scheduled_at: Seconds,
    pub(super) mark: u32,
    /// Number of times that the entry was used.
    pub(super) generation: u16,
    /// Number of the state, from 1 on; 0 in an unused entry.
    state: u8,
    flags: u8,
    /// TCP: original side, other side.
    pub(super) sides: [Side; 2],
    by_eviction: Links,
    /// Packets of each direction.
    pub(super) packets: [u32; 2],
    /// Octets of IP packets of each direction.
    pub(super) octets: [u64; 2],
}

const _: () = assert!(size_of::<Entry>() == ENTRY_OCTETS);

impl Entry {
    /// Returns the state; `None` if the entry is not in use.
    #[inline(always)]
    pub(super) fn state(&self) -> Option<State> {
        State::ALL
            .get(usize::from(self.state).checked_sub(1)?)
            .copied()
    }

    #[allow(clippy::arithmetic_side_effects, reason = "there are few states")]
    #[inline(always)]
    pub(super) const fn set_state(&mut self, state: State) {
        self.state = state as u8 + 1;
    }

    /// Begins a connection.
    pub(super) const fn begin(&mut self, key: Key, is_from_higher: bool, state: State) {
        self.key = key;
        self.flags = if is_from_higher { IS_FROM_HIGHER } else { 0 };
        self.generation = self.generation.wrapping_add(1);
        self.mark = 0;
        self.packets = [0; 2];
        self.octets = [0; 2];
        self.set_state(state);
    }

    /// Marks the entry as not in use.
    pub(super) const fn end(&mut self) {
        self.state = 0;
    }

    /// Returns the direction of a packet.
    #[inline(always)]
    pub(super) const fn direction(&self, is_from_higher: bool) -> Direction {
        if (self.flags & IS_FROM_HIGHER != 0) == is_from_higher {
            Direction::Original
        } else {
            Direction::Reply
        }
    }

    /// Returns the endpoint that sent the first packet, and the other one.
    pub(super) fn ends(&self) -> (Endpoint, Endpoint) {
        let [lower, higher] = self.key.endpoints();
        match self.direction(false) {
            Direction::Original => (lower, higher),
            Direction::Reply => (higher, lower),
        }
    }

    /// Returns true if both sides have sent packets.
    #[inline(always)]
    pub(super) const fn is_replied(&self) -> bool {
        self.flags & IS_REPLIED != 0
    }

    #[inline(always)]
    pub(super) const fn set_replied(&mut self) {
        self.flags |= IS_REPLIED;
    }

    /// Notes that a helper expected the connection.
    pub(super) const fn set_expected(&mut self) {
        self.flags |= IS_EXPECTED;
    }

    /// Returns true if the connection has a label. A new one has none.
    #[inline(always)]
    pub(super) const fn is_labelled(&self) -> bool {
        self.flags & IS_LABELLED != 0
    }

    pub(super) const fn set_labelled(&mut self) {
        self.flags |= IS_LABELLED;
    }

    /// Returns the class of a packet that fits the connection.
    #[inline(always)]
    pub(super) const fn class(&self) -> CtState {
        if self.is_replied() {
            CtState::Established
        } else if self.flags & IS_EXPECTED != 0 {
            CtState::Related
        } else {
            CtState::New
        }
    }

    #[inline(always)]
    pub(super) const fn is_shared(&self) -> bool {
        self.flags & IS_SHARED != 0
    }

    pub(super) const fn set_shared(&mut self) {
        self.flags |= IS_SHARED;
    }

    /// Counts a packet.
    #[expect(
        clippy::indexing_slicing,
        reason = "there are two directions, each with its counts"
    )]
    #[inline(always)]
    pub(super) const fn count(&mut self, direction: Direction, octets: u32) {
        let at = direction as usize;
        self.packets[at] = self.packets[at].saturating_add(1);
        self.octets[at] = self.octets[at].saturating_add(octets as u64);
    }

    /// Returns both sides of TCP, that of the sender of a packet first.
    #[inline(always)]
    pub(super) const fn sides_from(&mut self, direction: Direction) -> (&mut Side, &mut Side) {
        let [original, reply] = &mut self.sides;
        match direction {
            Direction::Original => (original, reply),
            Direction::Reply => (reply, original),
        }
    }
}

/// Kind of list: which of its links an entry is in the list by.
pub(super) trait Chain {
    /// Returns the links of an entry.
    fn links(entry: &mut Entry) -> &mut Links;
}

/// Lists of entries that expire in one second.
pub(super) struct ByTime;

/// Lists of entries that may be dropped early, oldest first.
pub(super) struct ByEviction;

impl Chain for ByTime {
    #[inline(always)]
    fn links(entry: &mut Entry) -> &mut Links {
        &mut entry.by_time
    }
}

impl Chain for ByEviction {
    #[inline(always)]
    fn links(entry: &mut Entry) -> &mut Links {
        &mut entry.by_eviction
    }
}

/// A list of entries, linked in both directions.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    first: u32,
    last: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self {
        first: NONE,
        last: NONE,
    };

    /// Returns the first entry.
    #[inline(always)]
    pub(super) const fn first(&self) -> Option<u32> {
        match self.first {
            NONE => None,
            first => Some(first),
        }
    }

    /// Appends an entry that is in no list of this kind.
    pub(super) fn push<C: Chain>(&mut self, entries: &mut [Entry], index: u32) {
        let previous = self.last;
        if let Some(entry) = entries.get_mut(index as usize) {
            let next = NONE;
            *C::links(entry) = Links { previous, next };
        }
        match entries.get_mut(previous as usize) {
            Some(entry) => C::links(entry).next = index,
            None => self.first = index,
        }
        self.last = index;
    }

    /// Removes an entry of the list.
    pub(super) fn remove<C: Chain>(&mut self, entries: &mut [Entry], index: u32) {
        let Some(entry) = entries.get_mut(index as usize) else {
            return;
        };
        let Links { previous, next } = *C::links(entry);
        match entries.get_mut(previous as usize) {
            Some(entry) => C::links(entry).next = next,
            None => self.first = next,
        }
        match entries.get_mut(next as usize) {
            Some(entry) => C::links(entry).previous = previous,
            None => self.last = previous,
        }
    }
}
