// SPDX-License-Identifier: Apache-2.0
//! Inflight regions of split queues.

use std::collections::VecDeque;

use super::region::{InflightRegion, InflightWords, VERSION, field};
use crate::narrow::{low_u8, slots};

/// `features`; then `version`, `desc_num`, `last_batch_head` and `used_idx`.
const HEADER_WORDS: usize = 2;
/// `inflight`, padding and `next`; then `counter`.
const ENTRY_WORDS: usize = 2;

/// Returns the words of a region.
pub(super) const fn region_words(size: u16) -> usize {
    ENTRY_WORDS
        .saturating_mul(size as usize)
        .saturating_add(HEADER_WORDS)
}

/// Chains of a split queue that are in flight.
#[derive(Debug)]
pub(crate) struct SplitInflight {
    words: InflightWords,
    size: u16,
    counter: u64,
    last_batch_head: u16,
    used_idx: u16,
    /// Heads completed and not committed.
    batch: Vec<u16>,
    /// Heads that a previous device took, in that order.
    pending: VecDeque<u16>,
    /// Heads resubmitted and not completed.
    resubmitted: VecDeque<u16>,
}

impl SplitInflight {
    /// Takes over a region; `None` if the mapping is too short, or the region belongs to another kind of queue. `used` is
    /// the index of the used ring.
    pub(crate) fn new(region: &InflightRegion, size: u16, used: u16) -> Option<Self> {
        let words = region.words(region_words(size))?;
        let header = words.get(1);
        let (version, desc_num) = (field(header, 0), field(header, 16));
        let mut this = Self {
            words,
            size,
            counter: 0,
            last_batch_head: field(header, 32),
            used_idx: used,
            batch: Vec::with_capacity(usize::from(size)),
            pending: VecDeque::new(),
            resubmitted: VecDeque::with_capacity(usize::from(size)),
        };
        match version {
            0 => this.clear(),
            VERSION if desc_num == size => this.recover(used.wrapping_sub(field(header, 48))),
            _ => return None,
        }
        this.set_header();
        Some(this)
    }

    fn clear(&mut self) {
        self.last_batch_head = 0;
        self.words.set(0, 0);
        for head in 0..self.size {
            self.set_state(head, false, 0);
            self.words.set(Self::counter_at(head), 0);
        }
    }

    /// Finds the chains in flight. The last `unfinished` of the returned ones may still be marked.
    fn recover(&mut self, unfinished: u16) {
        let mut head = self.last_batch_head;
        for _ in 0..unfinished.min(self.size) {
            if head >= self.size {
                break;
            }
            let next = field(self.words.get(Self::at(head)), 48);
            self.set_state(head, false, next);
            head = next;
        }
        let mut taken: Vec<(u64, u16)> = (0..self.size)
            .filter(|head| low_u8(self.words.get(Self::at(*head))) == 1)
            .map(|head| (self.words.get(Self::counter_at(head)), head))
            .collect();
        taken.sort_unstable();
        self.counter = taken
            .last()
            .map_or(0, |(counter, _)| counter.wrapping_add(1));
        self.pending = taken.into_iter().map(|(_, head)| head).collect();
    }

    fn at(head: u16) -> usize {
        region_words(head)
    }

    fn counter_at(head: u16) -> usize {
        Self::at(head).saturating_add(1)
    }

    fn set_state(&self, head: u16, is_inflight: bool, next: u16) {
        let state = u64::from(is_inflight) | u64::from(next) << 48;
        self.words.set(Self::at(head), state);
    }

    fn set_header(&self) {
        let header = u64::from(VERSION)
            | u64::from(self.size) << 16
            | u64::from(self.last_batch_head) << 32
            | u64::from(self.used_idx) << 48;
        self.words.set(1, header);
    }

    /// Returns the number of chains that a previous device took and that are not resubmitted yet.
    pub(crate) fn pending(&self) -> u16 {
        slots(self.pending.len())
    }

    /// Returns the head of the next of these chains.
    pub(crate) fn resubmit(&mut self) -> Option<u16> {
        let head = self.pending.pop_front()?;
        self.resubmitted.push_back(head);
        Some(head)
    }

    /// Marks a chain as taken, and adds it to the batch that is returned next.
    pub(crate) fn take(&mut self, head: u16) {
        if head >= self.size || self.batch.len() >= usize::from(self.size) {
            return;
        }
        // A resubmitted chain keeps its place in the order.
        if self.resubmitted.pop_front().is_none() {
            self.words.set(Self::counter_at(head), self.counter);
            self.counter = self.counter.wrapping_add(1);
        }
        self.set_state(head, true, self.last_batch_head);
        self.last_batch_head = head;
        self.batch.push(head);
        self.set_header();
    }

    /// Marks the batch as returned: the index of the used ring is `used` now.
    pub(crate) fn commit(&mut self, used: u16) {
        while let Some(head) = self.batch.pop() {
            let next = field(self.words.get(Self::at(head)), 48);
            self.set_state(head, false, next);
        }
        self.used_idx = used;
        self.set_header();
    }
}
