// SPDX-License-Identifier: Apache-2.0
//! stress-ng in a virtual machine, with a vCPU on each CPU that neighbours may use.

use std::path::PathBuf;
use std::time::Duration;

use quietwire_base::Deadline;
use quietwire_host::journal::Journal;

use super::spec::{
    NeighbourContext, NeighbourPlace, NeighbourSpec, POLL_INTERVAL, UP_DEADLINE, enlist_threads,
};
use super::stress::{arguments, check};
use crate::error::LabError;
use crate::guest::{
    Accelerator, AcceleratorChoice, Guest, GuestSpec, Image, ReadySignal, acceleration,
};

/// Programs of the guests' image beyond the common ones.
const STRESS_NG: &str = "/usr/bin/stress-ng";
/// Memory of the guest, MiB, and more for each of its vCPUs: kinds use up to 256 MiB for each worker.
const MEMORY_MIB: u32 = 768;
const MEMORY_EACH_MIB: u32 = 320;
/// Timeout of the boot. In software emulation, next to a switch that polls, a boot takes minutes.
const DEADLINE_KVM: Duration = Duration::from_secs(30);
const DEADLINE_SOFTWARE: Duration = Duration::from_secs(300);
/// Timeout of a request to its agent.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Path of stress-ng's arguments in the guest.
const LOG: &str = "/run/neighbours.log";

/// A guest with stress-ng in it.
#[derive(Debug)]
pub(super) struct InGuest {
    guest: Guest,
    commands: Vec<String>,
}

impl InGuest {
    /// Boots the guest and starts stress-ng in it.
    pub(super) fn start(
        journal: &mut Journal,
        spec: &NeighbourSpec,
        around: &NeighbourContext<'_>,
    ) -> Result<Self, LabError> {
        check(&spec.stressors, NeighbourPlace::Guest)?;
        let image = Image::build_with(around.program, &[PathBuf::from(STRESS_NG)])?;
        let accelerated = acceleration(AcceleratorChoice::Auto, &image)?;
        let vcpus = u32::try_from(spec.cpus.len()).unwrap_or(u32::MAX);
        let asked = GuestSpec {
            name: "neighbours".to_owned(),
            memory_mib: MEMORY_MIB.saturating_add(vcpus.saturating_mul(MEMORY_EACH_MIB)),
            huge_pages: false,
            vcpu_cpus: spec.cpus.iter().collect(),
            service_cpus: spec.cpus.clone(),
            pinned: true,
            ports: Vec::new(),
            accelerator: AcceleratorChoice::Auto,
            kernel_options: Vec::new(),
            ready_signal: ReadySignal::Agent,
            namespace: None,
            ready_timeout: match accelerated.accelerator {
                Accelerator::Kvm => DEADLINE_KVM,
                Accelerator::Software => DEADLINE_SOFTWARE,
            },
        };
        let directory = around.directory.join("neighbours");
        let guest = Guest::start(
            journal,
            &asked,
            &image,
            &accelerated,
            &directory,
            Some(around.set),
        )?;
        if let Some(class) = around.class {
            enlist_threads(guest.pid(), class)?;
        }
        let words = arguments(&spec.stressors).join(" ");
        let command = format!("stress-ng {words}");
        let mut started = Self {
            commands: vec![
                guest.command(),
                format!("in the guest, {}: {command}", accelerated.reason),
            ],
            guest,
        };
        started.run(&format!("setsid {command} </dev/null >{LOG} 2>&1 &"))?;
        started.wait_until_at_work()?;
        Ok(started)
    }

    fn run(&self, script: &str) -> Result<String, LabError> {
        let ran = self.guest.agent()?.run(&["sh", "-c", script], TIMEOUT)?;
        Ok(ran.output)
    }

    /// Waits until stress-ng runs its stressors, which are its children.
    fn wait_until_at_work(&mut self) -> Result<(), LabError> {
        let outcome = Deadline::after(UP_DEADLINE).poll(POLL_INTERVAL, || {
            match self.run("pidof stress-ng") {
                Ok(numbers) if numbers.split_whitespace().count() > 1 => Some(Ok(())),
                Ok(_) => self.guest.check().err().map(Err),
                Err(error) => Some(Err(error)),
            }
        });
        outcome.unwrap_or_else(|| {
            Err(LabError::Neighbours {
                what: format!(
                    "in the guest were not running within {} s",
                    UP_DEADLINE.as_secs()
                ),
                log: self.run(&format!("tail -n 5 {LOG}"))?,
                command: self.commands.join("; "),
            })
        })
    }

    pub(super) fn commands(&self) -> impl Iterator<Item = String> + '_ {
        self.commands.iter().cloned()
    }

    pub(super) fn check(&mut self) -> Result<(), LabError> {
        self.guest.check()
    }

    pub(super) fn stop(&mut self) -> Result<(), LabError> {
        self.guest.stop()
    }
}
