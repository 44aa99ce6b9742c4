// SPDX-License-Identifier: Apache-2.0
//! Tests with the machine's own CPU sets, if it has any, and with a version 2 tree of plain files.

use std::process::Command;

use quietwire_base::testing::take_turn;
use quietwire_base::{LockFile, wait_until};

use super::*;
use crate::journal::{self, UndoOutcome};

/// Returns the CPU sets of this machine and a lock: all tests and programs share one tree, and a test also confines the
/// processes of the others.
fn real_sets() -> (Cpusets, LockFile) {
    let sets = Cpusets::find(Path::new("/")).unwrap();
    assert!(
        nix::unistd::geteuid().is_root(),
        "CPU sets require root: run the tests as root"
    );
    (sets, take_turn().unwrap())
}

fn allowed(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap().trim().to_owned()
}

/// Undoes a test's changes to the real machine, even if the test fails.
struct Tidy(PathBuf);

impl Drop for Tidy {
    fn drop(&mut self) {
        for (change, outcome) in journal::undo(&journal::read(&self.0).unwrap_or_default()) {
            if let UndoOutcome::Failed(why) = outcome {
                eprintln!("left behind: {change:?}: {why}");
            }
        }
    }
}

#[test]
fn a_real_set_holds_its_process_and_goes_without_trace() {
    let (sets, _turn) = real_sets();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let mut journal = Journal::open(&path).unwrap();
    let _tidy = Tidy(path.clone());
    let name = format!("quietwire-test-{}", std::process::id());
    let cpus: CpuList = "0".parse().unwrap();
    let kept = sets
        .create(
            &mut journal,
            &format!("{name}-kept"),
            &cpus,
            TasksOnUndo::Return,
        )
        .unwrap();
    let killed = sets
        .create(
            &mut journal,
            &format!("{name}-killed"),
            &cpus,
            TasksOnUndo::Kill,
        )
        .unwrap();
    let mut children: Vec<_> = (0..2)
        .map(|_| Command::new("sleep").arg("60").spawn().unwrap())
        .collect();
    let before = allowed(children[0].id());
    for (set, child) in [&kept, &killed].iter().zip(&children) {
        fs::write(set.processes_file(), child.id().to_string()).unwrap();
        assert_eq!(allowed(child.id()), "0");
        assert_eq!(
            set.processes().unwrap(),
            [i32::try_from(child.id()).unwrap()]
        );
    }
    for round in 0..2 {
        for (change, outcome) in journal::undo(&journal::read(&path).unwrap()) {
            let wanted = if round == 0 {
                UndoOutcome::Restored
            } else {
                UndoOutcome::AlreadyGone
            };
            assert_eq!(outcome, wanted, "{change:?}");
        }
    }
    assert!(!kept.path.exists() && !killed.path.exists());
    assert_eq!(allowed(children[0].id()), before);
    assert!(wait_until(Duration::from_secs(5), || children[1]
        .try_wait()
        .unwrap()
        .is_some()));
    children[0].kill().unwrap();
    children[0].wait().unwrap();
}

#[test]
fn the_rest_of_the_real_machine_moves_aside_and_comes_back() {
    let (sets, _turn) = real_sets();
    let online = crate::threads::online_cpus(Path::new("/")).unwrap();
    let aside: CpuList = online.first().into_iter().collect();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let mut journal = Journal::open(&path).unwrap();
    let _tidy = Tidy(path.clone());
    let name = format!("quietwire-test-{}", std::process::id());
    let sleep = || Command::new("sleep").arg("60").spawn().unwrap();
    let (mut ordinary, mut bound) = (sleep(), sleep());
    let before = allowed(ordinary.id());
    let last: CpuList = online.iter().next_back().into_iter().collect();
    let pid = i32::try_from(bound.id()).unwrap();
    crate::threads::set_affinity(pid, &last).unwrap();
    sets.note_affinities(&mut journal).unwrap();
    let rest = format!("{name}-rest");
    let rest = sets
        .create(&mut journal, &rest, &aside, TasksOnUndo::Return)
        .unwrap();
    move_tasks(&sets.mount, &rest.path).unwrap();
    assert_eq!(allowed(ordinary.id()), aside.to_string());
    assert_eq!(allowed(bound.id()), aside.to_string());
    for (change, outcome) in journal::undo(&journal::read(&path).unwrap()) {
        assert!(
            matches!(outcome, UndoOutcome::Restored | UndoOutcome::AlreadyGone),
            "{change:?} {outcome:?}"
        );
    }
    assert_eq!(allowed(ordinary.id()), before);
    assert_eq!(allowed(bound.id()), last.to_string());
    for child in [&mut ordinary, &mut bound] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// Returns a version 2 tree of plain files, as the kernel would show it.
fn unified(controllers: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let mount = root.path().join("sys/fs/cgroup");
    fs::create_dir_all(&mount).unwrap();
    for (file, text) in [
        ("cgroup.controllers", controllers),
        ("cgroup.subtree_control", "cpu memory\n"),
    ] {
        fs::write(mount.join(file), text).unwrap();
    }
    fs::create_dir_all(root.path().join("proc/self")).unwrap();
    fs::write(
        root.path().join("proc/self/mounts"),
        "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
    )
    .unwrap();
    root
}

#[test]
fn version_two_enables_the_controller_and_disables_it_again() {
    let root = unified("cpu cpuset memory\n");
    let sets = Cpusets::find(root.path()).unwrap();
    assert_eq!(sets.version, Version::V2);
    let path = root.path().join("journal");
    let mut journal = Journal::open(&path).unwrap();
    let cpus: CpuList = "0,2".parse().unwrap();
    let set = sets
        .create(&mut journal, "rest", &cpus, TasksOnUndo::Return)
        .unwrap();
    let planned = fs::read_to_string(set.path.join("cpuset.cpus")).unwrap();
    assert_eq!(planned, "0,2");
    let controllers = || fs::read_to_string(sets.mount.join("cgroup.subtree_control")).unwrap();
    assert_eq!(controllers(), "+cpuset");
    // The kernel's state after the change.
    fs::write(
        sets.mount.join("cgroup.subtree_control"),
        "cpu cpuset memory\n",
    )
    .unwrap();
    let _ = journal::undo(&journal::read(&path).unwrap());
    assert_eq!(controllers(), "-cpuset");
}

#[test]
fn a_machine_without_the_controller_is_reported_so() {
    let root = unified("cpu memory\n");
    assert!(matches!(
        Cpusets::find(root.path()),
        Err(CpusetError::Unavailable)
    ));
}
