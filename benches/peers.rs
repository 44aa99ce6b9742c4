// SPDX-License-Identifier: Apache-2.0
//! The switch and the tester beside DPDK's own testpmd, on the same ports, in turns, in one run.
//!
//! `cargo bench --bench peers` (or `make bench`) prints a table with the median of the rounds and the ratio to the
//! peer. CPU 0 generates and checks, CPU 1 forwards; 64-byte frames; memif. Wants root and a quiet machine.
//! An argument keeps to what has it in its name: `cargo bench --bench peers -- testpmd`.
//! `QUIETWIRE_BENCH_ROUNDS` (5) and `QUIETWIRE_BENCH_SECONDS` (2) change how long it takes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{DEADLINE, DEVICE_CPU, QUIETWIRE, RING_SIZE, Running, Setting, TESTER_CPU};

struct Bench {
    directory: PathBuf,
    seconds: u64,
    runs: u32,
}

/// What a device is, and how it is started with two memif server ports on the sockets given.
#[derive(Clone, Copy)]
enum Device {
    Testpmd(&'static str),
    CrossConnect,
    Bridge,
}

impl Bench {
    /// A fresh pair of sockets.
    fn sockets(&mut self) -> [PathBuf; 2] {
        self.runs += 1;
        [0, 1].map(|port| {
            self.directory
                .join(format!("run{}-p{port}.sock", self.runs))
        })
    }

    fn log(&self, name: &str) -> Stdio {
        File::create(self.directory.join(format!("{name}.log")))
            .unwrap()
            .into()
    }

    fn start(&self, device: Device, sockets: &[PathBuf; 2]) -> Running {
        let uris = sockets
            .each_ref()
            .map(|path| format!("memif:{}?role=server", path.display()));
        let mut command = match device {
            Device::Testpmd(mode) => testpmd(DEVICE_CPU, mode, sockets, "server"),
            Device::CrossConnect | Device::Bridge => {
                let mut command = Command::new(QUIETWIRE);
                command.args([
                    "switch",
                    "run",
                    "--forwarding-cpus",
                    DEVICE_CPU,
                    "--service-cpus",
                    TESTER_CPU,
                ]);
                command.args([
                    "--control-cpus",
                    TESTER_CPU,
                    "--huge-pages",
                    "auto",
                    "--memory-mib",
                    "256",
                ]);
                command.args(["--rx-ring-size", RING_SIZE, "--tx-ring-size", RING_SIZE]);
                command.args([
                    "--port",
                    &format!("p0={}", uris[0]),
                    "--port",
                    &format!("p1={}", uris[1]),
                ]);
                command.args(match device {
                    Device::Bridge => ["--bridge", "br0=p0,p1"],
                    _ => ["--cross-connect", "p0,p1"],
                });
                command
                    .arg("--control-socket")
                    .arg(sockets[0].with_extension("control"));
                command
            }
        };
        command
            .stdin(Stdio::null())
            .stdout(self.log("device"))
            .stderr(self.log("device-err"));
        let running = Running(command.spawn().expect("the device starts"));
        wait_for(sockets);
        running
    }

    /// Forwarding rate of a device under the highest load, frames per second.
    fn forwarding_rate(&mut self, device: Device, macs: u32, directions: &str) -> (f64, f64) {
        let sockets = self.sockets();
        let _device = self.start(device, &sockets);
        let uris = sockets
            .each_ref()
            .map(|path| format!("memif:{}?role=client", path.display()));
        let result = self.generate(&uris, TESTER_CPU, macs, directions);
        (
            number(&result, "forwarding_rate_pps"),
            number(&result, "achieved_rate_pps"),
        )
    }

    fn generate(
        &self,
        uris: &[String; 2],
        cpus: &str,
        macs: u32,
        directions: &str,
    ) -> serde_json::Value {
        let output = Command::new(QUIETWIRE)
            .args([
                "generate", "--port", &uris[0], "--port", &uris[1], "--rate", "max", "--json",
            ])
            .args([
                "--cpus",
                cpus,
                "--mac-addresses",
                &macs.to_string(),
                "--direction",
                directions,
            ])
            .args([
                "--duration",
                &format!("{}s", self.seconds),
                "--warm-up",
                "500ms",
            ])
            .args(["--ring-size", RING_SIZE, "--realtime-priority", "50"])
            .output()
            .expect("the tester runs");
        assert!(
            output.status.success(),
            "the tester failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).expect("the tester prints JSON")
    }

    /// What the tester generates and checks: one port to the other, a CPU each.
    fn tester_rate(&mut self) -> f64 {
        let [socket, _] = self.sockets();
        let uris =
            ["server", "client"].map(|role| format!("memif:{}?role={role}", socket.display()));
        number(
            &self.generate(&uris, &format!("{TESTER_CPU},{DEVICE_CPU}"), 1, "one-way"),
            "forwarding_rate_pps",
        )
    }

    /// What testpmd generates and counts: txonly to rxonly, a CPU each.
    fn testpmd_rate(&mut self) -> f64 {
        let [socket, _] = self.sockets();
        let one = std::slice::from_ref(&socket);
        let log = self.directory.join("rxonly.log");
        let mut receiver = testpmd(DEVICE_CPU, "rxonly", one, "server");
        receiver
            .stdin(Stdio::null())
            .stdout(File::create(&log).unwrap())
            .stderr(self.log("rxonly-err"));
        let _receiver = Running(receiver.spawn().unwrap());
        wait_for(one);
        let mut sender = testpmd(TESTER_CPU, "txonly", one, "client");
        sender
            .stdin(Stdio::null())
            .stdout(self.log("txonly"))
            .stderr(self.log("txonly-err"));
        let _sender = Running(sender.spawn().unwrap());
        let began = Instant::now();
        let wanted = self.seconds as usize + 2;
        loop {
            let rates = receive_rates(&fs::read_to_string(&log).unwrap_or_default());
            if rates.len() >= wanted {
                // The first second is its start.
                return median(rates[1..].to_vec());
            }
            assert!(
                began.elapsed() < DEADLINE,
                "testpmd counts nothing; see {}",
                log.display()
            );
            sleep(Duration::from_millis(50));
        }
    }
}

/// testpmd with its main and its forwarding thread on one CPU.
fn testpmd(cpu: &str, mode: &str, sockets: &[PathBuf], role: &str) -> Command {
    let mut command = Command::new("dpdk-testpmd");
    command.arg(format!("--lcores=(0,2)@{cpu}"));
    if has_huge_pages() {
        command.args(["--in-memory", "--single-file-segments"]);
    } else {
        command.args(["--no-huge", "--no-shconf"]);
    }
    command.args([
        "-m",
        "256",
        "--no-pci",
        "--no-telemetry",
        &format!("--file-prefix=bench{cpu}"),
    ]);
    for (index, path) in sockets.iter().enumerate() {
        command.arg(format!(
            "--vdev=net_memif{index},role={role},id=0,socket={},socket-abstract=no,rsize=10",
            path.display()
        ));
    }
    command.args([
        "--",
        "--stats-period",
        "1",
        &format!("--forward-mode={mode}"),
    ]);
    command.args([
        &format!("--rxd={RING_SIZE}"),
        &format!("--txd={RING_SIZE}"),
        "--burst=32",
        "--total-num-mbufs=16384",
    ]);
    command
}

/// Each process takes 256 MiB: two of them run at a time.
fn has_huge_pages() -> bool {
    common::huge_pages_free() >= 256
}

fn wait_for(sockets: &[PathBuf]) {
    let began = Instant::now();
    while !sockets.iter().all(|path| Path::new(path).exists()) {
        assert!(began.elapsed() < DEADLINE, "the device made no sockets");
        sleep(Duration::from_millis(10));
    }
    // The socket is there a moment before it is listened on.
    sleep(Duration::from_millis(300));
}

/// Rates that testpmd printed ("Rx-pps: 123"), without its idle seconds.
fn receive_rates(log: &str) -> Vec<f64> {
    log.lines()
        .filter_map(|line| line.split_once("Rx-pps:"))
        .filter_map(|(_, rest)| rest.split_whitespace().next()?.parse().ok())
        .filter(|rate| *rate > 0.0)
        .collect()
}

fn number(result: &serde_json::Value, key: &str) -> f64 {
    result[key].as_f64().expect("a number")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

fn main() {
    let rounds = from_environment("QUIETWIRE_BENCH_ROUNDS", 5);
    let directory = tempfile::tempdir().unwrap();
    let _unthrottled = Setting::unthrottled();
    let mut bench = Bench {
        directory: directory.path().to_owned(),
        seconds: from_environment("QUIETWIRE_BENCH_SECONDS", 2),
        runs: 0,
    };
    let filter = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'))
        .unwrap_or_default();
    let mut devices = vec![
        ("testpmd io", Device::Testpmd("io"), 1),
        ("testpmd mac", Device::Testpmd("mac"), 1),
        ("cross-connect", Device::CrossConnect, 1),
        ("bridge, 1 MAC address", Device::Bridge, 1),
        ("bridge, 20,000 MAC addresses", Device::Bridge, 20_000),
    ];
    devices.retain(|(name, ..)| name.contains(&filter));
    println!(
        "huge pages: {}; {rounds} rounds of {} s",
        has_huge_pages(),
        bench.seconds
    );
    for directions in ["one-way", "both"] {
        if devices.is_empty() {
            break;
        }
        let mut rates = vec![Vec::new(); devices.len()];
        let mut offered = vec![Vec::new(); devices.len()];
        for _ in 0..rounds {
            for (index, (_, device, macs)) in devices.iter().enumerate() {
                let (forwarded, load) = bench.forwarding_rate(*device, *macs, directions);
                rates[index].push(forwarded);
                offered[index].push(load);
            }
        }
        let reference = median(rates[0].clone());
        println!(
            "\n| 64 B, {directions} | offered, Mpps | forwarded, Mpps: median | min | max | to testpmd io |"
        );
        println!("|---|---|---|---|---|---|");
        for (index, (name, _, _)) in devices.iter().enumerate() {
            print_row(
                name,
                Some(median(offered[index].clone())),
                &rates[index],
                reference,
            );
        }
    }
    if !"tester".contains(&filter) {
        return;
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        theirs.push(bench.testpmd_rate());
        ours.push(bench.tester_rate());
    }
    let reference = median(theirs.clone());
    println!(
        "\n| 64 B, generate on CPU 0, check on CPU 1 | | Mpps: median | min | max | to testpmd |"
    );
    println!("|---|---|---|---|---|---|");
    print_row("testpmd txonly to rxonly", None, &theirs, reference);
    print_row("tester, every frame checked", None, &ours, reference);
}

fn print_row(name: &str, offered: Option<f64>, rates: &[f64], reference: f64) {
    let mpps = |rate: f64| format!("{:.2}", rate / 1e6);
    let middle = median(rates.to_vec());
    println!(
        "| {name} | {} | {} | {} | {} | {:.2} |",
        offered.map(mpps).unwrap_or_default(),
        mpps(middle),
        mpps(rates.iter().copied().fold(f64::INFINITY, f64::min)),
        mpps(rates.iter().copied().fold(0.0, f64::max)),
        middle / reference
    );
}
