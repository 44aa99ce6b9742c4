// SPDX-License-Identifier: Apache-2.0
//! Control-plane view of a bridge.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::config::bridging::StaticSetting;
use crate::config::{BridgePlan, SharedList};
use crate::counters::{Counter, PortCounters};
use quietwire_packet::VlanId;
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
    pub(crate) statics: Statics,
    pub(crate) history: History,
}

/// A static entry and the number of its port.
pub(crate) type StaticEntry = (Key, u16);

/// Settings of static entries, and the numbers of the ports of their bridge by name.
pub(crate) type AskedStatics = (SharedList<Arc<StaticSetting>>, BTreeMap<String, u16>);

/// Static entries of a bridge.
#[derive(Clone, Debug, Default)]
pub(crate) struct Statics {
    /// Those in the table, sorted.
    set: SharedList<StaticEntry>,
    /// The settings that all of them follow from; `None` after a failure.
    asked: Option<AskedStatics>,
}

impl Statics {
    /// Returns true if the entries in the table are those of these settings. Most changes do not concern them, and there may be 100,000.
    fn are_those_of(&self, (settings, ports): &AskedStatics) -> bool {
        let asked = self.asked.as_ref();
        asked.is_some_and(|asked| asked.0.is_shared_with(settings) && asked.1 == *ports)
    }

    /// Returns the entries in the table, sorted.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> &[StaticEntry] {
        &self.set
    }
}

/// Returns static entries in order, each once. An entry of a port that is not open is left out.
pub(crate) fn entries_of((settings, ports): &AskedStatics) -> Vec<StaticEntry> {
    let entry = |one: &Arc<StaticSetting>| {
        let vlan = one.vlan.map_or(0, VlanId::get);
        let key = Key::in_vlan(vlan, one.mac.to_u64());
        Some((key, *ports.get(&one.port)?))
    };
    let mut entries: Vec<StaticEntry> = settings.iter().filter_map(entry).collect();
    entries.sort_unstable();
    entries.dedup();
    entries
}

/// Returns the entries that others do not contain. Both are sorted.
fn without(entries: &[StaticEntry], others: &[StaticEntry]) -> Vec<StaticEntry> {
    let mut others = others.iter().peekable();
    let is_missing = |entry: &&StaticEntry| {
        while others.next_if(|other| *other < *entry).is_some() {}
        others.peek() != Some(entry)
    };
    entries.iter().filter(is_missing).copied().collect()
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
            (!ports.contains(port)).then(|| subtract_sums(sums_of(**port), joined))
        };
        let left: Vec<Sums> = self.joined.iter().filter_map(|one| gone(&one)).collect();
        self.left = left.into_iter().fold(self.left, add_sums);
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
            .map(|(port, joined)| subtract_sums(sums_of(*port), joined));
        here.fold(self.left, add_sums)
    }
}

fn add_sums(mut a: Sums, b: Sums) -> Sums {
    for (sum, more) in a.iter_mut().zip(b) {
        *sum = sum.saturating_add(more);
    }
    a
}

fn subtract_sums(mut a: Sums, b: &Sums) -> Sums {
    for (sum, less) in a.iter_mut().zip(b) {
        *sum = sum.saturating_sub(*less);
    }
    a
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

    /// Replaces the static entries of the bridge. Entries that stay are not set again.
    ///
    /// # Errors
    /// [`StaticError`] if the entries do not fit. All learned addresses are flushed in that case.
    pub(crate) fn set_statics(&mut self, asked: AskedStatics) -> Result<(), StaticError> {
        if self.statics.are_those_of(&asked) {
            return Ok(());
        }
        self.statics.asked = None;
        let wanted = entries_of(&asked);
        let former = self.statics.set.clone();
        // Of several entries of an address, the last one holds: if one of them changes, all are set again.
        let changed = without(&former, &wanted).into_iter();
        let changed = changed.chain(without(&wanted, &former));
        let changed: BTreeSet<Key> = changed.map(|(key, _)| key).collect();
        let (removed, mut set): (Vec<StaticEntry>, Vec<StaticEntry>) = former
            .iter()
            .copied()
            .partition(|entry| changed.contains(&entry.0));
        // After a failure, the table has no entry that is not in the set.
        for (key, _) in removed {
            self.fdb.remove(key);
        }
        let mut outcome = Ok(());
        for entry in without(&wanted, &set) {
            outcome = self.set_static(entry);
            if outcome.is_err() {
                break;
            }
            set.push(entry);
        }
        set.sort();
        self.statics.set = set.into();
        outcome?;
        self.statics.asked = Some(asked);
        Ok(())
    }

    fn set_static(&self, (key, port): StaticEntry) -> Result<(), StaticError> {
        match self.fdb.set_static(key, port) {
            Err(StaticError::Full { .. }) => {
                self.fdb.flush(Selection::default());
                self.fdb.set_static(key, port)
            }
            set => set,
        }
    }
}

#[cfg(test)]
mod tests {
    use quietwire_packet::MacAddress;

    use super::*;

    #[test]
    fn static_entries_are_set_if_they_or_their_ports_change() {
        let mut view = BridgeView {
            name: "lan".to_owned(),
            fdb: Arc::new(Fdb::new(64, 300)),
            ageing_s: 300,
            aged: Arc::default(),
            tables: Arc::new(BridgeTables::without_ports()),
            statics: Statics::default(),
            history: History::default(),
        };
        let numbers = |a: u16| BTreeMap::from([("a".to_owned(), a), ("b".to_owned(), 2)]);
        let asked = |entries: &[(u64, &str)]| -> AskedStatics {
            let setting = |(mac, port): &(u64, &str)| {
                Arc::new(StaticSetting {
                    bridge: "lan".to_owned(),
                    mac: MacAddress::from_u64(0x0200_0000_0000 | mac),
                    vlan: None,
                    port: (*port).to_owned(),
                })
            };
            (entries.iter().map(setting).collect(), numbers(1))
        };
        let in_table = |view: &BridgeView| {
            let all = view.fdb.snapshot(0).filter(|one| one.is_static);
            let all = all.map(|one| (one.address.to_u64() & 0xff, one.port));
            all.collect::<BTreeMap<u64, u16>>()
        };
        for (entries, expected) in [
            (vec![(1, "a"), (2, "b")], vec![(1, 1), (2, 2)]),
            (vec![(2, "b")], vec![(2, 2)]),
            (vec![(3, "b"), (2, "a")], vec![(2, 1), (3, 2)]),
            // Of two entries of an address, that of the higher port holds.
            (vec![(3, "b"), (2, "b"), (2, "a")], vec![(2, 2), (3, 2)]),
            (vec![(3, "a"), (3, "b"), (2, "a")], vec![(2, 1), (3, 2)]),
            (vec![(3, "a"), (2, "a")], vec![(2, 1), (3, 1)]),
            // Port c is not open.
            (vec![(3, "c"), (2, "a")], vec![(2, 1)]),
        ] {
            view.set_statics(asked(&entries)).unwrap();
            assert_eq!(
                in_table(&view),
                BTreeMap::from_iter(expected),
                "{entries:?}"
            );
        }
        let (settings, _) = asked(&[(4, "a"), (5, "b")]);
        view.set_statics((settings.clone(), numbers(1))).unwrap();
        view.fdb.remove(Key::in_vlan(0, 0x0200_0000_0005));
        // Without a change of the settings, no entry is set.
        view.set_statics((settings.clone(), numbers(1))).unwrap();
        assert_eq!(in_table(&view), BTreeMap::from([(4, 1)]));
        // Only the entry of the port that has another number is set.
        view.set_statics((settings, numbers(7))).unwrap();
        assert_eq!(in_table(&view), BTreeMap::from([(4, 7)]));
    }

    #[test]
    fn static_entries_that_do_not_fit_are_set_once_they_do() {
        let fdb = Fdb::new(1, 300);
        let mut view = BridgeView {
            name: "lan".to_owned(),
            fdb: Arc::new(fdb),
            ageing_s: 300,
            aged: Arc::default(),
            tables: Arc::new(BridgeTables::without_ports()),
            statics: Statics::default(),
            history: History::default(),
        };
        let ports = || BTreeMap::from([("a".to_owned(), 1)]);
        let setting = |mac: u64| {
            Arc::new(StaticSetting {
                bridge: "lan".to_owned(),
                mac: MacAddress::from_u64(0x0200_0000_0000 | mac),
                vlan: None,
                port: "a".to_owned(),
            })
        };
        let two: SharedList<Arc<StaticSetting>> = (1..=2).map(setting).collect();
        assert!(view.set_statics((two.clone(), ports())).is_err());
        assert_eq!(view.statics.entries().len(), 1);
        // The same settings are tried again.
        assert!(view.set_statics((two, ports())).is_err());
        let one: SharedList<Arc<StaticSetting>> = (2..=2).map(setting).collect();
        view.set_statics((one, ports())).unwrap();
        assert_eq!(view.fdb.snapshot(0).filter(|one| one.is_static).count(), 1);
        assert_eq!(
            view.statics.entries(),
            [(Key::in_vlan(0, 0x0200_0000_0002), 1)]
        );
        // A failure leaves no entry behind, not even one of two entries of an address.
        let mut of_b = (*setting(2)).clone();
        of_b.port = "b".to_owned();
        let three = [setting(1), setting(2), Arc::new(of_b)].into_iter();
        let both = BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]);
        assert!(view.set_statics((three.collect(), both)).is_err());
        view.set_statics((SharedList::default(), ports())).unwrap();
        assert!(view.statics.entries().is_empty());
        assert_eq!(view.fdb.snapshot(0).count(), 0);
    }

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
