// SPDX-License-Identifier: Apache-2.0
//! What the kernel allows of classes of service: the directory `info`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::Schemata;
use crate::files::{Files, text};

/// Rules of one cache (`L3`, `L2`, and `L3CODE`, `L3DATA` with code and data apart).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CacheInfo {
    /// Classes that there may be, the default one among them.
    pub num_closids: u32,
    /// All ways, a bit each.
    pub cbm_mask: u64,
    /// Ways that a class has at least.
    pub min_cbm_bits: u32,
    /// Ways that other parts of the machine use as well (`shareable_bits`), devices for one.
    pub shareable_bits: u64,
    /// Whether a class may have ways that are not neighbours (`sparse_masks`).
    pub sparse_masks: bool,
}

/// Rules of memory bandwidth (`MB`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BandwidthInfo {
    /// Classes that there may be, the default one among them.
    pub num_closids: u32,
    /// The smallest share, per cent (AMD: units of 1/8 GB/s).
    pub min_bandwidth: u32,
    /// Shares are multiples of this; the kernel rounds up.
    pub bandwidth_gran: u32,
    /// The largest share: 100, or what the default class has where shares are no per cent.
    pub max: u32,
}

/// What can be measured of classes (`L3_MON`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MonitorInfo {
    /// Groups that can be measured at once.
    pub num_rmids: u32,
    /// `llc_occupancy`, `mbm_total_bytes`, `mbm_local_bytes`.
    pub features: Vec<String>,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Info {
    /// Caches by name.
    pub caches: BTreeMap<String, CacheInfo>,
    /// Memory bandwidth.
    pub bandwidth: Option<BandwidthInfo>,
    /// Measuring.
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

    /// Groups that there may be, the default one among them: the scarcest resource decides, as each group takes a class
    /// of all of them. None when nothing can be divided.
    #[must_use]
    pub fn groups_max(&self) -> Option<u32> {
        let caches = self.caches.values().map(|cache| cache.num_closids);
        caches
            .chain(self.bandwidth.map(|bandwidth| bandwidth.num_closids))
            .min()
    }
}

/// The largest share where shares are per cent.
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
        // Kernels before 6.7 have no such file, and allow none.
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
