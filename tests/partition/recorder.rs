// SPDX-License-Identifier: Apache-2.0
//! A recorder of the machine's settings that knows nothing of quietwire: it reads every file below the trees of the kernel in which
//! `partition apply` may write, and the CPUs and control groups of every thread.
//!
//! Files with counts or measurements of the kernel are left out by name. All other files must be equal before `apply` and after `rollback`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::rig::Machine;
use crate::rng::Rng;
use crate::{done, partition, text};

/// Trees of settings.
const TREES: [&str; 12] = [
    "/proc/irq",
    "/proc/sys/kernel",
    "/proc/sys/net/core",
    "/proc/sys/vm",
    "/sys/bus/workqueue/devices",
    "/sys/devices/system/cpu",
    "/sys/devices/system/machinecheck",
    "/sys/devices/system/node",
    "/sys/devices/virtual/workqueue",
    "/sys/fs/cgroup",
    "/sys/fs/resctrl",
    "/sys/kernel/mm",
];

/// Files of other trees, as a directory, the part of the path below each of its entries, and names.
const OTHERS: [(&str, &str, &[&str]); 2] = [
    (
        "/sys/class/net",
        "queues",
        &["rps_cpus", "xps_cpus", "rps_flow_cnt"],
    ),
    (
        "/sys/bus/pci/devices",
        "",
        &["sriov_numvfs", "numa_node", "enable"],
    ),
];

/// Parts of paths of counters, measurements, and of files that list processes or draw random numbers.
const VOLATILE: [&str; 49] = [
    "/cpuidle/",
    "/cpuacct",
    "/effective_affinity",
    "/free_hugepages",
    "/full_scans",
    "/general_profit",
    "/hot_cpus",
    "/initstate",
    "/kernel/ns_last_pid",
    "/kernel/pty/nr",
    "/kernel/random/",
    "/khugepaged/",
    "/ksm/",
    "/lru_gen/",
    "/meminfo",
    "/memory.",
    "/numa/",
    "/numastat",
    "/pids.current",
    "/pids.peak",
    "/refcnt",
    "/resv_hugepages",
    "/scaling_cur_freq",
    "/sections/",
    "/spurious",
    "/stat_refresh",
    // Counts of large folios, by their size.
    "/stats/",
    "/surplus_hugepages",
    "/thermal_throttle/",
    "/transhuge",
    "/vmstat",
    "/blkio.",
    "/cgroup.procs",
    "/cgroup.threads",
    "/cgroup.stat",
    "/cgroup.events",
    "/cpu.stat",
    "/cpuset.memory_pressure",
    "/io.stat",
    "/io.pressure",
    "/cpu.pressure",
    "/irq.pressure",
    "/tasks",
    "/mon_data/",
    "/last_cmd_status",
    "/drop_caches",
    // The kernel lowers it if interrupts of counters take long.
    "/perf_event_max_sample_rate",
    ".usage_in_bytes",
    ".max_usage_in_bytes",
];

/// Longest file that is a setting, octets.
const LENGTH_MAX: usize = 64 << 10;

/// Returns all settings of the machine, by file. A second thread reads half of the trees.
fn recorded() -> BTreeMap<PathBuf, String> {
    let trees = Mutex::new(TREES.into_iter());
    // The lock is not held while a tree is read.
    let next = || {
        let mut left = trees.lock().unwrap_or_else(PoisonError::into_inner);
        left.next()
    };
    let read = || {
        let mut found = BTreeMap::new();
        while let Some(tree) = next() {
            below(Path::new(tree), &mut found);
        }
        found
    };
    std::thread::scope(|scope| {
        let second = scope.spawn(read);
        let mut found = read();
        others(&mut found);
        threads(&mut found);
        found.extend(second.join().unwrap());
        found
    })
}

/// Adds the files of [`OTHERS`].
fn others(found: &mut BTreeMap<PathBuf, String>) {
    for (directory, part, names) in OTHERS {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let inner = entry.path().join(part);
            let queues = fs::read_dir(&inner).into_iter().flatten().flatten();
            let places = queues.map(|queue| queue.path()).chain([inner]);
            for place in places {
                for name in names {
                    add(&place.join(name), found);
                }
            }
        }
    }
}

fn below(directory: &Path, found: &mut BTreeMap<PathBuf, String>) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    found.insert(directory.to_owned(), "a directory".to_owned());
    for entry in entries.flatten() {
        let path = entry.path();
        match entry.file_type() {
            // Other names of files that are found elsewhere.
            Ok(kind) if kind.is_symlink() && !directory.starts_with("/sys/bus") => {}
            Ok(kind) if kind.is_dir() => below(&path, found),
            Ok(_) if path.is_dir() => {
                for name in ["cpumask", "max_active", "nice", "affinity_scope"] {
                    add(&path.join(name), found);
                }
            }
            _ => add(&path, found),
        }
    }
}

fn add(path: &Path, found: &mut BTreeMap<PathBuf, String>) {
    use std::os::unix::fs::PermissionsExt;
    let name = path.to_string_lossy();
    let is_readable = |path: &Path| {
        fs::metadata(path)
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o444 != 0)
    };
    if VOLATILE.iter().any(|part| name.contains(part)) || !is_readable(path) {
        return;
    }
    let Some(octets) = fs::read(path)
        .ok()
        .filter(|octets| octets.len() <= LENGTH_MAX)
    else {
        return;
    };
    let text = String::from_utf8_lossy(&octets).into_owned();
    found.insert(path.to_owned(), text);
}

/// Adds the CPUs and the CPU set of every thread, by its ID and start time. Kernel threads that serve work queues come and go.
fn threads(found: &mut BTreeMap<PathBuf, String>) {
    let numbers = |directory: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let is_number = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.bytes().all(|octet| octet.is_ascii_digit()))
        };
        entries
            .map(|entry| entry.path())
            .filter(is_number)
            .collect()
    };
    for process in numbers(Path::new("/proc")) {
        for thread in numbers(&process.join("task")) {
            let read = |name: &str| fs::read(thread.join(name)).ok();
            let (Some(status), Some(stat), Some(groups)) =
                (read("status"), read("stat"), read("cgroup"))
            else {
                continue;
            };
            let status = String::from_utf8_lossy(&status).into_owned();
            let stat = String::from_utf8_lossy(&stat).into_owned();
            let fields = stat.rsplit(')').next().unwrap_or_default();
            // Field 22 of proc_pid_stat(5), the 20th after the name.
            let started = fields.split_whitespace().nth(19).unwrap_or_default();
            let line = |start: &str| {
                let line = status.lines().find(|line| line.starts_with(start));
                line.unwrap_or_default().to_owned()
            };
            if line("Name:").contains("kworker") {
                continue;
            }
            let groups = String::from_utf8_lossy(&groups);
            let set = groups.lines().find(|line| line.contains("cpuset"));
            let place = thread.join(format!("started {started}"));
            // Without the name, which changes if the thread executes a program.
            let cpus = line("Cpus_allowed_list:");
            let shown = format!("{cpus}, {}", set.unwrap_or_default());
            found.insert(place, shown);
        }
    }
}

/// Returns the differences between the machine at rest and a recording. Threads, interfaces, interrupts and control groups of other
/// programs may come and go, but what is in both is equal.
fn differences(before: &AtRest, after: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let mut found = Vec::new();
    for (path, was) in &before.settings {
        match after.get(path) {
            Some(is) if is == was => {}
            Some(is) => found.push(format!("{}: '{was}' -> '{is}'", path.display())),
            None if may_vanish(path) => {}
            None => found.push(format!("{}: '{was}' -> missing", path.display())),
        }
    }
    for (path, is) in after {
        let is_ours = path.starts_with("/sys/fs") && path.to_string_lossy().contains("/quietwire-");
        let is_known = before.settings.contains_key(path) || before.changing.contains(path);
        if !is_known && (is_ours || !may_vanish(path)) {
            found.push(format!("{}: missing -> '{is}'", path.display()));
        }
    }
    found
}

fn may_vanish(path: &Path) -> bool {
    let is_thread = path.to_string_lossy().contains("/task/");
    let trees = ["/proc/irq", "/sys/class/net", "/sys/fs/cgroup"];
    is_thread || trees.iter().any(|tree| path.starts_with(tree))
}

/// Names in this many recordings that changed before anything was applied: others use the machine.
const RECORDINGS: usize = 3;

/// Settings before anything was applied.
struct AtRest {
    settings: BTreeMap<PathBuf, String>,
    /// Files that changed by themselves.
    changing: BTreeSet<PathBuf>,
}

/// Records the machine several times.
fn at_rest() -> AtRest {
    let mut recordings: Vec<_> = (0..RECORDINGS).map(|_| recorded()).collect();
    let mut settings = recordings.pop().unwrap();
    let mut changing = BTreeSet::new();
    for earlier in recordings {
        for (path, was) in earlier {
            if settings.get(&path) != Some(&was) {
                changing.insert(path);
            }
        }
    }
    settings.retain(|path, _| !changing.contains(path));
    AtRest { settings, changing }
}

#[test]
fn all_settings_are_as_before_after_any_of_twenty_kills() {
    const KILLS: u32 = 20;
    const SIGKILL: i32 = 9;
    let mut rng = Rng::new();
    let machine = Machine::new(4);
    let before = at_rest();
    let count = before.settings.len();
    assert!(count > 500, "{count}");
    let apply = ["apply", "--plan", machine.plan()];
    let began = Instant::now();
    done(&apply);
    let duration = began.elapsed();
    // The recorder sees what apply does.
    let applied = differences(&before, &recorded());
    for part in [
        "/proc/irq/default_smp_affinity",
        "/sys/devices/virtual/workqueue/cpumask",
        "nr_hugepages",
        "cpuset.sched_load_balance",
        "quietwire-host",
        "/task/",
    ] {
        let is_applied = applied.iter().any(|one| one.contains(part));
        assert!(is_applied, "{part} is not among {applied:#?}");
    }
    done(&["rollback"]);
    assert_as_before(&before, "applied");

    let mut killed = 0;
    for kill in 1..=KILLS {
        let most = u64::try_from(duration.as_micros()).unwrap();
        let moment = Duration::from_micros(rng.between(0, most));
        let mut process = Command::new(env!("CARGO_BIN_EXE_quietwire"))
            .arg("partition")
            .args(apply)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The moment is what varies in this test; nothing is awaited.
        std::thread::sleep(moment);
        process.kill().unwrap();
        let status = process.wait().unwrap();
        killed += u32::from(status.signal() == Some(SIGKILL));
        let output = partition(&["rollback"]);
        let what = format!("kill {kill} after {moment:?}");
        assert!(output.status.success(), "{what}: {}", text(&output));
        assert_as_before(&before, &what);
    }
    assert!(
        killed > 0,
        "all {KILLS} processes ended before they were killed"
    );
    println!("{killed} of {KILLS} killed within {duration:?}");
}

fn assert_as_before(before: &AtRest, what: &str) {
    let found = differences(before, &recorded());
    assert!(found.is_empty(), "{what}: {found:#?}");
}
