// SPDX-License-Identifier: Apache-2.0
//! Inflight regions of packed queues.

use quietwire_memory::atomic::{AtomicU64, Ordering};
use std::collections::VecDeque;

use super::super::layout::{DESCRIPTOR_WORDS, FLAG_AVAIL, FLAG_USED, PackedWord, packed};
use super::super::position::Position;
use super::region::{InflightRegion, InflightWords, VERSION, field};
use crate::narrow::{low_u8, low_u32, slots};

/// `features`; `version`, `desc_num`, `free_head` and `old_free_head`; `used_idx`, `old_used_idx`, `used_wrap_counter`,
/// `old_used_wrap_counter` and padding; padding.
const HEADER_WORDS: usize = 4;
/// `inflight`, padding, `next`, `last` and `num`; `counter`; `id`, `flags` and `len`; `addr`.
const ENTRY_WORDS: usize = 4;

/// Returns the words of a region.
pub(super) const fn region_words(size: u16) -> usize {
    ENTRY_WORDS
        .saturating_mul(size as usize)
        .saturating_add(HEADER_WORDS)
}

/// Index of an entry. `next` of the last free entry is the number of entries.
type Index = u16;

/// Address and second word of a descriptor.
pub(crate) type PackedDescriptor = (u64, PackedWord);

/// The first word of an entry.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    is_inflight: bool,
    next: Index,
    last: Index,
    num: u16,
}

impl State {
    fn from_word(word: u64) -> Self {
        Self {
            is_inflight: low_u8(word) == 1,
            next: field(word, 16),
            last: field(word, 32),
            num: field(word, 48),
        }
    }

    fn word(self) -> u64 {
        u64::from(self.is_inflight)
            | u64::from(self.next) << 16
            | u64::from(self.last) << 32
            | u64::from(self.num) << 48
    }
}

/// State that a previous device left.
#[derive(Debug)]
struct Taken {
    entry: Index,
    descriptors: Vec<PackedDescriptor>,
}

/// Chains of a packed queue that are in flight.
#[derive(Debug)]
pub(crate) struct PackedInflight {
    words: InflightWords,
    size: u16,
    counter: u64,
    /// The entries' first words, as written.
    states: Vec<State>,
    free_head: Index,
    old_free_head: Index,
    used: Position,
    old_used: Position,
    /// Entries completed and not committed.
    batch: Vec<Index>,
    pending: VecDeque<Taken>,
    pending_slots: u16,
    /// Entries resubmitted and not completed.
    resubmitted: VecDeque<Index>,
}

impl PackedInflight {
    /// Takes over a region; `None` if the mapping is too short, or the region belongs to another kind of queue. `start` is
    /// the position at which a new region begins.
    pub(crate) fn new(
        region: &InflightRegion,
        size: u16,
        start: Position,
        ring: &[[AtomicU64; DESCRIPTOR_WORDS]],
    ) -> Option<Self> {
        let words = region.words(region_words(size))?;
        let (header, positions) = (words.get(1), words.get(2));
        let (version, desc_num) = (field(header, 0), field(header, 16));
        let mut this = Self {
            words,
            size,
            counter: 0,
            states: vec![State::default(); usize::from(size)],
            free_head: 0,
            old_free_head: 0,
            used: start,
            old_used: start,
            batch: Vec::with_capacity(usize::from(size)),
            pending: VecDeque::new(),
            pending_slots: 0,
            resubmitted: VecDeque::with_capacity(usize::from(size)),
        };
        match version {
            0 => {}
            VERSION if desc_num == size => this.recover(header, positions, ring)?,
            _ => return None,
        }
        this.rebuild();
        Some(this)
    }

    /// Finds the chains in flight.
    fn recover(
        &mut self,
        header: u64,
        positions: u64,
        ring: &[[AtomicU64; DESCRIPTOR_WORDS]],
    ) -> Option<()> {
        let position = |slot: u16, wrap: u8| {
            (slot < self.size).then_some(Position {
                slot,
                wrap: wrap == 1,
            })
        };
        let used = position(field(positions, 0), low_u8(positions >> 32))?;
        let mut old_used = position(field(positions, 16), low_u8(positions >> 40))?;
        let mut free = field(header, 48);
        if used != old_used {
            let word = ring
                .get(usize::from(old_used.slot))
                .map_or(0, |[_, word]| word.load(Ordering::Acquire));
            let flags = PackedWord(u64::from_le(word)).flags() & (FLAG_AVAIL | FLAG_USED);
            if flags != packed::avail_flags(old_used.wrap) {
                // The guest has observed the batch.
                old_used = used;
                free = field(header, 32);
            }
        }
        (self.used, self.old_used) = (old_used, old_used);
        for (index, state) in (0..self.size).zip(&mut self.states) {
            *state = State::from_word(self.words.get(Self::at(index)));
        }
        for _ in 0..self.size {
            let Some(state) = self.states.get_mut(usize::from(free)) else {
                break;
            };
            state.is_inflight = false;
            free = state.next;
        }
        let mut taken: Vec<(u64, Index)> = (0..self.size)
            .filter(|entry| self.state(*entry).is_inflight)
            .map(|entry| (self.words.get(Self::word_at(entry, 1)), entry))
            .collect();
        taken.sort_unstable();
        self.counter = taken
            .last()
            .map_or(0, |(counter, _)| counter.wrapping_add(1));
        let mut observed = vec![false; usize::from(self.size)];
        for (_, entry) in taken {
            if let Some(descriptors) = self.collect(entry, &mut observed) {
                let count = slots(descriptors.len());
                self.pending_slots = self.pending_slots.saturating_add(count);
                self.pending.push_back(Taken { entry, descriptors });
            } else if let Some(state) = self.states.get_mut(usize::from(entry)) {
                state.is_inflight = false;
            }
        }
        Some(())
    }

    /// Returns the descriptors of a chain; `None` if they do not form a separate chain.
    fn collect(&self, entry: Index, observed: &mut [bool]) -> Option<Vec<PackedDescriptor>> {
        let num = self.state(entry).num;
        if num == 0 || num > self.size {
            return None;
        }
        let mut at = entry;
        let mut indices = Vec::with_capacity(usize::from(num));
        for _ in 0..num {
            let place = observed
                .get_mut(usize::from(at))
                .filter(|observed| !**observed);
            let Some(place) = place else {
                for index in indices {
                    if let Some(place) = observed.get_mut(usize::from(index)) {
                        *place = false;
                    }
                }
                return None;
            };
            *place = true;
            indices.push(at);
            at = self.state(at).next;
        }
        let descriptor = |index: u16| {
            let word = self.words.get(Self::word_at(index, 2));
            let (id, flags, len) = (field(word, 0), field(word, 16), low_u32(word >> 32));
            let address = self.words.get(Self::word_at(index, 3));
            (address, PackedWord::new(len, id, flags))
        };
        Some(indices.into_iter().map(descriptor).collect())
    }

    /// Links the entries that no chain uses, and writes the recovered state.
    fn rebuild(&mut self) {
        let mut is_free = vec![true; usize::from(self.size)];
        let chains: Vec<(Index, usize)> = self
            .pending
            .iter()
            .map(|taken| (taken.entry, taken.descriptors.len()))
            .collect();
        for (entry, len) in chains {
            let (mut at, mut last) = (entry, entry);
            for _ in 0..len {
                if let Some(place) = is_free.get_mut(usize::from(at)) {
                    *place = false;
                }
                (last, at) = (at, self.state(at).next);
            }
            // The region's value for the last one may be wrong.
            let state = State {
                last,
                ..self.state(entry)
            };
            self.set_state(entry, state);
        }
        self.free_head = self.size;
        for entry in (0..self.size).rev() {
            if is_free.get(usize::from(entry)) == Some(&true) {
                let state = State {
                    next: self.free_head,
                    ..State::default()
                };
                self.set_state(entry, state);
                self.free_head = entry;
            }
        }
        self.old_free_head = self.free_head;
        self.words.set(0, 0);
        self.set_positions();
        self.set_header();
    }

    fn at(entry: Index) -> usize {
        region_words(entry)
    }

    /// Returns the place of a further word of an entry.
    fn word_at(entry: Index, word: usize) -> usize {
        Self::at(entry).saturating_add(word)
    }

    fn state(&self, entry: Index) -> State {
        let state = self.states.get(usize::from(entry));
        state.copied().unwrap_or(State {
            next: self.size,
            ..State::default()
        })
    }

    fn set_state(&mut self, entry: Index, state: State) {
        if let Some(place) = self.states.get_mut(usize::from(entry)) {
            *place = state;
            self.words.set(Self::at(entry), state.word());
        }
    }

    fn set_header(&self) {
        let header = u64::from(VERSION)
            | u64::from(self.size) << 16
            | u64::from(self.free_head) << 32
            | u64::from(self.old_free_head) << 48;
        self.words.set(1, header);
    }

    fn set_positions(&self) {
        let positions = u64::from(self.used.slot)
            | u64::from(self.old_used.slot) << 16
            | u64::from(self.used.wrap) << 32
            | u64::from(self.old_used.wrap) << 40;
        self.words.set(2, positions);
    }

    /// Returns the position of the next used descriptor.
    pub(crate) fn position(&self) -> Position {
        self.used
    }

    /// Returns the number of slots of chains that a previous device took and that are not resubmitted yet.
    pub(crate) fn pending(&self) -> u16 {
        self.pending_slots
    }

    /// Returns the next of these chains, unless it has more than `space` descriptors after its first.
    pub(crate) fn resubmit(&mut self, space: usize) -> Option<Vec<PackedDescriptor>> {
        let len = self.pending.front()?.descriptors.len();
        if len > space.saturating_add(1) && len <= super::super::chain::CHAIN_MAX {
            return None;
        }
        let taken = self.pending.pop_front()?;
        self.pending_slots = self.pending_slots.saturating_sub(slots(len));
        self.resubmitted.push_back(taken.entry);
        Some(taken.descriptors)
    }

    /// Marks a chain as taken, and adds it to the batch that is returned next.
    pub(crate) fn take(&mut self, descriptors: impl Iterator<Item = PackedDescriptor>) {
        if let Some(entry) = self.resubmitted.pop_front() {
            self.batch.push(entry);
            return;
        }
        let head = self.free_head;
        let (mut last, mut next, mut num) = (head, head, 0u16);
        for (address, word) in descriptors {
            if next >= self.size {
                break;
            }
            let fields =
                u64::from(word.id()) | u64::from(word.flags()) << 16 | u64::from(word.len()) << 32;
            self.words.set(Self::word_at(next, 2), fields);
            self.words.set(Self::word_at(next, 3), address);
            (last, next) = (next, self.state(next).next);
            num = num.saturating_add(1);
        }
        if num == 0 || self.batch.len() >= usize::from(self.size) {
            return;
        }
        self.words.set(Self::word_at(head, 1), self.counter);
        self.counter = self.counter.wrapping_add(1);
        let state = State {
            is_inflight: true,
            next: self.state(head).next,
            last,
            num,
        };
        self.set_state(head, state);
        self.free_head = next;
        self.old_free_head = next;
        self.set_header();
        self.batch.push(head);
    }

    /// Frees the entries of the batch, which is about to be returned; the next used descriptor is then at `used`.
    pub(crate) fn prepare(&mut self, used: Position) {
        for at in 0..self.batch.len() {
            let Some(entry) = self.batch.get(at).copied() else {
                break;
            };
            let last = self.state(entry).last;
            let state = State {
                next: self.free_head,
                ..self.state(last)
            };
            self.set_state(last, state);
            self.free_head = entry;
        }
        self.used = used;
        self.set_header();
        self.set_positions();
    }

    /// Marks the batch as returned.
    pub(crate) fn commit(&mut self) {
        while let Some(entry) = self.batch.pop() {
            let state = State {
                is_inflight: false,
                ..self.state(entry)
            };
            self.set_state(entry, state);
        }
        self.old_free_head = self.free_head;
        self.old_used = self.used;
        self.set_header();
        self.set_positions();
    }
}
