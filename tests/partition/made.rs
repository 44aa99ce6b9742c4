// SPDX-License-Identifier: Apache-2.0
//! A simulated machine of files, and a process that is killed while it changes them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::{done, name, partition, text};

const FILES: &[(&str, &str)] = &[
    ("proc/cmdline", "root=/dev/vda\n"),
    (
        "proc/self/mounts",
        "c /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n",
    ),
    ("proc/irq/default_smp_affinity", "3\n"),
    ("proc/irq/24/smp_affinity_list", "0-1\n"),
    ("sys/fs/cgroup/cpuset/cpuset.mems", "0\n"),
    ("sys/fs/cgroup/cpuset/cpuset.sched_load_balance", "1\n"),
    ("sys/devices/virtual/workqueue/cpumask", "3\n"),
    (
        "sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
        "8\n",
    ),
    (
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
        "powersave\n",
    ),
    ("sys/fs/resctrl/schemata", "    L3:0=7ff\n"),
    ("sys/fs/resctrl/cpus_list", "0-1\n"),
    ("sys/fs/resctrl/tasks", "1\n"),
    ("sys/fs/resctrl/info/L3/num_closids", "4\n"),
    ("sys/fs/resctrl/info/L3/cbm_mask", "7ff\n"),
    ("sys/fs/resctrl/info/L3/min_cbm_bits", "1\n"),
];

pub(crate) const PLAN: &str = r#"{
  "groups": [
    {"role": "host", "name": "host", "cpus": "0", "nodes": [0], "memory_mib": 0, "class": "default"},
    {"role": "forwarding", "name": "forwarding", "cpus": "1", "nodes": [0], "memory_mib": 0, "class": "forwarding"}
  ],
  "classes": [
    {"name": "default", "is_default": true, "cpus": "0", "masks": [{"level": 3, "domain": 0, "mask": 2032}], "bandwidth": []},
    {"name": "forwarding", "is_default": false, "cpus": "1", "masks": [{"level": 3, "domain": 0, "mask": 15}], "bandwidth": []}
  ],
  "huge_pages": [{"node": 0, "page_kib": 2048, "pages": 64, "data_plane_mib": 128}],
  "nics": [],
  "frequencies": [{"cpus": "1", "governor": "performance", "min_khz": null, "max_khz": null, "is_high_priority": false}],
  "boot": [{"name": "nohz_full", "value": "1", "reason": "no tick"}],
  "housekeeping": "0", "rx_ring_size": 1024, "tx_ring_size": 1024, "idle": "poll", "reasons": []
}"#;

struct FakeMachine {
    directory: tempfile::TempDir,
    root: PathBuf,
    plan: PathBuf,
}

impl FakeMachine {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (root, plan) = (directory.path().join("root"), directory.path().join("plan"));
        for (path, text) in FILES {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::write(&plan, PLAN).unwrap();
        Self {
            directory,
            root,
            plan,
        }
    }

    /// Returns every file except those of the state, by lines without padding: the kernel may align schemata differently.
    fn contents(&self) -> BTreeMap<PathBuf, Option<String>> {
        let mut found = BTreeMap::new();
        let mut directories = vec![self.root.clone()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).unwrap() {
                let path = entry.unwrap().path();
                if path == self.root.join("run") {
                    continue;
                }
                let read = || fs::read_to_string(&path).unwrap();
                let text = path
                    .is_file()
                    .then(|| read().lines().map(str::trim).collect::<Vec<_>>().join("\n"));
                if text.is_none() {
                    directories.push(path.clone());
                }
                found.insert(path, text);
            }
        }
        found
    }

    fn apply(&self, more: &[&str]) -> Output {
        let mut arguments = vec![
            "apply",
            "--plan",
            name(&self.plan),
            "--root",
            name(&self.root),
        ];
        arguments.extend(more);
        partition(&arguments)
    }
}

#[test]
fn changes_of_an_apply_killed_at_any_point_are_rolled_back() {
    const SIGKILL: i32 = 9;
    const POINTS_MAX: u32 = 200;
    let made = FakeMachine::new();
    let before = made.contents();
    let mut killed = 0;
    for point in 1..POINTS_MAX {
        let output = made.apply(&["--fail-at", &point.to_string()]);
        if output.status.signal() != Some(SIGKILL) {
            assert!(output.status.success(), "{}", text(&output));
            break;
        }
        killed = point;
        done(&["rollback", "--root", name(&made.root)]);
        assert_eq!(made.contents(), before, "killed at point {point}");
    }
    assert!((20..POINTS_MAX - 1).contains(&killed), "{killed}");
    done(&["rollback", "--root", name(&made.root)]);
    assert_eq!(made.contents(), before);
    drop(made.directory);
}

#[test]
fn differences_are_printed_and_twice_is_once() {
    let made = FakeMachine::new();
    let root = name(&made.root);
    let before = made.contents();
    let dry = text(&made.apply(&["--dry-run"]));
    assert!(
        dry.contains("scaling_governor: powersave -> performance"),
        "{dry}"
    );
    assert!(dry.contains("pending reboot: nohz_full=1"), "{dry}");
    assert!(
        dry.contains("irq/24/smp_affinity_list: 0-1 -> 0\n"),
        "{dry}"
    );
    assert_eq!(made.contents(), before);
    let affinity = made.root.join("proc/irq/24/smp_affinity_list");
    let set_mode = |mode| fs::set_permissions(&affinity, fs::Permissions::from_mode(mode)).unwrap();
    set_mode(0o444);
    let dry = text(&made.apply(&["--dry-run"]));
    assert!(!dry.contains("irq/24/"), "{dry}");
    let fixed = "fixed by the kernel, left unchanged: interrupts 24 (CPUs 0-1)\n";
    assert!(dry.contains(fixed), "{dry}");
    set_mode(0o644);
    assert!(done(&["status", "--root", root]).contains("nothing is applied"));
    let first = text(&made.apply(&[]));
    assert!(
        first.contains("default_smp_affinity: 3 -> 1: done"),
        "{first}"
    );
    let after = made.contents();
    let second = text(&made.apply(&[]));
    assert!(
        second.contains("all run-time settings match the plan"),
        "{second}"
    );
    assert_eq!(made.contents(), after);
    assert!(done(&["status", "--root", root]).contains("pending reboot: nohz_full=1"));

    // Another program changes a value.
    let governor = made
        .root
        .join("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor");
    fs::write(&governor, "ondemand\n").unwrap();
    let left = partition(&["rollback", "--root", root]);
    assert_eq!(left.status.code(), Some(1));
    assert!(text(&left).contains("LEFT ALONE"), "{}", text(&left));
    done(&["rollback", "--force", "--root", root]);
    assert_eq!(made.contents(), before);
}

#[test]
fn the_applied_plan_is_verified_without_being_named() {
    let made = FakeMachine::new();
    let root = name(&made.root);
    let nothing = partition(&["verify", "--root", root]);
    assert_eq!(nothing.status.code(), Some(2), "{}", text(&nothing));
    made.apply(&[]);
    let verified = partition(&["verify", "--root", root, "--json"]);
    // The simulated machine was not restarted.
    assert_eq!(verified.status.code(), Some(1), "{}", text(&verified));
    let checks: serde_json::Value = serde_json::from_slice(&verified.stdout).unwrap();
    let failed: Vec<&str> = checks
        .as_array()
        .unwrap()
        .iter()
        .filter(|check| check["verdict"] == "fail")
        .map(|check| check["name"].as_str().unwrap())
        .collect();
    assert_eq!(failed, ["command-line"]);
    let live = partition(&["verify", "--root", root, "--for", "1s"]);
    assert_eq!(live.status.code(), Some(2), "{}", text(&live));
}

#[test]
fn the_remedy_of_an_interrupt_makes_its_check_pass() {
    let made = FakeMachine::new();
    made.apply(&[]);
    let check = || {
        let output = partition(&["verify", "--root", name(&made.root), "--json"]);
        let checks: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut checks = checks.as_array().unwrap().iter();
        checks
            .find(|check| check["name"] == "interrupts")
            .unwrap()
            .clone()
    };
    assert_eq!(check()["verdict"], "pass");
    fs::write(made.root.join("proc/irq/24/smp_affinity_list"), "0-1\n").unwrap();
    let failed = check();
    assert_eq!(failed["verdict"], "fail");
    let remedy = failed["remedy"].as_str().unwrap();
    assert!(remedy.contains("move interrupts 24 "), "{remedy}");
    let commands = failed["commands"].as_array().unwrap();
    assert_eq!(commands.len(), 1, "{failed:#}");
    // Commands are for the machine itself, whose files are below the root here.
    let command = commands[0].as_str().unwrap();
    let here = command.replace(" /proc", &format!(" {}/proc", made.root.display()));
    assert_ne!(here, command);
    let output = Command::new("sh").args(["-euc", &here]).output().unwrap();
    assert!(output.status.success(), "{here}: {}", text(&output));
    assert_eq!(check()["verdict"], "pass");
}

#[test]
fn an_invalid_plan_is_bad_input() {
    let made = FakeMachine::new();
    fs::write(&made.plan, "{").unwrap();
    for arguments in [
        ["apply", "--plan", name(&made.plan)],
        ["apply", "--config", name(Path::new("/nowhere"))],
        ["apply", "--config", name(&made.plan)],
    ] {
        let output = partition(&arguments);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    }
    assert_eq!(partition(&["apply"]).status.code(), Some(2));
}
