// SPDX-License-Identifier: Apache-2.0
//! Memory of a plan, for several renderers.

use crate::partition::{NODE_MAX, Plan};

/// Formats the data plane's memory by node, MiB, from node 0 on: `1024,0,1024`. DPDK treats memory without a node as node 0.
pub(super) fn socket_memory(plan: &Plan) -> String {
    let last = plan
        .huge_pages
        .iter()
        .map(|pool| pool.node.unwrap_or(0))
        .max()
        .unwrap_or(0)
        .min(NODE_MAX);
    let on = |node: u32| {
        let pool = plan
            .huge_pages
            .iter()
            .find(|pool| pool.node.unwrap_or(0) == node);
        pool.map_or(0, |pool| pool.data_plane_mib).to_string()
    };
    (0..=last).map(on).collect::<Vec<_>>().join(",")
}

/// Formats a size of huge pages: `2M`, `1G`.
pub(super) fn page_size(page_kib: u64) -> String {
    if page_kib.is_multiple_of(1 << 20) {
        format!("{}G", page_kib >> 20)
    } else if page_kib.is_multiple_of(1 << 10) {
        format!("{}M", page_kib >> 10)
    } else {
        format!("{page_kib}K")
    }
}
