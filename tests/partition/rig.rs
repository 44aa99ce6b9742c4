// SPDX-License-Identifier: Apache-2.0
//! This machine, for one test at a time.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use quietwire_base::testing::{KillOnDrop, take_turn};
use quietwire_base::{Deadline, LockFile};
use quietwire_host::tasks::{self, DataPlane};
use serde_json::Value;

use crate::{name, partition, text};

/// Directory of CPU sets of version 1.
pub(crate) const SETS: &str = "/sys/fs/cgroup/cpuset";
/// File by which the data plane's processes are placed.
pub(crate) const DATA_PLANE: &str = "/sys/fs/cgroup/cpuset/quietwire-data-plane/cgroup.procs";
const POOL: &str = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages";
/// Frees the page cache, but what must still be written to disk (Documentation/admin-guide/sysctl/vm.rst).
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
const DEADLINE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);

/// Polls until a value is available.
pub(crate) fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    Deadline::after(DEADLINE)
        .poll(PAUSE, look)
        .unwrap_or_else(|| panic!("timeout after {DEADLINE:?}: {what}"))
}

/// Returns a plan with CPU 0 for the host, CPU 1 for forwarding, and this many huge pages for the data plane.
fn plan(pages: u64) -> String {
    format!(
        r#"{{
  "groups": [
    {{"role": "host", "name": "host", "cpus": "0", "nodes": [0], "memory_mib": 0, "class": null}},
    {{"role": "forwarding", "name": "forwarding", "cpus": "1", "nodes": [0], "memory_mib": 0, "class": null}}
  ],
  "classes": [], "nics": [], "frequencies": [], "boot": [],
  "huge_pages": [{{"node": 0, "page_kib": 2048, "pages": {pages}, "data_plane_mib": {}}}],
  "housekeeping": "0", "rx_ring_size": 1024, "tx_ring_size": 1024, "idle": "poll", "reasons": []
}}"#,
        pages * 2
    )
}

/// Returns all settings of the machine that applying may change, by file: rollback must restore them.
pub(crate) fn settings() -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut add = |path: PathBuf| {
        if let Ok(text) = fs::read_to_string(&path) {
            found.insert(path, text);
        }
    };
    for path in [
        "/proc/irq/default_smp_affinity",
        "/sys/devices/virtual/workqueue/cpumask",
        "/sys/bus/workqueue/devices/writeback/cpumask",
        "/sys/fs/cgroup/cpuset/cpuset.sched_load_balance",
        POOL,
    ] {
        add(path.into());
    }
    for irq in entries("/proc/irq") {
        add(irq.join("smp_affinity_list"));
    }
    for interface in entries("/sys/class/net") {
        for queue in entries(interface.join("queues")) {
            add(queue.join("rps_cpus"));
        }
    }
    for cpu in entries("/sys/devices/system/machinecheck") {
        add(cpu.join("ignore_ce"));
    }
    for set in entries(SETS) {
        let ours = set
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("quietwire-"));
        if ours {
            found.insert(set, "a CPU set that was left behind".to_owned());
        }
    }
    found
}

fn entries(directory: impl AsRef<Path>) -> Vec<PathBuf> {
    let listed = fs::read_dir(directory).into_iter().flatten();
    listed.flatten().map(|entry| entry.path()).collect()
}

/// This machine with a plan for it. At the end of a test, changes are rolled back and started processes are terminated.
/// Tests take turns, also across processes, because the settings are those of the whole machine.
pub(crate) struct Machine {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) plan: PathBuf,
    pub(crate) before: BTreeMap<PathBuf, String>,
    children: Vec<KillOnDrop>,
    _turn: LockFile,
}

impl Machine {
    pub(crate) fn new(pages: u64) -> Self {
        let turn = take_turn().unwrap();
        let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
        assert!(
            online.trim() != "0" && Path::new(SETS).join("cpuset.cpus").exists(),
            "this test requires two CPUs, and CPU sets of version 1 at {SETS}"
        );
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plan.json");
        // The kernel reclaims little of the page cache for huge pages, and a build has just filled it.
        fs::write(DROP_CACHES, "1").unwrap();
        let pool: u64 = fs::read_to_string(POOL).unwrap().trim().parse().unwrap();
        fs::write(&path, plan(pool + pages)).unwrap();
        Self {
            directory,
            plan: path,
            before: settings(),
            children: Vec::new(),
            _turn: turn,
        }
    }

    pub(crate) fn plan(&self) -> &str {
        name(&self.plan)
    }

    pub(crate) fn start(&mut self, command: &mut Command) -> u32 {
        let child = command.spawn().unwrap();
        let pid = child.id();
        self.children.push(KillOnDrop(child));
        pid
    }

    /// Starts a script in the data plane's CPU set.
    pub(crate) fn start_in_data_plane(&mut self, script: &str) -> u32 {
        let script = format!("echo $$ > {DATA_PLANE}; {script}");
        self.start(Command::new("sh").args(["-euc", &script]))
    }

    /// Terminates all started processes.
    pub(crate) fn end_all(&mut self) {
        self.children.clear();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end_all();
        partition(&["rollback", "--force"]);
    }
}

/// Results of `verify` over an interval.
pub(crate) struct Checks {
    pub(crate) code: Option<i32>,
    checks: Value,
}

impl Checks {
    pub(crate) fn over(interval: &str) -> Self {
        Self::of(&["verify", "--for", interval, "--json"])
    }

    /// Returns the results without an interval.
    pub(crate) fn now() -> Self {
        Self::of(&["verify", "--json"])
    }

    fn of(arguments: &[&str]) -> Self {
        let output = partition(arguments);
        let checks = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", text(&output)));
        Self {
            code: output.status.code(),
            checks,
        }
    }

    pub(crate) fn verdict(&self, name: &str) -> &str {
        self.named(name)["verdict"].as_str().unwrap()
    }

    fn named(&self, name: &str) -> &Value {
        let mut checks = self.checks.as_array().unwrap().iter();
        let found = checks.find(|check| check["name"] == name);
        found.unwrap_or_else(|| panic!("no check {name}: {}", self.checks))
    }

    pub(crate) fn actual(&self, name: &str) -> &str {
        self.named(name)["actual"].as_str().unwrap()
    }

    /// Returns the commands that fix a check.
    pub(crate) fn commands(&self, name: &str) -> Vec<&str> {
        let commands = self.named(name)["commands"].as_array().unwrap();
        commands
            .iter()
            .map(|command| command.as_str().unwrap())
            .collect()
    }

    /// Checks that these checks do not name a thread: on a machine with other users they may fail for other threads.
    pub(crate) fn assert_unblamed(&self, tid: u32, names: &[&str]) {
        for name in names {
            let check = self.named(name);
            let is_named = self.actual(name).contains(&format!("({tid}"));
            assert!(
                check["verdict"] != "unknown" && !is_named,
                "thread {tid}: {check:#}"
            );
        }
    }

    pub(crate) fn assert(&self, verdict: &str, names: &[&str]) {
        for name in names {
            let check = self.named(name);
            assert_eq!(check["verdict"], verdict, "{check:#}");
        }
    }
}

/// Returns the data plane that a thread is recognised to forward for.
pub(crate) fn forwards_for(tid: u32) -> Option<DataPlane> {
    let tid = i32::try_from(tid).unwrap();
    let task = tasks::all(Path::new("/"))
        .into_iter()
        .find(|task| task.tid == tid);
    task?.forwards_for
}

/// Returns the CPUs that a thread may use.
pub(crate) fn allowed(tid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap().trim().to_owned()
}
