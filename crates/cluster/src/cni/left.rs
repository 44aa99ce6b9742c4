// SPDX-License-Identifier: Apache-2.0
//! Attachments whose containers have ended without DEL: the node was started again, or the runtime was killed.
//!
//! After the end of a container, the kernel moves its interface of a card to the node. It gets its former name again here.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use quietwire_base::BootId;

use super::config::PortKind;
use super::record::{self, AttachmentLock, Record};
use super::reply::CniError;
use super::running::Switch;
use super::{host_device, port};

/// Network namespace of the node, in the PID namespace of the node.
const NETNS_OF_NODE: &str = "proc/1/ns/net";

/// Result of a round.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Round {
    /// Names of the attachments that were removed, or attached again.
    pub(crate) ports: Vec<String>,
    /// Errors. The next round tries those attachments again.
    pub(crate) errors: Vec<String>,
}

/// Removes the attachments of a directory whose network namespaces have ended, with port, socket and record. `root` is the root directory of
/// `/proc` and `/run`, and `boot` the running boot. `switch_at` returns the switch at a control socket.
///
/// An attachment stays if that is not certain: its record cannot be read, this process does not see the directory in which the namespace had
/// its file, or a call for it has not ended. The record of an interface of the node stays until the interface is on the node.
pub(crate) fn remove_left<S: Switch>(
    directory: &Path,
    root: &Path,
    boot: Option<BootId>,
    switch_at: impl Fn(&Path) -> S,
) -> Round {
    let mut removed = Round::default();
    let names = match record::names(directory) {
        Ok(names) => names,
        Err(error) => {
            removed.errors.push(error.to_string());
            return removed;
        }
    };
    for name in names {
        let path = port::record_in(directory, &name);
        let read_left = || Record::read(&path).filter(|record| is_left(record, root, boot));
        // Living attachments need no lock.
        if read_left().is_none() {
            continue;
        }
        let lock = match AttachmentLock::acquire(directory, &name, Duration::ZERO) {
            Ok(Some(lock)) => lock,
            Ok(None) => continue,
            Err(error) => {
                removed.errors.push(format!("port {name}: {error}"));
                continue;
            }
        };
        // Another call may have changed it before.
        if let Some(record) = read_left() {
            let is_earlier = is_of_earlier_boot(&record, boot);
            match remove(directory, root, &name, &record, is_earlier, &switch_at) {
                Ok(true) => removed.ports.push(name),
                Ok(false) => {}
                Err(error) => removed.errors.push(format!("port {name}: {error}")),
            }
        }
        drop(lock);
    }
    removed
}

/// Returns true if the network namespace of an attachment has certainly ended.
fn is_left(record: &Record, root: &Path, boot: Option<BootId>) -> bool {
    // All namespaces end with their boot.
    is_of_earlier_boot(record, boot)
        || record::roots(root)
            .iter()
            .any(|root| is_absent(record, root))
}

fn is_of_earlier_boot(record: &Record, boot: Option<BootId>) -> bool {
    record.boot.is_some() && boot.is_some() && record.boot != boot
}

/// Returns true if the directory of a namespace is below this root, and the file of the namespace is not in it.
fn is_absent(record: &Record, root: &Path) -> bool {
    record.netns_below(root).is_some_and(|path| {
        let found = fs::symlink_metadata(path);
        found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    })
}

/// Removes port, socket and record of an attachment, or gives its interface the former name. Returns false if the attachment stays, because
/// its interface is not on the node.
fn remove<S: Switch>(
    directory: &Path,
    root: &Path,
    name: &str,
    record: &Record,
    is_earlier: bool,
    switch_at: impl Fn(&Path) -> S,
) -> Result<bool, CniError> {
    if record.port != PortKind::HostDevice {
        switch_at(&record.control_socket).delete_port(name)?;
    } else if !is_earlier {
        // Since another boot, interfaces have no alias.
        let node = root.join(NETNS_OF_NODE);
        if !host_device::restore_in(&node, |attachment| attachment == name)? {
            return Ok(false);
        }
    }
    record::remove_files(directory, record.port, name)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use quietwire_switch::config::AddPort;

    use super::super::record::{OF_INIT, identity};
    use super::super::reply::ErrorCode;
    use super::super::running::SwitchPort;
    use super::*;

    const BOOT: &str = "\"6a3d8d1e6b3f4d7e9a520d2b4f3c1a00\"";

    /// Names of the ports of a switch, and whether it fails.
    #[derive(Default)]
    struct Ports {
        names: RefCell<BTreeSet<String>>,
        is_failing: bool,
    }

    impl Switch for &Ports {
        fn add_port(&self, port: AddPort) -> Result<(), CniError> {
            self.names.borrow_mut().insert(port.name);
            Ok(())
        }

        fn delete_port(&self, name: &str) -> Result<bool, CniError> {
            if self.is_failing {
                return Err(CniError::new(ErrorCode::Io, "no reply"));
            }
            Ok(self.names.borrow_mut().remove(name))
        }

        fn ports(&self) -> Result<Vec<SwitchPort>, CniError> {
            Ok(Vec::new())
        }

        fn bridges(&self) -> Result<Vec<String>, CniError> {
            Ok(Vec::new())
        }
    }

    /// A node with its root directory and directories of records and of namespaces.
    struct Node(tempfile::TempDir);

    impl Node {
        fn new() -> Self {
            let node = Self(tempfile::tempdir().unwrap());
            fs::create_dir_all(node.0.path().join("run/netns")).unwrap();
            fs::create_dir_all(node.records()).unwrap();
            node
        }

        fn records(&self) -> PathBuf {
            self.0.path().join("run/quietwire/cni")
        }

        fn file(&self, name: &str) -> PathBuf {
            self.records().join(format!("{name}.network"))
        }

        fn netns(&self, name: &str) -> PathBuf {
            self.0.path().join("run/netns").join(name)
        }

        /// Records a memif port of a container whose namespace has this file.
        fn attach(&self, name: &str, netns: &str) -> Record {
            let record = Record {
                network: "lan".to_owned(),
                port: PortKind::Memif,
                control_socket: "/run/quietwire/switch.sock".into(),
                netns: Path::new("/run/netns").join(netns),
                netns_directory: identity(&self.0.path().join("run/netns")),
                boot: BootId::current(),
                attached: None,
            };
            record.write(&self.file(name)).unwrap();
            let sockets = self.records().join(name);
            fs::create_dir(&sockets).unwrap();
            fs::write(sockets.join("memif.sock"), "").unwrap();
            record
        }

        fn remove_left(&self, switch: &Ports) -> Round {
            let boot = BootId::current();
            remove_left(&self.records(), self.0.path(), boot, |_: &Path| switch)
        }
    }

    fn of(names: &[&str]) -> Round {
        Round {
            ports: names.iter().map(|&name| name.to_owned()).collect(),
            errors: Vec::new(),
        }
    }

    const ONE: &str = "c00000000000001";
    const TWO: &str = "c00000000000002";

    #[test]
    fn attachments_of_ended_namespaces_are_removed_and_others_stay() {
        let node = Node::new();
        let switch = Ports::default();
        for (name, netns) in [(ONE, "pod-1"), (TWO, "pod-2")] {
            fs::write(node.netns(netns), "").unwrap();
            node.attach(name, netns);
            switch.names.borrow_mut().insert(name.to_owned());
        }
        assert_eq!(node.remove_left(&switch), of(&[]));
        fs::remove_file(node.netns("pod-1")).unwrap();
        // A call for it has not ended.
        let lock = AttachmentLock::acquire(&node.records(), ONE, Duration::ZERO);
        let lock = lock.unwrap().unwrap();
        assert_eq!(node.remove_left(&switch), of(&[]));
        drop(lock);
        assert_eq!(node.remove_left(&switch), of(&[ONE]));
        assert_eq!(*switch.names.borrow(), [TWO.to_owned()].into());
        assert!(!node.file(ONE).exists() && !node.records().join(ONE).exists());
        assert!(node.file(TWO).exists() && node.records().join(TWO).exists());
        assert_eq!(node.remove_left(&switch), of(&[]));
    }

    #[test]
    fn an_attachment_whose_end_is_uncertain_stays() {
        let node = Node::new();
        let switch = Ports::default();
        // Its directory is not the one of this node, or unknown.
        let record = node.attach(ONE, "pod-1");
        for netns_directory in [None, identity(&node.records())] {
            let other = Record {
                netns_directory,
                ..record.clone()
            };
            other.write(&node.file(ONE)).unwrap();
            assert_eq!(node.remove_left(&switch), of(&[]));
        }
        // Its interface is not on the node, as far as this process sees it.
        let of_node = Record {
            port: PortKind::HostDevice,
            ..record
        };
        of_node.write(&node.file(ONE)).unwrap();
        assert_eq!(node.remove_left(&switch), of(&[]));
        fs::write(node.file(ONE), "lan").unwrap();
        assert_eq!(node.remove_left(&switch), of(&[]));
        assert!(node.records().join(ONE).exists());
    }

    #[test]
    fn the_directory_of_init_shows_namespaces_to_a_container() {
        let node = Node::new();
        let switch = Ports::default();
        let below = node.0.path().join(OF_INIT);
        fs::create_dir_all(below.join("run/netns")).unwrap();
        let record = node.attach(ONE, "pod-1");
        let of_init = Record {
            netns: "/var/run/netns/pod-1".into(),
            netns_directory: identity(&below.join("run/netns")),
            ..record
        };
        of_init.write(&node.file(ONE)).unwrap();
        fs::write(below.join("run/netns/pod-1"), "").unwrap();
        assert_eq!(node.remove_left(&switch), of(&[]));
        fs::remove_file(below.join("run/netns/pod-1")).unwrap();
        assert_eq!(node.remove_left(&switch), of(&[ONE]));
    }

    #[test]
    fn attachments_of_an_earlier_boot_are_removed() {
        let node = Node::new();
        let switch = Ports::default();
        fs::write(node.netns("pod-1"), "").unwrap();
        let record = node.attach(ONE, "pod-1");
        node.attach(TWO, "pod-1");
        let earlier = Record {
            port: PortKind::HostDevice,
            boot: Some(serde_json::from_str(BOOT).unwrap()),
            ..record
        };
        earlier.write(&node.file(ONE)).unwrap();
        assert_eq!(node.remove_left(&switch), of(&[ONE]));
    }

    #[test]
    fn a_port_that_the_switch_does_not_remove_is_tried_again() {
        let node = Node::new();
        let mut switch = Ports {
            is_failing: true,
            ..Ports::default()
        };
        node.attach(ONE, "pod-1");
        let failed = node.remove_left(&switch);
        assert_eq!(failed.errors, [format!("port {ONE}: no reply")]);
        assert!(failed.ports.is_empty() && node.file(ONE).exists());
        switch.is_failing = false;
        assert_eq!(node.remove_left(&switch), of(&[ONE]));
    }
}
