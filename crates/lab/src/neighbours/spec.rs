// SPDX-License-Identifier: Apache-2.0
//! Configuration of neighbours, and where they start.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_host::CpuList;
use quietwire_host::cpuset::Cpuset;
use quietwire_host::proc;
use serde::{Deserialize, Serialize};

use crate::error::{LabError, io_error};

/// Time until the neighbours are at work.
pub(super) const UP_DEADLINE: Duration = Duration::from_secs(20);

/// Interval between two polls.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Container of stress-ng.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NeighbourPlace {
    /// None: a process like all others.
    #[default]
    Process,
    /// Its own namespaces.
    Container,
    /// A virtual machine, with a vCPU for each CPU that neighbours may use.
    Guest,
}

/// Configuration of neighbours.
#[derive(Clone, Debug, PartialEq)]
pub struct NeighbourSpec {
    /// Arguments of stress-ng, each like `--cpu 4`; empty if stress-ng does not run.
    pub stressors: Vec<String>,
    /// Container of stress-ng.
    pub place: NeighbourPlace,
    /// A tester that sends through the device under test.
    pub network: Option<NetworkNeighbour>,
    /// CPUs that neighbours may use.
    pub cpus: CpuList,
}

/// Traffic of a neighbour on the network.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkNeighbour {
    /// Frames per second, summed over both directions.
    pub rate_pps: f64,
    /// Octets with FCS.
    pub frame_size: u16,
}

/// Attachment of a neighbour to the device under test.
#[derive(Clone, Debug)]
pub(crate) struct Entrance {
    /// URIs of the two ports.
    pub(crate) uris: [String; 2],
}

impl Entrance {
    /// Returns the attachment through these sockets of the device; `None` if the device has no two ports for neighbours.
    pub(crate) fn by(sockets: &[PathBuf]) -> Option<Self> {
        let [first, second] = sockets else {
            return None;
        };
        let uri = |socket: &PathBuf| format!("memif:{}?role=client&id=0", socket.display());
        Some(Self {
            uris: [uri(first), uri(second)],
        })
    }
}

/// Environment in which neighbours start.
pub(crate) struct NeighbourContext<'a> {
    /// A directory of the case.
    pub(crate) directory: &'a Path,
    /// The `quietwire` program.
    pub(crate) program: &'a Path,
    /// The CPU set of the neighbours.
    pub(crate) set: &'a Cpuset,
    /// File that lists the tasks of their class of service; `None` without a class.
    pub(crate) class: Option<&'a Path>,
    /// Attachment to the device under test; `None` if the device has no ports for neighbours.
    pub(crate) entrance: Option<Entrance>,
}

impl NeighbourContext<'_> {
    /// Returns the directories of the CPU sets that new processes join.
    pub(super) fn lists(&self) -> Vec<PathBuf> {
        let class = self.class.map(Path::to_owned);
        class
            .into_iter()
            .chain([self.set.processes_file()])
            .collect()
    }
}

/// Adds all threads of a process to a group; threads that have ended meanwhile are left out.
pub(super) fn enlist_threads(pid: u32, list: &Path) -> Result<(), LabError> {
    let directory = PathBuf::from(format!("/proc/{pid}/task"));
    let number = i32::try_from(pid).map_err(std::io::Error::other);
    let threads = number.and_then(|pid| proc::threads(Path::new("/"), pid));
    for thread in threads.map_err(io_error(&directory, "listing it"))? {
        match fs::write(list, thread.tid().to_string()) {
            Err(error) if thread.path("").exists() => {
                return Err(io_error(list, "enlisting a thread")(error));
            }
            _ => {}
        }
    }
    Ok(())
}
