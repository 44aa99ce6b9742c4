// SPDX-License-Identifier: Apache-2.0
//! The device under test: what is asked of it, and the running thing.

mod spec;

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use quietwire_base::Deadline;
use quietwire_base::wait_until;
use quietwire_host::cpuset::Cpuset;
use quietwire_host::journal::Journal;
use quietwire_host::threads::{ThreadCpus, threads_of};
use quietwire_tester::account::ElementCounts;

use crate::adapters::{Adapter, NEIGHBOUR_PORTS, Places};
use crate::cycles::CycleCount;
use crate::error::{LabError, io_error};
use crate::spawn;
use crate::thread::DeviceThread;

pub use spec::{DeviceSpec, ForwardingMode};

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
/// How long it may take until its threads are where they belong: libraries make some while it comes up.
const PINNED_DEADLINE: Duration = Duration::from_secs(5);
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
        let up = device
            .wait_until_up()
            .and_then(|()| device.wait_until_pinned(spec));
        if up.is_err() {
            // What this cannot end is tried again, and told, when the case is undone.
            let _ = quietwire_base::supervised::end(&mut device.child, STOP_PATIENCE);
        }
        up.map(|()| device)
    }

    /// Looks for itself whether every thread keeps to the CPUs of its role, instead of taking the device's word.
    fn wait_until_pinned(&mut self, spec: &DeviceSpec) -> Result<(), LabError> {
        if !spec.pinned {
            return Ok(());
        }
        let mut strays = Vec::new();
        if wait_until(PINNED_DEADLINE, || match self.strays(spec) {
            Ok(found) => {
                strays = found;
                strays.is_empty()
            }
            Err(error) => {
                strays = vec![error.to_string()];
                false
            }
        }) {
            return Ok(());
        }
        Err(self.failed(format!(
            "does not keep its threads to their CPUs: {}",
            strays.join("; ")
        )))
    }

    /// Threads that may run on CPUs of another role.
    fn strays(&self, spec: &DeviceSpec) -> Result<Vec<String>, LabError> {
        let named = self.threads()?;
        let role_of = |tid| {
            named
                .iter()
                .find(|thread| thread.tid == tid)
                .map_or("control", |thread| thread.role.as_str())
        };
        let threads = threads_of(Path::new("/"), self.pid())
            .map_err(|error| self.failed(error.to_string()))?;
        let stray = |thread: &ThreadCpus| {
            let role = role_of(thread.tid);
            let wanted = match role {
                "forwarding" => &spec.forwarding_cpus,
                "service" => &spec.service_cpus,
                _ => &spec.control_cpus,
            };
            (!thread.cpus.difference(wanted).is_empty()).then(|| {
                format!(
                    "thread {} ({role}) may use CPUs {}, and {wanted} was asked for",
                    thread.name, thread.cpus
                )
            })
        };
        Ok(threads.iter().filter_map(stray).collect())
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
                Ok(_) if self.places.all_sockets().all(|socket| socket.exists()) => return Ok(()),
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

    /// Kills it, without a chance to say goodbye, and starts it again with the same command (RFC 6201, section 4.2).
    pub(crate) fn restart(
        &mut self,
        journal: &mut Journal,
        spec: &DeviceSpec,
        set: Option<&Cpuset>,
    ) -> Result<(), LabError> {
        self.child
            .kill()
            .and_then(|()| self.child.wait())
            .map_err(|error| self.failed(format!("could not be killed: {error}")))?;
        for socket in self.places.all_sockets() {
            // One that is left would look like a device that is up.
            match std::fs::remove_file(socket) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(io_error(socket, "removing the killed device's")(error));
                }
                _ => {}
            }
        }
        self.child = spawn::spawn(journal, &self.command, set, &self.log)?;
        self.wait_until_up()?;
        self.wait_until_pinned(spec)
    }

    pub(crate) fn cycles(&self) -> Result<CycleCount, String> {
        self.adapter.cycles(&self.places)
    }

    pub(crate) fn counters(&self) -> Result<serde_json::Value, LabError> {
        self.adapter
            .counters(&self.places)
            .map_err(|why| self.failed(format!("does not show its counters: {why}")))
    }

    /// Its counters of frames.
    pub(crate) fn frames(&self, deadline: Deadline) -> Result<ElementCounts, String> {
        self.adapter.frames(&self.places, deadline)
    }

    /// Frames that came in at its ports for neighbours.
    pub(crate) fn received_from_neighbours(&self) -> Result<u64, LabError> {
        if self.places.neighbour_sockets.is_empty() {
            return Ok(0);
        }
        self.adapter
            .received(&self.places, &NEIGHBOUR_PORTS)
            .map_err(|why| self.failed(format!("does not tell what neighbours send: {why}")))
    }

    pub(crate) fn forget_addresses(&self) -> Result<(), LabError> {
        self.adapter
            .forget_addresses(&self.places)
            .map_err(|why| self.failed(format!("does not forget its addresses: {why}")))
    }

    /// Stops it; an error when it had to be killed.
    pub(crate) fn stop(&mut self) -> Result<(), LabError> {
        match quietwire_base::supervised::end(&mut self.child, STOP_PATIENCE) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.failed("did not stop when asked, and was killed".to_owned())),
            Err(error) => Err(self.failed(format!("could not be stopped: {error}"))),
        }
    }

    pub(crate) fn died(&self) -> LabError {
        self.failed("died".to_owned())
    }
}
