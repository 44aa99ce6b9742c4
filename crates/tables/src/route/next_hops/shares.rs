// SPDX-License-Identifier: Apache-2.0
//! Assignment of buckets to group members.

use super::Member;
use crate::fib::NO_ROUTE;

/// Limits of the number of buckets of a group. Models have the fewest.
const BUCKETS_MIN: u32 = if cfg!(loom) { 2 } else { 16 };
pub(super) const BUCKETS_MAX: u32 = if cfg!(loom) { 2 } else { 4096 };
/// Buckets per unit of weight, for shares accurate to about a tenth.
const BUCKETS_A_WEIGHT: u32 = 8;

fn weight_of((_, weight): &Member) -> u32 {
    u32::from(*weight).max(1)
}

#[expect(
    clippy::arithmetic_side_effects,
    reason = "there are few members, of small weights"
)]
pub(super) fn buckets_for(members: &[Member]) -> u32 {
    let weights: u32 = members.iter().map(weight_of).sum();
    (weights * BUCKETS_A_WEIGHT)
        .next_power_of_two()
        .clamp(BUCKETS_MIN, BUCKETS_MAX)
}

/// Returns the number of buckets of each member: shares rounded down, plus one for the first members until all are assigned.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "the quotas are at most the size, and there are few members of small weights"
)]
pub(super) fn quotas(size: usize, members: &[Member]) -> Vec<usize> {
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

/// Assigns buckets to members with as few changes as possible. If there are more buckets than before, each former one counts for several.
#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "there is a bucket and a member at least, and rests are below the divisor"
)]
pub(super) fn share_out(before: &[u32], size: usize, members: &[Member]) -> Vec<u32> {
    let mut space = quotas(size, members);
    let mut after = vec![NO_ROUTE; size];
    if !before.is_empty() {
        for (bucket, number) in after.iter_mut().enumerate() {
            let former = before[bucket % before.len()];
            let member = members.iter().position(|(one, _)| *one == former);
            if let Some(member) = member
                && space[member] > 0
            {
                space[member] -= 1;
                *number = former;
            }
        }
    }
    let mut next = 0;
    for number in after.iter_mut().filter(|number| **number == NO_ROUTE) {
        // Round robin, so that the buckets of a leaving member go to all others.
        while space[next % members.len()] == 0 {
            next += 1;
        }
        space[next % members.len()] -= 1;
        *number = members[next % members.len()].0;
        next += 1;
    }
    after
}
