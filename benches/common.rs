// SPDX-License-Identifier: Apache-2.0
//! Common parts of the benchmarks of the whole switch: options, the tester, processes with the lifetime of a value, machine
//! settings that are restored, figures.
// Each benchmark is a separate crate that uses a part of this.
#![allow(dead_code)]

pub(crate) mod attempt;
pub(crate) mod device;
pub(crate) mod figure;
pub(crate) mod goals;
pub(crate) mod guest;
pub(crate) mod known;
pub(crate) mod l3fwd;
pub(crate) mod lcg;
pub(crate) mod ovs;
pub(crate) mod packets;
pub(crate) mod placement;
pub(crate) mod plot;
pub(crate) mod plots;
pub(crate) mod record;
pub(crate) mod spread;
pub(crate) mod study;
pub(crate) mod switch;
pub(crate) mod tables;
pub(crate) mod testpmd;
pub(crate) mod turn;
pub(crate) mod verdict;
pub(crate) mod vpp;
pub(crate) mod words;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use quietwire_dpdk::thread::pin;
use quietwire_dpdk::{Eal, EalOptions, HugePages};
use quietwire_host::CpuList;
use quietwire_host::threads::online_cpus;
use quietwire_lab::{Lab, LabOptions};
use quietwire_tester::{Tester, Trial, TrialResult};

pub(crate) use attempt::Subject;
use attempt::{ATTEMPTS, faults, measures_a_rate};
use goals::GOALS;
use lcg::Lcg;
use record::{Run, Side};
pub(crate) use spread::Spread;

pub(crate) const QUIETWIRE: &str = env!("CARGO_BIN_EXE_quietwire");
/// CPU of the tester and everything else that does not forward.
pub(crate) const TESTER_CPU: &str = "0";
/// CPU of the forwarding thread of every device.
pub(crate) const DEVICE_CPU: &str = "1";
pub(crate) const RING_SIZE: &str = "1024";
/// Direction of the tester's frames between its own ports, a memif server and a memif client: the client, which owns the buffers, sends,
/// as the client ports of generators and of the tester at a device do. The CPU of the first port receives, the other one sends.
pub(crate) const WITHOUT_DEVICE: [&str; 2] = ["--direction", "reverse"];
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// With the warm-up, less than the 0.95 s after which the kernel takes a CPU away from a real-time thread in favour of other
/// threads (`fair_server` of Linux 6.12 and later).
const SECONDS: f64 = 0.5;

/// Options of all benchmarks, after `--`.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Options {
    /// Number of rounds, in each of which all sides take turns; also QUIETWIRE_BENCH_ROUNDS
    #[arg(long)]
    rounds: Option<u32>,
    /// Seconds during which each measurement counts frames; also QUIETWIRE_BENCH_SECONDS
    #[arg(long)]
    seconds: Option<f64>,
    /// Seed of the order of turns. Default: from the clock
    #[arg(long)]
    seed: Option<u32>,
    /// Store the run as JSON in this directory. Default: bench/ in the target directory
    #[arg(long, value_name = "DIR")]
    runs: Option<PathBuf>,
    /// Check that the benchmark works: fewer sizes and two rounds
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print JSON instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// Also draw the figures into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
    /// Reserve 2 MiB huge pages during the run
    #[arg(long)]
    pub(crate) huge_pages: bool,
    /// Run only cases or sides whose names contain this text
    #[arg(default_value = "")]
    pub(crate) only: String,
    /// Argument that cargo passes to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    pub(crate) fn read() -> Self {
        let mut options = Self::parse();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let clock = now.map_or(1, |now| now.subsec_nanos());
        options.seed.get_or_insert(clock);
        options
    }

    pub(crate) fn turns(&self) -> Lcg {
        Lcg::new(self.seed.unwrap_or_default())
    }

    /// Returns the number of rounds: the option, or the default.
    pub(crate) fn rounds(&self, usual: u32) -> u32 {
        let usual = if self.quick { usual.min(2) } else { usual };
        let printed = self
            .rounds
            .or_else(|| environment("QUIETWIRE_BENCH_ROUNDS"));
        printed.unwrap_or(usual).max(1)
    }

    /// Returns the seconds of one measurement.
    pub(crate) fn seconds(&self) -> f64 {
        self.seconds_or(SECONDS)
    }

    /// Returns the seconds of one measurement, with a default.
    pub(crate) fn seconds_or(&self, usual: f64) -> f64 {
        let usual = if self.quick {
            usual.min(SECONDS)
        } else {
            usual
        };
        let printed = self
            .seconds
            .or_else(|| environment("QUIETWIRE_BENCH_SECONDS"));
        printed.unwrap_or(usual).max(0.01)
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        name.contains(&self.only)
    }
}

fn environment<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// A process that is terminated when the value is dropped.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self(command.spawn().expect("the program starts"))
    }

    pub(crate) fn pid(&self) -> String {
        self.0.id().to_string()
    }

    pub(crate) fn signal(&self, name: &str) {
        assert!(self.try_signal(name), "SIG{name} was not sent");
    }

    /// Sends a signal; returns true if it was sent.
    fn try_signal(&self, name: &str) -> bool {
        let mut kill = Command::new("kill");
        let status = kill.args(["-s", name, &self.pid()]).status();
        status.is_ok_and(|status| status.success())
    }

    /// Continues a stopped process until the value is dropped.
    pub(crate) fn awake(&self) -> Awake<'_> {
        self.signal("CONT");
        Awake(self)
    }

    /// Panics with the end of the log if the process has ended.
    pub(crate) fn assert_alive(&mut self, log: &Path) {
        if let Ok(Some(status)) = self.0.try_wait() {
            panic!("the process ended with {status}: {}", tail(log));
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

/// A process that is stopped again when the value is dropped, also after a measurement that failed.
pub(crate) struct Awake<'a>(&'a Running);

impl Drop for Awake<'_> {
    fn drop(&mut self) {
        // The process may have ended, and another panic would end the run.
        let _ = self.0.try_signal("STOP");
    }
}

/// Returns the last lines of a log.
pub(crate) fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

/// Redirects standard output and error to one file.
pub(crate) fn log_into(command: &mut Command, path: &Path) {
    let file = File::create(path).expect("the log can be written");
    command.stdin(Stdio::null());
    command.stdout(file.try_clone().expect("a file can be shared"));
    command.stderr(file);
}

/// Waits until `done` returns true, up to a limit.
pub(crate) fn wait_until(what: &str, limit: Duration, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < limit, "timeout after {limit:?}: {what}");
        sleep(Duration::from_millis(10));
    }
}

/// One run of the tester: options common to all benchmarks, and additional ones.
pub(crate) struct Load<'a> {
    /// Ports at which the tester sends and receives.
    pub(crate) ports: [String; 2],
    pub(crate) seconds: f64,
    pub(crate) more: &'a [&'a str],
    /// Called once the tester has started: connects a device that is the client of the tester's ports.
    pub(crate) connect: Option<&'a dyn Fn()>,
}

impl Load<'_> {
    /// Sends 64-byte frames through a device, one way unless `more` has a direction, at the highest possible rate; returns the
    /// tester's result. An invalid trial shows nothing about the device and is repeated, unless it still measures a rate.
    pub(crate) fn offer(&self) -> serde_json::Value {
        self.offer_for(Subject::Device)
    }

    /// Sends the same between ports that are connected to each other. A trial counts even if the tester missed frames: its rate is
    /// that of the tester.
    pub(crate) fn offer_to_itself(&self) -> serde_json::Value {
        self.offer_for(Subject::Tester)
    }

    fn offer_for(&self, subject: Subject) -> serde_json::Value {
        for _ in 0..ATTEMPTS {
            let output = self.attempt();
            let result = serde_json::from_slice(&output.stdout);
            match result {
                Ok(result) if measures_a_rate(&result, subject) || output.status.success() => {
                    return result;
                }
                Ok(result) => eprintln!("repeating an invalid trial: {}", faults(&result)),
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
        command.args(["--rate", "max", "--json"]);
        if !self.more.contains(&"--direction") {
            command.args(["--direction", "one-way"]);
        }
        if !self.more.contains(&"--cpus") {
            command.args(["--cpus", TESTER_CPU]);
        }
        command.args(["--realtime-priority", placement::TESTER_PRIORITY]);
        command.args(["--isolation", "none"]);
        command.args(["--ring-size", RING_SIZE, "--warm-up", "200ms"]);
        command.args(["--duration", &format!("{:.0}ms", self.seconds * 1e3)]);
        command.args(self.more);
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let tester = command.spawn().expect("the tester starts");
        if let Some(connect) = self.connect {
            connect();
        }
        tester.wait_with_output().expect("the tester runs")
    }

    /// Returns the forwarded frames per second.
    pub(crate) fn rate(&self) -> f64 {
        forwarded(&self.offer())
    }

    /// Sends the same, and returns no result: fills tables of the device.
    pub(crate) fn send(&self) {
        let output = self.attempt();
        let has_run = matches!(output.status.code(), Some(0 | 1));
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(has_run, "the tester failed: {printed}");
    }
}

/// Returns the forwarded frames per second of a tester's result.
pub(crate) fn forwarded(result: &serde_json::Value) -> f64 {
    result["forwarding_rate_pps"].as_f64().expect("a rate")
}

/// Time in which the kernel's threads have the tester's CPU before a trial in this process.
const PAUSE: Duration = Duration::from_millis(75);

/// Runs an unpaced trial of a tester in this process. It is repeated until it measures a rate.
pub(crate) fn unpaced(tester: &mut Tester, trial: &Trial, subject: Subject) -> TrialResult {
    for _ in 0..ATTEMPTS {
        sleep(PAUSE);
        let result = tester.run_unpaced(trial).expect("the trial runs");
        let document = serde_json::to_value(&result).expect("a document");
        if measures_a_rate(&document, subject) {
            return result;
        }
        eprintln!("repeating an invalid trial: {}", faults(&document));
    }
    panic!("the tester failed {ATTEMPTS} times")
}

/// Starts DPDK in this process, on the tester's CPU, for a benchmark that contains the tester.
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

/// State directory of the lab of a benchmark. It is not that of labs, which benchmarks start too. The next benchmark, or `make clean-lab`,
/// restores the settings that a killed benchmark has changed.
const STATE_DIRECTORY: &str = "/run/quietwire/bench";

/// Returns the options of the lab of a benchmark.
pub(crate) fn lab_options() -> LabOptions {
    LabOptions {
        state_directory: STATE_DIRECTORY.into(),
        program: QUIETWIRE.into(),
    }
}

const NR_HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";
const FREE_HUGE_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
/// Huge pages of 2 MiB: up to 512 MiB for the switch, as much for the tester, 2 GiB for each of two peers.
const HUGE_PAGES_WANTED: u64 = 2624;

/// Returns the same, with those of VPP if it can be started.
fn huge_pages_wanted() -> u64 {
    match vpp::is_installed() {
        true => HUGE_PAGES_WANTED + vpp::HUGE_PAGES,
        false => HUGE_PAGES_WANTED,
    }
}

/// The machine's settings for benchmarks, until the value is dropped. A lab restores them, by its journal.
pub(crate) struct Machine(#[allow(dead_code)] Lab);

impl Machine {
    /// Disables throttling, which would stop real-time threads for 50 ms of each second, and reserves huge pages if requested.
    pub(crate) fn prepare(options: &Options) -> Self {
        let mut lab = Lab::open(lab_options()).expect("root, and no other benchmark");
        let tester: CpuList = TESTER_CPU.parse().expect("a CPU");
        let online = online_cpus(Path::new("/")).expect("the online CPUs");
        let allowed = lab.allow_realtime(&tester, &online);
        allowed.expect("root, and a second CPU");
        if options.huge_pages {
            let wanted = huge_pages_wanted();
            let free = lab.reserve_huge_pages(wanted).expect("huge pages");
            assert!(
                free >= wanted,
                "{free} of {wanted} huge pages are free: too little memory in one piece"
            );
        }
        Self(lab)
    }
}

/// Returns the number of free huge pages of 2 MiB.
pub(crate) fn huge_pages_free() -> u64 {
    let text = fs::read_to_string(FREE_HUGE_PAGES).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Returns the output of a program in one line; empty if there is none.
pub(crate) fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map_or_else(|_| Vec::new(), |output| output.stdout);
    String::from_utf8_lossy(&text).trim().to_owned()
}

/// Returns the version of an installed Debian package.
pub(crate) fn package_version(name: &str) -> String {
    output_of(
        "dpkg-query",
        &["--show", "--showformat", "${Version}", name],
    )
}

/// Returns the processor type that DPDK's inline functions are compiled for, from pkg-config.
pub(crate) fn dpdk_march() -> String {
    let flags = output_of("pkg-config", &["--cflags", "libdpdk"]);
    let march = flags.split(' ').find(|flag| flag.starts_with("-march="));
    march.unwrap_or("no -march").to_owned()
}

/// Returns the congestion control of TCP in new network namespaces (Linux, Documentation/networking/ip-sysctl.rst). Some, such as BBR, limit
/// the rate of a sender, and so that of all sides.
pub(crate) fn congestion_control() -> String {
    let setting = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    setting.unwrap_or_default().trim_end().to_owned()
}

/// Returns an empty run. Requires the machine to be prepared. From now on, SIGINT and SIGTERM end the run after its turn.
pub(crate) fn begin(options: &Options, bench: &str, rounds: u32, seconds: f64) -> Run {
    turn::end_on_signals();
    let run = Run {
        bench: bench.to_owned(),
        command: command(bench),
        date: output_of("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]),
        machine: machine(),
        rounds,
        seconds,
        seed: options.seed.unwrap_or_default(),
        helpers: placement::rule(),
        sides: Vec::new(),
        absent: Vec::new(),
        series: Vec::new(),
        goals: Vec::new(),
        failed: 0,
    };
    eprintln!("{bench}: {rounds} rounds of {seconds} s, seed {}", run.seed);
    run
}

/// Returns the command that repeats this run.
fn command(bench: &str) -> String {
    let mut words = std::env::args().skip(1).peekable();
    let mut text = format!("cargo bench -p quietwire --bench {bench}");
    let mut separator = " --";
    while let Some(word) = words.next() {
        match word.as_str() {
            "--bench" => {}
            "--runs" | "--svg" => drop(words.next()),
            _ => {
                text.push_str(separator);
                separator = "";
                text.push_str(&if word.contains(' ') {
                    format!(" '{word}'")
                } else {
                    format!(" {word}")
                });
            }
        }
    }
    text
}

/// Returns the number of CPUs of the machine, including those that this process may not use.
pub(crate) fn cpus() -> u32 {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let lines = cpuinfo.lines().filter(|line| line.starts_with("processor"));
    lines.count() as u32
}

fn machine() -> record::Machine {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| -> String {
        let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        let found = fields.find(|(key, _)| key.trim() == name);
        found.map_or_else(String::new, |(_, value)| value.trim().to_owned())
    };
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let system = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = meminfo.split_whitespace().nth(1);
    let kib: u64 = kib.and_then(|kib| kib.parse().ok()).unwrap_or(0);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mhz: f64 = field("cpu MHz").parse().unwrap_or(0.0);
    let pages = fs::read_to_string(NR_HUGE_PAGES).unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    record::Machine {
        cpu: format!(
            "{}, family {}, model {}",
            field("model name"),
            field("cpu family"),
            field("model")
        ),
        cpus: cpus(),
        ghz: (mhz / 100.0).round() / 10.0,
        memory_gib: kib.div_ceil(1 << 20),
        is_virtual: field("flags").contains("hypervisor"),
        system: system.unwrap_or("unknown").trim_matches('"').to_owned(),
        kernel: kernel.trim().to_owned(),
        dpdk: quietwire_dpdk::version().replace("DPDK ", ""),
        huge_pages: pages.trim().parse().unwrap_or(0),
        load: load.split(' ').next().and_then(|load| load.parse().ok()),
    }
}

/// Returns a measured side.
pub(crate) fn side(name: &str, version: &str, built: &str, burst: u32, notes: &str) -> Side {
    Side {
        name: name.to_owned(),
        version: version.to_owned(),
        built: built.to_owned(),
        burst,
        notes: notes.to_owned(),
    }
}

/// Judges a run's goals, prints and stores the run, and draws its figures. Panics afterwards if turns of a run that checks the
/// benchmark have failed, and at once if no turn has succeeded.
pub(crate) fn finish(options: &Options, mut run: Run) {
    assert!(
        !run.is_without_values(),
        "no turn has succeeded: there is no run to store"
    );
    if turn::is_interrupted() {
        run.rounds = run.rounds.min(run.longest());
        eprintln!("interrupted: the run has at most {} rounds", run.rounds);
    }
    run.goals = run.judge(GOALS);
    if options.json {
        println!(
            "{}",
            serde_json::to_string_pretty(&run).expect("a document")
        );
    } else {
        println!("{}", tables::all(&run));
    }
    let directory = options.runs.clone().unwrap_or_else(default_runs);
    let path = run.store(&directory).expect("the run can be stored");
    eprintln!("stored in {}", path.display());
    if let Some(directory) = &options.svg {
        plots::draw_run(directory, &run);
    }
    if run.failed > 0 {
        eprintln!("{} turns failed and have no figures", run.failed);
    }
    assert!(
        !options.quick || run.failed == 0,
        "the benchmark does not work"
    );
}

/// Returns target/bench, next to target/release/quietwire.
fn default_runs() -> PathBuf {
    let target = Path::new(QUIETWIRE).ancestors().nth(2);
    target.expect("the target directory").join("bench")
}
