// SPDX-License-Identifier: Apache-2.0
//! `dpdk-testpmd`, which forwards between pairs of ports. It is interactive, so that it can report the cycles of its frames.

mod prompt;

use quietwire_base::{Deadline, find_program};
use quietwire_tester::account::ElementCounts;

use super::forwarder::Forwarder;
use super::installed::{dpdk_version, not_installed};
use super::vdev::{
    MEMORY_MIB, claim_runtime_directory, eal_options, is_worker, own_view, threads, wait_for_words,
};
use crate::counts::{TIMEOUT, of_program};
use crate::cycles::CycleCount;
use crate::element::{ElementContext, Plan, Process};
use crate::error::{LabError, io_error};
use crate::own_view::OwnView;
use crate::thread::DeviceThread;
use crate::unavailable::Unavailable;
use prompt::{PROMPT, Prompt};

const BINARY: &str = "dpdk-testpmd";
/// Writes each line of its output at once (stdbuf(1), of coreutils). Without a terminal, the C library keeps up to 4 KiB back.
const LINE_BUFFERED: [&str; 2] = ["stdbuf", "--output=L"];
/// Reason why it accepts no commands yet.
const NO_PROMPT: &str = "it has printed no prompt";
/// Words in its log if a port did not start. It accepts commands nevertheless.
const NO_PORTS: &str = "Start ports failed";
/// Commands that make it forward, and count the cycles of its frames.
const BEGIN: &str = "set record-core-cycles on\nstart\n";
/// Words in its log when it begins to forward, and what is missing until then.
const READY: (&str, &str) = (
    "packet forwarding - ports=",
    "it has not started to forward",
);
/// Command that prints the cycles of its frames.
const ACCOUNT: &str = "show fwd stats all";

#[derive(Debug)]
pub(super) struct Testpmd {
    mode: &'static str,
    program: String,
    /// Dropped before the processes: the process ends then.
    prompt: Option<Prompt>,
    processes: Vec<Process>,
}

impl Testpmd {
    /// Creates the program with a forwarding mode of testpmd.
    pub(super) fn new(mode: &'static str) -> Self {
        Self::of(mode, BINARY.to_owned())
    }

    /// Uses this program.
    pub(super) fn of(mode: &'static str, program: String) -> Self {
        Self {
            mode,
            program,
            prompt: None,
            processes: Vec::new(),
        }
    }

    fn command(&self, plan: &Plan) -> Result<Vec<String>, LabError> {
        let mut command = LINE_BUFFERED.map(str::to_owned).to_vec();
        command.push(self.program.clone());
        command.extend(eal_options(plan, MEMORY_MIB)?);
        let buffers = plan.ports.len().max(2).saturating_mul(4096);
        // testpmd pairs ports in the order of the joins.
        let own = [
            "--".to_owned(),
            "--interactive".to_owned(),
            format!("--nb-cores={}", plan.cpus.len()),
            format!("--forward-mode={}", self.mode),
            "--port-topology=paired".to_owned(),
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
        claim_runtime_directory(plan, context)?;
        let mut process = context.spawn_with_input(plan, "log", &command)?;
        let input = process.take_input();
        self.processes.push(process);
        let prompt = input.map(Prompt::new);
        let prompt = prompt.ok_or_else(|| plan.failed("has no standard input".to_owned()))?;
        let processes = &mut self.processes;
        let words = (PROMPT, NO_PROMPT);
        wait_for_words(plan, context, processes, "accept commands", words)?;
        let log = plan.directory.join("log");
        let printed = std::fs::read_to_string(&log).map_err(io_error(&log, "reading its log"))?;
        if printed.contains(NO_PORTS) {
            return Err(plan.failed("could not start its ports".to_owned()));
        }
        prompt
            .send(BEGIN)
            .map_err(|reason| plan.failed(format!("accepts no commands: {reason}")))?;
        self.prompt = Some(prompt);
        wait_for_words(plan, context, processes, "begin to forward", READY)
    }

    fn frames(&self, plan: &Plan, deadline: Deadline) -> Result<ElementCounts, String> {
        of_program(&plan.tag, plan.ports.len(), deadline)
    }

    fn cycles(&self, _plan: &Plan) -> Result<Option<CycleCount>, String> {
        let running = self.prompt.as_ref().zip(self.processes.first());
        let (prompt, process) = running.ok_or("it was not started")?;
        let deadline = Deadline::after(TIMEOUT);
        let printed = prompt.ask(ACCOUNT, deadline, || process.printed())?;
        CycleCount::of_testpmd(&printed).map(Some)
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
        let commands = BEGIN.lines().map(str::to_owned);
        Ok(std::iter::once(command.join(" ")).chain(commands).collect())
    }

    fn processes(&mut self) -> &mut [Process] {
        &mut self.processes
    }
}
