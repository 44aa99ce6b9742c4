// SPDX-License-Identifier: Apache-2.0
//! Attachments whose containers have ended without DEL: the node was started again, or the runtime was killed.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use quietwire_base::BootId;

use super::config::PortKind;
use super::port;
use super::record::{self, AttachmentLock, Record, identity};
use super::reply::CniError;
use super::running::Switch;

/// Root directory of the node in the PID namespace of the node, also in a container with other mounts.
const OF_INIT: &str = "proc/1/root";

/// Result of a round.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Removed {
    /// Ports whose attachments were removed.
    pub(crate) ports: Vec<String>,
    /// Errors. The next round tries those attachments again.
    pub(crate) errors: Vec<String>,
}

/// Removes the attachments of a directory whose network namespaces have ended, with port, socket and record. `root` is the root directory of
/// `/proc` and `/run`, and `boot` the running boot. `switch_at` returns the switch at a control socket.
///
/// An attachment stays if that is not certain: its record cannot be read, this process does not see the directory in which the namespace had
/// its file, or a call for it has not ended. Interfaces of the node stay for DEL and GC, which restore their names.
pub(crate) fn remove_left<S: Switch>(
    directory: &Path,
    root: &Path,
    boot: Option<BootId>,
    switch_at: impl Fn(&Path) -> S,
) -> Removed {
    let mut removed = Removed::default();
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
            match remove(directory, &name, &record, &switch_at) {
                Ok(()) => removed.ports.push(name),
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
    if record.boot.is_some() && boot.is_some() && record.boot != boot {
        return true;
    }
    // The name of an interface is restored by its alias, which the kernel keeps.
    record.port != PortKind::HostDevice
        && [root.to_owned(), root.join(OF_INIT)]
            .iter()
            .any(|root| is_absent(record, root))
}

/// Returns true if the directory of a namespace is below this root, and the file of the namespace is not in it.
fn is_absent(record: &Record, root: &Path) -> bool {
    // This link leads out of the root directory if its target is an absolute path.
    let netns = record.netns.as_path();
    let path = match netns.strip_prefix("/var/run") {
        Ok(rest) => Path::new("run").join(rest),
        Err(_) => netns.strip_prefix("/").unwrap_or(netns).to_owned(),
    };
    let path = root.join(path);
    let is_same_directory = record.netns_directory.is_some()
        && path.parent().and_then(identity) == record.netns_directory;
    let found = fs::symlink_metadata(&path);
    is_same_directory && found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Removes port, socket and record of an attachment.
fn remove<S: Switch>(
    directory: &Path,
    name: &str,
    record: &Record,
    switch_at: impl Fn(&Path) -> S,
) -> Result<(), CniError> {
    if record.port != PortKind::HostDevice {
        switch_at(&record.control_socket).delete_port(name)?;
    }
    record::remove_files(directory, record.port, name)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use quietwire_switch::config::AddPort;

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
            };
            record.write(&self.file(name)).unwrap();
            let sockets = self.records().join(name);
            fs::create_dir(&sockets).unwrap();
            fs::write(sockets.join("memif.sock"), "").unwrap();
            record
        }

        fn remove_left(&self, switch: &Ports) -> Removed {
            let boot = BootId::current();
            remove_left(&self.records(), self.0.path(), boot, |_: &Path| switch)
        }
    }

    fn of(names: &[&str]) -> Removed {
        Removed {
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
        // DEL or GC restores its name.
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
