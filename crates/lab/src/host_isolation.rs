// SPDX-License-Identifier: Apache-2.0
//! Isolation of a tester, and of a device that runs already, for as long as the tester's process runs. Isolation that the machine does not
//! support is reported and left out; the measurement continues.

mod device;

use std::path::Path;
use std::time::Duration;

use quietwire_base::Deadline;
use quietwire_base::proc::release_numbers;
use quietwire_host::CpuList;
use quietwire_host::inventory::Inventory;
use quietwire_host::threads::{own_threads, set_affinity};
use serde::{Deserialize, Serialize};

use crate::error::{LabError, io_error};
use crate::guard::Guard;
use crate::isolation::{Applied, Choice, IsolationLevel, IsolationPart, choose};
use crate::lab::{Lab, LabOptions};
use crate::stop::Stop;
use crate::up::check_none_up;
use device::{busy_cpus, processes_on};

/// Default real-time priority of a tester.
pub const TESTER_PRIORITY: u8 = 50;
/// Longest wait of other threads for a real-time thread's CPU, seconds: the kernel gives them the CPU after that, from this release on (the
/// fair server of kernel/sched/deadline.c).
const WAIT_MAX_S: f64 = 0.95;
const FAIR_SERVER_SINCE: (u32, u32) = (6, 12);
/// Wait for another lab, which may be about to end.
const TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// An isolation request.
#[derive(Clone, Debug)]
pub struct IsolationRequest {
    /// Isolation level.
    pub level: IsolationLevel,
    /// CPUs of the tester, which runs in this process.
    pub tester: CpuList,
    /// CPUs of the device; `None` to derive them from its processes.
    pub device: Option<CpuList>,
    /// Processes at the other ends of the tester's ports, as far as they are known.
    pub peers: Vec<i32>,
    /// Real-time priority of the tester; `None` to derive it from the isolation.
    pub realtime_priority: Option<u8>,
    /// Length of the longest trial, warm-up and drain included, seconds.
    pub trial_s: f64,
}

/// Applied isolation, in the terms of the settings of a study's cases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IsolationRecord {
    /// Name of the isolation case.
    pub isolation: String,
    /// Parts of the case.
    pub isolation_parts: Vec<IsolationPart>,
    /// CPUs from which all other work is excluded.
    pub isolated_cpus: CpuList,
    /// CPUs of the tester.
    pub tester_cpus: CpuList,
    /// CPUs of the device; `None` if they are not known.
    pub device_cpus: Option<CpuList>,
    /// Real-time priority of the tester; `None` for ordinary priority.
    pub realtime_priority: Option<u8>,
    /// Every setting and command, in order.
    pub commands: Vec<String>,
    /// Parts that are not isolated, with the reason, one sentence each.
    pub not_isolated: Vec<String>,
}

/// Isolation that lasts until it is undone, or dropped. A guard undoes it if this process is killed.
#[derive(Debug)]
#[must_use = "it lasts until it is dropped"]
pub struct RunningIsolation {
    record: IsolationRecord,
    held: Option<HeldLab>,
}

/// Changes to undo, and the guard that undoes them if this process cannot.
#[derive(Debug)]
struct HeldLab {
    /// `None` once its changes are undone or left to the guard.
    lab: Option<Lab>,
    /// `None` once it has ended.
    guard: Option<Guard>,
    /// True if the guard undoes the changes.
    is_handed_over: bool,
}

impl HeldLab {
    fn lab(&mut self) -> Result<&mut Lab, LabError> {
        let none = || LabError::Undo("the isolation is undone".to_owned());
        self.lab.as_mut().ok_or_else(none)
    }

    /// Undoes the changes, if they are not undone yet. The guard ends after that.
    fn undo(&mut self) -> Result<(), LabError> {
        let Some(lab) = self.lab.take() else {
            return Ok(());
        };
        let guard = self.guard.take();
        match guard {
            Some(guard) if self.is_handed_over => {
                // The guard requires its locks.
                lab.leave_behind();
                guard.undo()
            }
            _ => lab.down(),
        }
    }
}

impl Drop for HeldLab {
    fn drop(&mut self) {
        if let Err(error) = self.undo() {
            tracing::error!("{error}");
        }
    }
}

impl IsolationRequest {
    /// Checks that the device can use these CPUs.
    ///
    /// # Errors
    /// [`LabError::Cpus`] if the list is empty, contains CPUs of the tester, or contains offline CPUs.
    pub fn check(&self, online: &CpuList) -> Result<(), LabError> {
        let Some(device) = &self.device else {
            return Ok(());
        };
        let absent = device.difference(online);
        let both = device.intersection(&self.tester);
        let wrong = if device.is_empty() {
            "it is empty (name the CPUs on which the device forwards, or remove the option)"
                .to_owned()
        } else if !absent.is_empty() {
            format!("CPU {absent} is not online (online: {online})")
        } else if !both.is_empty() {
            format!(
                "CPU {both} is also one of the tester's --cpus (use separate CPUs for tester and device)"
            )
        } else {
            return Ok(());
        };
        Err(LabError::Cpus(format!("--device-cpus: {wrong}")))
    }
}

impl IsolationRecord {
    /// Returns the record of no isolation.
    fn none(request: &IsolationRequest) -> Self {
        Self {
            isolation: "none".to_owned(),
            isolation_parts: Vec::new(),
            isolated_cpus: CpuList::new(),
            tester_cpus: request.tester.clone(),
            device_cpus: request.device.clone(),
            realtime_priority: request.realtime_priority.filter(|priority| *priority > 0),
            commands: Vec::new(),
            not_isolated: Vec::new(),
        }
    }
}

impl RunningIsolation {
    /// Isolates as far as the machine supports it. The record lists unsupported parts.
    ///
    /// # Errors
    /// [`LabError::Aborted`] after a stop request.
    pub fn apply(
        request: &IsolationRequest,
        options: &LabOptions,
        stop: &Stop,
    ) -> Result<Self, LabError> {
        let machine = Inventory::read(Path::new("/"));
        let mut isolation = Self {
            record: IsolationRecord::none(request),
            held: None,
        };
        if request.level == IsolationLevel::None {
            return Ok(isolation);
        }
        if !nix::unistd::geteuid().is_root() {
            isolation.lacks("CPUs: permission denied (run the same command with sudo)");
            return Ok(isolation);
        }
        if let Err(error) = isolation.find_device(request) {
            isolation.lacks(&format!("the device's CPUs: {error}"));
        }
        isolation.isolate(request, options, &machine, stop)?;
        Ok(isolation)
    }

    /// Returns the applied isolation.
    #[must_use]
    pub fn record(&self) -> &IsolationRecord {
        &self.record
    }

    /// Undoes the isolation.
    ///
    /// # Errors
    /// The changes that could not be undone.
    pub fn undo(mut self) -> Result<(), LabError> {
        self.held.take().map_or(Ok(()), |mut held| held.undo())
    }

    /// Leaves the undoing to the guard, because this process is about to give up the rights for it.
    pub fn hand_over(&mut self) {
        if let Some(held) = &mut self.held {
            held.is_handed_over = true;
        }
    }

    fn lacks(&mut self, what: &str) {
        self.record
            .not_isolated
            .push(format!("not isolated: {what}"));
    }

    /// Determines the CPUs of the device from the processes at the other ends of the ports, unless the caller names them.
    fn find_device(&mut self, request: &IsolationRequest) -> Result<(), LabError> {
        if request.device.is_some() {
            return Ok(());
        }
        let pids: Vec<u32> = other_processes(&request.peers)
            .filter_map(|pid| u32::try_from(pid).ok())
            .collect();
        let is_loop = pids.is_empty() && !request.peers.is_empty();
        let found = busy_cpus(&pids)?;
        let cpus = found.difference(&request.tester);
        if is_loop {
            // The tester is at both ends.
        } else if !cpus.is_empty() {
            self.record.device_cpus = Some(cpus);
        } else if !found.is_empty() {
            self.lacks(&format!(
                "the device: it is pinned to CPU {found}, and so is the tester (use another CPU for one of them)"
            ));
        } else if pids.is_empty() {
            self.lacks(
                "the device: no process is known at the other end of the ports (name its CPUs with --device-cpus)",
            );
        } else {
            self.lacks(&format!(
                "the device: no thread of process {} is pinned to one CPU and busy (name its CPUs with --device-cpus)",
                words(&pids)
            ));
        }
        Ok(())
    }

    fn isolate(
        &mut self,
        request: &IsolationRequest,
        options: &LabOptions,
        machine: &Inventory,
        stop: &Stop,
    ) -> Result<(), LabError> {
        let device = self.record.device_cpus.clone().unwrap_or_default();
        let choice = match choose(machine, request.level, &request.tester, &device) {
            Ok(choice) => choice,
            Err(reason) => {
                self.lacks(&format!("CPUs: {reason}"));
                return Ok(());
            }
        };
        match self.bring_up(request, options, machine, &choice, stop) {
            Err(LabError::Aborted) => Err(LabError::Aborted),
            Err(error) => {
                let not_isolated = std::mem::take(&mut self.record.not_isolated);
                *self = Self {
                    record: IsolationRecord {
                        device_cpus: self.record.device_cpus.take(),
                        not_isolated,
                        ..IsolationRecord::none(request)
                    },
                    held: None,
                };
                self.lacks(&format!("CPUs: {error}"));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn bring_up(
        &mut self,
        request: &IsolationRequest,
        options: &LabOptions,
        machine: &Inventory,
        choice: &Choice,
        stop: &Stop,
    ) -> Result<(), LabError> {
        Applied::check_free()?;
        Applied::check_no_other()?;
        check_none_up(&options.state_directory)?;
        let guard = Guard::start(options)?;
        let lab = open(options, stop)?;
        let held = self.held.insert(HeldLab {
            lab: Some(lab),
            guard: Some(guard),
            is_handed_over: false,
        });
        let lab = held.lab()?;
        let online = machine.cpus_online.clone().unwrap_or_default();
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        let mut pids = vec![own];
        pids.extend(other_processes(&request.peers));
        if let Some(device) = &request.device {
            pids.extend(processes_on(device));
        }
        pids.sort_unstable();
        pids.dedup();
        let commands = lab.begin_isolation(&choice.plan, &online, &pids)?;
        move_to_housekeeping(&choice.plan.housekeeping)?;
        self.record.commands = commands;
        choice.case.name.clone_into(&mut self.record.isolation);
        self.record.isolation_parts.clone_from(&choice.parts);
        self.record.isolated_cpus = choice.plan.isolated();
        if !choice.shared.is_empty() {
            self.lacks(&format!(
                "CPU {} of the tester: {} CPUs are online, and the rest of the machine has no other",
                choice.shared,
                online.len()
            ));
        }
        self.give_priority(request, machine, choice)
    }

    /// Chooses the tester's priority, and allows real-time threads to run without a pause.
    fn give_priority(
        &mut self,
        request: &IsolationRequest,
        machine: &Inventory,
        choice: &Choice,
    ) -> Result<(), LabError> {
        let release = machine.kernel_release.as_deref().and_then(release_numbers);
        let has_fair_server = release.is_some_and(|release| release >= FAIR_SERVER_SINCE);
        let would_starve =
            !choice.shared.is_empty() && request.trial_s > WAIT_MAX_S && !has_fair_server;
        if request.realtime_priority.is_none() && would_starve {
            self.record.not_isolated.push(format!(
                "the tester runs at ordinary priority, since the rest of the machine would have no CPU for {:.1} s (trials of less than {WAIT_MAX_S} s, or --realtime-priority)",
                request.trial_s
            ));
            return Ok(());
        }
        let priority = request.realtime_priority.unwrap_or(TESTER_PRIORITY);
        self.record.realtime_priority = Some(priority).filter(|priority| *priority > 0);
        let online = machine.cpus_online.clone().unwrap_or_default();
        match &mut self.held {
            Some(held) if priority > 0 => held.lab()?.allow_realtime(&request.tester, &online),
            _ => Ok(()),
        }
    }
}

/// Processes other than this one.
fn other_processes(pids: &[i32]) -> impl Iterator<Item = i32> {
    let own = i32::try_from(std::process::id()).ok();
    pids.iter().copied().filter(move |pid| Some(*pid) != own)
}

fn words(pids: &[u32]) -> String {
    let words: Vec<String> = pids.iter().map(u32::to_string).collect();
    words.join(", ")
}

/// Starts a lab; waits for another lab that is about to end.
fn open(options: &LabOptions, stop: &Stop) -> Result<Lab, LabError> {
    let attempt = || stop.check().and_then(|()| Lab::open(options.clone()));
    let opened = Deadline::after(TIMEOUT).poll(POLL_INTERVAL, || match attempt() {
        Err(LabError::Busy { .. }) => None,
        opened => Some(opened),
    });
    // The last attempt names the owner.
    opened.unwrap_or_else(attempt)
}

/// Pins the threads of this process to these CPUs. The tester's threads, which each trial starts, move to their own CPUs.
fn move_to_housekeeping(housekeeping: &CpuList) -> Result<(), LabError> {
    let threads = own_threads(Path::new("/")).unwrap_or_default();
    for thread in threads {
        set_affinity(thread.tid, housekeeping).map_err(io_error(
            Path::new("/proc/self/task"),
            "keeping a thread off the isolated CPUs",
        ))?;
    }
    Ok(())
}
