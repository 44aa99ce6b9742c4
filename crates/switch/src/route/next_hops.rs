// SPDX-License-Identifier: Apache-2.0
//! Next hops by number: what forwarding tables lead to. Each is one word, which the control thread exchanges as a whole:
//! a neighbour that is found, lost or replaced is one store, however many routes lead to it.
//!
//! A group shares flows out to several next hops (equal-cost multipath; RFC 2992). Its buckets are resilient: a member
//! that leaves gives only its own buckets to the others, and one that joins takes only its share, so that the flows of the
//! others stay where they are.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use quietwire_packet::MacAddress;

use crate::arena::{Blocks, Epoch, NoMemory, zeroed};
use crate::fib::{NEXT_HOP_MAX, NO_ROUTE};

/// Members of a group at most.
pub const MEMBERS_MAX: usize = 64;
const BUCKETS_MIN: u32 = 16;
const BUCKETS_MAX: u32 = 4096;
/// Buckets for each unit of weight, so that shares are as asked to about a tenth.
const BUCKETS_A_WEIGHT: u32 = 8;

const KIND_SHIFT: u32 = 60;
const INTERFACE_SHIFT: u32 = 48;
const INTERFACE_MASK: u64 = 0xfff;
const MAC_MASK: u64 = (1 << INTERFACE_SHIFT) - 1;
const SIZE_SHIFT: u32 = 32;
const COUNT_SHIFT: u32 = 37;

/// What is to be done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// There is no way.
    None,
    /// It is dropped in silence.
    Blackhole,
    /// It is dropped, and the sender told that there is no way.
    Unreachable,
    /// It is dropped, and the sender told that it may not.
    Prohibit,
    /// It is for the router itself.
    Local,
    /// The destination is on this interface's link, and nothing is known of it yet.
    Glean {
        /// Number of the interface.
        interface: u16,
    },
    /// The next router is on this interface's link, and its address there is not known yet.
    Incomplete {
        /// Number of the interface.
        interface: u16,
    },
    /// It is sent.
    Adjacency {
        /// Number of the interface.
        interface: u16,
        /// To whom.
        mac: MacAddress,
    },
    /// One of several, by the packet's flow.
    Group(Buckets),
}

/// The buckets of a group and its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets {
    first: u32,
    size_log2: u8,
    members: u8,
}

impl NextHop {
    fn word(self) -> u64 {
        let on = |kind: u64, interface: u16| {
            kind << KIND_SHIFT | (interface as u64 & INTERFACE_MASK) << INTERFACE_SHIFT
        };
        match self {
            Self::None => 0,
            Self::Blackhole => 1 << KIND_SHIFT,
            Self::Unreachable => 2 << KIND_SHIFT,
            Self::Prohibit => 3 << KIND_SHIFT,
            Self::Local => 4 << KIND_SHIFT,
            Self::Glean { interface } => on(5, interface),
            Self::Incomplete { interface } => on(6, interface),
            Self::Adjacency { interface, mac } => on(7, interface) | mac.to_u64(),
            Self::Group(group) => {
                8 << KIND_SHIFT
                    | (group.members as u64) << COUNT_SHIFT
                    | (group.size_log2 as u64) << SIZE_SHIFT
                    | group.first as u64
            }
        }
    }

    #[inline(always)]
    const fn of_word(word: u64) -> Self {
        let interface = (word >> INTERFACE_SHIFT & INTERFACE_MASK) as u16;
        match word >> KIND_SHIFT {
            1 => Self::Blackhole,
            2 => Self::Unreachable,
            3 => Self::Prohibit,
            4 => Self::Local,
            5 => Self::Glean { interface },
            6 => Self::Incomplete { interface },
            7 => Self::Adjacency {
                interface,
                mac: MacAddress::from_u64(word & MAC_MASK),
            },
            8 => Self::Group(Buckets {
                first: word as u32,
                size_log2: (word >> SIZE_SHIFT & 0x1f) as u8,
                members: (word >> COUNT_SHIFT & 0x7f) as u8,
            }),
            _ => Self::None,
        }
    }

    /// The interface that packets leave by.
    #[inline(always)]
    #[must_use]
    pub const fn interface(self) -> Option<u16> {
        match self {
            Self::Glean { interface }
            | Self::Incomplete { interface }
            | Self::Adjacency { interface, .. } => Some(interface),
            _ => None,
        }
    }
}

/// What forwarding threads look at.
#[derive(Debug)]
pub struct NextHops {
    words: Box<[AtomicU64]>,
    buckets: Box<[AtomicU32]>,
}

impl NextHops {
    /// The next hop of this number.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, number: u32) -> NextHop {
        match self.words.get(number as usize) {
            Some(word) => NextHop::of_word(word.load(Ordering::Acquire)),
            None => NextHop::None,
        }
    }

    /// Asks the processor to load the next hop of this number.
    #[inline(always)]
    pub fn prefetch(&self, number: u32) {
        if let Some(word) = self.words.get(number as usize) {
            quietwire_dpdk::prefetch(word);
        }
    }

    /// The next hop of a flow in a group.
    #[inline]
    #[must_use]
    pub fn choose(&self, group: Buckets, flow: u32) -> NextHop {
        let bucket = flow & ((1 << group.size_log2) - 1);
        match self.buckets.get((group.first + bucket) as usize) {
            Some(number) => self.get(number.load(Ordering::Relaxed)),
            None => NextHop::None,
        }
    }

    /// True when a member of the group leaves by this interface.
    #[must_use]
    pub fn leaves_by(&self, group: Buckets, interface: u16) -> bool {
        let first = group.first as usize + (1 << group.size_log2);
        let members = self
            .buckets
            .iter()
            .skip(first)
            .take(usize::from(group.members));
        members
            .map(|number| self.get(number.load(Ordering::Relaxed)))
            .any(|next_hop| next_hop.interface() == Some(interface))
    }
}

/// Why a next hop could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NextHopError {
    /// No room for another.
    #[error("there is no room for another next hop; give it more with 'next-hops-max'")]
    Full,
    /// Not between 1 and [`MEMBERS_MAX`] members.
    #[error("{0} ways at once are not possible, 1 to {MEMBERS_MAX} are")]
    Members(usize),
}

/// A member of a group: the number of a next hop, and its share.
pub type Member = (u32, u8);

/// The writer's end.
#[derive(Debug)]
pub struct NextHopWriter {
    shared: Arc<NextHops>,
    numbers: Blocks,
    buckets: Blocks,
    groups: HashMap<u32, (Buckets, u32)>,
}

impl NextHopWriter {
    /// Room for so many next hops, and buckets for a quarter as many groups.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new(next_hops_max: u32) -> Result<Self, NoMemory> {
        let next_hops_max = next_hops_max.clamp(16, NEXT_HOP_MAX);
        let buckets = next_hops_max.saturating_mul(16).max(8 * BUCKETS_MAX);
        let shared = Arc::new(NextHops {
            words: zeroed(next_hops_max as usize + 1)?,
            buckets: zeroed(buckets as usize)?,
        });
        let mut numbers = Blocks::new(next_hops_max + 1);
        // Its number stands for no route.
        let none = numbers.take(1);
        debug_assert_eq!(none, Some(NO_ROUTE));
        Ok(Self {
            shared,
            numbers,
            buckets: Blocks::new(buckets),
            groups: HashMap::new(),
        })
    }

    /// What forwarding threads look at.
    #[must_use]
    pub fn shared(&self) -> Arc<NextHops> {
        Arc::clone(&self.shared)
    }

    /// A new next hop; its number.
    ///
    /// # Errors
    /// [`NextHopError::Full`].
    pub fn add(&mut self, next_hop: NextHop) -> Result<u32, NextHopError> {
        let number = self.numbers.take(1).ok_or(NextHopError::Full)?;
        self.set(number, next_hop);
        Ok(number)
    }

    /// Exchanges what a number stands for.
    pub fn set(&self, number: u32, next_hop: NextHop) {
        if let Some(word) = self.shared.words.get(number as usize) {
            word.store(next_hop.word(), Ordering::Release);
        }
    }

    /// A new group; its number.
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

    /// Exchanges the members of a group. Flows of members that stay, and whose share does not shrink, stay with them.
    ///
    /// # Errors
    /// [`NextHopError`]; the group is as it was then.
    pub fn set_group(&mut self, number: u32, members: &[Member]) -> Result<(), NextHopError> {
        check(members)?;
        let former = self.groups.get(&number).copied();
        let size = former
            .map_or(0, |(group, _)| 1u32 << group.size_log2)
            .max(buckets_for(members));
        // As many members as it had before fit in always: those who leave for a while may come back.
        let room = former.map_or(0, |(group, units)| units - (1u32 << group.size_log2));
        let units = size + room.max(members.len() as u32);
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

    /// What former groups had is not free until the epoch has ended: this one keeps its buckets, and they are given out anew
    /// one by one. Each of them leads to a member at any time, a former or a new one. Shares are as exact as its size lets.
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

    fn read(&self, group: Buckets) -> Vec<u32> {
        let buckets = self.shared.buckets.iter().skip(group.first as usize);
        buckets
            .take(1 << group.size_log2)
            .map(|place| place.load(Ordering::Relaxed))
            .collect()
    }

    /// Gives a number back that no route leads to any more.
    pub fn remove(&mut self, number: u32) {
        if let Some((group, units)) = self.groups.remove(&number) {
            self.buckets.retire(group.first, units);
        }
        self.numbers.retire(number, 1);
    }

    /// Next hops in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.numbers.used() - 1
    }

    /// True without next hops.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Notes the epoch in which next hops are taken out from now on.
    pub fn set_epoch(&mut self, epoch: Epoch) {
        self.numbers.set_epoch(epoch);
        self.buckets.set_epoch(epoch);
    }

    /// Puts to use again what was taken out before this epoch.
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

fn weight_of((_, weight): &Member) -> u32 {
    u32::from(*weight).max(1)
}

fn buckets_for(members: &[Member]) -> u32 {
    let weights: u32 = members.iter().map(weight_of).sum();
    (weights * BUCKETS_A_WEIGHT)
        .next_power_of_two()
        .clamp(BUCKETS_MIN, BUCKETS_MAX)
}

/// Buckets that each member is to have: shares rounded down, and one more for the first until all are given out.
fn quotas(size: usize, members: &[Member]) -> Vec<usize> {
    let weights: usize = members
        .iter()
        .map(|member| weight_of(member) as usize)
        .sum();
    let mut quotas: Vec<usize> = members
        .iter()
        .map(|member| size * weight_of(member) as usize / weights)
        .collect();
    let left = size - quotas.iter().sum::<usize>();
    quotas.iter_mut().take(left).for_each(|quota| *quota += 1);
    quotas
}

/// Who has which bucket, with as few changes as can be. When there are more buckets than before, each of the former ones
/// counts for several.
fn share_out(before: &[u32], size: usize, members: &[Member]) -> Vec<u32> {
    let mut room = quotas(size, members);
    let mut after = vec![NO_ROUTE; size];
    if !before.is_empty() {
        for (bucket, number) in after.iter_mut().enumerate() {
            let former = before[bucket % before.len()];
            let member = members.iter().position(|(one, _)| *one == former);
            if let Some(member) = member
                && room[member] > 0
            {
                room[member] -= 1;
                *number = former;
            }
        }
    }
    let mut next = 0;
    for number in after.iter_mut().filter(|number| **number == NO_ROUTE) {
        // Round and round, so that the buckets of one who leaves go to all others.
        while room[next % members.len()] == 0 {
            next += 1;
        }
        room[next % members.len()] -= 1;
        *number = members[next % members.len()].0;
        next += 1;
    }
    after
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn counts(buckets: &[u32]) -> BTreeMap<u32, usize> {
        let mut counts = BTreeMap::new();
        for number in buckets {
            *counts.entry(*number).or_default() += 1;
        }
        counts
    }

    #[test]
    fn words_hold_what_they_are_made_of() {
        let mac = MacAddress::from_u64(0x0200_0000_0007);
        for next_hop in [
            NextHop::None,
            NextHop::Blackhole,
            NextHop::Unreachable,
            NextHop::Prohibit,
            NextHop::Local,
            NextHop::Glean { interface: 4095 },
            NextHop::Incomplete { interface: 1 },
            NextHop::Adjacency { interface: 7, mac },
            NextHop::Group(Buckets {
                first: u32::MAX,
                size_log2: 12,
                members: 64,
            }),
        ] {
            assert_eq!(NextHop::of_word(next_hop.word()), next_hop);
        }
    }

    #[test]
    fn numbers_are_used_again_after_their_epoch() {
        let mut writer = NextHopWriter::new(16).unwrap();
        let numbers: Vec<u32> = (0..16)
            .map(|_| writer.add(NextHop::Local).unwrap())
            .collect();
        assert_eq!(numbers, (1..=16).collect::<Vec<u32>>());
        assert_eq!(writer.add(NextHop::Local), Err(NextHopError::Full));
        writer.set_epoch(3);
        writer.remove(5);
        writer.reclaim(3);
        assert_eq!(writer.add(NextHop::Local), Err(NextHopError::Full));
        // Whoever had the number before still finds what it stood for.
        assert_eq!(writer.shared().get(5), NextHop::Local);
        writer.reclaim(4);
        assert_eq!(writer.add(NextHop::Blackhole), Ok(5));
        assert_eq!(writer.len(), 16);
    }

    #[test]
    fn shares_follow_weights() {
        let mut writer = NextHopWriter::new(64).unwrap();
        let group = writer.add_group(&[(1, 1), (2, 3)]).unwrap();
        let NextHop::Group(buckets) = writer.shared().get(group) else {
            panic!();
        };
        assert_eq!(
            counts(&writer.read(buckets)),
            BTreeMap::from([(1, 8), (2, 24)])
        );
        assert_eq!(writer.add_group(&[]), Err(NextHopError::Members(0)));
        assert_eq!(
            writer.set_group(group, &[(1, 1); 65]),
            Err(NextHopError::Members(65))
        );
    }

    /// Many large groups that change within one epoch, as when an interface goes: more than there is room for twice.
    #[test]
    fn groups_change_without_room_for_a_second_one() {
        let mut writer = NextHopWriter::new(64).unwrap();
        let members: Vec<Member> = (1..=8).map(|number| (number, 64)).collect();
        let groups: Vec<u32> = (0..)
            .map_while(|_| writer.add_group(&members).ok())
            .collect();
        assert!(groups.len() >= 4);
        let read = |writer: &NextHopWriter, group| match writer.shared().get(group) {
            NextHop::Group(buckets) => (buckets, counts(&writer.read(buckets))),
            other => panic!("{other:?}"),
        };
        for left in [1, 4, 8] {
            for group in &groups {
                writer.set_group(*group, &members[..left]).unwrap();
                let (buckets, counts) = read(&writer, *group);
                assert_eq!(counts.len(), left);
                assert!(counts.values().all(|count| *count == 4096 / left));
                assert_eq!(usize::from(buckets.members), left);
            }
        }
        // A new one has to wait for the epoch.
        writer.set_epoch(1);
        writer.remove(groups[0]);
        assert_eq!(writer.add_group(&members), Err(NextHopError::Full));
        writer.reclaim(2);
        assert!(writer.add_group(&members).is_ok());
    }

    #[test]
    fn a_strict_check_finds_all_members() {
        let mut writer = NextHopWriter::new(64).unwrap();
        let on = |interface| NextHop::Incomplete { interface };
        let (a, b) = (writer.add(on(3)).unwrap(), writer.add(on(4)).unwrap());
        let group = writer.add_group(&[(a, 1), (b, 1)]).unwrap();
        let shared = writer.shared();
        let NextHop::Group(buckets) = shared.get(group) else {
            panic!();
        };
        assert!(shared.leaves_by(buckets, 3) && shared.leaves_by(buckets, 4));
        assert!(!shared.leaves_by(buckets, 5));
        assert!((0..100).all(|flow| shared.choose(buckets, flow).interface().is_some()));
    }

    proptest! {
        #[test]
        fn who_stays_keeps_its_flows(
            before in prop::collection::btree_map(1..20u32, 1..5u8, 1..8),
            after in prop::collection::btree_map(1..20u32, 1..5u8, 1..8),
        ) {
            let before: Vec<Member> = before.into_iter().collect();
            let after: Vec<Member> = after.into_iter().collect();
            let size = buckets_for(&before).max(buckets_for(&after)) as usize;
            let first = share_out(&[], size, &before);
            let second = share_out(&first, size, &after);
            let quota = |members: &[Member], number| {
                let at = members.iter().position(|(one, _)| *one == number);
                at.map_or(0, |at| quotas(size, members)[at])
            };
            for (number, _) in before.iter().chain(&after) {
                prop_assert_eq!(counts(&first).get(number).copied().unwrap_or(0), quota(&before, *number));
                prop_assert_eq!(counts(&second).get(number).copied().unwrap_or(0), quota(&after, *number));
                // As many stay as can: the smaller of both shares.
                let stayed = first.iter().zip(&second).filter(|(a, b)| a == b && *a == number).count();
                prop_assert_eq!(stayed, quota(&before, *number).min(quota(&after, *number)));
            }
        }
    }
}
