// SPDX-License-Identifier: Apache-2.0
//! quietwire's own switch as the device under test.

use std::path::{Path, PathBuf};

use quietwire_base::Deadline;
use quietwire_tester::account::ElementCounts;
use serde_json::{Value, json};

use super::{Adapter, NEIGHBOUR_PORTS, Places};
use crate::control::ask;
use crate::counts::of_switch;
use crate::cycles::CycleCount;
use crate::device::{DeviceSpec, ForwardingMode};
use crate::thread::DeviceThread;

/// Name of its bridge.
const BRIDGE: &str = "br0";
const BRIDGE_OF_NEIGHBOURS: &str = "br1";

fn memif(name: &str, socket: &Path) -> String {
    format!("{name}=memif:{}?role=server&id=0", socket.display())
}

#[derive(Debug)]
pub(crate) struct Quietwire {
    /// The `quietwire` program.
    pub(crate) program: PathBuf,
}

fn control_socket(places: &Places) -> PathBuf {
    places.directory.join("switch.sock")
}

/// What forwarding has cost the switch with this control socket since it started.
pub(crate) fn cycles(socket: &Path) -> Result<CycleCount, String> {
    CycleCount::of_quietwire(&ask(socket, &json!({ "show": "cycles" }))?)
}

impl Adapter for Quietwire {
    fn name(&self) -> &str {
        "quietwire"
    }

    fn command(&self, spec: &DeviceSpec, places: &Places) -> Vec<String> {
        let mut command = vec![
            self.program.display().to_string(),
            "switch".to_owned(),
            "run".to_owned(),
        ];
        let mut option = |name: &str, value: String| command.extend([name.to_owned(), value]);
        let mut names = Vec::new();
        for (index, socket) in places.sockets.iter().enumerate() {
            let name = format!("p{index}");
            option("--port", memif(&name, socket));
            names.push(name);
        }
        match spec.mode {
            ForwardingMode::CrossConnect => option("--cross-connect", names.join(",")),
            ForwardingMode::Bridge => {
                option("--bridge", format!("{BRIDGE}={}", names.join(",")));
                option("--max-entries", spec.mac_addresses_max.to_string());
            }
        }
        let neighbours = NEIGHBOUR_PORTS.iter().zip(&places.neighbour_sockets);
        for (name, socket) in neighbours {
            option("--port", memif(name, socket));
        }
        if !places.neighbour_sockets.is_empty() {
            // Forwarded as the others are, and apart from them.
            let pair = NEIGHBOUR_PORTS.join(",");
            match spec.mode {
                ForwardingMode::CrossConnect => option("--cross-connect", pair),
                ForwardingMode::Bridge => {
                    option("--bridge", format!("{BRIDGE_OF_NEIGHBOURS}={pair}"));
                }
            }
        }
        option("--forwarding-cpus", spec.forwarding_cpus.to_string());
        option("--service-cpus", spec.service_cpus.to_string());
        option("--control-cpus", spec.control_cpus.to_string());
        option("--rx-ring-size", spec.rx_ring_size.to_string());
        option("--tx-ring-size", spec.tx_ring_size.to_string());
        option("--idle", spec.idle.clone());
        option(
            "--pinning",
            if spec.pinned { "roles" } else { "none" }.to_owned(),
        );
        option(
            "--huge-pages",
            if spec.huge_pages { "auto" } else { "never" }.to_owned(),
        );
        option("--memory-mib", spec.memory_mib.to_string());
        option("--frame-size-max", spec.frame_size_max.to_string());
        option(
            "--control-socket",
            control_socket(places).display().to_string(),
        );
        command.push("--exit-with-parent".to_owned());
        command
    }

    fn threads(&self, places: &Places) -> Result<Vec<DeviceThread>, String> {
        serde_json::from_value(ask(&control_socket(places), &json!({ "show": "threads" }))?)
            .map_err(|error| error.to_string())
    }

    fn counters(&self, places: &Places) -> Result<Value, String> {
        ask(&control_socket(places), &json!({ "show": "stats" }))
    }

    fn frames(&self, places: &Places, deadline: Deadline) -> Result<ElementCounts, String> {
        of_switch(&control_socket(places), deadline)
    }

    fn received(&self, places: &Places, ports: &[&str]) -> Result<u64, String> {
        let counters = self.counters(places)?;
        let all = counters["ports"].as_array().ok_or("it counts no ports")?;
        let of_port = |name: &&str| {
            let port = all.iter().find(|port| port["name"] == **name);
            port.and_then(|port| port["rx_frames"].as_u64())
                .ok_or_else(|| format!("it does not count what port {name} receives"))
        };
        ports.iter().map(of_port).sum()
    }

    fn cycles(&self, places: &Places) -> Result<CycleCount, String> {
        cycles(&control_socket(places))
    }

    fn forget_addresses(&self, places: &Places) -> Result<(), String> {
        ask(
            &control_socket(places),
            &json!({ "flush-fdb": { "bridge": BRIDGE } }),
        )
        .map(|_| ())
    }
}
