// SPDX-License-Identifier: Apache-2.0
//! Tests of `quietwire generate`, `measure` and `tester calibrate` with the real binary: the CPUs of tester and device are
//! isolated while they run, and the machine is restored after them, for any kind of end. Requires root and two CPUs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::Signal;
use quietwire_base::testing::{KillOnDrop, take_turn};
use quietwire_base::wait_until;
use quietwire_host::apply::{STATE_DIRECTORY, Target, status};
use quietwire_host::cpuset::Cpusets;
use quietwire_host::files::Disk;
use quietwire_host::threads::{online_cpus, threads_of};
use quietwire_host::{CpuId, CpuList};
use serde_json::Value;

const FAILED: i32 = 1;
const BAD_INPUT: i32 = 2;
const DEADLINE: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// CPU of the switch.
const DEVICE: CpuId = CpuId(1);
const MEMORY: [&str; 3] = ["--memory-mib", "64", "--no-huge"];

fn until(what: &str, done: impl FnMut() -> bool) {
    let is_done = wait_until(DEADLINE, done);
    assert!(is_done, "timeout after {DEADLINE:?}: {what}");
}

/// Returns the number of applied changes, from the partition's journal.
fn changes() -> usize {
    let target = Target {
        files: &Disk,
        storage: &Disk,
        root: "/".into(),
        state_directory: STATE_DIRECTORY.into(),
    };
    status(&target).unwrap().changes.len()
}

/// Returns everything that an isolation changes, by file: settings, interrupts, CPU sets.
fn machine() -> BTreeMap<PathBuf, String> {
    let mut files: Vec<PathBuf> = [
        "/proc/irq/default_smp_affinity",
        "/proc/sys/kernel/sched_rt_runtime_us",
        "/sys/devices/virtual/workqueue/cpumask",
    ]
    .map(PathBuf::from)
    .to_vec();
    let below = |directory: &Path| -> Vec<PathBuf> {
        let listed = fs::read_dir(directory).unwrap();
        listed.map(|entry| entry.unwrap().path()).collect()
    };
    let interrupts = below(Path::new("/proc/irq"));
    files.extend(interrupts.iter().map(|irq| irq.join("smp_affinity_list")));
    let sets = Cpusets::find(Path::new("/")).unwrap().mount;
    files.push(sets.join("cpuset.sched_load_balance"));
    let mut found: BTreeMap<PathBuf, String> = files
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap_or_default();
            (path, text)
        })
        .collect();
    let ours = below(&sets).into_iter().filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("quietwire-")
    });
    found.extend(ours.map(|path| (path, "a CPU set".to_owned())));
    found
}

/// Returns the URI of a memif port whose socket is in a directory.
fn memif(directory: &tempfile::TempDir, name: &str, role: &str) -> String {
    let socket = directory.path().join(name).with_extension("sock");
    format!("memif:{}?role={role}", socket.display())
}

/// A directory with a switch between two memif ports, that forwards on one CPU.
struct Workspace {
    directory: tempfile::TempDir,
    switch: Child,
}

impl Drop for Workspace {
    fn drop(&mut self) {
        let _ = self.switch.kill();
        let _ = self.switch.wait();
        // Remains of a failed test.
        let _ = self
            .quietwire(&["lab", "clean", "--state-directory", "lab"])
            .status();
    }
}

impl Workspace {
    fn new() -> Self {
        let online = online_cpus(Path::new("/")).unwrap();
        assert!(
            online.contains(DEVICE),
            "this test requires two CPUs, but {online} are online"
        );
        let directory = tempfile::tempdir().unwrap();
        let log = File::create(directory.path().join("switch.log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_quietwire"));
        command
            .args([
                "switch",
                "run",
                "--cross-connect",
                "a,b",
                "--forwarding-cpus",
            ])
            .arg(DEVICE.to_string())
            .arg(format!("--port=a={}", memif(&directory, "a", "server")))
            .arg(format!("--port=b={}", memif(&directory, "b", "server")))
            .args(["--control-socket", "control.sock", "--memory-mib", "64"])
            .args(["--huge-pages", "never"])
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let switch = command.spawn().unwrap();
        let mut workspace = Self { directory, switch };
        until("the switch comes up", || {
            let ended = workspace.switch.try_wait().unwrap();
            let log = || fs::read_to_string(workspace.path("switch.log")).unwrap();
            assert!(ended.is_none(), "the switch ended: {}", log());
            workspace.forwarding().is_some() && workspace.path("control.sock").exists()
        });
        workspace
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn quietwire(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quietwire"));
        command
            .args(arguments)
            .current_dir(self.directory.path())
            .env("XDG_STATE_HOME", self.path("state"))
            .stdin(Stdio::null());
        command
    }

    /// Returns a tester command over both ports of the switch.
    fn tester(&self, words: &[&str], more: &[&str]) -> Command {
        let mut command = self.quietwire(words);
        command
            .args(["--port", &memif(&self.directory, "a", "client")])
            .args(["--port", &memif(&self.directory, "b", "client")])
            .args(["--state-directory", "lab", "--json"])
            .args(MEMORY)
            .args(more);
        command
    }

    fn generate(&self, more: &[&str]) -> Command {
        self.tester(&["generate", "--rate", "1k", "--warm-up", "0s"], more)
    }

    /// Returns the CPUs of the switch's forwarding thread; `None` before it exists.
    fn forwarding(&self) -> Option<CpuList> {
        let threads = threads_of(Path::new("/"), self.switch.id()).unwrap();
        let thread = threads
            .iter()
            .find(|thread| thread.name.starts_with("qw-fwd"));
        Some(thread?.cpus.clone())
    }

    fn set_of_switch(&self) -> PathBuf {
        let pid = i32::try_from(self.switch.id()).unwrap();
        let sets = Cpusets::find(Path::new("/")).unwrap();
        sets.set_of(Path::new("/"), pid).unwrap()
    }

    /// Starts a tester that would run for minutes, and waits until everything is isolated and its trial runs.
    fn isolated(&self) -> Running {
        self.isolated_with(&["--duration", "10m"])
    }

    /// The same with these arguments.
    fn isolated_with(&self, more: &[&str]) -> Running {
        let arguments = [&["--realtime-priority", "0"], more].concat();
        let mut command = self.generate(&arguments);
        command
            .stdout(Stdio::null())
            .stderr(File::create(self.path("said")).unwrap());
        let mut running = Running(KillOnDrop(command.spawn().unwrap()));
        let pid = running.0.id();
        until("the trial runs", || {
            let printed = || fs::read_to_string(self.path("said")).unwrap_or_default();
            assert!(
                matches!(running.0.try_wait(), Ok(None)),
                "the tester ended: {}",
                printed()
            );
            threads_of(Path::new("/"), pid).is_ok_and(|threads| {
                threads
                    .iter()
                    .any(|thread| thread.name.starts_with("qw-tester"))
            })
        });
        assert!(changes() > 0);
        running
    }
}

/// A process that is killed with this value.
struct Running(KillOnDrop);

impl Running {
    fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        until("it ends", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", printed(output)))
}

/// Checks the result's record of a completed isolation.
fn check_record(record: &Value) {
    let cpus = |key: &str| -> CpuList { record[key].as_str().unwrap().parse().unwrap() };
    assert!(
        ["isolated", "full"].contains(&record["isolation"].as_str().unwrap()),
        "{record}"
    );
    let parts = record["isolation_parts"].as_array().unwrap();
    assert!(parts.contains(&"isolated".into()), "{record}");
    assert_eq!(cpus("tester_cpus").to_string(), "0");
    assert_eq!(cpus("device_cpus").to_string(), "1");
    assert_eq!(record["realtime_priority"], 50);
    assert!(
        record["commands"]
            .to_string()
            .contains("default_smp_affinity"),
        "{record}"
    );
    let online = online_cpus(Path::new("/")).unwrap();
    // Two CPUs: everything else on the machine runs on the tester's CPU.
    let (isolated, lines) = if online.len() == 2 {
        ("1", 1)
    } else {
        ("0-1", 0)
    };
    assert_eq!(cpus("isolated_cpus").to_string(), isolated);
    let left_out = record["not_isolated"].as_array().unwrap();
    assert_eq!(left_out.len(), lines, "{record}");
}

#[test]
fn tester_and_device_are_isolated_while_it_runs_and_nothing_stays() {
    let _turn = take_turn().unwrap();
    let workspace = Workspace::new();
    let (before, set, forwarding) = (machine(), workspace.set_of_switch(), workspace.forwarding());
    let mut command = workspace.generate(&["--duration", "1s"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running(KillOnDrop(command.spawn().unwrap()));
    until("CPUs are isolated", || {
        assert!(matches!(running.0.try_wait(), Ok(None)), "it ended");
        workspace.set_of_switch() != set
    });
    // The switch forwards on the same CPU as before, and other processes may not use it.
    until("the device has its CPU again", || {
        workspace.forwarding() == forwarding
    });
    assert_ne!(machine(), before);
    let realtime = PathBuf::from("/proc/sys/kernel/sched_rt_runtime_us");
    until("real-time threads are not throttled", || {
        machine()[&realtime].trim() == "-1"
    });
    running.ended();
    let mut out = Vec::new();
    std::io::Read::read_to_end(running.0.stdout.as_mut().unwrap(), &mut out).unwrap();
    let result: Value = serde_json::from_slice(&out).unwrap();
    check_record(&result["isolation"]);
    assert_eq!(result["health"]["realtime"], true, "{result}");
    assert_eq!(machine(), before);
    assert_eq!(
        (workspace.set_of_switch(), workspace.forwarding()),
        (set, forwarding)
    );
    assert_eq!(changes(), 0);
    let clean = workspace
        .quietwire(&["lab", "clean", "--state-directory", "lab"])
        .output();
    let clean = clean.unwrap();
    assert_eq!(
        String::from_utf8_lossy(&clean.stdout),
        "nothing was left behind\n"
    );
}

#[test]
fn measure_and_calibrate_isolate_and_report_it() {
    let _turn = take_turn().unwrap();
    let workspace = Workspace::new();
    let before = machine();
    let short = [
        // A busy machine disturbs many trials.
        "--set",
        "trials.invalid-repeats=100",
        "--duration",
        "50ms",
        "--max-rate-pps",
        "2000",
        "--device-cpus",
        "1",
    ];
    let sweep = workspace.tester(
        &["measure", "loss-sweep", "--set", "loads-percent=[50]"],
        &short,
    );
    let output = { sweep }.output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    check_record(&json(&output)["isolation"]);
    assert_eq!(machine(), before);
    let mut command =
        workspace.quietwire(&["tester", "calibrate", "--state-directory", "lab", "--json"]);
    command
        .args(["--port", &memif(&workspace.directory, "loop", "server")])
        .args(["--port", &memif(&workspace.directory, "loop", "client")])
        .args(["--duration", "20ms", "--pacing-duration", "20ms"])
        .args(["--steps", "0"])
        .args(MEMORY);
    let output = command.output().unwrap();
    let result = json(&output);
    // The tester is at both ends, so there is no device.
    assert_eq!(
        result["isolation"]["isolated_cpus"], "0",
        "{}",
        result["isolation"]
    );
    assert_eq!(result["isolation"]["device_cpus"], Value::Null);
    assert_eq!(result["calibration"]["tester"]["realtime_priority"], 50);
    assert!(
        !printed(&output).contains("not isolated"),
        "{}",
        printed(&output)
    );
    assert_eq!(machine(), before);
}

#[test]
fn a_signal_ends_the_measurement_and_undoes_all_changes() {
    let _turn = take_turn().unwrap();
    let workspace = Workspace::new();
    let before = machine();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut running = workspace.isolated();
        running.0.signal(signal).unwrap();
        assert_eq!(running.ended().code(), Some(FAILED), "{signal}");
        assert_eq!(machine(), before, "{signal}");
        assert_eq!(changes(), 0);
    }
}

#[test]
fn changes_of_a_killed_tester_are_undone_by_its_guard() {
    let _turn = take_turn().unwrap();
    let workspace = Workspace::new();
    let (before, set, forwarding) = (machine(), workspace.set_of_switch(), workspace.forwarding());
    let mut running = workspace.isolated();
    running.0.signal(Signal::SIGKILL).unwrap();
    running.ended();
    until("everything is undone", || {
        changes() == 0 && machine() == before
    });
    until("the device is where it was", || {
        workspace.set_of_switch() == set && workspace.forwarding() == forwarding
    });
    until("no lab is left", || {
        !fs::read_dir(workspace.path("lab")).unwrap().any(|entry| {
            let name = entry.unwrap().file_name();
            name.to_string_lossy().starts_with("lab-")
        })
    });
    // The next command finds the machine free.
    let output = workspace
        .generate(&["--duration", "20ms"])
        .output()
        .unwrap();
    check_record(&json(&output)["isolation"]);
    assert_eq!(machine(), before);
}

/// Capabilities that a tester keeps as another user: NET_ADMIN, NET_RAW, IPC_LOCK, SYS_ADMIN, SYS_NICE.
const KEPT: u64 = 1 << 12 | 1 << 13 | 1 << 14 | 1 << 21 | SYS_NICE;
/// Capability of threads that send and receive, with real-time priority.
const SYS_NICE: u64 = 1 << 23;

/// Checks that each thread of a process is of a user and has no other capabilities, and that the tester's threads have a filter.
fn has_few_rights(pid: u32, uid: u32) {
    for thread in threads_of(Path::new("/"), pid).unwrap() {
        let path = format!("/proc/{pid}/task/{}/status", thread.tid);
        until("the thread has given up its rights", || {
            let Ok(text) = fs::read_to_string(&path) else {
                // It has ended.
                return true;
            };
            let field = |key: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(key));
                line.unwrap().trim().to_owned()
            };
            let mask = |key: &str| u64::from_str_radix(&field(key), 16).unwrap();
            let is_tester = thread.name.starts_with("qw-tester");
            let kept = if is_tester { SYS_NICE } else { KEPT };
            [mask("CapEff:"), mask("CapPrm:")].map(|mask| mask & !kept) == [0, 0]
                && field("Uid:")
                    .split_whitespace()
                    .all(|one| one == uid.to_string())
                && (!is_tester || (field("Seccomp:") == "2" && field("NoNewPrivs:") == "1"))
        });
    }
}

#[test]
fn a_tester_that_becomes_another_user_leaves_nothing() {
    let _turn = take_turn().unwrap();
    let workspace = Workspace::new();
    let user = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    let (before, set) = (machine(), workspace.set_of_switch());
    for (signal, duration, code) in [
        (None, "1s", Some(0)),
        (Some(Signal::SIGTERM), "10m", Some(FAILED)),
        (Some(Signal::SIGKILL), "10m", None),
    ] {
        let arguments = ["--duration", duration, "--user", "nobody"];
        let mut running = workspace.isolated_with(&arguments);
        has_few_rights(running.0.id(), user.uid.as_raw());
        if let Some(signal) = signal {
            running.0.signal(signal).unwrap();
        }
        let ended = running.ended().code();
        let reported = fs::read_to_string(workspace.path("said")).unwrap();
        assert!(!reported.contains("seccomp filters of "), "{reported}");
        if signal.is_some() {
            assert_eq!(ended, code, "{signal:?}: {reported}");
        } else {
            // The machine may have been busy, so that the trial is invalid.
            assert!(ended == code || reported.contains("invalid"), "{reported}");
        }
        if code.is_none() {
            until("the guard undoes everything", || {
                changes() == 0 && machine() == before
            });
        }
        assert_eq!((machine(), changes()), (before.clone(), 0), "{signal:?}");
        assert_eq!(workspace.set_of_switch(), set, "{signal:?}");
    }
}

#[test]
fn a_user_that_does_not_exist_is_refused() {
    let workspace = Workspace::new();
    let output = workspace.generate(&["--user", "quietwire-nobody"]).output();
    let output = output.unwrap();
    let printed = printed(&output);
    assert_eq!(output.status.code(), Some(BAD_INPUT), "{printed}");
    assert!(
        printed.contains("--user: user 'quietwire-nobody' does not exist"),
        "{printed}"
    );
}

#[test]
fn without_isolation_nothing_is_touched() {
    let _turn = take_turn().unwrap();
    let workspace = Workspace::new();
    let (before, set) = (machine(), workspace.set_of_switch());
    let mut command = workspace.generate(&["--duration", "500ms", "--isolation", "none"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running(KillOnDrop(command.spawn().unwrap()));
    while matches!(running.0.try_wait(), Ok(None)) {
        assert_eq!(machine(), before);
        assert_eq!((changes(), workspace.set_of_switch()), (0, set.clone()));
        sleep(POLL_INTERVAL);
    }
    let mut out = Vec::new();
    std::io::Read::read_to_end(running.0.stdout.as_mut().unwrap(), &mut out).unwrap();
    let result: Value = serde_json::from_slice(&out).unwrap();
    let record = &result["isolation"];
    assert_eq!(record["isolation"], "none");
    assert_eq!(record["commands"], serde_json::json!([]));
    assert_eq!(
        (&record["realtime_priority"], &result["health"]["realtime"]),
        (&Value::Null, &false.into())
    );
    assert!(!workspace.path("lab").exists());
}

#[test]
fn cpus_that_the_device_cannot_have_are_refused() {
    let workspace = Workspace::new();
    for (more, part) in [
        (["--device-cpus", "8000"], "CPU 8000 is not online"),
        (["--device-cpus", "0"], "CPU 0 is also one of the tester's"),
        (["--device-cpus", ""], "it is empty"),
    ] {
        for words in [
            &["generate", "--rate", "1k"] as &[&str],
            &["measure", "loss-sweep"],
        ] {
            let output = workspace.tester(words, &more).output().unwrap();
            let printed = printed(&output);
            assert_eq!(output.status.code(), Some(BAD_INPUT), "{more:?}: {printed}");
            assert!(
                printed.contains(&format!("--device-cpus: {part}")),
                "{printed}"
            );
            assert_eq!(printed.lines().count(), 1, "{printed}");
            assert!(output.stdout.is_empty());
        }
    }
    let simulated = [
        "measure",
        "loss-sweep",
        "--tester",
        "sim",
        "--device-cpus",
        "1",
    ];
    let output = workspace.quietwire(&simulated).output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(BAD_INPUT),
        "{}",
        printed(&output)
    );
}

#[test]
fn without_root_isolation_is_reported_missing_and_the_measurement_runs() {
    let _turn = take_turn().unwrap();
    let workspace = Workspace::new();
    let before = machine();
    let program = workspace.path("quietwire");
    fs::copy(env!("CARGO_BIN_EXE_quietwire"), &program).unwrap();
    for path in [&program, workspace.directory.path()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .args([
            "generate",
            "--port",
            "null:",
            "--rate",
            "1k",
            "--duration",
            "20ms",
            "--json",
        ])
        .args(MEMORY)
        .current_dir(workspace.directory.path())
        .env("XDG_STATE_HOME", workspace.path("state"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let printed = printed(&output);
    let lines: Vec<&str> = printed
        .lines()
        .filter(|line| line.starts_with("not isolated"))
        .collect();
    assert_eq!(
        lines,
        ["not isolated: CPUs: permission denied (run the same command with sudo)"],
        "{printed}"
    );
    let result = json(&output);
    assert_eq!(result["isolation"]["isolation"], "none");
    assert!(result["validity"]["state"].is_string(), "{result}");
    assert_eq!(machine(), before);
}
