// SPDX-License-Identifier: Apache-2.0
//! Network namespaces, and switches that run in them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use quietwire_base::Deadline;
use quietwire_switch::SwitchError;
use quietwire_switch::control::{Request, ask};
use serde_json::Value;

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Polls until a value is available.
pub(crate) fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(DEADLINE, look).unwrap_or_else(|| panic!("timeout after {DEADLINE:?}: {what}"))
}

/// Polls for some time; returns `None` if no value is available by then.
pub(crate) fn within<T>(time: Duration, look: impl FnMut() -> Option<T>) -> Option<T> {
    Deadline::after(time).poll(Duration::from_millis(3), look)
}

/// Returns the binary under test: that of this build unless `QUIETWIRE_TEST_BINARY` names another.
pub(crate) fn quietwire() -> &'static str {
    static BINARY: OnceLock<String> = OnceLock::new();
    BINARY.get_or_init(|| {
        std::env::var("QUIETWIRE_TEST_BINARY")
            .unwrap_or_else(|_| env!("CARGO_BIN_EXE_quietwire").to_owned())
    })
}

pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {printed}");
    String::from_utf8(output.stdout).unwrap()
}

/// Carrier of frames between the tester and the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// Shared memory, which drops no frame.
    SharedMemory,
    /// Kernel sockets, taps and veth pairs, which drop frames if the machine is busy.
    Kernel,
}

impl Carrier {
    /// Returns the carrier of a path over ports with these URIs: the kernel if one of them is the kernel's.
    pub(crate) fn of(uris: &[&str]) -> Self {
        if uris.iter().any(|uri| is_kernels(uri)) {
            Self::Kernel
        } else {
            Self::SharedMemory
        }
    }
}

/// Returns true for the URI of a port whose frames the kernel carries.
fn is_kernels(uri: &str) -> bool {
    let mut schemes = ["af-", "tap:", "veth:"].iter();
    schemes.any(|scheme| uri.starts_with(scheme))
}

#[path = "../own_loss.rs"]
mod own_loss;

pub(crate) use own_loss::is_testers_own_loss;

/// Runs `quietwire generate … --json` until a valid trial lost no frame. In shared memory, the first lost frame is a
/// failure. If the kernel carries frames, three trials may lose some. An invalid trial is repeated: the machine may be busy
/// with other tests.
pub(crate) fn lossless(what: &str, carrier: Carrier, mut command: impl FnMut() -> Command) {
    const TRIALS: usize = 3;
    let mut observed = Vec::new();
    let began = Instant::now();
    while observed.len() < TRIALS && began.elapsed() < DEADLINE {
        let output = command().output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_invalid = printed.contains("the trial is invalid");
        assert!(is_invalid || output.status.success(), "{what}: {printed}");
        assert!(!printed.contains(DENIED), "{what}: {printed}");
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        if carrier == Carrier::SharedMemory && !is_testers_own_loss(&result) {
            let (offered, received) = (&result["offered_frames"], &result["received_frames"]);
            assert_eq!(offered, received, "{what}: {result}");
        }
        if is_invalid {
            continue;
        }
        assert!(
            result["offered_frames"].as_u64() > Some(500),
            "{what}: {result}"
        );
        if result["received_frames"] == result["offered_frames"] {
            return;
        }
        observed.push(result);
    }
    panic!("{what}: no trial without loss: {observed:?}");
}

/// Pings an address until all three requests of a round are answered. The kernel may drop a frame if the machine is busy.
pub(crate) fn ping(from: &Namespace, address: &str) {
    until(&format!("{address} answers"), || {
        let mut command = from.command("busybox");
        command.args([
            "ping", "-c", "3", "-i", "0.2", "-W", "2", "-w", "30", address,
        ]);
        let output = command.output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        printed.contains("3 packets received").then_some(())
    });
}

/// A network namespace that is removed with this value.
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    /// Creates a namespace. `kind` must be unique to the test.
    pub(crate) fn new(kind: &str) -> Self {
        let name = format!("qw-{kind}-{}", std::process::id());
        run(Command::new("ip").args(["netns", "add", &name]));
        Self { name }
    }

    /// Creates a namespace with two veth pairs: v0 to v1, v2 to v3.
    pub(crate) fn with_pairs(kind: &str) -> Self {
        let namespace = Self::new(kind);
        for [a, b] in [["v0", "v1"], ["v2", "v3"]] {
            namespace.ip(&["link", "add", a, "type", "veth", "peer", "name", b]);
            for end in [a, b] {
                namespace.ip(&["link", "set", end, "up"]);
            }
        }
        namespace
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn ip(&self, arguments: &[&str]) -> String {
        run(Command::new("ip").args(["-n", &self.name]).args(arguments))
    }

    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command.stdin(Stdio::null());
        command
    }

    /// Runs a function in a thread whose sockets are those of the namespace.
    pub(crate) fn within<T: Send + 'static>(
        &self,
        what: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let namespace = File::open(Path::new("/run/netns").join(&self.name)).unwrap();
        std::thread::spawn(move || {
            setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
            what()
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip")
            .args(["netns", "del", &self.name])
            .status();
    }
}

/// The beginning of the log line about denied system calls.
const DENIED: &str = "seccomp filters of ";

/// A switch that ends with this value.
pub(crate) struct Switch {
    child: Child,
    log: PathBuf,
    control: PathBuf,
}

impl Switch {
    /// Starts a switch and waits until it answers. `directory` is for its socket and log.
    pub(crate) fn start(
        namespace: &Namespace,
        directory: &Path,
        ports: &[(&str, String)],
        arguments: &[&str],
    ) -> Self {
        let command = namespace.command(quietwire());
        Self::start_by(command, directory, ports, arguments)
    }

    /// As [`Self::start`], with a command that ends by executing `quietwire`.
    pub(crate) fn start_by(
        mut command: Command,
        directory: &Path,
        ports: &[(&str, String)],
        arguments: &[&str],
    ) -> Self {
        let control = directory.join("control.sock");
        let log = directory.join("log");
        command.args(["switch", "run", "--huge-pages", "never"]);
        if !arguments.contains(&"--memory-mib") {
            command.args(["--memory-mib", "224"]);
        }
        if !arguments.contains(&"--idle") {
            // A thread that sleeps leaves the CPU to hosts and peers, and to other tests.
            command.args(["--idle", "sleep"]);
        }
        for (name, uri) in ports {
            command.args(["--port", &format!("{name}={uri}")]);
        }
        command
            .args(arguments)
            .arg("--control-socket")
            .arg(&control);
        let child = command
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut switch = Self {
            child,
            log,
            control,
        };
        let began = Instant::now();
        while switch.ask("ports").is_err() {
            let ended = switch.child.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}: {}", switch.printed());
            assert!(began.elapsed() < DEADLINE, "{}", switch.printed());
            std::thread::sleep(Duration::from_millis(5));
        }
        switch
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn control(&self) -> &Path {
        &self.control
    }

    pub(crate) fn printed(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Returns what `switch show SUBJECT --json` prints, without a process for each look.
    fn ask(&self, subject: &str) -> Result<Value, SwitchError> {
        let subject = serde_json::from_value(subject.into()).unwrap();
        ask(&self.control, &Request::Show(subject))
    }

    fn answer(&self, subject: &str) -> Value {
        self.ask(subject)
            .unwrap_or_else(|error| panic!("{error}: {}", self.printed()))
    }

    /// Returns what `switch show SUBJECT --json` prints if it is a list.
    pub(crate) fn show(&self, subject: &str) -> Vec<Value> {
        self.answer(subject).as_array().unwrap().clone()
    }

    /// Returns what `switch show stats --json` prints.
    pub(crate) fn stats(&self) -> Value {
        self.answer("stats")
    }

    /// Changes the switch: `quietwire switch` with these arguments.
    pub(crate) fn change(&self, arguments: &[&str]) {
        run(&mut self.command(arguments));
    }

    /// Returns the message with which the switch refuses a change.
    pub(crate) fn refusal(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(quietwire());
        command.arg("switch").args(arguments);
        command.arg("--control-socket").arg(&self.control);
        command
    }

    /// Returns the output of `switch show ports` as text.
    pub(crate) fn table(&self) -> String {
        let mut command = Command::new(quietwire());
        command.args(["switch", "show", "ports", "--control-socket"]);
        run(command.arg(&self.control))
    }

    /// Returns what `switch show ports --json` prints, by port.
    pub(crate) fn ports(&self) -> Vec<Value> {
        self.show("ports")
    }

    /// Returns one port of `switch show ports --json`.
    pub(crate) fn port(&self, name: &str) -> Value {
        self.ports()
            .into_iter()
            .find(|port| port["name"] == name)
            .unwrap()
    }

    /// Waits until a port is up: the kernel may report the link of an interface a moment later.
    pub(crate) fn until_up(&self, name: &str) {
        until(&format!("port {name} is up"), || {
            (self.port(name)["state"] == "up").then_some(())
        });
    }

    /// Ends the switch like a user, and returns its exit code. Its threads made no system call that their filters deny.
    pub(crate) fn end(mut self) -> Option<i32> {
        self.terminate();
        let status = until("the switch ends", || self.child.try_wait().unwrap());
        assert!(!self.has_denied_calls(), "{}", self.printed());
        status.code()
    }

    /// The same for a switch whose threads made such calls.
    pub(crate) fn end_after_denials(mut self) -> Option<i32> {
        self.terminate();
        let status = until("the switch ends", || self.child.try_wait().unwrap());
        assert!(self.has_denied_calls(), "{}", self.printed());
        status.code()
    }

    /// Returns true if the switch has logged denied system calls, at the latest at its end.
    fn has_denied_calls(&self) -> bool {
        self.printed().contains(DENIED)
    }

    /// Ends the switch like `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn terminate(&self) {
        // `ip netns exec` executes the switch. Its PID cannot be reused before it is waited for.
        let _ = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        if let Ok(Some(status)) = self.child.try_wait() {
            if !status.success() {
                println!("the switch has ended: {status}: {}", self.printed());
            }
            return;
        }
        self.terminate();
        let began = Instant::now();
        while began.elapsed() < DEADLINE && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let has_denied = fs::read_to_string(&self.log).is_ok_and(|log| log.contains(DENIED));
        assert!(
            !has_denied || std::thread::panicking(),
            "{}",
            self.printed()
        );
    }
}
