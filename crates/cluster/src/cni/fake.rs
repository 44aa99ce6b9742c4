// SPDX-License-Identifier: Apache-2.0
//! A switch and a node for tests.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use quietwire_base::BootId;
use quietwire_switch::config::AddPort;
use quietwire_switch::config::bridging::BridgingSetting;

use super::config::PortKind;
use super::port;
use super::record::{Attached, Record, identity};
use super::reply::{CniError, ErrorCode};
use super::round::Round;
use super::running::{Switch, SwitchInterface, SwitchPort};

/// Names of attachments.
pub(super) const ONE: &str = "c00000000000001";
pub(super) const TWO: &str = "c00000000000002";

/// A switch that keeps its ports in memory.
#[derive(Default)]
pub(super) struct FakeSwitch {
    pub(super) ports: RefCell<Vec<AddPort>>,
    pub(super) refuses: bool,
    /// The reply to an addition is lost.
    pub(super) loses_reply: bool,
    /// Another program adds the same port before.
    pub(super) has_rival: bool,
    /// It does not list its ports.
    pub(super) is_away: bool,
    /// It does not reply to deletions.
    pub(super) keeps_ports: bool,
}

impl Switch for &FakeSwitch {
    fn add_port(&self, port: AddPort) -> Result<(), CniError> {
        if self.refuses {
            return Err(CniError::new(ErrorCode::Refused, "no memory"));
        }
        self.ports.borrow_mut().push(port);
        if self.loses_reply {
            return Err(CniError::new(ErrorCode::Io, "no reply within 30 s"));
        }
        if self.has_rival {
            return Err(CniError::new(ErrorCode::Refused, "the port exists"));
        }
        Ok(())
    }

    fn delete_port(&self, name: &str) -> Result<bool, CniError> {
        if self.keeps_ports {
            return Err(CniError::new(ErrorCode::Io, "no reply"));
        }
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
            uri: port.uri.clone(),
            group: port.bridge.clone().unwrap(),
        };
        Ok(ports.iter().map(port).collect())
    }

    fn bridges(&self) -> Result<Vec<String>, CniError> {
        Ok(vec!["lan".to_owned()])
    }

    fn interfaces(&self) -> Result<Vec<SwitchInterface>, CniError> {
        Ok(vec![SwitchInterface {
            vrf: "blue".to_owned(),
            bridge: Some("lan".to_owned()),
            vlan: None,
        }])
    }
}

/// Returns the memif port of an attachment.
pub(super) fn memif(name: &str) -> AddPort {
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

/// Returns a round without errors that changed these attachments.
pub(super) fn of(names: &[&str]) -> Round {
    Round {
        ports: names.iter().map(|&name| name.to_owned()).collect(),
        errors: Vec::new(),
    }
}

/// A node with its root directory and directories of records and of namespaces.
pub(super) struct Node(tempfile::TempDir);

impl Node {
    pub(super) fn new() -> Self {
        let node = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(node.root().join("run/netns")).unwrap();
        fs::create_dir_all(node.records()).unwrap();
        node
    }

    pub(super) fn root(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn records(&self) -> PathBuf {
        self.root().join("run/quietwire/cni")
    }

    /// Returns the file of the record of an attachment.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        port::record_in(&self.records(), name)
    }

    /// Returns the file of a network namespace.
    pub(super) fn netns(&self, name: &str) -> PathBuf {
        self.root().join("run/netns").join(name)
    }

    /// Records a memif port of a container whose namespace has this file.
    pub(super) fn record(&self, name: &str, netns: &str, attached: Option<Attached>) -> Record {
        let record = Record {
            network: "lan".to_owned(),
            port: PortKind::Memif,
            control_socket: "/run/quietwire/switch.sock".into(),
            netns: Path::new("/run/netns").join(netns),
            netns_directory: identity(&self.root().join("run/netns")),
            boot: BootId::current(),
            attached,
            device: None,
            moved: None,
        };
        record.write(&self.file(name)).unwrap();
        record
    }
}
