// SPDX-License-Identifier: Apache-2.0
//! This machine: all of its settings that are applied, a neighbour under load, and kills halfway.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use quietwire_host::apply::STATE_DIRECTORY;
use quietwire_host::tasks::DataPlane;
use serde_json::Value;

use crate::rig::{Checks, Machine, SETS, allowed, forwards_for, settings, until};
use crate::{done, partition, text};

const SPIN: &str = "while :; do :; done";

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        text(&output)
    );
}

/// An interface whose received packets the kernel processes on both CPUs; removed with this value.
struct Steered(String);

impl Steered {
    fn new() -> Self {
        let interface = Self(format!("qwp{}", std::process::id()));
        run("ip", &["link", "add", &interface.0, "type", "veth"]);
        fs::write(interface.file(), "3").unwrap();
        interface
    }

    fn file(&self) -> PathBuf {
        format!("/sys/class/net/{}/queues/rx-0/rps_cpus", self.0).into()
    }

    fn cpus(&self) -> u64 {
        let mask = fs::read_to_string(self.file()).unwrap();
        u64::from_str_radix(&mask.trim().replace(',', ""), 16).unwrap()
    }
}

impl Drop for Steered {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", &self.0]).status();
    }
}

/// A CPU set of another program, with these CPUs. Removed with this value.
struct Foreign(PathBuf);

impl Foreign {
    fn new(cpus: &str) -> Self {
        let set = Self(Path::new(SETS).join(format!("theirs-{}", std::process::id())));
        fs::create_dir(&set.0).unwrap();
        for (file, text) in [("cpuset.mems", "0"), ("cpuset.cpus", cpus)] {
            fs::write(set.0.join(file), text).unwrap();
        }
        set
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let began = Instant::now();
        // Processes started there are killed, and leave the set a moment later.
        while fs::remove_dir(&self.0).is_err() && began.elapsed() < Duration::from_secs(5) {
            for pid in fs::read_to_string(self.0.join("cgroup.procs"))
                .unwrap_or_default()
                .lines()
            {
                let _ = Command::new("kill").args(["-9", pid]).status();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn threads_leave_the_isolated_cpus_and_return_after_rollback() {
    const PAGES: u64 = 8;
    let mut machine = Machine::new(PAGES);
    let steered = Steered::new();
    let foreign = Foreign::new("0-1");
    machine.before = settings();
    // Under load, with threads that start and end.
    let load = machine.start(Command::new("stress-ng").args([
        "--cpu",
        "2",
        "--fork",
        "1",
        "--timeout",
        "120",
        "--quiet",
    ]));
    let theirs = machine.start(Command::new("sh").args(["-c", SPIN]));
    fs::write(foreign.0.join("cgroup.procs"), theirs.to_string()).unwrap();
    assert_eq!(
        (allowed(load), allowed(theirs)),
        ("0-1".to_owned(), "0-1".to_owned())
    );
    let pool: u64 = machine.before
        [Path::new("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages")]
    .trim()
    .parse()
    .unwrap();

    let dry = done(&["apply", "--plan", machine.plan(), "--dry-run"]);
    assert!(dry.contains("rps_cpus: 3 -> 1"), "{dry}");
    assert!(
        dry.contains(&format!("nr_hugepages: {pool} -> {}", pool + PAGES)),
        "{dry}"
    );
    assert_eq!(settings(), machine.before, "a dry run changes nothing");
    done(&["apply", "--plan", machine.plan()]);
    assert_eq!(allowed(load), "0");
    assert_eq!(allowed(theirs), "0", "the CPU set still has both CPUs");
    assert_eq!(steered.cpus(), 1);
    let masks = [
        "/proc/irq/default_smp_affinity",
        "/sys/devices/virtual/workqueue/cpumask",
    ];
    for file in masks {
        let mask = fs::read_to_string(file).unwrap();
        assert_eq!(mask.trim().trim_start_matches(['0', ',']), "1", "{file}");
    }
    let is_moved =
        |(path, list): &(PathBuf, String)| path.starts_with("/proc/irq") && list.trim() == "0";
    let moved = settings().into_iter().filter(is_moved).count();
    assert!(
        moved > 3,
        "{moved} interrupts stay on CPU 0: {:?}",
        settings()
    );
    let again = done(&["apply", "--plan", machine.plan()]);
    assert!(
        !again.contains("workqueue") && !again.contains("nr_hugepages"),
        "{again}"
    );

    let checks = Checks::over("1s");
    checks.assert(
        "pass",
        &[
            "interrupts-to-come",
            "work-queues",
            "write-back",
            "receive-steering",
            "huge-pages",
        ],
    );
    for tid in [load, theirs] {
        checks.assert_unblamed(tid, &["intruders", "who-ran", "forwarding-threads"]);
    }

    done(&["rollback"]);
    assert_eq!(settings(), machine.before);
    assert_eq!(
        (allowed(load), allowed(theirs)),
        ("0-1".to_owned(), "0-1".to_owned())
    );
    assert_eq!(steered.cpus(), 3);
    machine.end_all();
}

#[test]
fn threads_on_a_forwarding_cpu_are_reported_by_name() {
    let mut machine = Machine::new(0);
    done(&["apply", "--plan", machine.plan()]);
    // DPDK's names of worker threads.
    let worker = format!("taskset -pc 1 $$ > /dev/null; echo dpdk-worker1 > /proc/$$/comm; {SPIN}");
    let worker = machine.start_in_data_plane(&worker);
    until("the worker has its name", || {
        let comm = fs::read_to_string(format!("/proc/{worker}/comm")).unwrap();
        (comm.trim() == "dpdk-worker1").then_some(())
    });
    assert_eq!(forwards_for(worker), Some(DataPlane::Dpdk));
    Checks::over("1s").assert_unblamed(
        worker,
        &[
            "forwarding-threads",
            "forwarding-migrations",
            "system-calls",
            "who-ran",
        ],
    );
    let intruder = machine.start_in_data_plane(&format!("taskset -pc 1 $$ > /dev/null; {SPIN}"));
    until("the intruder runs", || {
        (allowed(intruder) == "1").then_some(())
    });
    let checks = Checks::over("1s");
    assert_eq!(checks.code, Some(1));
    checks.assert("fail", &["intruders", "who-ran", "forwarding-switches"]);
    assert!(
        checks.actual("who-ran").contains(&intruder.to_string()),
        "{}",
        checks.actual("who-ran")
    );
    machine.end_all();
    done(&["rollback"]);
    assert_eq!(settings(), machine.before);
}

/// Checks that applying does not change foreign CPU sets and pinned threads, and that the commands that `verify` proposes
/// for them work.
#[test]
fn a_remedy_that_is_run_makes_its_check_pass() {
    const CHECKS: [&str; 2] = ["intruders", "cpu-sets"];
    let mut machine = Machine::new(0);
    done(&["apply", "--plan", machine.plan()]);
    // The machine may have other users.
    let before = Checks::now();
    let own = Foreign::new("1");
    let procs = own.0.join("cgroup.procs");
    let confined = format!("echo $$ > {}; {SPIN}", procs.display());
    let confined = machine.start(Command::new("sh").args(["-euc", &confined]));
    let pinned = machine.start_in_data_plane(&format!("taskset -pc 1 $$ > /dev/null; {SPIN}"));
    until("both run", || {
        (allowed(confined) == "1" && allowed(pinned) == "1").then_some(())
    });
    let found = Checks::now();
    found.assert("fail", &CHECKS);
    let set = own.0.file_name().unwrap().to_str().unwrap().to_owned();
    let repairs_ours = |command: &&str| {
        command.ends_with(&format!(" {pinned}"))
            || command.starts_with(&format!("echo {confined} "))
            || command.contains(&set)
    };
    let commands: Vec<&str> = CHECKS
        .iter()
        .flat_map(|check| found.commands(check))
        .filter(repairs_ours)
        .collect();
    assert_eq!(commands.len(), 3, "{commands:?}");
    for command in commands {
        run("sh", &["-euc", command]);
    }
    let after = Checks::now();
    for check in CHECKS {
        assert_eq!(after.verdict(check), before.verdict(check), "{check}");
        assert!(
            !after.actual(check).contains(&set),
            "{}",
            after.actual(check)
        );
    }
    for thread in [confined, pinned] {
        after.assert_unblamed(thread, &["intruders"]);
        assert_eq!(allowed(thread), "0");
    }
    machine.end_all();
    drop(own);
    done(&["rollback"]);
    assert_eq!(settings(), machine.before);
}

/// Checks the command that `verify` proposes for a set of another program whose CPUs the scheduler balances.
#[test]
fn the_remedy_of_a_balanced_set_makes_its_check_pass() {
    const CHECK: &str = "cpu-set-balance";
    let machine = Machine::new(0);
    done(&["apply", "--plan", machine.plan()]);
    // The machine may have other users.
    let before = Checks::now();
    let theirs = Foreign::new("0-1");
    let found = Checks::now();
    found.assert("fail", &[CHECK]);
    let set = theirs.0.file_name().unwrap().to_str().unwrap();
    let commands: Vec<&str> = found
        .commands(CHECK)
        .into_iter()
        .filter(|command| command.contains(set))
        .collect();
    assert_eq!(commands.len(), 1, "{commands:?}");
    run("sh", &["-euc", commands[0]]);
    let after = Checks::now();
    assert_eq!(after.verdict(CHECK), before.verdict(CHECK));
    assert!(
        !after.actual(CHECK).contains(set),
        "{}",
        after.actual(CHECK)
    );
    drop(theirs);
    done(&["rollback"]);
    assert_eq!(settings(), machine.before);
}

/// Checks that the command that `verify` proposes for an interrupt moves it off the isolated CPUs.
#[test]
fn the_remedy_for_an_interrupt_moves_the_interrupt() {
    const CHECK: &str = "interrupts";
    let machine = Machine::new(0);
    done(&["apply", "--plan", machine.plan()]);
    let before = Checks::now();
    // The machine may have interrupts that have not occurred since they were moved: then the check is unknown.
    assert_ne!(before.verdict(CHECK), "fail", "{}", before.actual(CHECK));
    // An interrupt stays at its CPU while that CPU is allowed, so this one needs no further occurrence to move. The kernel
    // refuses to change those that it places itself.
    let is_movable = |(path, cpus): &(PathBuf, String)| {
        let effective = fs::read_to_string(path.with_file_name("effective_affinity_list"));
        path.starts_with("/proc/irq")
            && path.ends_with("smp_affinity_list")
            && cpus.trim() == "0"
            && effective.is_ok_and(|cpus| cpus.trim() == "0")
            && fs::write(path, "0-1").is_ok()
    };
    let (list, _) = settings()
        .into_iter()
        .find(is_movable)
        .expect("an interrupt of CPU 0 that can be moved");
    let number = list.parent().unwrap().file_name().unwrap();
    let named = format!("{} (CPUs 0-1)", number.to_str().unwrap());

    let found = Checks::now();
    found.assert("fail", &[CHECK]);
    assert!(
        found.actual(CHECK).contains(&named),
        "{}",
        found.actual(CHECK)
    );
    let commands = found.commands(CHECK);
    assert_eq!(commands, [format!("echo 0 > {}", list.display())]);
    run("sh", &["-euc", commands[0]]);
    let after = Checks::now();
    assert_ne!(after.verdict(CHECK), "fail", "{}", after.actual(CHECK));
    let moves = format!(" {} (CPUs", number.to_str().unwrap());
    assert!(
        !after.actual(CHECK).contains(&moves),
        "{}",
        after.actual(CHECK)
    );
    done(&["rollback"]);
    assert_eq!(settings(), machine.before);
}

/// Checks that only root can read the applied plan.
#[test]
fn verifying_without_root_reports_that_root_is_missing() {
    let machine = Machine::new(0);
    done(&["apply", "--plan", machine.plan()]);
    let program = machine.directory.path().join("quietwire");
    fs::copy(env!("CARGO_BIN_EXE_quietwire"), &program).unwrap();
    run(
        "chmod",
        &["-R", "a+rX", machine.directory.path().to_str().unwrap()],
    );
    let verify = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", "65534", "--clear-groups"])
            .arg(&program);
        command
            .args(["partition", "verify"])
            .args(arguments)
            .output()
            .unwrap()
    };
    let output = verify(&[]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(text(&output).contains("requires root"), "{}", text(&output));
    let named = verify(&["--plan", machine.plan(), "--json"]);
    assert!(
        matches!(named.status.code(), Some(0 | 1)),
        "{}",
        text(&named)
    );
    done(&["rollback"]);
}

#[test]
fn changes_of_a_killed_apply_are_rolled_back_on_the_running_machine() {
    const SIGKILL: i32 = 9;
    let machine = Machine::new(4);
    // Each change has a point before and a point after its journal entry.
    done(&["apply", "--plan", machine.plan()]);
    let status: Value = serde_json::from_str(&done(&["status", "--json"])).unwrap();
    let points = 2 * status["changes"].as_array().unwrap().len();
    assert!(points > 10, "{points}");
    done(&["rollback"]);
    assert_eq!(settings(), machine.before);
    for point in [
        1,
        2,
        points / 4,
        points / 2,
        points * 3 / 4,
        points - 1,
        points,
    ] {
        let point = point.to_string();
        let output = partition(&["apply", "--plan", machine.plan(), "--fail-at", &point]);
        assert_eq!(
            output.status.signal(),
            Some(SIGKILL),
            "{point}: {}",
            text(&output)
        );
        done(&["rollback"]);
        assert_eq!(
            settings(),
            machine.before,
            "killed at point {point} of {points}"
        );
    }
}

#[test]
fn of_two_who_change_the_machine_the_second_is_reported() {
    const AT_ONCE: usize = 6;
    let machine = Machine::new(4);
    let apply = ["apply", "--plan", machine.plan()];
    done(&apply);
    // A process that holds the lock for long.
    let lock = Path::new(STATE_DIRECTORY).join("lock");
    let held = File::options().write(true).open(lock).unwrap();
    held.try_lock().unwrap();
    for command in [&apply[..], &["rollback"]] {
        let output = partition(command);
        assert!(is_busy(&output), "{command:?}: {}", text(&output));
    }
    drop(held);
    done(&["rollback"]);
    assert_eq!(settings(), machine.before);
    // Several that start together: each either runs in turn, or reports the other.
    let begin = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quietwire"));
        command.arg("partition").args(apply);
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
    };
    let began: Vec<_> = (0..AT_ONCE).map(|_| begin().unwrap()).collect();
    let ended = began.into_iter().map(|one| one.wait_with_output().unwrap());
    let (applied, reported): (Vec<_>, Vec<_>) = ended.partition(|output| output.status.success());
    assert!(!applied.is_empty());
    for output in &reported {
        assert!(is_busy(output), "{}", text(output));
    }
    let status: Value = serde_json::from_str(&done(&["status", "--json"])).unwrap();
    assert!(!status["changes"].as_array().unwrap().is_empty());
    done(&["rollback"]);
    assert_eq!(settings(), machine.before);
}

fn is_busy(output: &Output) -> bool {
    const FAILED: i32 = 1;
    output.status.code() == Some(FAILED) && text(output).contains("is applying a partition")
}
