// SPDX-License-Identifier: Apache-2.0
//! Limits of classes of service, from resctrl's directory `info`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::Schemata;
use crate::files::{Files, text};

/// Limits of one cache (`L3`, `L2`, and with CDP `L3CODE`, `L3DATA`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CacheInfo {
    /// Maximum number of classes, including the default class.
    pub num_closids: u32,
    /// All ways, one bit each.
    pub cbm_mask: u64,
    /// Minimum number of ways of a class.
    pub min_cbm_bits: u32,
    /// Ways that other parts of the machine, such as devices, also use (`shareable_bits`).
    pub shareable_bits: u64,
    /// Whether masks may be non-contiguous (`sparse_masks`).
    pub sparse_masks: bool,
}

/// Limits of memory bandwidth (`MB`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BandwidthInfo {
    /// Maximum number of classes, including the default class.
    pub num_closids: u32,
    /// Minimum limit, percent (AMD: units of 1/8 GB/s).
    pub min_bandwidth: u32,
    /// Granularity: limits are multiples of this. The kernel rounds up.
    pub bandwidth_gran: u32,
    /// Maximum limit: 100, or the default class's limit if limits are not percent.
    pub max: u32,
}

/// Monitoring features (`L3_MON`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MonitorInfo {
    /// Maximum number of groups monitored at the same time.
    pub num_rmids: u32,
    /// Supported events: `llc_occupancy`, `mbm_total_bytes`, `mbm_local_bytes`.
    pub features: Vec<String>,
}

/// All limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Info {
    /// Caches by name.
    pub caches: BTreeMap<String, CacheInfo>,
    /// Memory bandwidth.
    pub bandwidth: Option<BandwidthInfo>,
    /// Monitoring.
    pub monitor: Option<MonitorInfo>,
}

impl Info {
    pub(super) fn read(files: &dyn Files, directory: &Path) -> Self {
        let mut caches = BTreeMap::new();
        for name in ["L3", "L3CODE", "L3DATA", "L2", "L2CODE", "L2DATA"] {
            if let Some(cache) = cache(files, &directory.join(name)) {
                caches.insert(name.to_owned(), cache);
            }
        }
        Self {
            caches,
            bandwidth: bandwidth(files, directory),
            monitor: monitor(files, &directory.join("L3_MON")),
        }
    }

    /// Returns the maximum number of groups, including the default group. Each group uses a class of every resource, so the
    /// resource with the fewest classes decides. `None` if the machine does not support allocation.
    #[must_use]
    pub fn groups_max(&self) -> Option<u32> {
        let caches = self.caches.values().map(|cache| cache.num_closids);
        caches
            .chain(self.bandwidth.map(|bandwidth| bandwidth.num_closids))
            .min()
    }
}

/// Maximum limit if limits are percent.
const PERCENT: u32 = 100;

fn decimal(files: &dyn Files, path: &Path) -> Option<u32> {
    text(files, path)?.parse().ok()
}

fn mask(files: &dyn Files, path: &Path) -> Option<u64> {
    u64::from_str_radix(&text(files, path)?, 16).ok()
}

fn cache(files: &dyn Files, directory: &Path) -> Option<CacheInfo> {
    Some(CacheInfo {
        num_closids: decimal(files, &directory.join("num_closids"))?,
        cbm_mask: mask(files, &directory.join("cbm_mask"))?,
        min_cbm_bits: decimal(files, &directory.join("min_cbm_bits"))?,
        shareable_bits: mask(files, &directory.join("shareable_bits")).unwrap_or(0),
        // Kernels before 6.7 lack this file and do not allow sparse masks.
        sparse_masks: decimal(files, &directory.join("sparse_masks")) == Some(1),
    })
}

fn bandwidth(files: &dyn Files, info: &Path) -> Option<BandwidthInfo> {
    let directory = info.join("MB");
    let default = text(files, &info.with_file_name("schemata"));
    let shares = default.and_then(|text| text.parse::<Schemata>().ok());
    let largest = shares.and_then(|shares| shares.0.get("MB")?.values().copied().max());
    Some(BandwidthInfo {
        max: largest
            .and_then(|share| u32::try_from(share).ok())
            .map_or(PERCENT, |share| share.max(PERCENT)),
        num_closids: decimal(files, &directory.join("num_closids"))?,
        min_bandwidth: decimal(files, &directory.join("min_bandwidth"))?,
        bandwidth_gran: decimal(files, &directory.join("bandwidth_gran"))?.max(1),
    })
}

fn monitor(files: &dyn Files, directory: &Path) -> Option<MonitorInfo> {
    let features = text(files, &directory.join("mon_features"))?;
    Some(MonitorInfo {
        num_rmids: decimal(files, &directory.join("num_rmids"))?,
        features: features.lines().map(str::to_owned).collect(),
    })
}
