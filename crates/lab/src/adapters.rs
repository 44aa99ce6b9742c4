// SPDX-License-Identifier: Apache-2.0
//! Devices under test, one adapter a file.

pub(crate) mod quietwire;

use std::path::PathBuf;

use quietwire_base::Deadline;
use quietwire_tester::account::ElementCounts;

use crate::cycles::CycleCount;
use crate::device::DeviceSpec;
use crate::thread::DeviceThread;

/// Where a device has its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// A directory of its own.
    pub directory: PathBuf,
    /// Sockets of its ports, in order.
    pub sockets: Vec<PathBuf>,
    /// Sockets of two ports for neighbours that send through it, `n0` and `n1`; none without such.
    pub neighbour_sockets: Vec<PathBuf>,
}

/// Names of a device's ports for neighbours.
pub(crate) const NEIGHBOUR_PORTS: [&str; 2] = ["n0", "n1"];

impl Places {
    /// Sockets of all its ports.
    pub(crate) fn all_sockets(&self) -> impl Iterator<Item = &PathBuf> {
        self.sockets.iter().chain(&self.neighbour_sockets)
    }

    /// URIs at which a tester finds the device's ports.
    #[must_use]
    pub fn tester_uris(&self) -> Vec<String> {
        self.sockets
            .iter()
            .map(|socket| format!("memif:{}?role=client&id=0", socket.display()))
            .collect()
    }
}

/// How one kind of device is started and asked.
pub(crate) trait Adapter: std::fmt::Debug {
    /// Name for messages.
    fn name(&self) -> &str;

    /// The command that runs it in the foreground until SIGTERM.
    fn command(&self, spec: &DeviceSpec, places: &Places) -> Vec<String>;

    /// Its threads with their roles; an error until it is up.
    fn threads(&self, places: &Places) -> Result<Vec<DeviceThread>, String>;

    /// Its counters.
    fn counters(&self, places: &Places) -> Result<serde_json::Value, String>;

    /// Its counters of frames.
    fn frames(&self, places: &Places, deadline: Deadline) -> Result<ElementCounts, String>;

    /// Frames that came in at these ports since it was started.
    fn received(&self, places: &Places, ports: &[&str]) -> Result<u64, String>;

    /// What forwarding has cost since it started.
    fn cycles(&self, places: &Places) -> Result<CycleCount, String>;

    /// Empties its table of addresses.
    fn forget_addresses(&self, places: &Places) -> Result<(), String>;
}
