// SPDX-License-Identifier: Apache-2.0
//! Hosts in two network namespaces, connected by ports of the switch on kernel interfaces, by the Linux bridge, and by Open vSwitch: TCP
//! data (iperf3), round-trip times of an echo service, the first frame after a silence, and frames of 64 octets. Then a host and a guest,
//! connected by the Linux bridge, by Open vSwitch, and by the switch with a vhost-user port: the same.
//!
//! `cargo bench -p quietwire --bench kernel_ports` prints the medians of rounds in which all sides take turns, and the goals, most of
//! which are ratios to the Linux bridge. No thread is pinned: hosts and devices share all CPUs. Requires root, iperf3 and a quiet
//! machine. `-- --help` lists the options.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::guest::{BUSYBOX, Boot, Card, QEMU};
use common::ovs::{self, Datapath, OpenVSwitch};
use common::record::{Absent, Figure, Point, Run, Side};
use common::{DEADLINE, Machine, Options, QUIETWIRE, Running, log_into, switch, wait_until};
use serde_json::Value;

const ROUNDS: u32 = 7;
/// Seconds of each stream and of each echo client, whole ones.
const SECONDS: f64 = 2.0;
const GROUP_STREAMS: &str = "between hosts";
const GROUP_TIMES: &str = "round trips between hosts";
const GROUP_GUEST_STREAMS: &str = "between a host and a guest";
const GROUP_GUEST_TIMES: &str = "round trips between a host and a guest";
/// Time for a guest to boot, which takes long without KVM.
const BOOT: Duration = Duration::from_secs(120);
/// Starts of an iperf3 client until the guest's server accepts it, and the pause after each.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(500);
/// Addresses of the left and the right host.
const ADDRESSES: [&str; 2] = ["10.93.0.1", "10.93.0.2"];
/// Data of UDP in a frame of 64 octets with FCS, between the addresses.
const SMALL_DATA: &str = "18";

/// Connection between the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Device {
    LinuxBridge,
    OpenVSwitch(Datapath),
    /// URIs of the ports; NETNS is the namespace of the host. Ports on existing interfaces use one end of a veth pair.
    Quietwire([&'static str; 2]),
    /// The same, with `idle = sleep`: only the first frame after a silence is measured.
    Sleeping([&'static str; 2]),
    /// The same with ports that merge datagrams: only frames of 64 octets are measured.
    Merging([&'static str; 2]),
    /// The same with a bridge that forwards all frames itself, between `veth` ports too.
    SwitchForwarding([&'static str; 2]),
    /// The same with `af-xdp` ports, whose steering rules leave SSH to the kernel.
    Steered,
}

const BRIDGE: &str = "Linux bridge";

const DEVICES: [(&str, Device); 14] = [
    (BRIDGE, Device::LinuxBridge),
    (
        "quietwire, tap",
        Device::Quietwire(["tap:eth0?netns=NETNS", "tap:eth0?netns=NETNS"]),
    ),
    (
        "quietwire, tap, idle = sleep",
        Device::Sleeping(["tap:eth0?netns=NETNS", "tap:eth0?netns=NETNS"]),
    ),
    (
        "quietwire, tap, gro=on",
        Device::Merging(["tap:eth0?netns=NETNS&gro=on", "tap:eth0?netns=NETNS&gro=on"]),
    ),
    (
        "quietwire, veth",
        Device::Quietwire(["veth:left0?netns=NETNS", "veth:right0?netns=NETNS"]),
    ),
    (
        "quietwire, veth, kernel-forwarding = false",
        Device::SwitchForwarding(["veth:left0?netns=NETNS", "veth:right0?netns=NETNS"]),
    ),
    (
        "quietwire, af-packet",
        Device::Quietwire(["af-packet:left0", "af-packet:right0"]),
    ),
    (
        "quietwire, af-xdp",
        Device::Quietwire(["af-xdp:left0", "af-xdp:right0"]),
    ),
    ("quietwire, af-xdp with steering rules", Device::Steered),
    // Data arrive in segments, which are merged or not.
    (
        "quietwire, af-xdp to tap",
        Device::Quietwire(["af-xdp:left0", "tap:eth0?netns=NETNS"]),
    ),
    (
        "quietwire, af-xdp to tap, gro=on",
        Device::Quietwire(["af-xdp:left0", "tap:eth0?netns=NETNS&gro=on"]),
    ),
    (
        "Open vSwitch, kernel datapath",
        Device::OpenVSwitch(Datapath::Kernel),
    ),
    (
        "Open vSwitch, userspace datapath",
        Device::OpenVSwitch(Datapath::Userspace),
    ),
    (
        "Open vSwitch, DPDK datapath",
        Device::OpenVSwitch(Datapath::Dpdk),
    ),
];

/// Ends of the cables in the namespace of the device.
const CABLES: [&str; 2] = ["left0", "right0"];

/// Ports of [`Device::Steered`], and the steering rules of each.
const STEERED: [&str; 2] = ["af-xdp:left0", "af-xdp:right0"];
const STEERING_RULES: &str = r#"
[[steer]]
name = "PORT, SSH"
port = "PORT"
to = "kernel"
protocol = "tcp"
destination-port = "22"

[[steer]]
name = "PORT, SSH answers"
port = "PORT"
to = "kernel"
protocol = "tcp"
source-port = "22"

[[steer]]
name = "PORT"
port = "PORT"
to = "switch"
"#;

/// Measurement between two hosts.
#[derive(Clone, Copy, Debug)]
enum Case {
    Stream(&'static str),
    Echo(&'static str),
    Silence,
    Small,
}

const CASES: [(&str, Case); 6] = [
    ("iperf3, TCP to the right host", Case::Stream("up")),
    ("iperf3, TCP to the left host", Case::Stream("down")),
    ("iperf3, frames of 64 octets", Case::Small),
    ("request and response, UDP", Case::Echo("udp")),
    ("request and response, TCP", Case::Echo("tcp")),
    ("request after a silence of 50 ms", Case::Silence),
];

/// Connection between a host and a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GuestDevice {
    /// The card is a tap of QEMU, with vhost-net if the machine has it.
    LinuxBridge,
    /// The card is a vhost-user port with DPDK, else a tap of QEMU. The host has a veth pair.
    OpenVSwitch(Datapath),
    /// The card is a vhost-user port with TCP segmentation, the host is on a tap.
    Quietwire,
}

const GUEST_BRIDGE: &str = "Linux bridge, guest";

const GUESTS: [(&str, GuestDevice); 5] = [
    (GUEST_BRIDGE, GuestDevice::LinuxBridge),
    ("quietwire, guest", GuestDevice::Quietwire),
    (
        "Open vSwitch, kernel datapath, guest",
        GuestDevice::OpenVSwitch(Datapath::Kernel),
    ),
    (
        "Open vSwitch, userspace datapath, guest",
        GuestDevice::OpenVSwitch(Datapath::Userspace),
    ),
    (
        "Open vSwitch, DPDK datapath, guest",
        GuestDevice::OpenVSwitch(Datapath::Dpdk),
    ),
];

/// Measurement between a host and a guest.
#[derive(Clone, Copy, Debug)]
enum GuestCase {
    /// True if the guest sends.
    Stream(bool),
    Small,
    Echo,
}

const GUEST_CASES: [(&str, GuestCase); 4] = [
    ("iperf3, TCP to the guest", GuestCase::Stream(false)),
    ("iperf3, TCP from the guest", GuestCase::Stream(true)),
    ("iperf3, frames of 64 octets to the guest", GuestCase::Small),
    ("request and response with the guest, ICMP", GuestCase::Echo),
];

/// A network namespace that is removed with this value, and its interfaces with it.
struct Namespace(String);

impl Namespace {
    fn new(name: &str) -> Self {
        let name = format!("qwbench-{name}-{}", std::process::id());
        ip(&["netns", "add", &name]);
        Self(name)
    }

    fn ip(&self, arguments: &[&str]) {
        ip(&[&["-n", &self.0], arguments].concat());
    }

    /// Sets the address of the host's interface.
    fn set_address(&self, address: &str) {
        self.ip(&["address", "add", &format!("{address}/24"), "dev", "eth0"]);
        self.ip(&["link", "set", "eth0", "up"]);
    }

    /// Returns a command in this namespace.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, program]);
        command.stdin(Stdio::null());
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().expect("ip(8)");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {printed}");
}

/// Hosts with a device between them.
struct Net {
    // The device ends before the namespaces are removed.
    _switch: Option<Running>,
    _ovs: Option<OpenVSwitch>,
    hosts: [Namespace; 2],
    _middle: Namespace,
}

impl Net {
    fn start(directory: &Path, device: Device) -> Self {
        let hosts = ["left", "right"].map(Namespace::new);
        let middle = Namespace::new("middle");
        let uris = match device {
            Device::Quietwire(uris)
            | Device::SwitchForwarding(uris)
            | Device::Sleeping(uris)
            | Device::Merging(uris) => uris,
            Device::Steered => STEERED,
            Device::LinuxBridge | Device::OpenVSwitch(_) => CABLES,
        };
        for ((host, cable), uri) in hosts.iter().zip(CABLES).zip(uris) {
            // Taps and pairs are made by the switch.
            if !uri.contains("NETNS") {
                lay_cable(&middle, host, cable);
            }
        }
        let (mut switch, mut ovs) = (None, None);
        match device {
            Device::LinuxBridge => add_bridge(&middle, &CABLES),
            Device::OpenVSwitch(datapath) => {
                let started = OpenVSwitch::on_interfaces(directory, &middle.0, datapath, &CABLES);
                ovs = Some(started);
            }
            Device::Quietwire(uris)
            | Device::SwitchForwarding(uris)
            | Device::Sleeping(uris)
            | Device::Merging(uris) => {
                let idle = match device {
                    Device::Sleeping(_) => "sleep",
                    _ => "interrupt",
                };
                let configuration = match device {
                    Device::SwitchForwarding(_) => "kernel-forwarding = false\n",
                    _ => "",
                };
                let [left, right] = &hosts;
                let uris = [(uris[0], left), (uris[1], right)]
                    .map(|(uri, host)| uri.replace("NETNS", &host.0));
                let started = start_switch(directory, &middle, &uris, idle, configuration);
                switch = Some(started);
            }
            Device::Steered => {
                let rules = ["left", "right"].map(|port| STEERING_RULES.replace("PORT", port));
                let uris = STEERED.map(str::to_owned);
                let rules = rules.concat();
                switch = Some(start_switch(directory, &middle, &uris, "interrupt", &rules));
            }
        }
        for (host, address) in hosts.iter().zip(ADDRESSES) {
            host.set_address(address);
        }
        let net = Self {
            _switch: switch,
            _ovs: ovs,
            hosts,
            _middle: middle,
        };
        wait_until("the hosts reach each other", DEADLINE, || {
            net.echo("udp", "10ms", "100ms").status.success()
        });
        net
    }

    /// Runs `quietwire application` between the hosts.
    fn application(&self, arguments: &[&str]) -> Output {
        let [left, right] = &self.hosts;
        let mut command = Command::new(QUIETWIRE);
        command.arg("application").args(arguments).arg("--json");
        command.args([
            "--client-namespace",
            &left.0,
            "--server-namespace",
            &right.0,
        ]);
        command.stdin(Stdio::null());
        command.output().expect("quietwire")
    }

    fn echo(&self, transport: &str, interval: &str, duration: &str) -> Output {
        let address = format!("{}:7007", ADDRESSES[1]);
        self.application(&[
            "echo",
            "--address",
            &address,
            "--transport",
            transport,
            "--interval",
            interval,
            "--duration",
            duration,
        ])
    }

    /// Returns a percentile and the longest of the round-trip times, µs.
    fn round_trip(&self, transport: &str, interval: &str, seconds: f64) -> [Option<f64>; 3] {
        let duration = format!("{:.0}ms", seconds * 1e3);
        let output = self.echo(transport, interval, &duration);
        let result = document(&output);
        ["p50_ns", "p99_ns", "max_ns"]
            .map(|key| result["round_trip"][key].as_f64().map(|ns| ns / 1e3))
    }

    /// Returns the data that arrive, bits per second.
    fn stream(&self, direction: &str, seconds: f64) -> Option<f64> {
        let duration = format!("{seconds:.0}s");
        let output = self.application(&[
            "iperf",
            "--address",
            ADDRESSES[1],
            "--direction",
            direction,
            "--duration",
            &duration,
        ]);
        document(&output)[0]["received_bps"].as_f64()
    }

    /// Returns the frames of 64 octets that arrive at the right host, per second.
    fn small_frames(&self, seconds: f64) -> Option<f64> {
        let [left, right] = &self.hosts;
        let mut server = right.command("iperf3");
        server.args(["--server", "--one-off", "--bind", ADDRESSES[1]]);
        let server = server.stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Running::spawn(server);
        let mut found = None;
        wait_until("iperf3 listens", DEADLINE, || {
            let result = client(left, &SMALL, seconds);
            if !result["error"].is_null() {
                let ended = server.0.try_wait().expect("a child");
                assert!(ended.is_none(), "iperf3: {}", result["error"]);
                return false;
            }
            found = arrived(&result);
            true
        });
        found
    }
}

/// Arguments of an iperf3 client that sends frames of 64 octets.
const SMALL: [&str; 5] = ["--udp", "--bitrate", "0", "--length", SMALL_DATA];

/// Runs an iperf3 client on a host, towards the right one or the guest. Returns what it prints.
fn client(host: &Namespace, arguments: &[&str], seconds: f64) -> Value {
    let mut client = host.command("iperf3");
    client.args(["--client", ADDRESSES[1], "--json"]);
    client.args(["--time", &format!("{seconds:.0}")]);
    document(&client.args(arguments).output().expect("iperf3"))
}

/// Returns the datagrams that arrive, per second, from the result of a client.
fn arrived(result: &Value) -> Option<f64> {
    let sum = &result["end"]["sum"];
    let number = |key: &str| sum[key].as_f64();
    let counts = number("packets").zip(number("lost_packets"));
    let ((sent, lost), seconds) = counts.zip(number("seconds"))?;
    Some((sent - lost) / seconds)
}

/// Connects a host with the namespace of the device by a veth pair.
fn lay_cable(middle: &Namespace, host: &Namespace, cable: &str) {
    let peer = ["peer", "name", "eth0", "netns", &host.0];
    middle.ip(&[&["link", "add", cable, "type", "veth"], &peer[..]].concat());
    middle.ip(&["link", "set", cable, "up"]);
}

/// Creates a tap for QEMU.
fn add_tap(middle: &Namespace, tap: &str) {
    middle.ip(&["tuntap", "add", "dev", tap, "mode", "tap", "vnet_hdr"]);
    middle.ip(&["link", "set", tap, "up"]);
}

/// Creates a Linux bridge with these interfaces.
fn add_bridge(middle: &Namespace, interfaces: &[&str]) {
    middle.ip(&["link", "add", "br0", "type", "bridge"]);
    middle.ip(&["link", "set", "br0", "up"]);
    for interface in interfaces {
        middle.ip(&["link", "set", interface, "master", "br0"]);
    }
}

/// The left host and a guest with a device between them.
struct GuestNet {
    // The guest ends before the device, and this before the namespaces are removed.
    guest: Running,
    _switch: Option<Running>,
    _ovs: Option<OpenVSwitch>,
    left: Namespace,
    _middle: Namespace,
}

impl GuestNet {
    fn start(directory: &Path, boot: &Boot, device: GuestDevice) -> Self {
        let (left, middle) = (Namespace::new("left"), Namespace::new("middle"));
        let socket = directory.join("guest.sock");
        let [cable, tap] = CABLES;
        let (mut switch, mut ovs) = (None, None);
        let card = match device {
            GuestDevice::LinuxBridge => {
                std::fs::create_dir(directory).expect("a new directory");
                lay_cable(&middle, &left, cable);
                add_tap(&middle, tap);
                add_bridge(&middle, &CABLES);
                Card::Tap(tap)
            }
            GuestDevice::OpenVSwitch(Datapath::Dpdk) => {
                lay_cable(&middle, &left, cable);
                let datapath = Datapath::Dpdk;
                let started = OpenVSwitch::on_interfaces(directory, &middle.0, datapath, &[cable]);
                started.add_vhost_user_client("guest", &socket);
                ovs = Some(started);
                Card::VhostUserServer(&socket)
            }
            GuestDevice::OpenVSwitch(datapath) => {
                lay_cable(&middle, &left, cable);
                add_tap(&middle, tap);
                let started = OpenVSwitch::on_interfaces(directory, &middle.0, datapath, &CABLES);
                ovs = Some(started);
                Card::Tap(tap)
            }
            GuestDevice::Quietwire => {
                let uris = [
                    format!("tap:eth0?netns={}", left.0),
                    format!("vhost:{}?tso=on", socket.display()),
                ];
                switch = Some(start_switch(directory, &middle, &uris, "interrupt", ""));
                Card::VhostUser(&socket)
            }
        };
        let guest = boot.start(middle.command(QEMU), directory, &card);
        left.set_address(ADDRESSES[0]);
        let mut net = Self {
            guest,
            _switch: switch,
            _ovs: ovs,
            left,
            _middle: middle,
        };
        let log = directory.join("qemu.log");
        wait_until("the host reaches the guest", BOOT, || {
            net.guest.assert_alive(&log);
            let result = client(&net.left, &["--connect-timeout", "1000"], 1.0);
            result["end"]["sum_received"].is_object()
        });
        net
    }

    /// Runs an iperf3 client towards the guest, and returns what it prints. For a moment after a test, the server does not listen, or is
    /// busy: the client is started again.
    fn client(&self, arguments: &[&str], seconds: f64) -> Value {
        let mut result = Value::Null;
        for _ in 0..ATTEMPTS {
            result = client(&self.left, arguments, seconds);
            if result["end"].is_object() && result["error"].is_null() {
                break;
            }
            eprintln!("iperf3 to the guest: {}", result["error"]);
            std::thread::sleep(PAUSE);
        }
        result
    }

    /// Returns percentiles and the longest of the round-trip times to the guest's kernel, µs.
    fn round_trip(&self, seconds: f64) -> [Option<f64>; 3] {
        let mut command = self.left.command(BUSYBOX);
        command.args(["ping", "-A", "-w", &format!("{seconds:.0}"), ADDRESSES[1]]);
        let output = command.output().expect("busybox");
        let text = String::from_utf8_lossy(&output.stdout);
        let time = |line: &str| {
            let (_, rest) = line.split_once("time=")?;
            let milliseconds: f64 = rest.split(' ').next()?.parse().ok()?;
            Some(milliseconds * 1e3)
        };
        let mut times: Vec<f64> = text.lines().filter_map(time).collect();
        times.sort_by(f64::total_cmp);
        [50, 99, 100].map(|percent| {
            let place = (times.len() * percent).div_ceil(100);
            times.get(place.saturating_sub(1)).copied()
        })
    }

    /// Measures one side in one turn.
    fn measure(&self, run: &mut Run, side: &str, seconds: f64) {
        for (name, case) in GUEST_CASES {
            let point = point(name, side);
            match case {
                GuestCase::Stream(is_from_guest) => {
                    let way = if is_from_guest {
                        &["--reverse"][..]
                    } else {
                        &[]
                    };
                    let result = self.client(way, seconds);
                    let received = &result["end"]["sum_received"]["bits_per_second"];
                    run.add(&point, Figure::ThroughputBps, received.as_f64());
                }
                GuestCase::Small => {
                    let rate = arrived(&self.client(&SMALL, seconds));
                    run.add(&point, Figure::ForwardedPps, rate);
                }
                GuestCase::Echo => {
                    let [p50, p99, longest] = self.round_trip(seconds);
                    run.add(&point, Figure::P50Us, p50);
                    run.add(&point, Figure::P99Us, p99);
                    run.add(&point, Figure::MaxUs, longest);
                }
            }
        }
    }
}

fn guest_figures(case: GuestCase) -> &'static [Figure] {
    match case {
        GuestCase::Stream(_) => &[Figure::ThroughputBps],
        GuestCase::Small => &[Figure::ForwardedPps],
        GuestCase::Echo => &[Figure::P50Us, Figure::P99Us, Figure::MaxUs],
    }
}

/// Guests, and the sides that connect them.
type Guests = (Boot, Vec<(&'static str, GuestDevice)>);

/// Prepares guests if the run measures them. The run records the reason if this machine has none, or lacks a side.
fn prepare_guests(run: &mut Run, options: &Options, directory: &Path) -> Option<Guests> {
    if !GUESTS.iter().any(|(name, _)| options.wants(name)) {
        return None;
    }
    let boot = Boot::make(directory, &format!("{}/24", ADDRESSES[1]));
    let mut guests = GUESTS.to_vec();
    guests.retain(|(name, device)| {
        let reason = match (&boot, device) {
            (Err(reason), _) => Some(reason.clone()),
            (Ok(_), GuestDevice::OpenVSwitch(datapath)) => absence(*datapath).map(str::to_owned),
            (Ok(_), GuestDevice::LinuxBridge | GuestDevice::Quietwire) => None,
        };
        let Some(reason) = reason else {
            return *name == GUEST_BRIDGE || options.wants(name);
        };
        let side = (*name).to_owned();
        run.absent.push(Absent { side, reason });
        false
    });
    let boot = boot.ok()?;
    for (side, device) in &guests {
        let own = guest_side(run, &boot, side, *device);
        run.sides.push(own);
        for (case, measured) in GUEST_CASES {
            run.expect(&point(case, side), guest_figures(measured));
        }
    }
    Some((boot, guests))
}

fn guest_side(run: &Run, boot: &Boot, name: &str, device: GuestDevice) -> Side {
    let mut side = match device {
        GuestDevice::LinuxBridge => common::side(
            name,
            &run.machine.kernel,
            "by the system",
            64,
            "a bridge, a veth pair and a tap of QEMU",
        ),
        GuestDevice::OpenVSwitch(datapath) => {
            let ports = match datapath {
                Datapath::Dpdk => "a veth pair and a vhost-user client port",
                Datapath::Kernel | Datapath::Userspace => "a veth pair and a tap of QEMU",
            };
            ovs_side(name, datapath, ports)
        }
        GuestDevice::Quietwire => {
            let mut side = switch::side(name);
            side.notes =
                "a bridge, a vhost-user port with tso=on and a tap; idle = interrupt".to_owned();
            side
        }
    };
    side.notes = format!("{}; {}", boot.accelerator(), side.notes);
    side
}

/// Returns the JSON that a program has printed; null if there is none.
fn document(output: &Output) -> Value {
    let found = serde_json::from_slice(&output.stdout);
    found.unwrap_or_else(|_| {
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        Value::Null
    })
}

/// Starts a switch with two ports in a bridge, and with a configuration file if there is text for it.
fn start_switch(
    directory: &Path,
    middle: &Namespace,
    uris: &[String; 2],
    idle: &str,
    configuration: &str,
) -> Running {
    std::fs::create_dir(directory).expect("a new directory");
    let control = directory.join("control.sock");
    let mut command = middle.command(QUIETWIRE);
    command.args(["switch", "run", "--memory-mib", "256", "--pinning", "none"]);
    command.args(["--idle", idle, "--bridge", "lan=left,right"]);
    if !configuration.is_empty() {
        let file = directory.join("switch.toml");
        std::fs::write(&file, configuration).expect("the new directory");
        command.arg("--config").arg(&file);
    }
    for (port, uri) in ["left", "right"].iter().zip(uris) {
        command.args(["--port", &format!("{port}={uri}")]);
    }
    command.arg("--control-socket").arg(&control);
    let log = directory.join("log");
    log_into(&mut command, &log);
    let mut running = Running::spawn(&mut command);
    wait_until("the switch answers", DEADLINE, || {
        running.assert_alive(&log);
        let mut show = Command::new(QUIETWIRE);
        show.args(["switch", "show", "ports", "--control-socket"]);
        show.arg(&control)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        control.exists() && show.status().is_ok_and(|status| status.success())
    });
    running
}

fn point(case: &str, side: &str) -> Point {
    let group = match (case.starts_with("iperf3"), case.contains("guest")) {
        (true, false) => GROUP_STREAMS,
        (false, false) => GROUP_TIMES,
        (true, true) => GROUP_GUEST_STREAMS,
        (false, true) => GROUP_GUEST_TIMES,
    };
    Point {
        group: group.to_owned(),
        case: case.to_owned(),
        size: None,
        side: side.to_owned(),
    }
}

/// Returns true if a case is measured with a device.
fn is_measured(device: Device, case: Case) -> bool {
    match device {
        Device::Sleeping(_) => matches!(case, Case::Silence),
        Device::Merging(_) => matches!(case, Case::Small),
        _ => true,
    }
}

fn figures(case: Case) -> &'static [Figure] {
    match case {
        Case::Stream(_) => &[Figure::ThroughputBps],
        Case::Small => &[Figure::ForwardedPps],
        Case::Echo(_) => &[Figure::P50Us, Figure::P99Us, Figure::MaxUs],
        Case::Silence => &[Figure::P50Us, Figure::MaxUs, Figure::BeyondBridgeUs],
    }
}

/// Measures one side in one turn. Returns the median of the first round trip after a silence, µs.
fn measure(run: &mut Run, net: &Net, (side, device): (&str, Device), seconds: f64) -> Option<f64> {
    let mut after_silence = None;
    for (name, case) in CASES {
        if !is_measured(device, case) {
            continue;
        }
        let point = point(name, side);
        match case {
            Case::Stream(direction) => {
                let stream = net.stream(direction, seconds);
                run.add(&point, Figure::ThroughputBps, stream);
            }
            Case::Small => {
                // Goals compare forwarded frames; those that arrive are forwarded.
                let rate = net.small_frames(seconds);
                run.add(&point, Figure::ForwardedPps, rate);
            }
            Case::Echo(transport) => {
                let [p50, p99, longest] = net.round_trip(transport, "1ms", seconds);
                run.add(&point, Figure::P50Us, p50);
                run.add(&point, Figure::P99Us, p99);
                run.add(&point, Figure::MaxUs, longest);
            }
            Case::Silence => {
                // Enough requests for a median.
                let [p50, _, longest] = net.round_trip("udp", "50ms", seconds.max(2.0));
                run.add(&point, Figure::P50Us, p50);
                run.add(&point, Figure::MaxUs, longest);
                after_silence = p50;
            }
        }
    }
    after_silence
}

/// Removes sides that this machine does not have, and records the reasons in the run.
fn available(run: &mut Run, options: &Options) -> Vec<(&'static str, Device)> {
    let mut devices = DEVICES.to_vec();
    devices.retain(|(name, device)| {
        let reason = match device {
            Device::OpenVSwitch(datapath) => absence(*datapath),
            _ => None,
        };
        let Some(reason) = reason else {
            return *name == BRIDGE || options.wants(name);
        };
        run.absent.push(Absent {
            side: (*name).to_owned(),
            reason: reason.to_owned(),
        });
        false
    });
    devices
}

/// Returns the reason why this machine has no Open vSwitch with a datapath.
fn absence(datapath: Datapath) -> Option<&'static str> {
    if !ovs::is_installed() {
        return Some("Open vSwitch is not installed");
    }
    let is_absent = datapath == Datapath::Kernel && !has_kernel_datapath();
    is_absent.then_some("the kernel has no module openvswitch")
}

fn has_kernel_datapath() -> bool {
    let mut load = Command::new("modprobe");
    load.arg("openvswitch").stderr(Stdio::null());
    let _ = load.status();
    Path::new("/sys/module/openvswitch").exists()
}

fn main() {
    let options = Options::read();
    let _machine = Machine::prepare(&options);
    let rounds = options.rounds(ROUNDS);
    let seconds = options.seconds_or(SECONDS).ceil().max(1.0);
    let mut run = common::begin(&options, "kernel_ports", rounds, seconds);
    let control = common::congestion_control();
    let shared = "No thread is pinned: hosts and devices share all CPUs.";
    run.helpers = format!("{shared} TCP's congestion control: {control}.");
    let devices = available(&mut run, &options);
    add_sides(&mut run, &devices);
    for (name, case) in CASES {
        for (side, device) in &devices {
            if !is_measured(*device, case) {
                continue;
            }
            let figures = figures(case).iter().copied();
            // The bridge is not compared with itself.
            let figures: Vec<Figure> = figures
                .filter(|figure| *side != BRIDGE || *figure != Figure::BeyondBridgeUs)
                .collect();
            run.expect(&point(name, side), &figures);
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let guests = prepare_guests(&mut run, &options, directory.path());
    let mut runs = 0;
    let mut turns = options.turns();
    for _ in 0..rounds {
        let mut after_silence: Vec<(&str, Option<f64>)> = Vec::new();
        for index in turns.order(devices.len()) {
            let (side, device) = devices[index];
            runs += 1;
            let own: PathBuf = directory.path().join(runs.to_string());
            let cases = CASES.iter().filter(|(_, case)| is_measured(device, *case));
            let points: Vec<Point> = cases.map(|(name, _)| point(name, side)).collect();
            run.turn(&points, |run| {
                let net = Net::start(&own, device);
                // Announcements of new interfaces have passed.
                std::thread::sleep(Duration::from_millis(500));
                let first = measure(run, &net, devices[index], seconds);
                if is_measured(device, Case::Silence) {
                    after_silence.push((side, first));
                }
            });
        }
        let of_bridge = after_silence.iter().find(|(side, _)| *side == BRIDGE);
        let of_bridge = of_bridge.and_then(|(_, p50)| *p50);
        for (side, p50) in after_silence.iter().filter(|(side, _)| *side != BRIDGE) {
            let beyond = p50.zip(of_bridge).map(|(own, bridge)| own - bridge);
            let (name, _) = CASES[CASES.len() - 1];
            run.add(&point(name, side), Figure::BeyondBridgeUs, beyond);
        }
        if let Some((boot, guests)) = &guests {
            for index in turns.order(guests.len()) {
                let (side, device) = guests[index];
                runs += 1;
                let own = directory.path().join(runs.to_string());
                let points = GUEST_CASES.map(|(name, _)| point(name, side));
                run.turn(&points, |run| {
                    GuestNet::start(&own, boot, device).measure(run, side, seconds);
                });
            }
        }
    }
    common::finish(&options, run);
}

fn add_sides(run: &mut Run, devices: &[(&str, Device)]) {
    let kernel = run.machine.kernel.clone();
    for (name, device) in devices {
        run.sides.push(match device {
            Device::LinuxBridge => common::side(
                name,
                &kernel,
                "by the system",
                64,
                "a bridge and two veth pairs; burst of the kernel's NAPI",
            ),
            Device::OpenVSwitch(datapath) => ovs_side(name, *datapath, "veth pairs"),
            _ => {
                let idle = match device {
                    Device::Sleeping(_) => "sleep",
                    _ => "interrupt",
                };
                let mut side = switch::side(name);
                side.notes = format!(
                    "a bridge; idle = {idle}; rings of 1024 descriptors; offloads as the kernel has them"
                );
                if *device == Device::Steered {
                    side.notes += "; three steering rules for each port";
                }
                side
            }
        });
    }
}

/// Returns Open vSwitch between these ports as a side of a run.
fn ovs_side(name: &str, datapath: Datapath, ports: &str) -> Side {
    let with = match datapath {
        Datapath::Dpdk => "with",
        Datapath::Kernel | Datapath::Userspace => "without",
    };
    common::side(
        name,
        &common::package_version("openvswitch-switch-dpdk"),
        "by Debian",
        32,
        &format!(
            "datapath {} {with} DPDK, {ports}, userspace-tso-enable",
            datapath.name()
        ),
    )
}
