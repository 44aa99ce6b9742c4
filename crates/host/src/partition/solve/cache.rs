// SPDX-License-Identifier: Apache-2.0
//! Allocation of cache ways and memory bandwidth to classes of service.
//!
//! In every cache, each class that has CPUs there gets its own ways, side by side. Network cards write into the ways of
//! `shareable_bits`, so forwarding gets that end of the cache and neighbours get the other end.

use crate::CpuList;
use crate::inventory::{BandwidthAllocation, CacheAllocation, Rdt, Vendor};

use super::super::plan::{Bandwidth, CacheMask, Class, Plan, Role};
use super::{Attempt, Member, RequestSection};

/// Name of the default class, which contains everything that is in no other class.
const DEFAULT: &str = "default";
/// Weight of forwarding in the ways that no request assigns: as much as all other classes together on a small machine.
const FORWARDING_PARTS: u32 = 4;
const GUEST_PARTS: u32 = 2;
const OTHER_PARTS: u32 = 1;
/// Default limit of a neighbour's bandwidth, percent.
const NEIGHBOUR_BANDWIDTH: u32 = 50;
const PERCENT: u32 = 100;

/// A class under construction.
struct Share {
    name: String,
    rank: u8,
    parts: u32,
    cache_percent: Option<u32>,
    bandwidth_percent: Option<u32>,
    groups: Vec<String>,
    cpus: CpuList,
}

impl Attempt<'_> {
    /// Adds the classes of service to the plan.
    pub(super) fn share_caches(&mut self, plan: &mut Plan) {
        let rdt = &self.machine.rdt;
        // The last level that can be allocated. Caches of lower levels belong to one core each.
        let cache = rdt.caches.iter().max_by_key(|cache| cache.level);
        if self.lacks_allocation(cache.is_some(), rdt.bandwidth.is_some()) {
            return;
        }
        let Some(most) = rdt.classes_max() else {
            return;
        };
        let mut shares = self.shares(plan);
        self.merge(&mut shares, most as usize, cache);
        let mut classes: Vec<Class> = shares
            .iter()
            .map(|share| Class {
                name: share.name.clone(),
                is_default: share.name == DEFAULT,
                cpus: share.cpus.clone(),
                masks: Vec::new(),
                bandwidth: bandwidth(rdt, share),
            })
            .collect();
        if let Some(cache) = cache {
            for domain in &cache.domains {
                self.divide(cache, *domain, &shares, &mut classes);
            }
            self.explain_cache(cache, &classes);
        }
        for group in &mut plan.groups {
            let share = shares
                .iter()
                .find(|share| share.groups.contains(&group.name));
            group.class = share.map(|share| share.name.clone());
        }
        plan.classes = classes;
    }

    /// Returns whether the machine supports no allocation. Requests for shares are conflicts then.
    fn lacks_allocation(&mut self, has_cache: bool, has_bandwidth: bool) -> bool {
        let flags = &self.machine.rdt.cpu_flags;
        let has_flags = flags
            .iter()
            .any(|flag| flag.starts_with("cat_") || flag == "mba");
        let how = if self.machine.rdt.is_mounted {
            "resctrl does not support it"
        } else if has_flags {
            "resctrl is not mounted; run `mount -t resctrl resctrl /sys/fs/resctrl`"
        } else {
            "the processor or the kernel does not support resctrl"
        };
        let members: Vec<Member> = self.members.clone();
        for member in members {
            if member.cache_percent.is_some() && !has_cache {
                self.conflict(
                    &member.name,
                    format!(
                        "a cache share is requested, but cache allocation is not available: {how}"
                    ),
                    "no share",
                );
                self.change_shares(&member, |cache, _| *cache = None);
            }
            if member.bandwidth_percent.is_some() && !has_bandwidth {
                self.conflict(&member.name, format!("a bandwidth share is requested, but bandwidth limits are not available: {how}"), "no limit");
                self.change_shares(&member, |_, bandwidth| *bandwidth = None);
            }
            for (percent, what) in [
                (member.cache_percent, "cache"),
                (member.bandwidth_percent, "bandwidth"),
            ] {
                if let Some(percent) =
                    percent.filter(|percent| *percent == 0 || u32::from(*percent) > PERCENT)
                {
                    self.conflict(
                        &member.name,
                        format!(
                            "{percent} percent of the {what} is requested, but shares range from 1 to 100 percent"
                        ),
                        "no share",
                    );
                    self.change_shares(&member, |cache, bandwidth| {
                        *if what == "cache" { cache } else { bandwidth } = None;
                    });
                }
            }
        }
        !has_cache && !has_bandwidth
    }

    /// Replaces a group's cache and bandwidth request for the next planning round.
    fn change_shares(
        &mut self,
        member: &Member,
        change: impl Fn(&mut Option<u8>, &mut Option<u8>),
    ) {
        let next = &mut self.nearest;
        let (cache, bandwidth) = match member.section {
            RequestSection::Forwarding => (
                &mut next.forwarding.cache_percent,
                &mut next.forwarding.bandwidth_percent,
            ),
            RequestSection::Host => (
                &mut next.host.cache_percent,
                &mut next.host.bandwidth_percent,
            ),
            RequestSection::Control | RequestSection::Service => {
                let entry = if member.section == RequestSection::Control {
                    &mut next.control
                } else {
                    &mut next.service
                };
                match entry {
                    Some(entry) => (&mut entry.cache_percent, &mut entry.bandwidth_percent),
                    None => return,
                }
            }
            RequestSection::Guest(_) => match next
                .guests
                .iter_mut()
                .find(|guest| guest.name == member.name)
            {
                Some(entry) => (&mut entry.cache_percent, &mut entry.bandwidth_percent),
                None => return,
            },
            RequestSection::Neighbour(_) => match next
                .neighbours
                .iter_mut()
                .find(|neighbour| neighbour.name == member.name)
            {
                Some(entry) => (&mut entry.cache_percent, &mut entry.bandwidth_percent),
                None => return,
            },
            RequestSection::Idle => return,
        };
        change(cache, bandwidth);
    }

    /// Returns one class each for forwarding, every guest and every neighbour. The host has the default class. Control and
    /// service have a separate class only if a share is requested for them.
    fn shares(&self, plan: &Plan) -> Vec<Share> {
        let mut shares = Vec::new();
        let mut host: Option<Share> = None;
        for (member, group) in self
            .members
            .iter()
            .filter_map(|member| Some((member, plan.group(&member.name)?)))
        {
            let requests_nothing =
                member.cache_percent.is_none() && member.bandwidth_percent.is_none();
            let (rank, parts) = match member.role {
                Role::Forwarding => (3, FORWARDING_PARTS),
                Role::Guest => (2, GUEST_PARTS),
                Role::Neighbour => (0, OTHER_PARTS),
                Role::Host => (1, OTHER_PARTS),
                Role::Control | Role::Service if !requests_nothing => (2, OTHER_PARTS),
                Role::Control | Role::Service | Role::Idle => {
                    if let Some(host) = &mut host {
                        host.groups.push(group.name.clone());
                        host.cpus = host.cpus.union(&group.cpus);
                    }
                    continue;
                }
            };
            let share = Share {
                name: if member.role == Role::Host {
                    DEFAULT.to_owned()
                } else {
                    member.name.clone()
                },
                rank,
                parts,
                cache_percent: member
                    .cache_percent
                    .map(u32::from)
                    .filter(|percent| (1..=PERCENT).contains(percent)),
                bandwidth_percent: member
                    .bandwidth_percent
                    .map(u32::from)
                    .filter(|percent| (1..=PERCENT).contains(percent))
                    .or((member.role == Role::Neighbour).then_some(NEIGHBOUR_BANDWIDTH)),
                groups: vec![member.name.clone()],
                cpus: group.cpus.clone(),
            };
            if member.role == Role::Host {
                host = Some(share)
            } else {
                shares.push(share)
            }
        }
        shares.splice(0..0, host);
        shares
    }

    /// Merges classes if there are more than the hardware supports: first the neighbours share a class, then the guests, then
    /// the neighbours join the default class.
    fn merge(&mut self, shares: &mut Vec<Share>, most: usize, cache: Option<&CacheAllocation>) {
        let ways = cache.map_or(usize::MAX, |cache| {
            let ways = cache.ways();
            ways.checked_div(cache.ways_min).unwrap_or(ways) as usize
        });
        let limit = most.min(ways).max(1);
        let roles = [(0, "neighbours"), (2, "guests")];
        for (rank, name) in roles {
            if shares.len() > limit {
                self.merge_rank(shares, rank, name, limit);
            }
        }
        while shares.len() > limit {
            // The last class has the lowest rank. Forwarding keeps its class longest.
            let least = (1..shares.len())
                .rev()
                .min_by_key(|at| shares.get(*at).map(|share| share.rank));
            let Some(at) = least else { break };
            let gone = shares.remove(at);
            self.reason(
                "cache",
                format!(
                    "{} shares the default class: the hardware has classes and ways for only {limit}",
                    gone.name
                ),
            );
            if gone.cache_percent.is_some() {
                self.no_class_left(&gone);
            }
            if let Some(default) = shares.first_mut() {
                default.groups.extend(gone.groups);
                default.cpus = default.cpus.union(&gone.cpus);
            }
        }
    }

    fn merge_rank(&mut self, shares: &mut Vec<Share>, rank: u8, name: &str, limit: usize) {
        let (same, rest): (Vec<Share>, Vec<Share>) = std::mem::take(shares)
            .into_iter()
            .partition(|share| share.rank == rank && share.name != DEFAULT);
        *shares = rest;
        if same.len() < 2 {
            shares.extend(same);
            return;
        }
        self.reason(
            "cache",
            format!("{name} share one class: the hardware has classes and ways for only {limit}"),
        );
        let mut one = Share {
            name: name.to_owned(),
            rank,
            parts: same
                .iter()
                .map(|share| share.parts)
                .max()
                .unwrap_or(OTHER_PARTS),
            cache_percent: None,
            bandwidth_percent: same
                .iter()
                .filter_map(|share| share.bandwidth_percent)
                .max(),
            groups: Vec::new(),
            cpus: CpuList::new(),
        };
        for share in same {
            if share.cache_percent.is_some() {
                self.no_class_left(&share);
            }
            one.cpus = one.cpus.union(&share.cpus);
            one.groups.extend(share.groups);
        }
        shares.push(one);
    }

    fn no_class_left(&mut self, share: &Share) {
        self.conflict(
            &share.name,
            "a cache share is requested, but the hardware has too few classes or ways",
            "no separate share",
        );
        let member = self
            .members
            .iter()
            .find(|member| share.groups.contains(&member.name))
            .cloned();
        if let Some(member) = member {
            self.change_shares(&member, |cache, _| *cache = None);
        }
    }

    /// Divides the ways of one cache.
    fn divide(
        &mut self,
        cache: &CacheAllocation,
        domain: u32,
        shares: &[Share],
        classes: &mut [Class],
    ) {
        let cpus = self.cpus_of_cache(cache.level, domain);
        let is_present = |share: &Share| {
            share.name == DEFAULT
                || cpus
                    .as_ref()
                    .is_none_or(|cpus| !share.cpus.intersection(cpus).is_empty())
        };
        let mut present: Vec<usize> = (0..shares.len())
            .filter(|at| shares.get(*at).is_some_and(is_present))
            .collect();
        present.sort_by_key(|at| shares.get(*at).map(|share| share.rank));
        let chosen: Vec<&Share> = present.iter().filter_map(|at| shares.get(*at)).collect();
        let (ways, requested_too_much) = ways(&chosen, cache.ways(), cache.ways_min.max(1));
        if requested_too_much {
            self.report_excess_shares(cache, &chosen);
        }
        let masks = side_by_side(&ways, cache);
        let default = present
            .iter()
            .zip(&masks)
            .find(|(at, _)| shares.get(**at).is_some_and(|share| share.name == DEFAULT));
        let default_mask = default.map_or(cache.mask, |(_, mask)| *mask);
        for (at, class) in classes.iter_mut().enumerate() {
            let own = present.iter().position(|present| *present == at);
            let mask = own
                .and_then(|own| masks.get(own).copied())
                .unwrap_or(default_mask);
            class.masks.push(CacheMask {
                level: cache.level,
                domain,
                mask,
            });
        }
    }

    /// Returns the CPUs that share a cache. `None` if the machine does not report them.
    fn cpus_of_cache(&self, level: u8, domain: u32) -> Option<CpuList> {
        let mut caches = self.machine.caches.iter();
        let cache = caches.find(|cache| {
            cache.level == level && cache.id == Some(domain) && cache.kind != "Instruction"
        })?;
        Some(cache.cpus.clone())
    }

    fn report_excess_shares(&mut self, cache: &CacheAllocation, shares: &[&Share]) {
        let requested: Vec<(String, u32)> = shares
            .iter()
            .filter_map(|share| Some((share.name.clone(), share.cache_percent?)))
            .collect();
        let reported: Vec<String> = requested
            .iter()
            .map(|(name, percent)| format!("{name} {percent}"))
            .collect();
        let text = format!(
            "shares of {} percent are requested, but the cache has {} ways and every class needs at least {}",
            reported.join(", "),
            cache.ways(),
            cache.ways_min.max(1)
        );
        // Reduce the largest share by the excess.
        let Some((name, percent)) = requested.iter().max_by_key(|(_, percent)| *percent) else {
            return;
        };
        let step = PERCENT.div_ceil(cache.ways().max(1));
        let sum: u32 = requested.iter().map(|(_, percent)| percent).sum();
        let less = percent
            .saturating_sub(step.max(sum.saturating_sub(PERCENT)))
            .max(1);
        let conflict_text = text;
        self.conflict("cache", conflict_text, format!("{less} percent for {name}"));
        let section = if name == DEFAULT { "host" } else { name };
        let member = self
            .members
            .iter()
            .find(|member| member.name == section)
            .cloned();
        if let Some(member) = member {
            let less = u8::try_from(less)
                .ok()
                .filter(|less| u32::from(*less) < *percent);
            self.change_shares(&member, |cache, _| *cache = less);
        }
    }

    fn explain_cache(&mut self, cache: &CacheAllocation, classes: &[Class]) {
        for class in classes {
            let masks: Vec<String> = class
                .masks
                .iter()
                .map(|mask| format!("{}={:x}", mask.domain, mask.mask))
                .collect();
            let ways: Vec<u32> = class
                .masks
                .iter()
                .map(|mask| mask.mask.count_ones())
                .collect();
            let most = ways.iter().max().copied().unwrap_or(0);
            self.reason(
                "cache",
                format!(
                    "class {}: up to {most} of {} ways of L{} ({})",
                    class.name,
                    cache.ways(),
                    cache.level,
                    masks.join(";")
                ),
            );
        }
        if cache.shared_with_devices != 0
            && classes
                .iter()
                .any(|class| class.name == Role::Forwarding.name())
        {
            self.reason("cache", format!("devices write into the ways {:x}, so forwarding gets that end of the cache and neighbours get the other end", cache.shared_with_devices));
        }
        if self.machine.vendor() == Vendor::Amd && self.machine.rdt.bandwidth.is_some() {
            self.reason("cache", "bandwidth limits are in units of 1/8 GB/s");
        }
    }
}

/// Returns the number of ways of each class, in order, and whether the requests exceed the cache.
fn ways(shares: &[&Share], total: u32, least: u32) -> (Vec<u32>, bool) {
    let requested = |share: &Share| {
        share.cache_percent.map(|percent| {
            let rounded = total.saturating_mul(percent).saturating_add(PERCENT / 2);
            (rounded / PERCENT).max(least)
        })
    };
    // The minimum number of ways is of the kernel's file, so the sums may exceed any cache.
    let fixed = shares
        .iter()
        .filter_map(|share| requested(share))
        .fold(0, u32::saturating_add);
    let others: Vec<&&Share> = shares
        .iter()
        .filter(|share| share.cache_percent.is_none())
        .collect();
    let needed = u32::try_from(others.len())
        .unwrap_or(u32::MAX)
        .saturating_mul(least);
    let is_too_much = fixed.saturating_add(needed) > total && others.len() < shares.len();
    let left = total.saturating_sub(fixed);
    let parts: u32 = others.iter().map(|share| share.parts).sum();
    let spare = left.saturating_sub(needed);
    let mut counts: Vec<u32> = shares
        .iter()
        .map(|share| {
            requested(share).unwrap_or_else(|| {
                let part = spare.saturating_mul(share.parts).checked_div(parts);
                least.saturating_add(part.unwrap_or(0))
            })
        })
        .collect();
    // The remainder from rounding goes to the class of the highest rank without a requested share, or to the default class
    // if all classes have one.
    let given = counts.iter().copied().fold(0, u32::saturating_add);
    let heir = (0..shares.len())
        .rev()
        .find(|at| {
            shares
                .get(*at)
                .is_some_and(|share| share.cache_percent.is_none())
        })
        .or_else(|| shares.iter().position(|share| share.name == DEFAULT));
    if let Some(count) = heir.and_then(|heir| counts.get_mut(heir)) {
        *count = count.saturating_add(total.saturating_sub(given));
    }
    (counts, is_too_much)
}

/// Returns contiguous masks side by side. The last one is at the end into which devices write.
fn side_by_side(ways: &[u32], cache: &CacheAllocation) -> Vec<u64> {
    let total = cache.ways();
    let devices_are_low = cache.devices_are_low();
    let mut at = 0u32;
    let mut masks = Vec::new();
    for count in ways {
        // If the requests exceed the cache, another round follows. Until then, no mask may leave the cache.
        let count = (*count).clamp(1, total.max(1));
        let most = total.saturating_sub(count);
        let start = at.min(most);
        let place = if devices_are_low {
            most.saturating_sub(start)
        } else {
            start
        };
        masks.push(cache.adjacent(place, count));
        at = at.saturating_add(count);
    }
    masks
}

/// Returns the bandwidth limits of a class.
fn bandwidth(rdt: &Rdt, share: &Share) -> Vec<Bandwidth> {
    let Some(allocation) = &rdt.bandwidth else {
        return Vec::new();
    };
    let limit = limit(allocation, share.bandwidth_percent.unwrap_or(PERCENT));
    allocation
        .domains
        .iter()
        .map(|domain| Bandwidth {
            domain: *domain,
            limit,
        })
        .collect()
}

/// Returns a limit that the hardware supports, rounded up to its step.
fn limit(allocation: &BandwidthAllocation, percent: u32) -> u32 {
    let step = u64::from(allocation.step.max(1));
    let wanted = u64::from(allocation.unlimited).saturating_mul(u64::from(percent));
    let stepped = wanted.div_ceil(u64::from(PERCENT)).next_multiple_of(step);
    let most = allocation.unlimited.max(allocation.min);
    u32::try_from(stepped).map_or(most, |limit| limit.clamp(allocation.min, most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_steps_of_the_hardware_whatever_it_reports() {
        let limit = |unlimited, step, percent| {
            let allocation = BandwidthAllocation {
                min: 10,
                unlimited,
                step,
                ..BandwidthAllocation::default()
            };
            limit(&allocation, percent)
        };
        assert_eq!(limit(100, 10, 45), 50);
        assert_eq!(limit(2048, 1, 50), 1024);
        assert_eq!(limit(100, 10, 0), 10);
        assert_eq!(limit(u32::MAX, 10, 50), 2_147_483_650);
        assert_eq!(limit(u32::MAX, u32::MAX, 1), u32::MAX);
        assert_eq!(limit(u32::MAX, u32::MAX - 1, 100), u32::MAX);
        assert_eq!(limit(0, 0, 50), 10);
    }

    #[test]
    fn masks_have_64_bits_whatever_the_hardware_reports() {
        let cache = |mask| CacheAllocation {
            mask,
            ..CacheAllocation::default()
        };
        assert_eq!(cache(0x7ff0).adjacent(0, 11), 0x7ff0);
        assert_eq!(cache(0x7ff0).adjacent(2, 3), 0b111 << 6);
        assert_eq!(cache(u64::MAX).adjacent(0, 0), 0);
        assert_eq!(cache(u64::MAX).adjacent(63, 2), 1 << 63);
        assert_eq!(side_by_side(&[64], &cache(u64::MAX)), [u64::MAX]);
        assert_eq!(side_by_side(&[1, 2], &cache(0)), [0, 0]);
    }
}
