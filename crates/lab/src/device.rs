// SPDX-License-Identifier: Apache-2.0
//! The device under test: what is asked of it, and the running thing.

use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use quietwire_host::CpuList;
use quietwire_host::cpuset::Cpuset;
use quietwire_host::journal::Journal;
use serde::{Deserialize, Serialize};

use crate::adapters::{Adapter, DeviceThread, Places};
use crate::error::LabError;
use crate::spawn;

/// What the device does with frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForwardingMode {
    /// Whatever comes in at one port goes out at the other.
    CrossConnect,
    /// A learning bridge.
    Bridge,
}

/// What is asked of a device with two ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSpec {
    /// What it does with frames.
    pub mode: ForwardingMode,
    /// CPUs of its forwarding threads.
    pub forwarding_cpus: CpuList,
    /// CPUs of its service threads.
    pub service_cpus: CpuList,
    /// CPUs of its control threads.
    pub control_cpus: CpuList,
    /// Descriptors in each receive ring.
    pub rx_ring_size: u16,
    /// Descriptors in each transmit ring.
    pub tx_ring_size: u16,
    /// What an idle forwarding thread does: `poll` or `yield`.
    pub idle: String,
    /// Whether threads are pinned to the CPUs of their role.
    pub pinned: bool,
    /// Whether it may use huge pages, where enough are free.
    pub huge_pages: bool,
    /// Memory for buffers, MiB.
    pub memory_mib: u32,
    /// Largest frame with FCS, octets.
    pub frame_size_max: u16,
    /// Addresses that its table has room for, in bridge mode.
    pub mac_addresses_max: u32,
}

/// A running device.
#[derive(Debug)]
pub(crate) struct Device {
    child: Child,
    adapter: Box<dyn Adapter>,
    pub(crate) places: Places,
    pub(crate) command: Vec<String>,
    log: PathBuf,
}

/// How long a device may take to come up.
const UP_DEADLINE: Duration = Duration::from_secs(30);
/// How long a device may take to stop when asked.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

impl Device {
    pub(crate) fn start(
        journal: &mut Journal,
        adapter: Box<dyn Adapter>,
        spec: &DeviceSpec,
        places: Places,
        set: Option<&Cpuset>,
    ) -> Result<Self, LabError> {
        let command = adapter.command(spec, &places);
        let log = places.directory.join("device.log");
        let child = spawn::spawn(journal, &command, set, &log)?;
        let mut device = Self {
            child,
            adapter,
            places,
            command,
            log,
        };
        device.wait_until_up()?;
        Ok(device)
    }

    fn wait_until_up(&mut self) -> Result<(), LabError> {
        let began = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    return Err(self.failed(format!("ended at once, with {status}")));
                }
                Err(error) => return Err(self.failed(format!("cannot be watched: {error}"))),
                Ok(None) => {}
            }
            match self.adapter.threads(&self.places) {
                Ok(_) if self.places.sockets.iter().all(|socket| socket.exists()) => return Ok(()),
                Ok(_) | Err(_) if began.elapsed() < UP_DEADLINE => {
                    std::thread::sleep(Duration::from_millis(20))
                }
                Ok(_) => return Err(self.failed("made no port sockets in 30 s".to_owned())),
                Err(why) => return Err(self.failed(format!("did not come up in 30 s: {why}"))),
            }
        }
    }

    fn failed(&self, what: String) -> LabError {
        LabError::Device {
            name: self.adapter.name().to_owned(),
            what,
            log: spawn::last_words(&self.log),
            command: self.command.join(" "),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    pub(crate) fn threads(&self) -> Result<Vec<DeviceThread>, LabError> {
        self.adapter
            .threads(&self.places)
            .map_err(|why| self.failed(format!("does not list its threads: {why}")))
    }

    pub(crate) fn counters(&self) -> Result<serde_json::Value, LabError> {
        self.adapter
            .counters(&self.places)
            .map_err(|why| self.failed(format!("does not show its counters: {why}")))
    }

    /// Stops it; an error when it had to be killed.
    pub(crate) fn stop(&mut self) -> Result<(), LabError> {
        match spawn::stop(&mut self.child, STOP_PATIENCE) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.failed("did not stop when asked, and was killed".to_owned())),
            Err(error) => Err(self.failed(format!("could not be stopped: {error}"))),
        }
    }

    pub(crate) fn died(&self) -> LabError {
        self.failed("died".to_owned())
    }
}
