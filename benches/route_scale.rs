// SPDX-License-Identifier: Apache-2.0
//! What the router forwards with many routes, and how long they take to load.
//!
//! `cargo bench --bench route_scale` prints, for 1 to 2,000,000 IPv4 routes of /24, the forwarding rate with 64-byte frames to
//! destinations drawn uniformly at random, as the median of rounds taken in turn. CPU 0 generates, CPU 1 forwards; memif.
//! Wants root and a quiet machine. `QUIETWIRE_BENCH_ROUNDS` (5) and `QUIETWIRE_BENCH_SECONDS` (1) change how long it takes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const QUIETWIRE: &str = env!("CARGO_BIN_EXE_quietwire");
const ROUTES: [u32; 4] = [1, 20_000, 200_000, 2_000_000];
const DEADLINE: Duration = Duration::from_secs(20);
const RT_RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";

/// A switch with two ports and an interface on each, and so many routes.
struct Router {
    child: Child,
    directory: PathBuf,
    routes: u32,
    loaded: Duration,
}

impl Router {
    fn start(directory: &Path, routes: u32) -> Self {
        let directory = directory.join(routes.to_string());
        fs::create_dir(&directory).unwrap();
        let port = |name: &str| {
            let socket = directory.join(format!("{name}.sock"));
            format!("{name}=memif:{}?role=server", socket.display())
        };
        let child = Command::new(QUIETWIRE)
            .args([
                "switch",
                "run",
                "--forwarding-cpus",
                "1",
                "--service-cpus",
                "0",
            ])
            .args(["--control-cpus", "0", "--memory-mib", "256"])
            .args([
                "--port",
                &port("a"),
                "--port",
                &port("b"),
                "--control-socket",
            ])
            .arg(directory.join("control.sock"))
            .stdin(Stdio::null())
            .stderr(fs::File::create(directory.join("log")).unwrap())
            .spawn()
            .expect("the switch starts");
        let mut router = Self {
            child,
            directory,
            routes,
            loaded: Duration::ZERO,
        };
        router.set_up();
        router
    }

    fn command(&self, arguments: &[&str]) -> bool {
        let mut command = Command::new(QUIETWIRE);
        command
            .arg("switch")
            .args(arguments)
            .arg("--control-socket");
        command.arg(self.directory.join("control.sock"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.status().unwrap().success()
    }

    /// The tester's addresses: its ports speak to 02:01:… and 02:00:….
    fn set_up(&mut self) {
        let began = Instant::now();
        while !self.command(&["show", "threads"]) {
            assert!(began.elapsed() < DEADLINE, "the switch does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        for arguments in [
            &[
                "add",
                "interface",
                "a0",
                "--port",
                "a",
                "--address",
                "192.0.2.1/24",
                "--mac",
                "02:01:00:00:00:00",
            ][..],
            &[
                "add",
                "interface",
                "b0",
                "--port",
                "b",
                "--address",
                "198.51.100.1/24",
                "--mac",
                "02:00:00:00:00:00",
            ],
            &[
                "add",
                "neighbour",
                "b0",
                "198.51.100.2",
                "02:01:00:00:00:00",
            ],
        ] {
            assert!(self.command(arguments), "{arguments:?}");
        }
        let mut text = String::new();
        if self.routes == 1 {
            // A tester of one destination sends there.
            text.push_str("198.18.0.0/15 198.51.100.2,b0\n");
        }
        for number in (0..self.routes).filter(|_| self.routes > 1) {
            let network = std::net::Ipv4Addr::from_bits(0x1000_0000 + (number << 8));
            writeln!(text, "{network}/24 198.51.100.2,b0").unwrap();
        }
        let file = self.directory.join("routes");
        fs::write(&file, text).unwrap();
        let began = Instant::now();
        assert!(self.command(&["add", "routes", file.to_str().unwrap()]));
        self.loaded = began.elapsed();
    }

    /// Frames forwarded a second under the highest load.
    fn rate(&self, seconds: u64) -> f64 {
        let port = |name: &str| {
            let socket = self.directory.join(format!("{name}.sock"));
            format!("memif:{}?role=client", socket.display())
        };
        let output = Command::new(QUIETWIRE)
            .args([
                "generate",
                "--port",
                &port("a"),
                "--port",
                &port("b"),
                "--rate",
                "max",
            ])
            .args(["--direction", "one-way", "--warm-up", "300ms", "--json"])
            .args([
                "--duration",
                &format!("{seconds}s"),
                "--realtime-priority",
                "50",
            ])
            .args(["--destinations", &self.routes.to_string()])
            .output()
            .expect("the tester runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "the tester failed: {said}");
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        result["forwarding_rate_pps"].as_f64().expect("a number")
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        let _ = self.child.wait();
    }
}

/// Real-time threads would be stopped for 50 ms of each second; undone when the value is dropped.
struct Unthrottled(String);

impl Unthrottled {
    fn new() -> Self {
        let before = fs::read_to_string(RT_RUNTIME).unwrap();
        fs::write(RT_RUNTIME, "-1").expect("root");
        Self(before)
    }
}

impl Drop for Unthrottled {
    fn drop(&mut self) {
        let _ = fs::write(RT_RUNTIME, self.0.trim());
    }
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let rounds = from_environment("QUIETWIRE_BENCH_ROUNDS", 5);
    let seconds = from_environment("QUIETWIRE_BENCH_SECONDS", 1);
    let directory = tempfile::tempdir().unwrap();
    let _unthrottled = Unthrottled::new();
    let mut rates = vec![Vec::new(); ROUTES.len()];
    let mut loads = vec![Vec::new(); ROUTES.len()];
    for round in 0..rounds {
        let of_round = directory.path().join(round.to_string());
        fs::create_dir(&of_round).unwrap();
        // One at a time: they share a CPU.
        for (index, routes) in ROUTES.iter().enumerate() {
            let router = Router::start(&of_round, *routes);
            rates[index].push(router.rate(seconds));
            loads[index].push(router.loaded.as_secs_f64());
        }
    }
    let reference = median(rates[0].clone());
    println!("| IPv4 routes | forwarded, Mpps: median | min | max | to one route | loaded in, s |");
    println!("|---|---|---|---|---|---|");
    for (index, routes) in ROUTES.iter().enumerate() {
        let middle = median(rates[index].clone());
        println!(
            "| {routes} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} |",
            middle / 1e6,
            rates[index].iter().copied().fold(f64::INFINITY, f64::min) / 1e6,
            rates[index].iter().copied().fold(0.0, f64::max) / 1e6,
            middle / reference,
            median(loads[index].clone()),
        );
    }
}
