// SPDX-License-Identifier: Apache-2.0
//! `dpdk-l3fwd`, the router among DPDK's examples, as the peer: longest prefix match, memif ports, the same forwarding CPU and
//! rings. `scripts/build-l3fwd` builds it. It checks version and length of the header, lowers the time to live, looks up the
//! destination and writes fixed MAC addresses; it knows no neighbours and no ICMP.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use super::{DEVICE_CPU, Running, huge_pages_free, tail, wait_until};

/// Beside loading routes, it waits nine seconds for its links before it forwards.
const START: Duration = Duration::from_secs(240);
/// In which it sees that a tester has gone.
const PAUSE: Duration = Duration::from_secs(2);

/// A router that runs until the value is dropped.
pub(crate) struct L3fwd {
    running: Running,
    directory: PathBuf,
}

/// Where it is, if it has been built.
pub(crate) fn program() -> Option<PathBuf> {
    // target/release/quietwire, target/peers/dpdk-l3fwd.
    let target = Path::new(super::QUIETWIRE).parent()?.parent()?;
    let path = target.join("peers/dpdk-l3fwd");
    path.exists().then_some(path)
}

impl L3fwd {
    /// With routes to these IPv4 networks, like 16.0.0.0/24, all out of the second port, in a new directory.
    pub(crate) fn start(
        program: &Path,
        directory: &Path,
        networks: impl Iterator<Item = String>,
    ) -> Self {
        std::fs::create_dir(directory).expect("a new directory");
        let mut rules = String::new();
        for network in networks {
            writeln!(rules, "R{network} 1").expect("a string takes all");
        }
        let [ipv4, ipv6] = ["ipv4", "ipv6"].map(|name| directory.join(name));
        std::fs::write(&ipv4, rules).expect("the rules can be written");
        std::fs::write(&ipv6, "R2001:0002:0000:0000:0000:0000:0000:0000/48 1\n")
            .expect("the rules can be written");
        let mut command = Command::new(program);
        command.args(["-l", DEVICE_CPU, "--no-pci", "--no-telemetry"]);
        command.args(["-m", "768", "--file-prefix=l3fwd"]);
        if huge_pages_free() > 0 {
            command.args(["--in-memory", "--single-file-segments"]);
        } else {
            command.args(["--no-huge", "--no-shconf"]);
        }
        for port in 0..2 {
            let socket = directory.join(format!("p{port}.sock"));
            command.arg(format!(
                "--vdev=net_memif{port},role=server,id=0,socket={},socket-abstract=no,rsize=10",
                socket.display()
            ));
        }
        let config = format!("--config=(0,0,{DEVICE_CPU}),(1,0,{DEVICE_CPU})");
        command.args(["--", "-p", "0x3", "-P", "-L", &config, "--parse-ptype"]);
        command.arg(format!("--rule_ipv4={}", ipv4.display()));
        command.arg(format!("--rule_ipv6={}", ipv6.display()));
        command.arg("--eth-dest=1,02:01:00:00:00:00");
        // A line for each route would come on its standard output.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let log = directory.join("log");
        command.stderr(std::fs::File::create(&log).expect("the log can be written"));
        let mut running = Running::spawn(&mut command);
        wait_until("l3fwd forwards", START, || {
            running.assert_alive(&log);
            tail(&log).contains("entering main loop")
        });
        running.signal("STOP");
        Self {
            running,
            directory: directory.to_owned(),
        }
    }

    /// What `measure` makes of its ports; it has the CPU only meanwhile.
    pub(crate) fn measured(&self, measure: impl FnOnce([String; 2]) -> f64) -> f64 {
        self.running.signal("CONT");
        sleep(PAUSE);
        let ports = [0, 1].map(|port| {
            let socket = self.directory.join(format!("p{port}.sock"));
            format!("memif:{}?role=client", socket.display())
        });
        let result = measure(ports);
        sleep(PAUSE);
        self.running.signal("STOP");
        result
    }
}
