// SPDX-License-Identifier: Apache-2.0
//! What neighbours are to be, and where they are started.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_host::CpuList;
use quietwire_host::cpuset::Cpuset;
use quietwire_host::proc;
use serde::{Deserialize, Serialize};

use crate::error::{LabError, io_error};

/// How long the neighbours may take to be at work.
pub(super) const UP_DEADLINE: Duration = Duration::from_secs(20);

/// Between two looks.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What stress-ng runs in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NeighbourPlace {
    /// As everything else.
    #[default]
    Process,
    /// Namespaces of its own.
    Container,
    /// A virtual machine, with a vCPU for each CPU that neighbours may use.
    Guest,
}

/// What neighbours there are to be.
#[derive(Clone, Debug, PartialEq)]
pub struct NeighbourSpec {
    /// Arguments of stress-ng, each like `--cpu 4`; none where no stress-ng is to run.
    pub stressors: Vec<String>,
    /// What stress-ng runs in.
    pub place: NeighbourPlace,
    /// A tester that sends through the device under test.
    pub network: Option<NetworkNeighbour>,
    /// CPUs they may use.
    pub cpus: CpuList,
}

/// What a neighbour on the network sends.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkNeighbour {
    /// Frames per second, summed over both directions.
    pub rate_pps: f64,
    /// Octets with FCS.
    pub frame_size: u16,
}

/// How a neighbour comes into the device under test.
#[derive(Clone, Debug)]
pub(crate) struct Entrance {
    /// URIs of the two ports.
    pub(crate) uris: [String; 2],
}

impl Entrance {
    /// By these sockets of the device's; none where it has not made two for neighbours.
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

/// Where neighbours are started.
pub(crate) struct NeighbourContext<'a> {
    /// A directory of the case's.
    pub(crate) directory: &'a Path,
    /// The `quietwire` program.
    pub(crate) program: &'a Path,
    /// The CPU set that they are in.
    pub(crate) set: &'a Cpuset,
    /// Where tasks of their class of service are listed; none where they have none.
    pub(crate) class: Option<&'a Path>,
    /// How one comes into the device under test; none where it has no ports for neighbours.
    pub(crate) entrance: Option<Entrance>,
}

impl NeighbourContext<'_> {
    /// Directories of the CPU sets that processes join when they start there.
    pub(super) fn lists(&self) -> Vec<PathBuf> {
        let class = self.class.map(Path::to_owned);
        class
            .into_iter()
            .chain([self.set.processes_file()])
            .collect()
    }
}

/// Enlists all threads of a process somewhere; those that ended meanwhile are left out.
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
