// SPDX-License-Identifier: Apache-2.0
//! quietwire's switch as a benchmark's device.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::placement::{HELPERS_PRIORITY, helper_cpu, place_threads};
use super::record::Side;
use super::{DEADLINE, DEVICE_CPU, QUIETWIRE, RING_SIZE, Running, log_into, wait_until};

/// Maximum number of frames that quietwire receives at once.
pub(crate) const BURST: u32 = quietwire_dpdk::BURST_MAX as u32;

/// Returns quietwire as a side of a run.
pub(crate) fn side(name: &str) -> Side {
    let march = super::dpdk_march();
    let built = format!(
        "Cargo's bench profile: opt-level 3, thin LTO, target-cpu x86-64-v2; DPDK's inline functions: -O3 {march}"
    );
    let version = env!("CARGO_PKG_VERSION");
    super::side(name, version, &built, BURST, "rings of 1024 descriptors")
}

/// Kind of the switch's ports, and how the tester connects to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Memif,
    VhostUser,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memif => "memif",
            Self::VhostUser => "vhost-user",
        }
    }

    pub(crate) fn tester_uri(self, socket: &Path, role: &str) -> String {
        let socket = socket.display();
        match self {
            Self::Memif => format!("memif:{socket}?role={role}"),
            Self::VhostUser => format!("virtio-user:{socket}?role={role}"),
        }
    }
}

/// Shared memory link between the tester and a port of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) kind: Kind,
    /// Pairs of queues.
    pub(crate) queues: u16,
    /// Packed rings (only with vhost-user).
    pub(crate) is_packed: bool,
    /// True if the switch is the client of memif ports that the tester serves: [`Switch::connect`] adds its ports.
    pub(crate) is_client: bool,
}

impl Link {
    /// Returns a link with one queue pair and split rings.
    pub(crate) fn of(kind: Kind) -> Self {
        Self {
            kind,
            queues: 1,
            is_packed: false,
            is_client: false,
        }
    }

    /// Returns the roles of the switch's ports and of the tester's ports in the protocol.
    fn roles(self) -> [&'static str; 2] {
        if self.is_client {
            ["client", "server"]
        } else {
            ["server", "client"]
        }
    }

    fn device_uri(self, socket: &Path) -> String {
        let socket = socket.display();
        let queues = self.queues;
        match self.kind {
            Kind::Memif => {
                let [role, _] = self.roles();
                format!("memif:{socket}?role={role}&queues={queues}")
            }
            Kind::VhostUser => format!("vhost:{socket}?queues={queues}"),
        }
    }

    fn tester_uri(self, socket: &Path) -> String {
        let packed = if self.is_packed { "&packed=on" } else { "" };
        let [_, role] = self.roles();
        let uri = self.kind.tester_uri(socket, role);
        format!("{uri}&queues={}{packed}", self.queues)
    }
}

/// Work of a forwarding thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Work {
    /// Time stamp counter cycles, without idle ones.
    pub(crate) cycles: f64,
    /// Received frames.
    pub(crate) frames: f64,
}

impl Work {
    /// Returns the work since an earlier moment.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            cycles: self.cycles - earlier.cycles,
            frames: self.frames - earlier.frames,
        }
    }

    /// Returns the cycles per frame; `None` without frames.
    pub(crate) fn cycles_a_frame(self) -> Option<f64> {
        (self.frames > 0.0).then(|| self.cycles / self.frames)
    }
}

/// A switch that runs until the value is dropped.
pub(crate) struct Switch {
    running: Running,
    binary: PathBuf,
    directory: PathBuf,
    link: Link,
}

impl Switch {
    /// Starts a switch with ports `p0`, `p1` and so on, and additional options; its sockets and log are in a new directory.
    pub(crate) fn start(directory: &Path, kind: Kind, ports: usize, more: &[&str]) -> Self {
        let binary = Path::new(QUIETWIRE);
        Self::of_build(binary, directory, Link::of(kind), ports, more)
    }

    /// Starts a switch that cross-connects two ports of DPDK's null driver, which always have frames to receive.
    pub(crate) fn between_null_ports(directory: &Path) -> Self {
        let ports = [
            "--port=p0=null:",
            "--port=p1=null:",
            "--cross-connect=p0,p1",
        ];
        // None of them has a link to a tester.
        Self::start(directory, Kind::Memif, 0, &ports)
    }

    /// Starts a switch of another build in the same way.
    pub(crate) fn of_build(
        binary: &Path,
        directory: &Path,
        link: Link,
        ports: usize,
        more: &[&str],
    ) -> Self {
        std::fs::create_dir(directory).expect("a new directory");
        let mut command = Command::new(binary);
        command.args(["switch", "run", "--forwarding-cpus", DEVICE_CPU]);
        let helper = helper_cpu();
        command.args(["--service-cpus", helper, "--control-cpus", helper]);
        command.args(["--rx-ring-size", RING_SIZE, "--tx-ring-size", RING_SIZE]);
        if !link.is_client {
            command.args(more);
            for number in 0..ports {
                let socket = directory.join(format!("p{number}.sock"));
                let port = format!("p{number}={}", link.device_uri(&socket));
                command.args(["--port", &port]);
            }
        }
        command.arg("--control-socket");
        command.arg(directory.join("control.sock"));
        let log = directory.join("log");
        log_into(&mut command, &log);
        let mut running = Running::spawn(&mut command);
        let control = directory.join("control.sock");
        wait_until("the switch answers", DEADLINE, || {
            running.assert_alive(&log);
            control.exists() && command_of(binary, &control, &["show", "threads"])
        });
        place_threads(&running.pid());
        Self {
            running,
            binary: binary.to_owned(),
            directory: directory.to_owned(),
            link,
        }
    }

    /// Returns the tester's URI of a port.
    pub(crate) fn tester_uri(&self, port: usize) -> String {
        let socket = self.directory.join(format!("p{port}.sock"));
        self.link.tester_uri(&socket)
    }

    /// Connects two ports to each other and to the tester, which has started and serves their sockets.
    pub(crate) fn connect(&self) {
        for port in ["p0", "p1"] {
            // Ports of a previous attempt: the tester serves new sockets now.
            self.urgent_command(&["del", "port", port]);
        }
        for port in ["p0", "p1"] {
            let socket = self.directory.join(format!("{port}.sock"));
            wait_until("the tester listens", DEADLINE, || socket.exists());
            let uri = self.link.device_uri(&socket);
            let added = self.urgent_command(&["add", "port", port, &uri]);
            assert!(added, "{port}");
        }
        let joined = self.urgent_command(&["add", "cross-connect", "p0", "p1"]);
        assert!(joined, "the cross-connect");
    }

    /// Returns its process ID.
    pub(crate) fn pid(&self) -> u32 {
        self.running.0.id()
    }

    pub(crate) fn control_socket(&self) -> PathBuf {
        self.directory.join("control.sock")
    }

    /// Configures a router: an interface on each of the first two ports, with these addresses, and the neighbour behind the
    /// second. The MAC addresses are those that the tester's ports use.
    pub(crate) fn route_between(&self, addresses: [&str; 2], neighbour: &str) {
        for (name, port, address, mac) in [
            ("a0", "p0", addresses[0], "02:01:00:00:00:00"),
            ("b0", "p1", addresses[1], "02:00:00:00:00:00"),
        ] {
            let add = ["add", "interface", name, "--port", port];
            let with = ["--address", address, "--mac", mac];
            assert!(self.command(&[&add[..], &with[..]].concat()), "{name}");
        }
        let add = ["add", "neighbour", "b0", neighbour, "02:01:00:00:00:00"];
        assert!(self.command(&add), "the neighbour");
    }

    /// Returns the time stamp counter cycles per frame of the forwarding thread since the start, without idle ones.
    pub(crate) fn cycles_a_frame(&self) -> Option<f64> {
        self.cycles_of(|step| !["idle", "control"].contains(&step))
    }

    /// Returns the same for receiving and transmitting only.
    pub(crate) fn port_cycles_a_frame(&self) -> Option<f64> {
        self.cycles_of(|step| ["receive", "send"].contains(&step))
    }

    /// Returns the same for routing and rewriting only.
    pub(crate) fn route_cycles_a_frame(&self) -> Option<f64> {
        self.cycles_of(|step| ["route", "rewrite"].contains(&step))
    }

    /// Returns the same for filter rules only.
    pub(crate) fn filter_cycles_a_frame(&self) -> Option<f64> {
        self.filter_work()?.cycles_a_frame()
    }

    /// Returns the work of filter rules since the start of the forwarding thread.
    pub(crate) fn filter_work(&self) -> Option<Work> {
        self.work_of(|step| step == "filter")
    }

    /// Returns the work of the forwarding thread since its start.
    pub(crate) fn work(&self) -> Option<Work> {
        self.work_of(|step| !["idle", "control"].contains(&step))
    }

    fn cycles_of(&self, is_wanted: fn(&str) -> bool) -> Option<f64> {
        self.work_of(is_wanted)?.cycles_a_frame()
    }

    /// Returns the frames, and the cycles of some steps.
    fn work_of(&self, is_wanted: fn(&str) -> bool) -> Option<Work> {
        let report = self.shown(&["cycles"])?;
        let steps = report["threads"][0]["steps"].as_array()?;
        let sum = |is_counted: fn(&str) -> bool, key: &str| -> f64 {
            let steps = steps.iter();
            let counted = steps.filter(|step| step["step"].as_str().is_some_and(is_counted));
            counted.filter_map(|step| step[key].as_f64()).sum()
        };
        Some(Work {
            cycles: sum(is_wanted, "cycles"),
            frames: sum(|step| step == "receive", "frames"),
        })
    }

    /// Returns what `quietwire switch show …` prints as JSON.
    pub(crate) fn shown(&self, subject: &[&str]) -> Option<serde_json::Value> {
        let mut command = Command::new(QUIETWIRE);
        command.args(["switch", "show"]).args(subject);
        command.args(["--json", "--control-socket"]);
        let output = command.arg(self.control_socket()).output().ok()?;
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Runs `quietwire switch …`; returns false if it failed.
    pub(crate) fn command(&self, arguments: &[&str]) -> bool {
        command_of(&self.binary, &self.control_socket(), arguments)
    }

    /// Runs the same at the helpers' priority: it gets a CPU while the tester and the forwarding thread poll.
    fn urgent_command(&self, arguments: &[&str]) -> bool {
        let mut command = Command::new("chrt");
        command.args(["-f", HELPERS_PRIORITY]).arg(&self.binary);
        succeeds(command, &self.control_socket(), arguments)
    }
}

fn command_of(binary: &Path, control: &Path, arguments: &[&str]) -> bool {
    succeeds(Command::new(binary), control, arguments)
}

/// Runs `quietwire switch …` with a command that begins with the program.
fn succeeds(mut command: Command, control: &Path, arguments: &[&str]) -> bool {
    command.arg("switch").args(arguments);
    command.arg("--control-socket").arg(control);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
