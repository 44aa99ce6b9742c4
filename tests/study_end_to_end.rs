// SPDX-License-Identifier: Apache-2.0
//! Tests of whole studies with the real binary: real switch, real memif, real stress-ng, real CPU sets. They must end with a
//! page, leave nothing behind after any kind of end, and continue where they stopped. No figure is judged.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "study_end_to_end/external.rs"]
mod external;
#[path = "study_end_to_end/findings.rs"]
mod findings;
#[path = "study_end_to_end/isolation.rs"]
mod isolation;
#[path = "study_end_to_end/procedures.rs"]
mod procedures;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use quietwire_base::LockFile;
use quietwire_base::testing::take_turn;
use rusqlite::{Connection, OpenFlags};

const DEADLINE: Duration = Duration::from_secs(180);

/// One study at a time: each uses the CPUs of the machine exclusively.
static MACHINE: Mutex<()> = Mutex::new(());

struct Workplace {
    directory: tempfile::TempDir,
    before: Machine,
    _turn: LockFile,
    _machine: MutexGuard<'static, ()>,
}

/// Machine state that a study changes and must restore.
#[derive(Debug, PartialEq)]
struct Machine {
    realtime: String,
    huge_pages: String,
    cpusets: Vec<PathBuf>,
}

impl Machine {
    fn now() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap();
        let cpusets = ["/sys/fs/cgroup/cpuset", "/sys/fs/cgroup"]
            .iter()
            .filter_map(|mount| fs::read_dir(mount).ok())
            .flatten()
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                path.file_name()
                    .unwrap()
                    .to_string_lossy()
                    .starts_with("quietwire")
            })
            .collect();
        Self {
            realtime: read("/proc/sys/kernel/sched_rt_runtime_us"),
            huge_pages: read("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"),
            cpusets,
        }
    }
}

impl Workplace {
    fn new() -> Self {
        let guard = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = take_turn().unwrap();
        let place = Self {
            directory: tempfile::tempdir().unwrap(),
            before: Machine::now(),
            _turn: turn,
            _machine: guard,
        };
        fs::write(place.path("study.toml"), STUDY).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn quietwire(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quietwire"));
        command
            .args(arguments)
            .current_dir(self.directory.path())
            .stdin(Stdio::null());
        command
    }

    fn study(&self, more: &[&str]) -> Command {
        let mut command = self.quietwire(&[
            "study",
            "run",
            "study.toml",
            "--store",
            "s.sqlite",
            "--html",
            "s.html",
        ]);
        command
            .arg("--state-directory")
            .arg(self.path("lab"))
            .args(more);
        command
    }

    fn clean(&self) -> String {
        let lab = self.path("lab");
        let output = self
            .quietwire(&["lab", "clean", "--state-directory", lab.to_str().unwrap()])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the number of trials in the store, as a reader finds it during the study.
    fn trials(&self) -> usize {
        let count = || -> rusqlite::Result<u32> {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
            let store = Connection::open_with_flags(self.path("s.sqlite"), flags)?;
            store.query_row("SELECT count(*) FROM trial", (), |row| row.get(0))
        };
        count().unwrap_or(0) as usize
    }

    fn start_and_wait_for_trials(&self, wanted: usize) -> Child {
        let mut child = self
            .study(&[])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let began = Instant::now();
        while self.trials() < wanted {
            assert!(began.elapsed() < DEADLINE, "no trials were stored");
            assert!(child.try_wait().unwrap().is_none(), "the study ended early");
            sleep(Duration::from_millis(50));
        }
        child
    }

    fn assert_nothing_left(&self) {
        assert_eq!(Machine::now(), self.before);
        let neighbours = processes("stress-ng");
        assert!(
            neighbours.is_empty(),
            "neighbours still run: {neighbours:?}"
        );
        let left: Vec<_> = fs::read_dir(self.path("lab"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["lock"]);
    }
}

/// Returns the processes with a name that were started from this session (others on the machine are ignored), with their
/// lines of `/proc/PID/stat`.
fn processes(name: &str) -> Vec<String> {
    let own = fs::read_to_string("/proc/self/stat").unwrap();
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok())
        .filter(|stat| stat.contains(&format!("({name}")) && session(stat) == session(&own))
        // A zombie does not run; it waits for its parent.
        .filter(|stat| !stat.contains(") Z "))
        .collect()
}

/// Returns the session in a line of `/proc/PID/stat`: the fourth field after the name.
fn session(stat: &str) -> Option<&str> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(3)
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Short, and with little load: the measured values do not matter.
const STUDY: &str = concat!(
    r#"
name = "test"
title = "A test"
"#,
    include_str!("../crates/study/src/tests/device.toml"),
    r#"
[traffic]
frame-sizes = [64]
directions = "both"
[trials]
duration-s = 0.1
warm-up-s = 0.05
drain-s = 0.05
max-rate-pps = 200_000
invalid-repeats = 1
[search]
start-rate-percent = 50
start-step-percent = 50
resolution-percent = 25
[[search.goal]]
name = "PDR"
loss-ratio = 0.5
[sweep]
loads-percent = [50]
[latency]
rate-pps = 2000
duration-s = 0.1
repeats = 1
[neighbours]
stressors = ["--cpu 2"]
[[case]]
name = "quiet"
neighbours = "none"
isolation = "none"
[[case]]
name = "noisy-isolated"
neighbours = "off-forwarding-cpus"
isolation = "isolated"
"#
);

/// Returns a study without its search and its sweep.
fn with_latency_only(study: &str) -> String {
    let (before, methods) = study.split_once("[search]").unwrap();
    let (_, latency) = methods.split_once("[latency]").unwrap();
    format!("{before}[latency]{latency}")
}

#[test]
fn a_study_ends_with_a_page_and_can_be_reported_again() {
    let place = Workplace::new();
    let output = place.study(&["--json"]).output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["schema"], 1);
    let page = fs::read_to_string(place.path("s.html")).unwrap();
    assert!(page.contains("noisy-isolated") && page.contains("</html>"));
    // What ran where.
    for drawn in ["Topology of noisy-isolated", "CPUs of noisy-isolated"] {
        assert!(page.contains(&format!("aria-label=\"{drawn}\"")), "{drawn}");
    }
    assert!(page.contains("device qw-fwd-"), "no forwarding thread");
    place.assert_nothing_left();

    let again = place
        .quietwire(&["study", "report", "s.sqlite", "--html", "again.html"])
        .output()
        .unwrap();
    assert!(again.status.success(), "{}", words(&again));
    assert_eq!(fs::read_to_string(place.path("again.html")).unwrap(), page);

    // An existing file is never overwritten without an option.
    let refused = place.study(&[]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", words(&refused));
    assert!(words(&refused).contains("--resume"), "{}", words(&refused));
    let done = place.trials();
    let resumed = place.study(&["--resume"]).output().unwrap();
    assert!(resumed.status.success(), "{}", words(&resumed));
    assert_eq!(place.trials(), done);
    // With fewer cases and methods.
    let (shorter, _) = STUDY.rsplit_once("[[case]]").unwrap();
    fs::write(place.path("study.toml"), with_latency_only(shorter)).unwrap();
    let fresh = place.study(&["--fresh"]).output().unwrap();
    assert!(fresh.status.success(), "{}", words(&fresh));
    assert!(place.path("s.sqlite.1").exists());
    place.assert_nothing_left();
}

#[test]
fn a_killed_study_keeps_its_trials_is_cleaned_up_after_and_resumes() {
    let place = Workplace::new();
    let mut child = place.start_and_wait_for_trials(3);
    child.kill().unwrap();
    child.wait().unwrap();
    let kept = place.trials();
    assert!(kept >= 3);
    let report = place
        .quietwire(&["study", "report", "s.sqlite", "--html", "partial.html"])
        .output()
        .unwrap();
    assert!(report.status.success(), "{}", words(&report));
    place.clean();
    place.assert_nothing_left();
    assert!(place.clean().contains("nothing"));

    let resumed = place.study(&["--resume"]).output().unwrap();
    assert!(resumed.status.success(), "{}", words(&resumed));
    assert!(place.trials() > kept);
    place.assert_nothing_left();
}

/// Interrupts a study, and waits for its end.
fn interrupt(study: &mut Child) {
    let pid = study.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status();
    assert!(sent.unwrap().success());
    let began = Instant::now();
    let status = loop {
        if let Some(status) = study.try_wait().unwrap() {
            break status;
        }
        assert!(began.elapsed() < DEADLINE, "the study does not stop");
        sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(1));
}

#[test]
fn an_interrupted_study_undoes_everything_itself() {
    let place = Workplace::new();
    let mut child = place.start_and_wait_for_trials(1);
    interrupt(&mut child);
    place.assert_nothing_left();
    assert!(place.trials() >= 1);
}

#[test]
fn bad_input_gets_one_message_and_leaves_nothing() {
    let place = Workplace::new();
    let refuse = |text: String, part: &str| {
        fs::write(place.path("study.toml"), text).unwrap();
        let output = place.study(&[]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", words(&output));
        assert!(words(&output).contains(part), "{part}: {}", words(&output));
        let _ = fs::remove_file(place.path("s.sqlite"));
    };
    refuse(
        STUDY.replace("name = \"test\"", "name = \"test\"\ncolour = 1"),
        "colour",
    );
    refuse(
        STUDY.replace("loss-ratio = 0.5", "loss-ratio = 1.5"),
        "loss-ratio",
    );
    refuse(STUDY.replace("cpu = \"0\"", "cpu = \"700\""), "700");
    refuse(
        STUDY.replace("service-cpus = \"0\"", "service-cpus = \"1\""),
        "1",
    );
    refuse("this is not TOML".to_owned(), "study.toml");
    fs::write(place.path("study.toml"), STUDY).unwrap();
    fs::write(place.path("s.sqlite"), "not a database").unwrap();
    let output = place.study(&["--resume"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", words(&output));
    assert_eq!(
        fs::read_to_string(place.path("s.sqlite")).unwrap(),
        "not a database"
    );
    assert_eq!(Machine::now(), place.before);
}

#[test]
fn a_second_study_at_the_same_time_reports_who_has_the_machine() {
    let place = Workplace::new();
    let mut first = place.start_and_wait_for_trials(1);
    let mut second = place.quietwire(&[
        "study",
        "run",
        "study.toml",
        "--store",
        "t.sqlite",
        "--html",
        "t.html",
    ]);
    let output = second
        .arg("--state-directory")
        .arg(place.path("lab"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", words(&output));
    assert!(
        words(&output).contains(&first.id().to_string()),
        "{}",
        words(&output)
    );
    assert!(place.clean().contains("left unchanged"));
    assert!(first.try_wait().unwrap().is_none(), "the first study ended");
    interrupt(&mut first);
    place.assert_nothing_left();
}
