// SPDX-License-Identifier: Apache-2.0
//! Memory allocator of tables that forwarding threads read: readers use blocks while the writer allocates and frees others.

use std::collections::VecDeque;

use quietwire_memory::prefer_huge_pages;
#[cfg(not(loom))]
use zerocopy::FromZeros;

/// Number of an epoch. An epoch ends once every forwarding thread has finished the burst it was processing.
pub type Epoch = u64;

/// Allocation failure of a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("out of memory: cannot allocate a table of {0} octets")]
pub struct NoMemory(pub usize);

/// Returns zeroed memory. The kernel provides each page when it is first written.
#[cfg(not(loom))]
pub fn zeroed<T: FromZeros>(count: usize) -> Result<Box<[T]>, NoMemory> {
    let memory = <[T]>::new_box_zeroed_with_elems(count)
        .map_err(|_| NoMemory(count.saturating_mul(size_of::<T>())))?;
    prefer_huge_pages(&memory);
    Ok(memory)
}

/// Returns memory of a model checker, whose atomics are not octets.
#[cfg(loom)]
pub fn zeroed<T: Default>(count: usize) -> Result<Box<[T]>, NoMemory> {
    let memory: Box<[T]> = (0..count).map(|_| T::default()).collect();
    prefer_huge_pages(&memory);
    Ok(memory)
}

/// Size of a huge page, octets. Shorter lists stay in ordinary pages.
const HUGE_PAGE: usize = 2 << 20;

/// Moves a complete list to memory of its length. A list of at least one huge page gets transparent huge pages: the kernel must have this
/// advice before a page is first written.
pub fn compacted<T>(mut list: Vec<T>) -> Vec<T> {
    if size_of_val(&list[..]) < HUGE_PAGE {
        list.shrink_to_fit();
        return list;
    }
    let mut moved = Vec::with_capacity(list.len());
    prefer_huge_pages(&*moved.spare_capacity_mut());
    moved.extend(list);
    moved
}

/// Allocation state of an arena's blocks. A block is a run of units; its length is rounded up to a power of two.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Blocks {
    /// Free blocks, by power of two.
    free: [Vec<u32>; ORDERS],
    /// Freed blocks that readers may still use.
    retired: VecDeque<(Epoch, u8, u32)>,
    next: u32,
    end: u32,
    used: usize,
    epoch: Epoch,
}

/// Number of block sizes: blocks have up to 8192 units.
const ORDERS: usize = 14;

const fn order_of(units: u32) -> usize {
    units.next_power_of_two().trailing_zeros() as usize
}

impl Blocks {
    /// Creates an arena of this many units, all free.
    pub fn new(units: u32) -> Self {
        Self {
            free: Default::default(),
            retired: VecDeque::new(),
            next: 0,
            end: units,
            used: 0,
            epoch: 0,
        }
    }

    /// Allocates a block that no reader uses and returns its first unit; `None` if there is no space.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "at most as many units are in use as the arena has"
    )]
    pub fn take(&mut self, units: u32) -> Option<u32> {
        let order = order_of(units);
        let taken = match self.free.get_mut(order)?.pop() {
            Some(block) => Some(block),
            None => self.extend(order).or_else(|| self.split(order)),
        };
        if taken.is_some() {
            self.used += 1 << order;
        }
        taken
    }

    #[allow(clippy::arithmetic_side_effects, reason = "the order is below ORDERS")]
    fn extend(&mut self, order: usize) -> Option<u32> {
        let next = self.next.checked_add(1 << order)?;
        if next > self.end {
            return None;
        }
        Some(std::mem::replace(&mut self.next, next))
    }

    /// Returns half of the smallest larger block.
    #[expect(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "orders are below ORDERS, and both halves are in the arena"
    )]
    fn split(&mut self, order: usize) -> Option<u32> {
        let larger = (order + 1..ORDERS).find(|larger| !self.free[*larger].is_empty())?;
        let block = self.free[larger].pop()?;
        for half in order..larger {
            self.free[half].push(block + (1 << half));
        }
        Some(block)
    }

    /// Frees a block that readers may still use until the epoch ends.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "the block was taken, with an order below ORDERS"
    )]
    pub fn retire(&mut self, block: u32, units: u32) {
        let order = order_of(units);
        self.used -= 1 << order;
        self.retired.push_back((self.epoch, order as u8, block));
    }

    /// Frees a block that readers never saw.
    #[expect(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "the block was taken, with an order below ORDERS"
    )]
    pub fn give_back(&mut self, block: u32, units: u32) {
        let order = order_of(units);
        self.used -= 1 << order;
        self.free[order].push(block);
    }

    /// Sets the epoch at which blocks that are freed from now on may still be read.
    pub fn set_epoch(&mut self, epoch: Epoch) {
        self.epoch = epoch;
    }

    /// Reuses blocks freed before this epoch.
    #[expect(
        clippy::indexing_slicing,
        reason = "the block was taken, with an order below ORDERS"
    )]
    pub fn reclaim(&mut self, epoch: Epoch) {
        while let Some((retired, order, block)) = self.retired.front().copied() {
            if retired >= epoch {
                break;
            }
            self.retired.pop_front();
            self.free[usize::from(order)].push(block);
        }
    }

    /// Returns the number of units in use.
    pub fn used(&self) -> usize {
        self.used
    }
}

#[cfg(test)]
mod tests;
