// SPDX-License-Identifier: Apache-2.0
//! Number of huge pages on each node for the data plane and guests.

use std::collections::BTreeMap;

use super::super::plan::{HugePages, Plan, Role};
use super::Attempt;
use super::cores::in_words;

/// Size of a large huge page on x86-64 and on Arm with base pages of 4 KiB, KiB.
const GIB_PAGE_KIB: u64 = 1 << 20;
/// Minimum memory of a node for pages of 1 GiB, MiB.
const LARGE_NODE_MIB: u64 = 16 << 10;
/// Divisor of a node's memory for the minimum share of the kernel and other processes.
const KEPT_PART: u64 = 8;
/// Divisor of a node's memory for the data plane's maximum share, unless its memory is requested.
const CHOSEN_PART: u64 = 4;
const KIB_PER_MIB: u64 = 1024;

/// Number of buffers of one MTU (TripleO's rule for Open vSwitch with DPDK). Each has the rounded-up MTU plus an overhead.
const BUFFERS: u64 = 4096 * 64;
const MTU_ROUNDING: u64 = 1024;
const BUFFER_EXTRA: u64 = 800;
/// Memory in addition to the buffers, MiB.
const BESIDE_BUFFERS_MIB: u64 = 512;
/// Unit to which the sum is rounded up, MiB.
const ROUNDING_MIB: u64 = 1024;

/// Returns the memory of a data plane on a node whose network cards have these MTUs, MiB.
pub(super) fn memory_of_mtus(mtus: &[u16]) -> u64 {
    let mut distinct = mtus.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let octets: u64 = distinct
        .iter()
        .map(|mtu| {
            let buffer = u64::from(*mtu).next_multiple_of(MTU_ROUNDING);
            buffer.saturating_add(BUFFER_EXTRA).saturating_mul(BUFFERS)
        })
        .sum();
    let mib = octets.div_ceil(1 << 20).saturating_add(BESIDE_BUFFERS_MIB);
    mib.next_multiple_of(ROUNDING_MIB)
}

/// Returns the number of pages that hold a size in MiB.
fn pages_for(mib: u64, page_kib: u64) -> u64 {
    mib.saturating_mul(KIB_PER_MIB).div_ceil(page_kib.max(1))
}

/// Returns the number of whole pages in a size in MiB.
fn pages_in(mib: u64, page_kib: u64) -> u64 {
    mib.saturating_mul(KIB_PER_MIB)
        .checked_div(page_kib)
        .unwrap_or(0)
}

/// Returns the size of pages, MiB.
fn size_mib(pages: u64, page_kib: u64) -> u64 {
    pages.saturating_mul(page_kib) / KIB_PER_MIB
}

impl Attempt<'_> {
    /// Adds the pools of huge pages to the plan.
    pub(super) fn size_memory(&mut self, plan: &mut Plan) {
        let Some(page_kib) = self.page_kib() else {
            return;
        };
        let mut data_plane: BTreeMap<Option<u32>, u64> = BTreeMap::new();
        for node in self.cores.nodes_of(&plan.cpus(Role::Forwarding)) {
            data_plane.insert(node, self.data_plane_mib(node, page_kib));
        }
        let mut pages: BTreeMap<Option<u32>, u64> = data_plane
            .iter()
            .map(|(node, mib)| (*node, pages_for(*mib, page_kib)))
            .collect();
        self.fit_data_plane(&mut pages, page_kib);
        if let Some(group) = plan
            .groups
            .iter_mut()
            .find(|group| group.role == Role::Forwarding)
        {
            group.memory_mib = data_plane.values().sum();
        }
        for at in 0..self.request.guests.len() {
            self.fit_guest(at, plan, &mut pages, page_kib);
        }
        plan.huge_pages = pages
            .into_iter()
            .filter(|(_, pages)| *pages > 0)
            .map(|(node, pages)| HugePages {
                node,
                page_kib,
                pages,
                data_plane_mib: data_plane.get(&node).copied().unwrap_or(0),
            })
            .collect();
        for pool in &plan.huge_pages {
            let guests = size_mib(pool.pages, page_kib).saturating_sub(pool.data_plane_mib);
            self.reason(
                "huge-pages",
                format!(
                    "node {}: {} pages of {} KiB, {} MiB of them for the data plane and {guests} MiB for guests",
                    in_words(&[pool.node]), pool.pages, pool.page_kib, pool.data_plane_mib
                ),
            );
        }
    }

    /// Returns the page size. `None` if the machine has no huge pages.
    fn page_kib(&mut self) -> Option<u64> {
        let sizes: Vec<u64> = self
            .machine
            .huge_pages
            .iter()
            .map(|pool| pool.page_kib)
            .collect();
        if let Some(requested) = self.request.machine.huge_page_kib {
            if sizes.contains(&requested) {
                return Some(requested);
            }
            let there: Vec<String> = sizes.iter().map(u64::to_string).collect();
            self.conflict(
                "huge-pages",
                format!(
                    "pages of {requested} KiB are requested, but the machine does not support them (sizes in KiB: {})",
                    if there.is_empty() {
                        "none".to_owned()
                    } else {
                        there.join(", ")
                    }
                ),
                "the size that fits best",
            );
            self.nearest.machine.huge_page_kib = None;
        }
        let has_large_nodes = !self.machine.nodes.is_empty()
            && self
                .machine
                .nodes
                .iter()
                .filter(|node| node.cpus.as_ref().is_none_or(|cpus| !cpus.is_empty()))
                .all(|node| node.memory_mib.is_some_and(|mib| mib >= LARGE_NODE_MIB));
        if sizes.contains(&GIB_PAGE_KIB) && has_large_nodes && self.machine.is_virtual != Some(true)
        {
            return Some(GIB_PAGE_KIB);
        }
        let smallest = sizes.iter().min().copied();
        if smallest.is_none() {
            self.reason("huge-pages", "none: the kernel does not support huge pages");
            let wants = |mib: u64| mib > 0;
            for (at, guest) in self.request.guests.iter().enumerate() {
                if wants(guest.memory_mib) {
                    let (name, mib) = (guest.name.clone(), guest.memory_mib);
                    self.conflict(
                        &name,
                        format!("{mib} MiB of huge pages are requested, but the kernel does not support huge pages"),
                        "none",
                    );
                    if let Some(guest) = self.nearest.guests.get_mut(at) {
                        guest.memory_mib = 0;
                    }
                }
            }
        }
        smallest
    }

    /// Returns the memory of a node that may become huge pages, MiB. `None` if its memory is unknown. CPUs of unknown nodes
    /// share all memory.
    fn available_mib(&self, node: Option<u32>) -> Option<u64> {
        let known = self.machine.nodes.iter();
        let known = known.into_iter().find(|known| Some(known.node) == node);
        let mib = match known {
            Some(known) => known.memory_mib,
            None => self.machine.memory_mib,
        }?;
        Some(mib.saturating_sub(mib / KEPT_PART))
    }

    fn data_plane_mib(&self, node: Option<u32>, page_kib: u64) -> u64 {
        if let Some(requested) = self.request.forwarding.memory_mib {
            return requested;
        }
        let request = self.request.nics.iter();
        let mtus: Vec<u16> = request
            .filter(|entry| {
                self.nic(&entry.pci)
                    .is_some_and(|nic| nic.node.is_none() || node.is_none() || nic.node == node)
            })
            .map(|entry| entry.mtu.unwrap_or(super::nics::MTU))
            .collect();
        let computed = if mtus.is_empty() {
            ROUNDING_MIB
        } else {
            memory_of_mtus(&mtus)
        };
        let page_mib = (page_kib / KIB_PER_MIB).max(1);
        // The size is a default, so it does not fill a small machine.
        let most = self.available_mib(node).map_or(u64::MAX, |available_mib| {
            size_mib(pages_in(available_mib / CHOSEN_PART, page_kib), page_kib)
        });
        computed.min(most.max(page_mib))
    }

    /// Checks that every node has the memory that the data plane requests.
    fn fit_data_plane(&mut self, pages: &mut BTreeMap<Option<u32>, u64>, page_kib: u64) {
        for (node, count) in pages {
            let Some(available_mib) = self.available_mib(*node) else {
                continue;
            };
            let most = pages_in(available_mib, page_kib);
            if *count > most {
                let requested = size_mib(*count, page_kib);
                let suggestion = size_mib(most, page_kib);
                self.conflict(
                    "forwarding",
                    format!("{requested} MiB of huge pages are requested on node {}, but only {available_mib} MiB are available beside the kernel's memory", in_words(&[*node])),
                    format!("{suggestion} MiB"),
                );
                self.nearest.forwarding.memory_mib = Some(suggestion);
                *count = most;
            }
        }
    }

    /// Spreads a guest's memory over the nodes of its CPUs.
    fn fit_guest(
        &mut self,
        at: usize,
        plan: &mut Plan,
        pages: &mut BTreeMap<Option<u32>, u64>,
        page_kib: u64,
    ) {
        let Some(entry) = self.request.guests.get(at).cloned() else {
            return;
        };
        let Some(group) = plan
            .groups
            .iter_mut()
            .find(|group| group.role == Role::Guest && group.name == entry.name)
        else {
            return;
        };
        let mut nodes: Vec<Option<u32>> = group.nodes.iter().copied().map(Some).collect();
        if nodes.is_empty() {
            nodes.push(None);
        }
        group.memory_mib = entry.memory_mib;
        let count = nodes.len().max(1) as u64;
        let share_mib = entry.memory_mib.div_ceil(count);
        let share = pages_for(share_mib, page_kib);
        let mut short: Option<(Option<u32>, u64)> = None;
        for node in &nodes {
            let taken = pages.get(node).copied().unwrap_or(0);
            let Some(available_mib) = self.available_mib(*node) else {
                continue;
            };
            let left = pages_in(available_mib, page_kib).saturating_sub(taken);
            let free = size_mib(left, page_kib);
            if size_mib(share, page_kib) > free && short.is_none_or(|(_, least)| free < least) {
                short = Some((*node, free));
            }
        }
        if let Some((node, free)) = short {
            let suggestion = free.saturating_mul(count);
            self.conflict(
                &entry.name,
                format!("{} MiB of huge pages are requested, {share_mib} MiB of them on node {}, but only {free} MiB are left there", entry.memory_mib, in_words(&[node])),
                format!("{suggestion} MiB"),
            );
            if let Some(guest) = self
                .nearest
                .guests
                .iter_mut()
                .find(|guest| guest.name == entry.name)
            {
                guest.memory_mib = suggestion;
            }
            return;
        }
        for node in nodes {
            let taken = pages.entry(node).or_default();
            *taken = taken.saturating_add(share);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::memory_of_mtus;

    #[test]
    fn memory_follows_the_published_rule() {
        // Both examples are from Red Hat's guide to OVS-DPDK parameters.
        assert_eq!(memory_of_mtus(&[9000]), 3072);
        assert_eq!(memory_of_mtus(&[9000, 2000]), 4096);
        assert_eq!(memory_of_mtus(&[1500, 1500]), memory_of_mtus(&[1500]));
    }
}
