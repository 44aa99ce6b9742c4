// SPDX-License-Identifier: Apache-2.0
//! `clean` restores the machine after a lab's process was killed with SIGKILL.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use common::{
    DEADLINE, device_pid, enter, machine, neighbours_set, options, partitioned, sets_of,
    state_of_machine,
};
use quietwire_base::testing::take_turn;
use quietwire_base::{LockOwner, ProcessId, wait_until};
use quietwire_lab::{Lab, clean};

/// Environment variable with the directory in which a process of this test starts a lab, to be killed.
const VICTIM: &str = "QUIETWIRE_TEST_VICTIM";
const TEST: &str = "a_killed_lab_is_undone_by_another_process_and_only_once";

/// Starts a complete lab, reports it, and waits to be killed.
fn run_victim(directory: &Path) {
    let (forwarding, others) = machine();
    let options = options(directory, "works");
    let mut lab = Lab::open(options.clone()).unwrap();
    lab.reserve_huge_pages(8).unwrap();
    lab.allow_realtime(&others, &forwarding.union(&others))
        .unwrap();
    let _begun = enter(&mut lab, &options, &partitioned(&forwarding, &others)).unwrap();
    let up = directory.join("up");
    fs::write(up.with_extension("new"), device_pid(&lab).to_string()).unwrap();
    fs::rename(up.with_extension("new"), &up).unwrap();
    wait_until(DEADLINE, || false);
}

/// Cleans up on drop, so that no victim and none of its changes remain.
struct Victim(Child, PathBuf);

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        if let Err(error) = clean(&self.1) {
            eprintln!("left behind: {error}");
        }
    }
}

#[test]
fn a_killed_lab_is_undone_by_another_process_and_only_once() {
    if let Some(directory) = std::env::var_os(VICTIM) {
        return run_victim(Path::new(&directory));
    }
    let _turn = take_turn().unwrap();
    let before = state_of_machine();
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    for round in 0..2 {
        let up = directory.path().join("up");
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", TEST, "--nocapture"])
            .env(VICTIM, directory.path())
            .spawn()
            .unwrap();
        let mut victim = Victim(child, state.clone());
        assert!(wait_until(DEADLINE, || up.exists()
            || !matches!(victim.0.try_wait(), Ok(None))));
        let device: i32 = fs::read_to_string(&up).unwrap().parse().unwrap();
        let device = ProcessId::of(device).unwrap();
        let pid = victim.0.id();
        // The lab runs: `clean` changes nothing.
        let busy = clean(&state).unwrap().busy;
        assert_eq!(busy.and_then(LockOwner::pid), i32::try_from(pid).ok());
        let set = neighbours_set(pid);
        let neighbours: Vec<ProcessId> = fs::read_to_string(set.join("cgroup.procs"))
            .unwrap()
            .lines()
            .filter_map(|line| ProcessId::of(line.parse().unwrap()))
            .collect();
        assert!(neighbours.len() > 1);

        victim.0.kill().unwrap();
        victim.0.wait().unwrap();
        // This device survives its parent's exit.
        assert!(device.is_alive());
        assert_ne!(state_of_machine(), before);
        let report = clean(&state).unwrap();
        assert_eq!(report.failures().count(), 0, "round {round}: {report:?}");
        assert!(report.undone.len() >= 7, "{report:?}");
        assert!(!device.is_alive());
        assert!(neighbours.iter().all(|neighbour| !neighbour.is_alive()));
        assert!(sets_of(pid).is_empty());
        assert_eq!(state_of_machine(), before);
        assert!(!state.join(format!("lab-{pid}")).exists());
        assert!(clean(&state).unwrap().undone.is_empty());
        fs::remove_file(&up).unwrap();
    }
}
