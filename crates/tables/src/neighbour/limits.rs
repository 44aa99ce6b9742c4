// SPDX-License-Identifier: Apache-2.0
//! Limits of the neighbour table: number of entries, eviction order, and requests per second.

/// Bounds of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of neighbours.
    pub neighbours: usize,
    /// Maximum number of packets that wait for one neighbour.
    pub waiting: usize,
    /// Maximum number of packets that wait for all neighbours.
    pub waiting_in_all: usize,
    /// Maximum number of requests per second and interface for unknown neighbours, including retransmissions.
    pub asks_per_second: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            neighbours: 65_536,
            waiting: 16,
            waiting_in_all: 8_192,
            asks_per_second: 2_000,
        }
    }
}

/// Worth of a neighbour. In a full table a neighbour evicts another of at most the same worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EvictionRank {
    /// It sent a request, and has answered none: an attacker can create any number of these.
    Unconfirmed,
    /// Packets are waiting for it, and it has not answered yet.
    Solicited,
    /// It has answered. Only a static neighbour evicts it: a scan must not evict neighbours that are in use.
    Confirmed,
    /// Set by an operator.
    Set,
}

impl EvictionRank {
    /// Returns true if a neighbour of this worth evicts the other.
    pub(super) fn displaces(self, other: Self) -> bool {
        match self {
            Self::Unconfirmed | Self::Solicited => other <= self,
            Self::Confirmed | Self::Set => other < self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The guide has the limits.
    #[test]
    fn limits_are_those_of_the_guide() {
        let page = include_str!("../../../../docs/router.md").replace(',', "");
        let limits = Limits::default();
        let (each, all) = (limits.waiting, limits.waiting_in_all);
        for text in [
            format!("| neighbours | {} |", limits.neighbours),
            format!("| packets waiting for neighbours | {each} per neighbour {all} in all |"),
            format!(
                "| requests for unresolved neighbours | {} per second and interface |",
                limits.asks_per_second
            ),
        ] {
            assert!(page.contains(&text), "no '{text}'");
        }
    }
}
