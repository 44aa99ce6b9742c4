// SPDX-License-Identifier: Apache-2.0
//! The machine that runs: with CPU sets of version 1, as far as it has them.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::{done, name, partition, text};

/// CPU 0 for the host, CPU 1 to forward.
const PLAN: &str = r#"{
  "groups": [
    {"role": "host", "name": "host", "cpus": "0", "nodes": [0], "memory_mib": 0, "class": null},
    {"role": "forwarding", "name": "forwarding", "cpus": "1", "nodes": [0], "memory_mib": 0, "class": null}
  ],
  "classes": [], "huge_pages": [], "nics": [], "frequencies": [], "boot": [],
  "housekeeping": "0", "rx_ring_size": 1024, "tx_ring_size": 1024, "idle": "poll", "reasons": []
}"#;
const SETS: &str = "/sys/fs/cgroup/cpuset";
const DEADLINE: Duration = Duration::from_secs(20);

/// Ends what was started, and takes back what was applied, however the test ends.
struct Cleaner(Vec<Child>);

impl Drop for Cleaner {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
        partition(&["rollback", "--force"]);
    }
}

fn allowed(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap().trim().to_owned()
}

/// Settings of the machine that applying changes.
fn settings() -> Vec<Option<String>> {
    [
        "/proc/irq/default_smp_affinity",
        "/sys/devices/virtual/workqueue/cpumask",
        "/sys/fs/cgroup/cpuset/cpuset.sched_load_balance",
    ]
    .map(|path| fs::read_to_string(path).ok())
    .to_vec()
}

fn verdict(checks: &serde_json::Value, name: &str) -> String {
    let check = checks
        .as_array()
        .unwrap()
        .iter()
        .find(|check| check["name"] == name);
    check.unwrap_or_else(|| panic!("no check {name}"))["verdict"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn a_neighbour_leaves_and_a_forwarding_thread_is_known() {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    if online.trim() != "0-1" || !Path::new(SETS).join("cpuset.cpus").exists() {
        eprintln!("not tried: this needs two CPUs and CPU sets of version 1");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.json");
    fs::write(&plan, PLAN).unwrap();
    let before = settings();
    let spin = "while :; do :; done";
    let neighbour = Command::new("sh").args(["-c", spin]).spawn().unwrap();
    let pid = neighbour.id();
    let mut cleaner = Cleaner(vec![neighbour]);
    assert_eq!(allowed(pid), "0-1");

    done(&["apply", "--plan", name(&plan)]);
    assert_eq!(allowed(pid), "0");
    // As DPDK names its workers.
    let worker = format!(
        "echo $$ > {SETS}/quietwire-data-plane/cgroup.procs && taskset -pc 1 $$ > /dev/null && echo dpdk-worker1 > /proc/$$/comm && {spin}"
    );
    let worker = Command::new("sh").args(["-c", &worker]).spawn().unwrap();
    let comm = format!("/proc/{}/comm", worker.id());
    cleaner.0.push(worker);
    let began = Instant::now();
    while fs::read_to_string(&comm).unwrap().trim() != "dpdk-worker1" {
        assert!(began.elapsed() < DEADLINE);
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = partition(&["verify", "--for", "1s", "--json"]);
    let checks: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output)));
    for name in [
        "forwarding-threads",
        "forwarding-migrations",
        "system-calls",
    ] {
        assert_eq!(verdict(&checks, name), "pass", "{name}: {}", text(&output));
    }
    // A loop of the shell's is no neighbour where it is wanted; one that gets there is.
    let intruder = Command::new("sh")
        .args(["-c", &format!("echo $$ > {SETS}/quietwire-data-plane/cgroup.procs && taskset -pc 1 $$ > /dev/null && {spin}")])
        .spawn()
        .unwrap();
    let id = intruder.id();
    cleaner.0.push(intruder);
    let began = Instant::now();
    while allowed(id) != "1" {
        assert!(began.elapsed() < DEADLINE);
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = partition(&["verify", "--for", "1s", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let checks: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for name in ["intruders", "who-ran", "forwarding-switches"] {
        assert_eq!(verdict(&checks, name), "fail", "{name}: {}", text(&output));
    }

    done(&["rollback"]);
    assert_eq!(settings(), before);
    assert_eq!(allowed(pid), "0-1");
    assert!(!Path::new(SETS).join("quietwire-host").exists());
}
