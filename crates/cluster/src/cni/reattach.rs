// SPDX-License-Identifier: Apache-2.0
//! Ports of running containers that their switch lacks because it was started again: they are added with the same settings, and the
//! interfaces in the containers get their addresses and routes again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use quietwire_base::BootId;

use super::record::{self, Attached, Record};
use super::reply::{CniError, ErrorCode};
use super::round::Round;
use super::running::Switch;
use super::{interface, port};

/// An attachment of a running container.
struct Living {
    control_socket: PathBuf,
    attached: Attached,
    /// File of the container's network namespace, as this process sees it.
    netns: PathBuf,
}

/// Returns the attachment that a file records. `None` if its container may have ended, or its ADD has not.
fn living(path: &Path, root: &Path, boot: Option<BootId>) -> Option<Living> {
    let record = Record::read(path).filter(|record| record.boot == boot)?;
    let netns = record::roots(root)
        .iter()
        .filter_map(|root| record.netns_below(root))
        .find(|file| file.exists())?;
    Some(Living {
        control_socket: record.control_socket,
        attached: record.attached?,
        netns,
    })
}

/// Attaches the containers of a directory of records again whose ports the switch lacks. `root` is the root directory of `/proc` and `/run`,
/// and `boot` the running boot. `switch_at` returns the switch at a control socket. While a switch does not reply, its attachments wait.
pub(crate) fn attach_again<S: Switch>(
    directory: &Path,
    root: &Path,
    boot: Option<BootId>,
    switch_at: impl Fn(&Path) -> S,
) -> Round {
    // Names of the ports of each switch; `None` if it does not reply.
    let mut present: BTreeMap<PathBuf, Option<BTreeSet<String>>> = BTreeMap::new();
    let lacking = |name: &str| {
        let known = living(&port::record_in(directory, name), root, boot)?;
        let ports = present
            .entry(known.control_socket.clone())
            .or_insert_with(|| names_of_ports(&switch_at(&known.control_socket)));
        let is_lacking = ports.as_ref().is_some_and(|ports| !ports.contains(name));
        is_lacking.then_some(known)
    };
    Round::over(directory, lacking, |_, known| {
        let switch = switch_at(&known.control_socket);
        attach(&switch, &known.attached, &known.netns).map(|()| true)
    })
}

fn names_of_ports(switch: &impl Switch) -> Option<BTreeSet<String>> {
    let ports = switch.ports().ok()?;
    Some(ports.into_iter().map(|port| port.name).collect())
}

/// Adds a port and configures its interface. A failure leaves no port, so that the next round tries again.
fn attach(switch: &impl Switch, attached: &Attached, netns: &Path) -> Result<(), CniError> {
    let added = switch.add_port(attached.port.clone());
    let done = match (added, &attached.interface) {
        (Ok(()), None) => return Ok(()),
        (Ok(()), Some(name)) => {
            let netns = netns.display().to_string();
            interface::configure(&netns, name, &attached.ips, &attached.routes).map(drop)
        }
        // It has added none, and a port of this name is of another call.
        (Err(error), _) if error.code() == ErrorCode::Refused as u64 => return Err(error),
        (Err(error), _) => Err(error),
    };
    done.map_err(|error| match switch.delete_port(&attached.port.name) {
        Ok(_) => error,
        Err(left) => {
            let both = format!("{error}; the port is not removed: {left}");
            error.with_details(both)
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::super::fake::{FakeSwitch, Node, ONE, TWO, memif, of};
    use super::super::record::AttachmentLock;
    use super::*;

    /// Records an attachment. The file is no namespace, so no interface in it can be configured.
    fn recorded(node: &Node, name: &str, interface: Option<&str>) -> Record {
        fs::write(node.netns(name), "").unwrap();
        let attached = Attached {
            port: memif(name),
            interface: interface.map(str::to_owned),
            ips: Vec::new(),
            routes: Vec::new(),
        };
        node.record(name, name, Some(attached))
    }

    fn again(node: &Node, switch: &FakeSwitch) -> Round {
        let boot = BootId::current();
        attach_again(&node.records(), node.root(), boot, |_: &Path| switch)
    }

    #[test]
    fn a_switch_that_was_started_again_gets_the_ports_of_running_containers() {
        let node = Node::new();
        let mut switch = FakeSwitch::default();
        recorded(&node, ONE, None);
        let ended = recorded(&node, TWO, None);
        fs::remove_file(node.netns(TWO)).unwrap();
        switch.is_away = true;
        assert_eq!(again(&node, &switch), of(&[]));
        switch.is_away = false;
        assert_eq!(again(&node, &switch), of(&[ONE]));
        assert_eq!(*switch.ports.borrow(), [memif(ONE)]);
        assert_eq!(again(&node, &switch), of(&[]));
        // One whose ADD has not ended, and one of an earlier boot.
        fs::write(node.netns(TWO), "").unwrap();
        for other in [
            Record {
                attached: None,
                ..ended.clone()
            },
            Record {
                boot: None,
                ..ended
            },
        ] {
            other.write(&node.file(TWO)).unwrap();
            assert_eq!(again(&node, &switch), of(&[]));
        }
        assert_eq!(switch.ports.borrow().len(), 1);
    }

    #[test]
    fn a_container_that_cannot_be_attached_has_no_port_and_is_tried_again() {
        let node = Node::new();
        let mut switch = FakeSwitch {
            refuses: true,
            ..FakeSwitch::default()
        };
        recorded(&node, ONE, None);
        recorded(&node, TWO, Some("eth0"));
        let refused = again(&node, &switch);
        assert_eq!(refused.errors.len(), 2, "{refused:?}");
        switch.refuses = false;
        // A call for it has not ended.
        let lock = AttachmentLock::acquire(&node.records(), ONE, Duration::ZERO);
        let lock = lock.unwrap().unwrap();
        let failed = again(&node, &switch);
        assert!(failed.ports.is_empty(), "{failed:?}");
        assert!(failed.errors[0].contains("eth0"), "{failed:?}");
        assert!(switch.ports.borrow().is_empty());
        drop(lock);
        assert_eq!(again(&node, &switch).ports, [ONE]);
    }
}
