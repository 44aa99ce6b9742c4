// SPDX-License-Identifier: Apache-2.0
//! Cache ways and memory bandwidth, shared out among classes of service.
//!
//! In every cache, classes with CPUs there get ways of their own, side by side. Network controllers write into the ways
//! that `shareable_bits` names, so that forwarding gets the end where those are and neighbours the other end.

use crate::CpuList;
use crate::inventory::{BandwidthAllocation, CacheAllocation, Rdt, Vendor};

use super::super::plan::{Bandwidth, CacheMask, Class, Plan, Role};
use super::{Attempt, Member, Whose};

/// The class of everything that is in no other.
const DEFAULT: &str = "default";
/// Parts of what is not wished for otherwise: forwarding gets as much as all others together have on a small machine.
const FORWARDING_PARTS: u32 = 4;
const GUEST_PARTS: u32 = 2;
const OTHER_PARTS: u32 = 1;
/// Limit of a neighbour's bandwidth unless another is wished, percent.
const NEIGHBOUR_BANDWIDTH: u32 = 50;
const PERCENT: u32 = 100;

/// A class while it is made.
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
    /// Makes the classes.
    pub(super) fn share_caches(&mut self, plan: &mut Plan) {
        let rdt = &self.machine.rdt;
        // The last level that can be shared out; a cache further in is each core's own anyway.
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

    /// Whether nothing can be shared out; wishes for it are conflicts then.
    fn lacks_allocation(&mut self, has_cache: bool, has_bandwidth: bool) -> bool {
        let flags = &self.machine.rdt.cpu_flags;
        let has_flags = flags
            .iter()
            .any(|flag| flag.starts_with("cat_") || flag == "mba");
        let how = if self.machine.rdt.is_mounted {
            "resctrl does not offer it"
        } else if has_flags {
            "resctrl is not mounted; `mount -t resctrl resctrl /sys/fs/resctrl` brings it"
        } else {
            "the processor or the kernel has no resctrl"
        };
        let members: Vec<Member> = self.members.clone();
        for member in members {
            if member.cache_percent.is_some() && !has_cache {
                self.conflict(
                    &member.name,
                    format!(
                        "a share of the cache is wished, and the cache cannot be shared out: {how}"
                    ),
                    "no share",
                );
                self.change_shares(&member, |cache, _| *cache = None);
            }
            if member.bandwidth_percent.is_some() && !has_bandwidth {
                self.conflict(&member.name, format!("a share of the memory bandwidth is wished, and that cannot be limited: {how}"), "no limit");
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
                            "{percent} percent of the {what} is wished; shares go from 1 to 100"
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

    /// Changes what a group wishes of cache and bandwidth in what is planned next.
    fn change_shares(
        &mut self,
        member: &Member,
        change: impl Fn(&mut Option<u8>, &mut Option<u8>),
    ) {
        let next = &mut self.nearest;
        let (cache, bandwidth) = match member.whose {
            Whose::Forwarding => (
                &mut next.forwarding.cache_percent,
                &mut next.forwarding.bandwidth_percent,
            ),
            Whose::Host => (
                &mut next.host.cache_percent,
                &mut next.host.bandwidth_percent,
            ),
            Whose::Control | Whose::Service => {
                let wish = if member.whose == Whose::Control {
                    &mut next.control
                } else {
                    &mut next.service
                };
                match wish {
                    Some(wish) => (&mut wish.cache_percent, &mut wish.bandwidth_percent),
                    None => return,
                }
            }
            Whose::Guest(_) => match next
                .guests
                .iter_mut()
                .find(|guest| guest.name == member.name)
            {
                Some(wish) => (&mut wish.cache_percent, &mut wish.bandwidth_percent),
                None => return,
            },
            Whose::Neighbour(_) => match next
                .neighbours
                .iter_mut()
                .find(|neighbour| neighbour.name == member.name)
            {
                Some(wish) => (&mut wish.cache_percent, &mut wish.bandwidth_percent),
                None => return,
            },
            Whose::Idle => return,
        };
        change(cache, bandwidth);
    }

    /// One class for forwarding, each guest and each neighbour; the host's is the default one. Control and service have
    /// one of their own only when something is wished for them.
    fn shares(&self, plan: &Plan) -> Vec<Share> {
        let mut shares = Vec::new();
        let mut host: Option<Share> = None;
        for (member, group) in self
            .members
            .iter()
            .filter_map(|member| Some((member, plan.group(&member.name)?)))
        {
            let wishes_nothing =
                member.cache_percent.is_none() && member.bandwidth_percent.is_none();
            let (rank, parts) = match member.role {
                Role::Forwarding => (3, FORWARDING_PARTS),
                Role::Guest => (2, GUEST_PARTS),
                Role::Neighbour => (0, OTHER_PARTS),
                Role::Host => (1, OTHER_PARTS),
                Role::Control | Role::Service if !wishes_nothing => (2, OTHER_PARTS),
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

    /// Makes fewer classes of those that are too many for the hardware: neighbours share one, then guests do, then
    /// neighbours are in the default class.
    fn merge(&mut self, shares: &mut Vec<Share>, most: usize, cache: Option<&CacheAllocation>) {
        let ways = cache.map_or(usize::MAX, |cache| {
            (cache.ways() / cache.ways_min.max(1)) as usize
        });
        let limit = most.min(ways).max(1);
        let roles = [(0, "neighbours"), (2, "guests")];
        for (rank, name) in roles {
            if shares.len() > limit {
                self.merge_rank(shares, rank, name, limit);
            }
        }
        while shares.len() > limit {
            // The last is the least: forwarding is kept apart longest.
            let least = (1..shares.len())
                .rev()
                .min_by_key(|at| shares.get(*at).map(|share| share.rank));
            let Some(at) = least else { break };
            let gone = shares.remove(at);
            self.reason(
                "cache",
                format!(
                    "{} shares the default class: there are classes and ways for {limit} only",
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
            format!("{name} share one class: there are classes and ways for {limit} only"),
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
            "a share of the cache is wished, and there are not so many classes or ways",
            "no share of its own",
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

    /// Divides one cache's ways.
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
        let (ways, wished_too_much) = ways(&chosen, cache.ways(), cache.ways_min.max(1));
        if wished_too_much {
            self.too_much_cache(cache, &chosen);
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

    /// CPUs that a cache serves; none where the machine does not tell.
    fn cpus_of_cache(&self, level: u8, domain: u32) -> Option<CpuList> {
        let mut caches = self.machine.caches.iter();
        let cache = caches.find(|cache| {
            cache.level == level && cache.id == Some(domain) && cache.kind != "Instruction"
        })?;
        cache.cpus.parse().ok()
    }

    fn too_much_cache(&mut self, cache: &CacheAllocation, shares: &[&Share]) {
        let wished: Vec<(String, u32)> = shares
            .iter()
            .filter_map(|share| Some((share.name.clone(), share.cache_percent?)))
            .collect();
        let told: Vec<String> = wished
            .iter()
            .map(|(name, percent)| format!("{name} {percent}"))
            .collect();
        let text = format!(
            "shares of {} percent are wished of a cache with {} ways, of which every class needs {} at least",
            told.join(", "),
            cache.ways(),
            cache.ways_min.max(1)
        );
        // The largest gives way, by what is too much.
        let Some((name, percent)) = wished.iter().max_by_key(|(_, percent)| *percent) else {
            return;
        };
        let step = PERCENT.div_ceil(cache.ways().max(1));
        let sum: u32 = wished.iter().map(|(_, percent)| percent).sum();
        let less = percent
            .saturating_sub(step.max(sum.saturating_sub(PERCENT)))
            .max(1);
        let conflict_text = text;
        self.conflict("cache", conflict_text, format!("{less} percent for {name}"));
        let whose = if name == DEFAULT { "host" } else { name };
        let member = self
            .members
            .iter()
            .find(|member| member.name == whose)
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
            self.reason("cache", format!("devices write into the ways {:x}, so that forwarding has that end and neighbours have the other", cache.shared_with_devices));
        }
        if self.machine.vendor() == Vendor::Amd && self.machine.rdt.bandwidth.is_some() {
            self.reason("cache", "limits of bandwidth are in units of 1/8 GB/s");
        }
    }
}

/// Ways of each class, in their order; and whether more was wished than there is.
fn ways(shares: &[&Share], total: u32, least: u32) -> (Vec<u32>, bool) {
    let wished = |share: &Share| {
        share
            .cache_percent
            .map(|percent| ((total * percent + PERCENT / 2) / PERCENT).max(least))
    };
    let fixed: u32 = shares.iter().filter_map(|share| wished(share)).sum();
    let others: Vec<&&Share> = shares
        .iter()
        .filter(|share| share.cache_percent.is_none())
        .collect();
    let needed = others.len() as u32 * least;
    let is_too_much = fixed + needed > total && others.len() < shares.len();
    let left = total.saturating_sub(fixed);
    let parts: u32 = others.iter().map(|share| share.parts).sum();
    let spare = left.saturating_sub(needed);
    let mut counts: Vec<u32> = shares
        .iter()
        .map(|share| {
            wished(share)
                .unwrap_or_else(|| least + (spare * share.parts).checked_div(parts).unwrap_or(0))
        })
        .collect();
    // What rounding leaves goes to the class with the highest rank that did not wish a number; to the default class
    // where all did.
    let given: u32 = counts.iter().sum();
    let heir = (0..shares.len())
        .rev()
        .find(|at| {
            shares
                .get(*at)
                .is_some_and(|share| share.cache_percent.is_none())
        })
        .or_else(|| shares.iter().position(|share| share.name == DEFAULT));
    if let Some(count) = heir.and_then(|heir| counts.get_mut(heir)) {
        *count += total.saturating_sub(given);
    }
    (counts, is_too_much)
}

/// Masks without holes, one beside the other, the last at the end that devices write into.
fn side_by_side(ways: &[u32], cache: &CacheAllocation) -> Vec<u64> {
    let total = cache.ways();
    let lowest = cache.mask.trailing_zeros();
    let half = total / 2;
    let low_half = ((1u64 << half) - 1) << lowest;
    let devices_are_low = (cache.shared_with_devices & low_half).count_ones() * 2
        > cache.shared_with_devices.count_ones();
    let mut at = 0;
    let mut masks = Vec::new();
    for count in ways {
        // Where too much was wished the plan is made again; until then no mask may leave the cache.
        let count = (*count).clamp(1, total.max(1));
        let start = at.min(total - count.min(total));
        let ones = if count >= 64 {
            u64::MAX
        } else {
            (1u64 << count) - 1
        };
        let place = if devices_are_low {
            total - start - count
        } else {
            start
        };
        masks.push(ones << (place + lowest));
        at += count;
    }
    masks
}

/// A class's limits.
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

/// A limit that the hardware knows: rounded up to its step.
fn limit(allocation: &BandwidthAllocation, percent: u32) -> u32 {
    let step = allocation.step.max(1);
    let wanted = (allocation.unlimited * percent).div_ceil(PERCENT);
    let stepped = wanted.div_ceil(step) * step;
    stepped.clamp(allocation.min, allocation.unlimited.max(allocation.min))
}
