// SPDX-License-Identifier: Apache-2.0
//! What forwards in a topology, as a switch or as a VNF: one file each, all behind one trait.

mod guest;
mod kernel;
mod l2fwd;
mod l3fwd;
mod linux_bridge;
mod linux_routing;
mod networks;
mod ovs;
mod ovs_dpdk;
mod ovs_netdev;
mod own_image;
mod quietwire;
mod testpmd;
#[cfg(test)]
pub(crate) mod tests;
mod vdev;
mod vpp;

use std::path::{Path, PathBuf};
use std::process::Command;

use quietwire_base::Deadline;
use quietwire_tester::account::{ElementCounts, PortCounts};
use serde_json::{Map, Value, json};

use crate::adapters::DeviceThread;
use crate::counts::PATIENCE;
use crate::cycles::CycleCount;
use crate::error::LabError;
use crate::topology::Program;
use crate::up::{GuestSide, Plan, Process, Room};

pub(crate) use guest::{Hypervisor, InGuest, has_guests_card};

/// Rules of a firewall that is given none.
pub const FIREWALL_RULES: &str = include_str!("firewall.toml");

/// Why a program cannot be had on this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unavailable because {0}")]
pub struct Unavailable(pub String);

/// How one program is had, connected, asked and ended.
pub(crate) trait Forwarder: std::fmt::Debug {
    /// Its version as it says itself.
    ///
    /// # Errors
    /// Why it cannot be had here.
    fn probe(&self) -> Result<String, Unavailable>;

    /// Starts it, and waits until it answers. Programs that take ports and what they forward when they start take all of it
    /// here.
    fn start(&mut self, plan: &Plan, room: &mut Room<'_>) -> Result<(), LabError>;

    /// Gives it its ports, where it takes them while it runs.
    fn connect(&mut self, _plan: &Plan, _room: &mut Room<'_>) -> Result<(), LabError> {
        Ok(())
    }

    /// Tells it what to forward between, where it takes that while it runs.
    fn program(&mut self, _plan: &Plan, _room: &mut Room<'_>) -> Result<(), LabError> {
        Ok(())
    }

    /// Its counters.
    ///
    /// # Errors
    /// Why it does not tell.
    fn counters(&self, plan: &Plan) -> Result<Value, String> {
        let counts = self.frames(plan, Deadline::after(PATIENCE))?;
        let of_port = |(name, port): (String, PortCounts)| {
            let told = json!({ "rx_frames": port.received, "tx_frames": port.sent });
            (name, told)
        };
        Ok(counts
            .ports
            .into_iter()
            .map(of_port)
            .collect::<Map<_, _>>()
            .into())
    }

    /// Its counters of frames, those of the moment.
    ///
    /// # Errors
    /// Why it does not tell them by the deadline, in a clause.
    fn frames(&self, plan: &Plan, deadline: Deadline) -> Result<ElementCounts, String>;

    /// What forwarding has cost since it started; none where it does not count that.
    ///
    /// # Errors
    /// Why it does not tell.
    fn cycles(&self, _plan: &Plan) -> Result<Option<CycleCount>, String> {
        Ok(None)
    }

    /// Its threads with their roles.
    ///
    /// # Errors
    /// Why they cannot be told.
    fn threads(&self, plan: &Plan) -> Result<Vec<DeviceThread>, String>;

    /// Its exact configuration, as it tells it itself or was given it.
    ///
    /// # Errors
    /// Why it does not tell.
    fn configuration(&self, plan: &Plan) -> Result<Vec<String>, String>;

    /// Its processes, in the order in which they were started, but for that of a guest.
    fn processes(&mut self) -> &mut [Process];

    /// Numbers of all its processes.
    fn pids(&mut self) -> Vec<u32> {
        self.processes().iter().map(Process::pid).collect()
    }

    /// Whether all its processes run.
    fn is_running(&mut self) -> bool {
        self.processes().iter_mut().all(Process::is_running)
    }

    /// The guest that it is in.
    fn guest(&self) -> Option<GuestSide> {
        None
    }

    /// Asks its processes to end, and does not wait for that.
    fn ask_to_end(&mut self) {
        for process in self.processes() {
            process.ask_to_end();
        }
    }

    /// Ends it.
    ///
    /// # Errors
    /// What did not end.
    fn stop(&mut self) -> Result<(), LabError> {
        let mut outcome = Ok(());
        for process in self.processes().iter_mut().rev() {
            outcome = outcome.and(process.stop());
        }
        outcome
    }
}

/// The adapter of a program on the host or in a container. `quietwire` is this project's own binary.
pub(crate) fn forwarder(program: Program, quietwire: &Path) -> Box<dyn Forwarder> {
    match program {
        Program::Quietwire | Program::Firewall | Program::QuietwireRouter | Program::Tester => {
            Box::new(quietwire::Quietwire::new(quietwire))
        }
        Program::TestpmdIo => Box::new(testpmd::Testpmd::new("io")),
        Program::TestpmdMac => Box::new(testpmd::Testpmd::new("mac")),
        Program::TestpmdMacswap => Box::new(testpmd::Testpmd::new("macswap")),
        Program::OvsDpdk | Program::OvsDpdkRouter => Box::new(ovs_dpdk::OvsDpdk::default()),
        Program::OvsNetdev => Box::new(ovs_netdev::OvsNetdev::default()),
        Program::LinuxBridge => Box::new(linux_bridge::LinuxBridge),
        Program::LinuxRouting => Box::new(linux_routing::LinuxRouting),
        Program::L2fwd => Box::new(l2fwd::L2fwd::new(quietwire)),
        Program::L3fwd => Box::new(l3fwd::L3fwd::new(quietwire)),
        Program::Vpp => Box::new(vpp::Vpp::default()),
        Program::OwnImage => Box::new(own_image::OwnImage),
    }
}

/// Version of a program on this machine, or why it cannot be had.
///
/// # Errors
/// [`Unavailable`].
pub fn availability(program: Program, quietwire: &Path) -> Result<String, Unavailable> {
    forwarder(program, quietwire).probe()
}

/// First line that `command` prints with these words, on whichever output.
fn first_line(command: &Path, words: &[&str]) -> Option<String> {
    let output = Command::new(command).args(words).output().ok()?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    said.lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .map(str::to_owned)
}

/// Finds a program on the search path.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

/// Why a program that is not on the search path cannot be had.
fn not_installed(program: &str, how: &str) -> Unavailable {
    Unavailable(format!("{program} is not installed; {how}"))
}

/// One of DPDK's examples: on the search path, or beside this project's builds, where `scripts/build-l3fwd` puts them.
fn example(name: &str, quietwire: &Path) -> Option<PathBuf> {
    let built = quietwire.parent()?.parent()?.join("peers").join(name);
    find(name).or_else(|| built.is_file().then_some(built))
}

/// Version of Debian's DPDK, which all programs on DPDK here share.
fn dpdk_version() -> String {
    let output = Command::new("dpkg-query")
        .args(["--show", "--showformat", "${Version}", "dpdk"])
        .output();
    let version = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    match version {
        Ok(version) if !version.is_empty() => format!("DPDK {version}"),
        _ => "DPDK of unknown version".to_owned(),
    }
}
