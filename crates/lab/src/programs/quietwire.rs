// SPDX-License-Identifier: Apache-2.0
//! This project's own switch, as a switch or as a VNF.

use std::path::{Path, PathBuf};

use quietwire_base::Deadline;
use quietwire_tester::account::ElementCounts;
use serde_json::{Value, json};

use super::forwarder::Forwarder;
use super::installed::first_line;
use super::networks::{router_mac, routing};
use crate::adapters::quietwire::cycles;
use crate::control::ask;
use crate::counts::of_switch;
use crate::cycles::CycleCount;
use crate::element::{ElementContext, Plan, Process};
use crate::error::{LabError, io_error};
use crate::thread::DeviceThread;
use crate::topology::Forwarding;
use crate::unavailable::Unavailable;

/// Memory for frames, MiB, for each pair of ports.
const MEMORY_MIB: usize = 48;

#[derive(Debug)]
pub(super) struct Quietwire {
    binary: PathBuf,
    processes: Vec<Process>,
}

impl Quietwire {
    pub(super) fn new(binary: &Path) -> Self {
        Self {
            binary: binary.to_owned(),
            processes: Vec::new(),
        }
    }

    fn command(&self, plan: &Plan) -> Vec<String> {
        let mut command = vec![
            self.binary.display().to_string(),
            "switch".to_owned(),
            "run".to_owned(),
        ];
        let mut option = |name: &str, value: String| command.extend([name.to_owned(), value]);
        for (index, port) in plan.ports.iter().enumerate() {
            option("--port", format!("p{index}={}", port.attachment.uri()));
        }
        if plan.program.routes() {
            option("--config", routes_file(plan).display().to_string());
        }
        if plan.rules.is_some() {
            option("--rules", rules_file(plan).display().to_string());
        }
        let joins = plan.joins.iter().filter(|_| !plan.program.routes());
        for (index, [from, to]) in joins.enumerate() {
            let pair = format!("p{from},p{to}");
            match plan.forwarding {
                Forwarding::CrossConnect => option("--cross-connect", pair),
                Forwarding::Bridge => option("--bridge", format!("b{index}={pair}")),
            }
        }
        option("--forwarding-cpus", plan.cpus.to_string());
        option("--service-cpus", plan.rest.to_string());
        option("--control-cpus", plan.rest.to_string());
        // Where CPUs are shared, whoever has nothing to do lets the others go on.
        let idle = if plan.is_shared { "sleep" } else { "poll" };
        option("--idle", idle.to_owned());
        let pairs = plan.ports.len().div_ceil(2).max(1);
        option("--memory-mib", (MEMORY_MIB * pairs).to_string());
        option(
            "--control-socket",
            control_socket(plan).display().to_string(),
        );
        command
    }
}

fn routes_file(plan: &Plan) -> PathBuf {
    plan.directory.join("routes.toml")
}

fn rules_file(plan: &Plan) -> PathBuf {
    plan.directory.join("rules.toml")
}

/// What a router has beside its ports.
fn routes(plan: &Plan) -> Result<String, String> {
    let routing = routing(plan.encapsulation, 1)?;
    let interfaces = routing.addresses.iter().map(|(port, addresses)| {
        json!({ "name": format!("i{port}"), "port": format!("p{port}"), "addresses": addresses, "mac": router_mac(*port) })
    });
    let neighbours = routing.neighbours.iter().map(|(port, address, mac)| {
        json!({ "interface": format!("i{port}"), "address": address, "mac": mac })
    });
    let file = json!({
        "interface": interfaces.collect::<Vec<_>>(),
        "neighbour": neighbours.collect::<Vec<_>>(),
    });
    toml::to_string(&file).map_err(|error| error.to_string())
}

fn control_socket(plan: &Plan) -> PathBuf {
    plan.directory.join("switch.sock")
}

impl Forwarder for Quietwire {
    fn probe(&self) -> Result<String, Unavailable> {
        first_line(&self.binary, &["--version"])
            .ok_or_else(|| Unavailable(format!("{} does not run", self.binary.display())))
    }

    fn start(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        if plan.program.routes() {
            let path = routes_file(plan);
            let text = routes(plan).map_err(LabError::Topology)?;
            std::fs::write(&path, text).map_err(io_error(&path, "writing it"))?;
        }
        if let Some(rules) = &plan.rules {
            let path = rules_file(plan);
            std::fs::write(&path, rules).map_err(io_error(&path, "writing it"))?;
        }
        let process = context.spawn(plan, "log", &[], &self.command(plan))?;
        self.processes.push(process);
        let processes = &mut self.processes;
        context.wait_until(plan, processes, "answer at its control socket", || {
            ask(&control_socket(plan), &json!({ "show": "threads" })).map(|_| ())
        })
    }

    /// Routes to many destinations, in requests of many: a configuration file with as many takes long to be read.
    fn program(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        if !plan.program.routes() || plan.destinations == 1 {
            return Ok(());
        }
        let routing = routing(plan.encapsulation, plan.destinations).map_err(LabError::Topology)?;
        let routes = routing.routes.iter();
        let lines: Vec<String> = routes
            .map(|(prefix, gateway)| format!("{prefix} {gateway}"))
            .collect();
        let file = plan.directory.join("destinations");
        std::fs::write(&file, lines.join("\n")).map_err(io_error(&file, "writing routes"))?;
        let [binary, file, socket] =
            [&self.binary, &file, &control_socket(plan)].map(|path| path.display().to_string());
        let words = [
            "switch",
            "add",
            "routes",
            &file,
            "--control-socket",
            &socket,
        ];
        context.run(&[&[binary.as_str()][..], &words].concat())?;
        Ok(())
    }

    fn counters(&self, plan: &Plan) -> Result<Value, String> {
        ask(&control_socket(plan), &json!({ "show": "stats" }))
    }

    fn cycles(&self, plan: &Plan) -> Result<Option<CycleCount>, String> {
        cycles(&control_socket(plan)).map(Some)
    }

    fn frames(&self, plan: &Plan, deadline: Deadline) -> Result<ElementCounts, String> {
        of_switch(&control_socket(plan), deadline)
    }

    fn threads(&self, plan: &Plan) -> Result<Vec<DeviceThread>, String> {
        let threads = ask(&control_socket(plan), &json!({ "show": "threads" }))?;
        serde_json::from_value(threads).map_err(|error| error.to_string())
    }

    fn configuration(&self, plan: &Plan) -> Result<Vec<String>, String> {
        let file = ask(&control_socket(plan), &json!({ "show": "config" }))?;
        let file = file.as_str().unwrap_or_default();
        Ok(file.lines().map(str::to_owned).collect())
    }

    fn processes(&mut self) -> &mut [Process] {
        &mut self.processes
    }
}
