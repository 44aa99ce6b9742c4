// SPDX-License-Identifier: Apache-2.0
//! Cases start and stop on this machine, with a fake device.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{
    DEADLINE, device_pid, enter, machine, neighbours_set, options, partitioned, sets_of,
    state_of_machine,
};
use quietwire_base::testing::take_turn;
use quietwire_base::{Fault, ProcessId, wait_until};
use quietwire_host::CpuList;
use quietwire_host::cpuset::Cpusets;
use quietwire_host::threads::allowed_cpus;
use quietwire_lab::topology::Forwarding;
use quietwire_lab::{Lab, LabError};

fn number(pid: u32) -> i32 {
    i32::try_from(pid).unwrap()
}

/// Returns the CPU set of a process.
fn set_of(pid: i32) -> PathBuf {
    let sets = Cpusets::find(Path::new("/")).unwrap();
    sets.set_of(Path::new("/"), pid).unwrap()
}

/// Scheduling policy of a task (field 41 of `/proc/PID/stat`, proc(5)); 0 is SCHED_OTHER.
fn policy(pid: i32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let behind = &stat[stat.rfind(')').unwrap() + 1..];
    behind.split_whitespace().nth(38).unwrap().to_owned()
}

#[test]
fn cases_come_up_one_after_the_other_and_leave_nothing() {
    let _turn = take_turn().unwrap();
    let (forwarding, others) = machine();
    let before = state_of_machine();
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path(), "works");
    let state = options.state_directory.clone();
    let mut lab = Lab::open(options.clone()).unwrap();
    let case = partitioned(&forwarding, &others);
    for round in 0..2 {
        let commands = enter(&mut lab, &options, &case).unwrap();
        let up = lab.device().unwrap().state();
        let uris = up.tester.uris();
        assert_eq!(uris.len(), 2);
        assert!(uris[1].contains("l1.sock?role=client&id=0"), "{uris:?}");
        let threads = up.elements[0].threads.iter();
        let roles: Vec<&str> = threads.map(|thread| thread.role.name()).collect();
        for role in ["forwarding", "service", "control"] {
            assert!(roles.contains(&role), "{roles:?}");
        }
        // Other processes do not run on the CPUs of the device.
        assert!(!commands.is_empty(), "round {round}");
        let own = allowed_cpus(Path::new("/"), number(std::process::id())).unwrap();
        assert!(own.intersection(&forwarding).is_empty(), "{own}");
        let set = neighbours_set(std::process::id());
        let neighbours: Vec<i32> = fs::read_to_string(set.join("cgroup.procs"))
            .unwrap()
            .lines()
            .map(|line| line.parse().unwrap())
            .collect();
        assert!(neighbours.len() > 1, "{neighbours:?}");
        assert!(neighbours.iter().all(|pid| policy(*pid) == "0"));
        lab.check().unwrap();
        let at_work = lab.neighbours_at_work().unwrap().unwrap();
        assert!(wait_until(DEADLINE, || {
            let intensity = lab.intensity_since(&at_work).unwrap();
            intensity.threads == neighbours.len() && intensity.cpu_time_s > 0.0
        }));
        let counts = lab.device().unwrap().frames();
        assert_eq!(
            counts.elements["S"].as_ref().unwrap().ports["p0"].received,
            3
        );
        let device = ProcessId::of(device_pid(&lab)).unwrap();
        lab.leave().unwrap();
        assert!(!device.is_alive());
        assert!(sets_of(std::process::id()).is_empty());
        assert_eq!(state_of_machine(), before);
    }
    assert!(lab.device().is_none());
    lab.down().unwrap();
    let left: Vec<_> = fs::read_dir(state)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["lock"]);
}

#[test]
fn a_lab_that_is_dropped_with_a_case_up_undoes_it() {
    let _turn = take_turn().unwrap();
    let (forwarding, others) = machine();
    let before = state_of_machine();
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path(), "works");
    let mut lab = Lab::open(options.clone()).unwrap();
    lab.allow_realtime(&others, &others.union(&forwarding))
        .unwrap();
    let _begun = enter(&mut lab, &options, &partitioned(&forwarding, &others)).unwrap();
    assert_eq!(state_of_machine()[1].trim(), "-1");
    let device = device_pid(&lab);
    drop(lab);
    assert_eq!(ProcessId::of(device), None);
    assert!(sets_of(std::process::id()).is_empty());
    assert_eq!(state_of_machine(), before);
}

#[test]
fn a_device_or_neighbours_that_die_are_reported() {
    let _turn = take_turn().unwrap();
    let (forwarding, others) = machine();
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path(), "works");
    let mut lab = Lab::open(options.clone()).unwrap();
    let case = partitioned(&forwarding, &others);
    let _begun = enter(&mut lab, &options, &case).unwrap();
    let device = ProcessId::of(device_pid(&lab)).unwrap();
    device.end(DEADLINE).unwrap();
    // Its first thread may have exited before the others.
    assert!(wait_until(DEADLINE, || matches!(
        lab.check(),
        Err(LabError::Device { .. })
    )));
    let _begun = enter(&mut lab, &options, &case).unwrap();
    lab.check().unwrap();
    let set = neighbours_set(std::process::id());
    let first: i32 = fs::read_to_string(set.join("cgroup.procs"))
        .unwrap()
        .lines()
        .map(|line| line.parse().unwrap())
        .min()
        .unwrap();
    ProcessId::of(first).unwrap().end(DEADLINE).unwrap();
    assert!(wait_until(DEADLINE, || matches!(
        lab.check(),
        Err(LabError::Neighbours { .. })
    )));
    lab.down().unwrap();
    assert!(sets_of(std::process::id()).is_empty());
}

#[test]
fn a_device_is_restarted_and_forgets_where_it_was() {
    let _turn = take_turn().unwrap();
    let (forwarding, others) = machine();
    let before = state_of_machine();
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path(), "works");
    let mut lab = Lab::open(options.clone()).unwrap();
    let no_case = lab.restart_device().unwrap_err().to_string();
    assert!(no_case.contains("no case is up"), "{no_case}");
    assert!(lab.forget_addresses().is_err());
    let mut case = partitioned(&forwarding, &others);
    case.forwarding = Forwarding::Bridge;
    case.has_monitor = true;
    let _begun = enter(&mut lab, &options, &case).unwrap();
    assert_eq!(lab.device().unwrap().state().tester.uris().len(), 3);
    let first = ProcessId::of(device_pid(&lab)).unwrap();
    let set = set_of(first.pid);
    assert_ne!(set, set_of(number(std::process::id())));
    lab.restart_device().unwrap();
    assert!(!first.is_alive());
    let second = ProcessId::of(device_pid(&lab)).unwrap();
    assert_ne!(second, first);
    assert!(second.is_alive());
    lab.check().unwrap();
    lab.forget_addresses().unwrap();
    // In the CPU set that the first one was in.
    assert_eq!(set_of(second.pid), set);
    lab.leave().unwrap();
    assert!(!second.is_alive());
    assert!(sets_of(std::process::id()).is_empty());
    assert_eq!(state_of_machine(), before);
}

#[test]
fn a_device_that_does_not_restart_or_flush_addresses_is_reported() {
    let _turn = take_turn().unwrap();
    let (forwarding, others) = machine();
    let directory = tempfile::tempdir().unwrap();
    let case = partitioned(&forwarding, &others);
    let starts_once = options(directory.path(), "starts-once");
    let mut lab = Lab::open(starts_once.clone()).unwrap();
    let _begun = enter(&mut lab, &starts_once, &case).unwrap();
    let error = lab.restart_device().unwrap_err().to_string();
    assert!(error.contains("no memory for the mempool"), "{error}");
    assert!(matches!(lab.check(), Err(LabError::Device { .. })));
    lab.down().unwrap();
    let keeps = options(directory.path(), "keeps");
    let mut lab = Lab::open(keeps.clone()).unwrap();
    let _begun = enter(&mut lab, &keeps, &case).unwrap();
    let error = lab.forget_addresses().unwrap_err().to_string();
    assert!(error.contains("the table is stuck"), "{error}");
    lab.down().unwrap();
    assert!(sets_of(std::process::id()).is_empty());
}

#[test]
fn a_device_that_does_not_start_is_reported_and_undone() {
    let _turn = take_turn().unwrap();
    let (forwarding, others) = machine();
    let before = state_of_machine();
    let directory = tempfile::tempdir().unwrap();
    let case = partitioned(&forwarding, &others);

    let dies = options(directory.path(), "dies");
    let mut lab = Lab::open(dies.clone()).unwrap();
    let error = enter(&mut lab, &dies, &case).unwrap_err();
    assert_eq!(error.fault(), Fault::Failed);
    let text = error.to_string();
    for part in ["device 'S'", "no memory for the mempool", "switch run"] {
        assert!(text.contains(part), "{text}");
    }
    lab.down().unwrap();

    let works = options(directory.path(), "works");
    let mut lab = Lab::open(works.clone()).unwrap();
    let mut nonsense = case.clone();
    nonsense.neighbours.stressors = vec!["--no-such-stressor 1".to_owned()];
    let text = enter(&mut lab, &works, &nonsense).unwrap_err().to_string();
    assert!(text.contains("no-such-stressor"), "{text}");
    lab.down().unwrap();
    assert!(sets_of(std::process::id()).is_empty());
    assert_eq!(state_of_machine(), before);
}

#[test]
fn a_device_that_falsely_reports_pinned_threads_is_detected() {
    let _turn = take_turn().unwrap();
    let (forwarding, others) = machine();
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path(), "strays");
    let mut lab = Lab::open(options.clone()).unwrap();
    let mut case = partitioned(&forwarding, &others);
    let text = enter(&mut lab, &options, &case).unwrap_err().to_string();
    assert!(
        text.contains("(forwarding) may use CPUs") && text.contains(&forwarding.to_string()),
        "{text}"
    );
    // Without requested pinning, this is no fault.
    case.settings.is_pinned = false;
    let _begun = enter(&mut lab, &options, &case).unwrap();
    lab.down().unwrap();
}

#[test]
fn invalid_cpus_are_refused_before_any_change() {
    let _turn = take_turn().unwrap();
    let (forwarding, others) = machine();
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path(), "works");
    let mut lab = Lab::open(options.clone()).unwrap();
    let case = partitioned(&forwarding, &others);
    let absent: CpuList = "8000".parse().unwrap();
    let mut wrong = [case.clone(), case.clone(), case.clone()];
    wrong[0].case.roles.forwarding = absent;
    wrong[1].case.roles.service = forwarding.clone();
    // Pinned, but without isolation of its CPUs.
    wrong[2].case.partition = None;
    wrong[2].settings.service_cpus = forwarding.clone();
    for case in &wrong {
        let error = enter(&mut lab, &options, case).unwrap_err();
        assert_eq!(error.fault(), Fault::BadInput, "{error}");
        assert!(sets_of(std::process::id()).is_empty());
    }
    let online = forwarding.union(&others);
    let error = lab.allow_realtime(&online, &online).unwrap_err();
    assert_eq!(error.fault(), Fault::BadInput, "{error}");
    lab.down().unwrap();
}

#[test]
fn a_second_lab_reports_who_has_the_machine() {
    let _turn = take_turn().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let first = Lab::open(options(directory.path(), "works")).unwrap();
    let error = Lab::open(options(directory.path(), "works")).unwrap_err();
    assert!(matches!(error, LabError::Busy { .. }));
    assert!(error.to_string().contains(&std::process::id().to_string()));
    drop(first);
    let freed = wait_until(DEADLINE, || {
        Lab::open(options(directory.path(), "works")).is_ok()
    });
    assert!(freed);
}
