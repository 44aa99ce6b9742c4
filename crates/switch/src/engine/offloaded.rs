// SPDX-License-Identifier: Apache-2.0
//! Records of the filter rules on network cards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quietwire_dpdk::SteerMatch;

/// Filter rules on cards.
#[derive(Debug, Default)]
pub(super) struct OffloadedFilter {
    /// By number of the port.
    pub(super) ports: BTreeMap<u16, OffloadedPort>,
    /// Frames of the first rules at the last look; empty after a change of the configuration.
    pub(super) observed: Vec<u64>,
    /// Ports whose card did not remove all rules.
    pub(super) unsettled: BTreeSet<u16>,
}

/// Filter rules on the card of a port.
#[derive(Debug, Default)]
pub(super) struct OffloadedPort {
    /// In the order of the card.
    pub(super) rules: Vec<OffloadedRule>,
    /// Places of the rules that the card does not get.
    pub(super) refused: BTreeSet<usize>,
}

/// A filter rule on a card.
#[derive(Debug)]
pub(super) struct OffloadedRule {
    /// Its place among all rules.
    pub(super) place: usize,
    pub(super) matched: SteerMatch,
    /// Number of frames of the rule.
    pub(super) frames: Arc<AtomicU64>,
    /// The part of it that the card has dropped.
    pub(super) dropped: u64,
}

impl OffloadedPort {
    /// Returns true if the card has the rule at a place, or does not get it.
    pub(super) fn is_decided(&self, place: usize) -> bool {
        self.refused.contains(&place) || self.rules.iter().any(|rule| rule.place == place)
    }
}

impl OffloadedRule {
    /// Adds the frames that the card has dropped since the last call to those of the rule.
    pub(super) fn count(&mut self, dropped: u64) {
        let new = dropped.saturating_sub(self.dropped);
        self.frames.fetch_add(new, Ordering::Relaxed);
        self.dropped = dropped;
    }
}
