// SPDX-License-Identifier: Apache-2.0
//! Records of features that ports have switched off: one line in a file per port, written before the change.

use crate::port::records::{self, Process};
use crate::port::xdp_program::kernel::InterfaceId;

/// Features of a network card that take the tags out of received frames (net/ethtool/common.c, `netdev_features_strings`).
pub(super) const REMOVED: [&str; 2] = ["rx-vlan-hw-parse", "rx-vlan-stag-hw-parse"];
/// Features of an interface to which the kernel leaves the tags of sent frames.
pub(super) const INSERTED: [&str; 2] = ["tx-vlan-hw-insert", "tx-vlan-stag-hw-insert"];

/// Features of an interface that a port has switched off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Number of the port's network namespace.
    pub(super) home: u64,
    pub(super) interface: InterfaceId,
    /// The process of the port.
    pub(super) process: Process,
    /// Number of the record among those of the process: several ports may use one interface.
    pub(super) number: u32,
    /// At least one.
    pub(super) features: Vec<&'static str>,
}

impl records::Record for Record {
    fn name(&self) -> String {
        let (InterfaceId { network, index }, (pid, _)) = (self.interface, self.process);
        format!("{network}-{index}-{pid}-tags-{}", self.number)
    }

    fn text(&self) -> String {
        let InterfaceId { network, index } = self.interface;
        let (pid, start) = self.process;
        format!(
            "{} {network} {index} {pid} {start} {} {}\n",
            self.home,
            self.number,
            self.features.join(" ")
        )
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let record = Self {
            home: words.next()?.parse().ok()?,
            interface: InterfaceId {
                network: words.next()?.parse().ok()?,
                index: words.next()?.parse().ok()?,
            },
            process: (words.next()?.parse().ok()?, words.next()?.parse().ok()?),
            number: words.next()?.parse().ok()?,
            features: words.map(feature).collect::<Option<_>>()?,
        };
        (!record.features.is_empty()).then_some(record)
    }

    fn process(&self) -> Process {
        self.process
    }
}

/// Returns the feature with a name, if ports switch it off.
fn feature(name: &str) -> Option<&'static str> {
    REMOVED
        .into_iter()
        .chain(INSERTED)
        .find(|known| *known == name)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use quietwire_base::fuzz::{check, planted};

    use super::*;
    use crate::port::records::Record as _;

    fn record(number: u32) -> Record {
        Record {
            home: 4_026_531_840,
            interface: InterfaceId {
                network: 4_026_532_000,
                index: 7,
            },
            process: (12, 99),
            number,
            features: vec![INSERTED[0], REMOVED[1]],
        }
    }

    #[test]
    fn records_are_read_as_they_were_written_until_they_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let records = directory.path().join("xdp");
        assert_eq!(Record::all(&records), []);
        for number in [1, 2] {
            record(number).write(&records).unwrap();
        }
        // A record is removed by its name: that of a copy is another.
        fs::copy(record(1).path(&records), records.join("copy")).unwrap();
        // A program of an interface, whose records are in the same directory.
        records::write(&records, &records.join("1-2-5"), "1 2 3 4 5 6\n").unwrap();
        let mut all = Record::all(&records);
        all.sort_by_key(|record| record.number);
        assert_eq!(all, [record(1), record(2)]);
        record(1).remove(&records);
        record(1).remove(&records);
        assert_eq!(Record::all(&records), [record(2)]);
    }

    #[test]
    fn lines_without_sense_are_no_records() {
        let good = "1 2 3 4 5 6 tx-vlan-hw-insert";
        assert!(Record::parse(good).is_some());
        for line in [
            "",
            "1 2 3 4 5 6",
            "1 2 3 4 5 tx-vlan-hw-insert",
            "1 2 3 4 5 6 rx-gro",
            "1 2 3 4 5 6 tx-vlan-hw-insert x",
            "1 2 3 4 -5 6 tx-vlan-hw-insert",
        ] {
            assert_eq!(Record::parse(line), None, "{line}");
        }
    }

    /// Reads any text as a record. What is accepted is the same after it was written.
    fn fuzz_record(octets: &[u8]) -> bool {
        let Some(record) = Record::parse(&String::from_utf8_lossy(octets)) else {
            return false;
        };
        assert_eq!(Record::parse(&record.text()).as_ref(), Some(&record));
        assert!(!record.name().contains('/'), "{}", record.name());
        planted("dpdk-tags", || {
            record.number > 50_000 && record.features.len() > 2
        });
        true
    }

    #[test]
    fn fuzz() {
        check(env!("CARGO_MANIFEST_DIR"), "dpdk-tags", fuzz_record);
    }
}
