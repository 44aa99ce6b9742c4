// SPDX-License-Identifier: Apache-2.0
//! Classes of service of the published allocation of cache and memory bandwidth: on a cache of 11 ways 0x7ff for the operating system,
//! 0x7f0 for the switch, 0x3 for noisy neighbours and 0xc for other processes; 100, 100, 10 and 10 % of the bandwidth.

use quietwire_host::inventory::{CacheAllocation, Inventory};
use quietwire_host::partition::{CacheMask, Class, Plan, Reason, Role};

/// Name of the class of everything except device and tester.
pub(crate) const OTHERS: &str = "others";
/// Name of the class of neighbours. It lists their tasks and has no CPUs.
pub(crate) const NEIGHBOURS: &str = "neighbours";
/// Memory bandwidth of neighbours and of other processes, percent.
pub(super) const BANDWIDTH_PERCENT: u8 = 10;
/// Number of classes, including the default one.
pub(super) const CLASSES: u32 = 4;
/// Ways of the published cache, and of the neighbours and the other processes each.
const WAYS: u32 = 11;
const WAYS_NARROW: u32 = 2;

/// Masks of one cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Masks {
    all: u64,
    forwarding: u64,
    others: u64,
    neighbours: u64,
}

/// The published masks, scaled if the cache has another number of ways. Forwarding has the end that devices write into. `None` if the cache
/// has too few ways.
fn masks(cache: &CacheAllocation) -> Option<Masks> {
    let ways = cache.ways();
    let least = cache.ways_min.max(1);
    let rounded = WAYS_NARROW.saturating_mul(ways).saturating_add(WAYS / 2);
    let narrow = (rounded / WAYS).max(least);
    let both = narrow.saturating_mul(2);
    let wide = ways.checked_sub(both).filter(|wide| *wide >= least)?;
    let devices_are_low = cache.devices_are_low();
    let place = |start: u32, count: u32| {
        let start = if devices_are_low {
            ways.saturating_sub(start).saturating_sub(count)
        } else {
            start
        };
        cache.adjacent(start, count)
    };
    Some(Masks {
        all: cache.mask,
        forwarding: place(both, wide),
        others: place(narrow, narrow),
        neighbours: place(0, narrow),
    })
}

/// Returns the last-level cache, if resctrl can allocate it.
fn cache(machine: &Inventory) -> Option<&CacheAllocation> {
    machine.rdt.caches.iter().max_by_key(|cache| cache.level)
}

/// Returns the reason, as a clause, why a machine does not support these classes; `None` if it does.
pub(super) fn lacking(machine: &Inventory) -> Option<String> {
    let most = machine.rdt.classes_max().unwrap_or(0);
    if most < CLASSES {
        return Some(format!(
            "the processor has {most} classes of service, and the published allocation has {CLASSES}"
        ));
    }
    let cache = cache(machine)?;
    masks(cache).is_none().then(|| {
        format!(
            "the cache has {} ways, too few for {CLASSES} classes",
            cache.ways()
        )
    })
}

/// Sets the published masks of a plan's classes, and adds that of the neighbours. The plan already contains bandwidth limits.
pub(super) fn share_as_published(plan: &mut Plan, machine: &Inventory) {
    let Some((cache, masks)) = cache(machine).and_then(|cache| Some((cache, masks(cache)?))) else {
        return;
    };
    let everywhere = |mask: u64| -> Vec<CacheMask> {
        let domains = cache.domains.iter();
        let of_domain = |domain: &u32| CacheMask {
            level: cache.level,
            domain: *domain,
            mask,
        };
        domains.map(of_domain).collect()
    };
    for class in &mut plan.classes {
        class.masks = everywhere(if class.name == OTHERS {
            masks.others
        } else if class.name == Role::Forwarding.name() {
            masks.forwarding
        } else {
            masks.all
        });
    }
    let others = plan.classes.iter().find(|class| class.name == OTHERS);
    let bandwidth = others.map(|class| class.bandwidth.clone());
    plan.classes.push(Class {
        name: NEIGHBOURS.to_owned(),
        is_default: false,
        cpus: quietwire_host::CpuList::new(),
        masks: everywhere(masks.neighbours),
        bandwidth: bandwidth.unwrap_or_default(),
    });
    plan.reasons.retain(|reason| reason.subject != "cache");
    let of_class = |class: &Class| {
        let mask = class.masks.first().map_or(0, |mask| mask.mask);
        Reason {
            subject: "cache".to_owned(),
            text: format!(
                "class {}: ways {mask:x} of L{}, as published",
                class.name, cache.level
            ),
        }
    };
    plan.reasons.extend(plan.classes.iter().map(of_class));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(mask: u64, ways_min: u32, shared_with_devices: u64) -> CacheAllocation {
        CacheAllocation {
            level: 3,
            classes_max: 8,
            mask,
            ways_min,
            shared_with_devices,
            ..CacheAllocation::default()
        }
    }

    #[test]
    fn a_cache_of_eleven_ways_has_the_published_masks() {
        let published = Masks {
            all: 0x7ff,
            forwarding: 0x7f0,
            others: 0xc,
            neighbours: 0x3,
        };
        assert_eq!(masks(&cache(0x7ff, 1, 0x600)), Some(published));
        assert_eq!(masks(&cache(0x7ff, 2, 0)), Some(published));
    }

    #[test]
    fn others_have_them_in_proportion() {
        let mirrored = Masks {
            all: 0x7ff,
            forwarding: 0x7f,
            others: 0x180,
            neighbours: 0x600,
        };
        assert_eq!(masks(&cache(0x7ff, 1, 0x3)), Some(mirrored));
        let wide = masks(&cache(0xf_ffff, 1, 0)).unwrap();
        let ways = [wide.forwarding, wide.others, wide.neighbours].map(u64::count_ones);
        assert_eq!(ways, [12, 4, 4]);
        assert_eq!(wide.forwarding | wide.others | wide.neighbours, wide.all);
        assert_eq!(masks(&cache(0x3, 1, 0)), None);
        assert_eq!(masks(&cache(0x1f, 2, 0)), None);
    }
}
