// SPDX-License-Identifier: Apache-2.0
//! Allocation and monitoring of caches and memory bandwidth: Intel RDT, AMD QoS and Arm MPAM, all
//! through resctrl (kernel documentation: arch/x86/resctrl.rst, filesystems/resctrl.rst).

use serde::{Deserialize, Serialize};

use crate::tree::Tree;

/// Mount point of resctrl.
pub const RESCTRL: &str = "sys/fs/resctrl";

/// Features of resctrl. Empty if it is not mounted, even if the CPU supports it (see `cpu_flags`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rdt {
    /// Whether resctrl is mounted.
    pub is_mounted: bool,
    /// RDT flags of the CPU in `/proc/cpuinfo`: `cat_l3`, `cdp_l3`, `cat_l2`, `cdp_l2`, `mba`,
    /// `cqm_occup_llc`, `cqm_mbm_total`, `cqm_mbm_local`.
    #[serde(default)]
    pub cpu_flags: Vec<String>,
    /// Caches with allocation of ways.
    #[serde(default)]
    pub caches: Vec<CacheAllocation>,
    /// Limits of memory bandwidth.
    pub bandwidth: Option<BandwidthAllocation>,
    /// Monitoring.
    pub monitoring: Option<Monitoring>,
}

impl Rdt {
    /// Returns the allocation of a cache level, with or without separate masks for code and data.
    #[must_use]
    pub fn cache(&self, level: u8) -> Option<&CacheAllocation> {
        self.caches.iter().find(|cache| cache.level == level)
    }

    /// Returns the number of classes, including the default class: the minimum over all resources.
    #[must_use]
    pub fn classes_max(&self) -> Option<u32> {
        let caches = self.caches.iter().map(|cache| cache.classes_max);
        let bandwidth = self.bandwidth.iter().map(|bandwidth| bandwidth.classes_max);
        caches.chain(bandwidth).min()
    }
}

/// Allocation of one cache level (CAT; two masks with CDP).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheAllocation {
    /// Level of the cache: 2 or 3.
    pub level: u8,
    /// Whether code and data have separate masks (`L3CODE`, `L3DATA`).
    pub code_and_data: bool,
    /// Number of classes, including the default class (`num_closids`).
    pub classes_max: u32,
    /// All ways (`cbm_mask`).
    pub mask: u64,
    /// Minimum number of ways of a class (`min_cbm_bits`).
    pub ways_min: u32,
    /// Ways that devices may also fill (`shareable_bits`).
    pub shared_with_devices: u64,
    /// Whether masks may be non-contiguous (`sparse_masks`).
    pub sparse_masks: bool,
    /// Domain numbers of the caches in `schemata`.
    #[serde(default)]
    pub domains: Vec<u32>,
}

impl CacheAllocation {
    /// Returns the number of ways.
    #[must_use]
    pub fn ways(&self) -> u32 {
        self.mask.count_ones()
    }

    /// Returns the mask of `count` adjacent ways. The first one has the number `first`, from 0 for the lowest way of the cache. Ways beyond
    /// the 64 bits of a mask are left out.
    #[must_use]
    pub fn adjacent(&self, first: u32, count: u32) -> u64 {
        let ones = u64::MAX.checked_shr(u64::BITS.saturating_sub(count));
        let lowest = self.mask.trailing_zeros().saturating_add(first);
        ones.unwrap_or(0).checked_shl(lowest).unwrap_or(0)
    }

    /// Returns whether devices fill more ways of the lower half of the cache than of the upper one.
    #[must_use]
    pub fn devices_are_low(&self) -> bool {
        let low = self.shared_with_devices & self.adjacent(0, self.ways() / 2);
        low.count_ones().saturating_mul(2) > self.shared_with_devices.count_ones()
    }
}

/// Limits of memory bandwidth (MBA).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BandwidthAllocation {
    /// Number of classes, including the default class.
    pub classes_max: u32,
    /// Smallest limit (`min_bandwidth`).
    pub min: u32,
    /// Granularity of limits (`bandwidth_gran`).
    pub step: u32,
    /// Value for no limit: 100 if limits are percent, more if they are absolute (AMD: units of 1/8 GB/s).
    pub unlimited: u32,
    /// Domain numbers in `schemata`.
    #[serde(default)]
    pub domains: Vec<u32>,
}

/// Monitoring features (CMT, MBM).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Monitoring {
    /// Maximum number of groups monitored at the same time (`num_rmids`).
    pub groups_max: u32,
    /// Supported events: `llc_occupancy`, `mbm_total_bytes`, `mbm_local_bytes`.
    pub features: Vec<String>,
}

/// CPU flags of RDT.
const FLAGS: [&str; 9] = [
    "cat_l3",
    "cdp_l3",
    "cat_l2",
    "cdp_l2",
    "mba",
    "rdt_a",
    "cqm_occup_llc",
    "cqm_mbm_total",
    "cqm_mbm_local",
];
/// Default value for no limit, percent, if `schemata` does not have it.
const PERCENT: u32 = 100;

/// Returns the features of resctrl.
pub(super) fn rdt(tree: &Tree, cpu_flags: &str) -> Rdt {
    let schemata = tree
        .text(&format!("{RESCTRL}/schemata"))
        .unwrap_or_default();
    let names = ["L2", "L2CODE", "L3", "L3CODE"];
    Rdt {
        is_mounted: tree.has_directory(&format!("{RESCTRL}/info")),
        cpu_flags: cpu_flags
            .split_whitespace()
            .filter(|flag| FLAGS.contains(flag))
            .map(str::to_owned)
            .collect(),
        caches: names
            .iter()
            .filter_map(|name| cache(tree, name, &schemata))
            .collect(),
        bandwidth: bandwidth(tree, &schemata),
        monitoring: monitoring(tree),
    }
}

/// Returns the domains and values of a resource in `schemata`: `L3:0=fffff;1=fffff`.
fn domains<'a>(schemata: &'a str, name: &str) -> Vec<(u32, &'a str)> {
    let line = schemata.lines().find_map(|line| {
        let (resource, rest) = line.trim().split_once(':')?;
        (resource == name).then_some(rest)
    });
    let domains = line.into_iter().flat_map(|rest| rest.split(';'));
    domains
        .filter_map(|domain| {
            let (number, value) = domain.split_once('=')?;
            Some((number.trim().parse().ok()?, value.trim()))
        })
        .collect()
}

fn cache(tree: &Tree, name: &str, schemata: &str) -> Option<CacheAllocation> {
    let at = |file: &str| format!("{RESCTRL}/info/{name}/{file}");
    let mask = |file: &str| u64::from_str_radix(&tree.text(&at(file))?, 16).ok();
    Some(CacheAllocation {
        level: if name.starts_with("L2") { 2 } else { 3 },
        code_and_data: name.ends_with("CODE"),
        classes_max: tree.value(&at("num_closids"))?,
        // Without a way there is nothing to allocate.
        mask: mask("cbm_mask").filter(|mask| *mask != 0)?,
        ways_min: tree.value(&at("min_cbm_bits")).unwrap_or(1),
        shared_with_devices: mask("shareable_bits").unwrap_or(0),
        sparse_masks: tree.value::<u32>(&at("sparse_masks")) == Some(1),
        domains: domains(schemata, name)
            .into_iter()
            .map(|(number, _)| number)
            .collect(),
    })
}

fn bandwidth(tree: &Tree, schemata: &str) -> Option<BandwidthAllocation> {
    let at = |file: &str| format!("{RESCTRL}/info/MB/{file}");
    let domains = domains(schemata, "MB");
    let most = domains
        .iter()
        .filter_map(|(_, value)| value.parse::<u32>().ok())
        .max();
    Some(BandwidthAllocation {
        classes_max: tree.value(&at("num_closids"))?,
        min: tree.value(&at("min_bandwidth"))?,
        step: tree.value(&at("bandwidth_gran")).unwrap_or(1),
        // The default class has no limit at first. A value above 100 means that limits are not percent.
        unlimited: most.filter(|most| *most > PERCENT).unwrap_or(PERCENT),
        domains: domains.into_iter().map(|(number, _)| number).collect(),
    })
}

fn monitoring(tree: &Tree) -> Option<Monitoring> {
    let at = |file: &str| format!("{RESCTRL}/info/L3_MON/{file}");
    Some(Monitoring {
        groups_max: tree.value(&at("num_rmids"))?,
        features: tree
            .text(&at("mon_features"))?
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::tree::Entry;

    #[test]
    fn a_cache_without_ways_is_not_allocated() {
        let read = |mask: &str| {
            let file = |name: &str, text: &str| {
                let at = format!("{RESCTRL}/info/L3/{name}");
                (at, Entry::File(text.into()))
            };
            let files = [file("num_closids", "16"), file("cbm_mask", mask)];
            cache(&Tree::of_memory(BTreeMap::from(files)), "L3", "L3:0=f")
        };
        assert_eq!(read("f").map(|cache| cache.ways()), Some(4));
        assert_eq!(read("0"), None);
    }
}
