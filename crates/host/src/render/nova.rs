// SPDX-License-Identifier: Apache-2.0
//! Renders the configuration of OpenStack Nova: CPUs of guests, and huge pages that guests may not use (nova.conf, `[compute]`).

use crate::partition::{HugePages, Plan, Role};

/// Returns the host cell of a pool. For Nova and libvirt, a machine with unknown nodes has only cell 0.
fn node(pool: &HugePages) -> u32 {
    pool.node.unwrap_or(0)
}

pub(super) fn render(plan: &Plan) -> String {
    let reserved: String = plan
        .huge_pages
        .iter()
        .filter(|pool| pool.data_plane_mib > 0)
        .map(|pool| {
            // An edited plan may contain any numbers.
            let kib = pool.data_plane_mib.saturating_mul(1024);
            let count = kib.div_ceil(pool.page_kib.max(1));
            format!(
                "reserved_huge_pages = node:{},size:{},count:{count}\n",
                node(pool),
                pool.page_kib
            )
        })
        .collect();
    let guests = plan.cpus(Role::Guest);
    let dedicated = if guests.is_empty() {
        String::new()
    } else {
        format!("cpu_dedicated_set = {guests}\n")
    };
    format!(
        "[DEFAULT]\n{reserved}[compute]\n{dedicated}cpu_shared_set = {}\n",
        plan.cpus(Role::Host)
    )
}

#[cfg(test)]
pub(super) fn check(text: &str, plan: &Plan) {
    use super::tests::{cpus, value};
    assert_eq!(
        cpus(&value(text, "cpu_shared_set = ")),
        plan.cpus(Role::Host)
    );
    let guests = text
        .lines()
        .find_map(|line| line.strip_prefix("cpu_dedicated_set = "));
    assert_eq!(guests.map(cpus).unwrap_or_default(), plan.cpus(Role::Guest));
    // The reserved pages of each pool are exactly those of the data plane.
    let reserved: Vec<(u32, u64, u64)> = text
        .lines()
        .filter_map(|line| line.strip_prefix("reserved_huge_pages = "))
        .map(|pool| {
            let mut values = pool
                .split(',')
                .map(|part| part.split_once(':').unwrap().1.parse::<u64>().unwrap());
            let mut next = || values.next().unwrap();
            (u32::try_from(next()).unwrap(), next(), next())
        })
        .collect();
    let pools = plan
        .huge_pages
        .iter()
        .filter(|pool| pool.data_plane_mib > 0);
    assert_eq!(reserved.len(), pools.clone().count());
    for ((node, page_kib, count), pool) in reserved.into_iter().zip(pools) {
        assert_eq!((node, page_kib), (pool.node.unwrap_or(0), pool.page_kib));
        assert!(count * page_kib >= pool.data_plane_mib * 1024 && count <= pool.pages);
    }
}
