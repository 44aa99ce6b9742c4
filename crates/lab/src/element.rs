// SPDX-License-Identifier: Apache-2.0
//! An element of a lab: its plan, its ports, and the context in which it is started.

mod context;

use std::path::{Path, PathBuf};

use quietwire_base::supervised::last_lines;
use quietwire_host::CpuList;
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::guest::GuestRecord;
use crate::topology::{
    ElementPlace, Encapsulation, Forwarding, OwnImage, Program, RouterPlace, SwitchSettings,
};

pub(crate) use context::{ElementContext, Process, run};

/// A port of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortPlan {
    pub(crate) attachment: Attachment,
}

/// Plan of an element.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Its name.
    pub(crate) name: String,
    /// Its number in the topology.
    pub(crate) index: u32,
    /// A name that is unique on this machine.
    pub(crate) tag: String,
    pub(crate) place: ElementPlace,
    pub(crate) program: Program,
    /// Its directory.
    pub(crate) directory: PathBuf,
    /// Its ports, p0, p1 and so on.
    pub(crate) ports: Vec<PortPlan>,
    /// Pairs of ports between which it forwards.
    pub(crate) joins: Vec<[usize; 2]>,
    /// Ports that send only frames that a bridge floods.
    pub(crate) monitors: Vec<usize>,
    /// Ports for neighbours that send through it, [`NEIGHBOUR_PORTS`]: two or none.
    pub(crate) neighbour_ports: Vec<PortPlan>,
    pub(crate) forwarding: Forwarding,
    pub(crate) encapsulation: Encapsulation,
    /// IP destinations of each of the tester's ports.
    pub(crate) destinations: u32,
    /// CPUs of its forwarding threads.
    pub(crate) cpus: CpuList,
    /// CPUs of its other threads.
    pub(crate) rest: CpuList,
    /// Whether other elements forward on its CPUs, too.
    pub(crate) is_shared: bool,
    /// Its network namespace, if it has one.
    pub(crate) namespace: Option<String>,
    /// Its place among the routers of its chain.
    pub(crate) router: RouterPlace,
    /// Rules of a firewall without a configuration.
    pub(crate) rules: Option<String>,
    /// Configuration of quietwire's switch beyond its ports and addresses; `None` for that of its program.
    pub(crate) config: Option<String>,
    /// The user's own image of a guest.
    pub(crate) image: Option<OwnImage>,
    /// Settings of quietwire's switch that override the lab's defaults.
    pub(crate) settings: Option<SwitchSettings>,
}

/// Names of ports for neighbours.
pub(crate) const NEIGHBOUR_PORTS: [&str; 2] = ["n0", "n1"];

impl Plan {
    /// Returns the CPUs that its processes may use; `None` for those of this process.
    pub(crate) fn affinity(&self) -> Option<CpuList> {
        let settings = self.settings.as_ref();
        let is_kept = settings.is_none_or(|settings| settings.is_pinned);
        is_kept.then(|| self.cpus.union(&self.rest))
    }

    /// Returns the sockets that it creates for its ports.
    pub(crate) fn own_sockets(&self) -> impl Iterator<Item = &Path> {
        let ports = self.ports.iter().chain(&self.neighbour_ports);
        ports.filter_map(|port| port.attachment.own_socket())
    }

    /// Returns the error of a port that it lacks.
    pub(crate) fn no_port(&self, port: usize) -> LabError {
        LabError::Topology(format!("{} has no port p{port}", self.name))
    }

    /// Returns an error of this element, with the end of its log.
    pub(crate) fn failed(&self, what: String) -> LabError {
        // A program that was not started has no log.
        let log = std::fs::read(self.directory.join("log")).unwrap_or_default();
        LabError::Device {
            name: self.name.clone(),
            what,
            log: last_lines(&String::from_utf8_lossy(&log)),
            command: String::new(),
        }
    }
}

/// Back end of an element's port, from the side of the element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attachment {
    /// Memory shared with another process.
    Memif { socket: PathBuf, is_server: bool },
    /// The host's side of a virtio network card.
    Vhost { socket: PathBuf, is_server: bool },
    /// The guest's side of a virtio network card.
    VirtioUser { socket: PathBuf, is_server: bool },
    /// A kernel interface in the element's network namespace.
    Interface { name: String },
    /// The peer of a kernel interface in another namespace.
    Tap { namespace: String, name: String },
    /// A network card.
    Pci { address: String },
}

impl Attachment {
    /// Returns the port's URI in quietwire's syntax.
    pub(crate) fn uri(&self) -> String {
        let role = |is_server: &bool| if *is_server { "server" } else { "client" };
        match self {
            Self::Memif { socket, is_server } => {
                format!("memif:{}?role={}&id=0", socket.display(), role(is_server))
            }
            Self::Vhost { socket, is_server } => {
                // The peer belongs to the lab, and testpmd's memory cannot be sealed.
                let (path, role) = (socket.display(), role(is_server));
                format!("vhost:{path}?role={role}&trust-memory=on")
            }
            Self::VirtioUser { socket, is_server } => {
                format!("virtio-user:{}?role={}", socket.display(), role(is_server))
            }
            Self::Interface { name } => format!("af-packet:{name}"),
            Self::Tap { name, .. } => format!("tap:{name}"),
            Self::Pci { address } => format!("pci:{address}"),
        }
    }

    /// Returns the socket that this side creates.
    pub(crate) fn own_socket(&self) -> Option<&Path> {
        match self {
            Self::Memif {
                socket,
                is_server: true,
            }
            | Self::Vhost {
                socket,
                is_server: true,
            }
            | Self::VirtioUser {
                socket,
                is_server: true,
            } => Some(socket),
            _ => None,
        }
    }
}

/// Host-side view of a guest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GuestSide {
    /// Record of its start, and its accelerator.
    pub record: GuestRecord,
    /// Its second serial port, with a shell.
    pub shell_socket: PathBuf,
    /// Log of its first serial port.
    pub console_log: PathBuf,
}
