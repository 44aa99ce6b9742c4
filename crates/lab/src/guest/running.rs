// SPDX-License-Identifier: Apache-2.0
//! A guest that runs: started paused, its threads put where they belong, then let go until its agent answers.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use quietwire_base::wait_until;
use quietwire_host::cpuset::Cpuset;
use quietwire_host::journal::{Change, Journal};
use quietwire_host::threads::{ThreadCpus, set_affinity, threads_of};
use quietwire_host::{CpuId, CpuList};
use serde::{Deserialize, Serialize};

use super::agent::client::Agent;
use super::agent::protocol::Hello;
use super::command::qemu;
use super::console::last_lines;
use super::image::Image;
use super::kvm::Acceleration;
use super::qmp::Monitor;
use super::spec::{
    FORWARDING, GuestPaths, GuestSpec, QEMU, QEMU_PACKAGE, ReadySignal, check_socket_path,
};
use crate::error::{LabError, io_error};
use crate::netns::NetNs;
use crate::spawn;
use crate::state_directory::make_directory;
use crate::stop::Stop;

/// How long a guest may take to go when it is told to.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a guest whose channel has broken may take until it is seen to have ended.
const ENDED_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The thread that runs a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuThread {
    /// The kernel's number of it.
    pub tid: i32,
    /// The CPU of the host that it is pinned to; none when it is not.
    pub cpu: Option<CpuId>,
}

/// What a guest came up as, for the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuestRecord {
    /// What was asked for.
    pub spec: GuestSpec,
    /// Under what it runs, and why.
    pub acceleration: Acceleration,
    /// QEMU's version.
    pub qemu: String,
    /// The image's name.
    pub image: String,
    /// What the guest's agent says of it; nothing of an image without one.
    #[serde(default)]
    pub hello: Option<Hello>,
    /// QEMU's process.
    pub pid: u32,
    /// The threads of its vCPUs, in order.
    pub vcpus: Vec<VcpuThread>,
    /// How it was started.
    pub command: String,
    /// From its start until it was up, seconds.
    pub up_s: f64,
}

/// A running guest. Dropped, it ends.
#[derive(Debug)]
pub struct Guest {
    name: String,
    child: Child,
    places: GuestPaths,
    command: Vec<String>,
    began: Instant,
    spec: GuestSpec,
    acceleration: Acceleration,
    image: String,
    record: Option<GuestRecord>,
}

impl Guest {
    /// Starts a guest and waits until its agent answers, as [`Self::begin`] and [`Self::wait_until_up`].
    ///
    /// # Errors
    /// Those of both.
    pub fn start(
        journal: &mut Journal,
        spec: &GuestSpec,
        image: &Image,
        acceleration: &Acceleration,
        directory: &Path,
        set: Option<&Cpuset>,
    ) -> Result<Self, LabError> {
        let mut guest = Self::begin(journal, spec, image, acceleration, directory, set)?;
        guest.wait_until_up(&Stop::default())?;
        Ok(guest)
    }

    /// Starts a guest, which then waits for the other ends of its ports. Its directory and its process are in the journal
    /// before they are there; they go when the journal is undone. The kernel ends the guest when the thread that called this
    /// ends.
    ///
    /// # Errors
    /// [`LabError::GuestSpec`], [`LabError::MissingProgram`].
    pub fn begin(
        journal: &mut Journal,
        spec: &GuestSpec,
        image: &Image,
        acceleration: &Acceleration,
        directory: &Path,
        set: Option<&Cpuset>,
    ) -> Result<Self, LabError> {
        spec.check()?;
        spec.check_sockets()?;
        spawn::require(QEMU, QEMU_PACKAGE)?;
        let places = GuestPaths::below(directory);
        // The longest of its paths.
        check_socket_path(&places.monitor_socket).map_err(LabError::GuestSpec)?;
        let path = directory.to_owned();
        journal
            .record(&Change::DirectoryCreated { path })
            .map_err(io_error(journal.path(), "writing the journal"))?;
        make_directory(directory)?;
        let words = qemu(spec, image, &places, acceleration.accelerator);
        let command = NetNs::of(spec.namespace.as_deref())?.command(&words)?;
        let began = Instant::now();
        let child = spawn::spawn(journal, &command, set, &places.qemu_log)?;
        Ok(Self {
            name: spec.name.clone(),
            child,
            places,
            command,
            began,
            spec: spec.clone(),
            acceleration: acceleration.clone(),
            image: image.name(),
            record: None,
        })
    }

    /// Lets the guest boot, as soon as its ports have their other ends, and waits until its agent answers.
    ///
    /// # Errors
    /// [`LabError::Guest`] with the console's last lines when it does not come up before its deadline, counted from its start;
    /// [`LabError::Aborted`].
    pub fn wait_until_up(&mut self, stop: &Stop) -> Result<(), LabError> {
        let (spec, began) = (self.spec.clone(), self.began);
        let (qemu, vcpus) = self.release(&spec, began, stop)?;
        let hello = match spec.ready_signal {
            ReadySignal::Agent => Some(self.greet(&spec, began, stop)?),
            ReadySignal::Console => {
                self.await_agent(&spec, began, stop)?;
                None
            }
        };
        self.record = Some(GuestRecord {
            spec,
            acceleration: self.acceleration.clone(),
            qemu,
            image: self.image.clone(),
            hello,
            pid: self.child.id(),
            vcpus,
            command: self.command.join(" "),
            up_s: began.elapsed().as_secs_f64(),
        });
        Ok(())
    }

    /// How it was started.
    #[must_use]
    pub fn command(&self) -> String {
        self.command.join(" ")
    }

    /// Waits for the monitor, pins what is to be pinned, and lets the vCPUs run.
    fn release(
        &mut self,
        spec: &GuestSpec,
        began: Instant,
        stop: &Stop,
    ) -> Result<(String, Vec<VcpuThread>), LabError> {
        let mut monitor = self.monitor(spec, began, stop)?;
        let threads = monitor
            .vcpu_threads()
            .map_err(|reason| self.failed(reason))?;
        if threads.len() != spec.vcpu_cpus.len() {
            return Err(self.failed(format!(
                "has {} vCPUs, and {} were asked for",
                threads.len(),
                spec.vcpu_cpus.len()
            )));
        }
        if spec.pinned {
            self.pin(spec, &threads)?;
        }
        monitor
            .execute("cont")
            .map_err(|reason| self.failed(reason))?;
        let vcpus = threads
            .iter()
            .zip(&spec.vcpu_cpus)
            .map(|(tid, cpu)| VcpuThread {
                tid: *tid,
                cpu: spec.pinned.then_some(*cpu),
            });
        Ok((monitor.version, vcpus.collect()))
    }

    /// Waits for the monitor. QEMU has one when all its ports have their other ends.
    fn monitor(
        &mut self,
        spec: &GuestSpec,
        began: Instant,
        stop: &Stop,
    ) -> Result<Monitor, LabError> {
        let mut reason = "QEMU has no monitor yet".to_owned();
        loop {
            self.check()?;
            stop.check()?;
            let left = spec.ready_timeout.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(self.failed(format!(
                    "did not come up in {} s: {reason}; is somebody on the other side of all its ports?",
                    spec.ready_timeout.as_secs_f64()
                )));
            }
            if self.places.monitor_socket.exists() {
                // Made before it listens: whoever is too early tries again.
                match Monitor::connect(&self.places.monitor_socket, left, stop) {
                    Ok(monitor) => return Ok(monitor),
                    Err(error) => reason = error,
                }
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Pins each vCPU to its CPU and all other threads to the service CPUs, and looks whether they are there.
    fn pin(&self, spec: &GuestSpec, vcpus: &[i32]) -> Result<(), LabError> {
        let wanted = |tid: i32| match vcpus.iter().position(|vcpu| *vcpu == tid) {
            Some(index) => CpuList::from_iter([spec.vcpu_cpus[index]]),
            None => spec.service_cpus.clone(),
        };
        let threads = || {
            threads_of(Path::new("/"), self.pid()).map_err(|error| self.failed(error.to_string()))
        };
        for thread in threads()? {
            let cpus = wanted(thread.tid);
            // Threads of QEMU's pool come and go; what is left is looked at below.
            if let Err(error) = set_affinity(thread.tid, &cpus)
                && error.raw_os_error() != Some(nix::errno::Errno::ESRCH as i32)
            {
                return Err(self.failed(format!(
                    "has a thread {} that cannot be given CPU {cpus}: {error}",
                    thread.name
                )));
            }
        }
        let strays: Vec<String> = threads()?
            .iter()
            .filter(|thread: &&ThreadCpus| !thread.cpus.difference(&wanted(thread.tid)).is_empty())
            .map(|thread| format!("{} may use CPUs {}", thread.name, thread.cpus))
            .collect();
        if strays.is_empty() {
            return Ok(());
        }
        Err(self.failed(format!(
            "does not keep its threads to their CPUs: {}",
            strays.join("; ")
        )))
    }

    /// Waits until an image without an agent says on its console that it forwards.
    fn await_agent(
        &mut self,
        spec: &GuestSpec,
        began: Instant,
        stop: &Stop,
    ) -> Result<(), LabError> {
        loop {
            self.check()?;
            stop.check()?;
            if self.console()?.contains(FORWARDING) {
                return Ok(());
            }
            if began.elapsed() >= spec.ready_timeout {
                return Err(self.failed(format!(
                    "did not come up in {} s: its image has not said '{FORWARDING}' on its first serial port",
                    spec.ready_timeout.as_secs_f64()
                )));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits for the agent.
    fn greet(&mut self, spec: &GuestSpec, began: Instant, stop: &Stop) -> Result<Hello, LabError> {
        let left = spec.ready_timeout.saturating_sub(began.elapsed());
        let greeted = Agent::connect_unless(stop, &self.name, &self.places.agent_socket, left);
        match greeted {
            Ok(agent) => Ok(agent.hello().clone()),
            Err(error) => {
                stop.check()?;
                let is_late = began.elapsed() >= spec.ready_timeout;
                if !is_late {
                    // The channel has broken, or what is there is no agent: perhaps since the guest is about to end.
                    wait_until(ENDED_TIMEOUT, || !matches!(self.child.try_wait(), Ok(None)));
                }
                // Its end says more than the agent's silence.
                self.check()?;
                Err(self.failed(if is_late {
                    format!(
                        "did not come up in {} s: {error}",
                        spec.ready_timeout.as_secs_f64()
                    )
                } else {
                    format!("did not come up: {error}")
                }))
            }
        }
    }

    /// An error when it ended by itself.
    ///
    /// # Errors
    /// [`LabError::Guest`] with the console's last lines.
    pub fn check(&mut self) -> Result<(), LabError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.failed(format!("ended by itself, QEMU with {status}"))),
            Err(error) => Err(self.failed(format!("cannot be watched: {error}"))),
        }
    }

    /// What went wrong in it, with its console's last lines.
    pub(crate) fn failed(&self, what: String) -> LabError {
        let printed = fs::read_to_string(&self.places.qemu_log).unwrap_or_default();
        let of_qemu = if printed.trim().is_empty() {
            String::new()
        } else {
            format!("\nQEMU said:\n{}", spawn::last_words(&self.places.qemu_log))
        };
        LabError::Guest {
            name: self.name.clone(),
            what,
            console: format!("{}{of_qemu}", last_lines(&self.places.console_log)),
            command: self.command.join(" "),
        }
    }

    /// A connection to its agent. There is one at a time: the next waits until this is dropped.
    ///
    /// # Errors
    /// [`LabError::Agent`].
    pub fn agent(&self) -> Result<Agent, LabError> {
        self.agent_within(super::agent::client::TIMEOUT)
    }

    /// The same, with a patience of the caller's.
    ///
    /// # Errors
    /// [`LabError::Agent`].
    pub fn agent_within(&self, timeout: Duration) -> Result<Agent, LabError> {
        Agent::connect(&self.name, &self.places.agent_socket, timeout)
    }

    /// What it came up as.
    #[must_use]
    pub fn record(&self) -> Option<&GuestRecord> {
        self.record.as_ref()
    }

    /// Where it has its files.
    #[must_use]
    pub fn places(&self) -> &GuestPaths {
        &self.places
    }

    /// QEMU's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All that its console said so far: to be kept with a result, since the file goes with the guest's directory.
    ///
    /// # Errors
    /// [`LabError::Io`].
    pub fn console(&self) -> Result<String, LabError> {
        let path = &self.places.console_log;
        let text = fs::read(path).map_err(io_error(path, "reading the console's log"))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Asks it to end, and does not wait for that.
    pub(crate) fn ask_to_end(&self) {
        quietwire_base::supervised::ask_to_end(&self.child);
    }

    /// Ends it. It holds nothing that would have to be written.
    ///
    /// # Errors
    /// [`LabError::Guest`] when it cannot be ended.
    pub fn stop(&mut self) -> Result<(), LabError> {
        quietwire_base::supervised::end(&mut self.child, STOP_TIMEOUT)
            .map(|_| ())
            .map_err(|error| self.failed(format!("could not be stopped: {error}")))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::error!("{error}");
        }
    }
}
