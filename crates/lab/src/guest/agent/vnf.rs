// SPDX-License-Identifier: Apache-2.0
//! The guest's network function: one at a time, with the same interface for every kind.

use std::fs;
use std::path::Path;

use super::function::{Cpus, Function, Machine};
use super::linux;
use super::protocol::{Vnf, VnfKind};
use super::switch;
use super::testpmd;

/// Directory of the network functions' files in the guest.
const DIRECTORY: &str = "/run/vnf";
/// Number of the guest's 2 MiB pages that are reserved for a DPDK program.
const HUGE_PAGES: u64 = 80;
const NR_HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";

impl Machine {
    /// Starts a network function, and returns when it forwards.
    pub(super) fn start(&self, vnf: &Vnf) -> Result<Box<dyn Function>, String> {
        let are_pairs = matches!(
            vnf.kind,
            VnfKind::Testpmd(_) | VnfKind::CrossConnect | VnfKind::Firewall(_)
        );
        if self.ports.is_empty() || are_pairs && !self.ports.len().is_multiple_of(2) {
            return Err(format!(
                "this network function requires ports{}, but the guest has {}",
                if are_pairs { " in pairs" } else { "" },
                self.ports.len()
            ));
        }
        if vnf.queues == 0 {
            return Err("queues: 0 is out of range (use at least 1)".to_owned());
        }
        let cpus = Cpus::of(&self.cpus, vnf.forwarding_cpus.as_ref())?;
        let directory = Path::new(DIRECTORY);
        fs::create_dir_all(directory).map_err(|error| format!("making {DIRECTORY}: {error}"))?;
        match &vnf.kind {
            VnfKind::LinuxRouter(routing) => linux::router(self, vnf, routing),
            VnfKind::LinuxBridge => linux::bridge(self, vnf),
            VnfKind::Testpmd(mode) => {
                self.hand_over()?;
                testpmd::start(self, vnf, *mode, &cpus, directory)
            }
            _ => {
                self.hand_over()?;
                switch::start(self, vnf, &cpus, directory)
            }
        }
    }

    /// Binds all ports to the driver for programs and reserves huge pages.
    fn hand_over(&self) -> Result<(), String> {
        for port in &self.ports {
            self.bus.bind(&port.address, super::ports::OF_PROGRAM)?;
        }
        let held = || {
            let text = fs::read_to_string(NR_HUGE_PAGES).unwrap_or_default();
            text.trim().parse::<u64>().unwrap_or(0)
        };
        if held() < HUGE_PAGES {
            fs::write(NR_HUGE_PAGES, HUGE_PAGES.to_string())
                .map_err(|error| format!("reserving huge pages: {error}"))?;
        }
        if held() < HUGE_PAGES {
            return Err(format!(
                "{HUGE_PAGES} huge pages are required, but the guest has memory for {} (give it more memory)",
                held()
            ));
        }
        Ok(())
    }
}
