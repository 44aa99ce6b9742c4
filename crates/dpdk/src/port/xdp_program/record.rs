// SPDX-License-Identifier: Apache-2.0
//! Records of attached XDP programs: one line in a file per process and interface.

use super::kernel::InterfaceId;
use crate::port::records::{self, Process};

/// An attached program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Its interface.
    pub(super) interface: InterfaceId,
    /// Its number in the kernel.
    pub(super) program: u32,
    /// When it was loaded, ns since boot.
    pub(super) loaded: u64,
    /// The process that attached it.
    pub(super) process: Process,
}

impl records::Record for Record {
    fn name(&self) -> String {
        let (InterfaceId { network, index }, (pid, _)) = (self.interface, self.process);
        format!("{network}-{index}-{pid}")
    }

    fn text(&self) -> String {
        let InterfaceId { network, index } = self.interface;
        let (pid, start) = self.process;
        format!(
            "{network} {index} {} {} {pid} {start}\n",
            self.program, self.loaded
        )
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let record = Self {
            interface: InterfaceId {
                network: words.next()?.parse().ok()?,
                index: words.next()?.parse().ok()?,
            },
            program: words.next()?.parse().ok()?,
            loaded: words.next()?.parse().ok()?,
            process: (words.next()?.parse().ok()?, words.next()?.parse().ok()?),
        };
        words.next().is_none().then_some(record)
    }

    fn process(&self) -> Process {
        self.process
    }
}

impl Record {
    pub(super) fn is_same_program(&self, other: &Self) -> bool {
        (self.interface, self.program) == (other.interface, other.program)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use quietwire_base::ProcessId;
    use quietwire_base::fuzz::{check, planted};

    use super::*;
    use crate::port::records::Record as _;

    fn record(pid: i32) -> Record {
        Record {
            interface: InterfaceId {
                network: 4_026_531_840,
                index: 7,
            },
            program: 12,
            loaded: 34_000_000_000,
            process: (pid, 99),
        }
    }

    #[test]
    fn notes_are_read_as_they_were_written_until_they_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let records = directory.path().join("xdp");
        assert_eq!(Record::all(&records), []);
        record(1).write(&records).unwrap();
        record(2).write(&records).unwrap();
        // A record is removed by its name: that of a copy is another.
        fs::copy(record(1).path(&records), records.join("4026531840-7-3")).unwrap();
        fs::write(records.join("other"), "1 2 3\n").unwrap();
        let mut all = Record::all(&records);
        all.sort_by_key(|record| record.process);
        assert_eq!(all, [record(1), record(2)]);
        record(1).remove(&records);
        record(1).remove(&records);
        assert_eq!(Record::all(&records), [record(2)]);
    }

    #[test]
    fn lines_without_sense_are_no_notes() {
        for line in [
            "",
            "1 2 3 4 5",
            "1 2 3 4 5 6 7",
            "1 2 x 4 5 6",
            "-1 2 3 4 5 6",
        ] {
            assert_eq!(Record::parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_process_that_has_ended_is_dead_though_its_number_is_used() {
        let own = ProcessId::own().unwrap();
        let of = |start_time| Record {
            process: (own.pid, start_time),
            ..record(own.pid)
        };
        assert!(of(own.start_time).is_of_a_living_process());
        assert!(!of(own.start_time + 1).is_of_a_living_process());
    }

    /// Reads any text as a record. What is accepted is the same after it was written.
    fn fuzz_line(octets: &[u8]) -> bool {
        let Some(record) = Record::parse(&String::from_utf8_lossy(octets)) else {
            return false;
        };
        assert_eq!(Record::parse(&record.text()).as_ref(), Some(&record));
        assert!(!record.name().contains('/'), "{}", record.name());
        planted("dpdk-xdp-programs", || {
            record.program > 50_000 && record.loaded < 1000
        });
        true
    }

    #[test]
    fn fuzz() {
        check(env!("CARGO_MANIFEST_DIR"), "dpdk-xdp-programs", fuzz_line);
    }
}
