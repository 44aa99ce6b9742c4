// SPDX-License-Identifier: Apache-2.0
//! Reference forwarding table for tests: compares all prefixes and selects the longest match.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::NO_ROUTE;

/// A forwarding table of few routes.
#[derive(Clone, Debug, Default)]
pub struct ReferenceFib {
    routes: BTreeMap<IpNet, u32>,
}

impl ReferenceFib {
    /// Sets the next hop of a prefix and returns the previous one.
    pub fn insert(&mut self, prefix: IpNet, next_hop: u32) -> Option<u32> {
        self.routes.insert(prefix.trunc(), next_hop)
    }

    /// Removes a prefix and returns its next hop.
    pub fn remove(&mut self, prefix: IpNet) -> Option<u32> {
        self.routes.remove(&prefix.trunc())
    }

    /// Returns the number of routes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Returns true if there are no routes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// Returns all prefixes.
    pub fn prefixes(&self) -> impl Iterator<Item = IpNet> + '_ {
        self.routes.keys().copied()
    }

    /// Returns the next hop number of a destination; [`NO_ROUTE`] if there is none.
    #[must_use]
    pub fn look_up(&self, destination: IpAddr) -> u32 {
        self.routes
            .iter()
            .filter(|(prefix, _)| prefix.contains(&destination))
            .max_by_key(|(prefix, _)| prefix.prefix_len())
            .map_or(NO_ROUTE, |(_, next_hop)| *next_hop)
    }
}
