// SPDX-License-Identifier: Apache-2.0
//! Records of changed settings of virtual functions: one line in a file per function, written before the first change.

use quietwire_base::ProcessId;

use super::message::Setting;
use crate::pci::VirtualFunction;
use crate::port::records::{self, Process, Record as _};

/// A changed setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) former: Setting,
    pub(super) new: Setting,
}

/// Changed settings of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// PCI address of the function.
    pub(super) address: String,
    pub(super) function: VirtualFunction,
    /// The process that changed it.
    pub(super) process: Process,
    pub(super) changes: Vec<Change>,
}

impl records::Record for Record {
    fn name(&self) -> String {
        self.address.clone()
    }

    fn text(&self) -> String {
        let VirtualFunction { physical, number } = &self.function;
        let (pid, start) = self.process;
        let mut line = format!("{} {physical} {number} {pid} {start}", self.address);
        for Change { former, new } in &self.changes {
            line += &format!(" {former}>{new}");
        }
        line.push('\n');
        line
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        Some(Self {
            address: words.next()?.to_owned(),
            function: VirtualFunction {
                physical: words.next()?.to_owned(),
                number: words.next()?.parse().ok()?,
            },
            process: (words.next()?.parse().ok()?, words.next()?.parse().ok()?),
            changes: words.map(Change::parse).collect::<Option<_>>()?,
        })
    }

    fn process(&self) -> Process {
        self.process
    }
}

impl Record {
    /// Returns true if another process than this one has the function.
    pub(super) fn is_of_another(&self) -> bool {
        let own = ProcessId::own().map(|own| (own.pid, own.start_time));
        own != Some(self.process) && self.is_of_a_living_process()
    }
}

impl Change {
    fn parse(text: &str) -> Option<Self> {
        let (former, new) = text.split_once('>')?;
        let (former, new): (Setting, Setting) = (former.parse().ok()?, new.parse().ok()?);
        (former.name() == new.name()).then_some(Self { former, new })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use quietwire_base::fuzz::{check, planted};

    use super::*;

    fn record(address: &str, process: (i32, u64)) -> Record {
        Record {
            address: address.to_owned(),
            function: VirtualFunction {
                physical: "0000:17:00.0".to_owned(),
                number: 3,
            },
            process,
            changes: vec![
                Change {
                    former: Setting::Vlan { id: 0, priority: 0 },
                    new: Setting::Vlan { id: 5, priority: 0 },
                },
                Change {
                    former: Setting::Trust(false),
                    new: Setting::Trust(true),
                },
            ],
        }
    }

    #[test]
    fn records_are_read_as_they_were_written_until_they_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let records = directory.path().join("functions");
        assert_eq!(Record::all(&records), []);
        let (one, two) = (
            record("0000:17:02.3", (1, 2)),
            record("0000:17:02.4", (1, 2)),
        );
        one.write(&records).unwrap();
        two.write(&records).unwrap();
        // The name of the file is that of the function.
        fs::copy(records.join("0000:17:02.3"), records.join("0000:17:02.5")).unwrap();
        fs::write(records.join("other"), "1 2 3\n").unwrap();
        let mut all = Record::all(&records);
        all.sort_by(|a, b| a.address.cmp(&b.address));
        assert_eq!(all, [one.clone(), two.clone()]);
        one.remove(&records);
        one.remove(&records);
        assert_eq!(Record::all(&records), [two]);
    }

    #[test]
    fn lines_without_sense_are_no_records() {
        let begin = "0000:17:02.3 0000:17:00.0 3 1 2";
        assert!(Record::parse(begin).is_some());
        for change in ["x", "vlan=0,0", "vlan=0,0>vlan=x", "vlan=0,0>trust=on"] {
            assert_eq!(
                Record::parse(&format!("{begin} {change}")),
                None,
                "{change}"
            );
        }
        for line in ["", "0000:17:02.3 0000:17:00.0 3 1", "a b c 1 2"] {
            assert_eq!(Record::parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_function_is_of_another_process_while_that_runs() {
        let own = ProcessId::own().unwrap();
        assert!(!record("a", (own.pid, own.start_time)).is_of_another());
        assert!(!record("a", (own.pid, own.start_time + 1)).is_of_another());
        let parent = ProcessId::of(i32::try_from(std::os::unix::process::parent_id()).unwrap());
        let parent = parent.unwrap();
        assert!(record("a", (parent.pid, parent.start_time)).is_of_another());
    }

    /// Reads any text as a record. What is accepted is the same after it was written, and each change is of one setting.
    fn fuzz_record(octets: &[u8]) -> bool {
        let Some(record) = Record::parse(&String::from_utf8_lossy(octets)) else {
            return false;
        };
        assert_eq!(Record::parse(&record.text()).as_ref(), Some(&record));
        for Change { former, new } in &record.changes {
            assert_eq!(former.name(), new.name());
        }
        planted("dpdk-functions", || {
            let is_high = |change: &Change| matches!(change.new, Setting::Vlan { id: 4000.., .. });
            record.function.number > 200 && record.changes.iter().any(is_high)
        });
        true
    }

    #[test]
    fn fuzz() {
        check(env!("CARGO_MANIFEST_DIR"), "dpdk-functions", fuzz_record);
    }
}
