// SPDX-License-Identifier: Apache-2.0
//! A running guest: started paused, its threads pinned, then resumed until its agent answers.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use quietwire_base::storage::Disk;
use quietwire_base::supervised::{self, LOG_MAX, Streams, Supervised};
use quietwire_base::{Deadline, wait_until};
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

/// Timeout for a guest's exit after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for detecting the exit of a guest whose channel has broken.
const ENDED_TIMEOUT: Duration = Duration::from_secs(2);
/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The thread that runs a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuThread {
    /// Thread ID.
    pub tid: i32,
    /// The CPU of the host that it is pinned to; `None` if it is not.
    pub cpu: Option<CpuId>,
}

/// Properties of a running guest, for the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuestRecord {
    /// Its request.
    pub spec: GuestSpec,
    /// Its accelerator, and the reason.
    pub acceleration: Acceleration,
    /// QEMU's version.
    pub qemu: String,
    /// The image's name.
    pub image: String,
    /// The agent's description of the guest; `None` for an image without an agent.
    #[serde(default)]
    pub hello: Option<Hello>,
    /// PID of QEMU.
    pub pid: u32,
    /// The threads of its vCPUs, in order.
    pub vcpus: Vec<VcpuThread>,
    /// QEMU's command line.
    pub command: String,
    /// Time from its start until it was up, seconds.
    pub up_s: f64,
}

/// A running guest. Dropping it stops the guest.
#[derive(Debug)]
pub struct Guest {
    name: String,
    child: Supervised,
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
    /// The errors of both.
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

    /// Starts a guest, which then waits for the peers of its ports. The journal records its directory and its process
    /// before they exist; undoing the journal removes them. The kernel kills the guest when the calling thread
    /// exits.
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
        Self::begin_with_logs(journal, spec, image, acceleration, directory, set, LOG_MAX)
    }

    /// Starts a guest as [`Self::begin`]. `log_max` is the largest size of the console log and of QEMU's log, octets.
    fn begin_with_logs(
        journal: &mut Journal,
        spec: &GuestSpec,
        image: &Image,
        acceleration: &Acceleration,
        directory: &Path,
        set: Option<&Cpuset>,
        log_max: u64,
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
        make_directory(&Disk, directory)?;
        let words = qemu(spec, image, &places, acceleration.accelerator);
        let command = NetNs::of(spec.namespace.as_deref())?.command(&words)?;
        let began = Instant::now();
        // QEMU writes the console to its standard output, so that an endless console does not fill the disk.
        let streams = Streams::Logs {
            stdout: &places.console_log,
            stderr: &places.qemu_log,
            max: log_max,
        };
        let child = spawn::spawn(journal, &command, set, streams)?;
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

    /// Boots the guest as soon as its ports have their peers, and waits until its agent answers.
    ///
    /// # Errors
    /// [`LabError::Guest`] with the console's last lines if it is not up before its deadline, counted from its start;
    /// [`LabError::Aborted`].
    pub fn wait_until_up(&mut self, stop: &Stop) -> Result<(), LabError> {
        let (spec, began) = (self.spec.clone(), self.began);
        let (qemu, vcpus) = self.start_vcpus(&spec, began, stop)?;
        let hello = match spec.ready_signal {
            ReadySignal::Agent => Some(self.await_agent(&spec, began, stop)?),
            ReadySignal::Console => {
                self.await_console(&spec, began, stop)?;
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

    /// Returns QEMU's command line.
    #[must_use]
    pub fn command(&self) -> String {
        self.command.join(" ")
    }

    /// Waits for the monitor, pins the threads, and starts the vCPUs.
    fn start_vcpus(
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
                "has {} vCPUs, but {} were requested",
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

    /// Waits for the monitor. QEMU opens it when all its ports have their peers.
    fn monitor(
        &mut self,
        spec: &GuestSpec,
        began: Instant,
        stop: &Stop,
    ) -> Result<Monitor, LabError> {
        let mut reason = "QEMU has no monitor yet".to_owned();
        let deadline = Deadline::at(began, spec.ready_timeout);
        let found = deadline.poll(POLL_INTERVAL, || {
            if let Err(error) = self.check().and_then(|()| stop.check()) {
                return Some(Err(error));
            }
            if self.places.monitor_socket.exists() {
                // The socket exists before QEMU listens: a connection that is refused is retried.
                let left = deadline.remaining();
                match Monitor::connect(&self.places.monitor_socket, left, stop) {
                    Ok(monitor) => return Some(Ok(monitor)),
                    Err(error) => reason = error,
                }
            }
            None
        });
        found.unwrap_or_else(|| {
            Err(self.failed(format!(
                "did not come up in {} s: {reason} (start the peers of all its ports)",
                spec.ready_timeout.as_secs_f64()
            )))
        })
    }

    /// Pins each vCPU to its CPU and all other threads to the service CPUs, and verifies it.
    fn pin(&self, spec: &GuestSpec, vcpus: &[i32]) -> Result<(), LabError> {
        // QEMU has reported as many virtual CPUs.
        let of_vcpu = |tid: i32| {
            let mut pairs = vcpus.iter().zip(&spec.vcpu_cpus);
            pairs.find(|(vcpu, _)| **vcpu == tid)
        };
        let wanted = |tid: i32| match of_vcpu(tid) {
            Some((_, cpu)) => CpuList::from_iter([*cpu]),
            None => spec.service_cpus.clone(),
        };
        let threads = || {
            threads_of(Path::new("/"), self.pid()).map_err(|error| self.failed(error.to_string()))
        };
        for thread in threads()? {
            let cpus = wanted(thread.tid);
            // Threads of QEMU's pool start and exit at any time; the verification below covers the remaining ones.
            if let Err(error) = set_affinity(thread.tid, &cpus)
                && error.raw_os_error() != Some(nix::errno::Errno::ESRCH as i32)
            {
                return Err(self.failed(format!(
                    "has a thread {} that cannot be pinned to CPUs {cpus}: {error}",
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
            "has threads that are not pinned to their CPUs: {}",
            strays.join("; ")
        )))
    }

    /// Waits until an image without an agent reports on its console that it forwards.
    fn await_console(
        &mut self,
        spec: &GuestSpec,
        began: Instant,
        stop: &Stop,
    ) -> Result<(), LabError> {
        let found = Deadline::at(began, spec.ready_timeout).poll(POLL_INTERVAL, || {
            let console = self
                .check()
                .and_then(|()| stop.check())
                .and_then(|()| self.console());
            match console {
                Ok(console) => console.contains(FORWARDING).then_some(Ok(())),
                Err(error) => Some(Err(error)),
            }
        });
        found.unwrap_or_else(|| {
            Err(self.failed(format!(
                "did not come up in {} s: its image has not printed '{FORWARDING}' on its first serial port",
                spec.ready_timeout.as_secs_f64()
            )))
        })
    }

    /// Waits for the agent.
    fn await_agent(
        &mut self,
        spec: &GuestSpec,
        began: Instant,
        stop: &Stop,
    ) -> Result<Hello, LabError> {
        let left = spec.ready_timeout.saturating_sub(began.elapsed());
        let greeted = Agent::connect_unless(stop, &self.name, &self.places.agent_socket, left);
        match greeted {
            Ok(agent) => Ok(agent.hello().clone()),
            Err(error) => {
                stop.check()?;
                let is_late = began.elapsed() >= spec.ready_timeout;
                if !is_late {
                    // The channel has broken, or the peer is no agent: the guest may be about to exit.
                    wait_until(ENDED_TIMEOUT, || !matches!(self.child.exit(), Ok(None)));
                }
                // The guest's exit is a better reason than the agent's silence.
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

    /// Returns an error if it has exited without a request.
    ///
    /// # Errors
    /// [`LabError::Guest`] with the console's last lines.
    pub fn check(&mut self) -> Result<(), LabError> {
        let ended = spawn::ended(&mut self.child, "ended unexpectedly: QEMU exited");
        ended.map_or(Ok(()), |what| Err(self.failed(what)))
    }

    /// Returns an error with its console's last lines.
    pub(crate) fn failed(&self, what: String) -> LabError {
        let printed = fs::read_to_string(&self.places.qemu_log).unwrap_or_default();
        let of_qemu = if printed.trim().is_empty() {
            String::new()
        } else {
            format!("\nQEMU said:\n{}", supervised::last_lines(&printed))
        };
        LabError::Guest {
            name: self.name.clone(),
            what,
            console: format!("{}{of_qemu}", last_lines(&self.places.console_log)),
            command: self.command.join(" "),
        }
    }

    /// Connects to its agent. The agent serves one connection at a time: the next waits until this one is dropped.
    ///
    /// # Errors
    /// [`LabError::Agent`].
    pub fn agent(&self) -> Result<Agent, LabError> {
        self.agent_within(super::agent::client::TIMEOUT)
    }

    /// As [`Self::agent`], with a timeout.
    ///
    /// # Errors
    /// [`LabError::Agent`].
    pub fn agent_within(&self, timeout: Duration) -> Result<Agent, LabError> {
        Agent::connect(&self.name, &self.places.agent_socket, timeout)
    }

    /// Returns its properties.
    #[must_use]
    pub fn record(&self) -> Option<&GuestRecord> {
        self.record.as_ref()
    }

    /// Returns its directory.
    #[must_use]
    pub fn places(&self) -> &GuestPaths {
        &self.places
    }

    /// Returns the PID of QEMU.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the console log so far: all of it up to [`LOG_MAX`] octets, without its middle beyond that. Results keep
    /// it, since the file is removed with the guest's directory.
    ///
    /// # Errors
    /// [`LabError::Io`].
    pub fn console(&self) -> Result<String, LabError> {
        let path = &self.places.console_log;
        let text = fs::read(path).map_err(io_error(path, "reading the console's log"))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Sends SIGTERM and returns at once.
    pub(crate) fn ask_to_end(&self) {
        self.child.ask_to_end();
    }

    /// Stops it. It has no data that would have to be saved.
    ///
    /// # Errors
    /// [`LabError::Guest`] if it cannot be stopped.
    pub fn stop(&mut self) -> Result<(), LabError> {
        self.child
            .end(STOP_TIMEOUT)
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

#[cfg(test)]
mod tests {
    use nix::errno::Errno;
    use quietwire_base::faults::{Random, SpawnFault, SpawnFaults, When};
    use quietwire_host::journal;

    use super::super::kvm::Accelerator;
    use super::super::spec::tests::spec;
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(120);

    /// A kernel of the Multiboot Specification 0.6.96 that reports on the first serial port that it forwards, and then writes there
    /// without end.
    fn endless_kernel() -> Vec<u8> {
        const LOADED_AT: u32 = 0x10_0000;
        const HEADER: u32 = 32;
        const CODE: [u8; 17] = [
            0x66, 0xba, 0xf8, 0x03, // mov dx, 0x3f8
            0xac, // lodsb
            0x84, 0xc0, // test al, al
            0x74, 0x03, // jz +3
            0xee, // out dx, al
            0xeb, 0xf8, // jmp to lodsb
            0xb0, b'x', // mov al, 'x'
            0xee, // out dx, al
            0xeb, 0xfd, // jmp to out
        ];
        let message = LOADED_AT + HEADER + 5 + 17;
        let mut code = vec![0xbe]; // mov esi, message
        code.extend(message.to_le_bytes());
        code.extend(CODE);
        code.extend(FORWARDING.bytes().chain([b'\n', 0]));
        let end = LOADED_AT + HEADER + u32::try_from(code.len()).unwrap();
        let (magic, has_addresses) = (0x1bad_b002_u32, 1_u32 << 16);
        let checksum = 0_u32.wrapping_sub(magic).wrapping_sub(has_addresses);
        let entry = LOADED_AT + HEADER;
        let header = [
            magic,
            has_addresses,
            checksum,
            LOADED_AT,
            LOADED_AT,
            end,
            end,
            entry,
        ];
        let words = header.into_iter().flat_map(u32::to_le_bytes);
        words.chain(code).collect()
    }

    /// Starts a guest with that kernel in `DIRECTORY/guest`, with the journal `DIRECTORY/journal` and logs of at most this size.
    fn start(directory: &Path, log_max: u64) -> Result<Guest, LabError> {
        let kernel = directory.join("kernel");
        fs::write(&kernel, endless_kernel()).unwrap();
        let image = Image::of_files(&kernel, &kernel).unwrap();
        let mut journal = Journal::open(&directory.join("journal")).unwrap();
        let software = Acceleration {
            accelerator: Accelerator::Software,
            reason: String::new(),
        };
        let spec = GuestSpec {
            vcpu_cpus: vec![CpuId(0)],
            pinned: false,
            ready_signal: ReadySignal::Console,
            ready_timeout: DEADLINE,
            ..spec(Vec::new())
        };
        let place = directory.join("guest");
        let mut guest = Guest::begin_with_logs(
            &mut journal,
            &spec,
            &image,
            &software,
            &place,
            None,
            log_max,
        )?;
        guest.wait_until_up(&Stop::default())?;
        Ok(guest)
    }

    #[test]
    fn a_console_without_end_does_not_fill_the_disk() {
        // An emulated guest writes some 400 KB/s.
        const SMALL: u64 = LOG_MAX / 16;
        let directory = tempfile::tempdir().unwrap();
        let mut guest = start(directory.path(), SMALL).unwrap();
        let log = guest.places().console_log.clone();
        let (mut before, mut is_cut) = (0, false);
        assert!(wait_until(DEADLINE, || {
            guest.check().unwrap();
            let length = fs::metadata(&log).unwrap().len();
            assert!(length <= SMALL, "{length} octets");
            is_cut |= length < before;
            before = length;
            // To read all of it each time would take the CPU from the guest.
            is_cut && String::from_utf8_lossy(&fs::read(&log).unwrap()).contains("octets left out")
        }));
        // The beginning is kept.
        assert!(guest.console().unwrap().starts_with(FORWARDING));
        guest.stop().unwrap();
    }

    #[test]
    fn a_guest_is_up_or_gone_after_any_fault_of_spawning() {
        for (fault, is_up) in [
            (SpawnFault::Refused(Errno::ENOENT), false),
            (SpawnFault::Refused(Errno::EAGAIN), false),
            (SpawnFault::Refused(Errno::ENOMEM), false),
            (SpawnFault::Exits(1), false),
            (SpawnFault::Killed(0), false),
            (SpawnFault::Killed(1), true),
            (SpawnFault::Late(40), true),
            (SpawnFault::Deaf, true),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let faults = SpawnFaults::new(When::Once(0), Some(fault), Random::new(0));
            match faults.run(|| start(directory.path(), LOG_MAX)) {
                Ok(mut guest) => {
                    assert!(is_up, "{fault:?}");
                    // It is killed while it runs.
                    faults.kill_rest();
                    let is_killed = matches!(fault, SpawnFault::Killed(_));
                    assert_eq!(guest.check().is_err(), is_killed, "{fault:?}");
                    guest.stop().unwrap();
                }
                Err(error) => assert!(!is_up, "{fault:?}: {error}"),
            }
            assert!(faults.left().is_empty(), "{fault:?}");
            let changes = journal::read(&directory.path().join("journal")).unwrap();
            for (change, outcome) in journal::undo(&changes) {
                assert!(!outcome.is_left(), "{fault:?}: {change}: {outcome}");
            }
            assert!(!directory.path().join("guest").exists(), "{fault:?}");
        }
    }
}
