// SPDX-License-Identifier: Apache-2.0
//! `dpdk-l2fwd`, of DPDK's examples: forwards between pairs of ports. It does not change MAC addresses here.

use std::path::{Path, PathBuf};

use quietwire_base::Deadline;
use quietwire_tester::account::ElementCounts;

use super::forwarder::Forwarder;
use super::installed::{example, probe_example};
use super::vdev::{
    EXAMPLE_READY, MEMORY_MIB, example_options, is_worker, own_view, start, threads_with_main,
};
use crate::counts::of_program;
use crate::element::{ElementContext, Plan, Process};
use crate::error::LabError;
use crate::own_view::OwnView;
use crate::thread::DeviceThread;
use crate::unavailable::Unavailable;

const BINARY: &str = "dpdk-l2fwd";

#[derive(Debug)]
pub(super) struct L2fwd {
    binary: Option<PathBuf>,
    processes: Vec<Process>,
}

impl L2fwd {
    pub(super) fn new(quietwire: &Path) -> Self {
        Self {
            binary: example(BINARY, quietwire),
            processes: Vec::new(),
        }
    }

    fn command(&self, plan: &Plan) -> Result<Vec<String>, LabError> {
        let binary = self.binary.clone().unwrap_or_else(|| BINARY.into());
        let mut command = vec![binary.display().to_string()];
        command.extend(example_options(plan, plan.ports.len(), MEMORY_MIB)?);
        command.extend([
            "--".to_owned(),
            "-p".to_owned(),
            format!("{:#x}", mask(plan.ports.len())),
        ]);
        command.extend([
            "-q".to_owned(),
            plan.ports
                .len()
                .div_ceil(plan.cpus.len().max(1))
                .to_string(),
        ]);
        let pairs: String = plan
            .joins
            .iter()
            .map(|[from, to]| format!("({from},{to})"))
            .collect();
        command.extend([format!("--portmap={pairs}"), "--no-mac-updating".to_owned()]);
        // Prints no counters, since nothing reads its output.
        command.extend(["-T".to_owned(), "0".to_owned()]);
        Ok(command)
    }
}

/// Returns a mask with a bit for each port.
pub(super) fn mask(ports: usize) -> u64 {
    (1_u64 << ports.min(63)).saturating_sub(1)
}

impl Forwarder for L2fwd {
    fn probe(&self) -> Result<String, Unavailable> {
        probe_example(self.binary.as_deref(), BINARY)
    }

    fn start(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        let command = self.command(plan)?;
        start(plan, context, &mut self.processes, &command, EXAMPLE_READY)
    }

    fn frames(&self, plan: &Plan, deadline: Deadline) -> Result<ElementCounts, String> {
        of_program(&plan.tag, plan.ports.len(), deadline)
    }

    fn own_view(&self, plan: &Plan, deadline: Deadline) -> Result<OwnView, String> {
        own_view(plan, deadline)
    }

    fn threads(&self, _plan: &Plan) -> Result<Vec<DeviceThread>, String> {
        let process = self.processes.first().ok_or("it was not started")?;
        threads_with_main(process.pid(), is_worker)
    }

    fn configuration(&self, plan: &Plan) -> Result<Vec<String>, String> {
        let command = self.command(plan).map_err(|error| error.to_string())?;
        Ok(vec![command.join(" ")])
    }

    fn processes(&mut self) -> &mut [Process] {
        &mut self.processes
    }
}
