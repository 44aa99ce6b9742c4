// SPDX-License-Identifier: Apache-2.0
//! Tests of the real binary between two network namespaces: throughput by iperf3, round trips of the echo service, and no
//! remains, even if it is killed. Requires root.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use quietwire_base::wait_until;
use serde_json::Value;

const DEADLINE: Duration = Duration::from_secs(60);
const SERVER: &str = "10.213.7.2";

fn ip(words: &[&str]) {
    let output = Command::new("ip").args(words).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "ip {words:?}: {printed}");
}

/// Two namespaces connected by a cable, both removed with this value.
struct Namespaces {
    left: String,
    right: String,
}

impl Namespaces {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = |side: &str| format!("qwapp-{side}-{}-{number}", std::process::id());
        let namespaces = Self {
            left: name("left"),
            right: name("right"),
        };
        let (left, right) = (namespaces.left.as_str(), namespaces.right.as_str());
        ip(&["netns", "add", left]);
        ip(&["netns", "add", right]);
        ip(&[
            "-n", left, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns",
            right,
        ]);
        for (namespace, address) in [(left, "10.213.7.1/24"), (right, "10.213.7.2/24")] {
            ip(&["-n", namespace, "address", "add", address, "dev", "cable"]);
            ip(&["-n", namespace, "link", "set", "cable", "up"]);
        }
        namespaces
    }

    fn application(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quietwire"));
        command.arg("application").args(words);
        command.args([
            "--server-namespace",
            &self.right,
            "--client-namespace",
            &self.left,
        ]);
        command
    }

    /// Processes in either namespace.
    fn processes(&self) -> Vec<String> {
        let inside = |name: &String| {
            let output = Command::new("ip").args(["netns", "pids", name]).output();
            String::from_utf8_lossy(&output.unwrap().stdout)
                .lines()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        [inside(&self.left), inside(&self.right)].concat()
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in [&self.left, &self.right] {
            let deleted = Command::new("ip").args(["netns", "delete", name]).status();
            assert!(deleted.is_ok_and(|status| status.success()) || std::thread::panicking());
        }
    }
}

fn json(output: &Output) -> Value {
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn until(what: &str, is_so: impl FnMut() -> bool) {
    assert!(wait_until(DEADLINE, is_so), "{what}");
}

#[test]
fn data_go_up_and_down_between_namespaces() {
    let namespaces = Namespaces::new();
    let output = namespaces
        .application(&[
            "iperf",
            "--address",
            SERVER,
            "--duration",
            "1s",
            "--streams",
            "2",
            "--json",
        ])
        .output()
        .unwrap();
    let results = json(&output);
    let ways: Vec<&str> = results
        .as_array()
        .unwrap()
        .iter()
        .map(|result| {
            assert!(
                result["received_octets"].as_u64().unwrap() > 100_000,
                "{result}"
            );
            assert!(result["received_bps"].as_f64().unwrap() > 0.0, "{result}");
            result["direction"].as_str().unwrap()
        })
        .collect();
    assert_eq!(ways, ["up", "down"]);
    assert_eq!(namespaces.processes(), Vec::<String>::new());
}

#[test]
fn round_trips_are_reported_over_udp_and_tcp() {
    let namespaces = Namespaces::new();
    for transport in ["udp", "tcp"] {
        let address = format!("{SERVER}:7007");
        let output = namespaces
            .application(&[
                "echo",
                "--address",
                &address,
                "--transport",
                transport,
                "--duration",
                "500ms",
                "--interval",
                "2ms",
                "--json",
            ])
            .output()
            .unwrap();
        let result = json(&output);
        let figure = |name: &str| result["round_trip"][name].as_f64().unwrap();
        assert!(result["replies"].as_u64().unwrap() > 0, "{result}");
        assert_eq!(result["round_trip"]["samples"], result["replies"]);
        assert!(
            0.0 < figure("min_ns") && figure("min_ns") <= figure("mean_ns"),
            "{result}"
        );
        assert!(figure("mean_ns") <= figure("max_ns"), "{result}");
    }
    // No service at another port.
    let silent = Command::new(env!("CARGO_BIN_EXE_quietwire"))
        .args([
            "application",
            "echo",
            "--address",
            "10.213.7.2:9",
            "--transport",
            "tcp",
        ])
        .args(["--client-namespace", &namespaces.left, "--timeout", "2s"])
        .output()
        .unwrap();
    assert_eq!(silent.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&silent.stderr).contains("cannot reach"));
}

/// A process that is terminated with this value.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let killed = self.0.kill().and_then(|()| self.0.wait());
        assert!(killed.is_ok() || std::thread::panicking());
    }
}

#[test]
fn nothing_is_left_behind() {
    for signal in ["-INT", "-KILL"] {
        let namespaces = Namespaces::new();
        let mut running = Ended(
            namespaces
                .application(&["iperf", "--address", SERVER, "--duration", "60s"])
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        );
        let is_at_work = || {
            namespaces.processes().len() >= 2
                && namespaces.processes().iter().all(|process| {
                    let name = fs::read_to_string(format!("/proc/{process}/comm"));
                    name.is_ok_and(|name| name.trim() == "iperf3")
                })
        };
        until("iperf3 runs on both sides", is_at_work);
        let process = running.0.id().to_string();
        let sent = Command::new("kill").args([signal, &process]).status();
        assert!(sent.unwrap().success());
        until("the command ends", || {
            running.0.try_wait().unwrap().is_some()
        });
        until("iperf3 ends with the command", || {
            namespaces.processes().is_empty()
        });
        if signal == "-INT" {
            assert_eq!(running.0.wait().unwrap().code(), Some(1));
        }
    }
}

/// Checks that entering a namespace requires root.
#[test]
fn only_root_enters_namespaces() {
    const LACKS: i32 = 3;
    let namespaces = Namespaces::new();
    // The user may not read the directory of the build.
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("quietwire");
    fs::copy(env!("CARGO_BIN_EXE_quietwire"), &program).unwrap();
    for path in [directory.path(), program.as_path()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for words in [
        &["iperf", "--address", SERVER] as &[&str],
        &["echo", "--address", "10.213.7.2:7007"],
    ] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--clear-groups"]);
        command.arg(&program).arg("application").args(words);
        command.args(["--client-namespace", &namespaces.left]);
        let output = command.output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(LACKS), "{printed}");
        assert!(printed.contains("requires root"), "{printed}");
    }
}
