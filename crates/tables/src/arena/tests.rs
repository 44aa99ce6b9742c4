// SPDX-License-Identifier: Apache-2.0
//! Tests of the allocator: examples, and all sequences of operations up to a length.

use super::*;

#[test]
fn retired_memory_is_reused_after_its_epoch() {
    let mut blocks = Blocks::new(4);
    let all: Vec<u32> = (0..2).map_while(|_| blocks.take(2)).collect();
    assert_eq!(all, [0, 2]);
    assert_eq!(blocks.take(1), None);
    blocks.set_epoch(5);
    blocks.retire(2, 2);
    blocks.reclaim(5);
    assert_eq!(blocks.take(1), None);
    blocks.reclaim(6);
    // A larger block serves smaller requests.
    assert_eq!((blocks.take(1), blocks.take(1)), (Some(2), Some(3)));
    assert_eq!(blocks.used(), 4);
    blocks.give_back(3, 1);
    assert_eq!((blocks.take(1), blocks.take(1)), (Some(3), None));
}

#[test]
fn a_compacted_list_has_its_contents_and_no_spare_memory() {
    let of_huge_page = (HUGE_PAGE / size_of::<u64>()) as u64;
    for length in [0, 3, of_huge_page - 1, of_huge_page, of_huge_page + 5] {
        let mut list: Vec<u64> = (0..length).collect();
        list.reserve(100);
        let moved = compacted(list);
        assert!(moved.iter().copied().eq(0..length), "{length}");
        assert_eq!(moved.capacity(), moved.len(), "{length}");
    }
}

/// Requested lengths: each power of two, and one that is rounded up.
const LENGTHS: [u32; 4] = [1, 2, 3, 4];

/// A block as its users see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    first: u32,
    units: u32,
    /// Epoch in which the block was retired; `None` while the writer uses it.
    retired: Option<Epoch>,
}

impl Held {
    fn space(&self) -> std::ops::Range<u32> {
        self.first..self.first + self.units.next_power_of_two()
    }
}

/// The arena, and all blocks that the writer or readers use.
#[derive(Clone)]
struct State {
    blocks: Blocks,
    held: Vec<Held>,
    /// Free blocks, by the rule of the documentation: of each power of two, and the units that were never used.
    free: Vec<(u32, u32)>,
    units: u32,
    never_used: u32,
    epoch: Epoch,
    /// Epochs by which memory is reclaimed too early.
    early: Epoch,
}

impl State {
    fn new(units: u32, early: Epoch) -> Self {
        Self {
            blocks: Blocks::new(units),
            held: Vec::new(),
            free: Vec::new(),
            units,
            never_used: units,
            epoch: 0,
            early,
        }
    }

    /// Returns whether a request must succeed: a block of this or a larger size is free, or enough units were never used.
    fn has_space(&self, space: u32) -> bool {
        self.never_used >= space || self.free.iter().any(|(_, units)| *units >= space)
    }

    fn take(&mut self, units: u32) {
        let space = units.next_power_of_two();
        let expected = self.has_space(space);
        let taken = self.blocks.take(units);
        assert_eq!(taken.is_some(), expected, "space for {units}");
        let Some(first) = taken else { return };
        let new = Held {
            first,
            units,
            retired: None,
        };
        let range = new.space();
        assert!(range.end <= self.units, "block {range:?} beyond the arena");
        for other in &self.held {
            let other = other.space();
            let overlaps = other.start < range.end && range.start < other.end;
            assert!(!overlaps, "block {range:?} overlaps {other:?} in use");
        }
        self.held.push(new);
        self.note_taken(first, space);
    }

    /// Removes a block from the free ones: a whole block, or the first part of a larger one, whose halves stay free.
    fn note_taken(&mut self, first: u32, space: u32) {
        if first == self.units - self.never_used {
            self.never_used -= space;
            return;
        }
        let at = self.free.iter().position(|(start, _)| *start == first);
        let (_, mut units) = self.free.swap_remove(at.expect("a free block"));
        while units > space {
            units /= 2;
            self.free.push((first + units, units));
        }
    }

    fn retire(&mut self, at: usize) {
        let Held { first, units, .. } = self.held[at];
        self.blocks.retire(first, units);
        self.held[at].retired = Some(self.epoch);
    }

    fn give_back(&mut self, at: usize) {
        let block = self.held.swap_remove(at);
        self.blocks.give_back(block.first, block.units);
        self.free
            .push((block.first, block.units.next_power_of_two()));
    }

    /// Begins an epoch.
    fn begin(&mut self) {
        self.epoch += 1;
        self.blocks.set_epoch(self.epoch);
    }

    /// Reuses what was retired before the current epoch.
    fn reclaim(&mut self) {
        self.blocks.reclaim(self.epoch + self.early);
        let epoch = self.epoch;
        let is_over = |block: &Held| block.retired.is_some_and(|retired| retired < epoch);
        let over = self.held.iter().filter(|block| is_over(block));
        self.free
            .extend(over.map(|block| (block.first, block.units.next_power_of_two())));
        self.held.retain(|block| !is_over(block));
    }

    fn check(&self) {
        let in_use = self.held.iter().filter(|block| block.retired.is_none());
        let used: u32 = in_use.map(|block| block.units.next_power_of_two()).sum();
        assert_eq!(self.blocks.used(), used as usize);
        let held = self.held.iter().map(|block| block.space().len() as u32);
        let free = self.free.iter().map(|(_, units)| units);
        let all = held.sum::<u32>() + free.sum::<u32>() + self.never_used;
        assert_eq!(all, self.units, "units were lost");
    }

    /// Runs every sequence of `steps` further operations; returns their number.
    fn explore(&self, steps: u32) -> u64 {
        self.check();
        if steps == 0 {
            return 1;
        }
        let mut count = 0;
        let mut follow = |change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            change(&mut next);
            count += next.explore(steps - 1);
        };
        for units in LENGTHS {
            follow(&|state| state.take(units));
        }
        for at in (0..self.held.len()).filter(|at| self.held[*at].retired.is_none()) {
            follow(&|state| state.retire(at));
            follow(&|state| state.give_back(at));
        }
        follow(&Self::begin);
        follow(&Self::reclaim);
        count
    }
}

#[test]
#[cfg_attr(miri, ignore = "too slow under Miri")]
fn every_sequence_of_six_operations_keeps_blocks_apart() {
    for units in [4, 7, 8] {
        assert!(State::new(units, 0).explore(6) > 100_000);
    }
}

#[test]
#[ignore = "takes minutes; make models runs it"]
fn every_sequence_of_eight_operations_keeps_blocks_apart() {
    for units in [5, 8] {
        State::new(units, 0).explore(8);
    }
}

#[test]
#[should_panic(expected = "overlaps")]
fn the_sequences_find_memory_that_is_reused_within_its_epoch() {
    State::new(4, 1).explore(6);
}

#[test]
#[should_panic(expected = "overlaps")]
fn a_block_that_a_reader_may_still_use_is_noticed() {
    let mut state = State::new(4, 1);
    state.take(4);
    state.retire(0);
    state.blocks.reclaim(state.epoch + 1);
    state.free.push((0, 4));
    state.take(4);
}
