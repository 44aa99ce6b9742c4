// SPDX-License-Identifier: Apache-2.0
//! Attachments whose containers have ended without DEL: the node was started again, or the runtime was killed.
//!
//! After the end of a container, the kernel moves its interface of a card to the node. It gets its former name again here.

use std::fs;
use std::io;
use std::path::Path;

use quietwire_base::BootId;

use super::config::PortKind;
use super::host_device::DeviceAttachment;
use super::record::{self, Record};
use super::reply::CniError;
use super::round::Round;
use super::running::Switch;
use super::{host_device, port};

/// Network namespace of the node, in the PID namespace of the node.
const NETNS_OF_NODE: &str = "proc/1/ns/net";

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
    let left = |name: &str| {
        let record = Record::read(&port::record_in(directory, name));
        record.filter(|record| is_left(record, root, boot))
    };
    Round::over(directory, left, |name, record| {
        let is_earlier = is_of_earlier_boot(&record, boot);
        remove(directory, root, name, &record, is_earlier, &switch_at)
    })
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
        let moved = record.moved.as_ref();
        if !host_device::restore_in(&node, DeviceAttachment { name, moved })? {
            return Ok(false);
        }
    }
    record::remove_files(directory, record.port, name)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::fake::{FakeSwitch, Node, ONE, TWO, memif, of};
    use super::super::record::{AttachmentLock, OF_INIT, identity};
    use super::*;

    const BOOT: &str = "\"6a3d8d1e6b3f4d7e9a520d2b4f3c1a00\"";

    /// Records a memif port, which has a socket, of a container whose namespace has this file.
    fn recorded(node: &Node, name: &str, netns: &str) -> Record {
        let sockets = node.records().join(name);
        fs::create_dir(&sockets).unwrap();
        fs::write(sockets.join("memif.sock"), "").unwrap();
        node.record(name, netns, None)
    }

    fn left(node: &Node, switch: &FakeSwitch) -> Round {
        let boot = BootId::current();
        remove_left(&node.records(), node.root(), boot, |_: &Path| switch)
    }

    #[test]
    fn attachments_of_ended_namespaces_are_removed_and_others_stay() {
        let node = Node::new();
        let switch = FakeSwitch::default();
        for (name, netns) in [(ONE, "pod-1"), (TWO, "pod-2")] {
            fs::write(node.netns(netns), "").unwrap();
            recorded(&node, name, netns);
            switch.ports.borrow_mut().push(memif(name));
        }
        assert_eq!(left(&node, &switch), of(&[]));
        fs::remove_file(node.netns("pod-1")).unwrap();
        // A call for it has not ended.
        let lock = AttachmentLock::acquire(&node.records(), ONE, Duration::ZERO);
        let lock = lock.unwrap().unwrap();
        assert_eq!(left(&node, &switch), of(&[]));
        drop(lock);
        assert_eq!(left(&node, &switch), of(&[ONE]));
        assert_eq!(*switch.ports.borrow(), [memif(TWO)]);
        assert!(!node.file(ONE).exists() && !node.records().join(ONE).exists());
        assert!(node.file(TWO).exists() && node.records().join(TWO).exists());
        assert_eq!(left(&node, &switch), of(&[]));
    }

    #[test]
    fn an_attachment_whose_end_is_uncertain_stays() {
        let node = Node::new();
        let switch = FakeSwitch::default();
        // Its directory is not the one of this node, or unknown.
        let record = recorded(&node, ONE, "pod-1");
        for netns_directory in [None, identity(&node.records())] {
            let other = Record {
                netns_directory,
                ..record.clone()
            };
            other.write(&node.file(ONE)).unwrap();
            assert_eq!(left(&node, &switch), of(&[]));
        }
        // Its interface is not on the node, as far as this process sees it.
        let of_node = Record {
            port: PortKind::HostDevice,
            ..record
        };
        of_node.write(&node.file(ONE)).unwrap();
        assert_eq!(left(&node, &switch), of(&[]));
        fs::write(node.file(ONE), "lan").unwrap();
        assert_eq!(left(&node, &switch), of(&[]));
        assert!(node.records().join(ONE).exists());
    }

    #[test]
    fn the_directory_of_init_shows_namespaces_to_a_container() {
        let node = Node::new();
        let switch = FakeSwitch::default();
        let below = node.root().join(OF_INIT);
        fs::create_dir_all(below.join("run/netns")).unwrap();
        let record = recorded(&node, ONE, "pod-1");
        let of_init = Record {
            netns: "/var/run/netns/pod-1".into(),
            netns_directory: identity(&below.join("run/netns")),
            ..record
        };
        of_init.write(&node.file(ONE)).unwrap();
        fs::write(below.join("run/netns/pod-1"), "").unwrap();
        assert_eq!(left(&node, &switch), of(&[]));
        fs::remove_file(below.join("run/netns/pod-1")).unwrap();
        assert_eq!(left(&node, &switch), of(&[ONE]));
    }

    #[test]
    fn attachments_of_an_earlier_boot_are_removed() {
        let node = Node::new();
        let switch = FakeSwitch::default();
        fs::write(node.netns("pod-1"), "").unwrap();
        let record = recorded(&node, ONE, "pod-1");
        recorded(&node, TWO, "pod-1");
        let earlier = Record {
            port: PortKind::HostDevice,
            boot: Some(serde_json::from_str(BOOT).unwrap()),
            ..record
        };
        earlier.write(&node.file(ONE)).unwrap();
        assert_eq!(left(&node, &switch), of(&[ONE]));
    }

    #[test]
    fn a_port_that_the_switch_does_not_remove_is_tried_again() {
        let node = Node::new();
        let mut switch = FakeSwitch {
            keeps_ports: true,
            ..FakeSwitch::default()
        };
        recorded(&node, ONE, "pod-1");
        let failed = left(&node, &switch);
        assert_eq!(failed.errors, [format!("port {ONE}: no reply")]);
        assert!(failed.ports.is_empty() && node.file(ONE).exists());
        switch.keeps_ports = false;
        assert_eq!(left(&node, &switch), of(&[ONE]));
    }
}
