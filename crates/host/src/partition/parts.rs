// SPDX-License-Identifier: Apache-2.0
//! Parts of plans for tests.

use super::{Bandwidth, CacheMask, Class, Group, Role};
use crate::CpuList;

pub(crate) fn list(cpus: &str) -> CpuList {
    cpus.parse().unwrap()
}

/// Returns a group on node 0.
pub(crate) fn group(role: Role, name: &str, cpus: &str) -> Group {
    Group {
        role,
        name: name.to_owned(),
        cpus: list(cpus),
        cores: list(cpus)
            .iter()
            .map(|cpu| [cpu].into_iter().collect())
            .collect(),
        nodes: vec![0],
        memory_mib: 0,
        class: None,
    }
}

/// Returns a class with the same ways in each of `caches` last level caches, and a bandwidth limit.
pub(crate) fn class(name: &str, cpus: &str, mask: u64, limit: u32, caches: u32) -> Class {
    let masks = (0..caches).map(|domain| CacheMask {
        level: 3,
        domain,
        mask,
    });
    Class {
        name: name.to_owned(),
        is_default: name == "default",
        cpus: list(cpus),
        masks: masks.collect(),
        bandwidth: vec![Bandwidth { domain: 0, limit }],
    }
}
