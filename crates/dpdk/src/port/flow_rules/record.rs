// SPDX-License-Identifier: Apache-2.0
//! Records of flow rules: a file per process, interface and table that it has opened, written before a change. Its first line has the
//! interface, the process and the table; each further line has the location of a rule, `-` if the driver has not chosen it yet, and the
//! rule.

use crate::port::records::{self, Process};
use crate::port::xdp_program::kernel::InterfaceId;
use crate::steer::card_rules::Entry;

/// Flow rules of a process on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) interface: InterfaceId,
    /// The process that added them.
    pub(super) process: Process,
    /// Number of the table among those that the process has opened: several ports may use one interface.
    pub(super) table: u32,
    pub(super) rules: Vec<Entry>,
}

impl records::Record for Record {
    fn name(&self) -> String {
        let (InterfaceId { network, index }, (pid, _)) = (self.interface, self.process);
        format!("{network}-{index}-{pid}-{}", self.table)
    }

    fn text(&self) -> String {
        let InterfaceId { network, index } = self.interface;
        let (pid, start) = self.process;
        let mut text = format!("{network} {index} {pid} {start} {}\n", self.table);
        for Entry { spec, location } in &self.rules {
            match location {
                Some(location) => text += &format!("{location} {spec}\n"),
                None => text += &format!("- {spec}\n"),
            }
        }
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut words = lines.next()?.split_whitespace();
        let record = Self {
            interface: InterfaceId {
                network: words.next()?.parse().ok()?,
                index: words.next()?.parse().ok()?,
            },
            process: (words.next()?.parse().ok()?, words.next()?.parse().ok()?),
            table: words.next()?.parse().ok()?,
            rules: lines.map(entry).collect::<Option<_>>()?,
        };
        words.next().is_none().then_some(record)
    }

    fn process(&self) -> Process {
        self.process
    }
}

fn entry(line: &str) -> Option<Entry> {
    let (location, spec) = line.split_once(' ')?;
    Some(Entry {
        spec: spec.parse().ok()?,
        location: match location {
            "-" => None,
            number => Some(number.parse().ok()?),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use quietwire_base::fuzz::{check, planted};

    use super::*;
    use crate::port::records::Record as _;
    use crate::steer::flow_spec::{FlowSpec, LENGTH};

    fn record(index: u32) -> Record {
        let spec = FlowSpec::from_octets(std::array::from_fn(|at| at as u8));
        Record {
            interface: InterfaceId {
                network: 4_026_531_840,
                index,
            },
            process: (1, 99),
            table: 3,
            rules: vec![
                Entry {
                    spec: spec.clone(),
                    location: Some(1023),
                },
                Entry {
                    spec,
                    location: None,
                },
            ],
        }
    }

    #[test]
    fn records_of_flow_rules_are_read_as_they_were_written_until_they_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let records = directory.path().join("flow-rules");
        assert_eq!(Record::all(&records), []);
        record(1).write(&records).unwrap();
        record(2).write(&records).unwrap();
        // A record is removed by its name: that of a copy is another.
        fs::copy(record(1).path(&records), records.join("4026531840-1-1-4")).unwrap();
        fs::write(records.join("other"), "1 2 3 4\n").unwrap();
        let mut all = Record::all(&records);
        all.sort_by_key(|record| record.interface.index);
        assert_eq!(all, [record(1), record(2)]);
        record(1).remove(&records);
        record(1).remove(&records);
        assert_eq!(Record::all(&records), [record(2)]);
    }

    #[test]
    fn texts_without_sense_are_no_records_of_flow_rules() {
        let spec = FlowSpec::from_octets([7; LENGTH]).to_string();
        assert!(Record::parse(&format!("1 2 3 4 0\n5 {spec}\n- {spec}\n")).is_some());
        for text in [
            String::new(),
            "1 2 3 4".to_owned(),
            "1 2 3 4 0 5".to_owned(),
            "1 2 x 4 0".to_owned(),
            "1 2 3 4 x".to_owned(),
            format!("1 2 3 4 0\n{spec}"),
            format!("1 2 3 4 0\nx {spec}"),
            format!("1 2 3 4 0\n5 {spec}0"),
            format!("1 2 3 4 0\n5 {}", &spec[2..]),
            format!("1 2 3 4 0\n5 {}", spec.replace('7', "g")),
        ] {
            assert_eq!(Record::parse(&text), None, "{text}");
        }
    }

    /// Reads any text as a record. What is accepted is the same after it was written.
    fn fuzz_record(octets: &[u8]) -> bool {
        let Some(record) = Record::parse(&String::from_utf8_lossy(octets)) else {
            return false;
        };
        let again = Record::parse(&record.text());
        assert_eq!(again.as_ref(), Some(&record));
        planted("dpdk-flow-rules", || {
            let is_chosen = |entry: &Entry| entry.location.is_some();
            record.table > 50 && record.rules.len() > 3 && record.rules.iter().all(is_chosen)
        });
        true
    }

    #[test]
    fn fuzz() {
        check(env!("CARGO_MANIFEST_DIR"), "dpdk-flow-rules", fuzz_record);
    }
}
