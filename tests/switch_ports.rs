// SPDX-License-Identifier: Apache-2.0
//! Each kind of port carries frames: `quietwire generate` on one side, `quietwire switch run` between, all of it inside a
//! network namespace of its own. Wants root, as both do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

const DEADLINE: Duration = Duration::from_secs(60);

/// A network namespace with two veth pairs: v0 to v1, v2 to v3.
struct Namespace {
    name: String,
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

impl Namespace {
    fn new(kind: &str) -> Self {
        let name = format!("qw-{kind}-{}", std::process::id());
        run(Command::new("ip").args(["netns", "add", &name]));
        let namespace = Self { name };
        for [a, b] in [["v0", "v1"], ["v2", "v3"]] {
            namespace.ip(&["link", "add", a, "type", "veth", "peer", "name", b]);
            for end in [a, b] {
                namespace.ip(&["link", "set", end, "up"]);
            }
        }
        namespace
    }

    fn ip(&self, arguments: &[&str]) {
        run(Command::new("ip").args(["-n", &self.name]).args(arguments));
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command.stdin(Stdio::null());
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip")
            .args(["netns", "del", &self.name])
            .status();
    }
}

/// A switch that ends with this value.
struct Switch(Child);

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let began = Instant::now();
        while began.elapsed() < DEADLINE && matches!(self.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Carries frames from one port of the tester through the switch to the other, both ways.
fn carries(kind: &str, switch_uris: [&str; 2], tester_uris: [&str; 2]) {
    let namespace = Namespace::new(kind);
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let full = |uri: &str| uri.replace("DIR", &directory.path().display().to_string());
    let log = path("log");
    let child = namespace
        .command(env!("CARGO_BIN_EXE_quietwire"))
        .args([
            "switch",
            "run",
            "--memory-mib",
            "192",
            "--huge-pages",
            "never",
        ])
        .args(["--port", &format!("a={}", full(switch_uris[0]))])
        .args(["--port", &format!("b={}", full(switch_uris[1]))])
        .args([
            "--cross-connect",
            "a,b",
            "--control-socket",
            &path("control.sock"),
        ])
        .stdout(Stdio::null())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let mut switch = Switch(child);
    let began = Instant::now();
    let show = |subject: &str| {
        Command::new(env!("CARGO_BIN_EXE_quietwire"))
            .args(["switch", "show", subject, "--json", "--control-socket"])
            .arg(path("control.sock"))
            .output()
            .unwrap()
    };
    while !show("ports").status.success() {
        let said = || std::fs::read_to_string(&log).unwrap();
        assert!(switch.0.try_wait().unwrap().is_none(), "{kind}: {}", said());
        assert!(began.elapsed() < DEADLINE, "{kind}: {}", said());
        std::thread::sleep(Duration::from_millis(20));
    }
    let text = run(namespace.command(env!("CARGO_BIN_EXE_quietwire")).args([
        "generate",
        "--port",
        &full(tester_uris[0]),
        "--port",
        &full(tester_uris[1]),
        "--rate",
        "2000",
        "--duration",
        "500ms",
        "--warm-up",
        "0s",
        "--drain",
        "2s",
        "--direction",
        "both",
        "--memory-mib",
        "192",
        "--no-huge",
        "--realtime-priority",
        "0",
        "--json",
    ]));
    let result: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        result["received_frames"], result["offered_frames"],
        "{kind}: {result}"
    );
    let ports: serde_json::Value = serde_json::from_slice(&show("ports").stdout).unwrap();
    for port in ports.as_array().unwrap() {
        let (received, sent) = (port["rx_frames"].as_u64(), port["tx_frames"].as_u64());
        assert!(received >= Some(500) && sent >= Some(500), "{kind}: {port}");
    }
}

#[test]
fn vhost_carries_frames_of_virtio_user() {
    carries(
        "vhost",
        ["vhost:DIR/a.sock", "vhost:DIR/b.sock"],
        [
            "virtio-user:DIR/a.sock?role=client",
            "virtio-user:DIR/b.sock?role=client",
        ],
    );
}

#[test]
fn af_packet_carries_frames_of_the_kernel() {
    carries(
        "packet",
        ["af-packet:v0", "af-packet:v2"],
        ["af-packet:v1", "af-packet:v3"],
    );
}

#[test]
fn af_xdp_carries_frames_of_the_kernel() {
    carries(
        "xdp",
        ["af-xdp:v0", "af-xdp:v2"],
        ["af-xdp:v1", "af-xdp:v3"],
    );
}

#[test]
fn kinds_of_ports_can_be_mixed() {
    carries(
        "mixed",
        ["memif:DIR/a.sock?role=server", "af-packet:v0"],
        ["memif:DIR/a.sock?role=client", "af-packet:v1"],
    );
}
