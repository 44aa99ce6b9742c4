// SPDX-License-Identifier: Apache-2.0
//! `dpdk-l3fwd`, the router among DPDK's examples, as the peer: longest prefix match, memif ports, the same forwarding CPU
//! and rings. `scripts/build-l3fwd` builds it. It checks the version and length of the header, decrements the time to live,
//! looks up the destination and writes fixed MAC addresses; it supports neither neighbours nor ICMP.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use super::placement::place_threads;
use super::record::Side;
use super::{DEVICE_CPU, Running, huge_pages_free, tail, wait_until};

/// Maximum number of frames received at once: `scripts/build-l3fwd` sets it to quietwire's.
const BURST: u32 = super::switch::BURST;

/// Time limit for the start: loading 200,000 routes takes lpm a minute, and l3fwd waits nine seconds for its links before it
/// forwards.
const START: Duration = Duration::from_secs(240);
/// Time in which l3fwd notices that a tester has disconnected.
const PAUSE: Duration = Duration::from_secs(2);

/// Lookup method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// `rte_lpm`, `rte_lpm6`: the default.
    Lpm,
    /// `rte_fib`, `rte_fib6`.
    Fib,
}

impl Lookup {
    pub(crate) const ALL: [Self; 2] = [Self::Lpm, Self::Fib];

    /// Returns true if the peer supports this many routes within minutes and a few gigabytes.
    pub(crate) fn takes(self, ipv4: bool, routes: u32) -> bool {
        match self {
            // Adding an IPv4 route searches all routes of its length: two million take hours.
            Self::Lpm => !ipv4 || routes <= 200_000,
            // It reserves three kilobytes for each IPv6 route.
            Self::Fib => ipv4 || routes <= 20_000,
        }
    }

    /// Returns the value of the option `--lookup`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lpm => "lpm",
            Self::Fib => "fib",
        }
    }

    pub(crate) fn peer(self) -> &'static str {
        match self {
            Self::Lpm => "dpdk-l3fwd, lpm",
            Self::Fib => "dpdk-l3fwd, fib",
        }
    }
}

/// Returns the router as a side of a run.
pub(crate) fn side(lookup: Lookup) -> Side {
    let built = format!("scripts/build-l3fwd: -O3 {}", super::dpdk_march());
    super::side(
        lookup.peer(),
        &super::package_version("libdpdk-dev"),
        &built,
        BURST,
        "rings of 1024 descriptors; parses packet types in software, as memif ports do not tell; no look at checksum and source \
         address, no neighbours, no ICMP, no counters",
    )
}

/// A router that runs until the value is dropped.
pub(crate) struct L3fwd {
    running: Running,
    directory: PathBuf,
}

/// Returns the program's path if it has been built.
pub(crate) fn program() -> Option<PathBuf> {
    // target/release/quietwire, target/peers/dpdk-l3fwd.
    let target = Path::new(super::QUIETWIRE).parent()?.parent()?;
    let path = target.join("peers/dpdk-l3fwd");
    path.exists().then_some(path)
}

/// Writes the two files of rules. l3fwd accepts no empty file, and IPv6 addresses only with all their digits.
fn write_rules(directory: &Path, networks: impl Iterator<Item = (IpAddr, u8)>) -> [PathBuf; 2] {
    let mut rules = ["R192.0.2.0/24 1\n", "R2001:0db8:0:0:0:0:0:0/48 1\n"].map(str::to_owned);
    for (address, length) in networks {
        match address {
            IpAddr::V4(address) => writeln!(rules[0], "R{address}/{length} 1"),
            IpAddr::V6(address) => {
                let groups = address.segments().map(|group| format!("{group:04x}"));
                writeln!(rules[1], "R{}/{length} 1", groups.join(":"))
            }
        }
        .expect("a string can be written");
    }
    let files = ["ipv4", "ipv6"].map(|name| directory.join(name));
    for (file, rules) in files.iter().zip(rules) {
        std::fs::write(file, rules).expect("the rules can be written");
    }
    files
}

impl L3fwd {
    /// Starts a router with routes to these networks, all out of the second port, in a new directory.
    pub(crate) fn start(
        program: &Path,
        directory: &Path,
        lookup: Lookup,
        networks: impl Iterator<Item = (IpAddr, u8)>,
    ) -> Self {
        std::fs::create_dir(directory).expect("a new directory");
        let [ipv4, ipv6] = write_rules(directory, networks);
        let mut command = Command::new(program);
        command.args(["-l", DEVICE_CPU, "--no-pci", "--no-telemetry"]);
        command.args(["-m", "2048", "--file-prefix=l3fwd"]);
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
        command.args(["--", "-p", "0x3", "-P", &config, "--parse-ptype"]);
        command.arg(format!("--lookup={}", lookup.name()));
        command.arg(format!("--rule_ipv4={}", ipv4.display()));
        command.arg(format!("--rule_ipv6={}", ipv6.display()));
        command.arg("--eth-dest=1,02:01:00:00:00:00");
        // l3fwd prints a line for each route on its standard output.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let log = directory.join("log");
        command.stderr(std::fs::File::create(&log).expect("the log can be written"));
        let mut running = Running::spawn(&mut command);
        wait_until("l3fwd forwards", START, || {
            running.assert_alive(&log);
            tail(&log).contains("entering main loop")
        });
        place_threads(&running.pid());
        running.signal("STOP");
        Self {
            running,
            directory: directory.to_owned(),
        }
    }

    /// Returns the result of `measure` for its ports. The router has the CPU only during the call.
    pub(crate) fn measured(&self, measure: impl FnOnce([String; 2]) -> f64) -> f64 {
        let _awake = self.running.awake();
        sleep(PAUSE);
        let ports = [0, 1].map(|port| {
            let socket = self.directory.join(format!("p{port}.sock"));
            format!("memif:{}?role=client", socket.display())
        });
        let result = measure(ports);
        sleep(PAUSE);
        result
    }
}
