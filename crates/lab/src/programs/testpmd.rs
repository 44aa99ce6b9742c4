// SPDX-License-Identifier: Apache-2.0
//! `dpdk-testpmd`, which forwards between pairs of ports.

use quietwire_base::{Deadline, find_program};
use quietwire_tester::account::ElementCounts;

use super::forwarder::Forwarder;
use super::installed::{dpdk_version, not_installed};
use super::vdev::{MEMORY_MIB, eal_options, is_worker, own_view, start, threads};
use crate::counts::of_program;
use crate::element::{ElementContext, Plan, Process};
use crate::error::LabError;
use crate::own_view::OwnView;
use crate::thread::DeviceThread;
use crate::unavailable::Unavailable;

const BINARY: &str = "dpdk-testpmd";
/// Interval between two reports of its counters, seconds.
const PERIOD: &str = "5";
/// Words in its log once it forwards, and what is missing until then.
const READY: (&str, &str) = ("NIC statistics for port", "it shows no counters yet");

#[derive(Debug)]
pub(super) struct Testpmd {
    mode: &'static str,
    processes: Vec<Process>,
}

impl Testpmd {
    /// Creates the program with a forwarding mode of testpmd.
    pub(super) fn new(mode: &'static str) -> Self {
        Self {
            mode,
            processes: Vec::new(),
        }
    }

    fn command(&self, plan: &Plan) -> Result<Vec<String>, LabError> {
        let mut command = vec![BINARY.to_owned()];
        command.extend(eal_options(plan, MEMORY_MIB)?);
        let buffers = plan.ports.len().max(2).saturating_mul(4096);
        // testpmd pairs ports in the order of the joins. It runs without a terminal only with --stats-period.
        let own = [
            "--".to_owned(),
            format!("--nb-cores={}", plan.cpus.len()),
            format!("--forward-mode={}", self.mode),
            "--port-topology=paired".to_owned(),
            format!("--stats-period={PERIOD}"),
            format!("--total-num-mbufs={buffers}"),
            "--rxd=1024".to_owned(),
            "--txd=1024".to_owned(),
            "--disable-link-check".to_owned(),
        ];
        command.extend(own);
        Ok(command)
    }
}

impl Forwarder for Testpmd {
    fn probe(&self) -> Result<String, Unavailable> {
        match find_program(BINARY) {
            Some(_) => Ok(dpdk_version()),
            None => Err(not_installed(
                BINARY,
                "run `apt-get install dpdk` or scripts/setup",
            )),
        }
    }

    fn start(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        let command = self.command(plan)?;
        start(plan, context, &mut self.processes, &command, READY)
    }

    fn frames(&self, plan: &Plan, deadline: Deadline) -> Result<ElementCounts, String> {
        of_program(&plan.tag, plan.ports.len(), deadline)
    }

    fn own_view(&self, plan: &Plan, deadline: Deadline) -> Result<OwnView, String> {
        own_view(plan, deadline)
    }

    fn threads(&self, _plan: &Plan) -> Result<Vec<DeviceThread>, String> {
        let process = self.processes.first().ok_or("it was not started")?;
        threads(process.pid(), is_worker)
    }

    fn configuration(&self, plan: &Plan) -> Result<Vec<String>, String> {
        let command = self.command(plan).map_err(|error| error.to_string())?;
        Ok(vec![command.join(" ")])
    }

    fn processes(&mut self) -> &mut [Process] {
        &mut self.processes
    }
}
