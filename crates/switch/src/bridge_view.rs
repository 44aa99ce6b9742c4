// SPDX-License-Identifier: Apache-2.0
//! Control-plane view of a bridge.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::config::BridgePlan;
use crate::counters::{Counter, PortCounters};
use quietwire_tables::bridge::BridgeTables;
use quietwire_tables::fdb::{Fdb, Key, Selection, StaticError};

/// A bridge's name and tables.
#[derive(Clone, Debug)]
pub(crate) struct BridgeView {
    pub(crate) name: String,
    pub(crate) fdb: Arc<Fdb>,
    pub(crate) ageing_s: u32,
    /// Number of addresses that aged out.
    pub(crate) aged: Arc<AtomicU64>,
    pub(crate) tables: Arc<BridgeTables>,
    /// Static entries, each with its port.
    pub(crate) statics: BTreeSet<(Key, u16)>,
    pub(crate) history: History,
}

/// Port counters that are summed per bridge.
pub(crate) const SUMMED: [fn(&PortCounters) -> &Counter; 6] = [
    |port| &port.flooded,
    |port| &port.learned,
    |port| &port.moved,
    |port| &port.flapped,
    |port| &port.not_learned,
    |port| &port.static_elsewhere,
];

/// [`SUMMED`] of one port or of several ports.
pub(crate) type Sums = [u64; SUMMED.len()];

/// Port membership of a bridge over time. Counters of the bridge cover only the time in which each port was a member, and never decrease.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// Current ports, each with its counters at the time it joined.
    joined: BTreeMap<u16, Sums>,
    /// Counts of ports that left, accumulated while they were members.
    left: Sums,
}

impl History {
    /// Sets the ports of the bridge. `sums_of` returns the counters of a port.
    pub(crate) fn settle(&mut self, ports: &BTreeSet<u16>, sums_of: impl Fn(u16) -> Sums) {
        let gone = |(port, joined): &(&u16, &Sums)| {
            (!ports.contains(port)).then(|| less(sums_of(**port), joined))
        };
        let left: Vec<Sums> = self.joined.iter().filter_map(|one| gone(&one)).collect();
        self.left = left.into_iter().fold(self.left, more);
        self.joined.retain(|port, _| ports.contains(port));
        for port in ports {
            self.joined.entry(*port).or_insert_with(|| sums_of(*port));
        }
    }

    /// Returns the counters of the bridge.
    pub(crate) fn sums(&self, sums_of: impl Fn(u16) -> Sums) -> Sums {
        let here = self
            .joined
            .iter()
            .map(|(port, joined)| less(sums_of(*port), joined));
        here.fold(self.left, more)
    }
}

fn more(a: Sums, b: Sums) -> Sums {
    std::array::from_fn(|at| a[at] + b[at])
}

fn less(a: Sums, b: &Sums) -> Sums {
    std::array::from_fn(|at| a[at].saturating_sub(b[at]))
}

impl BridgeView {
    /// Returns true if the table suits the plan of a bridge.
    pub(crate) fn suits(&self, plan: &BridgePlan) -> bool {
        self.name == plan.name
            && self.fdb.entries_max() == plan.max_entries
            && self.ageing_s == plan.ageing_s
    }

    /// Forgets the addresses learned on a port.
    pub(crate) fn forget_port(&self, port: u16) {
        self.fdb.flush(Selection {
            port: Some(port),
            vlan: None,
        });
    }

    /// Replaces the static entries of the bridge.
    ///
    /// # Errors
    /// [`StaticError`] if the entries do not fit. All learned addresses are flushed in that case.
    pub(crate) fn set_statics(&mut self, wanted: BTreeSet<(Key, u16)>) -> Result<(), StaticError> {
        for (key, _) in self.statics.difference(&wanted) {
            self.fdb.remove(*key);
        }
        self.statics.retain(|one| wanted.contains(one));
        for (key, port) in wanted {
            match self.fdb.set_static(key, port) {
                Err(StaticError::Full { .. }) => {
                    self.fdb.flush(Selection::default());
                    self.fdb.set_static(key, port)?;
                }
                set => set?,
            }
            self.statics.insert((key, port));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_counts_its_own_time_with_each_port() {
        let ports = |list: &[u16]| list.iter().copied().collect();
        let counted = |a: u64, b: u64| move |port: u16| [if port == 1 { a } else { b }; 6];
        let mut history = History::default();
        // Port 2 counted 5 in another bridge before.
        history.settle(&ports(&[1, 2]), counted(0, 5));
        assert_eq!(history.sums(counted(3, 7)), [3 + 2; 6]);
        // Port 1 leaves. Later counts of port 1 do not belong to this bridge.
        history.settle(&ports(&[2]), counted(4, 7));
        assert_eq!(history.sums(counted(100, 7)), [4 + 2; 6]);
        // Port 1 joins again.
        history.settle(&ports(&[1, 2]), counted(200, 8));
        assert_eq!(history.sums(counted(201, 8)), [4 + 3 + 1; 6]);
        // A second call with the same ports changes nothing.
        history.settle(&ports(&[1, 2]), counted(201, 8));
        assert_eq!(history.sums(counted(201, 8)), [4 + 3 + 1; 6]);
    }
}
