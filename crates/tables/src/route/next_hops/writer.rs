// SPDX-License-Identifier: Apache-2.0
//! Writer side of the next hops: numbers, groups, and the buckets of each group.

use std::collections::HashMap;
use std::sync::Arc;

use quietwire_memory::atomic::Ordering;

use super::shares::{BUCKETS_MAX, buckets_for, share_out};
use super::{Buckets, MEMBERS_MAX, Member, NextHop, NextHopError, NextHops};
use crate::arena::{Blocks, Epoch, NoMemory, zeroed};
use crate::fib::{NEXT_HOP_MAX, NO_ROUTE};

/// Smallest size of a table. Models have smaller ones.
const NEXT_HOPS_MIN: u32 = if cfg!(loom) { 8 } else { 16 };

/// Writer of the next hop table.
#[derive(Debug)]
pub struct NextHopWriter {
    shared: Arc<NextHops>,
    numbers: Blocks,
    buckets: Blocks,
    groups: HashMap<u32, (Buckets, u32)>,
}

impl NextHopWriter {
    /// Creates a table with space for this number of next hops, and buckets for a quarter as many groups.
    ///
    /// # Errors
    /// [`NoMemory`].
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "numbers of 32 bits, far from the highest"
    )]
    pub fn new(next_hops_max: u32) -> Result<Self, NoMemory> {
        let next_hops_max = next_hops_max.clamp(NEXT_HOPS_MIN, NEXT_HOP_MAX);
        let buckets = match cfg!(loom) {
            false => next_hops_max.saturating_mul(16).max(8 * BUCKETS_MAX),
            true => 4 * BUCKETS_MAX,
        };
        let shared = Arc::new(NextHops {
            words: zeroed(next_hops_max as usize + 1)?,
            buckets: zeroed(buckets as usize)?,
        });
        let mut numbers = Blocks::new(next_hops_max + 1);
        // Number 0 means no route.
        let none = numbers.take(1);
        debug_assert_eq!(none, Some(NO_ROUTE));
        Ok(Self {
            shared,
            numbers,
            buckets: Blocks::new(buckets),
            groups: HashMap::new(),
        })
    }

    /// Returns the table of forwarding threads.
    #[must_use]
    pub fn shared(&self) -> Arc<NextHops> {
        Arc::clone(&self.shared)
    }

    /// Adds a next hop and returns its number.
    ///
    /// # Errors
    /// [`NextHopError::Full`].
    pub fn add(&mut self, next_hop: NextHop) -> Result<u32, NextHopError> {
        let number = self.numbers.take(1).ok_or(NextHopError::Full)?;
        self.set(number, next_hop);
        Ok(number)
    }

    /// Exchanges the next hop of a number.
    pub fn set(&self, number: u32, next_hop: NextHop) {
        if let Some(word) = self.shared.words.get(number as usize) {
            word.store(next_hop.word(), Ordering::Release);
        }
    }

    /// Adds a group and returns its number.
    ///
    /// # Errors
    /// [`NextHopError`].
    pub fn add_group(&mut self, members: &[Member]) -> Result<u32, NextHopError> {
        check(members)?;
        let number = self.numbers.take(1).ok_or(NextHopError::Full)?;
        if let Err(error) = self.set_group(number, members) {
            self.numbers.give_back(number, 1);
            return Err(error);
        }
        Ok(number)
    }

    /// Exchanges the members of a group. Flows of remaining members whose share does not shrink stay with them.
    ///
    /// # Errors
    /// [`NextHopError`]; the group stays unchanged in that case.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "a group has few members, and at most BUCKETS_MAX buckets"
    )]
    pub fn set_group(&mut self, number: u32, members: &[Member]) -> Result<(), NextHopError> {
        check(members)?;
        let former = self.groups.get(&number).copied();
        let size = former
            .map_or(0, |(group, _)| 1u32 << group.size_log2)
            .max(buckets_for(members));
        // The previous number of members always fits, because members that leave for a while may return.
        let space = former.map_or(0, |(group, units)| units - (1u32 << group.size_log2));
        let units = size + space.max(members.len() as u32);
        let Some(first) = self.buckets.take(units) else {
            return self.set_in_place(number, members);
        };
        let before: Vec<u32> = former.map_or_else(Vec::new, |(group, _)| self.read(group));
        let after = share_out(&before, size as usize, members);
        let places = self.shared.buckets.iter().skip(first as usize);
        let numbers = after.iter().chain(members.iter().map(|(number, _)| number));
        for (place, number) in places.zip(numbers) {
            place.store(*number, Ordering::Relaxed);
        }
        let group = Buckets {
            first,
            size_log2: size.trailing_zeros() as u8,
            members: members.len() as u8,
        };
        self.set(number, NextHop::Group(group));
        self.groups.insert(number, (group, units));
        if let Some((former, units)) = former {
            self.buckets.retire(former.first, units);
        }
        Ok(())
    }

    /// Former buckets of groups are not free until the epoch ends, so this group keeps its buckets and they are reassigned one by one. Each
    /// bucket leads to a former or a new member at any time. The accuracy of the shares is limited by the size of the group.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "a group has few members, and at most BUCKETS_MAX buckets"
    )]
    fn set_in_place(&mut self, number: u32, members: &[Member]) -> Result<(), NextHopError> {
        let (mut group, units) = self
            .groups
            .get(&number)
            .copied()
            .ok_or(NextHopError::Full)?;
        let size = 1u32 << group.size_log2;
        if members.len() as u32 > units - size || members.len() as u32 > size {
            return Err(NextHopError::Full);
        }
        let after = share_out(&self.read(group), size as usize, members);
        let places = self.shared.buckets.iter().skip(group.first as usize);
        let numbers = after.iter().chain(members.iter().map(|(number, _)| number));
        for (place, number) in places.zip(numbers) {
            place.store(*number, Ordering::Release);
        }
        group.members = members.len() as u8;
        self.set(number, NextHop::Group(group));
        self.groups.insert(number, (group, units));
        Ok(())
    }

    #[allow(
        clippy::arithmetic_side_effects,
        reason = "a group has at most BUCKETS_MAX buckets"
    )]
    pub(super) fn read(&self, group: Buckets) -> Vec<u32> {
        let buckets = self.shared.buckets.iter().skip(group.first as usize);
        buckets
            .take(1 << group.size_log2)
            .map(|place| place.load(Ordering::Relaxed))
            .collect()
    }

    /// Frees a number that no route uses any more.
    pub fn remove(&mut self, number: u32) {
        if let Some((group, units)) = self.groups.remove(&number) {
            self.buckets.retire(group.first, units);
        }
        self.numbers.retire(number, 1);
    }

    /// Returns the number of next hops in use.
    #[expect(clippy::arithmetic_side_effects, reason = "number 0 is always in use")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.numbers.used() - 1
    }

    /// Returns true if there are no next hops.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets the epoch of next hops that are freed from now on.
    pub fn set_epoch(&mut self, epoch: Epoch) {
        self.numbers.set_epoch(epoch);
        self.buckets.set_epoch(epoch);
    }

    /// Reuses next hops freed before this epoch.
    pub fn reclaim(&mut self, epoch: Epoch) {
        self.numbers.reclaim(epoch);
        self.buckets.reclaim(epoch);
    }
}

fn check(members: &[Member]) -> Result<(), NextHopError> {
    if (1..=MEMBERS_MAX).contains(&members.len()) {
        Ok(())
    } else {
        Err(NextHopError::Members(members.len()))
    }
}
