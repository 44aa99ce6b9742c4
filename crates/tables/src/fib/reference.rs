// SPDX-License-Identifier: Apache-2.0
//! The obvious forwarding table: all prefixes are looked at, and the longest that fits is taken. For tests.

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
    /// Sets the next hop of a prefix; returns the former one.
    pub fn insert(&mut self, prefix: IpNet, next_hop: u32) -> Option<u32> {
        self.routes.insert(prefix.trunc(), next_hop)
    }

    /// Removes a prefix; returns its next hop.
    pub fn remove(&mut self, prefix: IpNet) -> Option<u32> {
        self.routes.remove(&prefix.trunc())
    }

    /// Number of routes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// True without routes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// All prefixes.
    pub fn prefixes(&self) -> impl Iterator<Item = IpNet> + '_ {
        self.routes.keys().copied()
    }

    /// Number of the next hop of a destination; [`NO_ROUTE`] without one.
    #[must_use]
    pub fn look_up(&self, destination: IpAddr) -> u32 {
        self.routes
            .iter()
            .filter(|(prefix, _)| prefix.contains(&destination))
            .max_by_key(|(prefix, _)| prefix.prefix_len())
            .map_or(NO_ROUTE, |(_, next_hop)| *next_hop)
    }
}
