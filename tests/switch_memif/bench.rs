// SPDX-License-Identifier: Apache-2.0
//! A switch under test, its directory, and the peers of its ports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use quietwire_base::Deadline;
use quietwire_base::testing::KillOnDrop;
use quietwire_dpdk::{Burst, Eal, EalOptions, HugePages, Mempool, Port, PortOptions, StartedPort};
use quietwire_host::threads::online_cpus;
use quietwire_switch::control::{Request, Subject, ask};
use quietwire_switch::report::{StatsReport, ThreadReport};
use serde::de::{DeserializeOwned, IgnoredAny};
use tempfile::TempDir;

const DEADLINE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(2);
/// Frames arrive within microseconds: pause between the first looks, and the time for them.
const SHORT_PAUSE: Duration = Duration::from_micros(100);
const SOON: Duration = Duration::from_millis(4);
/// Pause between looks that start a process.
const PROCESS_PAUSE: Duration = Duration::from_millis(100);

/// Subjects that have counters of frames.
const COUNTED: [&str; 5] = ["ports", "stats", "queues", "rules", "cycles"];
/// Time for a turn of a forwarding thread whose CPU other programs use.
const TURN_MAX: Duration = Duration::from_millis(200);

/// Polls until a value is available.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    Deadline::after(SOON)
        .poll(SHORT_PAUSE, &mut look)
        .or_else(|| Deadline::after(DEADLINE).poll(PAUSE, look))
        .unwrap_or_else(|| panic!("timeout after {DEADLINE:?}: {what}"))
}

/// Polls as [`until`] does, by a look that starts a process: less often, because each takes CPU time from other tests.
pub(crate) fn until_printed<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    Deadline::after(DEADLINE)
        .poll(PROCESS_PAUSE, look)
        .unwrap_or_else(|| panic!("timeout after {DEADLINE:?}: {what}"))
}

/// Returns a TCP address without a listener. It is on a loopback address of its own, so that no other socket takes the port until then.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let own = Ipv4Addr::new(127, 0, 77, NEXT.fetch_add(1, Ordering::Relaxed));
    let listener = TcpListener::bind((own, 0)).unwrap();
    listener.local_addr().unwrap()
}

/// Returns the highest CPU.
pub(crate) fn forwarding_cpu() -> u32 {
    online_cpus(Path::new("/"))
        .unwrap()
        .iter()
        .next_back()
        .unwrap()
        .0
}

pub(crate) fn quietwire() -> Command {
    Command::new(env!("CARGO_BIN_EXE_quietwire"))
}

pub(crate) fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Returns `quietwire switch …` for the switch of a bench.
pub(crate) fn command(bench: &Bench, arguments: &[&str]) -> Command {
    let mut command = quietwire();
    command.arg("switch").args(arguments);
    command
        .arg("--control-socket")
        .arg(bench.path("control.sock"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Changes the switch of a bench.
pub(crate) fn change(bench: &Bench, arguments: &[&str]) {
    output(&mut command(bench, arguments));
}

/// Returns the message of a change that fails.
pub(crate) fn refused(bench: &Bench, arguments: &[&str]) -> String {
    let output = command(bench, arguments).output().unwrap();
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Returns the message of a change that ends with this exit code.
pub(crate) fn refused_with(bench: &Bench, code: i32, arguments: &[&str]) -> String {
    let output = command(bench, arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

pub(crate) fn frame(destination: [u8; 6], source: [u8; 6], number: u8) -> Vec<u8> {
    let mut frame = destination.to_vec();
    frame.extend(source);
    frame.extend([0x88, 0xb5, number]);
    frame.resize(60, 0xee);
    frame
}

/// DPDK in this process: started once, with buffers for the peers of all tests.
struct Dpdk {
    eal: Eal,
    pool: Mempool,
}

static DPDK: LazyLock<Dpdk> = LazyLock::new(|| {
    let eal = Eal::start(&EalOptions {
        control_cpus: vec![0],
        memory_mib: 128,
        huge_pages: HugePages::Never,
        pci_devices: Vec::new(),
        file_prefix: format!("qw-test-{}", std::process::id()),
    })
    .unwrap();
    let pool = Mempool::new(&eal, "peers", 8192, 2048).unwrap();
    Dpdk { eal, pool }
});

/// Tests run side by side, because their threads sleep between frames. One that measures, or that keeps the forwarding CPU busy, runs alone
/// ([`Bench::alone`]). Those that mostly wait run at the same time, except while they have peers ([`Bench::quiet`]).
static TURNS: RwLock<()> = RwLock::new(());

/// Time in which a test may have peers. A test has one at a time: a test that waits to be alone lets no other begin.
#[derive(Default)]
struct Turn {
    _beside_others: Option<RwLockReadGuard<'static, ()>>,
    _alone: Option<RwLockWriteGuard<'static, ()>>,
}

impl Turn {
    /// Waits until no test runs alone.
    fn beside_others() -> Self {
        Self {
            _beside_others: Some(TURNS.read().unwrap_or_else(PoisonError::into_inner)),
            ..Self::default()
        }
    }

    /// Waits until no other test has a turn.
    fn alone() -> Self {
        Self {
            _alone: Some(TURNS.write().unwrap_or_else(PoisonError::into_inner)),
            ..Self::default()
        }
    }
}

/// A directory, arguments, and the switch that runs there.
pub(crate) struct Bench {
    directory: TempDir,
    arguments: Vec<String>,
    running: Option<Child>,
    /// `None` while the test has no peers.
    turn: Option<Turn>,
}

impl Bench {
    pub(crate) fn new(ports: &[&str], arguments: &[&str]) -> Self {
        Self::in_turn(Turn::beside_others(), ports, arguments)
    }

    /// Starts a switch whose forwarding threads wait for frames, beside other tests. It has peers only from [`Self::take`] to [`Self::release`].
    pub(crate) fn quiet(ports: &[&str], arguments: &[&str]) -> Self {
        let mut bench = Self::without_turn(ports, &[arguments, &["--idle", "interrupt"]].concat());
        bench.start_again();
        bench
    }

    /// Starts a switch while no other test has peers: for a test that measures, or keeps the forwarding CPU busy.
    pub(crate) fn alone(ports: &[&str], arguments: &[&str]) -> Self {
        let mut bench = Self::in_turn(Turn::alone(), ports, arguments);
        bench.start_again();
        bench
    }

    fn in_turn(turn: Turn, ports: &[&str], arguments: &[&str]) -> Self {
        let mut bench = Self::without_turn(ports, arguments);
        bench.turn = Some(turn);
        bench
    }

    fn without_turn(ports: &[&str], arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let mut all: Vec<String> = Vec::new();
        for port in ports {
            let socket = path(&format!("{port}.sock"));
            all.extend([
                "--port".to_owned(),
                format!("{port}=memif:{socket}?role=server"),
            ]);
        }
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        Self {
            directory,
            arguments: all,
            running: None,
            turn: None,
        }
    }

    pub(crate) fn start(ports: &[&str], arguments: &[&str]) -> Self {
        let mut bench = Self::new(ports, arguments);
        bench.start_again();
        bench
    }

    /// Returns the same with additional arguments.
    pub(crate) fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments
            .extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    /// Returns the same directory with only these arguments.
    pub(crate) fn only(mut self, arguments: &[&str]) -> Self {
        self.arguments = arguments
            .iter()
            .map(|argument| (*argument).to_owned())
            .collect();
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the names of existing sockets.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".sock"))
            .collect();
        names.sort();
        names
    }

    /// Returns all arguments, the caller's last.
    fn all_arguments(&self, more: &[&str]) -> Vec<String> {
        let printed = |option: &str| {
            more.contains(&option) || self.arguments.iter().any(|argument| argument == option)
        };
        let control = self.path("control.sock").display().to_string();
        let cpu = forwarding_cpu().to_string();
        let mut all = vec!["switch".to_owned(), "run".to_owned()];
        for (option, value) in [
            ("--control-socket", control.as_str()),
            ("--forwarding-cpus", &cpu),
            ("--huge-pages", "never"),
            ("--memory-mib", "128"),
            // A thread that sleeps between frames leaves its CPU to the commands of the tests.
            ("--idle", "sleep"),
        ] {
            if !printed(option) {
                all.extend([option.to_owned(), value.to_owned()]);
            }
        }
        all.extend_from_slice(&self.arguments);
        all.extend(more.iter().map(|argument| (*argument).to_owned()));
        all
    }

    fn log(&self) -> File {
        File::options()
            .append(true)
            .create(true)
            .open(self.path("log"))
            .unwrap()
    }

    fn printed(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub(crate) fn start_again(&mut self) {
        let mut command = quietwire();
        command.args(self.all_arguments(&[]));
        self.launch(command);
    }

    /// Starts the switch under a shell, which is then the process that [`Bench::end`] ends.
    pub(crate) fn start_under_shell(&mut self) {
        let mut command = Command::new("sh");
        // The shell must have a further command; otherwise it replaces itself.
        command.args([
            "-c",
            "\"$@\"; exit 9",
            "sh",
            env!("CARGO_BIN_EXE_quietwire"),
        ]);
        command.args(self.all_arguments(&[]));
        self.launch(command);
    }

    /// Starts the switch in a network namespace without IPv6.
    pub(crate) fn start_without_ipv6(&mut self) {
        let mut command = Command::new("unshare");
        command.args([
            "--net",
            "sh",
            "-c",
            "for scope in all default; do echo 1 > /proc/sys/net/ipv6/conf/$scope/disable_ipv6; done; exec \"$@\"",
            "sh",
            env!("CARGO_BIN_EXE_quietwire"),
        ]);
        command.args(self.all_arguments(&[]));
        self.launch(command);
    }

    fn launch(&mut self, mut command: Command) {
        command
            .stdin(Stdio::null())
            .stdout(self.log())
            .stderr(self.log());
        self.running = Some(command.spawn().unwrap());
        until("the switch answers", || {
            let child = self.running.as_mut().unwrap();
            if let Some(status) = child.try_wait().unwrap() {
                panic!("the switch ended with {status}: {}", self.printed());
            }
            ask::<IgnoredAny>(&self.path("control.sock"), &Request::Show(Subject::Threads)).ok()
        });
    }

    /// Runs a switch that must end immediately; returns its standard error.
    pub(crate) fn refused(&self, code: i32, more: &[&str]) -> String {
        let log = self.path("refused");
        let mut command = quietwire();
        command.args(self.all_arguments(more)).stdin(Stdio::null());
        command
            .stdout(File::create(&log).unwrap())
            .stderr(File::options().append(true).open(&log).unwrap());
        let mut child = KillOnDrop(command.spawn().unwrap());
        let status = until("the switch refuses", || child.0.try_wait().unwrap());
        let printed = fs::read_to_string(&log).unwrap();
        assert_eq!(status.code(), Some(code), "{more:?}: {printed}");
        printed
    }

    /// Returns the process ID of the switch.
    pub(crate) fn pid(&self) -> u32 {
        self.running.as_ref().unwrap().id()
    }

    /// Sends a signal and waits for the end; returns the exit code.
    pub(crate) fn end(&mut self, signal: &str) -> Option<i32> {
        let mut child = KillOnDrop(self.running.take().unwrap());
        output(Command::new("kill").args([&format!("-{signal}"), &child.0.id().to_string()]));
        until("the switch ends", || child.0.try_wait().unwrap()).code()
    }

    pub(crate) fn show_command(&self, subject: &str) -> Command {
        let mut command = quietwire();
        command.args(["switch", "show", subject, "--control-socket"]);
        command.arg(self.path("control.sock"));
        command
    }

    /// Returns the output of `quietwire switch show … --json`. Later calls for a subject whose reply the command prints as it is ask the
    /// switch without a process.
    pub(crate) fn show<T: DeserializeOwned>(&self, subject: &str) -> T {
        static PRINTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
        let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = printed.insert(subject.to_owned());
        drop(printed);
        if COUNTED.contains(&subject) {
            self.settle();
        }
        let is_as_it_is = !["rules", "cycles"].contains(&subject);
        match serde_json::from_value(subject.into()) {
            Ok(subject) if is_as_it_is && !is_first => {
                ask(&self.path("control.sock"), &Request::Show(subject)).unwrap()
            }
            _ => {
                let text = output(self.show_command(subject).arg("--json"));
                serde_json::from_str(&text).unwrap()
            }
        }
    }

    /// Waits until all forwarding threads have ended the turn in which they sent their last frame, which is counted after it was sent. A
    /// thread that is stopped or has no queue ends no turn, and is waited for a moment only.
    pub(crate) fn settle(&self) {
        let polls = || -> BTreeMap<u32, u64> {
            let show = Request::Show(Subject::Stats);
            let stats: StatsReport = ask(&self.path("control.sock"), &show).unwrap();
            let threads = stats.threads.iter();
            threads.map(|thread| (thread.cpu, thread.polls)).collect()
        };
        let before = polls();
        let _ = Deadline::after(TURN_MAX).poll(SHORT_PAUSE, || {
            let now = polls();
            let mut threads = before.iter();
            threads
                .all(|(cpu, polls)| now.get(cpu).is_none_or(|now| now > polls))
                .then_some(())
        });
    }

    /// Returns the other end of a port, connected.
    pub(crate) fn peer(&self, name: &str) -> Peer {
        let uri = format!(
            "memif:{}?role=client",
            self.path(&format!("{name}.sock")).display()
        );
        let options = PortOptions::new(name, 1518);
        assert!(self.turn.is_some(), "a bench in its turn");
        let Dpdk { eal, pool } = &*DPDK;
        let port = Port::open(eal, &uri.parse().unwrap(), &options, pool).unwrap();
        let port = port.start().unwrap();
        until("the port connects", || {
            port.handle.link_is_up().then_some(())
        });
        let mut peer = Peer {
            port,
            burst: Burst::new(eal),
            pool: pool.clone(),
        };
        // A memif client offers its buffers when it first polls the queue; until then nothing can be sent to it.
        assert_eq!(peer.receive_now(), Vec::<Vec<u8>>::new());
        peer
    }

    /// Waits for the turn of a quiet test.
    pub(crate) fn take(&mut self) {
        self.turn = Some(Turn::beside_others());
    }

    /// Ends the turn. No peer is left.
    pub(crate) fn release(&mut self) {
        self.turn = None;
    }

    /// Starts a process that sends frames to port a, for longer than any test runs.
    pub(crate) fn generator(&self) -> Child {
        let uri = |name: &str| {
            format!(
                "memif:{}?role=client",
                self.path(&format!("{name}.sock")).display()
            )
        };
        quietwire()
            .args([
                "generate",
                "--port",
                &uri("a"),
                "--port",
                &uri("b"),
                "--rate",
                "200k",
            ])
            .args([
                "--duration",
                "10m",
                "--warm-up",
                "0s",
                "--direction",
                "one-way",
                "--no-huge",
            ])
            .args(["--memory-mib", "128", "--isolation", "none"])
            .stdin(Stdio::null())
            .stdout(self.log())
            .stderr(self.log())
            .spawn()
            .unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(child) = self.running.take() {
            // A switch that has ended does not answer.
            let show = Request::Show(Subject::Threads);
            let threads = ask::<Vec<ThreadReport>>(&self.path("control.sock"), &show);
            drop(KillOnDrop(child));
            let denied = threads.iter().flatten();
            let denied: Vec<_> = denied.filter(|thread| thread.denied_calls > 0).collect();
            assert!(denied.is_empty() || std::thread::panicking(), "{denied:?}");
        }
        if std::thread::panicking() {
            eprintln!("the switch said:\n{}", self.printed());
        } else {
            // Logged while the switch runs, and at its end.
            let printed = self.printed();
            assert!(!printed.contains("seccomp filters of "), "{printed}");
        }
    }
}

/// Keeps a CPU busy until it is dropped.
pub(crate) struct Neighbour {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Neighbour {
    pub(crate) fn on(cpu: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let observed = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            quietwire_dpdk::thread::pin(&[cpu]).unwrap();
            while !observed.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The other end of one of the switch's ports.
pub(crate) struct Peer {
    port: StartedPort,
    burst: Burst,
    pool: Mempool,
}

impl Peer {
    pub(crate) fn send(&mut self, frames: &[Vec<u8>]) {
        for frames in frames.chunks(32) {
            assert!(self.burst.allocate(&self.pool, frames.len()));
            let mut next = frames.iter();
            self.burst.write_each(|blank| {
                let frame = next.next().unwrap();
                blank
                    .octets(frame.len() as u16)
                    .unwrap()
                    .copy_from_slice(frame);
            });
            until("frames are sent", || {
                self.port.tx[0].send(&mut self.burst);
                self.burst.is_empty().then_some(())
            });
        }
    }

    /// Returns the next `count` frames.
    pub(crate) fn receive(&mut self, count: usize) -> Vec<Vec<u8>> {
        let mut received = Vec::new();
        if count > 0 {
            until("frames arrive", || {
                received.extend(self.receive_now());
                (received.len() >= count).then_some(())
            });
        }
        received
    }

    /// Returns the available frames.
    pub(crate) fn receive_now(&mut self) -> Vec<Vec<u8>> {
        let mut received = Vec::new();
        while self.port.rx[0].receive(&mut self.burst, 32) > 0 {
            received.extend(self.burst.frames().map(<[u8]>::to_vec));
            self.burst.free();
        }
        received
    }
}
