// SPDX-License-Identifier: Apache-2.0
//! `dpdk-l3fwd`, of DPDK's examples: a router between the tester's two IPv4 networks. `scripts/build-l3fwd` builds it.

use std::path::{Path, PathBuf};

use quietwire_base::Deadline;
use quietwire_tester::account::ElementCounts;

use super::forwarder::Forwarder;
use super::installed::{example, probe_example};
use super::l2fwd::mask;
use super::networks::{drawn, sides};
use super::vdev::{EXAMPLE_READY, example_options, is_worker, own_view, start, threads_with_main};
use crate::counts::of_program;
use crate::element::{ElementContext, Plan, Process};
use crate::error::{LabError, io_error};
use crate::own_view::OwnView;
use crate::thread::DeviceThread;
use crate::unavailable::Unavailable;

const BINARY: &str = "dpdk-l3fwd";
/// Memory, MiB: `scripts/build-l3fwd` sizes its tables for two million routes.
const MEMORY_MIB: u64 = 1024;
/// Names of its rule files; it accepts no empty file.
const RULES: [&str; 2] = ["ipv4", "ipv6"];
/// RFC 5180, section 8, for the rule file that is not used: l3fwd accepts IPv6 addresses only with all their digits.
const RULES_IPV6: &str = "R2001:0002:0:0:0:0:0:0/64 0\nR2001:0002:0:1:0:0:0:0/64 1\n";

/// Returns the rules of a file: each network of the tester, with the port that leads to it.
fn rules(plan: &Plan, name: &str) -> String {
    if name == "ipv6" {
        return RULES_IPV6.to_owned();
    }
    let own = sides(plan.encapsulation);
    let of_port = |port: usize| {
        let own = own.get(port).map(|side| side.network.to_owned());
        let all = own
            .into_iter()
            .chain(drawn(plan.encapsulation, port, plan.destinations));
        all.map(|network| format!("R{network} {port}\n"))
            .collect::<String>()
    };
    of_port(0) + &of_port(1)
}

#[derive(Debug)]
pub(super) struct L3fwd {
    binary: Option<PathBuf>,
    processes: Vec<Process>,
}

impl L3fwd {
    pub(super) fn new(quietwire: &Path) -> Self {
        Self {
            binary: example(BINARY, quietwire),
            processes: Vec::new(),
        }
    }

    fn command(&self, plan: &Plan) -> Result<Vec<String>, LabError> {
        let binary = self.binary.clone().unwrap_or_else(|| BINARY.into());
        let mut command = vec![binary.display().to_string()];
        // Every thread sends on its own queue, and a shared-memory link has one.
        command.extend(example_options(plan, 1, MEMORY_MIB)?);
        let own = ["--", "-P", "--parse-ptype", "--lookup=lpm", "-p"].map(str::to_owned);
        command.extend(own);
        command.push(format!("{:#x}", mask(plan.ports.len())));
        command.push("--config=(0,0,0),(1,0,0)".to_owned());
        for name in RULES {
            command.push(format!(
                "--rule_{name}={}",
                plan.directory.join(name).display()
            ));
        }
        // MAC addresses of the tester's ports.
        command.push("--eth-dest=0,02:00:00:00:00:00".to_owned());
        command.push("--eth-dest=1,02:01:00:00:00:00".to_owned());
        Ok(command)
    }
}

impl Forwarder for L3fwd {
    fn probe(&self) -> Result<String, Unavailable> {
        probe_example(self.binary.as_deref(), BINARY)
    }

    fn start(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        for name in RULES {
            let path = plan.directory.join(name);
            std::fs::write(&path, rules(plan, name)).map_err(io_error(&path, "writing rules"))?;
        }
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
        let rules = RULES.map(|name| rules(plan, name)).concat();
        let rules = rules.lines().map(str::to_owned);
        Ok(std::iter::once(command.join(" ")).chain(rules).collect())
    }

    fn processes(&mut self) -> &mut [Process] {
        &mut self.processes
    }
}
