// SPDX-License-Identifier: Apache-2.0
//! `dpdk-testpmd` as the peer, with memif ports and quietwire's rings and bursts.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::placement::{helper_cpu, place_generator, place_threads};
use super::record::Side;
use super::switch::BURST;
use super::{
    DEADLINE, DEVICE_CPU, RING_SIZE, Running, TESTER_CPU, huge_pages_free, log_into, tail,
    wait_until,
};

/// Memory of each process, MiB; two of them run at a time.
const HUGE_PAGES: u64 = 256;

/// Returns testpmd as a side of a run.
pub(crate) fn side(name: &str) -> Side {
    let built = format!("by Debian, with {}", super::dpdk_march());
    let version = super::package_version("dpdk-dev");
    super::side(name, &version, &built, BURST, "rings of 1024 descriptors")
}

/// A testpmd that runs until the value is dropped.
pub(crate) struct Testpmd {
    _running: Running,
    log: PathBuf,
    sockets: Vec<PathBuf>,
}

impl Testpmd {
    /// Starts forwarding in this mode between two ports, on the forwarding CPU.
    pub(crate) fn forward(directory: &Path, mode: &str) -> Self {
        let sockets = [0, 1].map(|port| directory.join(format!("p{port}.sock")));
        Self::start(directory, DEVICE_CPU, mode, &sockets, "server", &[])
    }

    /// Starts receiving on one port, on the CPU on which the tester receives too ([`super::WITHOUT_DEVICE`]).
    pub(crate) fn receive(directory: &Path) -> Self {
        let socket = directory.join("p0.sock");
        Self::start(directory, TESTER_CPU, "rxonly", &[socket], "server", &[])
    }

    /// Starts generating 64-byte frames in this mode to the receiver, on the other CPU.
    pub(crate) fn generate(&self, directory: &Path, mode: &str) -> Self {
        let more = [frame_option(mode)];
        Self::start(directory, DEVICE_CPU, mode, &self.sockets, "client", &more)
    }

    fn start(
        directory: &Path,
        cpu: &str,
        mode: &str,
        sockets: &[PathBuf],
        role: &str,
        more: &[&str],
    ) -> Self {
        std::fs::create_dir(directory).expect("a new directory");
        let mut command = Command::new("dpdk-testpmd");
        command.arg(format!("--lcores=0@{},1@{cpu}", helper_cpu()));
        if huge_pages_free() >= HUGE_PAGES {
            command.args(["--in-memory", "--single-file-segments"]);
        } else {
            command.args(["--no-huge", "--no-shconf"]);
        }
        command.args(["-m", "256", "--no-pci", "--no-telemetry"]);
        command.arg(format!("--file-prefix=bench{cpu}"));
        for (port, socket) in sockets.iter().enumerate() {
            command.arg(format!(
                "--vdev=net_memif{port},role={role},id=0,socket={},socket-abstract=no,rsize=10",
                socket.display()
            ));
        }
        command.args(["--", "--stats-period", "1", "--total-num-mbufs=16384"]);
        command.arg(format!("--forward-mode={mode}"));
        command.arg(format!("--burst={BURST}")).args(more);
        command.args([format!("--rxd={RING_SIZE}"), format!("--txd={RING_SIZE}")]);
        let log = directory.join("log");
        log_into(&mut command, &log);
        let mut running = Running::spawn(&mut command);
        wait_until("testpmd forwards", DEADLINE, || {
            running.assert_alive(&log);
            std::fs::read_to_string(&log)
                .unwrap_or_default()
                .contains("packet forwarding - ports=")
        });
        if ["rxonly", "txonly", "flowgen"].contains(&mode) {
            // Like the tester's threads.
            place_generator(&running.pid());
        } else {
            place_threads(&running.pid());
        }
        Self {
            _running: running,
            log,
            sockets: sockets.to_vec(),
        }
    }

    /// Returns the tester's URI of a port.
    pub(crate) fn tester_uri(&self, port: usize) -> String {
        format!("memif:{}?role=client", self.sockets[port].display())
    }

    /// Returns the received frames per second, the median of two seconds: testpmd counts whole seconds.
    pub(crate) fn received_pps(&self) -> f64 {
        // The first second includes the start.
        let wanted = 2;
        let mut rates = Vec::new();
        wait_until("testpmd counts frames", DEADLINE * 2, || {
            rates = receive_rates(&std::fs::read_to_string(&self.log).unwrap_or_default());
            rates.len() > wanted
        });
        assert!(rates.len() > wanted, "{}", tail(&self.log));
        super::Spread::of(&rates[1..]).median
    }
}

/// Returns the option for frames of 64 octets with FCS, 60 in memory. `flowgen` subtracts the FCS from the option, `txonly` does not.
fn frame_option(mode: &str) -> &'static str {
    match mode {
        "flowgen" => "--txpkts=64",
        _ => "--txpkts=60",
    }
}

/// Returns the rates that testpmd printed ("Rx-pps: 123"), without its idle seconds.
fn receive_rates(log: &str) -> Vec<f64> {
    let rates = log
        .lines()
        .filter_map(|line| line.split_once("Rx-pps:"))
        .filter_map(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
    rates.filter(|rate| *rate > 0.0).collect()
}
