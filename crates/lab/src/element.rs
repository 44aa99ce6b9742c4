// SPDX-License-Identifier: Apache-2.0
//! An element of a lab: the plan of it, what its ports are, and the context in which it is brought up.

mod context;

use std::path::{Path, PathBuf};

use quietwire_host::CpuList;
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::guest::GuestRecord;
use crate::spawn::last_words;
use crate::topology::{ElementPlace, Encapsulation, Forwarding, OwnImage, Program, SwitchSettings};

pub(crate) use context::{ElementContext, Process, run};

/// A port of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortPlan {
    pub(crate) attachment: Attachment,
}

/// What an element is to be.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Its name.
    pub(crate) name: String,
    /// Its number in the topology.
    pub(crate) index: u32,
    /// A name that nothing else on the machine has.
    pub(crate) tag: String,
    pub(crate) place: ElementPlace,
    pub(crate) program: Program,
    /// A directory of its own.
    pub(crate) directory: PathBuf,
    /// Its ports, p0, p1 and so on.
    pub(crate) ports: Vec<PortPlan>,
    /// Between which ports it forwards.
    pub(crate) joins: Vec<[usize; 2]>,
    /// Ports at which only what a bridge floods comes out.
    pub(crate) monitors: Vec<usize>,
    /// Ports for neighbours that send through it, [`NEIGHBOUR_PORTS`]: two or none.
    pub(crate) neighbour_ports: Vec<PortPlan>,
    pub(crate) forwarding: Forwarding,
    pub(crate) encapsulation: Encapsulation,
    /// IP destinations of each of the tester's ports.
    pub(crate) destinations: u32,
    /// CPUs that it forwards on.
    pub(crate) cpus: CpuList,
    /// CPUs for its other threads.
    pub(crate) rest: CpuList,
    /// Whether others forward on its CPUs, too.
    pub(crate) is_shared: bool,
    /// Its network namespace, where it has its own.
    pub(crate) namespace: Option<String>,
    /// Of a firewall: its rules.
    pub(crate) rules: Option<String>,
    /// Of a guest: what it boots, where that is the user's own.
    pub(crate) image: Option<OwnImage>,
    /// Of quietwire's switch: settings in place of the usual ones.
    pub(crate) settings: Option<SwitchSettings>,
}

/// Names of ports for neighbours.
pub(crate) const NEIGHBOUR_PORTS: [&str; 2] = ["n0", "n1"];

impl Plan {
    /// CPUs that its processes may use; none for those of this process.
    pub(crate) fn affinity(&self) -> Option<CpuList> {
        let settings = self.settings.as_ref();
        let is_kept = settings.is_none_or(|settings| settings.is_pinned);
        is_kept.then(|| self.cpus.union(&self.rest))
    }

    /// Sockets that it makes for its ports.
    pub(crate) fn own_sockets(&self) -> impl Iterator<Item = &Path> {
        let ports = self.ports.iter().chain(&self.neighbour_ports);
        ports.filter_map(|port| port.attachment.own_socket())
    }

    /// An error of this element, with the end of its log.
    pub(crate) fn failed(&self, what: String) -> LabError {
        LabError::Device {
            name: self.name.clone(),
            what,
            log: last_words(&self.directory.join("log")),
            command: String::new(),
        }
    }
}

/// What a port of an element is, on its side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attachment {
    /// Memory shared with another process.
    Memif { socket: PathBuf, is_server: bool },
    /// The host's side of a virtio network card.
    Vhost { socket: PathBuf, is_server: bool },
    /// The guest's side of one.
    VirtioUser { socket: PathBuf, is_server: bool },
    /// An interface of the kernel's, in the namespace of the element.
    Interface { name: String },
    /// The other side of an interface of the kernel's, which is in another's namespace.
    Tap { namespace: String, name: String },
    /// A network card.
    Pci { address: String },
}

impl Attachment {
    /// As quietwire names it.
    pub(crate) fn uri(&self) -> String {
        let role = |is_server: &bool| if *is_server { "server" } else { "client" };
        match self {
            Self::Memif { socket, is_server } => {
                format!("memif:{}?role={}&id=0", socket.display(), role(is_server))
            }
            Self::Vhost { socket, is_server } => {
                // The peer is one of the lab's own, and testpmd's memory cannot be sealed.
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

    /// The socket that this side makes.
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

/// What is known of a guest from without.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GuestSide {
    /// What it came up as, and under what it runs.
    pub record: GuestRecord,
    /// Its second serial port, with a shell.
    pub shell_socket: PathBuf,
    /// What its first serial port said so far.
    pub console_log: PathBuf,
}
