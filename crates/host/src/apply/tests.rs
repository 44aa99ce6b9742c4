// SPDX-License-Identifier: Apache-2.0
//! Tests with a fake machine: applying makes all changes, applying again changes nothing, and rolling back from any point
//! restores the original state.

mod faults;
mod stops;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::slice;
use std::sync::Arc;

use quietwire_base::LockOwner;

use super::*;
use crate::files::hanging::Hanging;
use crate::files::{Disk, Files as _};
use crate::partition::parts::{class, group, list};
use crate::partition::{BootParameter, FrequencySetting, HugePages, NicPlan, Role};
use crate::resctrl::Resctrl;
use crate::resctrl::fake::{FakeGroup, FakeResctrl, Rules};

/// Files of a machine with 4 CPUs, of which 2 and 3 forward.
const MACHINE: &[(&str, &str)] = &[
    ("proc/cmdline", "root=/dev/vda isolcpus=2-3\n"),
    ("proc/irq/default_smp_affinity", "f\n"),
    ("proc/irq/24/smp_affinity_list", "0-3\n"),
    ("proc/irq/25/smp_affinity_list", "1\n"),
    ("sys/devices/virtual/workqueue/cpumask", "f\n"),
    ("sys/bus/workqueue/devices/writeback/cpumask", "0000000f\n"),
    ("sys/class/net/eth0/queues/rx-0/rps_cpus", "e\n"),
    ("sys/class/net/eth0/queues/tx-0/xps_cpus", "f\n"),
    (
        "sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
        "8\n",
    ),
    ("sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs", "2\n"),
    (
        "sys/devices/system/cpu/cpu2/cpufreq/scaling_governor",
        "powersave\n",
    ),
    (
        "sys/devices/system/cpu/cpu2/cpufreq/energy_performance_preference",
        "balance_power\n",
    ),
    (
        "sys/devices/system/cpu/cpu2/cpufreq/scaling_min_freq",
        "800000\n",
    ),
    (
        "sys/devices/system/cpu/cpu2/cpufreq/scaling_max_freq",
        "2000000\n",
    ),
];
const FIRST_VERSION: &[(&str, &str)] = &[
    (
        "proc/self/mounts",
        "c /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n",
    ),
    ("sys/fs/cgroup/cpuset/cpuset.mems", "0\n"),
    ("sys/fs/cgroup/cpuset/cpuset.sched_load_balance", "1\n"),
];
const SECOND_VERSION: &[(&str, &str)] = &[
    ("proc/self/mounts", "c /sys/fs/cgroup cgroup2 rw 0 0\n"),
    ("sys/fs/cgroup/cgroup.controllers", "cpu cpuset\n"),
    ("sys/fs/cgroup/cgroup.subtree_control", "cpu cpuset\n"),
    ("sys/fs/cgroup/system.slice/cpuset.cpus", "\n"),
    ("sys/fs/cgroup/machine.slice/cpuset.cpus", "\n"),
];

fn plan() -> Plan {
    Plan {
        groups: vec![
            group(Role::Host, "host", "0"),
            group(Role::Service, "service", "1"),
            group(Role::Forwarding, "forwarding", "2"),
            group(Role::Guest, "db", "3"),
        ],
        classes: vec![
            class("default", "0-1", 0x7f0, 60, 2),
            class("forwarding", "2", 0xc, 100, 2),
            class("db", "3", 0x3, 25, 2),
        ],
        huge_pages: vec![HugePages {
            node: Some(0),
            page_kib: 2048,
            pages: 64,
            data_plane_mib: 128,
        }],
        nics: vec![NicPlan {
            pci_address: "0000:3b:00.0".to_owned(),
            interface: None,
            node: Some(0),
            queues: Vec::new(),
            functions: Some(4),
            mtu: 1500,
        }],
        frequencies: vec![FrequencySetting {
            cpus: list("2"),
            governor: Some("performance".to_owned()),
            min_khz: Some(2_700_000),
            max_khz: Some(2_700_000),
            is_high_priority: true,
        }],
        boot: ["isolcpus=2-3", "nohz_full=2-3"]
            .map(|text| {
                let (name, value) = text.split_once('=').unwrap();
                BootParameter {
                    name: name.to_owned(),
                    value: Some(value.to_owned()),
                    reason: "isolation".to_owned(),
                }
            })
            .to_vec(),
        housekeeping: list("0-1"),
        ..Plan::default()
    }
}

struct Rig {
    root: tempfile::TempDir,
    fake: FakeResctrl,
}

/// Contents of all files, except those of the state directory.
type Contents = (
    BTreeMap<PathBuf, Option<String>>,
    BTreeMap<String, FakeGroup>,
);

impl Rig {
    fn new(cgroups: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in MACHINE.iter().chain(cgroups) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        // The test's own process, as a thread that forwards on CPU 2.
        let own = std::process::id();
        let at = root.path().join(format!("proc/{own}"));
        fs::create_dir_all(at.join(format!("task/{own}"))).unwrap();
        fs::write(at.join("comm"), "dpdk-testpmd\n").unwrap();
        let status = "Name:\tdpdk-worker2\nVmSize:\t1 kB\nCpus_allowed_list:\t2\n";
        fs::write(at.join(format!("task/{own}/status")), status).unwrap();
        let tasks = [i32::try_from(own).unwrap()];
        let fake = FakeResctrl::new(root.path(), Rules::default(), &tasks);
        Self { root, fake }
    }

    /// Returns the resctrl group of the test's own process.
    fn own_group(&self) -> String {
        let resctrl = Resctrl::find(&self.fake, self.root.path()).unwrap();
        let groups = resctrl.groups(&self.fake).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let of_own = groups
            .into_iter()
            .filter(|group| group.tasks.contains(&own));
        let names: Vec<String> = of_own.map(|group| group.name).collect();
        assert_eq!(names.len(), 1, "a task is in one group: {names:?}");
        names.concat()
    }

    fn target(&self) -> Target<'_> {
        Target {
            files: &self.fake,
            storage: &Disk,
            root: self.root.path().to_owned(),
            state_directory: self.root.path().join("run/quietwire/partition"),
        }
    }

    fn contents(&self) -> Contents {
        let mut found = BTreeMap::new();
        let mut directories = vec![self.root.path().to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).unwrap() {
                let path = entry.unwrap().path();
                if path == self.root.path().join("run") {
                    continue;
                }
                if path.is_dir() {
                    found.insert(path.clone(), None);
                    directories.push(path);
                } else {
                    let text = fs::read_to_string(&path).unwrap();
                    found.insert(path, Some(text));
                }
            }
        }
        (found, self.fake.groups())
    }

    fn holds(&self, path: &str) -> String {
        let text = fs::read_to_string(self.root.path().join(path));
        text.unwrap_or_else(|error| panic!("{path}: {error}"))
            .trim()
            .to_owned()
    }

    fn roll_back(&self) {
        for (change, outcome) in roll_back(&self.target(), false).unwrap() {
            let fine = matches!(outcome, UndoOutcome::Restored | UndoOutcome::AlreadyGone);
            assert!(fine, "{change}: {outcome}");
        }
    }
}

/// Returns a stop flag, and a watcher that sets it at its Nth call, from 0.
fn stop_at(mut left: u32) -> (Arc<AtomicBool>, journal::Watcher) {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let watcher = move || match left.checked_sub(1) {
        Some(less) => left = less,
        None => flag.store(true, Ordering::Relaxed),
    };
    (stop, Box::new(watcher))
}

#[test]
fn a_plan_is_applied_once_and_rolled_back() {
    for cgroups in [FIRST_VERSION, SECOND_VERSION] {
        let rig = Rig::new(cgroups);
        let (target, before) = (rig.target(), rig.contents());
        let expected = differences(&target, &plan()).unwrap();
        assert_eq!(rig.contents(), before, "looking changes nothing");
        let report = apply(&target, &plan(), None).unwrap();
        assert_eq!(report.failures(), 0, "{report:?}");
        let made: Vec<Difference> = report
            .applied
            .iter()
            .map(|one| one.difference.clone())
            .collect();
        assert_eq!(made, expected);
        assert_eq!(rig.holds("proc/irq/24/smp_affinity_list"), "0-1");
        assert_eq!(rig.holds("proc/irq/25/smp_affinity_list"), "1");
        assert_eq!(rig.holds("sys/class/net/eth0/queues/rx-0/rps_cpus"), "2");
        assert_eq!(
            rig.holds("sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs"),
            "4"
        );
        assert_eq!(rig.own_group(), "forwarding");
        let pending: Vec<&str> = report
            .pending
            .iter()
            .map(|one| one.parameter.as_str())
            .collect();
        assert_eq!(pending, ["nohz_full=2-3"]);
        assert_eq!(
            rig.holds("run/quietwire/partition/rendered/kernel-cmdline"),
            "isolcpus=2-3 nohz_full=2-3"
        );

        let after = rig.contents();
        assert_eq!(differences(&target, &plan()).unwrap(), []);
        let mut fewer = plan();
        fewer.huge_pages[0].pages = 4;
        assert_eq!(
            differences(&target, &fewer).unwrap(),
            [],
            "pages of others stay"
        );
        let again = apply(&target, &plan(), None).unwrap();
        assert!(
            again.applied.is_empty() && again.undone.is_empty(),
            "{again:?}"
        );
        assert_eq!(rig.contents(), after);
        assert!(!status(&target).unwrap().changes.is_empty());

        rig.roll_back();
        assert_eq!(rig.contents(), before);
        assert!(status(&target).unwrap().changes.is_empty());
        rig.roll_back();
    }
}

/// Returns the differences that `apply` would remove.
fn differences(target: &Target<'_>, plan: &Plan) -> Result<Vec<Difference>, ApplyError> {
    super::differences(target, plan).map(|found| found.removable)
}

/// Returns the differences that only the kernel can remove.
fn fixed_differences(target: &Target<'_>, plan: &Plan) -> Result<Vec<Difference>, ApplyError> {
    super::differences(target, plan).map(|found| found.fixed)
}

#[test]
fn an_interrupt_that_only_the_kernel_can_move_is_reported_as_such_and_stays() {
    let rig = Rig::new(FIRST_VERSION);
    let (target, plan) = (rig.target(), plan());
    let file = "proc/irq/24/smp_affinity_list";
    let path = rig.root.path().join(file);
    let is_moved = |differences: &[Difference]| differences.iter().any(|one| one.place == path);
    assert!(is_moved(&differences(&target, &plan).unwrap()));
    assert_eq!(fixed_differences(&target, &plan).unwrap(), []);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    assert!(!is_moved(&differences(&target, &plan).unwrap()));
    let fixed = Difference {
        place: path.clone(),
        now: "0-3".to_owned(),
        wanted: "0-1".to_owned(),
    };
    let found = fixed_differences(&target, &plan).unwrap();
    assert_eq!(found, slice::from_ref(&fixed));
    let before = rig.contents();
    let report = apply(&target, &plan, None).unwrap();
    assert_eq!(report.failures(), 0, "{report:?}");
    let applied = report.applied.iter().find(|one| one.difference == fixed);
    let outcome = applied.map(|one| &one.outcome);
    assert!(matches!(outcome, Some(Outcome::Fixed { .. })), "{report:?}");
    assert_eq!(rig.holds(file), "0-3");
    // The journal has the changes that were made.
    let status = status(&target).unwrap();
    let mut journaled = status.changes.iter().chain(&status.not_in_effect);
    let is_of_file = |change: &Change| match change {
        Change::FileWritten { path: written, .. } => *written == path,
        _ => false,
    };
    assert!(!journaled.any(is_of_file));
    rig.roll_back();
    assert_eq!(rig.contents(), before);
}

#[test]
fn cpu_sets_are_those_of_the_plan() {
    let rig = Rig::new(FIRST_VERSION);
    apply(&rig.target(), &plan(), None).unwrap();
    let of = |set: &str| {
        let at = format!("sys/fs/cgroup/cpuset/quietwire-{set}");
        let balance = rig.holds(&format!("{at}/cpuset.sched_load_balance"));
        (rig.holds(&format!("{at}/cpuset.cpus")), balance)
    };
    let wanted = |cpus: &str, balance: &str| (cpus.to_owned(), balance.to_owned());
    assert_eq!(of("host"), wanted("0", "1"));
    assert_eq!(of("data-plane"), wanted("1-2", "0"));
    assert_eq!(of("db"), wanted("3", "0"));
    let work_queues = |rig: &Rig| {
        let unbound = rig.holds("sys/devices/virtual/workqueue/cpumask");
        let write_back = rig.holds("sys/bus/workqueue/devices/writeback/cpumask");
        [unbound, write_back]
    };
    assert_eq!(work_queues(&rig), ["3", "3"]);
    let rig = Rig::new(SECOND_VERSION);
    apply(&rig.target(), &plan(), None).unwrap();
    let at = "sys/fs/cgroup/quietwire-data-plane";
    assert_eq!(rig.holds(&format!("{at}/cpuset.cpus")), "1-2");
    assert_eq!(
        rig.holds(&format!("{at}/cpuset.cpus.partition")),
        "isolated"
    );
    // The kernel removes the CPUs of the partition from the mask of unbound work queues.
    assert_eq!(work_queues(&rig), ["1", "3"]);
    // The kernel refuses a partition whose CPUs another group has. systemd disables the controller unless a group needs it.
    assert_eq!(rig.holds("sys/fs/cgroup/system.slice/cpuset.cpus"), "0");
    assert_eq!(rig.holds("sys/fs/cgroup/machine.slice/cpuset.cpus"), "");
    assert_eq!(
        rig.holds(&format!("{at}/cgroup.subtree_control")),
        "+cpuset"
    );
    // Without separate service CPUs, the data plane shares those of the host and is no partition.
    let rig = Rig::new(SECOND_VERSION);
    let mut shared = plan();
    shared.groups.remove(1);
    apply(&rig.target(), &shared, None).unwrap();
    assert_eq!(rig.holds(&format!("{at}/cpuset.cpus")), "0-2");
    assert_eq!(rig.holds(&format!("{at}/cpuset.cpus.partition")), "member");
    assert_eq!(rig.holds("sys/fs/cgroup/system.slice/cpuset.cpus"), "0-1");
    assert_eq!(work_queues(&rig), ["3", "3"]);
}

/// Panic payload that stops applying at a given call, as a kill would.
struct Killed;

#[test]
fn from_every_point_the_way_back_leads_to_the_beginning() {
    for cgroups in [FIRST_VERSION, SECOND_VERSION] {
        let mut points = 0;
        loop {
            let rig = Rig::new(cgroups);
            let before = rig.contents();
            let mut left = points;
            let watcher: journal::Watcher = Box::new(move || {
                if left == 0 {
                    resume_unwind(Box::new(Killed));
                }
                left -= 1;
            });
            let target = rig.target();
            let died = catch_unwind(AssertUnwindSafe(|| {
                apply(&target, &plan(), Some(watcher)).unwrap()
            }));
            if died.is_ok() {
                break;
            }
            // Every other time, another process applies the plan again first.
            if points % 2 == 1 {
                let report = apply(&target, &plan(), None).unwrap();
                assert_eq!(report.failures(), 0, "{report:?}");
                assert_eq!(differences(&target, &plan()).unwrap(), []);
            }
            rig.roll_back();
            assert_eq!(rig.contents(), before, "killed at point {points}");
            points += 1;
        }
        assert!(points > 30, "{points}");
    }
}

#[test]
fn settings_that_the_next_plan_lacks_are_rolled_back() {
    let rig = Rig::new(FIRST_VERSION);
    let before = rig.contents();
    apply(&rig.target(), &plan(), None).unwrap();
    let mut smaller = plan();
    smaller.groups[3].role = Role::Neighbour;
    smaller.groups[3].name = "web".to_owned();
    smaller.classes.pop();
    smaller.frequencies.clear();
    let report = apply(&rig.target(), &smaller, None).unwrap();
    assert_eq!(report.failures(), 0, "{report:?}");
    assert!(!report.undone.is_empty());
    let governor = "sys/devices/system/cpu/cpu2/cpufreq/scaling_governor";
    assert_eq!(rig.holds(governor), "powersave");
    assert!(
        !rig.root
            .path()
            .join("sys/fs/cgroup/cpuset/quietwire-db")
            .exists()
    );
    assert_eq!(
        rig.holds("sys/fs/cgroup/cpuset/quietwire-web/cpuset.cpus"),
        "3"
    );
    assert!(!rig.fake.groups().contains_key("db"));
    rig.roll_back();
    assert_eq!(rig.contents(), before);
}

#[test]
fn settings_changed_by_another_program_are_rolled_back_only_by_force() {
    let rig = Rig::new(FIRST_VERSION);
    let before = rig.contents();
    let target = rig.target();
    apply(&target, &plan(), None).unwrap();
    let governor = "sys/devices/system/cpu/cpu2/cpufreq/scaling_governor";
    fs::write(rig.root.path().join(governor), "ondemand\n").unwrap();
    let left: Vec<(Change, UndoOutcome)> = roll_back(&target, false)
        .unwrap()
        .into_iter()
        .filter(|(_, outcome)| matches!(outcome, UndoOutcome::ChangedSince(_)))
        .collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(rig.holds(governor), "ondemand");
    // The second rollback reports it again.
    let again = roll_back(&target, false).unwrap();
    assert!(
        again
            .iter()
            .any(|(_, outcome)| matches!(outcome, UndoOutcome::ChangedSince(_)))
    );
    roll_back(&target, true).unwrap();
    assert_eq!(rig.contents(), before);
}

#[test]
fn the_second_who_applies_sees_the_first() {
    let rig = Rig::new(FIRST_VERSION);
    let target = rig.target();
    let held = State::open(&target).unwrap();
    let own = i32::try_from(std::process::id()).unwrap();
    for error in [
        apply(&target, &plan(), None).unwrap_err(),
        roll_back(&target, false).unwrap_err(),
    ] {
        assert!(
            matches!(&error, ApplyError::Busy { owner } if owner.pid() == Some(own)),
            "{error}"
        );
    }
    let busy = status(&target).unwrap().busy;
    assert_eq!(busy.and_then(LockOwner::pid), Some(own));
    drop(held);
    apply(&target, &plan(), None).unwrap();
    assert_eq!(status(&target).unwrap().busy, None);
}

#[test]
fn a_forwarding_thread_is_in_the_class_of_its_cpu_and_goes_back() {
    let rig = Rig::new(FIRST_VERSION);
    let target = rig.target();
    let theirs = rig.root.path().join("sys/fs/resctrl/theirs");
    let own = format!("{}\n", std::process::id());
    rig.fake.make_directory(&theirs).unwrap();
    rig.fake.write(&theirs.join("tasks"), &own).unwrap();
    let before = rig.contents();
    let reported = differences(&target, &plan()).unwrap();
    let reported = reported
        .iter()
        .find(|one| one.place.ends_with("forwarding/tasks"));
    assert!(
        reported.is_some_and(|one| one.now.starts_with("1 forwarding thread")),
        "{reported:?}"
    );
    apply(&target, &plan(), None).unwrap();
    assert_eq!(rig.own_group(), "forwarding");
    assert_eq!(differences(&target, &plan()).unwrap(), []);
    rig.roll_back();
    assert_eq!(rig.own_group(), "theirs");
    assert_eq!(rig.contents(), before);

    // Its original group has been removed.
    apply(&target, &plan(), None).unwrap();
    rig.fake.remove_directory(&theirs).unwrap();
    rig.roll_back();
    assert_eq!(rig.own_group(), "");

    // Another program has moved it since.
    apply(&target, &plan(), None).unwrap();
    rig.fake.make_directory(&theirs).unwrap();
    rig.fake.write(&theirs.join("tasks"), &own).unwrap();
    let left = roll_back(&target, false).unwrap();
    let is_left =
        |(_, outcome): &&(Change, UndoOutcome)| matches!(outcome, UndoOutcome::ChangedSince(_));
    assert_eq!(left.iter().filter(is_left).count(), 1, "{left:?}");
    assert_eq!(rig.own_group(), "theirs");
    roll_back(&target, true).unwrap();
    assert_eq!(rig.own_group(), "");
    rig.fake.remove_directory(&theirs).unwrap();

    // It also moves to the default class, and stays there when the plan is applied again.
    rig.fake.make_directory(&theirs).unwrap();
    rig.fake.write(&theirs.join("tasks"), &own).unwrap();
    let mut one_class = plan();
    one_class.classes.truncate(1);
    one_class.classes[0].cpus = list("0-3");
    apply(&target, &one_class, None).unwrap();
    let again = apply(&target, &one_class, None).unwrap();
    assert!(
        again.undone.is_empty() && again.applied.is_empty(),
        "{again:?}"
    );
    assert_eq!(rig.own_group(), "");
    rig.roll_back();
    assert_eq!(rig.own_group(), "theirs");
}

#[test]
fn a_failed_change_is_reported_and_the_others_are_made() {
    let rig = Rig::new(FIRST_VERSION);
    let before = rig.contents();
    let mut infeasible = plan();
    infeasible.classes[1].masks[0].mask = 0x5;
    let report = apply(&rig.target(), &infeasible, None).unwrap();
    assert_eq!(report.failures(), 1, "{report:?}");
    let failed = report.applied.iter().find_map(|one| match &one.outcome {
        Outcome::Failed { reason } => Some(reason.clone()),
        _ => None,
    });
    assert!(failed.unwrap().contains("non-consecutive"));
    assert_eq!(
        rig.holds("sys/fs/cgroup/cpuset/quietwire-host/cpuset.cpus"),
        "0"
    );
    rig.roll_back();
    assert_eq!(rig.contents(), before);
}

#[test]
fn a_journal_that_was_cut_off_is_gone_on_with() {
    let rig = Rig::new(SECOND_VERSION);
    let before = rig.contents();
    let target = rig.target();
    apply(&target, &plan(), None).unwrap();
    let path = target.state_directory.join("journal");
    let mut journal = fs::read(&path).unwrap();
    journal.extend_from_slice(b"{\"change\":\"file-wri");
    fs::write(&path, journal).unwrap();
    let mut more = plan();
    more.huge_pages[0].pages = 128;
    apply(&target, &more, None).unwrap();
    rig.roll_back();
    assert_eq!(rig.contents(), before);
    assert_eq!(Disk.list(&target.state_directory).unwrap(), ["lock"]);
}

#[test]
fn an_incomplete_change_counts_as_failed() {
    let reason = || "there is no memory".to_owned();
    let outcomes = [
        (Outcome::Done, 0),
        (Outcome::Fixed { reason: reason() }, 0),
        (Outcome::Partly { what: reason() }, 1),
        (Outcome::Failed { reason: reason() }, 1),
    ];
    for (outcome, failures) in outcomes {
        let difference = Difference {
            place: "/sys".into(),
            now: "0".to_owned(),
            wanted: "512".to_owned(),
        };
        let applied = vec![Applied {
            difference,
            outcome,
        }];
        let report = ApplyReport {
            applied,
            ..ApplyReport::default()
        };
        assert_eq!(report.failures(), failures, "{report:?}");
    }
}

/// A file system of 32 KiB in memory.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        nix::mount::mount(
            Some("tmpfs"),
            directory.path(),
            Some("tmpfs"),
            nix::mount::MsFlags::empty(),
            Some("size=32k"),
        )
        .expect("this test requires root");
        Self(directory)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        nix::mount::umount(self.0.path()).unwrap();
    }
}

#[test]
fn a_disk_that_is_full_for_a_while_leaves_a_journal_that_rolls_everything_back() {
    // The disk has space again after N failures.
    for again in [1, 3, 6, 1000] {
        let mut rig = Rig::new(FIRST_VERSION);
        for irq in 30..50 {
            let path = rig
                .root
                .path()
                .join(format!("proc/irq/{irq}/smp_affinity_list"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "0-3\n").unwrap();
        }
        rig.fake = FakeResctrl::new(rig.root.path(), Rules::default(), &[]);
        let disk = SmallDisk::new();
        let before = rig.contents();
        let target = Target {
            state_directory: disk.0.path().to_owned(),
            ..rig.target()
        };
        let journal = target.state_directory.join("journal");
        let filler = target.state_directory.join("filler");
        let (mut last, mut equal, mut is_filled) = (u64::MAX, 0, false);
        let (file, journal_file) = (filler.clone(), journal.clone());
        let watcher: journal::Watcher = Box::new(move || {
            let length = fs::metadata(&journal_file).unwrap().len();
            equal = if length == last { equal + 1 } else { 0 };
            last = length;
            if !is_filled && length > 3000 {
                is_filled = true;
                // As much as fits. The journal's last page has space for some more lines, and for a part of one.
                let _ = fs::write(&file, vec![0; 32 << 10]);
            }
            // The journal has the same length after a change and before the next one, and after each failure.
            if is_filled && equal == again + 1 {
                fs::remove_file(&file).unwrap();
            }
        });
        let report = apply(&target, &plan(), Some(watcher)).unwrap();
        let is_refused = |one: &&Applied| matches!(&one.outcome, Outcome::Failed { reason } if reason.contains("No space left"));
        let failed = report.applied.iter().filter(is_refused).count();
        assert!(failed > 0, "full for {again} changes: {report:?}");
        assert_eq!(report.failures(), failed, "{report:?}");
        let is_pending_written = report.pending.iter().all(|one| one.file.is_some());
        assert_eq!(is_pending_written, again < 1000, "{report:?}");
        let changes = journal::read(&journal).unwrap();
        assert!(changes.len() > 10, "{}", changes.len());
        let unreadable = |change: &&Change| matches!(change, Change::Unreadable { .. });
        assert_eq!(changes.iter().find(unreadable), None);
        assert!(status(&target).unwrap().not_in_effect.is_empty());
        for (change, outcome) in roll_back(&target, false).unwrap() {
            assert!(!outcome.is_left(), "{change}: {outcome}");
        }
        assert_eq!(rig.contents(), before, "full for {again} changes");
        assert!(!journal.exists());
    }
}

#[test]
fn status_lists_what_is_in_effect_only() {
    let rig = Rig::new(FIRST_VERSION);
    let target = rig.target();
    apply(&target, &plan(), None).unwrap();
    // A change whose process was killed before it made it, and one that was undone by hand.
    let path = rig.root.path().join("proc/irq/25/smp_affinity_list");
    let never_made = Change::FileWritten {
        path,
        former: "1\n".to_owned(),
        new: "0".to_owned(),
    };
    let mut journal = journal::Journal::open(&target.state_directory.join("journal")).unwrap();
    journal.record(&never_made).unwrap();
    drop(journal);
    let mask = rig
        .root
        .path()
        .join("sys/devices/virtual/workqueue/cpumask");
    fs::write(&mask, "f\n").unwrap();
    let now = status(&target).unwrap();
    let of_mask =
        |change: &Change| matches!(change, Change::FileWritten { path, .. } if *path == mask);
    assert_eq!(now.not_in_effect.len(), 2, "{now:?}");
    assert!(now.not_in_effect.contains(&never_made) && now.not_in_effect.iter().any(of_mask));
    assert!(!now.changes.contains(&never_made) && !now.changes.iter().any(of_mask));

    // After a partial rollback, only the changes that are left are listed.
    let governor = rig
        .root
        .path()
        .join("sys/devices/system/cpu/cpu2/cpufreq/scaling_governor");
    fs::write(&governor, "ondemand\n").unwrap();
    assert!(roll_back(&target, false).unwrap().len() > 20);
    let now = status(&target).unwrap();
    assert!(
        matches!(&now.changes[..], [Change::FileWritten { path, .. }] if *path == governor),
        "{now:?}"
    );
    assert_eq!(now.not_in_effect, []);
    // A value that was restored belongs to the owner again, who may change it.
    fs::write(&mask, "7\n").unwrap();
    let again = roll_back(&target, true).unwrap();
    assert_eq!(again.len(), 1, "{again:?}");
    assert_eq!(fs::read_to_string(&mask).unwrap(), "7\n");
    assert!(!status(&target).unwrap().is_applied());
}

#[test]
fn a_driver_that_hangs_costs_its_own_setting_alone() {
    let functions = "sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs";
    let rig = Rig::new(FIRST_VERSION);
    let file = rig.root.path().join(functions);
    let hanging = Hanging::after(0, &rig.fake);
    let target = Target {
        files: &hanging,
        ..rig.target()
    };
    let error = differences(&target, &plan()).unwrap_err();
    assert!(
        matches!(&error, ApplyError::Unreadable { path, cause } if *path == file && cause.kind() == ErrorKind::TimedOut),
        "{error}"
    );
    // The kernel answers no more when the number is compared, when the change begins, and after it.
    for (answers, left) in [(0, "2"), (1, "2"), (2, "4")] {
        let hanging = Hanging::after(answers, &rig.fake);
        let target = Target {
            files: &hanging,
            ..rig.target()
        };
        let report = apply(&target, &plan(), None).unwrap();
        assert_eq!(report.failures(), 1, "{report:?}");
        let is_it = |one: &&Applied| one.difference.place == file;
        let outcome = &report.applied.iter().find(is_it).unwrap().outcome;
        assert!(
            matches!(outcome, Outcome::Failed { reason } if reason.contains("timed out")),
            "{outcome:?}"
        );
        assert_eq!(rig.holds(functions), left);
        // A number that cannot be read may be the new one.
        let is_it =
            |change: &Change| matches!(change, Change::FileWritten { path, .. } if *path == file);
        let now = status(&target).unwrap();
        assert_eq!(now.changes.iter().any(is_it), left == "4", "{now:?}");
        rig.roll_back();
        assert_eq!(rig.holds(functions), "2");
    }
}

#[test]
fn a_damaged_journal_is_rolled_back_as_far_as_it_is_readable_and_kept() {
    let rig = Rig::new(FIRST_VERSION);
    let before = rig.contents();
    let target = rig.target();
    apply(&target, &plan(), None).unwrap();
    let path = target.state_directory.join("journal");
    let text = fs::read_to_string(&path).unwrap();
    // The line of a setting that no other line restores.
    fs::write(&path, text.replacen("irq/24/smp", "irq/42/smp", 1)).unwrap();
    let unreadable = |changes: &[Change]| {
        let is_it = |change: &&Change| matches!(change, Change::Unreadable { .. });
        changes.iter().filter(is_it).count()
    };
    assert_eq!(unreadable(&status(&target).unwrap().changes), 1);
    let again = apply(&target, &plan(), None).unwrap();
    assert_eq!(again.failures(), 1, "{again:?}");
    let undone = roll_back(&target, false).unwrap();
    let left: Vec<String> = undone
        .iter()
        .filter(|(_, outcome)| outcome.is_left())
        .map(|(change, outcome)| format!("{change}: {outcome}"))
        .collect();
    assert_eq!(left.len(), 1, "{left:?}");
    let kept = target.state_directory.join("journal.damaged");
    assert!(
        left[0].contains("irq/42/smp") && left[0].contains(kept.to_str().unwrap()),
        "{left:?}"
    );
    assert!(kept.exists() && !path.exists());
    let affinity = rig.root.path().join("proc/irq/24/smp_affinity_list");
    fs::write(affinity, "0-3\n").unwrap();
    assert_eq!(rig.contents(), before);
    assert!(roll_back(&target, false).unwrap().is_empty());
    assert!(!status(&target).unwrap().is_applied());
}
