// SPDX-License-Identifier: Apache-2.0
//! Attachments of a node that have a record: their interfaces, ports or sockets may still exist.

use std::collections::BTreeSet;
use std::path::Path;

use super::port;
use super::record::{self, Record};
use super::reply::CniError;

/// Attachments of a directory of records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recorded {
    /// Names of the attachments.
    names: BTreeSet<String>,
    /// Names of their networks.
    networks: BTreeSet<String>,
}

impl Recorded {
    /// Reads a directory. Files that are no records are left out. A directory that does not exist has none.
    ///
    /// # Errors
    /// [`ErrorCode::Io`](super::reply::ErrorCode::Io).
    pub(crate) fn read(directory: &Path) -> Result<Self, CniError> {
        let mut recorded = Self::default();
        for name in record::names(directory)? {
            if let Some(record) = Record::read(&port::record_in(directory, &name)) {
                recorded.names.insert(name);
                recorded.networks.insert(record.network);
            }
        }
        Ok(recorded)
    }

    /// Returns true if the interface of a container has a record, in whichever network.
    pub(crate) fn has(&self, container_id: &str, interface: &str) -> bool {
        let mut networks = self.networks.iter();
        networks.any(|network| {
            let name = port::name(network, container_id, interface);
            self.names.contains(&name)
        })
    }
}

#[cfg(test)]
impl Recorded {
    /// Writes the record of an attachment for a test, and returns its file.
    pub(crate) fn write(
        directory: &Path,
        network: &str,
        container_id: &str,
        interface: &str,
    ) -> std::path::PathBuf {
        let record = Record {
            network: network.to_owned(),
            port: super::config::PortKind::Memif,
            control_socket: "/run/quietwire/switch.sock".into(),
            netns: "/run/netns/pod".into(),
            netns_directory: None,
            boot: None,
            attached: None,
            device: None,
            moved: None,
        };
        let file = port::record_in(directory, &port::name(network, container_id, interface));
        record.write(&file).unwrap();
        file
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::fake::{Node, ONE, TWO};
    use super::*;

    #[test]
    fn attachments_with_records_are_known_by_container_and_interface() {
        let node = Node::new();
        let recorded = || Recorded::read(&node.records()).unwrap();
        assert!(!recorded().has("container", "net1"));
        Recorded::write(&node.records(), "lan", "container", "net1");
        // One of another attachment, and a file that is no record.
        node.record(ONE, "pod-2", None);
        fs::write(node.file(TWO), "lan").unwrap();
        let known = recorded();
        assert!(known.has("container", "net1"));
        assert!(!known.has("container", "net2") && !known.has("other", "net1"));
        assert_eq!(known.names.len(), 2);
        fs::remove_dir_all(node.records()).unwrap();
        assert_eq!(recorded(), Recorded::default());
    }
}
