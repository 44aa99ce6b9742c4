// SPDX-License-Identifier: Apache-2.0
//! The alias of a near end, which shows the port and the process that created a pair.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;

use nix::errno::Errno;
use quietwire_base::ProcessId;

use quietwire_base::netns::Failure;

use crate::port::records::{self, Process};

/// Begin of each alias. Aliases of at most 255 octets are possible (linux/if.h, IFALIASZ).
const BEGIN: &str = "quietwire veth ";
/// Most characters of a port's name in an alias: at most 120 octets.
const NAME_MAX: usize = 30;

/// Origin of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Marker {
    /// The process.
    process: Process,
    /// Number of the namespace in which the process has this number (pid_namespaces(7)).
    namespace: u64,
    /// True if the pair stays after its port.
    pub(super) is_kept: bool,
    /// Name of the port.
    port: String,
}

impl Marker {
    /// Returns the marker of a port of this process.
    pub(super) fn own(port: &str, is_kept: bool) -> Result<Self, Failure> {
        let process = ProcessId::own().ok_or(("/proc/self/stat", Errno::ENOENT))?;
        Ok(Self {
            process: (process.pid, process.start_time),
            namespace: own_namespace().ok_or(("/proc/self/ns/pid", Errno::ENOENT))?,
            is_kept,
            port: port
                .chars()
                .filter(|character| !character.is_control())
                .take(NAME_MAX)
                .collect(),
        })
    }

    /// Reads an alias. `None` if it is not that of a pair.
    pub(super) fn parse(alias: &str) -> Option<Self> {
        let (fields, port) = alias.strip_prefix(BEGIN)?.split_once(" port=")?;
        let mut words = fields.split(' ');
        let mut field = |key: &str| words.next()?.strip_prefix(key);
        let marker = Self {
            process: (field("pid=")?.parse().ok()?, field("start=")?.parse().ok()?),
            namespace: field("pidns=")?.parse().ok()?,
            is_kept: match field("persist=")? {
                "on" => true,
                "off" => false,
                _ => return None,
            },
            port: port.to_owned(),
        };
        words.next().is_none().then_some(marker)
    }

    /// Returns false if the process has certainly ended.
    pub(super) fn may_be_alive(&self) -> bool {
        own_namespace() != Some(self.namespace) || records::is_alive(self.process)
    }
}

fn own_namespace() -> Option<u64> {
    Some(fs::metadata("/proc/self/ns/pid").ok()?.ino())
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            process: (pid, start),
            namespace,
            is_kept,
            port,
        } = self;
        let persist = if *is_kept { "on" } else { "off" };
        write!(
            f,
            "{BEGIN}pid={pid} start={start} pidns={namespace} persist={persist} port={port}"
        )
    }
}

#[cfg(test)]
impl Marker {
    /// Returns the marker of a process that has ended and had the number of this one.
    pub(super) fn of_a_dead_process(port: &str, is_kept: bool) -> Self {
        let own = Self::own(port, is_kept).unwrap();
        let (pid, start) = own.process;
        Self {
            process: (pid, start + 1),
            ..own
        }
    }
}

#[cfg(test)]
mod tests {
    use quietwire_base::fuzz::{check, planted};

    use super::*;

    #[test]
    fn markers_are_read_as_they_were_written() {
        for (port, is_kept) in [("left", true), ("a port=b", false), ("", true)] {
            let own = Marker::own(port, is_kept).unwrap();
            assert_eq!(Marker::parse(&own.to_string()), Some(own));
        }
        let long = Marker {
            process: (i32::MAX, u64::MAX),
            namespace: u64::MAX,
            ..Marker::own(&"\u{1f980}".repeat(100), false).unwrap()
        };
        let text = long.to_string();
        assert!(text.len() < 256, "{text}");
        assert_eq!(Marker::parse(&text), Some(long));
        let own = Marker::own("a\nb", false).unwrap();
        assert!(own.to_string().ends_with(" persist=off port=ab"), "{own}");
    }

    #[test]
    fn other_aliases_are_no_markers() {
        for alias in [
            "",
            "uplink",
            "quietwire",
            "quietwire veth pid=1 start=2 pidns=3 persist=on",
            "quietwire veth pid=1 start=2 pidns=3 persist=maybe port=a",
            "quietwire veth pid=x start=2 pidns=3 persist=on port=a",
            "quietwire veth start=2 pid=1 pidns=3 persist=on port=a",
            "quietwire veth pid=1 start=2 pidns=3 persist=on more port=a",
            " quietwire veth pid=1 start=2 pidns=3 persist=on port=a",
        ] {
            assert_eq!(Marker::parse(alias), None, "{alias}");
        }
    }

    #[test]
    fn a_process_is_dead_only_if_its_number_is_of_this_namespace() {
        let own = Marker::own("a", false).unwrap();
        assert!(own.may_be_alive());
        let dead = Marker::of_a_dead_process("a", false);
        assert!(!dead.may_be_alive());
        let elsewhere = Marker {
            namespace: dead.namespace + 1,
            ..dead
        };
        assert!(elsewhere.may_be_alive());
    }

    /// Reads any text as an alias. What is accepted is the same after it was written.
    fn fuzz_alias(octets: &[u8]) -> bool {
        let Some(marker) = Marker::parse(&String::from_utf8_lossy(octets)) else {
            return false;
        };
        assert_eq!(Marker::parse(&marker.to_string()).as_ref(), Some(&marker));
        planted("dpdk-veth-alias", || {
            marker.is_kept && marker.process.0 > 50_000 && marker.namespace < 1000
        });
        true
    }

    #[test]
    fn fuzz() {
        check(env!("CARGO_MANIFEST_DIR"), "dpdk-veth-alias", fuzz_alias);
    }
}
