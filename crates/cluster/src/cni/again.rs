// SPDX-License-Identifier: Apache-2.0
//! Ports of running containers that their switch lacks because it was started again: they are added with the same settings, and the
//! interfaces in the containers get their addresses and routes again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_base::BootId;

use super::left::Round;
use super::record::{self, Attached, AttachmentLock, Record};
use super::reply::{CniError, ErrorCode};
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
    let mut round = Round::default();
    let names = match record::names(directory) {
        Ok(names) => names,
        Err(error) => {
            round.errors.push(error.to_string());
            return round;
        }
    };
    // Names of the ports of each switch; `None` if it does not reply.
    let mut present: BTreeMap<PathBuf, Option<BTreeSet<String>>> = BTreeMap::new();
    for name in names {
        let path = port::record_in(directory, &name);
        let Some(known) = living(&path, root, boot) else {
            continue;
        };
        let ports = present
            .entry(known.control_socket.clone())
            .or_insert_with(|| names_of_ports(&switch_at(&known.control_socket)));
        if ports.as_ref().is_none_or(|ports| ports.contains(&name)) {
            continue;
        }
        let lock = match AttachmentLock::acquire(directory, &name, Duration::ZERO) {
            Ok(Some(lock)) => lock,
            Ok(None) => continue,
            Err(error) => {
                round.errors.push(format!("port {name}: {error}"));
                continue;
            }
        };
        // Another call may have changed it before.
        if let Some(known) = living(&path, root, boot) {
            let switch = switch_at(&known.control_socket);
            match attach(&switch, &known.attached, &known.netns) {
                Ok(()) => round.ports.push(name),
                Err(error) => round.errors.push(format!("port {name}: {error}")),
            }
        }
        drop(lock);
    }
    round
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
    use std::cell::RefCell;
    use std::fs;

    use quietwire_switch::config::AddPort;
    use quietwire_switch::config::bridging::BridgingSetting;

    use super::super::config::PortKind;
    use super::super::record::identity;
    use super::super::running::SwitchPort;
    use super::*;

    const ONE: &str = "c00000000000001";
    const TWO: &str = "c00000000000002";

    /// A switch that can be away, and can refuse ports.
    #[derive(Default)]
    struct Restarted {
        ports: RefCell<Vec<AddPort>>,
        is_away: bool,
        refuses: bool,
    }

    impl Switch for &Restarted {
        fn add_port(&self, port: AddPort) -> Result<(), CniError> {
            if self.refuses {
                return Err(CniError::new(ErrorCode::Refused, "no bridge lan"));
            }
            self.ports.borrow_mut().push(port);
            Ok(())
        }

        fn delete_port(&self, name: &str) -> Result<bool, CniError> {
            let mut ports = self.ports.borrow_mut();
            let before = ports.len();
            ports.retain(|port| port.name != name);
            Ok(ports.len() < before)
        }

        fn ports(&self) -> Result<Vec<SwitchPort>, CniError> {
            if self.is_away {
                return Err(CniError::new(ErrorCode::TryAgain, "no switch"));
            }
            let ports = self.ports.borrow();
            let port = |port: &AddPort| SwitchPort {
                name: port.name.clone(),
                group: port.bridge.clone().unwrap_or_default(),
            };
            Ok(ports.iter().map(port).collect())
        }

        fn bridges(&self) -> Result<Vec<String>, CniError> {
            Ok(Vec::new())
        }
    }

    fn memif(name: &str) -> AddPort {
        AddPort {
            name: name.to_owned(),
            uri: format!("memif:/run/quietwire/cni/{name}/memif.sock?role=server"),
            rx_queues: None,
            tx_queues: None,
            rx_cpus: None,
            bridge: Some("lan".to_owned()),
            bridging: BridgingSetting::default(),
        }
    }

    /// A node with files of namespaces and records of attachments.
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

        /// Records an attachment. The file is no namespace, so no interface in it can be configured.
        fn attach(&self, name: &str, interface: Option<&str>) -> Record {
            let netns = self.0.path().join("run/netns").join(name);
            fs::write(&netns, "").unwrap();
            let record = Record {
                network: "lan".to_owned(),
                port: PortKind::Memif,
                control_socket: "/run/quietwire/switch.sock".into(),
                netns: Path::new("/run/netns").join(name),
                netns_directory: identity(&self.0.path().join("run/netns")),
                boot: BootId::current(),
                attached: Some(Attached {
                    port: memif(name),
                    interface: interface.map(str::to_owned),
                    ips: Vec::new(),
                    routes: Vec::new(),
                }),
            };
            self.write(name, &record);
            record
        }

        fn write(&self, name: &str, record: &Record) {
            let path = port::record_in(&self.records(), name);
            record.write(&path).unwrap();
        }

        fn attach_again(&self, switch: &Restarted) -> Round {
            let boot = BootId::current();
            attach_again(&self.records(), self.0.path(), boot, |_: &Path| switch)
        }
    }

    fn of(names: &[&str]) -> Round {
        Round {
            ports: names.iter().map(|&name| name.to_owned()).collect(),
            errors: Vec::new(),
        }
    }

    #[test]
    fn a_switch_that_was_started_again_gets_the_ports_of_running_containers() {
        let node = Node::new();
        let mut switch = Restarted::default();
        node.attach(ONE, None);
        let ended = node.attach(TWO, None);
        fs::remove_file(node.0.path().join("run/netns").join(TWO)).unwrap();
        switch.is_away = true;
        assert_eq!(node.attach_again(&switch), of(&[]));
        switch.is_away = false;
        assert_eq!(node.attach_again(&switch), of(&[ONE]));
        assert_eq!(*switch.ports.borrow(), [memif(ONE)]);
        assert_eq!(node.attach_again(&switch), of(&[]));
        // One whose ADD has not ended, and one of an earlier boot.
        fs::write(node.0.path().join("run/netns").join(TWO), "").unwrap();
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
            node.write(TWO, &other);
            assert_eq!(node.attach_again(&switch), of(&[]));
        }
        assert_eq!(switch.ports.borrow().len(), 1);
    }

    #[test]
    fn a_container_that_cannot_be_attached_has_no_port_and_is_tried_again() {
        let node = Node::new();
        let mut switch = Restarted {
            refuses: true,
            ..Restarted::default()
        };
        node.attach(ONE, None);
        node.attach(TWO, Some("eth0"));
        let refused = node.attach_again(&switch);
        assert_eq!(refused.errors.len(), 2, "{refused:?}");
        switch.refuses = false;
        // A call for it has not ended.
        let lock = AttachmentLock::acquire(&node.records(), ONE, Duration::ZERO);
        let lock = lock.unwrap().unwrap();
        let failed = node.attach_again(&switch);
        assert!(failed.ports.is_empty(), "{failed:?}");
        assert!(failed.errors[0].contains("eth0"), "{failed:?}");
        assert!(switch.ports.borrow().is_empty());
        drop(lock);
        assert_eq!(node.attach_again(&switch).ports, [ONE]);
    }
}
