// SPDX-License-Identifier: Apache-2.0
//! A bridge as the control and the service thread see it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::counters::{Counter, PortCounters};
use quietwire_tables::bridge::BridgeTables;
use quietwire_tables::fdb::{Fdb, Key, Selection, StaticError};

/// A bridge's name and tables.
#[derive(Clone, Debug)]
pub(crate) struct BridgeView {
    pub(crate) name: String,
    pub(crate) fdb: Arc<Fdb>,
    pub(crate) ageing_s: u32,
    /// Addresses forgotten.
    pub(crate) aged: Arc<AtomicU64>,
    pub(crate) tables: Arc<BridgeTables>,
    /// Static entries that are set, and their ports.
    pub(crate) statics: BTreeSet<(Key, u16)>,
    pub(crate) history: History,
}

/// What is counted at ports and summed up for bridges.
pub(crate) const SUMMED: [fn(&PortCounters) -> &Counter; 6] = [
    |port| &port.flooded,
    |port| &port.learned,
    |port| &port.moved,
    |port| &port.flapped,
    |port| &port.not_learned,
    |port| &port.static_elsewhere,
];

/// [`SUMMED`] of one or several ports.
pub(crate) type Sums = [u64; SUMMED.len()];

/// Which ports were in a bridge when, so that its counters are those of its own time with each of them, and never go
/// back.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// Its ports, and what these had counted when they came.
    joined: BTreeMap<u16, Sums>,
    /// What ports counted here that have left.
    left: Sums,
}

impl History {
    /// These are the bridge's ports from now on; `sums_of` says what each has counted so far.
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

    /// What was counted in the bridge.
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
    /// Forgets what was learned on a port.
    pub(crate) fn forget_port(&self, port: u16) {
        self.fdb.flush(Selection {
            port: Some(port),
            vlan: None,
        });
    }

    /// Sets these static entries and no others.
    ///
    /// # Errors
    /// [`StaticError`] when they do not fit, though nothing learned is in the table any more.
    pub(crate) fn set_statics(&mut self, wanted: BTreeSet<(Key, u16)>) -> Result<(), StaticError> {
        for (key, _) in self.statics.difference(&wanted) {
            self.fdb.remove(*key);
        }
        for (key, port) in &wanted {
            if let Err(StaticError::Full { .. }) = self.fdb.set_static(*key, *port) {
                self.fdb.flush(Selection::default());
                self.fdb.set_static(*key, *port)?;
            }
        }
        self.statics = wanted;
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
        // Port 2 had counted 5 elsewhere.
        history.settle(&ports(&[1, 2]), counted(0, 5));
        assert_eq!(history.sums(counted(3, 7)), [3 + 2; 6]);
        // Port 1 leaves: what it counts from then on is not this bridge's.
        history.settle(&ports(&[2]), counted(4, 7));
        assert_eq!(history.sums(counted(100, 7)), [4 + 2; 6]);
        // It comes back.
        history.settle(&ports(&[1, 2]), counted(200, 8));
        assert_eq!(history.sums(counted(201, 8)), [4 + 3 + 1; 6]);
        // Settled again, nothing changes.
        history.settle(&ports(&[1, 2]), counted(201, 8));
        assert_eq!(history.sums(counted(201, 8)), [4 + 3 + 1; 6]);
    }
}
