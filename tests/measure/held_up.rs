// SPDX-License-Identifier: Apache-2.0
//! A tester that is stopped or held up reports this, and charges nothing to the device.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use quietwire_base::testing::KillOnDrop;
use serde_json::{Value, json};

use super::{DEADLINE, FAILED, Workspace, text};

/// A process that is killed with this value.
struct Running(KillOnDrop);

impl Running {
    fn until(&mut self, what: &str, mut done: impl FnMut(u32) -> bool) {
        let began = Instant::now();
        while !done(self.0.id()) {
            assert!(
                began.elapsed() < DEADLINE,
                "timeout after {DEADLINE:?}: {what}"
            );
            assert!(
                matches!(self.0.try_wait(), Ok(None)),
                "{what}: the process has ended"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until it has ended by itself.
    fn ended(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < DEADLINE, "the process did not end");
            match self.0.try_wait().unwrap() {
                Some(status) => return status,
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }
}

fn has_tester_thread(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
        return false;
    };
    threads.flatten().any(|thread| {
        let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        name.starts_with("qw-tester")
    })
}

#[test]
fn a_stalled_tester_reports_it_and_ends() {
    let workspace = Workspace::new();
    let out = workspace.path("out.json");
    let mut command =
        workspace.quietwire(&["generate", "--port", "null:", "--rate", "1k", "--json"]);
    command.args(["--memory-mib", "64", "--no-huge", "--isolation", "none"]);
    command.args(["--duration", "500ms", "--warm-up", "0s", "--drain", "0s"]);
    command.stdout(File::create(&out).unwrap());
    command.stderr(File::create(workspace.path("said")).unwrap());
    let mut running = Running(KillOnDrop(command.spawn().unwrap()));
    running.until("it sends", has_tester_thread);
    running.0.signal(Signal::SIGSTOP).unwrap();
    // Stopped for this long: more than a second beyond its deadline.
    let held = Instant::now();
    running.until("the tester was stopped", |_| {
        held.elapsed() > Duration::from_secs(2)
    });
    running.0.signal(Signal::SIGCONT).unwrap();
    let status = running.ended();
    let printed = fs::read_to_string(workspace.path("said")).unwrap();
    assert_eq!(status.code(), Some(FAILED), "{printed}");
    assert_eq!(
        printed,
        "quietwire: the trial is invalid because the tester failed, so it has no result for the device (--attempts N repeats it)\n"
    );
    let result: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
    let reasons = result["validity"]["reasons"].to_string();
    assert_eq!(result["validity"]["state"], "invalid");
    assert!(
        reasons.contains("after its deadline: the tester stalled"),
        "{reasons}"
    );
    assert!(result["health"]["overrun_ns"].as_u64().unwrap() > 1_000_000_000);
}

/// A device that sends received frames after 300 ms, between the tester's two ports: the switch, which drops frames that do
/// not fit the tester's ring, and the process that holds the frames.
struct Delaying {
    switch: Running,
    device: Running,
}

/// Time for which the device holds a frame, microseconds: longer than the tester is stopped.
const HELD_US: u64 = 300_000;
/// Frames that wait for the device, or for the switch, in each ring between them: those of 0.8 s. Both share their CPUs with other tests.
const RING: u32 = 16_384;

impl Delaying {
    fn start(workspace: &Workspace) -> Self {
        let uri = |name: &str, role: &str| {
            format!("memif:{}?role={role}", workspace.path(name).display())
        };
        let mut command = workspace.quietwire(&["switch", "run", "--huge-pages", "never"]);
        command.args(["--memory-mib", "128", "--idle", "yield"]);
        for name in ["t0", "t1", "d0", "d1"] {
            command.args(["--port", &format!("{name}={}", uri(name, "server"))]);
        }
        command.args(["--cross-connect", "t0,d0", "--cross-connect", "t1,d1"]);
        command
            .arg("--control-socket")
            .arg(workspace.path("control"));
        command.stderr(File::create(workspace.path("switch-said")).unwrap());
        let mut switch = Running(KillOnDrop(command.stdout(Stdio::null()).spawn().unwrap()));
        switch.until("the switch has its ports", |_| {
            ["t0", "t1", "d0", "d1", "control"]
                .iter()
                .all(|name| workspace.path(name).exists())
        });
        let options = json!({
            "ports": [uri("d0", "client"), uri("d1", "client")],
            "cpu": 0,
            "ring-size": RING,
            "frame-size-max": 1518,
            "memory-mib": 512,
            "uses-huge-pages": false,
        });
        let mut command =
            workspace.quietwire(&["tester", "self-test-device", &options.to_string()]);
        command.stderr(File::create(workspace.path("device-said")).unwrap());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut replies = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut ready = || assert_eq!(replies.next().unwrap().unwrap(), "\"ready\"");
        ready();
        let script = json!({ "seed": 1, "delay_us": HELD_US, "rules": [] });
        let begin = json!({ "begin": { "trial": 1, "script": script } });
        writeln!(child.stdin.as_mut().unwrap(), "{begin}").unwrap();
        ready();
        Self {
            switch,
            device: Running(KillOnDrop(child)),
        }
    }

    /// Returns what the switch says of its ports.
    fn ports(&self, workspace: &Workspace) -> Value {
        let show = ["switch", "show", "ports", "--json", "--control-socket"];
        let mut command = workspace.quietwire(&show);
        let output = command.arg(workspace.path("control")).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns a counter of one port of the switch.
    fn count(&self, workspace: &Workspace, port: &str, key: &str) -> u64 {
        let ports = self.ports(workspace);
        let port = ports
            .as_array()
            .unwrap()
            .iter()
            .find(|it| it["name"] == port);
        let port = port.unwrap();
        let counter = port.get(key).or_else(|| port["drops"].get(key));
        counter.unwrap().as_u64().unwrap()
    }
}

#[test]
fn frames_that_a_stopped_tester_does_not_receive_are_no_loss_of_the_device() {
    let workspace = Workspace::new();
    let out = workspace.path("out.json");
    let mut device = Delaying::start(&workspace);
    let mut command = workspace.quietwire(&["generate", "--rate", "20k", "--direction", "one-way"]);
    for name in ["t0", "t1"] {
        let uri = format!("memif:{}?role=client", workspace.path(name).display());
        command.args(["--port", &uri]);
    }
    // The ring is full after 13 ms.
    command.args(["--receive-ring-size", "256", "--duration", "2s"]);
    command.args(["--warm-up", "0s", "--drain", "2s", "--json"]);
    command.args(["--memory-mib", "64", "--no-huge", "--isolation", "none"]);
    command.stdout(File::create(&out).unwrap());
    command.stderr(File::create(workspace.path("said")).unwrap());
    let mut running = Running(KillOnDrop(command.spawn().unwrap()));
    // More frames than those of the preparation.
    running.until("frames come back", |_| {
        device.count(&workspace, "t1", "tx_frames") > 4000
    });
    running.0.signal(Signal::SIGSTOP).unwrap();
    let (before, held) = (device.count(&workspace, "t1", "tx_full"), Instant::now());
    // Other tests may hold up the switch at the same time: frames that come later in one burst then look like received ones of the stop.
    running.until("the ring is full", |_| {
        held.elapsed() > Duration::from_millis(150)
            && device.count(&workspace, "t1", "tx_full") > before
    });
    running.0.signal(Signal::SIGCONT).unwrap();
    let status = running.ended();
    let printed = fs::read_to_string(workspace.path("said")).unwrap();
    assert_eq!(status.code(), Some(FAILED), "{printed}");
    let result: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
    let lost = result["lost_frames"].as_u64().unwrap();
    assert!(lost > 0, "{result}");
    // The switch and the device lost no frame: all lost frames found the tester's ring full, or were not taken from it while the switch
    // waited for its CPU.
    let full = device.count(&workspace, "t1", "tx_full");
    let testers = result["ports"].as_array().unwrap().iter();
    let refused: u64 = testers
        .map(|port| port["refused_frames"].as_u64().unwrap())
        .sum();
    let ports = device.ports(&workspace);
    assert!(full > 0, "{ports} {result}");
    assert_eq!(full + refused, lost, "{ports} {result}");
    let reasons = result["validity"]["reasons"].as_array().unwrap();
    let reason = reasons.iter().find(|reason| {
        let text = reason["text"].as_str().unwrap();
        text.contains("lost frames found its receive rings full")
    });
    let reason = reason.unwrap_or_else(|| panic!("{result}"));
    // The host may have stalled the tester for longer than it was stopped.
    let gap = |key: &str| result["health"][key].as_u64().unwrap();
    let is_hosts = gap("longest_host_gap_ns") * 2 >= gap("longest_gap_ns");
    let cause = if is_hosts {
        "host-stall"
    } else {
        "receive-gap"
    };
    assert_eq!(reason["cause"], cause, "{result}");
    // Both ran the whole time.
    for running in [&mut device.switch, &mut device.device] {
        assert!(matches!(running.0.try_wait(), Ok(None)));
    }
}
