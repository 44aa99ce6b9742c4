// SPDX-License-Identifier: Apache-2.0
//! What benchmarks of the whole switch share: their options, the tester, processes that end with a value, settings of the
//! machine that are undone, figures.
// Each benchmark is a crate of its own, and uses a part of this.
#![allow(dead_code)]

pub(crate) mod l3fwd;
pub(crate) mod ovs;
pub(crate) mod plot;
pub(crate) mod switch;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Parser;
use quietwire_dpdk::thread::pin;
use quietwire_dpdk::{Eal, EalOptions, HugePages};

pub(crate) const QUIETWIRE: &str = env!("CARGO_BIN_EXE_quietwire");
/// Where the tester and everything else runs that does not forward.
pub(crate) const TESTER_CPU: &str = "0";
/// Where frames are forwarded, by whomever.
pub(crate) const DEVICE_CPU: &str = "1";
pub(crate) const RING_SIZE: &str = "1024";
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Options that all of them take, after `--`.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Options {
    /// Rounds, in which everything is measured in turn; also QUIETWIRE_BENCH_ROUNDS.
    #[arg(long)]
    rounds: Option<u32>,
    /// Seconds that each measurement counts frames; also QUIETWIRE_BENCH_SECONDS.
    #[arg(long)]
    seconds: Option<u32>,
    /// Fewer sizes and two rounds: whether it works, rather than how fast it is.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print JSON instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the figures into this directory as well.
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
    /// Reserve 2 MiB huge pages for the run, and give them back.
    #[arg(long)]
    pub(crate) huge_pages: bool,
    /// Only what has this in its name.
    #[arg(default_value = "")]
    pub(crate) only: String,
    /// What cargo says to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    pub(crate) fn read() -> Self {
        Self::parse()
    }

    /// How many rounds, where nothing was said.
    pub(crate) fn rounds(&self, usual: u32) -> u32 {
        let usual = if self.quick { usual.min(2) } else { usual };
        let said = self
            .rounds
            .or_else(|| environment("QUIETWIRE_BENCH_ROUNDS"));
        said.unwrap_or(usual).max(1)
    }

    pub(crate) fn seconds(&self) -> u32 {
        self.seconds_or(1)
    }

    /// Seconds of one measurement, where nothing was said.
    pub(crate) fn seconds_or(&self, usual: u32) -> u32 {
        let usual = if self.quick { 1 } else { usual };
        let said = self
            .seconds
            .or_else(|| environment("QUIETWIRE_BENCH_SECONDS"));
        said.unwrap_or(usual).max(1)
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        name.contains(&self.only)
    }
}

fn environment(name: &str) -> Option<u32> {
    std::env::var(name).ok()?.parse().ok()
}

/// A process that ends with the value.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self(command.spawn().expect("the program starts"))
    }

    pub(crate) fn pid(&self) -> String {
        self.0.id().to_string()
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args(["-s", name, &self.pid()])
            .status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "SIG{name} was not sent"
        );
    }

    /// Panics where the process has ended, with the end of its log.
    pub(crate) fn assert_alive(&mut self, log: &Path) {
        if let Ok(Some(status)) = self.0.try_wait() {
            panic!("it ended with {status}: {}", tail(log));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.pid()).status();
        let _ = Command::new("kill")
            .args(["-s", "CONT", &self.pid()])
            .status();
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(5) {
            if matches!(self.0.try_wait(), Ok(Some(_))) {
                return;
            }
            sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The last lines of a log.
pub(crate) fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

/// Standard output and error into one file.
pub(crate) fn log_into(command: &mut Command, path: &Path) {
    let file = File::create(path).expect("the log can be written");
    command.stdin(Stdio::null());
    command.stdout(file.try_clone().expect("a file can be shared"));
    command.stderr(file);
}

/// Waits until `done`, and not for ever.
pub(crate) fn wait_until(what: &str, limit: Duration, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < limit, "{what}: not within {limit:?}");
        sleep(Duration::from_millis(10));
    }
}

/// Trials before a tester that fails each time is given up.
const ATTEMPTS: u32 = 4;

/// Why a trial was invalid, by the tester's own word.
fn faults(result: &serde_json::Value) -> String {
    let found = [&result["validity"], &result["result"]["validity"]];
    found
        .iter()
        .find(|validity| !validity.is_null())
        .map_or_else(|| "invalid".to_owned(), ToString::to_string)
}

/// One run of the tester: what all benchmarks ask for, and what one adds.
pub(crate) struct Load<'a> {
    /// Where the tester sends, and where it receives.
    pub(crate) ports: [String; 2],
    pub(crate) seconds: u32,
    pub(crate) more: &'a [&'a str],
}

impl Load<'_> {
    /// 64-byte frames one way, as many as there is room for; the tester's result. A trial in which the tester failed says
    /// nothing about the device, and is tried again.
    pub(crate) fn offer(&self) -> serde_json::Value {
        for _ in 0..ATTEMPTS {
            let output = self.attempt();
            let result = serde_json::from_slice(&output.stdout);
            match result {
                Ok(result) if output.status.success() => return result,
                Ok(result) => eprintln!("tried again: {}", faults(&result)),
                Err(_) => panic!(
                    "the tester failed: {}",
                    String::from_utf8_lossy(&output.stderr)
                ),
            }
        }
        panic!("the tester failed {ATTEMPTS} times")
    }

    fn attempt(&self) -> std::process::Output {
        let mut command = Command::new(QUIETWIRE);
        command.arg("generate");
        for port in &self.ports {
            command.args(["--port", port]);
        }
        command.args(["--rate", "max", "--direction", "one-way", "--json"]);
        command.args(["--cpus", TESTER_CPU, "--realtime-priority", "50"]);
        command.args(["--ring-size", RING_SIZE, "--warm-up", "500ms"]);
        command.args(["--duration", &format!("{}s", self.seconds)]);
        command.args(self.more).output().expect("the tester runs")
    }

    /// Frames forwarded a second.
    pub(crate) fn rate(&self) -> f64 {
        forwarded(&self.offer())
    }
}

/// Frames forwarded a second, of a tester's result.
pub(crate) fn forwarded(result: &serde_json::Value) -> f64 {
    result["forwarding_rate_pps"].as_f64().expect("a rate")
}

/// DPDK in this process, on the tester's CPU, for a benchmark that is its own tester.
pub(crate) fn start_dpdk(name: &str, memory_mib: u32) -> Eal {
    const CPU: u32 = 0;
    pin(&[CPU]).expect("the tester's CPU");
    let started = Eal::start(&EalOptions {
        control_cpus: vec![CPU],
        memory_mib,
        huge_pages: HugePages::Auto,
        pci_devices: Vec::new(),
        file_prefix: format!("quietwire-{name}-{}", std::process::id()),
    });
    started.expect("DPDK starts")
}

/// What was measured in the rounds.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    pub(crate) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Self {
            median: f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]),
            min: sorted[0],
            max: sorted[sorted.len() - 1],
        }
    }

    /// Median, smallest and largest in millions, as cells of a table.
    pub(crate) fn mpps(self) -> String {
        let [median, min, max] = [self.median, self.min, self.max].map(|rate| rate / 1e6);
        format!("{median:.2} | {min:.2} | {max:.2}")
    }
}

/// A number for people: 20,000.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A setting of the kernel's that is as it was before when the value is dropped.
pub(crate) struct Setting {
    path: &'static str,
    before: String,
}

impl Setting {
    /// Real-time threads would be stopped for 50 ms of each second.
    pub(crate) fn unthrottled() -> Self {
        Self::change(RT_RUNTIME, "-1")
    }

    fn change(path: &'static str, value: &str) -> Self {
        let before = fs::read_to_string(path).expect("the setting is there");
        fs::write(path, value).expect("root");
        Self { path, before }
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _ = fs::write(self.path, self.before.trim());
    }
}

const RT_RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
const NR_HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";
const FREE_HUGE_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
/// Up to 512 MiB for the switch, as much for the tester, 2 GiB for each of two peers.
const HUGE_PAGES_WANTED: u64 = 2624;

/// The machine as benchmarks want it, until the value is dropped.
pub(crate) struct Machine(#[allow(dead_code)] Vec<Setting>);

impl Machine {
    /// Unthrottled; with huge pages where they are asked for.
    pub(crate) fn prepare(options: &Options) -> Self {
        let mut settings = vec![Setting::unthrottled()];
        if options.huge_pages {
            settings.push(Setting::change(
                NR_HUGE_PAGES,
                &HUGE_PAGES_WANTED.to_string(),
            ));
            let free = huge_pages_free();
            assert!(
                free >= HUGE_PAGES_WANTED,
                "{free} of {HUGE_PAGES_WANTED} huge pages are free: too little memory in one piece"
            );
        }
        Self(settings)
    }
}

/// Free huge pages of 2 MiB.
pub(crate) fn huge_pages_free() -> u64 {
    let text = fs::read_to_string(FREE_HUGE_PAGES).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// What a table or document is to be read with.
pub(crate) fn circumstances(options: &Options, usual_rounds: u32) -> serde_json::Value {
    serde_json::json!({
        "rounds": options.rounds(usual_rounds),
        "seconds": options.seconds(),
        "huge_pages": huge_pages_free() > 0,
    })
}
